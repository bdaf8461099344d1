//! `kloop state`: copies, checks, measures and moves the cluster's state.
//!
//! Never: makes a cluster, but for `copy`, `import` and `restore`. Start reading at [`StateVerb`].

mod compact;
mod copy;
mod export;
mod import;
mod restore;
mod size;
mod verify;

use super::backup;
use super::{CliResult, CommandContext};
use clap::Subcommand;

/// Copy, check, measure and move the cluster's state.
///
/// "kloop help state" describes where the state is stored, and the content of its history.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# Keep a copy, and go back to it later
kloop state backup monday.db
kloop state restore monday.db

# Put the state on etcd, for control planes on several machines
kloop state copy ~/.local/state/kloop/default/state.db etcd://host1,host2,host3/shop

# How large is the state, and what takes the space?
kloop state size

# Take the objects to another cluster
kloop state export > all.yaml
kubectl apply -f all.yaml"
)]
pub struct Args {
    #[command(subcommand)]
    verb: StateVerb,
}

#[derive(Subcommand)]
enum StateVerb {
    Backup(backup::Args),
    Restore(restore::Args),
    Verify(verify::Args),
    Compact(compact::Args),
    Copy(copy::Args),
    Size(size::Args),
    Export(export::Args),
    Import(import::Args),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        StateVerb::Backup(args) => backup::run(args, context),
        StateVerb::Restore(args) => restore::run(args, context),
        StateVerb::Verify(args) => verify::run(args, context),
        StateVerb::Compact(args) => compact::run(args, context),
        StateVerb::Copy(args) => copy::run(args, context),
        StateVerb::Size(args) => size::run(args, context),
        StateVerb::Export(args) => export::run(args, context),
        StateVerb::Import(args) => import::run(args, context),
    }
}
