//! Identity of objects in a build: group, version, kind, name and namespace.

use crate::object::{Object, split_api_version};
use std::fmt;

const STABLE: &[&str] = &["v1"];
const BETA: &[&str] = &["v1beta1"];
const BOTH: &[&str] = &["v1", "v1beta1"];

/// Cluster-scoped kinds with group and versions, from the OpenAPI document in kustomize (Kubernetes
/// 1.21).
const CLUSTER_SCOPED: [(&str, &[&str], &[&str]); 12] = [
    ("", STABLE, &["ComponentStatus", "Namespace", "Node", "NodeProxyOptions", "PersistentVolume"]),
    ("admissionregistration.k8s.io", BOTH, &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
    ("apiextensions.k8s.io", BOTH, &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", BOTH, &["APIService"]),
    ("certificates.k8s.io", BOTH, &["CertificateSigningRequest"]),
    ("flowcontrol.apiserver.k8s.io", BETA, &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", BOTH, &["IngressClass"]),
    ("node.k8s.io", BOTH, &["RuntimeClass"]),
    ("policy", BETA, &["PodSecurityPolicy"]),
    ("rbac.authorization.k8s.io", BOTH, &["ClusterRole", "ClusterRoleBinding"]),
    ("scheduling.k8s.io", BOTH, &["PriorityClass"]),
    ("storage.k8s.io", BOTH, &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"]),
];

/// Identity of an object, current or before a layer changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceId {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

impl ResourceId {
    /// Returns an object's current identity.
    pub fn from_object(object: &Object) -> ResourceId {
        let (group, version) = split_api_version(object.api_version());
        let [group, version, kind, name, namespace] =
            [group, version, object.kind(), object.name(), object.namespace()].map(str::to_owned);
        ResourceId { group, version, kind, name, namespace }
    }

    /// Whether kustomize treats the kind as cluster-scoped. It treats all other kinds as
    /// namespaced, including newer cluster-scoped kinds of Kubernetes.
    pub fn is_cluster_scoped(&self) -> bool {
        CLUSTER_SCOPED.iter().any(|(group, versions, kinds)| {
            *group == self.group && versions.contains(&self.version.as_str()) && kinds.contains(&self.kind.as_str())
        })
    }

    /// The effective namespace; `None` for cluster-scoped kinds.
    pub fn place(&self) -> Option<&str> {
        if self.is_cluster_scoped() {
            return None;
        }
        Some(if self.namespace.is_empty() { "default" } else { &self.namespace })
    }

    /// Whether both identify the same object. An empty namespace equals `default`.
    pub fn is_same(&self, other: &ResourceId) -> bool {
        let parts = |id: &ResourceId| [&id.name, &id.kind, &id.group, &id.version].map(Clone::clone);
        parts(self) == parts(other) && self.place() == other.place()
    }
}

impl fmt::Display for ResourceId {
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
    fn empty_namespace_equals_default() {
        let id = |api_version: &str, kind: &str, namespace: &str| {
            ResourceId::from_object(&Object(
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "n", "namespace": namespace}}),
            ))
        };
        assert!(id("v1", "Pod", "").is_same(&id("v1", "Pod", "default")));
        assert!(!id("v1", "Pod", "").is_same(&id("v1", "Pod", "other")));
        assert!(id("v1", "Namespace", "").is_same(&id("v1", "Namespace", "other")));
        assert!(id("rbac.authorization.k8s.io/v1beta1", "ClusterRole", "a").is_cluster_scoped());
        assert!(!id("rbac.authorization.k8s.io/v1", "Role", "a").is_cluster_scoped());
        assert!(!id("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "a").is_cluster_scoped());
        assert!(!id("apps/v1", "Deployment", "").is_same(&id("apps/v2", "Deployment", "")));
        assert_eq!(id("apps/v1", "Deployment", "").to_string(), "Deployment.v1.apps/n.[noNs]");
        assert_eq!(id("v1", "Pod", "a").to_string(), "Pod.v1.[noGrp]/n.a");
    }
}
