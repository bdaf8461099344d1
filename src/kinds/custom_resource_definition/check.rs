//! Validation of definitions with Kubernetes' messages
//! (k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go).
//!
//! Kubernetes validates an internal form of the definition, in which parts that are equal in all versions are hoisted
//! to the top level. Paths in its messages refer to that form.

use super::{approval, conversion};
use crate::kinds::custom::rules::definition::needs_check;
use crate::kinds::custom::{Uncompiled, check_schema, type_at};
use crate::kinds::shared::go::{self, GoField, GoShape};
use crate::kinds::shared::names::{check_name, label_1035};
use crate::kinds::{FieldErrors, FieldPath, NameRule};
use crate::object::whole_number::make_whole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as api;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_SELECTABLE: usize = 8;

/// Checks a definition.
pub fn check(
    definition: &api::CustomResourceDefinition,
    old: Option<&api::CustomResourceDefinition>,
    errors: &mut FieldErrors,
) {
    let (spec, path) = (&definition.spec, FieldPath::root("spec"));
    let name = definition.metadata.name.as_deref().unwrap_or_default();
    if name != format!("{}.{}", spec.names.plural, spec.group) {
        errors.invalid(&FieldPath::root("metadata").child("name"), name, "must be spec.names.plural+\".\"+spec.group");
    }
    group_and_scope(spec, &path, errors);
    versions(spec, &path, errors);
    check_names(&spec.names, true, &path.child("names"), errors);
    parts(spec, old.map(|old| &old.spec), &path, errors);
    conversion::check(spec, old, &path.child("conversion"), errors);
    stored_versions(definition, errors);
    approval::check(&definition.metadata, &spec.group, old.map(|old| &old.metadata), errors);
    let preserved = |spec: &api::CustomResourceDefinitionSpec| spec.preserve_unknown_fields == Some(true);
    if preserved(spec) && !old.is_some_and(|old| preserved(&old.spec)) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&path.child("preserveUnknownFields"), true, detail);
    }
    if let Some(old) = old {
        if conversion::is_established(old) {
            errors.immutable(&path.child("scope"), &spec.scope, &old.spec.scope);
            errors.immutable(&path.child("names").child("kind"), &spec.names.kind, &old.spec.names.kind);
        }
        errors.immutable(&path.child("group"), &spec.group, &old.spec.group);
        errors.immutable(&path.child("names").child("plural"), &spec.names.plural, &old.spec.names.plural);
    }
}

/// Checks the names that a status has accepted.
pub fn check_status(definition: &api::CustomResourceDefinition, errors: &mut FieldErrors) {
    let accepted = definition.status.as_ref().and_then(|status| status.accepted_names.as_ref());
    if let Some(accepted) = accepted {
        check_names(accepted, false, &FieldPath::root("status").child("acceptedNames"), errors);
    }
}

fn group_and_scope(spec: &api::CustomResourceDefinitionSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let problems = check_name(NameRule::Subdomain, &spec.group);
    match spec.group.as_str() {
        "" => errors.required(&path.child("group"), ""),
        group if !problems.is_empty() => errors.invalid(&path.child("group"), group, &problems.join(",")),
        group if !group.contains('.') => {
            errors.invalid(&path.child("group"), group, "should be a domain with at least one dot");
        }
        _ => {}
    }
    match spec.scope.as_str() {
        "" => errors.required(&path.child("scope"), ""),
        "Cluster" | "Namespaced" => {}
        other => errors.unsupported(&path.child("scope"), other, &["Cluster", "Namespaced"]),
    }
}

/// Versions as Kubernetes prints them: with the names of Go's fields, without the hoisted parts.
fn printed(spec: &api::CustomResourceDefinitionSpec) -> String {
    const HOISTED: &str = "";
    const VERSION: &[GoField] = &[
        ("Name", "name", GoShape::Text),
        ("Served", "served", GoShape::Bool),
        ("Storage", "storage", GoShape::Bool),
        ("Deprecated", "deprecated", GoShape::Bool),
        ("DeprecationWarning", "deprecationWarning", GoShape::Pointer),
        ("Schema", HOISTED, GoShape::Pointer),
        ("Subresources", HOISTED, GoShape::Pointer),
        ("AdditionalPrinterColumns", HOISTED, GoShape::Pointer),
        ("SelectableFields", HOISTED, GoShape::Pointer),
    ];
    let each = spec.versions.iter().map(|version| go::lay_out(&json!(version), VERSION).compact());
    format!("[{}]", each.collect::<Vec<_>>().join(","))
}

