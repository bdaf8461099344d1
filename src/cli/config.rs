//! `kloop config`: contexts. kubectl keeps them in a kubeconfig; a kloop context is a state file
//! with a default namespace. The context has the name of the file's folder until it is renamed.

mod entries;
mod property;

use super::flags::PrintFlags;
use super::{CliResult, CommandContext, Failure, context_settings};
use crate::show::columns;
use crate::show::print::{ObjectPrinter, OutputFormat};
use clap::Subcommand;
use serde_json::{Value, json};

/// Show and change the context: the cluster's file and its default namespace.
#[derive(clap::Args)]
#[command(override_usage = "SUBCOMMAND")]
pub struct Args {
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Subcommand)]
enum ConfigVerb {
    /// Display the current-context.
    #[command(after_help = "\
# Display the current-context
kloop config current-context")]
    CurrentContext,
    /// Delete the specified cluster: refused for the only one there is.
    DeleteCluster(entries::DeleteArgs),
    /// Delete the specified context: refused for the only one there is.
    DeleteContext(entries::DeleteArgs),
    /// Delete the specified user: refused for the only one there is.
    DeleteUser(entries::DeleteArgs),
    GetClusters(entries::GetClustersArgs),
    GetContexts(GetContextsArgs),
    GetUsers(entries::GetUsersArgs),
    RenameContext(RenameContextArgs),
    Set(property::SetArgs),
    SetCluster(entries::SetClusterArgs),
    SetContext(SetContextArgs),
    SetCredentials(entries::SetCredentialsArgs),
    Unset(property::UnsetArgs),
    UseContext(UseContextArgs),
    View(ConfigViewArgs),
}

/// Describe one or many contexts.
#[derive(clap::Args)]
#[command(
    override_usage = "[(-o|--output=)name)]",
    after_help = "\
# List all the contexts
kloop config get-contexts"
)]
struct GetContextsArgs {
    /// Names of contexts; all if none is given.
    contexts: Vec<String>,
    /// When using the default output format, don't print headers.
    #[arg(long)]
    no_headers: bool,
    /// Output format. One of: (name).
    #[arg(short, long, value_name = "FORMAT", default_value = "")]
    output: String,
}

/// Give the context another name: scripts that call kubectl with "--context NAME" then mean this cluster.
#[derive(clap::Args)]
#[command(
    override_usage = "CONTEXT_NAME NEW_NAME",
    after_help = "\
# Let scripts that say \"--context kind-dev\" mean this cluster
kloop config rename-context default kind-dev"
)]
struct RenameContextArgs {
    /// The context's name and the new one.
    contexts: Vec<String>,
}

/// Set the namespace that commands use without --namespace.
#[derive(clap::Args)]
#[command(
    override_usage = "[NAME | --current] [--namespace=namespace]",
    after_help = "\
# Use the namespace \"backend\" when none is asked for
kloop config set-context --current --namespace=backend"
)]
struct SetContextArgs {
    /// The context's name, or --current.
    contexts: Vec<String>,
    /// Modify the current context.
    #[arg(long)]
    current: bool,
}

/// Set the current-context. Each state file has only one; choose another file with --state or
/// $KLOOP_STATE.
#[derive(clap::Args)]
#[command(
    override_usage = "CONTEXT_NAME",
    after_help = "\
# Use the only context there is
kloop config use-context default"
)]
struct UseContextArgs {
    /// The context's name.
    contexts: Vec<String>,
}

/// Display the context in the form of a kubeconfig.
#[derive(clap::Args)]
#[command(after_help = "\
# Show the context
kloop config view

# Get the default namespace
kloop config view --minify -o jsonpath='{..namespace}'")]
struct ConfigViewArgs {
    #[command(flatten)]
    print: PrintFlags,
    /// Accepted for compatibility with kubectl; there is only the current context.
    #[arg(long)]
    minify: bool,
    /// Accepted for compatibility with kubectl; the kubeconfig contains no secrets.
    #[arg(long)]
    raw: bool,
    /// Accepted for compatibility with kubectl; the kubeconfig refers to no files.
    #[arg(long)]
    flatten: bool,
    /// Accepted for compatibility with kubectl; there is one kubeconfig.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    merge: Option<bool>,
}

