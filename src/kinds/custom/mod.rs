//! Custom resources: the kinds that CustomResourceDefinitions declare.
//!
//! [`CustomDefinition`] has the content of a definition; [`schema`] and [`check`] apply its schemas. Never: reads a
//! store, or keeps the set of definitions; [`super::catalogue::registry`] does. Start reading at [`read_definition`].

pub mod check;
mod declared;
mod embedded;
mod invariants;
mod open_api;
mod pattern;
pub mod rules;
pub mod schema;
mod stored;
pub mod string_format;
mod structural;

pub use check::has_rules;
pub use declared::{ReadDefinition, read_definition};

use super::catalogue::typed::DecodeError;
use super::device::selector::DeviceSelection;
use super::shared::omit;
use super::shared::policy_programs::PolicyPrograms;
use super::view::custom::DefinitionColumns;
use super::{FieldError, FieldErrors, FieldPath, Kind, UnknownField};
use crate::object::sparse::read_field;
use crate::object::{Object, Resource, whole_number};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rules::RuleTree;
use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Resource of the definitions.
pub const DEFINITIONS: Resource = Resource("customresourcedefinitions.apiextensions.k8s.io");

/// Finalizer that keeps a deleted definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The content of a definition, except for the names, which are in its `Kind`.
pub struct CustomDefinition {
    /// The definition's name.
    pub definition: String,
    /// The definition's uid and generation, which change with its content.
    pub mark: (String, i64),
    /// The singular name, such as `boat`.
    pub singular: &'static str,
    /// The kind of lists, such as `BoatList`.
    pub list_kind: String,
    /// The `apiVersion` in which objects are stored.
    pub storage: String,
    /// The parts of each version, by `apiVersion`.
    versions: BTreeMap<String, VersionParts>,
    /// The kind as it is in each served version: with that version's subresources.
    variants: OnceLock<BTreeMap<String, &'static Kind>>,
    /// The warnings of deprecated versions, by `apiVersion`.
    pub deprecations: BTreeMap<String, &'static str>,
    /// The webhook that converts its objects; `None` when the versions differ in `apiVersion` alone.
    pub conversion: Option<ConversionWebhook>,
    /// The schema of each version, set by [`CustomDefinition::set_schemas`] only for commands that need it.
    schemas: OnceLock<Schemas>,
}

/// The parts of a definition that each version has of its own.
struct VersionParts {
    /// The columns of its table.
    columns: DefinitionColumns,
    /// The fields for field selectors besides name and namespace, such as `spec.colour`.
    selectable: Vec<String>,
    /// Whether it has the subresource `status`.
    has_status: bool,
    /// Paths of its subresource `scale`, if it has one.
    scale: Option<&'static ScalePaths>,
}

/// The schemas of a definition.
struct Schemas {
    versions: BTreeMap<String, VersionSchema>,
    /// A revision at which the definition had these schemas: objects that were written later have passed them.
    revision: u64,
}

/// The schema of a version, and its rules once they are compiled.
struct VersionSchema {
    schema: Value,
    has_rules: bool,
    has_embedded: bool,
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
    /// The expressions of a policy or a webhook, and whether they are about mutations.
    Policy(Box<(Value, bool)>),
    /// An expression that selects devices.
    Selector(String),
}

/// A webhook that converts objects between versions.
#[derive(Clone, Debug)]
pub struct ConversionWebhook {
    /// The version of ConversionReview that it understands.
    pub review_version: &'static str,
    /// `clientConfig` of the definition.
    pub client_config: Value,
}

/// Paths of a scale subresource's fields, split into steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Path of the desired replicas.
    pub wanted: Vec<String>,
    /// Path of the observed replicas.
    pub seen: Vec<String>,
    /// The selector of their pods as text.
    pub selector: Vec<String>,
}

/// Compiles the patterns and rules that a write needs. The caller should hold no lock: a large pattern takes hundredths of a second, and
/// hundreds of rules take a tenth.
pub fn compile(needed: &[Uncompiled]) {
    for one in needed {
        match one {
            Uncompiled::Pattern(text) => drop(pattern::compile_and_keep(text)),
            Uncompiled::Rules(custom, version) => drop(custom.version(version).map(VersionSchema::rules)),
            Uncompiled::Policy(policy) => drop(PolicyPrograms::compile(&policy.0, policy.1)),
            Uncompiled::Selector(text) => drop(DeviceSelection::compile(text)),
            Uncompiled::Schema(schema) => rules::definition::check_and_keep(&schema.0, &schema.1, schema.2),
        }
    }
}

/// Checks the schema of a definition's version, including its defaults and rules if it is structural. Errors of its keywords and
/// defaults that the version's schema had `before` do not count.
pub fn check_schema(schema: &Value, before: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let known = errors.0.len();
    structural::check(schema, path, errors);
    let is_structural = errors.0.len() == known;
    let mut own = keyword_errors(schema, is_structural, path);
    if !own.is_empty()
        && let Some(before) = before
    {
        let earlier = keyword_errors(before, is_structural, path);
        own.retain(|error| !earlier.contains(error));
    }
    errors.extend(own);
    if errors.0.len() == known && has_rules(schema) {
        let is_unchanged = before == Some(schema);
        errors.extend(rules::definition::errors(schema, path, is_unchanged));
        if errors.0.len() == known && !is_unchanged {
            open_api::check_defaults_by_rules(schema, path, errors);
        }
    }
}

fn keyword_errors(schema: &Value, is_structural: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    if is_structural {
        open_api::check_defaults(schema, path, &mut errors);
    }
    open_api::check(schema, path, &mut errors);
    errors.0
}

