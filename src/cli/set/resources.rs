//! `kloop set resources`: sets requests and limits of containers.

use super::{ObjectEdit, SetFlags, SetVerbText, containers_mut, pod_spec};
use crate::cli::manifests::key_changes;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Quantity;
use serde_json::{Value, json};

/// Specify compute resource requirements (CPU, memory) for any resource that defines a pod template.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME) ([--limits=LIMITS & --requests=REQUESTS]",
    after_help = "\
# Set a deployments nginx container cpu limits to \"200m\" and memory to \"512Mi\"
kloop set resources deployment nginx -c=nginx --limits=cpu=200m,memory=512Mi

# Set the resource request and limits for all containers in nginx
kloop set resources deployment nginx --limits=cpu=200m,memory=512Mi --requests=cpu=100m,memory=256Mi

# Remove the resource requests for resources on containers in nginx
kloop set resources deployment nginx --limits=cpu=0,memory=0 --requests=cpu=0,memory=0"
)]
pub struct Args {
    /// TYPE NAME or TYPE/NAME.
    words: Vec<String>,
    #[command(flatten)]
    setting: SetFlags,
    /// The names of containers in the selected pod templates to change, all containers are selected by default.
    #[arg(short, long, default_value = "*", value_name = "CONTAINER")]
    containers: String,
    /// The resource requirement limits for this container, such as 'cpu=100m,memory=256Mi'.
    #[arg(long, default_value = "", value_name = "LIST")]
    limits: String,
    /// The resource requirement requests for this container, such as 'cpu=100m,memory=256Mi'.
    #[arg(long, default_value = "", value_name = "LIST")]
    requests: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if args.limits.is_empty() && args.requests.is_empty() {
        let text = "you must specify an update to requests or limits (in the form of --requests/--limits)";
        return Err(Failure::plain(text));
    }
    let wanted = [("limits", amounts(&args.limits)?), ("requests", amounts(&args.requests)?)];
    let words = SetVerbText {
        updated: "resource requirements",
        patched: "resources update to pod template",
        prints_unchanged: false,
    };
    let only = args.containers.clone();
    let is_local = args.setting.local;
    args.setting.update(context, &args.words, words, |_, target| {
        let (kind, wanted, only) = (target.kind, wanted.clone(), only.clone());
        let edit: ObjectEdit = Box::new(move |object| {
            let found = containers_mut(pod_spec(kind, object, is_local)?, |name| only == "*" || only == name);
            if found.is_empty() {
                return Err(Failure::plain(format!("unable to find container named {only}")));
            }
            for container in found {
                for (field, amounts) in &wanted {
                    for (resource, amount) in amounts {
                        let resources = container.entry("resources").or_insert_with(|| json!({}));
                        set(resources, field, resource, amount);
                    }
                }
            }
            Ok(())
        });
        Ok(edit)
    })
}

fn set(resources: &mut Value, field: &str, resource: &str, amount: &str) {
    if !resources[field].is_object() {
        resources[field] = json!({});
    }
    resources[field][resource] = amount.into();
}

/// Parses `cpu=100m,memory=64Mi`.
fn amounts(text: &str) -> CliResult<Vec<(String, String)>> {
    let words: Vec<String> = text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let pairs = key_changes::parse(&words, "resource", false)
        .map_err(|_| Failure::plain(format!("Invalid argument syntax {text}, expected <resource>=<value>")))?;
    for (_, amount) in &pairs.set {
        Quantity::parse(amount).map_err(|error| Failure::plain(error.to_string()))?;
    }
    Ok(pairs.set)
}
