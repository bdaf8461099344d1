//! Limits of file descriptors. A server raises its own soft limit to the hard one and starts processes with the original limit.
//!
//! Many programs loop over all possible descriptors at their start, or allocate a table of that size, so they must not inherit a raised
//! limit.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::sync::OnceLock;

/// Maximum limit to set.
const MAX_LIMIT: u64 = 1 << 20;

/// The limit that this process was started with, once it was raised.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of this process to the hard one.
pub fn raise() {
    let original = getrlimit(Resource::Nofile);
    let current = Some(original.maximum.map_or(MAX_LIMIT, |hard| hard.min(MAX_LIMIT)));
    if original.current < current && setrlimit(Resource::Nofile, Rlimit { current, maximum: original.maximum }).is_ok()
    {
        let _ = ORIGINAL.set(original);
    }
}

/// Returns the maximum number of descriptors of this process.
pub fn soft_limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(MAX_LIMIT as usize, |most| most.min(MAX_LIMIT) as usize)
}

/// Gives a new process the limit of descriptors with which this process was started.
pub fn restore_limit(pid: Pid) {
    if let Some(original) = ORIGINAL.get() {
        // If that is not permitted, the process keeps the higher limit.
        let _ = prlimit(Some(pid), Resource::Nofile, *original);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::Process;
    use std::process::{Command, Stdio};

    /// The soft limit of a process.
    fn soft(pid: u32) -> String {
        format!("{:?}", Process::new(pid as i32).unwrap().limits().unwrap().max_open_files.soft_limit)
    }

    #[test]
    fn raised_limit_is_not_passed_on() {
        let before = soft(std::process::id());
        raise();
        let hard = getrlimit(Resource::Nofile).maximum.map_or(MAX_LIMIT, |hard| hard.min(MAX_LIMIT));
        assert!(soft_limit() as u64 >= hard, "{} of {hard}", soft_limit());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        restore_limit(Pid::from_child(&child));
        assert_eq!(soft(child.id()), before);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
