//! Custom resources: the kinds that CustomResourceDefinitions declare.
//!
//! [`CustomDefinition`] has the content of a definition; [`schema`] and [`check`] apply its schemas. Never: reads a
//! store, or keeps the set of definitions; [`super::registry`] does. Start reading at [`read_definition`].

pub mod check;
mod open_api;
mod pattern;
pub mod rules;
pub mod schema;
mod structural;

pub use check::has_rules;

use super::typed::DecodeError;
use super::view::custom::DefinitionColumns;
use super::{FieldError, FieldErrors, FieldPath, Kind, NameRule, UnknownField, merge_rules, omit, shapes};
use crate::object::{Object, Resource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rules::RuleTree;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Resource of the definitions.
pub const DEFINITIONS: Resource = Resource("customresourcedefinitions.apiextensions.k8s.io");

/// Finalizer that keeps a deleted definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The content of a definition, except for the names, which are in its [`Kind`].
pub struct CustomDefinition {
    /// The definition's name.
    pub definition: String,
    /// The definition's uid and generation, which change with its content.
    pub mark: (String, i64),
    /// The singular name, such as `boat`.
    pub singular: &'static str,
    /// The columns of its table.
    pub columns: DefinitionColumns,
    /// Paths of the scale subresource, if it has one.
    pub scale: Option<ScalePaths>,
    /// The fields for field selectors besides name and namespace, such as `spec.colour`.
    pub selectable: Vec<String>,
    /// The warnings of deprecated versions, by `apiVersion`.
    pub deprecations: BTreeMap<String, &'static str>,
    /// The webhook that converts its objects; `None` when the versions differ in `apiVersion` alone.
    pub conversion: Option<ConversionWebhook>,
    /// The schema of each served version, set by [`CustomDefinition::set_schemas`] only for commands that need it.
    schemas: OnceLock<BTreeMap<String, VersionSchema>>,
}

/// The schema of a version, and its rules once they are compiled.
struct VersionSchema {
    schema: Value,
    has_rules: bool,
    rules: OnceLock<Option<RuleTree>>,
}

impl VersionSchema {
    fn rules(&self) -> Option<&RuleTree> {
        self.rules.get_or_init(|| RuleTree::compile(&self.schema)).as_ref()
    }
}

/// A part of a definition that a write needs and that is not compiled yet, since that takes too long under the write lock. See
/// [`compile`].
#[derive(Clone)]
pub enum Uncompiled {
    /// A pattern of a schema.
    Pattern(String),
    /// The rules of a version.
    Rules(&'static CustomDefinition, String),
    /// The rules of a definition that is being written: the schema, its path, and whether it is unchanged.
    Schema(Box<(Value, FieldPath, bool)>),
}

/// A webhook that converts objects between versions.
#[derive(Clone, Debug)]
pub struct ConversionWebhook {
    /// The `apiVersion` in which objects are stored.
    pub storage: String,
    /// `clientConfig` of the definition.
    pub client_config: Value,
}

/// Paths of a scale subresource's fields, split into steps.
#[derive(Clone, Debug)]
pub struct ScalePaths {
    /// Path of the desired replicas.
    pub wanted: Vec<String>,
    /// Path of the observed replicas.
    pub seen: Vec<String>,
    /// The selector of their pods as text.
    pub selector: Vec<String>,
}

#[derive(Deserialize)]
struct Definition {
    metadata: DefinitionVersion,
    spec: Declared,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    generation: i64,
}

#[derive(Deserialize)]
struct Declared {
    group: String,
    scope: String,
    names: DefinitionNames,
    versions: Vec<Version>,
    #[serde(default)]
    conversion: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionNames {
    plural: String,
    #[serde(default)]
    singular: String,
    kind: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    name: String,
    #[serde(default)]
    served: bool,
    #[serde(default)]
    storage: bool,
    #[serde(default)]
    deprecated: bool,
    deprecation_warning: Option<String>,
    #[serde(default)]
    subresources: Value,
    #[serde(default)]
    additional_printer_columns: Vec<Value>,
    #[serde(default)]
    selectable_fields: Vec<Value>,
}

impl Version {
    /// Returns the version as an `apiVersion` and the warning that it is deprecated.
    fn deprecation(&self, group: &str, kind: &str) -> Option<(String, &'static str)> {
        let usual = || format!("{group}/{} {kind} is deprecated", self.name);
        let warning = || leak_text(self.deprecation_warning.clone().unwrap_or_else(usual));
        self.deprecated.then(|| (format!("{group}/{}", self.name), warning()))
    }
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    conditions: Vec<Value>,
}

/// A decoded definition.
pub struct ReadDefinition {
    name: String,
    mark: (String, i64),
    spec: Declared,
    is_served: bool,
}

/// Decodes the stored text of a definition; `None` when it is malformed.
pub fn read_definition(text: &str) -> Option<ReadDefinition> {
    let Definition { metadata, spec, status } = serde_json::from_str(text).ok()?;
    let refused = |one: &Value| one["type"] == "NamesAccepted" && one["status"] == "False";
    let is_served = !status.conditions.iter().any(refused) && spec.versions.iter().any(|version| version.served);
    Some(ReadDefinition { name: metadata.name, mark: (metadata.uid, metadata.generation), spec, is_served })
}

impl ReadDefinition {
    /// The resource that it declares.
    pub fn resource(&self) -> Resource {
        Resource::intern(&format!("{}.{}", self.spec.names.plural, self.spec.group))
    }

    /// Whether the definition still declares this kind.
    pub fn is_declared_by(&self, kind: &Kind) -> bool {
        self.is_served && kind.custom.is_some_and(|custom| custom.mark == self.mark)
    }

    /// Creates the kind and leaks it: definitions are few and rarely change. `None` when the definition has no served
    /// version.
    pub fn into_kind(self) -> Option<&'static Kind> {
        let resource = self.resource();
        let kind = declare(resource, self.name, self.mark, self.spec).filter(|_| self.is_served)?;
        Some(Box::leak(Box::new(kind)))
    }
}

/// Compiles what a write needs, since a large pattern takes hundredths of a second and hundreds of rules a tenth. The
/// caller should hold no lock.
pub fn compile(needed: &[Uncompiled]) {
    for one in needed {
        match one {
            Uncompiled::Pattern(text) => drop(pattern::compile_and_keep(text)),
            Uncompiled::Rules(custom, version) => drop(custom.version(version).map(VersionSchema::rules)),
            Uncompiled::Schema(schema) => rules::definition::check_and_keep(&schema.0, &schema.1, schema.2),
        }
    }
}

fn declare(resource: Resource, definition: String, mark: (String, i64), spec: Declared) -> Option<Kind> {
    let Declared { group, scope, names, versions, conversion } = spec;
    let stored = versions.iter().find(|version| version.storage).map(|version| format!("{group}/{}", version.name));
    let conversion = stored
        .filter(|_| conversion["strategy"] == "Webhook")
        .map(|storage| ConversionWebhook { storage, client_config: conversion["webhook"]["clientConfig"].clone() });
    let mut served: Vec<Version> = versions.into_iter().filter(|version| version.served).collect();
    served.sort_by_cached_key(|version| std::cmp::Reverse(precedence(&version.name)));
    let also: Vec<&'static str> =
        served.iter().skip(1).map(|version| leak_text(format!("{group}/{}", version.name))).collect();
    let deprecations = served.iter().filter_map(|version| version.deprecation(&group, &names.kind)).collect();
    let first = served.into_iter().next()?;
    let is_set = |name: &str| first.subresources.get(name).is_some_and(Value::is_object);
    let singular = if names.singular.is_empty() { names.kind.to_lowercase() } else { names.singular };
    let deprecated = first.deprecation(&group, &names.kind).map(|(_, warning)| warning);
    let path = |field: &Value| field["jsonPath"].as_str().map(|path| path.trim_start_matches('.').to_owned());
    let custom = CustomDefinition {
        definition,
        mark,
        singular: leak_text(singular),
        columns: DefinitionColumns::parse(&first.additional_printer_columns),
        scale: is_set("scale").then(|| ScalePaths::parse(&first.subresources["scale"])),
        selectable: first.selectable_fields.iter().filter_map(path).collect(),
        deprecations,
        conversion,
        schemas: OnceLock::new(),
    };
    Some(Kind {
        resource,
        version: leak_text(first.name.clone()),
        kind: leak_text(names.kind),
        short: leak_texts(names.short_names),
        also: Vec::leak(also),
        namespaced: scope == "Namespaced",
        categories: leak_texts(names.categories),
        status: is_set("status"),
        generation: true,
        scale: is_set("scale"),
        unconditional_update: false,
        create_on_update: false,
        name_rule: NameRule::Subdomain,
        deprecated,
        warnings: |_| Vec::new(),
        normalize: |body, _| Ok(body.clone()),
        prepare: if is_set("status") { drop_new_status } else { |_, _| {} },
        validate: |_, _| Vec::new(),
        validate_version: |_, _, _| Vec::new(),
        custom: Some(Box::leak(Box::new(custom))),
        merge_rules: &merge_rules::OBJECT,
        shape: &shapes::OBJECT,
        view: &super::view::generic::VIEW,
        returns_deleted: false,
        status_metadata: &[],
        selectable: &[],
    })
}

/// Removes the status of a new object, which only `/status` may write (registry/customresource/strategy.go).
fn drop_new_status(object: &mut Object, old: Option<&Object>) {
    if old.is_none() {
        object.unset(&["status"]);
    }
}

/// Checks the schema of a definition's version, including its defaults and rules if it is structural. `is_unchanged`: the
/// definition had the same schema before.
pub fn check_schema(schema: &Value, path: &FieldPath, is_unchanged: bool, errors: &mut FieldErrors) {
    let known = errors.0.len();
    structural::check(schema, path, errors);
    if errors.0.len() == known {
        open_api::check_defaults(schema, path, errors);
    }
    open_api::check(schema, path, errors);
    if errors.0.len() == known && has_rules(schema) {
        errors.0.extend(rules::definition::errors(schema, path, is_unchanged));
    }
}

/// The type of the field at a path like `.spec.colour`; `None` when the schema declares no such field.
pub fn type_at<'s>(schema: &'s Value, path: &str) -> Option<&'s str> {
    let steps = path.strip_prefix('.')?.split('.');
    let mut found = schema;
    for step in steps {
        found = found["properties"]
            .get(step)
            .or_else(|| Some(&found["additionalProperties"]).filter(|any| any.is_object()))?;
    }
    Some(structural::type_of(found))
}

