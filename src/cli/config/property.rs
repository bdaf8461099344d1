//! `kloop config set` and `unset`: single values of the kubeconfig that `config view` prints.

use crate::cli::{CliResult, CommandContext, Failure};

/// Set an individual value in a kubeconfig file: the namespace of the context.
///
/// PROPERTY_NAME is a dot delimited name where each token represents either an attribute name or a map key.
#[derive(clap::Args)]
#[command(
    override_usage = "PROPERTY_NAME PROPERTY_VALUE",
    after_help = "\
# Use the namespace \"backend\" when none is asked for
kloop config set contexts.default.namespace backend"
)]
pub struct SetArgs {
    /// The property and its value.
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// Accepted for compatibility with kubectl; no property that can be set consists of bytes.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    set_raw_bytes: Option<bool>,
}

/// Unset an individual value in a kubeconfig file: the namespace of the context.
#[derive(clap::Args)]
#[command(
    override_usage = "PROPERTY_NAME",
    after_help = "\
# Use the namespace \"default\" again
kloop config unset contexts.default.namespace"
)]
pub struct UnsetArgs {
    /// The property.
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
}

/// Sets a property.
pub fn set(args: &SetArgs, context: &mut CommandContext, name: &str) -> CliResult {
    let [property, value] = &args.words[..] else { return Err(unexpected(&args.words)) };
    if property == "current-context" && value == name {
        return context.print_line(&format!("Property {property:?} set."));
    }
    check(property, context, name, "set")?;
    context.set_default_namespace(value)?;
    context.print_line(&format!("Property {property:?} set."))
}

/// Unsets a property.
pub fn unset(args: &UnsetArgs, context: &mut CommandContext, name: &str) -> CliResult {
    let [property] = &args.words[..] else { return Err(unexpected(&args.words)) };
    check(property, context, name, "unset")?;
    context.set_default_namespace("")?;
    context.print_line(&format!("Property {property:?} unset."))
}

fn unexpected(words: &[String]) -> Failure {
    Failure::plain(format!("Unexpected args: [{}]", words.join(" ")))
}

/// Refuses properties other than the namespace of the context: they follow from the state file.
fn check(property: &str, context: &CommandContext, name: &str, verb: &str) -> CliResult {
    let own = format!("contexts.{name}.namespace");
    if property == own {
        return Ok(());
    }
    let state = context.state();
    Err(Failure::plain(format!(
        "cannot {verb} {property:?}: only {own:?} can be {verb}, the rest follows from the file {} (\"kloop config rename-context\" \
         changes the name)",
        state.display()
    )))
}
