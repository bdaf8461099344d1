//! Node (core/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::shared::go::{self, GoField, GoShape};
use super::shared::{address, names, omit};
use super::view;
use super::{DecodeError, FieldErrors, FieldPath, Kind, Typed, UnknownField};
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The group of all nodes, as users.
pub const GROUP: &str = "system:nodes";
/// The beginning of the container runtime version and of the container ids of kloop's nodes.
pub const RUNTIME_SCHEME: &str = "kloop://";

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["no"],
    namespaced: false,
    generation: false,
    normalize,
    warnings,
    selectable: &["spec.unschedulable"],
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    ..Kind::new::<Node>("nodes", "v1", "Node", &view::node::VIEW)
};

static MERGE_RULES: MergeSchema = MergeSchema::new(&[
    merge_rules::META,
    ("spec", merge_rules::map(&SPEC_MERGE_RULES)),
    ("status", merge_rules::map(&STATUS_MERGE_RULES)),
]);
static SPEC_MERGE_RULES: MergeSchema = MergeSchema::new(&[("podCIDRs", merge_rules::SET)]);
static STATUS_MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::CONDITIONS, ("addresses", merge_rules::list("type", &merge_rules::ANY))]);
static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&STATUS_SHAPE))),
]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("podCIDRs", shapes::SET)]);
static STATUS_SHAPE: StructShape = StructShape::new(&[
    shapes::CONDITIONS,
    ("addresses", shapes::keyed_list(shapes::TYPE, &shapes::ANY)),
    ("daemonEndpoints", shapes::in_place(shapes::map(&shapes::ANY))),
    ("nodeInfo", shapes::in_place(shapes::map(&shapes::ANY))),
]);

const TAINT: &[GoField] = &[
    ("Key", "key", GoShape::Text),
    ("Value", "value", GoShape::Text),
    ("Effect", "effect", GoShape::Text),
    ("TimeAdded", "timeAdded", GoShape::Pointer),
];

/// Warns of fields that Kubernetes no longer uses (`pkg/registry/core/node/strategy.go`).
fn warnings(node: &Object) -> Vec<String> {
    let mut warnings = Vec::new();
    if node.text(&["spec", "externalID"]).is_some_and(|id| !id.is_empty()) {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    warnings
}

/// Stores absent times of conditions as `null`.
fn normalize(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut node = typed::normalize::<Node>(body, unknown)?;
    let conditions = node.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        omit::null_when_missing(condition, &["lastHeartbeatTime", "lastTransitionTime"]);
    }
    Ok(node)
}

