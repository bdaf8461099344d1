//! The downward API: the values of `fieldRef` and `resourceFieldRef`.

use super::address;
use super::pod::LocalPod;
use crate::go::fmt;
use crate::object::{Object, Quantity};
use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};

/// Returns the value of a `fieldRef`; an error when environment variables may not use this path.
pub fn field(pod: &LocalPod, path: &str, ip: &str) -> Result<String, String> {
    let meta = |name: &str| pod.object.text(&["metadata", name]).unwrap_or_default().to_owned();
    Ok(match path {
        "metadata.name" => meta("name"),
        "metadata.namespace" => meta("namespace"),
        "metadata.uid" => meta("uid"),
        "metadata.labels" => formatted(&pod.object, "labels"),
        "metadata.annotations" => formatted(&pod.object, "annotations"),
        "spec.nodeName" => pod.spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => address::node_address(pod),
        "status.podIP" | "status.podIPs" => ip.to_owned(),
        _ => match subscript(path) {
            Some(("metadata.labels", key)) => pod.object.label(key).unwrap_or_default().to_owned(),
            Some(("metadata.annotations", key)) => pod.object.annotation(key).unwrap_or_default().to_owned(),
            _ => return Err(format!("unsupported fieldPath: {path}")),
        },
    })
}

/// `metadata.labels['app']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    Some((map, key))
}

/// A whole map, a line for each entry, as downward API files have it.
fn formatted(object: &Object, map: &str) -> String {
    let path = ["metadata", map];
    let lines = object.pairs(&path).map(|(key, value)| format!("{key}={}", fmt::quote(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// The value of a `resourceFieldRef`: a limit or request of a container in units of the divisor, rounded up. A missing
/// limit is the node's allocatable amount; a missing request is the limit.
pub fn resource(pod: &LocalPod, of: &Container, selector: &ResourceFieldSelector) -> Result<String, String> {
    let container = match selector.container_name.as_deref().filter(|name| !name.is_empty()) {
        None => of,
        Some(name) => {
            let all = pod.members.iter().map(|member| &member.spec);
            all.into_iter().find(|container| container.name == name).ok_or(format!("container {name} not found"))?
        }
    };
    let (kind, name) = selector.resource.split_once('.').unwrap_or_default();
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|all| all.limits.as_ref()?.get(name)).map(|quantity| quantity.0.clone());
    let request = resources.and_then(|all| all.requests.as_ref()?.get(name)).map(|quantity| quantity.0.clone());
    let amount = match kind {
        "limits" => limit.or_else(|| allocatable(pod, name)),
        "requests" => request.or(limit),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let parsed = |text: Option<&str>| text.and_then(|text| Quantity::parse(text).ok());
    let amount = parsed(amount.as_deref()).unwrap_or(Quantity::from_int(0));
    let divisor =
        parsed(selector.divisor.as_ref().map(|divisor| divisor.0.as_str())).filter(|divisor| !divisor.is_zero());
    Ok(divided(name, amount, divisor.unwrap_or(Quantity::from_int(1))).to_string())
}

/// Kubernetes counts CPU in thousandths and everything else in whole units before it divides.
fn divided(name: &str, amount: Quantity, divisor: Quantity) -> i64 {
    let (amount, divisor) = match name {
        "cpu" => (amount.milli(), divisor.milli()),
        _ => (amount.value(), divisor.value()),
    };
    let divisor = divisor.max(1);
    amount / divisor + i64::from(amount % divisor > 0)
}

fn allocatable(pod: &LocalPod, name: &str) -> Option<String> {
    let node = pod.world.find("nodes", "", pod.spec.node_name.as_deref()?)?.object();
    node.text(&["status", "allocatable", name]).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_are_quoted_as_go_quotes() {
        let annotations = json!({"a": "it's \"b\"\n", "heart": "\u{2764}\u{fe0f} e\u{301} bell\u{7}"});
        let object = Object(json!({"metadata": {"annotations": annotations}}));
        let expected = "a=\"it's \\\"b\\\"\\n\"\nheart=\"\u{2764}\u{fe0f} e\u{301} bell\\a\"";
        assert_eq!(formatted(&object, "annotations"), expected);
    }
}
