//! Parts of the device kinds (resource.k8s.io/v1): names, selectors, configurations, tolerations and taints.
//!
//! Knows: the shared defaults and checks. [`claim`] checks a claim, [`allocation`] its status, [`offer`] the devices that a driver offers;
//! [`selector`] evaluates the expressions that select devices. Never: allocates a device. Start reading at [`claim::check`].

pub mod allocation;
mod capacity_policy;
pub mod claim;
pub mod offer;
pub mod selector;

use super::catalogue::shapes;
use super::shared::{names, omit};
use super::{FieldErrors, FieldPath, csi_driver};
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::resource::v1::{DeviceSelector, DeviceToleration, OpaqueDeviceConfiguration};
use selector::DeviceSelection;
use serde_json::Value;
use std::collections::BTreeSet;

/// The shape of the spec of claims and of their templates.
pub static CLAIM_SPEC_SHAPE: StructShape =
    StructShape::new(&[("devices", shapes::in_place(shapes::map(&shapes::ANY)))]);

/// The most selectors, configurations, constraints and results.
pub const MAX_ITEMS: usize = 32;
const MAX_EXPRESSION_BYTES: usize = 10 * 1024;
const MAX_PARAMETER_BYTES: usize = 10 * 1024;
const MAX_POOL_BYTES: usize = 253;
const MAX_ID_BYTES: usize = 32;
const MAX_CONDITIONS: usize = 4;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Warns about a field of slices that the scheduler ignores.
pub fn warn_about_offer(offer: &Object) -> Vec<String> {
    const FIELD: &str = "nodeAllocatableResourceMappings";
    if offer.items(&["spec", "devices"]).iter().all(|device| device[FIELD].is_null()) {
        return Vec::new();
    }
    vec![format!("spec.devices[].{FIELD} has no effect: the scheduler counts only the resource requests of pods")]
}

/// Checks a list's length, then its items.
pub fn check_items<T>(
    items: &[T],
    most: usize,
    path: &FieldPath,
    errors: &mut FieldErrors,
    check: impl Fn(&T, &FieldPath, &mut FieldErrors),
) {
    if items.len() > most {
        return errors.too_many(path, items.len(), most);
    }
    for (index, item) in items.iter().enumerate() {
        check(item, &path.index(index), errors);
    }
}

/// Reports items whose key an earlier one has.
pub fn check_unique<T>(items: &[T], key: impl Fn(&T) -> String, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        if !seen.insert(key(item)) {
            errors.duplicate(&path.index(index), key(item));
        }
    }
}

/// Checks a DNS label: the name of a request, a device or a counter.
pub fn check_label(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    errors.each_invalid(path, name, names::label(name));
}

/// Checks the name of a pool: DNS subdomains with slashes between them.
pub fn check_pool(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_POOL_BYTES {
        errors.too_long(path, MAX_POOL_BYTES);
    }
    name.split('/').for_each(|part| errors.each_invalid(path, part, names::subdomain(part)));
}

/// Checks the name of an attribute or a capacity, `model` or `gpu.example.com/model`.
pub fn check_qualified(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let identifier = |text: &str, errors: &mut FieldErrors| {
        if text.len() > MAX_ID_BYTES {
            errors.too_long(path, MAX_ID_BYTES);
        }
        errors.each_invalid(path, text, names::c_identifier(text));
    };
    match name.split('/').collect::<Vec<_>>()[..] {
        [text] => identifier(text, errors),
        [domain, text] => {
            match domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => csi_driver::check_name(domain, path, errors),
            }
            match text {
                "" => errors.invalid(path, "", "the name must not be empty"),
                text => identifier(text, errors),
            }
        }
        _ => errors.invalid(path, name, "must not contain more than one slash"),
    }
}

/// Checks the selectors of a request or a class.
pub fn check_selectors(selectors: &[DeviceSelector], path: &FieldPath, errors: &mut FieldErrors) {
    check_items(selectors, MAX_ITEMS, path, errors, |selector, path, errors| {
        let Some(cel) = &selector.cel else { return errors.required(&path.child("cel"), "") };
        let path = path.child("cel").child("expression");
        if cel.expression.len() > MAX_EXPRESSION_BYTES {
            errors.too_long(&path, MAX_EXPRESSION_BYTES);
        } else if cel.expression.trim().is_empty() {
            errors.invalid(&path, cel.expression.as_str(), "compilation failed: the expression is empty");
        } else if let Err(why) = DeviceSelection::compile(&cel.expression) {
            errors.invalid(&path, cel.expression.as_str(), &format!("compilation failed: {why}"));
        }
    });
}

