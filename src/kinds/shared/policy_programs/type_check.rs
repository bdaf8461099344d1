//! Type checks of validating policies: their expressions against the schemas of the kinds that they match
//! (`plugin/policy/validating/typechecking.go`).
//!
//! Knows: the kinds of a policy's rules, and the texts of warnings. Never: refuses a policy; its status contains the warnings.
//! Start reading at [`check`].

use super::variables::{Available, declare_typed};
use crate::cel::{Decl, Declarations, Type, compile};
use crate::object::split_api_version;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of kinds that one rule makes a policy be checked against.
const MAX_KINDS: usize = 10;

/// Group, version and kind.
pub type GroupVersionKind = (String, String, String);

/// Finds kinds and their schemas.
pub trait SchemaSource {
    /// The kind of a resource.
    fn find_kind(&self, group: &str, version: &str, resource: &str) -> Option<String>;

    /// The declaration of a kind's objects; none when its schema is not known.
    fn declare(&self, kind: &GroupVersionKind) -> Option<Arc<Decl>>;
}

/// Returns the warnings of a policy's spec as its status shows them (`expressionWarnings`).
pub fn check(spec: &Value, schemas: &dyn SchemaSource) -> Vec<Value> {
    let declared = |kind: GroupVersionKind| schemas.declare(&kind).map(|decl| (kind, decl));
    let kinds: Vec<_> = matched_kinds(spec, schemas).into_iter().filter_map(declared).collect();
    let params = parameter_kind(&spec["paramKind"]);
    let params = params.map(|kind| schemas.declare(&kind).map_or(Type::Dyn, |decl| declared_type(&kind, &decl)));
    let scopes: Vec<_> =
        kinds.iter().map(|(kind, decl)| (kind, environment(spec, kind, decl, params.clone()))).collect();
    let mut warnings = Vec::new();
    for (index, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation[field].as_str().filter(|text| !text.is_empty());
            let warning = text.map(|text| check_expression(text, &scopes)).unwrap_or_default();
            if !warning.is_empty() {
                let place = format!("spec.validations[{index}].{field}");
                warnings.push(json!({"fieldRef": place, "warning": warning}));
            }
        }
    }
    warnings
}

/// The warnings about one expression, at most one for each kind of object.
fn check_expression(text: &str, scopes: &[(&GroupVersionKind, Declarations)]) -> String {
    let warning = |((group, version, kind), declared): &(&GroupVersionKind, Declarations)| {
        let issues = compile(text, declared, None).err()?;
        Some(format!("{group}/{version}, Kind={kind}: {issues}\n"))
    };
    scopes.iter().filter_map(warning).collect::<Vec<_>>().join("\n")
}

/// The variables of a policy's expressions for objects of one kind.
fn environment(spec: &Value, kind: &GroupVersionKind, decl: &Arc<Decl>, params: Option<Type>) -> Declarations {
    let available = Available { params: params.is_some(), authorizer: true, mutations: false };
    let mut declared = declare_typed(available, &declared_type(kind, decl), &params.unwrap_or(Type::Dyn));
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let text = |field: &str| variable[field].as_str().unwrap_or_default();
        let found = compile(text("expression"), &declared, None).map_or(Type::Dyn, |program| program.output);
        declared = declared.declare(&format!("variables.{}", text("name")), found);
    }
    declared
}

fn declared_type((_, _, kind): &GroupVersionKind, decl: &Arc<Decl>) -> Type {
    Type::declared(decl, kind)
}

fn parameter_kind(kind: &Value) -> Option<GroupVersionKind> {
    let api_version = kind["apiVersion"].as_str()?;
    let (group, version) = split_api_version(api_version);
    Some((group.to_owned(), version.to_owned(), kind["kind"].as_str()?.to_owned()))
}

/// The kinds that the rules name, in the order of groups, versions and kinds. Rules with wildcards name none.
fn matched_kinds(spec: &Value, schemas: &dyn SchemaSource) -> BTreeSet<GroupVersionKind> {
    let mut kinds = BTreeSet::new();
    for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let texts = |field: &str| -> Vec<&str> {
            let mut texts: Vec<&str> = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions, mut resources) = (texts("apiGroups"), texts("apiVersions"), texts("resources"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        resources.retain(|resource| !resource.contains(['*', '/']));
        let mut count = 0;
        for (group, version, resource) in combinations(&groups, &versions, &resources) {
            if let Some(kind) = schemas.find_kind(group, version, resource) {
                kinds.insert((group.to_owned(), version.to_owned(), kind));
                count += 1;
            }
            if count == MAX_KINDS {
                return kinds;
            }
        }
    }
    kinds
}

fn combinations<'t>(
    groups: &'t [&'t str],
    versions: &'t [&'t str],
    resources: &'t [&'t str],
) -> impl Iterator<Item = (&'t str, &'t str, &'t str)> {
    groups.iter().flat_map(move |group| {
        let with_version =
            move |version: &'t &'t str| resources.iter().map(move |resource| (*group, *version, *resource));
        versions.iter().flat_map(with_version)
    })
}
