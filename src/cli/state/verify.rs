//! `kloop state verify`: checks the whole state file.
//!
//! Never: repairs it. Start reading at [`run`].

use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::time;
use crate::store::past;

/// Check the whole state file: its structure, checksums, and objects against the log of changes.
///
/// Exit codes: 0 nothing is wrong, 68 the file is damaged.
#[derive(clap::Args)]
#[command(
    override_usage = "",
    after_help = "\
# Check the state of a cluster
kloop state verify

# Check a backup
kloop --state monday.db state verify"
)]
pub struct Args {}

/// Exit code for a damaged state file.
const DAMAGED: u8 = 68;

/// Runs the verb.
pub fn run(_: Args, context: &mut CommandContext) -> CliResult {
    let api = context.require_existing()?;
    let problems = api.store().check().map_err(anyhow::Error::from)?;
    if !problems.is_empty() {
        return Err(Failure::Machine(DAMAGED, format!("the state file is damaged:\n  {}", problems.join("\n  "))));
    }
    let (objects, revision, floor, since) = api.read(|snapshot| {
        let floor = snapshot.floor()?.max(1);
        let objects = past::measure_sizes(snapshot)?.objects.iter().map(|(_, count, _)| count).sum::<u64>();
        Ok((objects, snapshot.revision()?, floor, past::read_time_of(snapshot, floor)?))
    })?;
    let since = since.map(|since| format!(" ({})", time::rfc3339(since))).unwrap_or_default();
    context.print_line(&format!("ok: {objects} objects at revision {revision}, history from revision {floor}{since}"))
}