/// Checks parameters that only a driver understands.
pub fn check_configuration(opaque: Option<&OpaqueDeviceConfiguration>, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("opaque");
    let Some(opaque) = opaque else { return errors.required(&path, "") };
    csi_driver::check_name(&opaque.driver, &path.child("driver"), errors);
    check_raw(&opaque.parameters.0, MAX_PARAMETER_BYTES, &path.child("parameters"), errors);
}

/// Checks an object with any fields and at most `most` bytes as JSON.
pub fn check_raw(value: &Value, most: usize, path: &FieldPath, errors: &mut FieldErrors) {
    if value.is_null() {
        errors.required(path, "");
    } else if value.to_string().len() > most {
        errors.too_long(path, most);
    } else if !value.is_object() {
        errors.invalid(path, "<value omitted>", "must be a valid JSON object");
    }
}

/// Fills in the operators of tolerations.
pub fn default_tolerations(tolerations: &mut Option<Vec<DeviceToleration>>) {
    for toleration in tolerations.iter_mut().flatten() {
        omit::default_text(&mut toleration.operator, "Equal");
    }
}

/// Checks the taints that a request tolerates.
pub fn check_tolerations(tolerations: Option<&[DeviceToleration]>, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, toleration) in tolerations.unwrap_or_default().iter().enumerate() {
        let path = path.child("tolerations").index(index);
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (key, value, effect) = (text(&toleration.key), text(&toleration.value), text(&toleration.effect));
        if !key.is_empty() {
            errors.each_invalid(&path.child("key"), key.as_str(), names::qualified(&key));
        }
        match text(&toleration.operator).as_str() {
            "Exists" if value.is_empty() => {}
            "Exists" => errors.invalid(&path.child("value"), value.as_str(), "must be empty for operator `Exists`"),
            "Equal" => errors.each_invalid(&path.child("value"), value.as_str(), names::label_value(&value)),
            other => errors.unsupported(&path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect.as_str()) {
            errors.unsupported(&path.child("effect"), effect.as_str(), EFFECTS);
        }
    }
}

/// Checks a taint of a device.
pub fn check_taint(key: &str, value: Option<&str>, effect: &str, path: &FieldPath, errors: &mut FieldErrors) {
    errors.each_invalid(&path.child("key"), key, names::qualified(key));
    if let Some(value) = value {
        errors.each_invalid(&path.child("value"), value, names::label_value(value));
    }
    match effect {
        "" => errors.required(&path.child("effect"), ""),
        effect if EFFECTS.contains(&effect) => {}
        other => errors.unsupported(&path.child("effect"), other, EFFECTS),
    }
}

/// Checks the conditions that a device has to have, and those that it must not have, before a pod is bound.
pub fn check_binding(wanted: &[String], failures: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    let lists = [("bindingConditions", wanted, failures), ("bindingFailureConditions", failures, wanted)];
    for (field, list, other) in lists {
        let at = path.child(field);
        let label = |name: &String, path: &FieldPath, errors: &mut FieldErrors| {
            errors.each_invalid(path, name.as_str(), names::qualified(name));
        };
        check_items(list, MAX_CONDITIONS, &at, errors, label);
        check_unique(list, String::clone, &at, errors);
        if list.is_empty() && !other.is_empty() {
            let needed = if field == "bindingConditions" { "bindingFailureConditions" } else { "bindingConditions" };
            errors.invalid(&at, serde_json::json!(list), &format!("{field} are required to use {needed}"));
        }
    }
    for (index, name) in failures.iter().enumerate().filter(|(_, name)| wanted.contains(name)) {
        let detail = "bindingFailureConditions must not overlap with bindingConditions";
        errors.invalid(&path.child("bindingFailureConditions").index(index), name.as_str(), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_of_an_offer_that_do_nothing_are_said() {
        let warnings =
            |device: Value| warn_about_offer(&Object(json!({"spec": {"devices": [{"name": "plain"}, device]}})));
        let said = warnings(json!({"nodeAllocatableResourceMappings": {"cpu": {}}}));
        assert!(said.len() == 1 && said[0].contains("nodeAllocatableResourceMappings"), "{said:?}");
        let silent = json!({"bindsToNode": true, "bindingConditions": ["ready"], "taints": [{"key": "a", "effect": "NoSchedule"}]});
        assert_eq!(warnings(silent), Vec::<String>::new());
    }
}
