//! `kloop create priorityclass`.

use super::generate::GeneratorFlags;
use crate::cli::{CliResult, CommandContext};
use serde_json::json;

/// Create a priority class with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none]",
    after_help = "\
# Create a priority class named high-priority
kloop create priorityclass high-priority --value=1000 --description=\"high priority\"

# Create a priority class named default-priority that is considered as the global default priority
kloop create priorityclass default-priority --value=1000 --global-default=true --description=\"default priority\""
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// The value of this priority class.
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    value: i32,
    /// Global-default specifies whether this PriorityClass should be considered as the default priority.
    #[arg(long)]
    global_default: bool,
    /// An arbitrary string that usually provides guidelines on when this priority class should be used.
    #[arg(long, default_value = "", value_name = "TEXT")]
    description: String,
    /// The policy for preempting pods with lower priority.
    #[arg(long, default_value = "PreemptLowerPriority", value_name = "POLICY")]
    preemption_policy: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create priorityclass")?;
    let mut body = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "preemptionPolicy": args.preemption_policy, "value": args.value,
    });
    if args.global_default {
        body["globalDefault"] = true.into();
    }
    if !args.description.is_empty() {
        body["description"] = args.description.as_str().into();
    }
    args.generate.create(context, body, Some("priorityclass"))
}
