//! The kustomization file: its fields, and deprecated, misspelt and unsupported ones.

use super::BuildResult;
use super::root::FileText;
use crate::kinds::catalogue::read::UnknownField;
use crate::kinds::catalogue::typed::{self, DecodeError};
use crate::object::io_error_text;
use crate::object::yaml::{self, BooleanWords, DuplicateKey, YamlDocument};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Content of a kustomization file.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Kustomization {
    pub api_version: String,
    pub kind: String,
    pub resources: Vec<String>,
    pub bases: Vec<String>,
    pub components: Vec<String>,
    pub namespace: String,
    pub name_prefix: String,
    pub name_suffix: String,
    pub labels: Vec<LabelEntry>,
    pub common_labels: BTreeMap<String, String>,
    pub common_annotations: BTreeMap<String, String>,
    pub images: Vec<ImageEntry>,
    pub image_tags: Vec<ImageEntry>,
    pub replicas: Vec<ReplicasEntry>,
    pub config_map_generator: Vec<GeneratorEntry>,
    pub secret_generator: Vec<GeneratorEntry>,
    pub generator_options: GeneratorOptions,
    pub patches: Vec<PatchEntry>,
    pub patches_strategic_merge: Vec<String>,
    #[serde(rename = "patchesJson6902")]
    pub patches_json: Vec<PatchEntry>,
    pub replacements: Vec<Replacement>,
    pub sort_options: Option<SortOptions>,
    pub build_metadata: Vec<String>,
    pub configurations: Vec<String>,
    pub vars: Vec<Var>,
    pub generators: Vec<String>,
    pub transformers: Vec<String>,
}

/// One entry of `vars`: a name for the value of a field.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct Var {
    pub name: String,
    pub objref: ObjectReference,
    pub fieldref: FieldReference,
}

/// The object with a variable's value.
#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    pub api_version: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

/// The field with a variable's value.
#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldReference {
    #[serde(alias = "fieldpath")]
    pub field_path: String,
}

/// One entry of `labels`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelEntry {
    pub pairs: BTreeMap<String, String>,
    pub include_selectors: bool,
    pub include_templates: bool,
    pub include_volume_claim_templates: bool,
    pub fields: Vec<FieldSpec>,
}

/// A field of the objects of some kinds, for labels or transformers.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct FieldSpec {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub path: String,
    pub create: bool,
}

/// One entry of `images`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageEntry {
    pub name: String,
    pub new_name: String,
    pub new_tag: String,
    pub tag_suffix: String,
    pub digest: String,
}

/// One entry of `replicas`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ReplicasEntry {
    pub name: String,
    pub count: i64,
}

/// One entry of `configMapGenerator` or `secretGenerator`.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct GeneratorEntry {
    pub name: String,
    pub namespace: String,
    pub behavior: String,
    pub files: Vec<String>,
    pub literals: Vec<String>,
    pub envs: Vec<String>,
    pub env: String,
    /// Type of the Secret.
    pub r#type: String,
    pub options: GeneratorOptions,
}

/// Options of generated objects.
#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
pub struct GeneratorOptions {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub disable_name_suffix_hash: bool,
    pub immutable: bool,
}

/// One entry of `patches` or `patchesJson6902`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct PatchEntry {
    pub path: String,
    pub patch: String,
    pub target: Option<ResourceSelector>,
    pub options: PatchOptions,
}

/// Additional changes that a patch may make.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PatchOptions {
    pub allow_name_change: bool,
    pub allow_kind_change: bool,
    pub allow_no_target_match: bool,
}

/// Selects objects that match every given field.
#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSelector {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub label_selector: String,
    pub annotation_selector: String,
}

/// One entry of `replacements`: a replacement, or the path of a file with some.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Replacement {
    pub path: String,
    pub source: Option<ReplacementSource>,
    pub source_value: Option<String>,
    pub targets: Vec<ReplacementTarget>,
}

/// Source of a replacement's value.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementSource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub field_path: String,
    pub options: FieldOptions,
}

/// Target of a replacement's value.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementTarget {
    pub select: Option<ResourceSelector>,
    pub reject: Vec<ResourceSelector>,
    pub field_paths: Vec<String>,
    pub options: FieldOptions,
}

