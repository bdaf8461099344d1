//! LimitRanger: gives containers a namespace's default requests and limits, and refuses objects outside its bounds.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::kinds::shared::resource_amounts::{read_amounts, sum_resources};
use crate::object::quantity::Quantity;
use crate::object::{Object, Resource, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Annotation that lists the defaults that were filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Amounts by resource.
type LimitAmounts = BTreeMap<String, Quantity>;

/// Whether limits bound the object: new pods and those that are resized, and all writes of claims, unless it is being deleted.
fn is_limited(request: &AdmissionRequest<'_>) -> bool {
    let is_bounded = match (request.kind.resource.0, request.subresource) {
        ("pods", "") => request.operation == Operation::Create,
        ("pods", "resize") | ("persistentvolumeclaims", "") => true,
        _ => false,
    };
    is_bounded && request.old.is_none_or(|old| old.deletion().is_none())
}

/// Fills in defaults of pods that are created or resized.
pub fn fill(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !is_limited(request) || request.kind.resource != "pods" {
        return Ok(());
    }
    for range in ranges(txn, request)? {
        let (requests, limits) = defaults(&range);
        let mut told = Vec::new();
        for (list, prefix) in [("containers", "container"), ("initContainers", "init container")] {
            let mut containers = request.object.items(&["spec", list]).to_vec();
            for container in &mut containers {
                let name = container["name"].as_str().unwrap_or_default().to_owned();
                for (what, amounts) in [("request", &requests), ("limit", &limits)] {
                    let set = merge(container, &format!("{what}s"), amounts);
                    if !set.is_empty() {
                        told.push(format!("{} {what} for {prefix} {name}", set.join(", ")));
                    }
                }
            }
            if !containers.is_empty() {
                request.object.set(&["spec", list], containers);
            }
        }
        if !told.is_empty() {
            let text = format!("LimitRanger plugin set: {}", told.join("; "));
            request.object.set(&["metadata", "annotations", ANNOTATION], text);
        }
    }
    Ok(())
}

/// Refuses objects whose resources are outside the bounds of a LimitRange.
pub fn check(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !is_limited(request) {
        return Ok(());
    }
    for range in ranges(txn, request)? {
        let mut problems = Vec::new();
        for limit in range.items(&["spec", "limits"]) {
            problems.extend(match request.kind.resource.0 {
                "pods" => check_pod(limit, request.object),
                _ => check_claim(limit, request.object),
            });
        }
        let why = match &problems[..] {
            [] => continue,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(Status::forbidden(request.kind.resource, request.object.name(), &why));
    }
    Ok(())
}

fn ranges(txn: &dyn Transaction, request: &AdmissionRequest<'_>) -> ApiResult<Vec<Object>> {
    txn.list(Resource("limitranges"), Some(request.object.namespace()))
}

/// Default requests and limits of a range's containers; those that stand in the store are complete already.
fn defaults(range: &Object) -> (LimitAmounts, LimitAmounts) {
    let of_containers = range.items(&["spec", "limits"]).iter().filter(|limit| limit["type"] == "Container");
    let (mut requests, mut limits) = (LimitAmounts::new(), LimitAmounts::new());
    for limit in of_containers {
        requests.extend(read_amounts(&limit["defaultRequest"]));
        limits.extend(read_amounts(&limit["default"]));
    }
    (requests, limits)
}

/// Fills in amounts that a container does not give; the names of those that were.
fn merge(container: &mut Value, field: &str, amounts: &LimitAmounts) -> Vec<String> {
    let mut set = Vec::new();
    for (name, amount) in amounts {
        if container["resources"][field][name].is_null() {
            container["resources"][field][name] = amount.to_string().into();
            set.push(name.clone());
        }
    }
    set
}

fn check_pod(limit: &Value, pod: &Object) -> Vec<String> {
    let (main, init) = (pod.items(&["spec", "containers"]), pod.items(&["spec", "initContainers"]));
    let of = |container: &Value| {
        (read_amounts(&container["resources"]["requests"]), read_amounts(&container["resources"]["limits"]))
    };
    match limit["type"].as_str() {
        Some("Container") => {
            main.iter().chain(init).flat_map(|one| range_problems(limit, &of(one).0, &of(one).1)).collect()
        }
        Some("Pod") => range_problems(limit, &sum_resources(pod, "requests"), &sum_resources(pod, "limits")),
        _ => Vec::new(),
    }
}

/// The problems with requests and limits, in Kubernetes' order: too little, too much, too far apart.
fn range_problems(limit: &Value, requests: &LimitAmounts, limits: &LimitAmounts) -> Vec<String> {
    let mut problems = Vec::new();
    let kind = limit["type"].as_str().unwrap_or_default();
    for (name, least) in read_amounts(&limit["min"]) {
        let text = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => problems.push(format!("{text}.  No request is specified")),
            (Some(request), _) if *request < least => problems.push(format!("{text}, but request is {request}")),
            (_, Some(limit)) if *limit < least => problems.push(format!("{text}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, most) in read_amounts(&limit["max"]) {
        let text = format!("maximum {name} usage per {kind} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => problems.push(format!("{text}.  No limit is specified")),
            (Some(limit), _) if *limit > most => problems.push(format!("{text}, but limit is {limit}")),
            (_, Some(request)) if *request > most => problems.push(format!("{text}, but request is {request}")),
            _ => {}
        }
    }
    for (name, most) in read_amounts(&limit["maxLimitRequestRatio"]) {
        let text = format!("{name} max limit to request ratio per {kind} is {most}");
        let given = |amounts: &LimitAmounts| amounts.get(&name).copied().filter(|amount| !amount.is_zero());
        match (given(requests), given(limits)) {
            (None, _) => problems.push(format!("{text}, but no request is specified or request is 0")),
            (_, None) => problems.push(format!("{text}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.as_f64() / request.as_f64();
                if ratio > most.as_f64() {
                    problems.push(format!("{text}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
    problems
}

/// Checks the requests of a PersistentVolumeClaim.
fn check_claim(limit: &Value, claim: &Object) -> Vec<String> {
    if limit["type"] != "PersistentVolumeClaim" {
        return Vec::new();
    }
    let requests = read_amounts(claim.value_at(&["spec", "resources", "requests"]).unwrap_or(&Value::Null));
    let mut problems =
        range_problems(&json!({"type": limit["type"], "min": limit["min"]}), &requests, &LimitAmounts::new());
    for (name, most) in read_amounts(&limit["max"]) {
        let text = format!("maximum {name} usage per PersistentVolumeClaim is {most}");
        match requests.get(&name) {
            None => problems.push(format!("{text}.  No request is specified")),
            Some(request) if *request > most => problems.push(format!("{text}, but request is {request}")),
            Some(_) => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_told_in_kubernetes_words() {
        let limit = json!({"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "4"}});
        let cases = [
            (json!({"cpu": "100m"}), json!({"cpu": "200m"}), vec![]),
            (
                json!({}),
                json!({"cpu": "1"}),
                vec![
                    "minimum cpu usage per Container is 50m.  No request is specified",
                    "cpu max limit to request ratio per Container is 4, but no request is specified or request is 0",
                ],
            ),
            (
                json!({"cpu": "10m"}),
                json!({"cpu": "2"}),
                vec![
                    "minimum cpu usage per Container is 50m, but request is 10m",
                    "maximum cpu usage per Container is 1, but limit is 2",
                    "cpu max limit to request ratio per Container is 4, but provided ratio is 200.000000",
                ],
            ),
        ];
        for (requests, limits, problems) in cases {
            assert_eq!(range_problems(&limit, &read_amounts(&requests), &read_amounts(&limits)), problems);
        }
    }

    #[test]
    fn only_what_is_missing_is_filled_in() {
        let mut container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
        let defaults = read_amounts(&json!({"cpu": "200m", "memory": "100Mi"}));
        assert_eq!(merge(&mut container, "requests", &defaults), ["memory"]);
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1", "memory": "100Mi"}));
    }
}
