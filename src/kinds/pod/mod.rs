//! Pod (core/v1), and the pod spec of every workload's template.
//!
//! Defaults and checks a pod spec, and derives a pod's requests, QoS class and readiness for other modules.
//! Never: schedules or runs a pod.
//! Start reading at [`KIND`].

pub mod api_references;
mod containers;
pub mod defaults;
mod dns;
mod env;
pub mod ephemeral;
pub mod facts;
pub mod filesystem;
mod gated_update;
pub mod internal;
mod mounts;
mod os;
pub mod part_counts;
mod path_warnings;
mod paths;
mod port_warnings;
pub mod ports;
mod prepare;
mod probes;
pub mod resize;
mod resource_claims;
pub mod resources;
pub mod scheduling;
mod security;
pub mod spec;
pub mod status;
pub mod unsupported;
mod update;
pub mod volumes;
pub mod warnings;

pub use facts::{PodRequests, condition, qos_class, requests};
pub use security::SAFE_SYSCTLS;

use super::catalogue::typed::{self, DecodeError};
use super::catalogue::{merge_rules, shapes};
use super::shared::omit;
use super::{FieldErrors, FieldPath, Kind, Typed, UnknownField};
use crate::kinds::view;
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::Value;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["po"],
    categories: &["all"],
    warnings: warnings::warn_about_pod,
    normalize,
    selectable: &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ],
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    returns_deleted: true,
    status_metadata: &["annotations", "finalizers", "labels"],
    ..Kind::new::<Pod>("pods", "v1", "Pod", &view::pod::VIEW)
};

static MERGE_RULES: MergeSchema = MergeSchema::new(&[
    merge_rules::META,
    ("spec", merge_rules::map(&merge_rules::POD_SPEC)),
    ("status", merge_rules::map(&STATUS_MERGE_RULES)),
]);
static STATUS_MERGE_RULES: MergeSchema = MergeSchema::new(&[
    merge_rules::CONDITIONS,
    ("podIPs", merge_rules::list("ip", &merge_rules::ANY)),
    ("hostIPs", merge_rules::list("ip", &merge_rules::ANY)),
    ("resourceClaimStatuses", merge_rules::retaining(merge_rules::list("name", &merge_rules::ANY))),
]);
static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&shapes::POD_SPEC))),
    ("status", shapes::in_place(shapes::map(&STATUS_SHAPE))),
]);
static STATUS_SHAPE: StructShape = StructShape::new(&[
    shapes::CONDITIONS,
    ("podIPs", shapes::keyed_list(&[("ip", Some(""))], &shapes::ANY)),
    ("resourceClaimStatuses", shapes::keyed_list(shapes::NAME, &shapes::ANY)),
]);

/// Stores absent times of conditions as `null`.
fn normalize(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut pod = typed::normalize::<Pod>(body, unknown)?;
    let conditions = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        omit::null_when_missing(condition, &["lastProbeTime", "lastTransitionTime"]);
    }
    Ok(pod)
}

impl Typed for Pod {
    fn default(&mut self) {
        defaults::set_pod_defaults(self);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            prepare::prepare_create(new);
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let none = PodSpec::default();
        let spec = self.spec.as_ref().unwrap_or(&none);
        spec::check_pod(spec, &FieldPath::root("spec"), errors);
        update::check_mirror(self, old, errors);
        match old {
            None => spec::check_new_pod(spec, &FieldPath::root("spec"), errors),
            Some(old) => update::check(spec, old.spec.as_ref().unwrap_or(&none), &FieldPath::root("spec"), errors),
        }
    }
}