/// Part of a text to use, and whether to create missing fields.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub struct FieldOptions {
    pub delimiter: String,
    pub index: i64,
    pub create: bool,
}

/// `sortOptions`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SortOptions {
    pub order: String,
    pub legacy_sort_options: Option<SortLists>,
}

/// Kinds that are ordered first and last.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SortLists {
    pub order_first: Vec<String>,
    pub order_last: Vec<String>,
}

/// A parsed kustomization file, with its document for line numbers.
pub struct ReadFile {
    pub kustomization: Kustomization,
    pub document: Rc<YamlDocument>,
}

/// Deprecated fields, and their replacements.
const DEPRECATED: [(&str, &str); 6] = [
    ("bases", "resources"),
    ("commonLabels", "labels"),
    ("imageTags", "images"),
    ("patchesJson6902", "patches"),
    ("patchesStrategicMerge", "patches"),
    ("vars", "replacements"),
];

/// Fields that kloop does not support, and the alternatives.
const REFUSED: [(&str, &str); 7] = [
    ("openapi", "custom resources are merged field by field here, and their lists are replaced"),
    ("crds", "names are updated in kustomize's built-in fields"),
    ("validators", "run the validator over what `kloop kustomize` prints"),
    ("helmCharts", "run `helm template` into a file, and name that in resources"),
    ("helmGlobals", "run `helm template` into a file, and name that in resources"),
    ("helmChartInflationGenerator", "run `helm template` into a file, and name that in resources"),
    ("inventory", "`kloop apply --prune` works without it"),
];

const COMPONENT: &str = "Component";

impl Kustomization {
    /// Whether the file is a component, which cannot be built by itself.
    pub fn is_component(&self) -> bool {
        self.kind == COMPONENT
    }
}

/// Parses a kustomization file. Adds warnings about deprecated fields.
pub fn read(text: &FileText, warnings: &mut Vec<String>) -> BuildResult<ReadFile> {
    let shown = text.shown.display();
    // Like kubectl for manifests, kustomize reads `yes` and `no` in its own file as booleans.
    let mut documents = documents_with(text, BooleanWords::Many)?;
    let mut document = match documents.len() {
        0 => return Err(format!("kustomization.yaml is empty\nhint: {shown}: list its files in resources")),
        1 => documents.remove(0),
        _ => return Err(format!("invalid Kustomization: {shown}:{}: a second document", documents[1].line)),
    };
    let hint = |path: &str, line: usize, text: &str| {
        let line = if path.is_empty() { line } else { document.line_of(path).unwrap_or(line) };
        format!("\nhint: {shown}:{line}: {text}")
    };
    if let Some(DuplicateKey { path, line, .. }) = document.duplicates.first() {
        return Err(format!("invalid Kustomization: {path:?} is given twice{}", hint("", *line, "the duplicate")));
    }
    let mut value = document.value.clone();
    let Value::Object(fields) = &mut value else {
        return Err(format!(
            "invalid Kustomization: it is not a map{}",
            hint("", document.line, "expected resources: [...]")
        ));
    };
    without_nulls(fields);
    if fields.is_empty() {
        return Err("kustomization.yaml is empty".to_owned());
    }
    let deprecated = DEPRECATED.iter().filter(|(field, _)| fields.contains_key(*field));
    warnings.extend(deprecated.map(|(field, instead)| deprecation_warning(field, instead)));
    fields.retain(|field, value| !has_no_effect(field, value));
    if let Some((field, instead)) = REFUSED.iter().find(|(field, _)| fields.contains_key(*field)) {
        return Err(format!(
            "invalid Kustomization: kloop does not support '{field}'{}",
            hint(field, document.line, instead)
        ));
    }
    let (read, unknown) = read_any_case(&mut value);
    if let Some(field) = unknown.first() {
        let name = field.path.rsplit('.').next().unwrap_or_default();
        let suggestion = field.nearest.map(|known| format!("; did you mean {known:?}?")).unwrap_or_default();
        let text = format!("there is no field {:?}{suggestion}", field.path);
        return Err(format!(
            "invalid Kustomization: json: unknown field {name:?}{}",
            hint(&field.path, document.line, &text)
        ));
    }
    let kustomization = read.map_err(|error| {
        let text = format!("the value of {:?} has the wrong type", error.path);
        format!("invalid Kustomization: {}{}", error.message, hint(&error.path, document.line, &text))
    })?;
    check_version(&kustomization)
        .map_err(|why| format!("Failed to read kustomization file under {}:\n{why}", folder(text)))?;
    document.value = Value::Null;
    Ok(ReadFile { kustomization, document: Rc::new(document) })
}

