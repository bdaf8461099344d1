//! The policy by which requests share a capacity of a device: a default, and a range or a list of amounts.
//!
//! Never: decides which amount a request takes; the scheduler does. Start reading at [`check`].

use super::check_items;
use crate::kinds::shared::amount::quantity;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Quantity;
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use serde_json::json;
use std::collections::BTreeSet;

/// Maximum number of amounts in a list (`CapacityRequestPolicyDiscreteMaxOptions`).
const MAX_VALUES: usize = 10;

/// Checks the policy of a capacity; only devices that several claims can have may have one.
pub fn check(capacity: &DeviceCapacity, is_shared: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(policy) = &capacity.request_policy else { return };
    let path = path.child("requestPolicy");
    if !is_shared {
        return errors.forbidden(&path, "allowMultipleAllocations must be true");
    }
    let values = policy.valid_values.as_deref().unwrap_or_default();
    let most = quantity(&capacity.value);
    match (values, &policy.valid_range) {
        ([], None) => {}
        ([_, ..], Some(_)) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            errors.forbidden(&path, detail);
        }
        (values, None) => {
            let Some(default) = read_default(policy, "validValues", &path, errors) else { return };
            check_values(values, default, most, &path.child("validValues"), errors);
        }
        ([], Some(range)) => {
            let Some(default) = read_default(policy, "validRange", &path, errors) else { return };
            check_range(range, default, most, &path.child("validRange"), errors);
        }
    }
}

fn read_default(
    policy: &CapacityRequestPolicy,
    field: &str,
    path: &FieldPath,
    errors: &mut FieldErrors,
) -> Option<Quantity> {
    if policy.default.is_none() {
        errors.required(&path.child("default"), &format!("required when {field} is defined"));
    }
    policy.default.as_ref().map(quantity)
}

fn check_values(
    values: &[QuantityText],
    default: Quantity,
    most: Quantity,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let amounts: Vec<Quantity> = values.iter().map(quantity).collect();
    for (index, pair) in amounts.windows(2).enumerate().filter(|(_, pair)| pair[0] > pair[1]) {
        errors.invalid(&path.index(index + 1), pair[1].to_string(), "values must be sorted in ascending order");
    }
    check_items(&amounts, MAX_VALUES, path, errors, |amount, path, errors| {
        if *amount > most {
            errors.invalid(path, amount.to_string(), &format!("option is larger than capacity value: {most}"));
        }
    });
    if amounts.len() <= MAX_VALUES {
        let mut seen = BTreeSet::new();
        for (index, amount) in amounts.iter().enumerate().filter(|(_, amount)| !seen.insert(amount.value())) {
            errors.duplicate(&path.index(index), json!(amount.value().to_string()));
        }
    }
    // Amounts beyond the limit of the list are not compared.
    if !amounts.iter().take(MAX_VALUES).any(|amount| *amount == default) {
        errors.invalid(path, default.to_string(), "default value is not valid according to the requestPolicy");
    }
}

fn check_range(
    range: &CapacityRequestPolicyRange,
    default: Quantity,
    most: Quantity,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let min = quantity(&range.min);
    if min > most {
        let detail = format!("min is larger than capacity value: {most}");
        errors.invalid(&path.child("min"), min.to_string(), &detail);
    }
    if default < min {
        errors.invalid(&path.child("min"), default.to_string(), &format!("default is less than min: {min}"));
    }
    let max = range.max.as_ref().map(quantity);
    if let Some(max) = max {
        let path = path.child("max");
        if min > max {
            errors.invalid(&path, min.to_string(), &format!("min is larger than max: {max}"));
        }
        if max > most {
            errors.invalid(&path, max.to_string(), &format!("max is larger than capacity value: {most}"));
        }
        if default > max {
            errors.invalid(&path, default.to_string(), &format!("default is more than max: {max}"));
        }
    }
    let Some(step) = range.step.as_ref().map(quantity) else { return };
    let path = path.child("step");
    let added = min + step;
    if added > most {
        let detail = format!("one step {added} is larger than capacity value: {most}");
        errors.invalid(&path, step.to_string(), &detail);
    }
    if step.value() <= 0 {
        // Kubernetes' API server divides by it.
        return errors.invalid(&path, step.to_string(), "must be greater than zero");
    }
    for amount in [Some(default), max].into_iter().flatten() {
        let above_min = i128::from(amount.value()) - i128::from(min.value());
        if above_min % i128::from(step.value()) != 0 {
            let detail = format!("value is not a multiple of a given step ({step}) from ({min})");
            errors.invalid(&path, amount.to_string(), &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;

    fn wrong(policy: Value, is_shared: bool) -> Vec<String> {
        let capacity = DeviceCapacity::deserialize(json!({"value": "10Gi", "requestPolicy": policy})).unwrap();
        let mut errors = FieldErrors::default();
        check(&capacity, is_shared, &FieldPath::root("memory"), &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn policies_of_capacities_are_checked() {
        let range = |range: Value| json!({"default": "2Gi", "validRange": range});
        let values = |values: Value| json!({"default": "2Gi", "validValues": values});
        assert_eq!(wrong(range(json!({"min": "1Gi", "max": "8Gi", "step": "1Gi"})), true), Vec::<String>::new());
        assert_eq!(wrong(values(json!(["1Gi", "2Gi"])), true), Vec::<String>::new());
        let path = "memory.requestPolicy";
        for (policy, expected) in [
            (json!({"validRange": {"min": "1Gi"}}), ".default: Required value: required when validRange is defined"),
            (range(json!({"min": "3Gi"})), ".validRange.min: Invalid value: \"2Gi\": default is less than min: 3Gi"),
            (
                range(json!({"min": "1Gi", "max": "11Gi"})),
                ".validRange.max: Invalid value: \"11Gi\": max is larger than capacity value: 10Gi",
            ),
            (
                range(json!({"min": "1Gi", "step": "3Gi"})),
                ".validRange.step: Invalid value: \"2Gi\": value is not a multiple of a given step (3Gi) from (1Gi)",
            ),
            (
                range(json!({"min": "1Gi", "step": "0"})),
                ".validRange.step: Invalid value: \"0\": must be greater than zero",
            ),
            (
                values(json!(["2Gi", "1Gi"])),
                ".validValues[1]: Invalid value: \"1Gi\": values must be sorted in ascending order",
            ),
            (
                values(json!(["1Gi"])),
                ".validValues: Invalid value: \"2Gi\": default value is not valid according to the requestPolicy",
            ),
        ] {
            assert_eq!(wrong(policy.clone(), true), [format!("{path}{expected}")], "{policy}");
        }
        assert_eq!(
            wrong(json!({"default": "1Gi"}), false),
            [format!("{path}: Forbidden: allowMultipleAllocations must be true")]
        );
    }
}