fn leak_text(text: String) -> &'static str {
    String::leak(text)
}

fn leak_texts(texts: Vec<String>) -> &'static [&'static str] {
    Vec::leak(texts.into_iter().map(leak_text).collect())
}

/// Priority of a version within its group: stable ones first, then beta, then alpha, each by number; other names last
/// (k8s.io/apimachinery/pkg/version: CompareKubeAwareVersionStrings).
fn precedence(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parts = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (major, level) = rest.split_at(digits);
        let major = major.parse().ok()?;
        for (rank, name) in [(2, "beta"), (1, "alpha")] {
            if let Some(minor) = level.strip_prefix(name) {
                return Some((rank, major, minor.parse().ok()?));
            }
        }
        level.is_empty().then_some((3, major, 0))
    };
    let (rank, major, minor) = parts().unwrap_or_default();
    (rank, major, minor, std::cmp::Reverse(version.to_owned()))
}

impl ScalePaths {
    fn parse(declared: &Value) -> ScalePaths {
        let steps = |field: &str| {
            let path = declared[field].as_str().unwrap_or_default();
            path.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect()
        };
        ScalePaths {
            wanted: steps("specReplicasPath"),
            seen: steps("statusReplicasPath"),
            selector: steps("labelSelectorPath"),
        }
    }
}