fn deprecation_warning(field: &str, instead: &str) -> String {
    let experimental = if field == "vars" { "[EXPERIMENTAL] " } else { "" };
    format!(
        "# Warning: '{field}' is deprecated. Please use '{instead}' instead. {experimental}Run 'kustomize edit fix' to \
         update your Kustomization automatically."
    )
}

/// Reads the fields, and returns the unknown ones. As in Go, the case of names does not matter: `value` gets their usual case.
fn read_any_case(value: &mut Value) -> (Result<Kustomization, DecodeError>, Vec<UnknownField>) {
    loop {
        let mut unknown = Vec::new();
        let read = typed::read::<Kustomization>(value, &mut |field| unknown.push(field));
        let renames = unknown.iter().filter_map(|field| {
            let name = field.path.rsplit('.').next()?;
            let known = field.nearest.filter(|known| known.eq_ignore_ascii_case(name))?;
            Some((field.path.as_str(), known))
        });
        let renames: Vec<(String, String)> =
            renames.map(|(path, known)| (path.to_owned(), known.to_string())).collect();
        let renamed = renames.iter().filter(|(path, known)| rename(value, path, known)).count();
        if renamed == 0 {
            return (read, unknown);
        }
    }
}

/// Renames the field at a path such as `patches[0].Path`, unless the new name exists. Returns
/// whether it did.
fn rename(value: &mut Value, path: &str, name: &str) -> bool {
    let (parent, old) = path.rsplit_once('.').unwrap_or(("", path));
    let pointer: String = parent
        .split(['.', '['])
        .filter(|part| !part.is_empty())
        .map(|part| format!("/{}", part.trim_end_matches(']')))
        .collect();
    let Some(map) = value.pointer_mut(&pointer).and_then(Value::as_object_mut) else { return false };
    if map.contains_key(name) {
        return false;
    }
    let Some(moved) = map.remove(old) else { return false };
    map.insert(name.to_owned(), moved);
    true
}

/// Whether a field has no effect: the file's own metadata, and empty unsupported fields.
fn has_no_effect(field: &str, value: &Value) -> bool {
    let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
    field == "metadata" || (is_empty && REFUSED.iter().any(|(refused, _)| *refused == field))
}

/// Parses a file that the kustomization names. There, `yes` and `n` are texts.
pub fn documents(text: &FileText) -> BuildResult<Vec<YamlDocument>> {
    documents_with(text, BooleanWords::Two)
}

fn documents_with(text: &FileText, words: BooleanWords) -> BuildResult<Vec<YamlDocument>> {
    let refuse = |error| format!("MalformedYAMLError: {} in File: {}", io_error_text(error), text.shown.display());
    let decoded = yaml::decode_bytes(&text.bytes).map_err(refuse)?;
    yaml::documents_with(&decoded, words).map_err(refuse)
}

fn folder(text: &FileText) -> String {
    text.at.parent().map(|folder| folder.display().to_string()).unwrap_or_default()
}

fn check_version(file: &Kustomization) -> BuildResult {
    let (version, kind) = if file.is_component() {
        ("kustomize.config.k8s.io/v1alpha1", COMPONENT)
    } else {
        ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    };
    if !["", kind].contains(&file.kind.as_str()) {
        return Err("kind should be Kustomization or Component".to_owned());
    }
    if !["", version].contains(&file.api_version.as_str()) {
        return Err(format!("apiVersion for {kind} should be {version}"));
    }
    Ok(())
}

/// Removes null values: in Go's JSON, `null` equals a missing value.
fn without_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    for value in fields.values_mut() {
        let items = match value {
            Value::Array(items) => items.iter_mut().collect(),
            value => vec![value],
        };
        items.into_iter().filter_map(Value::as_object_mut).for_each(without_nulls);
    }
}