fn versions(spec: &api::CustomResourceDefinitionSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("versions");
    for (index, version) in spec.versions.iter().enumerate() {
        let path = path.index(index);
        if version.schema.as_ref().is_none_or(|schema| schema.open_api_v3_schema.is_none()) {
            errors.required(&path.child("schema").child("openAPIV3Schema"), "");
        }
        add_joined(&path.child("name"), &version.name, label_1035(&version.name), "", errors);
        if let Some(warning) = &version.deprecation_warning {
            let path = path.child("deprecationWarning");
            if version.deprecated != Some(true) {
                errors.invalid(&path, warning.as_str(), "can only be set for deprecated versions");
            } else if warning.len() > 256 {
                errors.invalid(&path, warning.as_str(), "must be <= 256 characters long");
            } else if warning.is_empty() {
                errors.invalid(&path, "", "must not be an empty string");
            } else if let Some(at) = warning.char_indices().find(|(_, letter)| letter.is_control()).map(|(at, _)| at) {
                let detail = format!(
                    "must only contain printable UTF-8 characters; non-printable character found at index {at}"
                );
                errors.invalid(&path, warning.as_str(), &detail);
            }
        }
    }
    let mut names = BTreeSet::new();
    if spec.versions.iter().any(|version| !names.insert(version.name.as_str())) {
        errors.invalid_text(&path, &printed(spec), "must contain unique version names");
    }
    if spec.versions.iter().filter(|version| version.storage).count() != 1 {
        errors.invalid_text(&path, &printed(spec), "must have exactly one version marked as storage version");
    }
}

/// Adds several problems of one text as one error, as Kubernetes does.
fn add_joined(path: &FieldPath, text: &str, problems: Vec<String>, before: &str, errors: &mut FieldErrors) {
    if !problems.is_empty() {
        errors.invalid(path, text, &format!("{before}{}", problems.join(",")));
    }
}

fn check_names(
    names: &api::CustomResourceDefinitionNames,
    is_required: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let list_kind = names.list_kind.as_deref().unwrap_or_default();
    let singular = names.singular.as_deref().unwrap_or_default();
    let all =
        [("plural", names.plural.as_str()), ("singular", singular), ("kind", &names.kind), ("listKind", list_kind)];
    for (field, name) in all {
        let is_kind = matches!(field, "kind" | "listKind");
        let before = if is_kind { "may have mixed case, but should otherwise match: " } else { "" };
        let lower = if is_kind { name.to_lowercase() } else { name.to_owned() };
        match name {
            "" if is_required => errors.required(&path.child(field), ""),
            "" => {}
            _ => add_joined(&path.child(field), name, label_1035(&lower), before, errors),
        }
    }
    let lists = [("shortNames", &names.short_names), ("categories", &names.categories)];
    for (field, list) in lists {
        for (index, name) in list.iter().flatten().enumerate() {
            add_joined(&path.child(field).index(index), name, label_1035(name), "", errors);
        }
    }
    if !names.kind.is_empty() && names.kind == list_kind {
        errors.invalid(&path.child("listKind"), list_kind, "kind and listKind may not be the same");
    }
}

/// A part of each version with its path; a single top-level one when all versions have the same.
fn hoisted<'s, T: Serialize>(
    spec: &'s api::CustomResourceDefinitionSpec,
    path: &FieldPath,
    whole: &str,
    field: &str,
    part: impl Fn(&'s api::CustomResourceDefinitionVersion) -> Option<&'s T>,
) -> Vec<(FieldPath, &'s api::CustomResourceDefinitionVersion, &'s T)> {
    let all: Vec<Option<&T>> = spec.versions.iter().map(part).collect();
    let text = |part: &Option<&T>| part.and_then(|part| serde_json::to_value(part).ok());
    let first = all.first().and_then(text);
    if all.iter().skip(1).all(|part| text(part) == first) {
        let only = spec.versions.first().zip(all.first().copied().flatten());
        return only.map(|(version, part)| (path.child(whole), version, part)).into_iter().collect();
    }
    let each = spec.versions.iter().zip(all).enumerate();
    let each = each.filter_map(|(index, (version, part))| {
        Some((path.child("versions").index(index).child(field), version, part?))
    });
    each.collect()
}

