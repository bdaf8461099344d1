//! Merge rules that several built-in kinds share: patch strategies and keys of lists.
//!
//! Source: the `patchStrategy` and `patchMergeKey` tags of Kubernetes' Go types (1.36). Server-side apply uses other
//! keys (`shapes`); where it has two keys, kustomize uses both. The rules of one kind are in the kind's file
//! (`Kind::merge_rules`).

use super::super::Kind;
use crate::object::group_of;
use crate::object::merge::schema::{MergeField, MergeSchema, MergeSchemaRef};

pub use crate::object::merge::schema::{ANY, REPLACE, SET, list, map, retaining, with_second_key};

/// Conditions, which their type identifies.
pub const CONDITIONS: (&str, MergeField) = ("conditions", list("type", &ANY));
/// The metadata of an object.
pub const META: (&str, MergeField) = ("metadata", map(&METADATA));
/// A status whose only special field is `conditions`.
pub const STATUS: (&str, MergeField) = ("status", map(&JUST_CONDITIONS));
/// The field `template` of a workload.
pub const TEMPLATE: (&str, MergeField) = ("template", map(&POD_TEMPLATE));

static METADATA: MergeSchema = MergeSchema::new(&[("finalizers", SET), ("ownerReferences", list("uid", &ANY))]);
static JUST_CONDITIONS: MergeSchema = MergeSchema::new(&[CONDITIONS]);
/// An object without special fields.
pub static OBJECT: MergeSchema = MergeSchema::new(&[META]);
/// An object with conditions in its status.
pub static WITH_CONDITIONS: MergeSchema = MergeSchema::new(&[META, STATUS]);

static CONTAINER: MergeSchema = MergeSchema::new(&[
    ("ports", with_second_key("protocol", "TCP", list("containerPort", &ANY))),
    ("env", list("name", &ANY)),
    ("volumeMounts", list("mountPath", &ANY)),
    ("volumeDevices", list("devicePath", &ANY)),
]);
/// The spec of pods.
pub static POD_SPEC: MergeSchema = MergeSchema::new(&[
    ("volumes", retaining(list("name", &ANY))),
    ("initContainers", list("name", &CONTAINER)),
    ("containers", list("name", &CONTAINER)),
    ("ephemeralContainers", list("name", &CONTAINER)),
    ("imagePullSecrets", list("name", &ANY)),
    ("hostAliases", list("ip", &ANY)),
    ("topologySpreadConstraints", with_second_key("whenUnsatisfiable", "", list("topologyKey", &ANY))),
    ("schedulingGates", list("name", &ANY)),
    ("resourceClaims", retaining(list("name", &ANY))),
]);

/// A pod template.
pub static POD_TEMPLATE: MergeSchema = MergeSchema::new(&[META, ("spec", map(&POD_SPEC))]);
/// An object whose `template` is a pod template.
pub static WITH_TEMPLATE: MergeSchema = MergeSchema::new(&[META, TEMPLATE]);
/// An object with a pod template and a selector.
pub static WORKLOAD: MergeSchema = MergeSchema::new(&[META, ("spec", map(&WORKLOAD_SPEC)), STATUS]);
static WORKLOAD_SPEC: MergeSchema = MergeSchema::new(&[TEMPLATE]);

static COMPONENT_STATUS: MergeSchema = MergeSchema::new(&[META, CONDITIONS]);

/// Groups of built-in kinds, which accept strategic merge patches; all other groups are custom resources.
const GROUPS: [&str; 23] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The schema of a built-in kind, in any of its versions; `None` for a custom resource.
///
/// kustomize also merges kinds of built-in groups that the catalogue lacks, by the rules that all objects share.
pub fn schema_for(api_version: &str, kind: &str) -> Option<MergeSchemaRef> {
    let group = group_of(api_version);
    if api_version.is_empty() || !GROUPS.contains(&group) {
        return None;
    }
    let is_it = |known: &&&Kind| known.kind == kind && known.resource.group() == group;
    Some(match super::super::ALL.iter().find(is_it) {
        Some(known) => known.merge_rules,
        None if (group, kind) == ("", "ComponentStatus") => &COMPONENT_STATUS,
        None => &OBJECT,
    })
}
