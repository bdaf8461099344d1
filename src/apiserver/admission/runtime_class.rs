//! RuntimeClass: a pod that names a class that is not there is refused; a class's overhead and where it may run become the pod's.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::quantity::Quantity;
use crate::object::{Key, Object, Resource, Status};
use serde_json::Value;

const CLASSES: Resource = Resource("runtimeclasses.node.k8s.io");

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("pods") {
        return Ok(());
    }
    let class = match request.object.text(&["spec", "runtimeClassName"]).filter(|name| !name.is_empty()) {
        None => None,
        Some(name) => {
            let class = txn.get(&Key::new(CLASSES, "", name))?;
            Some(class.ok_or_else(|| refused(request, &format!("pod rejected: RuntimeClass {name:?} not found")))?)
        }
    };
    overhead(request, class.as_ref())?;
    class.map_or(Ok(()), |class| schedule(request, &class))
}

fn refused(request: &AdmissionRequest<'_>, why: &str) -> Status {
    Status::forbidden(request.kind.resource, request.object.name(), why)
}

/// Sets the overhead from the class, and refuses any other value.
fn overhead(request: &mut AdmissionRequest<'_>, class: Option<&Object>) -> ApiResult<()> {
    let given = request
        .object
        .value_at(&["spec", "overhead"])
        .filter(|given| given.as_object().is_some_and(|map| !map.is_empty()));
    let fixed = class.and_then(|class| class.value_at(&["overhead", "podFixed"]));
    match (given, fixed) {
        (None, None) => Ok(()),
        (None, Some(fixed)) => {
            let fixed = fixed.clone();
            request.object.set(&["spec", "overhead"], fixed);
            Ok(())
        }
        (Some(_), None) => {
            Err(refused(request, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
        }
        (Some(given), Some(fixed)) if are_equal(given, fixed) => Ok(()),
        (Some(_), Some(_)) => {
            Err(refused(request, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
        }
    }
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
            return Err(refused(request, &why));
        }
        request.object.set(&["spec", "nodeSelector", label], value.clone());
    }
    let added = class.items(&["scheduling", "tolerations"]);
    if !added.is_empty() {
        let mut tolerations = request.object.items(&["spec", "tolerations"]).to_vec();
        let fresh: Vec<Value> = added.iter().filter(|one| !tolerations.contains(one)).cloned().collect();
        tolerations.extend(fresh);
        request.object.set(&["spec", "tolerations"], tolerations);
    }
    Ok(())
}