/// A schema that is checked: its path, its content, its version's previous schema, and whether the version has the subresource `status`.
struct CheckedSchema {
    path: FieldPath,
    schema: Value,
    before: Option<Value>,
    has_status: bool,
}

impl CheckedSchema {
    fn is_unchanged(&self) -> bool {
        self.before.as_ref() == Some(&self.schema)
    }
}

/// The schemas of the versions, or the one of all.
fn schemas(
    spec: &api::CustomResourceDefinitionSpec,
    old: Option<&api::CustomResourceDefinitionSpec>,
    path: &FieldPath,
) -> Vec<CheckedSchema> {
    let json = |version: &api::CustomResourceDefinitionVersion| {
        let mut schema = serde_json::to_value(version.schema.as_ref()?.open_api_v3_schema.as_ref()?).ok()?;
        make_whole(&mut schema);
        Some(schema)
    };
    let all = hoisted(spec, path, "validation", "schema", |version| version.schema.as_ref());
    let all = all.into_iter().filter_map(|(path, version, _)| {
        let schema = json(version)?;
        let before = old.and_then(|old| old.versions.iter().find(|known| known.name == version.name));
        let before = before.and_then(json);
        let has_status = version.subresources.as_ref().is_some_and(|known| known.status.is_some());
        Some(CheckedSchema { path: path.child("openAPIV3Schema"), schema, before, has_status })
    });
    all.collect()
}

/// The schemas of a definition whose rules are not compiled yet.
pub fn uncompiled(
    definition: &api::CustomResourceDefinition,
    old: Option<&api::CustomResourceDefinition>,
) -> Vec<Uncompiled> {
    let all = schemas(&definition.spec, old.map(|old| &old.spec), &FieldPath::root("spec"));
    all.into_iter()
        .filter(|one| needs_check(&one.schema, &one.path, one.is_unchanged()))
        .map(|one| {
            let is_unchanged = one.is_unchanged();
            Uncompiled::Schema(Box::new((one.schema, one.path, is_unchanged)))
        })
        .collect()
}

/// Checks schemas, subresources, columns and selectable fields.
fn parts(
    spec: &api::CustomResourceDefinitionSpec,
    old: Option<&api::CustomResourceDefinitionSpec>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    for CheckedSchema { path, schema, before, has_status } in schemas(spec, old, path) {
        if schema["nullable"] == true {
            errors.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
        }
        if has_status && !matches!(schema["type"].as_str(), None | Some("object")) {
            let detail =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.invalid(&path.child("type"), schema["type"].clone(), detail);
        }
        check_schema(&schema, before.as_ref(), &path, errors);
    }
    let subresources = hoisted(spec, path, "subresources", "subresources", |version| version.subresources.as_ref());
    for (path, _, subresources) in subresources {
        subresources.scale.iter().for_each(|declared| scale(declared, &path.child("scale"), errors));
    }
    const COLUMNS: &str = "additionalPrinterColumns";
    for (path, _, list) in hoisted(spec, path, COLUMNS, COLUMNS, |version| version.additional_printer_columns.as_ref())
    {
        list.iter().enumerate().for_each(|(index, declared)| column(declared, &path.index(index), errors));
    }
    const SELECTABLE: &str = "selectableFields";
    for (path, version, list) in
        hoisted(spec, path, SELECTABLE, SELECTABLE, |version| version.selectable_fields.as_ref())
    {
        let schema = version.schema.as_ref().and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok());
        let before = old.and_then(|old| old.versions.iter().find(|known| known.name == version.name));
        let is_kept = before.is_some_and(|before| before.selectable_fields.as_ref() == Some(list));
        selectable(list, &schema.unwrap_or_default(), is_kept, &path, errors);
    }
}

