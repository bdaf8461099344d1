//! Capacity of devices: the amounts that a request takes of a device, as the device's policy rounds them.
//!
//! Knows: a request that names no amount takes the default of the policy, or all. Never: chooses a device.
//! Start reading at [`consumed_by_request`].

use crate::kinds::shared::amount::quantity;
use crate::object::Quantity;
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use std::collections::BTreeMap;

/// Amounts by the name of the capacity.
pub type CapacityAmounts = BTreeMap<String, Quantity>;

/// Reads amounts. One that is not a quantity is left out; the API server refuses those.
pub fn read_amounts(texts: Option<&BTreeMap<String, QuantityText>>) -> CapacityAmounts {
    let amounts = texts.into_iter().flatten();
    amounts.filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0).ok()?))).collect()
}

/// Adds amounts to others.
pub fn add_amounts(total: &mut CapacityAmounts, more: &CapacityAmounts) {
    for (name, amount) in more {
        *total.entry(name.clone()).or_default() += *amount;
    }
}

/// Whether a device has at least these amounts.
pub fn offers(device: &Device, amounts: &CapacityAmounts) -> bool {
    let capacity = device.capacity.as_ref();
    amounts.iter().all(|(name, amount)| {
        let own = capacity.and_then(|capacity| capacity.get(name));
        own.is_some_and(|own| *amount <= quantity(&own.value))
    })
}

/// Returns the amount of each capacity of a device that a request takes; `None` when the device has no such capacity, or its policy does
/// not allow the amount.
pub fn consumed_by_request(device: &Device, requests: &CapacityAmounts) -> Option<CapacityAmounts> {
    let is_known = |name: &String| device.capacity.as_ref().is_some_and(|capacity| capacity.contains_key(name));
    if !requests.keys().all(is_known) {
        return None;
    }
    let amounts = device.capacity.iter().flatten().map(|(name, capacity)| {
        let amount = round_request(requests.get(name).copied(), capacity);
        let is_allowed = capacity.request_policy.as_ref().is_none_or(|policy| allows(policy, amount));
        is_allowed.then(|| (name.clone(), amount))
    });
    amounts.collect()
}

/// Returns the amount that is taken for a request, rounded up to one that the policy allows.
fn round_request(request: Option<Quantity>, capacity: &DeviceCapacity) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let Some(request) = request else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return quantity(default.unwrap_or(&capacity.value));
    };
    let Some(policy) = policy else { return request };
    match (&policy.valid_range, policy.valid_values.as_deref().unwrap_or_default()) {
        (Some(range), _) => round_to_step(request, range),
        (None, values) => values.iter().map(quantity).find(|value| request <= *value).unwrap_or(request),
    }
}

fn round_to_step(request: Quantity, range: &CapacityRequestPolicyRange) -> Quantity {
    let min = quantity(&range.min);
    if request < min {
        return min;
    }
    let Some(step) = read_step(range) else { return request };
    let steps = (i128::from(request.value()) - i128::from(min.value()) + step - 1) / step;
    let amount = i128::from(min.value()) + steps * step;
    Quantity::from_bytes(i64::try_from(amount).unwrap_or(i64::MAX))
}

/// Whether a policy allows an amount.
fn allows(policy: &CapacityRequestPolicy, amount: Quantity) -> bool {
    if policy.default.as_ref().is_some_and(|default| quantity(default) == amount) {
        return true;
    }
    match (&policy.valid_range, policy.valid_values.as_deref().unwrap_or_default()) {
        (Some(range), _) => {
            let is_below = range.max.as_ref().is_none_or(|max| amount <= quantity(max));
            let above_min = i128::from(amount.value()) - i128::from(quantity(&range.min).value());
            is_below && read_step(range).is_none_or(|step| above_min % step == 0)
        }
        (None, []) => true,
        (None, values) => values.iter().any(|value| quantity(value) == amount),
    }
}

/// Returns the step of a range, if it has one.
fn read_step(range: &CapacityRequestPolicyRange) -> Option<i128> {
    range.step.as_ref().map(|step| i128::from(quantity(step).value())).filter(|step| *step > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

    /// The amount of `memory` that a request takes of a device with 10Gi, under a policy.
    fn taken(policy: Value, request: Option<&str>) -> Option<String> {
        let device = json!({"name": "d", "capacity": {"memory": {"value": "10Gi", "requestPolicy": policy}}});
        let device = Device::deserialize(&device).unwrap();
        let requests = request.map(|text| ("memory".to_owned(), Quantity::parse(text).unwrap()));
        let amounts = consumed_by_request(&device, &requests.into_iter().collect())?;
        Some(amounts["memory"].to_string())
    }

    #[test]
    fn requests_are_rounded_by_the_policy() {
        let none = Value::Null;
        let range = json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}});
        let values = json!({"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]});
        for (policy, request, expected) in [
            (&none, None, Some("10Gi")),
            (&none, Some("3Gi"), Some("3Gi")),
            (&range, None, Some("1Gi")),
            (&range, Some("1Mi"), Some("1Gi")),
            (&range, Some("2500Mi"), Some("3Gi")),
            (&range, Some("9Gi"), None),
            (&values, None, Some("2Gi")),
            (&values, Some("3Gi"), Some("4Gi")),
            (&values, Some("5Gi"), None),
        ] {
            assert_eq!(taken(policy.clone(), request).as_deref(), expected, "{policy} {request:?}");
        }
    }

    #[test]
    fn unknown_capacity_is_not_offered() {
        let device = Device::deserialize(json!({"name": "d", "capacity": {"memory": {"value": "1Gi"}}})).unwrap();
        let amounts = |name: &str, text: &str| [(name.to_owned(), Quantity::parse(text).unwrap())].into();
        assert_eq!(consumed_by_request(&device, &amounts("cores", "1")), None);
        assert!(offers(&device, &amounts("memory", "1Gi")) && !offers(&device, &amounts("memory", "1025Mi")));
        assert!(!offers(&device, &amounts("cores", "1")));
    }
}
