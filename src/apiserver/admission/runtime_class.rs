//! RuntimeClass: a pod that names a class that is not there is refused; a class's overhead and where it may run become the pod's.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::quantity::Quantity;
use crate::object::{Key, Object, Resource};
use serde_json::Value;

const CLASSES: Resource = Resource("runtimeclasses.node.k8s.io");
const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Gives a new pod the overhead of its class, and restricts it to the nodes of the class.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("pods") {
        return Ok(());
    }
    let Some(class) = find_class(txn, request)? else { return Ok(()) };
    if let Some(fixed) = class.value_at(&["overhead", "podFixed"]) {
        if given_overhead(request.object).is_some_and(|given| !are_equal(given, fixed)) {
            return Err(request.forbidden_early(MISMATCH));
        }
        request.object.set(&["spec", "overhead"], fixed.clone());
    }
    schedule(request, &class)
}

/// Refuses a pod whose overhead is not that of its class.
pub fn check(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("pods") {
        return Ok(());
    }
    let class = find_class(txn, request)?;
    let why = match (
        given_overhead(request.object),
        class.as_ref().and_then(|class| class.value_at(&["overhead", "podFixed"])),
    ) {
        (Some(given), Some(fixed)) if are_equal(given, fixed) => return Ok(()),
        (None, None) => return Ok(()),
        (_, Some(_)) => MISMATCH,
        (Some(_), None) => "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
    };
    Err(request.forbidden(why))
}

fn find_class(txn: &dyn Transaction, request: &AdmissionRequest<'_>) -> ApiResult<Option<Object>> {
    let named = request.object.text(&["spec", "runtimeClassName"]).filter(|name| !name.is_empty());
    let Some(name) = named else { return Ok(None) };
    let missing = || request.forbidden_early(&format!("pod rejected: RuntimeClass {name:?} not found"));
    txn.get(&Key::new(CLASSES, "", name))?.ok_or_else(missing).map(Some)
}

fn given_overhead(pod: &Object) -> Option<&Value> {
    pod.value_at(&["spec", "overhead"]).filter(|given| given.as_object().is_some_and(|map| !map.is_empty()))
}

/// Amounts are the same that mean the same.
fn are_equal(one: &Value, other: &Value) -> bool {
    let amounts = |map: &Value| {
        let entries = map.as_object().into_iter().flatten();
        let amount =
            |(name, amount): (&String, &Value)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?.milli()));
        entries.map(amount).collect::<Option<Vec<_>>>()
    };
    amounts(one) == amounts(other)
}

/// Adds the class's node selector and tolerations to the pod.
fn schedule(request: &mut AdmissionRequest<'_>, class: &Object) -> ApiResult<()> {
    let labels = class.value_at(&["scheduling", "nodeSelector"]).and_then(Value::as_object);
    for (label, value) in labels.into_iter().flatten() {
        let own = request.object.value_at(&["spec", "nodeSelector", label]).filter(|own| *own != value);
        if let Some(own) = own {
            let plain = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{label}] = {}; pod.spec.nodeSelector[{label}] = {}",
                plain(value),
                plain(own)
            );
            return Err(request.forbidden_early(&why));
        }
        request.object.set(&["spec", "nodeSelector", label], value.clone());
    }
    let added = class.items(&["scheduling", "tolerations"]);
    if class.value_at(&["scheduling"]).is_some_and(Value::is_object) {
        let all: Vec<Value> = request.object.items(&["spec", "tolerations"]).iter().chain(added).cloned().collect();
        request.object.set(&["spec", "tolerations"], without_redundant(&all));
    }
    Ok(())
}

/// Leaves out tolerations that others of the list include.
fn without_redundant(all: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let is_later = all[index + 1..].iter().any(|later| later != one && includes(later, one));
        if !is_later && !kept.iter().any(|known| includes(known, one)) {
            kept.push(one.clone());
        }
    }
    kept
}

/// Whether a toleration tolerates everything that another one does.
fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |toleration: &Value, field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
    let tolerates_all = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(wide, "key") != text(narrow, "key") && !tolerates_all {
        return false;
    }
    let effect = text(wide, "effect");
    if effect != text(narrow, "effect") && !effect.is_empty() {
        return false;
    }
    if let Some(seconds) = wide["tolerationSeconds"].as_i64().filter(|_| effect == "NoExecute")
        && narrow["tolerationSeconds"].as_i64().is_none_or(|less| less > seconds)
    {
        return false;
    }
    match text(wide, "operator").as_str() {
        "Exists" => true,
        "Equal" | "" => text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn redundant_tolerations_are_left_out() {
        let of_key = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let everything = json!({"operator": "Exists"});
        let equal = json!({"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"});
        let cases = [
            (vec![of_key("a", 300), of_key("a", 300)], vec![of_key("a", 300)]),
            (vec![of_key("a", 10), of_key("a", 300)], vec![of_key("a", 300)]),
            (vec![of_key("a", 10), of_key("b", 300)], vec![of_key("a", 10), of_key("b", 300)]),
            (vec![of_key("a", 10), equal.clone(), everything.clone()], vec![everything]),
            (
                vec![equal.clone(), json!({"key": "a", "operator": "Exists"})],
                vec![json!({"key": "a", "operator": "Exists"})],
            ),
        ];
        for (all, kept) in cases {
            assert_eq!(without_redundant(&all), kept);
        }
    }
}
