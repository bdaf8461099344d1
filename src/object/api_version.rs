//! Groups and versions of kinds, as `apiVersion` joins them.

/// Joins a group and a version: `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits an `apiVersion` into its group and its version; the core group is empty.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns the group of an `apiVersion`; the core group is empty.
pub fn group_of(api_version: &str) -> &str {
    split_api_version(api_version).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_version_are_joined_and_split() {
        for (text, group, version) in [("v1", "", "v1"), ("apps/v1", "apps", "v1"), ("a.b/v1beta1", "a.b", "v1beta1")] {
            assert_eq!(split_api_version(text), (group, version));
            assert_eq!((group_of(text), api_version(group, version)), (group, text.to_owned()));
        }
    }
}