/// The errors of a schema's structure, which [`check_schema`] refuses in new definitions.
pub fn structural_errors(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    structural::check(schema, path, &mut errors);
    errors.0
}

/// Whether a definition declares the same kind as in an earlier form, both as stored: with the same specification, and the names that were
/// accepted. The names are accepted after the kind is served: that does not count.
pub fn declares_same(definition: &str, before: &str) -> bool {
    let spec = |text| read_field(text, "spec").ok().flatten();
    let names = |text| {
        let names = read_field(read_field(text, "status").ok()??, "acceptedNames").ok()??;
        serde_json::from_str::<Value>(names).ok().filter(|names| names["plural"] != "")
    };
    let (new_names, old_names) = (names(definition), names(before));
    spec(definition) == spec(before) && (old_names.is_none() || new_names == old_names)
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
    /// The kind as it is in this version; `None` for a version that is not served.
    pub fn variant(&self, api_version: &str) -> Option<&'static Kind> {
        self.variants.get()?.get(api_version).copied()
    }

    /// Whether objects can be scaled in one of the versions.
    pub fn has_scale(&self) -> bool {
        self.versions.values().any(|parts| parts.scale.is_some())
    }

    /// Sets the schemas from the stored definition.
    pub fn set_schemas(&self, definition: &Object) {
        let versions = definition.items(&["spec", "versions"]).iter();
        let schema = |version: &Value| {
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            let (has_rules, has_embedded) = (has_rules(&schema), schema::contains_flag(&schema, embedded::EMBEDDED));
            if has_embedded {
                embedded::coerce_defaults(&mut schema);
            }
            let parts = VersionSchema { schema, has_rules, has_embedded, rules: OnceLock::new() };
            Some((version["name"].as_str()?.to_owned(), parts))
        };
        self.schemas.get_or_init(|| Schemas {
            versions: versions.filter_map(schema).collect(),
            revision: definition.revision(),
        });
    }

    /// Whether the schemas are set.
    pub fn has_schemas(&self) -> bool {
        self.schemas.get().is_some()
    }

    /// The schema of a version; `None` before [`CustomDefinition::set_schemas`].
    pub fn schema(&'static self, api_version: &str) -> Option<&'static Value> {
        self.version(api_version).map(|version| &version.schema)
    }

    fn version(&'static self, api_version: &str) -> Option<&'static VersionSchema> {
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        self.schemas.get()?.versions.get(version)
    }

    /// The columns of a version's table; those of any version where it is not known.
    pub fn columns(&self, api_version: &str) -> Option<&DefinitionColumns> {
        let own = self.versions.get(api_version).or_else(|| self.versions.values().next());
        own.map(|version| &version.columns)
    }

    /// Whether field selectors of any version support a field.
    pub fn is_selectable(&self, field: &str) -> bool {
        self.versions.values().any(|version| version.selectable.iter().any(|known| known == field))
    }

    /// Whether field selectors of this version support a field.
    pub fn is_selectable_in(&self, api_version: &str, field: &str) -> bool {
        let version = self.versions.get(api_version);
        version.is_some_and(|version| version.selectable.iter().any(|known| known == field))
    }

    /// Returns the decoded form of a body: canonical metadata, whole numbers without a fraction, defaults filled in, and without the fields
    /// that the version's schema does not know, which are reported.
    pub fn normalize(&'static self, body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
        self.decode(body, unknown, true)
    }

    /// Decodes an object that a webhook has changed. Keeps null and unknown fields until the object is validated, because `required` may
    /// name them (apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go).
    pub fn normalize_patched(&'static self, body: &Value) -> Result<Value, DecodeError> {
        self.decode(body, &mut |_| {}, false)
    }

    fn decode(
        &'static self,
        body: &Value,
        unknown: &mut dyn FnMut(UnknownField),
        drops_unknown: bool,
    ) -> Result<Value, DecodeError> {
        let mut new = body.clone();
        if let Some(map) = new.as_object_mut() {
            let head = ["apiVersion", "kind", "metadata"].iter();
            let head = head.filter_map(|field| Some(((*field).to_owned(), map.remove(*field)?))).collect();
            map.values_mut().for_each(whole_number::make_whole);
            let mut head: ObjectHead = super::catalogue::typed::read(&Value::Object(head), unknown)?;
            omit::metadata(&mut head.metadata);
            if let Some(VersionSchema { schema, has_embedded, .. }) = self.version(&head.api_version) {
                if drops_unknown {
                    schema::drop_nulls(schema, &mut new);
                }
                schema::fill_in(schema, &mut new);
                if drops_unknown {
                    schema::prune(schema, &mut new, unknown);
                }
                if *has_embedded && drops_unknown {
                    embedded::coerce(schema, &mut new, &FieldPath::default(), unknown)?;
                }
            }
            let head = serde_json::to_value(&head).map_err(DecodeError::custom)?;
            if let (Value::Object(head), Value::Object(new)) = (head, &mut new) {
                new.extend(head);
            }
        }
        Ok(new)
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
        let old = old.filter(|old| old.api_version() == object.api_version());
        let mut errors = FieldErrors(check::check(&version.schema, object, old));
        let scale = self.versions.get(api_version).and_then(|parts| parts.scale);
        invariants::check(&version.schema, scale, object, old, &mut errors);
        if version.has_rules
            && !check::block_rules(&mut errors)
            && let Some(rules) = version.rules()
        {
            rules.evaluate(&object.0, old.map(|old| &old.0), &mut errors);
        }
        errors.0
    }
}
