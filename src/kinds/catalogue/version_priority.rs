//! The order of the versions of a group, as clients prefer them.
//!
//! Never: knows which versions are served. Start reading at [`version_priority`].

use std::cmp::Reverse;

/// Stability of a version, its number, the number of its beta or alpha, and its name.
pub type VersionPriority = (u8, u64, u64, Reverse<String>);

/// Returns the priority of a version within its group; the greatest is the best: stable ones first, then beta, then alpha, each by
/// number; other names last (k8s.io/apimachinery/pkg/version: CompareKubeAwareVersionStrings).
pub fn version_priority(version: &str) -> VersionPriority {
    let parts = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (major, level) = rest.split_at(digits);
        let major = major.parse().ok()?;
        for (rank, name) in [(2, "beta"), (1, "alpha")] {
            if let Some(minor) = level.strip_prefix(name) {
                return Some((rank, major, minor.parse().ok()?));
            }
        }
        level.is_empty().then_some((3, major, 0))
    };
    let (rank, major, minor) = parts().unwrap_or_default();
    (rank, major, minor, Reverse(version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_sorted_by_priority() {
        let mut versions = ["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1beta10", "v1", "bar", "v11alpha2"];
        versions.sort_by_cached_key(|version| Reverse(version_priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v11alpha2", "v1alpha1", "bar", "foo"]);
    }
}