/// There is no `prepare`: a kubelet registers its node together with the first status, so a create keeps it.
impl Typed for Node {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        // Kubernetes drops the fields of a feature that it has removed.
        spec.config_source = None;
        omit::empty(&mut spec.unschedulable);
        omit::empty(&mut spec.taints);
        omit::empty(&mut spec.pod_cidr);
        omit::empty(&mut spec.pod_cidrs);
        // If the two fields differ, the older one takes precedence.
        if let Some(first) = &spec.pod_cidr
            && spec.pod_cidrs.as_ref().and_then(|all| all.first()) != Some(first)
        {
            spec.pod_cidrs = Some(vec![first.clone()]);
        }
        spec.pod_cidr = spec.pod_cidrs.as_ref().and_then(|all| all.first().cloned());
        omit::empty(&mut spec.provider_id);
        for taint in spec.taints.iter_mut().flatten() {
            omit::empty(&mut taint.value);
        }
        let status = self.status.get_or_insert_default();
        status.config = None;
        omit::empty(&mut status.allocatable);
        omit::empty(&mut status.capacity);
        if status.allocatable.is_none() {
            status.allocatable = status.capacity.clone();
        }
        status.daemon_endpoints.get_or_insert_default().kubelet_endpoint.get_or_insert_default();
        status.node_info.get_or_insert_default();
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let empty = NodeSpec::default();
        let spec = self.spec.as_ref().unwrap_or(&empty);
        // Kubernetes names taints by this path.
        let taints = FieldPath::root("metadata").child("taints");
        check_taints(spec.taints.as_deref().unwrap_or_default(), &taints, errors);
        let known = old.and_then(|old| old.spec.as_ref()?.pod_cidrs.as_deref()).unwrap_or_default();
        for (index, cidr) in spec.pod_cidrs.iter().flatten().enumerate().filter(|(_, cidr)| !known.contains(cidr)) {
            address::check_range(cidr, &path.child("podCIDRs").index(index), errors);
        }
        let cidrs = spec.pod_cidrs.as_deref().unwrap_or_default();
        let is_ipv6 = |cidr: &String| cidr.contains(':');
        if cidrs.len() > 2 || matches!(cidrs, [first, second] if is_ipv6(first) == is_ipv6(second)) {
            let detail = "may specify no more than one CIDR for each IP family";
            errors.invalid(&path.child("podCIDRs"), json!(cidrs), detail);
        }
        let Some(old) = old.and_then(|old| old.spec.as_ref()) else { return };
        if spec.external_id != old.external_id {
            errors.forbidden(&path.child("externalID"), "may not be updated");
        }
        let changed = |new: bool, kept: bool| new && !kept;
        if changed(old.provider_id.is_some(), old.provider_id == spec.provider_id) {
            errors.forbidden(
                &path.child("providerID"),
                "node updates may not change providerID except from \"\" to valid",
            );
        }
        if changed(old.pod_cidr.is_some(), old.pod_cidr == spec.pod_cidr) {
            errors.forbidden(&path.child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid");
        }
    }
}

fn check_taints(taints: &[Taint], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        errors.each_invalid(&path.child("key"), taint.key.as_str(), names::qualified(&taint.key));
        let value = taint.value.as_deref().unwrap_or_default();
        errors.each_invalid(&path.child("value"), value, names::label_value(value));
        check_effect(&taint.effect, &path.child("effect"), errors);
        if !seen.insert((taint.key.as_str(), taint.effect.as_str())) {
            let text = go::lay_out(&json!(taint), TAINT).compact();
            errors.duplicate_text(&path, &text, "taints must be unique by key and effect pair");
        }
    }
}

fn check_effect(effect: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match effect {
        "" => errors.required(path, ""),
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
        other => errors.unsupported_as_listed(path, other, &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    }
}

/// Returns the addresses of type InternalIP of a node.
pub fn internal_addresses(node: &Object) -> impl Iterator<Item = &str> {
    let addresses = node.items(&["status", "addresses"]).iter();
    addresses.filter(|address| address["type"] == "InternalIP").filter_map(|address| address["address"].as_str())
}

/// Returns the first InternalIP of a node that is an IP address.
pub fn internal_ip(node: &Object) -> Option<IpAddr> {
    internal_addresses(node).find_map(|address| address.parse().ok())
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::json;

    #[test]
    fn node_has_one_block_of_each_family() {
        let problem = |cidrs: &[&str]| {
            let spec = json!({"podCIDR": cidrs[0], "podCIDRs": cidrs});
            refusals(json!({"apiVersion": "v1", "kind": "Node", "spec": spec})).join("; ")
        };
        assert_eq!(problem(&["10.1.0.0/24", "fd00::/64"]), "");
        let host = "spec.podCIDRs[0]: Invalid value: \"10.1.0.1/24\": must not have bits set beyond the prefix length";
        assert_eq!(problem(&["10.1.0.1/24"]), host);
        let detail = "may specify no more than one CIDR for each IP family";
        let refused = problem(&["10.1.0.0/24", "10.2.0.0/24"]);
        assert_eq!(refused, format!("spec.podCIDRs: Invalid value: [\"10.1.0.0/24\",\"10.2.0.0/24\"]: {detail}"));
    }
}
