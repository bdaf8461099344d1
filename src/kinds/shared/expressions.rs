//! The CEL expressions of objects that are not custom resources: of policies, webhooks, and requests for devices.
//!
//! Knows where they are, so that a caller without a lock can compile them before they are needed under one. Never: evaluates one.
//! Start reading at [`find_uncompiled`].

use super::super::custom::Uncompiled;
use super::super::device::selector::DeviceSelection;
use super::policy_programs::PolicyPrograms;
use crate::object::{Object, Resource};
use serde_json::Value;

/// The resources whose objects have expressions.
pub const RESOURCES: [&str; 7] = [
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
];

/// Returns the expressions of an object that this process has not compiled yet.
pub fn find_uncompiled(resource: Resource, object: &Object) -> Vec<Uncompiled> {
    let policy = |spec: &Value, mutates: bool| {
        let is_known = PolicyPrograms::are_compiled(spec, mutates);
        (!is_known).then(|| Uncompiled::Policy(Box::new((spec.clone(), mutates))))
    };
    let spec = &object.0["spec"];
    match resource.0 {
        "validatingadmissionpolicies.admissionregistration.k8s.io" => policy(spec, false).into_iter().collect(),
        "mutatingadmissionpolicies.admissionregistration.k8s.io" => policy(spec, true).into_iter().collect(),
        "validatingwebhookconfigurations.admissionregistration.k8s.io"
        | "mutatingwebhookconfigurations.admissionregistration.k8s.io" => {
            object.items(&["webhooks"]).iter().filter_map(|hook| policy(hook, false)).collect()
        }
        "deviceclasses.resource.k8s.io" => find_selectors(spec),
        "resourceclaims.resource.k8s.io" => find_claim_selectors(spec),
        "resourceclaimtemplates.resource.k8s.io" => find_claim_selectors(&spec["spec"]),
        _ => Vec::new(),
    }
}

fn find_claim_selectors(spec: &Value) -> Vec<Uncompiled> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let requests = list(&spec["devices"]["requests"]).into_iter();
    let parts =
        requests.flat_map(|request| list(&request["firstAvailable"]).into_iter().chain([request["exactly"].clone()]));
    parts.flat_map(|part| find_selectors(&part)).collect()
}

fn find_selectors(part: &Value) -> Vec<Uncompiled> {
    let selectors = part["selectors"].as_array().into_iter().flatten();
    let expressions = selectors.filter_map(|selector| selector["cel"]["expression"].as_str());
    let uncompiled = expressions.filter(|expression| !DeviceSelection::is_compiled(expression));
    uncompiled.map(|expression| Uncompiled::Selector(expression.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::custom;
    use serde_json::json;

    #[test]
    fn expressions_are_found_until_they_are_compiled() {
        let object = |kind: &str, spec: Value| Object(json!({"kind": kind, "metadata": {"name": "x"}, "spec": spec}));
        let selector = |text: &str| json!([{"cel": {"expression": text}}]);
        let cases = [
            (
                "validatingadmissionpolicies.admissionregistration.k8s.io",
                object(
                    "P",
                    json!({"variables": [{"name": "v", "expression": "1 + 41"}],
                    "validations": [{"expression": "variables.v == 42", "messageExpression": "string(variables.v)"}]}),
                ),
                1,
            ),
            (
                "deviceclasses.resource.k8s.io",
                object("C", json!({"selectors": selector("device.driver == 'found'")})),
                1,
            ),
            (
                "resourceclaimtemplates.resource.k8s.io",
                object(
                    "T",
                    json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": {"selectors": selector("1 == 51")}},
                    {"name": "b", "firstAvailable": [{"selectors": selector("1 == 52")}]}]}}}),
                ),
                2,
            ),
        ];
        for (resource, object, count) in cases {
            let found = find_uncompiled(Resource(resource), &object);
            assert!(RESOURCES.contains(&resource) && found.len() == count, "{resource}");
            custom::compile(&found);
            assert!(find_uncompiled(Resource(resource), &object).is_empty(), "{resource}");
        }
    }
}
