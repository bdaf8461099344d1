//! Identity of objects in a build: group, version, kind, name and namespace.

use crate::kinds;
use crate::object::Object;
use std::fmt;

/// Identity of an object, now or before a layer changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

impl Id {
    /// Returns an object's present identity.
    pub fn of(object: &Object) -> Id {
        let (group, version) = object.api_version().rsplit_once('/').unwrap_or(("", object.api_version()));
        let [group, version, kind, name, namespace] =
            [group, version, object.kind(), object.name(), object.namespace()].map(str::to_owned);
        Id { group, version, kind, name, namespace }
    }

    /// Whether it is of a kind that is in no namespace. Unknown kinds are taken to be in one, as kustomize does.
    pub fn is_cluster_scoped(&self) -> bool {
        let slash = if self.group.is_empty() { "" } else { "/" };
        // An older version is of the same scope.
        let known = [&self.version, "v1"]
            .into_iter()
            .find_map(|version| kinds::by_kind(&format!("{}{slash}{version}", self.group), &self.kind));
        known.is_some_and(|kind| !kind.namespaced)
    }

    /// The namespace that counts; nothing for what is in none.
    pub fn place(&self) -> Option<&str> {
        if self.is_cluster_scoped() {
            return None;
        }
        Some(if self.namespace.is_empty() { "default" } else { &self.namespace })
    }

    /// Whether both mean the same object: without a namespace is in `default`.
    pub fn same(&self, other: &Id) -> bool {
        let parts = |id: &Id| [&id.name, &id.kind, &id.group, &id.version].map(Clone::clone);
        parts(self) == parts(other) && self.place() == other.place()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &str, none: &'static str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        let (kind, version) = (or(&self.kind, "[noKind]"), or(&self.version, "[noVer]"));
        let (group, name) = (or(&self.group, "[noGrp]"), or(&self.name, "[noName]"));
        write!(f, "{kind}.{version}.{group}/{name}.{}", or(&self.namespace, "[noNs]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_without_a_namespace_is_in_the_default_one() {
        let id = |api_version: &str, kind: &str, namespace: &str| {
            Id::of(&Object(
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "n", "namespace": namespace}}),
            ))
        };
        assert!(id("v1", "Pod", "").same(&id("v1", "Pod", "default")));
        assert!(!id("v1", "Pod", "").same(&id("v1", "Pod", "other")));
        assert!(id("v1", "Namespace", "").same(&id("v1", "Namespace", "other")));
        assert!(!id("apps/v1", "Deployment", "").same(&id("apps/v2", "Deployment", "")));
        assert_eq!(id("apps/v1", "Deployment", "").to_string(), "Deployment.v1.apps/n.[noNs]");
        assert_eq!(id("v1", "Pod", "a").to_string(), "Pod.v1.[noGrp]/n.a");
    }
}
