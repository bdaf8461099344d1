//! `--at`: commands that read the cluster as it was at an earlier revision or time.
//!
//! Never: changes the state of the past; the store refuses that. Start reading at [`AtFlag::travel`].

use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::{Time, time};
use crate::store::{StoreError, past};

/// `--at` of commands that read objects.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AtFlag {
    /// Show the cluster at a revision, at a time (RFC3339), or at a time ago, as in --at=-10m.
    #[arg(long, value_name = "REVISION|TIME|-DURATION", allow_hyphen_values = true)]
    at: Option<String>,
}

impl AtFlag {
    /// Whether the flag is given.
    pub fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Returns the revision that the flag names; `None` without it.
    pub fn revision(&self, context: &mut CommandContext) -> CliResult<Option<u64>> {
        self.at.as_deref().map(|text| find_revision(context, text)).transpose()
    }

    /// Makes the command read the past, if it is asked to.
    pub fn travel(&self, context: &mut CommandContext) -> CliResult {
        match self.revision(context)? {
            Some(revision) => travel_to(context, revision),
            None => Ok(()),
        }
    }
}

/// Makes the command read the state at a revision.
pub fn travel_to(context: &mut CommandContext, revision: u64) -> CliResult {
    refuse_server(context)?;
    let api = context.require_existing()?;
    let at = api.read(|snapshot| past::read_time_of(snapshot, revision))?;
    let traveled = api.store_mut().travel_to(revision);
    match traveled {
        Ok(()) => {
            context.read_past(at.unwrap_or_else(Time::now));
            Ok(())
        }
        Err(error) => Err(revision_failure(context, error)),
    }
}

/// Refuses a cluster behind an API server, which has no history to read.
fn refuse_server(context: &CommandContext) -> CliResult {
    match context.client() {
        Some(client) => Err(Failure::plain(format!(
            "--at reads the history of a state file, and the cluster is the server {}: leave the flag out",
            client.config().address
        ))),
        None => Ok(()),
    }
}

/// Returns the revision that a text names: a number, a time, or a negative duration.
pub fn find_revision(context: &mut CommandContext, text: &str) -> CliResult<u64> {
    if let Ok(revision) = text.parse() {
        return Ok(revision);
    }
    let wrong = || {
        Failure::plain(format!("{text:?} is not a revision, time or duration: write 123, 2026-01-31T08:00:00Z or -10m"))
    };
    let at: Time = match text.strip_prefix('-') {
        Some(ago) => Time::now() - time::parse_duration(ago).map_err(|_| wrong())?,
        None => time::parse_rfc3339(text).map_err(|_| wrong())?,
    };
    refuse_server(context)?;
    let api = context.require_existing()?;
    let (revision, floor) = api.read(|snapshot| Ok((past::find_revision_at(snapshot, at)?, snapshot.floor()?)))?;
    revision.ok_or_else(|| revision_failure(context, StoreError::Expired { floor }))
}

/// Explains that a revision is compacted, or does not exist yet.
fn revision_failure(context: &mut CommandContext, error: StoreError) -> Failure {
    let floor = match error {
        StoreError::Expired { floor } => floor,
        StoreError::Future { head, revision } => {
            return Failure::plain(format!(
                "there is no revision {revision} yet: the newest is {head}; kloop history shows them"
            ));
        }
        other => return anyhow::Error::from(other).into(),
    };
    let since = context.existing().ok().flatten().and_then(|api| {
        api.read(|snapshot| past::read_time_of(snapshot, floor.max(1))).ok().flatten().map(time::rfc3339)
    });
    let since = since.map(|since| format!(", from {since}")).unwrap_or_default();
    Failure::plain(format!("the history does not go back that far: it begins at revision {}{since}", floor.max(1)))
}
