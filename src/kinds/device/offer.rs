//! The devices that a driver offers in a ResourceSlice: attributes, capacities, counters, taints and nodes.
//!
//! Never: looks at another slice of the pool; the scheduler does. Start reading at [`check`].

use super::{capacity_policy, check_binding, check_items, check_label, check_qualified, check_taint, check_unique};
use crate::kinds::shared::{names, selector};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{
    Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption, DeviceTaint, ResourceSliceSpec,
};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

const MAX_DEVICES: usize = 128;
/// The most devices of a slice that has taints, counters or lists of attributes.
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_VALUE_BYTES: usize = 64;
const MAX_TAINTS: usize = 16;
const MAX_COUNTER_SETS: usize = 8;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_COUNTERS: usize = 32;

/// A version as semver.org defines it.
static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let (number, pre) = (r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)");
    let build = "[0-9a-zA-Z-]+";
    Regex::new(&format!(r"^{number}\.{number}\.{number}(-{pre}(\.{pre})*)?(\+{build}(\.{build})*)?$")).ok()
});

/// Checks the devices and the counters that they share.
pub fn check(spec: &ResourceSliceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if spec.shared_counters.is_some() && spec.devices.is_some() {
        errors.invalid(path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = spec.devices.as_deref().unwrap_or_default();
    let most = if devices.iter().any(is_advanced) { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let (at, own_nodes) = (path.child("devices"), spec.per_device_node_selection == Some(true));
    check_items(devices, most, &at, errors, |device, path, errors| check_device(device, own_nodes, path, errors));
    if devices.len() <= most {
        check_unique(devices, |device| device.name.clone(), &at, errors);
    }
    let (at, sets) = (path.child("sharedCounters"), spec.shared_counters.as_deref().unwrap_or_default());
    check_items(sets, MAX_COUNTER_SETS, &at, errors, |set: &CounterSet, path, errors| {
        check_counters("name", &set.name, &set.counters, path, errors);
    });
    if sets.len() <= MAX_COUNTER_SETS {
        check_unique(sets, |set| set.name.clone(), &at, errors);
    }
}

fn is_advanced(device: &Device) -> bool {
    let has_lists = |value: &DeviceAttribute| count_values(value) > 0;
    let lists = || device.attributes.iter().flatten().any(|(_, value)| has_lists(value));
    let is_set = |count: Option<usize>| count.unwrap_or_default() > 0;
    is_set(device.taints.as_ref().map(Vec::len)) || is_set(device.consumes_counters.as_ref().map(Vec::len)) || lists()
}

/// Counts the values in an attribute's lists.
fn count_values(value: &DeviceAttribute) -> usize {
    let texts = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    let (bools, ints) = (value.bools.as_ref().map_or(0, Vec::len), value.ints.as_ref().map_or(0, Vec::len));
    bools + ints + texts(&value.strings) + texts(&value.versions)
}

fn check_device(device: &Device, own_nodes: bool, path: &FieldPath, errors: &mut FieldErrors) {
    check_label(&device.name, &path.child("name"), errors);
    let attributes = device.attributes.iter().flatten();
    let total = attributes.clone().count() + device.capacity.as_ref().map_or(0, BTreeMap::len);
    let values: usize = attributes.clone().map(|(_, value)| count_values(value).max(1)).sum();
    for (count, most, items) in
        [(total, MAX_ATTRIBUTES, "attributes and capacities"), (values, MAX_ATTRIBUTE_VALUES, "attribute values")]
    {
        if count > most {
            errors.invalid(path, json!(count), &format!("the total number of {items} must not exceed {most}"));
        }
    }
    for (name, value) in attributes {
        let path = path.child("attributes").key(name);
        check_qualified(name, &path, errors);
        check_attribute(value, &path, errors);
    }
    for (name, capacity) in device.capacity.iter().flatten() {
        let path = path.child("capacity").key(name);
        check_qualified(name, &path, errors);
        capacity_policy::check(capacity, device.allow_multiple_allocations == Some(true), &path, errors);
    }
    let taints = device.taints.as_deref().unwrap_or_default();
    check_items(taints, MAX_TAINTS, &path.child("taints"), errors, |taint: &DeviceTaint, path, errors| {
        check_taint(&taint.key, taint.value.as_deref(), &taint.effect, path, errors);
    });
    let (at, uses) = (path.child("consumesCounters"), device.consumes_counters.as_deref().unwrap_or_default());
    check_items(uses, MAX_CONSUMPTIONS, &at, errors, |used: &DeviceCounterConsumption, path, errors| {
        check_counters("counterSet", &used.counter_set, &used.counters, path, errors);
    });
    check_unique(uses, |used| used.counter_set.clone(), &at, errors);
    check_nodes_of_device(device, own_nodes, path, errors);
    let list = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
    check_binding(&list(&device.binding_conditions), &list(&device.binding_failure_conditions), path, errors);
}

fn check_attribute(value: &DeviceAttribute, path: &FieldPath, errors: &mut FieldErrors) {
    let lists = [
        ("bools", value.bools.as_ref().map(Vec::len)),
        ("ints", value.ints.as_ref().map(Vec::len)),
        ("strings", value.strings.as_ref().map(Vec::len)),
        ("versions", value.versions.as_ref().map(Vec::len)),
    ];
    for (field, _) in lists.iter().filter(|(_, count)| *count == Some(0)) {
        errors.invalid(&path.child(field), json!([]), "must not be empty if specified");
    }
    let mut texts: Vec<(FieldPath, &str, bool)> = Vec::new();
    texts.extend(value.string.iter().map(|text| (path.child("string"), text.as_str(), false)));
    texts.extend(value.version.iter().map(|text| (path.child("version"), text.as_str(), true)));
    for (field, list, is_version) in [("strings", &value.strings, false), ("versions", &value.versions, true)] {
        let items = list.iter().flatten().enumerate();
        texts.extend(items.map(|(index, text)| (path.child(field).index(index), text.as_str(), is_version)));
    }
    for (path, text, is_version) in texts {
        if is_version && VERSION.as_ref().is_some_and(|version| !version.is_match(text)) {
            errors.invalid(&path, text, "must be a string compatible with semver.org spec 2.0.0");
        }
        if text.len() > MAX_VALUE_BYTES {
            errors.too_long(&path, MAX_VALUE_BYTES);
        }
    }
    let scalars = [value.bool.is_some(), value.int.is_some(), value.string.is_some(), value.version.is_some()];
    let set =
        scalars.into_iter().chain(lists.iter().map(|(_, count)| count.is_some())).filter(|is_set| *is_set).count();
    if set != 1 {
        let shown = if set == 0 { json!("") } else { json!(value) };
        errors.invalid(path, shown, "exactly one value must be specified");
    }
}

/// Checks a named set of counters, or the part of one that a device takes.
fn check_counters(
    field: &str,
    name: &str,
    counters: &BTreeMap<String, Counter>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    match name {
        "" => errors.required(&path.child(field), ""),
        name => check_label(name, &path.child(field), errors),
    }
    let path = path.child("counters");
    match counters.len() {
        0 => errors.required(&path, ""),
        count if count > MAX_COUNTERS => errors.too_many(&path, count, MAX_COUNTERS),
        _ => counters.keys().for_each(|name| check_label(name, &path.key(name), errors)),
    }
}

fn check_nodes_of_device(device: &Device, own_nodes: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if !own_nodes {
        if device.node_name.is_some() || device.node_selector.is_some() || device.all_nodes.is_some() {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(path, Value::Null, detail);
        }
        return;
    }
    let mut set = DeviceNodeFields::default();
    set.add_name(device.node_name.as_deref(), "must not be empty", path, errors);
    set.add_selector(device.node_selector.as_ref(), path, errors);
    set.add_flag("allNodes", device.all_nodes, path, errors);
    let needed = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    set.check_one(needed, needed, path, errors);
}

/// The fields that say on which nodes devices are; exactly one has to be set.
#[derive(Default)]
pub struct DeviceNodeFields(Vec<String>);

impl DeviceNodeFields {
    /// Checks `nodeName`.
    pub fn add_name(&mut self, name: Option<&str>, if_empty: &str, path: &FieldPath, errors: &mut FieldErrors) {
        match name {
            None => {}
            Some("") => errors.invalid(&path.child("nodeName"), "", if_empty),
            Some(name) => {
                self.0.push("`nodeName`".to_owned());
                errors.each_invalid(&path.child("nodeName"), name, names::subdomain(name));
            }
        }
    }

    /// Checks `nodeSelector`.
    pub fn add_selector(&mut self, nodes: Option<&NodeSelector>, path: &FieldPath, errors: &mut FieldErrors) {
        if let Some(nodes) = nodes {
            self.0.push("`nodeSelector`".to_owned());
            selector::check_nodes(nodes, &path.child("nodeSelector"), errors);
        }
    }

    /// Checks a field that is true or left out.
    pub fn add_flag(&mut self, field: &str, flag: Option<bool>, path: &FieldPath, errors: &mut FieldErrors) {
        match flag {
            None => {}
            Some(true) => self.0.push(format!("`{field}`")),
            Some(false) => errors.invalid(&path.child(field), false, "must be either unset or set to true"),
        }
    }

    /// Checks that one is set: the text when none is, and when several are.
    pub fn check_one(&self, none: &str, several: &str, path: &FieldPath, errors: &mut FieldErrors) {
        match self.0.len() {
            0 => errors.required(path, none),
            1 => {}
            _ => errors.invalid(path, format!("{{{}}}", self.0.join(", ")), several),
        }
    }
}
