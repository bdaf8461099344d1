//! The number of processes bounded without control groups: in a user namespace of its own, where the kernel counts a user's processes
//! apart from those that the user has elsewhere.

use crate::object::io_error_text;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

/// Since then a user's processes are counted for each user namespace (Linux 5.14); before, the bound would count the whole machine's.
const COUNTED: (u32, u32) = (5, 14);

/// Whether a container with a private layer is bounded by its namespace: root's layer needs none, and root is bounded by nothing.
pub fn are_bounded() -> bool {
    !geteuid().is_root() && version(&rustix::system::uname().release().to_string_lossy()) >= Some(COUNTED)
}

/// Bounds this process, which is in its own user namespace and about to become a container, and all that it starts.
pub fn bound(most: Option<i64>) -> Result<(), String> {
    let Some(most) = most.and_then(|most| u64::try_from(most).ok()).filter(|_| are_bounded()) else { return Ok(()) };
    let most = getrlimit(Resource::Nproc).maximum.map_or(most, |hard| hard.min(most));
    let both = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Nproc, both)
        .map_err(|error| format!("cannot bound the number of processes: {error}", error = io_error_text(error)))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_by_their_names() {
        let table =
            [("5.13.0-19-generic", false), ("5.14", true), ("6.1.0-rc3+", true), ("10.0", true), ("odd", false)];
        for (release, counts) in table {
            assert_eq!(version(release) >= Some(COUNTED), counts, "{release}");
        }
    }
}