/// The user name in kubeconfigs.
pub(super) const USER: &str = "admin";

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = context_settings::context_name(&context.state());
    match args.verb {
        ConfigVerb::CurrentContext => context.print_line(&name),
        ConfigVerb::DeleteCluster(args) => entries::delete("cluster", &args, &name, context),
        ConfigVerb::DeleteContext(args) => entries::delete("context", &args, &name, context),
        ConfigVerb::DeleteUser(args) => entries::delete("user", &args, USER, context),
        ConfigVerb::GetClusters(_) => entries::print_names(context, &name),
        ConfigVerb::GetUsers(_) => entries::print_names(context, USER),
        ConfigVerb::Set(args) => property::set(&args, context, &name),
        ConfigVerb::SetCluster(args) => entries::set_cluster(&args, context),
        ConfigVerb::SetCredentials(args) => entries::set_credentials(&args, context),
        ConfigVerb::Unset(args) => property::unset(&args, context, &name),
        ConfigVerb::GetContexts(args) => get_contexts(&args, context, &name),
        ConfigVerb::RenameContext(args) => rename_context(&args, context, &name),
        ConfigVerb::SetContext(args) => set_context(&args, context, &name),
        ConfigVerb::UseContext(args) => use_context(&args, context, &name),
        ConfigVerb::View(args) => view(&args, context, &name),
    }
}

fn get_contexts(args: &GetContextsArgs, context: &mut CommandContext, name: &str) -> CliResult {
    if !matches!(args.output.as_str(), "" | "name") {
        return Err(Failure::plain(format!("output must be one of '' or 'name': {}", args.output)));
    }
    let unknown = args.contexts.iter().filter(|asked| *asked != name);
    let failures = unknown.map(|asked| Failure::plain(format!("context {asked} not found"))).collect();
    if args.contexts.is_empty() || args.contexts.iter().any(|asked| asked == name) {
        if args.output == "name" {
            context.print_line(name)?;
        } else {
            let head = if args.no_headers { "" } else { "CURRENT\tNAME\tCLUSTER\tAUTHINFO\tNAMESPACE\n" };
            let namespace = context.default_namespace();
            let text = format!("{head}*\t{name}\t{name}\t{USER}\t{namespace}\n");
            context.print(&columns::align(&text, columns::TABLE))?;
        }
    }
    Failure::from_failures(failures)
}

fn set_context(args: &SetContextArgs, context: &mut CommandContext, name: &str) -> CliResult {
    match &args.contexts[..] {
        [] if args.current => {}
        [asked] if !args.current && asked == name => {}
        [asked] if !args.current => return Err(missing(asked)),
        several if !args.current => return Err(Failure::plain(format!("Unexpected args: [{}]", several.join(" ")))),
        _ => return Err(Failure::plain("you cannot specify both a context name and --current")),
    }
    if let Some(namespace) = context.globals.namespace.clone() {
        context.set_default_namespace(&namespace)?;
    }
    context.print_line(&format!("Context {name:?} modified."))
}

fn rename_context(args: &RenameContextArgs, context: &mut CommandContext, name: &str) -> CliResult {
    let [old, new] = &args.contexts[..] else {
        return Err(Failure::plain(format!("Unexpected args: [{}]", args.contexts.join(" "))));
    };
    let problem = match () {
        () if new.is_empty() => "You must specify a new non-empty context name".to_owned(),
        () if !context_settings::is_name(new) => {
            format!("invalid context name {new:?}: it is one line of at most {} bytes", context_settings::LONGEST_NAME)
        }
        () if old != name => format!("cannot rename the context {old:?}, it's not in {}", context.state().display()),
        () if new == name => {
            format!(
                "cannot rename the context {old:?}, the context {new:?} already exists in {}",
                context.state().display()
            )
        }
        () => {
            context.rename_context(new)?;
            return context.print_line(&format!("Context {old:?} renamed to {new:?}."));
        }
    };
    Err(Failure::plain(problem))
}

fn use_context(args: &UseContextArgs, context: &mut CommandContext, name: &str) -> CliResult {
    match &args.contexts[..] {
        [asked] if asked == name => context.print_line(&format!("Switched to context {name:?}.")),
        [asked] => Err(missing(asked)),
        several => Err(Failure::plain(format!("Unexpected args: [{}]", several.join(" ")))),
    }
}

fn missing(name: &str) -> Failure {
    Failure::plain(format!(
        "no context exists with the name: {name:?} (another cluster is another file: name it with --state or KLOOP_STATE)"
    ))
}

fn view(args: &ConfigViewArgs, context: &mut CommandContext, name: &str) -> CliResult {
    let format = args.print.format(false, false)?.unwrap_or(OutputFormat::Yaml);
    let text = ObjectPrinter::new(format, true).object(&config(context, name))?;
    context.print(&text)
}

/// Returns the context as a kubeconfig.
fn config(context: &CommandContext, name: &str) -> Value {
    let path = std::path::absolute(context.state()).unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": { "server": format!("file://{}", path.display()) } }],
        "contexts": [{
            "name": name,
            "context": { "cluster": name, "namespace": context.default_namespace(), "user": USER },
        }],
        "current-context": name,
        "users": [{ "name": USER, "user": {} }],
    })
}
