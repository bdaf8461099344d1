//! `kloop create serviceaccount`.

use super::generate::GeneratorFlags;
use crate::cli::{CliResult, CommandContext};
use serde_json::json;

/// Create a service account with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME [--dry-run=server|client|none]",
    after_help = "\
# Create a new service account named my-service-account
kloop create serviceaccount my-service-account"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create serviceaccount")?;
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    args.generate.create(context, body, Some("serviceaccount"))
}