/// The fields of every object.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectHead {
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: ObjectMeta,
}

impl CustomDefinition {
    /// Sets the schemas from the stored definition.
    pub fn set_schemas(&self, definition: &Object) {
        let versions = definition.items(&["spec", "versions"]).iter();
        let schema = |version: &Value| {
            let schema = version["schema"]["openAPIV3Schema"].clone();
            let has_rules = has_rules(&schema);
            let rules = OnceLock::new();
            Some((version["name"].as_str()?.to_owned(), VersionSchema { schema, has_rules, rules }))
        };
        self.schemas.get_or_init(|| versions.filter_map(schema).collect());
    }

    /// The schema of a version; `None` before [`CustomDefinition::set_schemas`].
    pub fn schema(&'static self, api_version: &str) -> Option<&'static Value> {
        self.version(api_version).map(|version| &version.schema)
    }

    fn version(&'static self, api_version: &str) -> Option<&'static VersionSchema> {
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        self.schemas.get()?.get(version)
    }

    /// Returns the stored form of a body: canonical metadata, defaults filled in, fields that the version's schema does
    /// not know dropped and reported, in the storage version (the conversion `None` changes only the version's name).
    pub fn normalize(
        &'static self,
        kind: &Kind,
        body: &Value,
        unknown: &mut dyn FnMut(UnknownField),
    ) -> Result<Value, DecodeError> {
        let mut new = body.clone();
        if let Some(map) = new.as_object_mut() {
            let head = ["apiVersion", "kind", "metadata"].iter();
            let head = head.filter_map(|field| Some(((*field).to_owned(), map.remove(*field)?))).collect();
            let mut head: ObjectHead = super::typed::read(&Value::Object(head), unknown)?;
            omit::metadata(&mut head.metadata);
            if let Some(schema) = self.schema(&head.api_version) {
                schema::drop_nulls(schema, &mut new);
                schema::fill_in(schema, &mut new);
                schema::prune(schema, &mut new, unknown);
            }
            if self.conversion.is_none() {
                head.api_version = kind.api_version();
            }
            let head = serde_json::to_value(&head);
            let head = head.map_err(|error| DecodeError { path: String::new(), message: error.to_string() })?;
            if let (Value::Object(head), Value::Object(new)) = (head, &mut new) {
                new.extend(head);
            }
        }
        Ok(new)
    }

    /// Fills in defaults and drops unknown fields of an object that a webhook has converted.
    pub fn complete(&'static self, object: &mut Object) {
        if let Some(schema) = self.schema(object.api_version()) {
            let mut fields = object.0.take();
            let head = ["apiVersion", "kind", "metadata"].map(|field| (field.to_owned(), fields[field].take()));
            if let Some(map) = fields.as_object_mut() {
                head.iter().for_each(|(field, _)| drop(map.remove(field)));
            }
            schema::drop_nulls(schema, &mut fields);
            schema::fill_in(schema, &mut fields);
            schema::prune(schema, &mut fields, &mut |_| {});
            if let Some(map) = fields.as_object_mut() {
                map.extend(head);
            }
            object.0 = fields;
        }
    }

    /// The patterns and rules that the validation of an object needs and that are not compiled yet.
    pub fn uncompiled(&'static self, api_version: &str, object: &Object) -> Vec<Uncompiled> {
        let Some(version) = self.version(api_version) else { return Vec::new() };
        let mut patterns = BTreeSet::new();
        check::collect_patterns(&version.schema, &object.0, &mut patterns);
        let mut needed: Vec<Uncompiled> =
            pattern::not_compiled(patterns).into_iter().map(Uncompiled::Pattern).collect();
        if version.has_rules && version.rules.get().is_none() {
            needed.push(Uncompiled::Rules(self, api_version.to_owned()));
        }
        needed
    }

    /// Validates an object, which was `old` before, by the schema and the rules of its version.
    pub fn validate(&'static self, api_version: &str, object: &Object, old: Option<&Object>) -> Vec<FieldError> {
        let Some(version) = self.version(api_version) else { return Vec::new() };
        let mut errors = FieldErrors(check::check(&version.schema, object));
        if version.has_rules
            && !check::block_rules(&mut errors)
            && let Some(rules) = version.rules()
        {
            rules.evaluate(&object.0, old.map(|old| &old.0), &mut errors);
        }
        errors.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_sorted_by_priority() {
        let mut versions = ["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1beta10", "v1", "bar", "v11alpha2"];
        versions.sort_by_cached_key(|version| std::cmp::Reverse(precedence(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v11alpha2", "v1alpha1", "bar", "foo"]);
    }
}
