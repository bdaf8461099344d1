//! Checks of the selectors in access reviews (`ValidateSubjectAccessReviewSpec`).

use crate::kinds::shared::names;
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::Value;

/// Checks the field selector and the label selector of a review's attributes.
pub fn check_selectors(attributes: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, check) in [("fieldSelector", check_field as CheckRequirement), ("labelSelector", check_label)] {
        let (selector, path) = (&attributes[field], path.child(field));
        if selector.is_null() {
            continue;
        }
        let raw = selector["rawSelector"].as_str().unwrap_or_default();
        let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => {
                let detail = "may not specified at the same time as requirements";
                errors.invalid(&path.child("rawSelector"), raw, detail);
            }
            (true, true) => {
                let detail = format!("when {path} is specified, requirements or rawSelector is required");
                errors.required(&path.child("requirements"), &detail);
            }
            _ => {}
        }
        for (index, requirement) in requirements.iter().enumerate() {
            check(requirement, &path.child("requirements").index(index), errors);
        }
    }
}

/// Checks a requirement of a selector.
type CheckRequirement = fn(&Value, &FieldPath, &mut FieldErrors);

fn check_field(requirement: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if requirement["key"].as_str().unwrap_or_default().is_empty() {
        errors.required(&path.child("key"), "must be specified");
    }
    check_operator(requirement, path, errors);
}

fn check_label(requirement: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    check_operator(requirement, path, errors);
    let key = requirement["key"].as_str().unwrap_or_default();
    errors.each_invalid(&path.child("key"), key, names::qualified(key));
    let values = requirement["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for (index, value) in values.enumerate() {
        errors.each_invalid(&path.child("values").index(index), value, names::label_value(value));
    }
}

/// Checks that a requirement has values exactly if its operator needs them. Operators of newer clients are accepted.
fn check_operator(requirement: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let has_values = requirement["values"].as_array().is_some_and(|values| !values.is_empty());
    let path = path.child("values");
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" | "NotIn" if !has_values => {
            errors.required(&path, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if has_values => {
            errors.forbidden(&path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_of_reviews_are_checked() {
        let requirement =
            |key: &str, operator: &str, values: Value| json!([{"key": key, "operator": operator, "values": values}]);
        let cases = [
            (json!({"fieldSelector": {"rawSelector": "a=b"}}), ""),
            (json!({"labelSelector": {"requirements": requirement("a", "New", json!([]))}}), ""),
            (
                json!({"fieldSelector": {"rawSelector": "a=b", "requirements": requirement("a", "In", json!(["b"]))}}),
                "spec.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements",
            ),
            (
                json!({"labelSelector": {"rawSelector": "a", "requirements": requirement("a", "Exists", json!(null))}}),
                "spec.labelSelector.rawSelector: Invalid value: \"a\": may not specified at the same time as requirements",
            ),
            (
                json!({"labelSelector": {}}),
                "spec.labelSelector.requirements: Required value: when spec.labelSelector is specified, requirements or \
                 rawSelector is required",
            ),
            (
                json!({"fieldSelector": {"requirements": requirement("", "In", json!([]))}}),
                "spec.fieldSelector.requirements[0].key: Required value: must be specified; \
                 spec.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                json!({"labelSelector": {"requirements": requirement("a", "Exists", json!(["b"]))}}),
                "spec.labelSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or \
                 'DoesNotExist'",
            ),
        ];
        for (attributes, problems) in cases {
            let mut errors = FieldErrors::default();
            check_selectors(&attributes, &FieldPath::root("spec"), &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found.join("; "), problems, "{attributes}");
        }
    }
}
