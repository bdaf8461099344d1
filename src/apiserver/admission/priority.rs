//! Priority: a pod's number comes from its class, or the cluster's default class, or is zero. Only one class is the default.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::{Key, Object, Resource, scalar_text};
use serde_json::Value;

const CLASSES: Resource = Resource("priorityclasses.scheduling.k8s.io");

/// Sets the priority of a new pod; an update that leaves it out keeps it.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if request.kind.resource != "pods" {
        return Ok(());
    }
    if let Some(old) = request.old {
        for field in ["priority", "preemptionPolicy"] {
            let is_given = request.object.value_at(&["spec", field]).is_some_and(|given| !given.is_null());
            if let Some(kept) = old.value_at(&["spec", field]).filter(|_| !is_given) {
                request.object.set(&["spec", field], kept.clone());
            }
        }
        return Ok(());
    }
    let class = find_class(txn, request)?;
    let value = class.as_ref().and_then(|class| class.int(&["value"])).unwrap_or(0);
    let policy = class.as_ref().and_then(|class| class.text(&["preemptionPolicy"])).unwrap_or("PreemptLowerPriority");
    if let Some(class) = &class {
        request.object.set(&["spec", "priorityClassName"], class.name());
    }
    set_or_check(request, "priority", "the integer value of priority", value.into())?;
    set_or_check(request, "preemptionPolicy", "the string value of PreemptionPolicy", policy.into())
}

/// Refuses a second default class.
pub fn check_class(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if request.kind.resource != CLASSES || !is_default(request.object) {
        return Ok(());
    }
    match default_class(txn)? {
        Some(known) if request.operation == Operation::Create || known.name() != request.object.name() => {
            let name = known.name();
            Err(request
                .forbidden(&format!("PriorityClass {name} is already marked as default. Only one default can exist")))
        }
        _ => Ok(()),
    }
}

fn is_default(class: &Object) -> bool {
    class.value_at(&["globalDefault"]).is_some_and(|value| value == true)
}

/// The default class; of several, the one with the lowest value.
fn default_class(txn: &dyn Transaction) -> ApiResult<Option<Object>> {
    Ok(txn.list(CLASSES, None)?.into_iter().filter(is_default).min_by_key(|class| class.int(&["value"])))
}

fn find_class(txn: &dyn Transaction, request: &AdmissionRequest<'_>) -> ApiResult<Option<Object>> {
    let Some(name) = request.object.text(&["spec", "priorityClassName"]).filter(|name| !name.is_empty()) else {
        return default_class(txn);
    };
    let missing = || request.forbidden_early(&format!("no PriorityClass with name {name} was found"));
    txn.get(&Key::new(CLASSES, "", name))?.ok_or_else(missing).map(Some)
}

/// Sets the computed value, or refuses a pod that has another one.
fn set_or_check(request: &mut AdmissionRequest<'_>, field: &str, what: &str, computed: Value) -> ApiResult<()> {
    let given = request.object.value_at(&["spec", field]).filter(|given| !given.is_null());
    if let Some(given) = given.filter(|given| **given != computed) {
        let why = format!(
            "{what} ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            scalar_text(given),
            scalar_text(&computed)
        );
        return Err(request.forbidden_early(&why));
    }
    request.object.set(&["spec", field], computed);
    Ok(())
}
