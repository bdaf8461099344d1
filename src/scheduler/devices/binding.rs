//! Binding conditions: conditions that a driver must report for an allocated device before its pod is bound
//! (Kubernetes: DRADeviceBindingConditions).
//!
//! The allocation copies the names of the conditions from the slice; the driver reports them in `status.devices` of the claim. A claim
//! whose device fails, or is not ready in time, is deallocated, so that the pod gets other devices.
//! Never: allocates a device. Start reading at [`BindingState::read`].

use crate::object::time::{self, Shift};
use crate::object::{Object, Time, condition};
use crate::world::{Row, WriteVerb, devices, terms};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// State of the binding conditions of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingState {
    /// The claim has no binding conditions, or all are true.
    Ready,
    /// Some are not true yet; the scheduler waits until this moment, if the claim says since when it is allocated.
    Pending(Option<Time>),
    /// A device failed, or took too long.
    Failed,
}

impl BindingState {
    /// Reads the state of a claim at a moment. `timeout` is how long the scheduler waits for the conditions.
    pub fn read(claim: &Object, timeout: SignedDuration, now: Time) -> BindingState {
        let results = claim.items(&["status", "allocation", "devices", "results"]);
        let mut is_ready = true;
        for result in results.iter().filter(|result| has_conditions(result)) {
            let Some(reported) = find_report(claim, result) else {
                is_ready = false;
                continue;
            };
            if names(result, "bindingFailureConditions").any(|name| is_true(reported, name)) {
                return BindingState::Failed;
            }
            is_ready &= names(result, "bindingConditions").all(|name| is_true(reported, name));
        }
        if is_ready {
            return BindingState::Ready;
        }
        let since = claim.text(&["status", "allocation", "allocationTimestamp"]);
        let until = since.and_then(|since| time::parse_rfc3339(since).ok()).map(|since| since.later(timeout));
        if until.is_some_and(|until| until <= now) { BindingState::Failed } else { BindingState::Pending(until) }
    }
}

/// Whether the device of a result has conditions.
pub fn has_conditions(result: &Value) -> bool {
    names(result, "bindingConditions").next().is_some()
}

fn names<'a>(result: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    result[field].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the driver's report about the device of an allocation result.
fn find_report<'a>(claim: &'a Object, result: &Value) -> Option<&'a Value> {
    let is_same =
        |reported: &&Value| ["driver", "pool", "device"].iter().all(|field| reported[*field] == result[*field]);
    claim.items(&["status", "devices"]).iter().find(is_same)
}

fn is_true(reported: &Value, condition: &str) -> bool {
    reported["conditions"].as_array().is_some_and(|conditions| condition::is_true(conditions, condition))
}

/// Whether a node can use the devices of a claim, as far as they are allocated.
pub fn is_available(claim: &Object, node: &Row) -> bool {
    let selector = claim.value_at(&["status", "allocation", "nodeSelector"]);
    selector.is_none_or(|selector| selector.is_null() || terms::any_matches(selector, node))
}

/// Returns the write that takes the devices of a claim away; `None` while other pods use it.
pub fn deallocate(claim: &Object, pod: &Row) -> Option<WriteVerb> {
    let consumers = claim.items(&["status", "reservedFor"]);
    let is_free = consumers.is_empty() || (consumers.len() == 1 && devices::is_reserved_for(claim, &pod.uid));
    (devices::is_allocated(claim) && is_free).then(|| WriteVerb::Status(claim.other_status(json!({}))))
}
