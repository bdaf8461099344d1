//! Trials of kernel features, each in its own process because entering a namespace or a filter is irreversible.
//!
//! Only a permanent refusal counts as one. A temporary lack, such as of descriptors or memory (which a pod can cause), is tried again, and
//! finally counts as success. A pod whose files or network cannot be isolated then fails to start with the reason; it never runs on
//! those of the machine.

use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The exit code of a trial that the kernel refused.
const REFUSED: u8 = 3;
/// The exit code of a trial that failed in another way.
const UNCLEAR: u8 = 4;
/// Pause between two trials.
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_TRIALS: u32 = 20;

/// Whether the kernel allows the feature that `kloop shim <word>` of this binary tries.
pub fn is_possible(program: &Path, word: &str) -> bool {
    for number in 0..MAX_TRIALS {
        if number > 0 {
            std::thread::sleep(TRIAL_INTERVAL);
        }
        let mut command = Command::new(program);
        command.args(["shim", word]).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let code = command.status().ok().and_then(|status| status.code());
        match code {
            Some(0) => return true,
            Some(code) if code == i32::from(REFUSED) => return false,
            _ => {}
        }
    }
    true
}

/// Returns the exit code of a trial.
pub fn exit_code(tried: io::Result<()>) -> ExitCode {
    match tried {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let is_refused = Errno::from_io_error(&error).is_some_and(|errno| is_definite(errno, &["user", "mnt"]));
            ExitCode::from(if is_refused { REFUSED } else { UNCLEAR })
        }
    }
}

/// Whether an error of the kernel means that namespaces of these kinds are permanently unavailable.
pub fn is_definite(error: Errno, kinds: &[&str]) -> bool {
    is_refusal(error, most_namespaces(kinds))
}

/// Like [`is_definite`]. `most_namespaces`: the smallest limit of the machine for one of the kinds.
fn is_refusal(error: Errno, most_namespaces: u64) -> bool {
    match error {
        // Limit reached: permanent when the limit is 0, else until other namespaces have ended (namespaces(7)).
        Errno::NOSPC | Errno::USERS => most_namespaces == 0,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR | Errno::NOBUFS => false,
        // EPERM, ENOSYS, EINVAL, and other errors of sandboxes.
        _ => true,
    }
}

/// Returns the smallest limit of namespaces of these kinds for a user.
fn most_namespaces(kinds: &[&str]) -> u64 {
    let limit =
        |kind: &str| fs::read_to_string(format!("/proc/sys/user/max_{kind}_namespaces")).ok()?.trim().parse().ok();
    kinds.iter().copied().filter_map(limit).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_definite_refusals_count() {
        let table = [
            (Errno::PERM, 100, true),
            (Errno::NOSYS, 100, true),
            (Errno::INVAL, 100, true),
            (Errno::NOSPC, 0, true),
            (Errno::NOSPC, 100, false),
            (Errno::MFILE, 0, false),
            (Errno::NFILE, 0, false),
            (Errno::NOMEM, 0, false),
            (Errno::AGAIN, 0, false),
        ];
        for (error, most, refused) in table {
            assert_eq!(is_refusal(error, most), refused, "{error} of {most}");
        }
    }

    /// Makes a program that exits with each of these codes in turn, and with the last one from then on.
    fn exits(folder: &Path, codes: &[u8]) -> std::path::PathBuf {
        let (program, count) = (folder.join("program"), folder.join("count"));
        let codes: Vec<String> = codes.iter().map(u8::to_string).collect();
        let script = format!(
            "#!/bin/sh\necho >> {count}\nset -- {codes}\nat=$(/usr/bin/wc -l < {count})\n[ $at -lt $# ] || at=$#\neval exit \\$$at\n",
            count = count.display(),
            codes = codes.join(" ")
        );
        fs::write(&program, script).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        program
    }

    #[test]
    fn unclear_trial_is_repeated() {
        for (codes, possible, runs) in
            [(&[0][..], true, 1), (&[REFUSED], false, 1), (&[UNCLEAR, 101, REFUSED], false, 3)]
        {
            let folder = tempfile::tempdir().expect("a folder");
            assert_eq!(is_possible(&exits(folder.path(), codes), "try"), possible, "{codes:?}");
            let count = fs::read_to_string(folder.path().join("count")).expect("it ran");
            assert_eq!(count.lines().count(), runs, "{codes:?}");
        }
    }

    #[test]
    fn unclear_trial_is_no_refusal() {
        assert!(is_possible(Path::new("/no/such/program"), "try"));
    }
}
