//! `kloop state import`: applies exported manifests.

use crate::cli::apply::{self, follow};
use crate::cli::cluster::control_plane;
use crate::cli::manifests::files::FileFlags;
use crate::cli::{CliResult, CommandContext};
use crate::kinds;

/// Create and change objects so that they match an export.
///
/// The same as "kloop apply -f FILE".
#[derive(clap::Args)]
#[command(
    override_usage = "FILE",
    after_help = "\
# Take over the objects of another cluster
kubectl get deployments,services,configmaps -o yaml > all.yaml
kloop state import all.yaml"
)]
pub struct Args {
    /// The file, or - for standard input.
    #[arg(value_name = "FILE", required = true)]
    file: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    context.allow_new_cluster();
    let files = FileFlags { filenames: vec![args.file], ..FileFlags::default() };
    let applied = follow::apply_first(&apply::Args::for_up(files, false), context)?;
    let runs = |object: &crate::object::Object| kinds::by_kind(object.api_version(), object.kind());
    match applied.iter().filter_map(runs).find(|kind| control_plane::is_needed_for(kind)) {
        Some(_) => control_plane::print_hint(context),
        None => Ok(()),
    }
}
