//! `kloop create namespace`.

use super::generate::GeneratorFlags;
use crate::cli::{CliResult, CommandContext};
use serde_json::json;

/// Create a namespace with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME [--dry-run=server|client|none]",
    after_help = "\
# Create a new namespace named my-namespace
kloop create namespace my-namespace"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create namespace")?;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {}, "status": {}});
    args.generate.create(context, body, None)
}
