//! Rules of a pod's status that a client writes (`ValidatePodStatusUpdate`, and the conversion of `podIP` and `podIPs`).
//!
//! Never: checks writes of kloop's own kubelet, which satisfies these rules.

use crate::kinds::shared::address;
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::{Object, names};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Conditions whose types the API defines without a domain.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// Completes a new status by the old one: a status without a QoS class keeps it, and `podIP` is the first of `podIPs`.
pub fn complete(status: &mut Value, old: &Object) {
    if status["qosClass"].as_str().is_none_or(str::is_empty)
        && let Some(class) = old.value_at(&["status", "qosClass"])
    {
        status["qosClass"] = class.clone();
    }
    let (first, all) = (status["podIP"].clone(), status["podIPs"][0]["ip"].clone());
    // `podIP` counts where they differ: older kubelets write it alone.
    match (first.as_str().unwrap_or_default(), all.as_str().unwrap_or_default()) {
        ("", "") => {}
        ("", _) => status["podIP"] = all,
        (first, known) if first != known => status["podIPs"] = json!([{"ip": first}]),
        _ => {}
    }
}

/// Checks a completed status against the old one.
pub fn check(status: &Value, old: &Object) -> Vec<FieldError> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::root("status"));
    let before = old.value_at(&["status"]).unwrap_or(&Value::Null);
    check_conditions(status, &mut errors);
    let nominated = status["nominatedNodeName"].as_str().unwrap_or_default();
    if !nominated.is_empty() && before["nominatedNodeName"] != nominated {
        errors.each_invalid(&path.child("nominatedNodeName"), nominated, names::subdomain(nominated));
    }
    if !before["qosClass"].is_null() {
        errors.immutable(&path.child("qosClass"), &status["qosClass"], &before["qosClass"]);
    }
    check_addresses(status, before, "podIPs", &mut errors);
    let host = &status["hostIPs"][0]["ip"];
    if !host.is_null() && *host != status["hostIP"] {
        let path = path.child("hostIPs").index(0).child("ip");
        errors.invalid(&path, host.clone(), "must be equal to `hostIP`");
    }
    check_addresses(status, before, "hostIPs", &mut errors);
    errors.0
}

/// Checks the types of conditions. The path is that of Kubernetes' message.
fn check_conditions(status: &Value, errors: &mut FieldErrors) {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    for (at, condition) in conditions.iter().enumerate() {
        let name = condition["type"].as_str().unwrap_or_default();
        if !SYSTEM_CONDITIONS.contains(&name) {
            let path = FieldPath::root("status").child("conditions").index(at).child("Type");
            errors.each_invalid(&path, name, names::qualified(name));
        }
    }
}

/// Checks a list of addresses: each has to be valid, with at most one of IPv4 and one of IPv6. Unchanged addresses may stay.
fn check_addresses(status: &Value, before: &Value, field: &str, errors: &mut FieldErrors) {
    let path = FieldPath::root("status").child(field);
    let texts = |status: &Value| -> Vec<String> {
        let items = status[field].as_array().into_iter().flatten();
        items.map(|item| item["ip"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let (new, old) = (texts(status), texts(before));
    for (at, text) in new.iter().enumerate().filter(|(_, text)| !old.contains(text)) {
        // Kubernetes names the address of a host's item, and the item of a pod's.
        let path = path.index(at);
        let path = if field == "podIPs" { path } else { path.child("ip") };
        address::check_address(text, &path, errors);
    }
    let is_v6: Vec<bool> = new.iter().filter_map(|text| Some(text.parse::<IpAddr>().ok()?.is_ipv6())).collect();
    if is_v6.len() == new.len() && (new.len() > 2 || (new.len() == 2 && is_v6[0] == is_v6[1])) {
        errors.invalid(&path, status[field].clone(), "may specify no more than one IP for each IP family");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old() -> Object {
        Object(json!({"status": {"qosClass": "Burstable", "podIP": "odd", "podIPs": [{"ip": "odd"}]}}))
    }

    fn problems(status: Value) -> Vec<String> {
        let mut status = status;
        complete(&mut status, &old());
        check(&status, &old()).iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn fields_are_checked() {
        let address = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        let families = "may specify no more than one IP for each IP family";
        let table = [
            (json!({"podIP": "no address"}), "status.podIPs[0]: Invalid value: \"no address\"", address),
            (json!({"podIPs": [{"ip": "zzz"}]}), "status.podIPs[0]: Invalid value: \"zzz\"", address),
            (json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}), "status.podIPs: Invalid value", families),
            (json!({"hostIP": "zzz", "hostIPs": [{"ip": "zzz"}]}), "status.hostIPs[0].ip: Invalid value", address),
            (json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}), "status.hostIPs[0].ip", "must be equal"),
            (json!({"qosClass": "Guaranteed"}), "status.qosClass: Invalid value: \"Guaranteed\"", "field is immutable"),
            (json!({"nominatedNodeName": "A b/c"}), "status.nominatedNodeName: Invalid value", "RFC 1123 subdomain"),
            (
                json!({"conditions": [{"type": "x y"}]}),
                "status.conditions[0].Type: Invalid value",
                "name part must consist",
            ),
        ];
        for (status, field, why) in table {
            let found = problems(status.clone());
            assert!(found.len() == 1 && found[0].starts_with(field) && found[0].contains(why), "{status}: {found:?}");
        }
        for status in [
            json!({"podIP": "odd", "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}]}),
            json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "nominatedNodeName": "n"}),
            json!({"conditions": [{"type": "Ready"}, {"type": "example.com/gate"}], "phase": "Running"}),
        ] {
            assert_eq!(problems(status.clone()), [""; 0], "{status}");
        }
    }

    #[test]
    fn one_address_is_the_first_of_all() {
        let completed = |mut status: Value| {
            complete(&mut status, &old());
            status
        };
        let one = json!({"qosClass": "Burstable", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
        assert_eq!(completed(json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.9"}]})), one);
        assert_eq!(completed(json!({"podIPs": [{"ip": "10.0.0.1"}]})), one);
        assert_eq!(completed(json!({"qosClass": ""})), json!({"qosClass": "Burstable"}));
    }
}
