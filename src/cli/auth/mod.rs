//! `kloop auth`: the current user, the actions that RBAC rules allow, and updates of roles from manifests.
//!
//! Start reading at [`AuthVerb`].

mod can_i;
mod reconcile;
mod server_reviews;
mod whoami;

use super::{CliResult, CommandContext};
use clap::Subcommand;

/// Inspect authorization.
#[derive(clap::Args)]
#[command(override_usage = "SUBCOMMAND")]
pub struct Args {
    #[command(subcommand)]
    verb: AuthVerb,
}

#[derive(Subcommand)]
enum AuthVerb {
    #[command(name = "can-i")]
    CanI(can_i::Args),
    Reconcile(reconcile::Args),
    Whoami(whoami::Args),
}

/// Runs the subcommand.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        AuthVerb::CanI(args) => can_i::run(&args, context),
        AuthVerb::Reconcile(args) => reconcile::run(&args, context),
        AuthVerb::Whoami(args) => whoami::run(&args, context),
    }
}
