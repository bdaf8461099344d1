//! `kloop api-versions`: lists the groups and versions that the API serves.

use super::cluster::rest;
use super::{CliResult, CommandContext};
use std::collections::BTreeSet;

/// Print the supported API versions on the server, in the form of "group/version".
#[derive(clap::Args)]
#[command(after_help = "\
# Print the supported API versions
kloop api-versions")]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: Args, context: &mut CommandContext) -> CliResult {
    let served = rest::read_resources(context)?;
    let versions: BTreeSet<String> = served.into_iter().map(|resource| resource.api_version).collect();
    let text: String = versions.into_iter().map(|version| format!("{version}\n")).collect();
    context.print(&text)
}
