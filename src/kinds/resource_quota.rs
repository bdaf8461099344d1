//! ResourceQuota (core/v1).

use super::catalogue::{shapes, typed};
use super::shared::amount::{self, quantity};
use super::shared::go::{self, GoField, GoShape};
use super::shared::{omit, resource_names};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use std::collections::BTreeMap;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["quota"],
    generation: false,
    shape: &SHAPE,
    returns_deleted: true,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<ResourceQuota>("resourcequotas", "v1", "ResourceQuota", &view::resource_quota::VIEW)
};

static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&shapes::ANY))),
]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("scopeSelector", shapes::ATOMIC)]);

impl Typed for ResourceQuota {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.hard);
        amount::round_up(&mut spec.hard);
        omit::empty(&mut spec.scopes);
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let Some(spec) = &self.spec else { return };
        let path = FieldPath::root("spec");
        check_amounts(spec.hard.as_ref(), &path.child("hard"), errors);
        check_scopes(spec, &path.child("scopes"), errors);
        check_selector(spec, &path.child("scopeSelector").child("matchExpressions"), errors);
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            errors.immutable(&path.child("scopes"), &spec.scopes, &old.scopes);
        }
    }
}

fn check_status(new: &ResourceQuota, _old: &ResourceQuota, errors: &mut FieldErrors) {
    let (Some(status), path) = (&new.status, FieldPath::root("status")) else { return };
    check_amounts(status.hard.as_ref(), &path.child("hard"), errors);
    check_amounts(status.used.as_ref(), &path.child("used"), errors);
}

/// Checks amounts of resources that a quota may limit.
fn check_amounts(amounts: Option<&BTreeMap<String, Quantity>>, path: &FieldPath, errors: &mut FieldErrors) {
    for (name, amount) in amounts.into_iter().flatten() {
        let path = path.key(name);
        resource_names::check(name, &path, errors);
        if !name.contains('/') && !resource_names::is_quota(name) {
            errors.invalid(&path, name.as_str(), "must be a standard resource for quota");
        }
        let exact = quantity(amount);
        if exact.is_negative() {
            errors.invalid(&path, amount.0.as_str(), "must be greater than or equal to 0");
        }
        if resource_names::is_integer(name) && exact.milli() % 1000 != 0 {
            errors.invalid(&path, amount.0.as_str(), "must be an integer");
        }
    }
}

fn check_scopes(spec: &ResourceQuotaSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let scopes = spec.scopes.as_deref().unwrap_or_default();
    for scope in scopes {
        match fitting(scope) {
            None => errors.invalid(path, json!(scopes), "unsupported scope"),
            Some(fits) if !limits_only(spec, fits) => {
                errors.invalid(path, json!(scopes), "unsupported scope applied to resource");
            }
            Some(_) => {}
        }
    }
    if conflict(|name| scopes.iter().any(|scope| scope == name)) {
        errors.invalid(path, json!(scopes), "conflicting scopes");
    }
}

const SELECTOR: &[GoField] = &[("MatchExpressions", "matchExpressions", GoShape::List(EXPRESSION))];
const EXPRESSION: &[GoField] = &[
    ("ScopeName", "scopeName", GoShape::Text),
    ("Operator", "operator", GoShape::Text),
    ("Values", "values", GoShape::Pointer),
];

/// Checks the scope selector.
fn check_selector(spec: &ResourceQuotaSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let all = spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    for one in all.clone() {
        let (scope, operator) = (one.scope_name.as_str(), one.operator.as_str());
        match fitting(scope) {
            None => errors.invalid(&path.child("scopeName"), scope, "unsupported scope"),
            Some(fits) if !limits_only(spec, fits) => {
                let text = go::lay_out(&json!(spec.scope_selector), SELECTOR).compact();
                errors.invalid_text(path, &text, "unsupported scope applied to resource");
            }
            Some(_) => {}
        }
        if !["PriorityClass", "VolumeAttributesClass"].contains(&scope)
            && fitting(scope).is_some()
            && operator != "Exists"
        {
            errors.invalid(&path.child("operator"), operator, EXISTS);
        }
        let values = one.values.as_deref().unwrap_or_default();
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.child("values"), json!(values), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
    }
    if conflict(|name| all.clone().any(|one| one.scope_name == name)) {
        errors.invalid(path, json!(spec.scopes), "conflicting scopes");
    }
}

const EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                      ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort \
                      or ResourceQuotaScopeCrossNamespacePodAffinity";

/// A predicate of the resources that a quota may limit in a scope; `None` for an unknown scope.
fn fitting(scope: &str) -> Option<fn(&str) -> bool> {
    Some(match scope {
        "BestEffort" => |name| name == "pods",
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            is_of_pods
        }
        "VolumeAttributesClass" => |name| matches!(name, "requests.storage" | "persistentvolumeclaims"),
        _ => return None,
    })
}

/// Whether all limited resources fit a scope.
fn limits_only(spec: &ResourceQuotaSpec, fits: fn(&str) -> bool) -> bool {
    spec.hard.iter().flatten().all(|(name, _)| fits(name) || !resource_names::is_quota(name))
}

/// Whether a quota has two mutually exclusive scopes.
fn conflict(has: impl Fn(&str) -> bool) -> bool {
    has("BestEffort") && has("NotBestEffort") || has("Terminating") && has("NotTerminating")
}

fn is_of_pods(name: &str) -> bool {
    let (kind, measured) = name.split_once('.').unwrap_or(("requests", name));
    name == "pods" || matches!(kind, "requests" | "limits") && matches!(measured, "cpu" | "memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use serde_json::Value;

    fn wrong(patch: Value) -> Vec<String> {
        let mut body = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"hard": {"pods": "1"}}});
        json_patch::merge(&mut body, &patch);
        testing::field_errors::<ResourceQuota>(&body, None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn selector_is_shown_with_the_names_of_go() {
        let expression = json!({"scopeName": "BestEffort", "operator": "Exists"});
        let spec = json!({"hard": {"cpu": "1"}, "scopeSelector": {"matchExpressions": [expression]}});
        let found = testing::refusals(json!({"apiVersion": "v1", "kind": "ResourceQuota", "spec": spec}));
        let shown = r#"{"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"Exists","Values":null}]}"#;
        let problem = "unsupported scope applied to resource";
        assert_eq!(found, [format!("spec.scopeSelector.matchExpressions: Invalid value: {shown}: {problem}")]);
    }

    #[test]
    fn scopes_and_their_selectors_are_checked() {
        let spec = |scope: &str, operator: &str, values: Value| {
            let expression = json!({"scopeName": scope, "operator": operator, "values": values});
            json!({"spec": {"scopeSelector": {"matchExpressions": [expression]}}})
        };
        let good = [
            spec("PriorityClass", "In", json!(["a"])),
            spec("PriorityClass", "Exists", json!(null)),
            spec("CrossNamespacePodAffinity", "Exists", json!(null)),
            json!({"spec": {"scopes": ["Terminating", "BestEffort"]}}),
        ];
        for patch in good {
            assert_eq!(wrong(patch.clone()), Vec::<String>::new(), "{patch}");
        }
        let all = "spec.scopeSelector.matchExpressions";
        let cases = [
            (spec("Odd", "Exists", json!(null)), format!("{all}.scopeName")),
            (spec("PriorityClass", "In", json!([])), format!("{all}.values")),
            (spec("PriorityClass", "Exists", json!(["a"])), format!("{all}.values")),
            (spec("PriorityClass", "Odd", json!(["a"])), format!("{all}.operator")),
            (spec("BestEffort", "In", json!(["a"])), format!("{all}.operator")),
            (spec("CrossNamespacePodAffinity", "In", json!(["a"])), format!("{all}.operator")),
            (spec("VolumeAttributesClass", "Exists", json!(null)), all.to_owned()),
            (json!({"spec": {"scopes": ["Terminating", "NotTerminating"]}}), "spec.scopes".to_owned()),
            (json!({"spec": {"scopes": ["Odd"]}}), "spec.scopes".to_owned()),
            (json!({"spec": {"scopes": ["BestEffort"], "hard": {"cpu": "1"}}}), "spec.scopes".to_owned()),
        ];
        for (patch, field) in cases {
            assert_eq!(wrong(patch.clone()), [field], "{patch}");
        }
    }
}
