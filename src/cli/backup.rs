//! `kloop backup`: copies the cluster's state to one file while the cluster is in use.

use super::{CliResult, CommandContext};
use crate::apiserver;
use crate::store::OpenError;
use std::path::PathBuf;

/// Copy the cluster's state to a new file, while it is in use.
///
/// The copy contains every object and the log of changes at one revision, without processes and
/// their files. Use it in place (kloop --state FILE get pods), or to replace a lost or damaged
/// state file.
#[derive(clap::Args)]
#[command(
    override_usage = "FILE",
    after_help = "\
# Keep a copy of the state as it is now
kloop backup monday.db

# Look into it
kloop --state monday.db get all -A"
)]
pub struct Args {
    /// The file to write. It must not exist.
    #[arg(value_name = "FILE", required = true)]
    file: PathBuf,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let path = context.state();
    let Some(api) = context.existing()? else { return Err(OpenError::Absent { path }.into()) };
    api.store().backup(&args.file).map_err(|error| apiserver::refused(&error))?;
    let revision = api.read(|snapshot| snapshot.revision())?;
    context.print_line(&format!("{} saved to {} (revision {revision})", path.display(), args.file.display()))
}
