//! Limits the number of processes without control groups: with an rlimit in a user namespace of the container, where the kernel counts the
//! user's processes separately.

use crate::object::io_error_text;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

/// First kernel that counts a user's processes per user namespace (Linux 5.14). Before, the limit would count those of the whole machine.
const COUNTED: (u32, u32) = (5, 14);

/// Whether the namespace of a container with a private layer limits its processes. Root's layer needs no user namespace, and the rlimit
/// does not apply to root.
pub fn are_bounded() -> bool {
    !geteuid().is_root() && version(&rustix::system::uname().release().to_string_lossy()) >= Some(COUNTED)
}

/// Limits this process, which is in its own user namespace and about to become a container, and its descendants.
pub fn bound(most: Option<i64>) -> Result<(), String> {
    let Some(most) = most.and_then(|most| u64::try_from(most).ok()).filter(|_| are_bounded()) else { return Ok(()) };
    let most = getrlimit(Resource::Nproc).maximum.map_or(most, |hard| hard.min(most));
    let both = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Nproc, both)
        .map_err(|error| format!("cannot limit the number of processes: {error}", error = io_error_text(error)))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_parsed() {
        let table =
            [("5.13.0-19-generic", false), ("5.14", true), ("6.1.0-rc3+", true), ("10.0", true), ("odd", false)];
        for (release, counts) in table {
            assert_eq!(version(release) >= Some(COUNTED), counts, "{release}");
        }
    }
}
