//! The types of conditions that Kubernetes sets on objects of each kind, for the completion of `kloop wait --for`.
//!
//! Never: reads the state; conditions that only a cluster's own objects have come from [`super::state`].

use std::collections::BTreeSet;

/// Resources and the types of their conditions.
const CONDITIONS: [(&str, &[&str]); 13] = [
    ("apiservices.apiregistration.k8s.io", &["Available"]),
    ("certificatesigningrequests.certificates.k8s.io", &["Approved", "Denied", "Failed"]),
    (
        "customresourcedefinitions.apiextensions.k8s.io",
        &[
            "Established",
            "KubernetesAPIApprovalPolicyConformant",
            "NamesAccepted",
            "NonStructuralSchema",
            "Terminating",
        ],
    ),
    ("deployments.apps", &["Available", "Progressing", "ReplicaFailure"]),
    ("horizontalpodautoscalers.autoscaling", &["AbleToScale", "ScalingActive", "ScalingLimited"]),
    ("jobs.batch", &["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended"]),
    (
        "namespaces",
        &[
            "NamespaceContentRemaining",
            "NamespaceDeletionContentFailure",
            "NamespaceDeletionDiscoveryFailure",
            "NamespaceDeletionGroupVersionParsingFailure",
            "NamespaceFinalizersRemaining",
        ],
    ),
    ("nodes", &["DiskPressure", "MemoryPressure", "NetworkUnavailable", "PIDPressure", "Ready"]),
    ("persistentvolumeclaims", &["FileSystemResizePending", "ModifyingVolume", "Resizing"]),
    ("poddisruptionbudgets.policy", &["DisruptionAllowed"]),
    (
        "pods",
        &["ContainersReady", "DisruptionTarget", "Initialized", "PodReadyToStartContainers", "PodScheduled", "Ready"],
    ),
    ("replicasets.apps", &["ReplicaFailure"]),
    ("replicationcontrollers", &["ReplicaFailure"]),
];

/// Returns the types of conditions of a kind, by its resource; none for a kind without conditions and for custom kinds.
pub fn types_of_kind(resource: &str) -> impl Iterator<Item = &'static str> {
    let known = CONDITIONS.into_iter().find(|(known, _)| *known == resource);
    known.into_iter().flat_map(|(_, types)| types.iter().copied())
}

/// Returns the types of conditions of all kinds.
pub fn all_types() -> BTreeSet<String> {
    CONDITIONS.into_iter().flat_map(|(_, types)| types.iter().map(|name| (*name).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::CONDITIONS;
    use crate::kinds::KindRegistry;

    #[test]
    fn conditions_are_of_kinds_that_exist() {
        for (resource, _) in CONDITIONS {
            assert!(KindRegistry::default().all().any(|kind| kind.resource.0 == resource), "{resource}");
        }
    }
}