fn simple_path(text: &str, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let is_simple = text.starts_with('.');
    match text {
        "" => errors.required(path, ""),
        _ if !is_simple => errors.invalid(path, text, "must be a simple json path starting with ."),
        _ => {}
    }
    is_simple
}

fn scale(scale: &api::CustomResourceSubresourceScale, path: &FieldPath, errors: &mut FieldErrors) {
    let label = scale.label_selector_path.as_deref().unwrap_or_default();
    let all: [(&str, &str, &[&str], &str); 3] = [
        ("specReplicasPath", &scale.spec_replicas_path, &[".spec."], ".spec"),
        ("statusReplicasPath", &scale.status_replicas_path, &[".status."], ".status"),
        ("labelSelectorPath", label, &[".spec.", ".status."], "either .spec or .status"),
    ];
    for (field, text, starts, place) in all {
        if field == "labelSelectorPath" && text.is_empty() {
            continue;
        }
        let path = path.child(field);
        if simple_path(text, &path, errors) && !starts.iter().any(|start| text.starts_with(start)) {
            errors.invalid(&path, text, &format!("should be a json path under {place}"));
        }
    }
}

fn column(column: &api::CustomResourceColumnDefinition, path: &FieldPath, errors: &mut FieldErrors) {
    if column.name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    let detail = |known: &[&str]| format!("must be one of {}", known.join(","));
    match column.type_.as_str() {
        "" => errors.required(&path.child("type"), &detail(&COLUMN_TYPES)),
        other if !COLUMN_TYPES.contains(&other) => errors.invalid(&path.child("type"), other, &detail(&COLUMN_TYPES)),
        _ => {}
    }
    let format = column.format.as_deref().unwrap_or_default();
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        errors.invalid(&path.child("format"), format, &detail(&COLUMN_FORMATS));
    }
    simple_path(&column.json_path, &path.child("JSONPath"), errors);
}

fn selectable(
    list: &[api::SelectableField],
    schema: &Value,
    is_kept: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (index, field) in list.iter().enumerate() {
        let (path, text) = (path.index(index).child("jsonPath"), field.json_path.as_str());
        if text.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if text.contains(['[', ']']) {
            errors.invalid(&path, text, "is an invalid path: array notation is not allowed");
            continue;
        }
        let Some(found) = type_at(schema, text) else {
            errors.invalid(&path, text, "is an invalid path: does not refer to a valid field");
            continue;
        };
        if text == ".metadata" || text.starts_with(".metadata.") {
            errors.invalid(&path, text, "must not point to fields in metadata");
        }
        if !matches!(found, "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&path, text, detail);
        }
        if !known.insert(text) {
            errors.duplicate(&path, text);
        }
    }
    if known.len() > MAX_SELECTABLE && !is_kept {
        errors.too_many(path, known.len(), MAX_SELECTABLE);
    }
}

