//! Priority: a pod's number comes from its class, or the cluster's default class, or is zero.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::object::{Key, Object, Resource, Status};

const CLASSES: Resource = Resource("priorityclasses.scheduling.k8s.io");

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates("pods") {
        return Ok(());
    }
    let class = class_of(txn, request)?;
    let value = class.as_ref().and_then(|class| class.int(&["value"])).unwrap_or(0);
    let policy = class.as_ref().and_then(|class| class.text(&["preemptionPolicy"])).unwrap_or("PreemptLowerPriority");
    if let Some(class) = &class {
        request.object.set(&["spec", "priorityClassName"], class.name());
    }
    set_or_check(request, "priority", "the integer value of priority", value.into())?;
    set_or_check(request, "preemptionPolicy", "the string value of PreemptionPolicy", policy.into())
}

fn class_of(txn: &dyn Transaction, request: &AdmissionRequest<'_>) -> ApiResult<Option<Object>> {
    let named = request.object.text(&["spec", "priorityClassName"]).filter(|name| !name.is_empty());
    if let Some(name) = named {
        let class = txn.get(&Key::new(CLASSES, "", name))?;
        let missing = || {
            let why = format!("no PriorityClass with name {name} was found");
            Status::forbidden(request.kind.resource, request.object.name(), &why)
        };
        return class.ok_or_else(missing).map(Some);
    }
    let classes = txn.list(CLASSES, None)?;
    let default = |class: &Object| class.value_at(&["globalDefault"]).is_some_and(|value| value == true);
    Ok(classes.into_iter().filter(default).min_by_key(|class| class.int(&["value"])))
}

/// Sets the computed value, or refuses a pod that has another one.
fn set_or_check(
    request: &mut AdmissionRequest<'_>,
    field: &str,
    what: &str,
    computed: serde_json::Value,
) -> ApiResult<()> {
    let given = request.object.value_at(&["spec", field]).filter(|given| !given.is_null());
    if let Some(given) = given.filter(|given| **given != computed) {
        let plain = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let why = format!(
            "{what} ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            plain(given),
            plain(&computed)
        );
        return Err(Status::forbidden(request.kind.resource, request.object.name(), &why));
    }
    request.object.set(&["spec", field], computed);
    Ok(())
}
