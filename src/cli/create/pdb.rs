//! `kloop create poddisruptionbudget`.

use super::generate::GeneratorFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Selector;
use serde_json::{Value, json};

/// Create a pod disruption budget with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none]",
    after_help = "\
# Create a pod disruption budget named my-pdb that will select all pods with the app=rails label
# and require at least one of them being available at any point in time
kloop create poddisruptionbudget my-pdb --selector=app=rails --min-available=1

# Create a pod disruption budget named my-pdb that will select all pods with the app=nginx label
# and require at least half of the pods selected to be available at any point in time
kloop create pdb my-pdb --selector=app=nginx --min-available=50%"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// The maximum number or percentage of unavailable pods this budget requires.
    #[arg(long, default_value = "", value_name = "N")]
    max_unavailable: String,
    /// The minimum number or percentage of available pods this budget requires.
    #[arg(long, default_value = "", value_name = "N")]
    min_available: String,
    /// A label selector to use for this budget, such as 'app=web' or 'tier in (a, b)'.
    #[arg(long, default_value = "", value_name = "SELECTOR")]
    selector: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create poddisruptionbudget")?;
    if args.selector.is_empty() {
        return Err(Failure::plain("a selector must be specified"));
    }
    let (field, value) = match (args.min_available.as_str(), args.max_unavailable.as_str()) {
        ("", "") => return Err(Failure::plain("one of min-available or max-unavailable must be specified")),
        (min, "") => ("minAvailable", amount("min-available", min)?),
        ("", max) => ("maxUnavailable", amount("max-unavailable", max)?),
        _ => return Err(Failure::plain("min-available and max-unavailable cannot be both specified")),
    };
    let unparsed = |why| Failure::plain(format!("couldn't parse the selector string {:?}: {why}", args.selector));
    let selector = Selector::parse(&args.selector).map_err(unparsed)?;
    let selector = selector.to_label_selector().map_err(|why| Failure::plain(why.to_string()))?;
    let body = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {field: value, "selector": selector},
        "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0},
    });
    args.generate.create(context, body, Some("poddisruptionbudgets"))
}

/// Parses a number or a percentage of pods.
fn amount(flag: &str, text: &str) -> CliResult<Value> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|letter| letter.is_ascii_digit()) {
        return Err(Failure::plain(format!("invalid format specified for {flag}")));
    }
    Ok(text.parse::<i64>().map_or_else(|_| text.into(), Value::from))
}
