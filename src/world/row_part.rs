//! The parts of stored bodies that rows are made of: reading less of a text is faster.
//!
//! Never: computes a field of a row. The tests of rows compare those that are made of a part and of the whole object.
//! Start reading at [`part_of_row`].

use super::autoscaler::AUTOSCALERS;
use super::followed_objects;
use super::workload::selects_pods;
use crate::object::Resource;
use crate::object::sparse::{FieldMask, ReadPart};
use std::sync::LazyLock;

/// The resource whose objects may have an aggregation rule.
pub const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// Resources read for every created pod. They are few, so their bodies stay decoded.
pub const SEEN_WITH_EACH_POD: [&str; 3] = ["namespaces", "serviceaccounts", "priorityclasses.scheduling.k8s.io"];

/// Paths of the metadata that each row has.
const METADATA: &[&str] = &[
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.labels",
    "metadata.ownerReferences",
    "metadata.finalizers",
];

/// Paths of further fields in the row of a pod: those from which its index fields are computed, and its `scheduling_spec`.
const OF_POD: &[&str] = &[
    "metadata.namespace",
    "metadata.annotations",
    "spec.affinity",
    "spec.containers.image",
    "spec.containers.ports",
    "spec.containers.resources.requests",
    "spec.initContainers.image",
    "spec.initContainers.ports",
    "spec.initContainers.resources.requests",
    "spec.initContainers.restartPolicy",
    "spec.nodeName",
    "spec.nodeSelector",
    "spec.overhead",
    "spec.preemptionPolicy",
    "spec.priority",
    "spec.resourceClaims",
    "spec.resources.requests",
    "spec.schedulerName",
    "spec.schedulingGates",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.volumes.ephemeral",
    "spec.volumes.name",
    "spec.volumes.persistentVolumeClaim",
    "status.conditions.lastTransitionTime",
    "status.conditions.status",
    "status.conditions.type",
    "status.containerStatuses.restartCount",
    "status.containerStatuses.state.running",
    "status.ephemeralContainerStatuses.state.running",
    "status.extendedResourceClaimStatus",
    "status.initContainerStatuses.state.running",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    "status.startTime",
];

/// The part of a pod's body that its row needs.
static POD_PART: LazyLock<ReadPart> =
    LazyLock::new(|| ReadPart::Fields(FieldMask::from_paths(&[METADATA, OF_POD, &followed_objects::FIELDS].concat())));

/// The part of an autoscaler's body that its row needs.
static AUTOSCALER_PART: LazyLock<ReadPart> =
    LazyLock::new(|| ReadPart::Fields(FieldMask::from_paths(&[METADATA, &["spec.scaleTargetRef"]].concat())));

/// The part of a body that most rows need.
static METADATA_ONLY: LazyLock<ReadPart> = LazyLock::new(|| ReadPart::Fields(FieldMask::from_paths(METADATA)));

/// Returns the part of a stored body that its row needs. A body of which the row keeps only the text is decoded where a plan reads it.
pub fn part_of_row(resource: Resource) -> &'static ReadPart {
    match resource.0 {
        kept if SEEN_WITH_EACH_POD.contains(&kept) => &ReadPart::Whole,
        "pods" => &POD_PART,
        AUTOSCALERS => &AUTOSCALER_PART,
        "nodes" | CLUSTER_ROLES => &ReadPart::Unmanaged,
        _ if selects_pods(resource) => &ReadPart::Unmanaged,
        _ => &METADATA_ONLY,
    }
}

/// Whether the rows of a resource have no other fields than those of the metadata.
pub fn needs_only_metadata(resource: Resource) -> bool {
    std::ptr::eq(part_of_row(resource), &*METADATA_ONLY)
}