fn stored_versions(definition: &api::CustomResourceDefinition, errors: &mut FieldErrors) {
    let stored = definition.status.as_ref().and_then(|status| status.stored_versions.as_deref()).unwrap_or_default();
    let path = FieldPath::root("status").child("storedVersions");
    if stored.is_empty() {
        return errors.invalid(&path, Value::Null, "must have at least one stored version");
    }
    let mut storage = definition.spec.versions.iter().filter(|version| version.storage);
    if let Some(missing) = storage.find(|version| !stored.contains(&version.name)) {
        errors.invalid(&path, json!(stored), &format!("must have the storage version {}", missing.name));
    }
    for (index, name) in stored.iter().enumerate() {
        if !definition.spec.versions.iter().any(|version| version.name == *name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage \
                 migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&path.index(index), name.as_str(), &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::custom_resource_definition::KIND;
    use crate::object::Object;
    use serde_json::{Value, json};

    /// Returns the errors of a definition in which the fields at these pointers are replaced; `null` removes a field.
    fn wrong_with(edits: &[(&str, Value)]) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        let mut definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.a.dev"},
            "spec": {"group": "a.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        });
        for (pointer, value) in edits {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let parent = definition.pointer_mut(parent).unwrap();
            match parent {
                Value::Array(list) if field == "-" => list.push(value.clone()),
                _ => parent[field] = value.clone(),
            }
        }
        let mut object = Object(KIND.normalized(&definition, &mut |_| {}).unwrap());
        (KIND.prepare)(&mut object, None);
        KIND.wrongs("apiextensions.k8s.io/v1", &object, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn invalid_definition_is_refused_as_in_kubernetes() {
        const V1: &str = "/spec/versions/0";
        let at = |field: &str| format!("{V1}/{field}");
        let column = |path: &str| json!([{"name": "A", "type": "string", "jsonPath": path}]);
        let cases: Vec<(String, Value, &str)> = vec![
            (at("subresources"), json!({"scale": {}}), "spec.subresources.scale.specReplicasPath: Required value"),
            (
                at("subresources"),
                json!({"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": ".status.a"}}),
                "spec.subresources.scale.specReplicasPath: Invalid value: \".status.a\": should be a json path under .spec",
            ),
            (
                at("additionalPrinterColumns"),
                column("x["),
                "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"x[\": must be a simple json path starting with .",
            ),
            (
                at("selectableFields"),
                json!([{"jsonPath": ".spec.nowhere"}]),
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec.nowhere\": is an invalid path: does not refer to a valid field",
            ),
            (
                at("selectableFields"),
                json!([{"jsonPath": ".spec"}]),
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec\": must point to a field of type string",
            ),
            (
                "/spec/conversion".into(),
                json!({"strategy": "Webhook"}),
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            ),
            (
                "/spec/conversion".into(),
                json!({"strategy": "Odd"}),
                "spec.conversion.strategy: Unsupported value: \"Odd\": supported values: \"None\", \"Webhook\"",
            ),
            (
                at("name"),
                json!("1"),
                "spec.versions[0].name: Invalid value: \"1\": a DNS-1035 label must consist of lower case alphanumeric characters",
            ),
            (
                "/spec/names/kind".into(),
                json!("1Thing"),
                "spec.names.kind: Invalid value: \"1Thing\": may have mixed case, but should otherwise match: a DNS-1035 label",
            ),
            (
                "/spec/names/listKind".into(),
                json!("Thing"),
                "spec.names.listKind: Invalid value: \"Thing\": kind and listKind may not be the same",
            ),
            (
                at("deprecationWarning"),
                json!("old"),
                "spec.versions[0].deprecationWarning: Invalid value: \"old\": can only be set for deprecated versions",
            ),
            (
                at("schema/openAPIV3Schema/properties/spec/type"),
                json!("foo"),
                "spec.validation.openAPIV3Schema.properties[spec].type: Unsupported value: \"foo\": supported values: \"array\"",
            ),
            (
                at("schema/openAPIV3Schema/properties/spec/$ref"),
                json!("#/x"),
                "spec.validation.openAPIV3Schema.properties[spec].$ref: Forbidden: $ref is not supported",
            ),
            (
                at("schema/openAPIV3Schema/nullable"),
                json!(true),
                "spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root",
            ),
        ];
        for (pointer, value, expected) in cases {
            let errors = wrong_with(&[(&pointer, value)]);
            assert!(errors.iter().any(|error| error.starts_with(expected)), "{pointer}: {errors:?}");
        }
        assert_eq!(wrong_with(&[]), [] as [String; 0]);
    }

    #[test]
    fn each_version_has_its_own_schema_and_one_is_stored() {
        let version = |name: &str, storage: bool, schema: Value| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
        let other = json!({"type": "object", "properties": {"spec": {}}});
        let errors = wrong_with(&[("/spec/versions/-", version("v2", false, other))]);
        assert_eq!(
            errors,
            [
                "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields"
            ]
        );
        let errors = wrong_with(&[("/spec/versions/-", version("v1", true, json!({"type": "object"})))]);
        assert!(errors[0].ends_with("must contain unique version names"), "{errors:?}");
        assert!(errors[1].ends_with("must have exactly one version marked as storage version"), "{errors:?}");
    }
}
