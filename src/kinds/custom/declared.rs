//! Reads definitions: the kind that each declares.
//!
//! Never: reads a store; [`super::super::catalogue::registry`] keeps the kinds. Start reading at [`read_definition`].

use super::{ConversionWebhook, CustomDefinition, ScalePaths, VersionParts};
use crate::kinds::Kind;
use crate::kinds::version_priority;
use crate::kinds::view::custom::DefinitionColumns;
use crate::object::{Object, Resource};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

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
    list_kind: Option<String>,
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
    /// Returns the parts that each version has of its own.
    fn parts(&self) -> VersionParts {
        let path = |field: &Value| field["jsonPath"].as_str().map(|path| path.trim_start_matches('.').to_owned());
        VersionParts {
            columns: DefinitionColumns::parse(&self.additional_printer_columns),
            selectable: self.selectable_fields.iter().filter_map(path).collect(),
            has_status: self.subresources["status"].is_object(),
            scale: Some(&self.subresources["scale"])
                .filter(|scale| scale.is_object())
                .map(|scale| &*Box::leak(Box::new(ScalePaths::parse(scale)))),
        }
    }
}

/// Returns the deprecated ones of these served versions, each as an `apiVersion` with its warning. The warning names the newest later
/// version that is not deprecated.
fn deprecations(served: &[Version], group: &str, kind: &str) -> BTreeMap<String, &'static str> {
    let newest =
        served.iter().filter(|version| !version.deprecated).max_by_key(|version| version_priority(&version.name));
    let warning = |version: &Version| {
        let later = newest.filter(|newest| version_priority(&newest.name) > version_priority(&version.name));
        let advice = later.map(|later| format!("; use {group}/{} {kind}", later.name)).unwrap_or_default();
        let usual = format!("{group}/{} {kind} is deprecated{advice}", version.name);
        leak_text(version.deprecation_warning.clone().unwrap_or(usual))
    };
    let deprecated = served.iter().filter(|version| version.deprecated);
    deprecated.map(|version| (format!("{group}/{}", version.name), warning(version))).collect()
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
        let kind: &'static Kind =
            Box::leak(Box::new(declare(resource, self.name, self.mark, self.spec).filter(|_| self.is_served)?));
        if let Some(custom) = kind.custom {
            let variants =
                kind.also.iter().filter_map(|version| Some(((*version).to_owned(), variant(kind, version)?)));
            let mut variants: BTreeMap<String, &'static Kind> = variants.collect();
            variants.insert(kind.api_version(), kind);
            // Only this function sets them.
            let _ = custom.variants.set(variants);
        }
        Some(kind)
    }
}

/// Returns the kind as it is in another version: with that version's subresources.
fn variant(kind: &'static Kind, api_version: &str) -> Option<&'static Kind> {
    let parts = kind.custom?.versions.get(api_version)?;
    if (parts.has_status, parts.scale) == (kind.status, kind.scale_paths) {
        return Some(kind);
    }
    Some(Box::leak(Box::new(kind_with(kind, parts))))
}

fn kind_with(kind: &Kind, parts: &VersionParts) -> Kind {
    Kind {
        status: parts.has_status,
        scale: parts.scale.is_some(),
        scale_paths: parts.scale,
        prepare: if parts.has_status { drop_new_status } else { |_, _| {} },
        ..*kind
    }
}

fn declare(resource: Resource, definition: String, mark: (String, i64), spec: Declared) -> Option<Kind> {
    let Declared { group, scope, names, versions, conversion } = spec;
    let storage = versions.iter().find(|version| version.storage).or(versions.first())?;
    let storage = format!("{group}/{}", storage.name);
    let conversion = (conversion["strategy"] == "Webhook").then(|| ConversionWebhook::read(&conversion["webhook"]));
    let parts = versions.iter().map(|version| (format!("{group}/{}", version.name), version.parts()));
    let parts: BTreeMap<String, VersionParts> = parts.collect();
    let mut served: Vec<Version> = versions.into_iter().filter(|version| version.served).collect();
    served.sort_by_cached_key(|version| std::cmp::Reverse(version_priority(&version.name)));
    let also: Vec<&'static str> =
        served.iter().skip(1).map(|version| leak_text(format!("{group}/{}", version.name))).collect();
    let deprecations = deprecations(&served, &group, &names.kind);
    let first = served.into_iter().next()?;
    let singular = if names.singular.is_empty() { names.kind.to_lowercase() } else { names.singular };
    let deprecated = deprecations.get(&format!("{group}/{}", first.name)).copied();
    let list_kind = names.list_kind.filter(|kind| !kind.is_empty()).unwrap_or_else(|| format!("{}List", names.kind));
    let custom: &'static CustomDefinition = Box::leak(Box::new(CustomDefinition {
        definition,
        mark,
        singular: leak_text(singular),
        list_kind,
        storage,
        versions: parts,
        variants: OnceLock::new(),
        deprecations,
        conversion,
        schemas: OnceLock::new(),
    }));
    let kind = Kind {
        resource,
        version: leak_text(first.name.clone()),
        kind: leak_text(names.kind),
        short: leak_texts(names.short_names),
        also: Vec::leak(also),
        namespaced: scope == "Namespaced",
        categories: leak_texts(names.categories),
        deprecated,
        custom: Some(custom),
        ..Kind::UNTYPED
    };
    Some(kind_with(&kind, custom.versions.get(&kind.api_version())?))
}

/// Removes the status of a new object, which only `/status` may write (registry/customresource/strategy.go).
fn drop_new_status(object: &mut Object, old: Option<&Object>) {
    if old.is_none() {
        object.unset(&["status"]);
    }
}

fn leak_text(text: String) -> &'static str {
    String::leak(text)
}

fn leak_texts(texts: Vec<String>) -> &'static [&'static str] {
    Vec::leak(texts.into_iter().map(leak_text).collect())
}

impl ConversionWebhook {
    fn read(webhook: &Value) -> ConversionWebhook {
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut known = versions.filter(|version| matches!(*version, "v1" | "v1beta1"));
        let review_version = if known.next() == Some("v1beta1") { "v1beta1" } else { "v1" };
        ConversionWebhook { review_version, client_config: webhook["clientConfig"].clone() }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn warning_of_a_deprecated_version_names_a_later_one() {
        let version = |name: &str, deprecated: bool, warning: Option<&str>| {
            serde_json::from_value(
                json!({"name": name, "served": true, "deprecated": deprecated, "deprecationWarning": warning}),
            )
            .unwrap()
        };
        let served = [
            version("v2", true, None),
            version("v1", false, None),
            version("v1beta2", true, Some("gone soon")),
            version("v1beta1", true, None),
        ];
        let expected = [
            ("x.dev/v1beta1", "x.dev/v1beta1 Boat is deprecated; use x.dev/v1 Boat"),
            ("x.dev/v1beta2", "gone soon"),
            ("x.dev/v2", "x.dev/v2 Boat is deprecated"),
        ];
        let found: Vec<(String, &str)> = deprecations(&served, "x.dev", "Boat").into_iter().collect();
        assert_eq!(found, expected.map(|(version, warning)| (version.to_owned(), warning)));
    }
}
