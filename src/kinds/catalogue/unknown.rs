//! Placeholders for unknown kinds, for commands that change a manifest's text without a cluster (`--local`,
//! `--dry-run=client`).

use super::super::Kind;
use crate::object::{Resource, group_of, split_api_version};

/// Creates a kind with this name and leaks it; a command creates one for each manifest of an unknown kind.
pub fn kind(api_version: &str, name: &str) -> &'static Kind {
    let (group, version) = split_api_version(api_version);
    let keep = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let plural = format!("{}s", name.to_ascii_lowercase());
    let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
    Box::leak(Box::new(Kind {
        resource: Resource(keep(resource)),
        version: keep(version.to_owned()),
        kind: keep(name.to_owned()),
        ..Kind::UNTYPED
    }))
}

/// Whether a custom resource may be in this API group: Kubernetes' own groups end in `.k8s.io` or have no dot.
pub fn is_custom(api_version: &str) -> bool {
    let group = group_of(api_version);
    group.contains('.') && !group.ends_with(".k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_manifest() {
        let kind = kind("example.com/v1", "Widget");
        assert_eq!(
            (kind.qualified_singular(), kind.api_version()),
            ("widget.example.com".into(), "example.com/v1".into())
        );
    }
}
