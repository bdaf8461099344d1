//! Shared parts of the four RBAC kinds: rules, role references, subjects (rbac.authorization.k8s.io/v1).

use super::super::catalogue::{shapes, typed};
use super::super::{DecodeError, FieldErrors, FieldPath, Typed, UnknownField};
use super::go::{self, GoField, GoShape};
use super::{names, omit};
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use serde_json::{Value, json};

/// The shape of both kinds of bindings.
pub static BINDING_SHAPE: StructShape = StructShape::new(&[shapes::META, ("roleRef", shapes::ATOMIC)]);

/// The API group.
pub const GROUP: &str = "rbac.authorization.k8s.io";

const ROLE_REF: &[GoField] =
    &[("APIGroup", "apiGroup", GoShape::Text), ("Kind", "kind", GoShape::Text), ("Name", "name", GoShape::Text)];

/// Like [`typed::normalize`], but stores absent rules as `rules: null`.
pub fn normalize_role<T: Typed>(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut role = typed::normalize::<T>(body, unknown)?;
    omit::null_when_missing(&mut role, &["rules"]);
    Ok(role)
}

/// Omits empty parts of rules.
pub fn omit_empty(rules: &mut Option<Vec<PolicyRule>>) {
    omit::empty(rules);
    for rule in rules.iter_mut().flatten() {
        omit::empty(&mut rule.api_groups);
        omit::empty(&mut rule.resources);
        omit::empty(&mut rule.resource_names);
        omit::empty(&mut rule.non_resource_urls);
    }
}

/// Sets the default API groups of a binding.
pub fn default_binding(role: &mut RoleRef, subjects: &mut Option<Vec<Subject>>) {
    omit::empty(&mut role.api_group);
    role.api_group.get_or_insert_with(|| GROUP.to_owned());
    omit::empty(subjects);
    for subject in subjects.iter_mut().flatten() {
        omit::empty(&mut subject.api_group);
        omit::empty(&mut subject.namespace);
        if matches!(subject.kind.as_str(), "User" | "Group") {
            subject.api_group.get_or_insert_with(|| GROUP.to_owned());
        }
    }
}

/// Checks the rules of a role.
pub fn check_rules(rules: &[PolicyRule], namespaced: bool, errors: &mut FieldErrors) {
    let empty = |list: &Option<Vec<String>>| list.as_ref().is_none_or(Vec::is_empty);
    for (index, rule) in rules.iter().enumerate() {
        let path = FieldPath::root("rules").index(index);
        if rule.verbs.is_empty() {
            errors.required(&path.child("verbs"), "verbs must contain at least one value");
        }
        if !empty(&rule.non_resource_urls) {
            let path = path.child("nonResourceURLs");
            if namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                errors.invalid(&path, json!(rule.non_resource_urls), detail);
            }
            if !empty(&rule.api_groups) || !empty(&rule.resources) || !empty(&rule.resource_names) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&path, json!(rule.non_resource_urls), detail);
            }
            continue;
        }
        if empty(&rule.api_groups) {
            errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
        }
        if empty(&rule.resources) {
            errors.required(&path.child("resources"), "resource rules must supply at least one resource");
        }
    }
}

/// Checks the role reference, which is immutable, and the subjects of a binding.
pub fn check_binding(
    role: &RoleRef,
    old: Option<&RoleRef>,
    subjects: Option<&[Subject]>,
    namespaced: bool,
    errors: &mut FieldErrors,
) {
    let path = FieldPath::root("roleRef");
    if role.api_group.as_deref() != Some(GROUP) {
        errors.unsupported(&path.child("apiGroup"), json!(role.api_group), &[GROUP]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.kind.as_str()) {
        errors.unsupported_as_listed(&path.child("kind"), role.kind.as_str(), kinds);
    }
    match role.name.as_str() {
        "" => errors.required(&path.child("name"), ""),
        name => errors.each_invalid(&path.child("name"), name, names::path_segment(name)),
    }
    for (index, subject) in subjects.unwrap_or_default().iter().enumerate() {
        check_subject(subject, namespaced, &FieldPath::root("subjects").index(index), errors);
    }
    if old.is_some_and(|old| old != role) {
        errors.invalid_text(&path, &go::lay_out(&json!(role), ROLE_REF).compact(), "cannot change roleRef");
    }
}

fn check_subject(subject: &Subject, namespaced: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if subject.name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    let group = subject.api_group.as_deref().unwrap_or_default();
    match subject.kind.as_str() {
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                errors.each_invalid(&path.child("name"), subject.name.as_str(), names::subdomain(&subject.name));
            }
            if !group.is_empty() {
                errors.unsupported(&path.child("apiGroup"), group, &[""]);
            }
            if !namespaced && subject.namespace.is_none() {
                errors.required(&path.child("namespace"), "");
            }
        }
        "User" | "Group" if group != GROUP => errors.unsupported(&path.child("apiGroup"), group, &[GROUP]),
        "User" | "Group" => {}
        other => {
            errors.unsupported_as_listed(&path.child("kind"), other, &["ServiceAccount", "User", "Group"]);
        }
    }
}
