//! `kloop state restore`: replaces the state by a backup.
//!
//! Knows: the previous state is kept in the same folder. Never: replaces a state that another process uses. Start reading at [`run`].

use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::io_error_text;
use crate::reconcile::leader;
use crate::store::{OpenError, OpenMode, Store, StoreRead, read_replica_address};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Replace the cluster's state by a backup.
///
/// The backup is checked first, and stays unchanged. The previous state is kept in the same folder, as state.db.before-restore. No control
/// plane may run meanwhile; the next one ends the processes of pods that the backup does not know, and takes over those of others.
#[derive(clap::Args)]
#[command(
    override_usage = "FILE",
    after_help = "\
# Go back to a copy
kloop state restore monday.db"
)]
pub struct Args {
    /// The backup.
    #[arg(value_name = "FILE", required = true)]
    file: PathBuf,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let state = context.state();
    if let Some(address) = read_replica_address(&state) {
        return Err(Failure::plain(format!(
            "the state is on etcd, at {address}\nhint: kloop state copy {} etcd://... makes a cluster of the backup under another prefix",
            args.file.display()
        )));
    }
    if is_same_file(&args.file, &state) {
        return Err(Failure::plain(format!(
            "{} is the state in use; name a backup of it, which kloop state backup FILE makes",
            args.file.display()
        )));
    }
    let backup = Store::open(&args.file, OpenMode::Backup)?;
    let problems = backup.check().map_err(anyhow::Error::from)?;
    if let Some(problem) = problems.first() {
        return Err(Failure::Machine(68, format!("{} is damaged: {problem}", args.file.display())));
    }
    let revision = backup.read().and_then(|snapshot| snapshot.revision()).map_err(anyhow::Error::from)?;
    let present = match Store::open(&state, OpenMode::Existing) {
        Ok(store) => Some(store),
        Err(OpenError::Absent { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(pid) = present.as_ref().and_then(|store| leader::read_leader(store.home())) {
        return Err(Failure::plain(format!(
            "a control plane runs (pid {pid}); end it before its state is replaced: kloop down, or Ctrl-C in its terminal"
        )));
    }
    let (fresh, kept) = (path_with_suffix(&state, "restoring"), path_with_suffix(&state, "before-restore"));
    drop(std::fs::remove_file(&fresh));
    if present.is_none() {
        // Makes the folder with the right permissions.
        drop(Store::open(&state, OpenMode::Create)?);
    }
    backup.backup(&fresh).map_err(anyhow::Error::from)?;
    if let Some(present) = present {
        drop(std::fs::remove_file(&kept));
        present.backup(&kept).map_err(anyhow::Error::from)?;
    }
    let replaced = replace(&state, &fresh);
    if replaced.is_err() {
        drop(std::fs::remove_file(&fresh));
    }
    replaced?;
    context.print_line(&format!("{} restored to {} (revision {revision})", args.file.display(), state.display()))?;
    if kept.exists() {
        context.print_notice(&format!("the previous state is kept in {}", kept.display()));
    }
    Ok(())
}

/// Replaces the state by the new file. Refuses while the WAL or its index exists: the last connection to a database removes them, so
/// another process still uses the state.
fn replace(state: &Path, fresh: &Path) -> CliResult {
    let wal = PathBuf::from(format!("{}-wal", state.display()));
    if std::fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0) {
        return Err(Failure::plain(format!("another process uses {}; end it, and try again", state.display())));
    }
    let shared = PathBuf::from(format!("{}-shm", state.display()));
    for leftover in [
        wal,
        shared,
        PathBuf::from(format!("{}-wal", fresh.display())),
        PathBuf::from(format!("{}-shm", fresh.display())),
    ] {
        drop(std::fs::remove_file(leftover));
    }
    std::fs::rename(fresh, state)
        .map_err(|error| Failure::plain(format!("cannot replace {}: {}", state.display(), io_error_text(error))))
}

/// Whether two paths lead to the same file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    file(one).is_some_and(|found| Some(found) == file(other))
}

fn path_with_suffix(state: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}.{suffix}", state.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_name_of_the_state_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["state.db", "copy.db"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink(at("state.db"), at("link.db")).unwrap();
        let cases = [("state.db", true), ("./state.db", true), ("link.db", true), ("copy.db", false), ("none", false)];
        for (name, expected) in cases {
            assert_eq!(is_same_file(&at(name), &at("state.db")), expected, "{name}");
        }
        assert!(!is_same_file(&at("none"), &at("none")));
    }
}
