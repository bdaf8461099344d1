//! The allocation of a claim as it is written into its status.
//!
//! Never: chooses a device. Start reading at [`build_allocation`].

use super::capacity;
use super::requests::{ClaimRequests, WantedDevices};
use super::search::ChosenDevice;
use crate::kinds::device::claim::MAX_ALTERNATIVES;
use crate::object::{Object, Time, format_uid, time};
use crate::world::Row;
use itertools::Itertools;
use k8s_openapi::api::core::v1::NodeSelector;
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns `status.allocation` of a claim with these devices of a node.
pub fn build_allocation(requests: &ClaimRequests, chosen: &[ChosenDevice<'_>], node: &Row, now: Time) -> Value {
    let mut devices = Map::new();
    let results: Vec<Value> =
        chosen.iter().enumerate().map(|(place, choice)| build_result(requests, place, choice)).collect();
    if !results.is_empty() {
        devices.insert("results".into(), results.into());
    }
    let config = build_configurations(requests, chosen);
    if !config.is_empty() {
        devices.insert("config".into(), config.into());
    }
    let mut allocation = json!({ "devices": devices, "allocationTimestamp": time::rfc3339(now) });
    if let Some(selector) = build_node_selector(chosen, node) {
        allocation["nodeSelector"] = selector;
    }
    allocation
}

/// Returns the score of the alternatives that an allocation has for the requests of a claim: 8 for the first one of a request, 1 for the
/// last possible one.
pub fn alternatives_score(claim: &Object, allocation: &Value) -> i64 {
    let results = allocation["devices"]["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let requests = claim.items(&["spec", "devices", "requests"]).iter();
    let scores = requests.flat_map(|request| {
        let parts = request["firstAvailable"].as_array().into_iter().flatten();
        parts.take(MAX_ALTERNATIVES).enumerate().map(move |(place, part)| {
            let name = [&request["name"], &part["name"]].map(|name| name.as_str().unwrap_or_default()).join("/");
            let is_allocated = results.iter().any(|result| result["request"] == *name);
            if is_allocated { (MAX_ALTERNATIVES - place) as i64 } else { 0 }
        })
    });
    scores.sum()
}

fn build_result(requests: &ClaimRequests, place: usize, choice: &ChosenDevice<'_>) -> Value {
    let ChosenDevice { wanted, pool, device, .. } = choice;
    let mut result = json!({"request": wanted.name, "driver": pool.driver, "pool": pool.name, "device": device.name});
    if let Some(admin) = wanted.admin_access {
        result["adminAccess"] = admin.into();
    }
    if !wanted.tolerations.is_empty() {
        result["tolerations"] = json!(wanted.tolerations);
    }
    let conditions = [
        ("bindingConditions", &device.binding_conditions),
        ("bindingFailureConditions", &device.binding_failure_conditions),
    ];
    for (field, names) in conditions {
        if let Some(names) = names.as_ref().filter(|names| !names.is_empty()) {
            result[field] = json!(names);
        }
    }
    if choice.is_shared() {
        result["shareID"] = make_share_id(requests, place).into();
        let consumed = capacity::consumed_by_request(device, &wanted.capacity).unwrap_or_default();
        if !consumed.is_empty() {
            result["consumedCapacity"] = consumed
                .iter()
                .map(|(name, amount)| (name.clone(), Value::from(amount.to_string())))
                .collect::<Map<_, _>>()
                .into();
        }
    }
    result
}

/// Makes the id of a share of a device. It follows from the state of the claim and the place of the result, so that equal Worlds give
/// equal plans.
fn make_share_id(requests: &ClaimRequests, place: usize) -> String {
    let hash = |half: u8| {
        let mut hasher = DefaultHasher::new();
        (half, &requests.identity, place).hash(&mut hasher);
        hasher.finish()
    };
    format_uid(hash(0), hash(1))
}

/// Returns the configurations of the classes, each once, and those of the claim.
fn build_configurations(requests: &ClaimRequests, chosen: &[ChosenDevice<'_>]) -> Vec<Value> {
    let mut wanted: Vec<&WantedDevices> = Vec::new();
    for choice in chosen {
        if !wanted.iter().any(|earlier| std::ptr::eq(*earlier, choice.wanted)) {
            wanted.push(choice.wanted);
        }
    }
    let mut config = Vec::new();
    let mut classes: Vec<&str> = Vec::new();
    for first in &wanted {
        if classes.contains(&&*first.class_name) {
            continue;
        }
        classes.push(&first.class_name);
        let of_class = wanted.iter().filter(|one| one.class_name == first.class_name);
        let names: Vec<&str> = of_class.map(|one| &*one.name).collect();
        let own = first.class.config.iter().flatten();
        config.extend(own.map(|own| json!({"source": "FromClass", "requests": names, "opaque": own.opaque})));
    }
    let own = requests.spec.devices.iter().filter_map(|devices| devices.config.as_ref()).flatten();
    for own in own {
        let names = own.requests.as_deref().unwrap_or_default();
        let is_meant = |one: &&WantedDevices| {
            let parent = one.name.split('/').next().unwrap_or_default();
            names.iter().any(|name| *name == one.name || name == parent)
        };
        if names.is_empty() || wanted.iter().any(is_meant) {
            let mut entry = json!({"source": "FromClaim", "opaque": own.opaque});
            if !names.is_empty() {
                entry["requests"] = json!(names);
            }
            config.push(entry);
        }
    }
    config
}

/// Returns the nodes that can use all devices; `None` for every node. A device can bind the claim to the node that was chosen.
fn build_node_selector(chosen: &[ChosenDevice<'_>], node: &Row) -> Option<Value> {
    let this_node = |name: &str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
        json!({"nodeSelectorTerms": [{"matchFields": [field]}]})
    };
    if chosen.iter().any(|choice| choice.device.binds_to_node == Some(true)) {
        return Some(this_node(&node.key.name));
    }
    let (mut fields, mut expressions) = (Vec::new(), Vec::new());
    for ChosenDevice { slice, device, .. } in chosen {
        let (name, selector) = match slice.per_device_node_selection {
            Some(true) => (&device.node_name, &device.node_selector),
            _ => (&slice.node_name, &slice.node_selector),
        };
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            return Some(this_node(name));
        }
        let terms = selector.iter().flat_map(|NodeSelector { node_selector_terms }| node_selector_terms);
        for term in terms {
            fields.extend(term.match_fields.iter().flatten().map(|one| json!(one)));
            expressions.extend(term.match_expressions.iter().flatten().map(|one| json!(one)));
        }
    }
    let mut term = Map::new();
    for (name, list) in [("matchFields", fields), ("matchExpressions", expressions)] {
        if !list.is_empty() {
            term.insert(name.into(), list.into_iter().unique().collect());
        }
    }
    (!term.is_empty()).then(|| json!({ "nodeSelectorTerms": [term] }))
}
