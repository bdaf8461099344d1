//! `kloop state compact`: forgets old changes now.
//!
//! Never: drops the current state of an object. Start reading at [`run`].

use crate::cli::{CliResult, CommandContext};
use crate::object::format_count;
use crate::store::Retention;

/// Forget old changes.
///
/// The control plane does this by itself for what is older than an hour and beyond 10,000 changes, 100,000 changes, or 64 MiB.
/// The current objects are never lost.
#[derive(clap::Args)]
#[command(
    override_usage = "[--keep NUMBER]",
    after_help = "\
# Forget what the control plane would forget
kloop state compact

# Keep the last 100 changes only
kloop state compact --keep 100"
)]
pub struct Args {
    /// Number of the latest changes to keep [default: as the control plane does].
    #[arg(long, value_name = "NUMBER")]
    keep: Option<u64>,
}

/// Entries that are passed in one step.
const STEP_ENTRIES: usize = 1000;

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let now = context.now();
    let api = context.require_existing()?;
    let usual = Retention::usual(now);
    let keep = args.keep.map_or(usual, |keep| Retention { at_least: keep, at_most: keep, since: now, bytes: u64::MAX });
    let mut passed = 0;
    loop {
        let step = api.store_mut().compact(&keep, STEP_ENTRIES).map_err(anyhow::Error::from)?;
        passed += step;
        if step < STEP_ENTRIES {
            break;
        }
    }
    let floor = api.read(|snapshot| snapshot.floor())?.max(1);
    let changes = format_count(passed, "change");
    context.print_line(&format!("forgot {changes}; the history begins at revision {floor}"))
}
