//! `generators` and `transformers`: kustomize's built-in plugins, each with its own configuration.

use super::affix::{self, NAME};
use super::file::{
    FieldSpec, GeneratorEntry, ImageEntry, PatchEntry, PatchOptions, Replacement, ReplicasEntry, ResourceSelector,
    SortOptions,
};
use super::namespace::{self, NamespaceOptions};
use super::resource::{BuildResource, BuildResources};
use super::root::{FileAccess, KustomizationRoot};
use super::{BuildResult, hash, images, labels, order, patch, replacements, replicas};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// The API version of built-in plugins.
const BUILTIN: &str = "builtin";

/// The configurations of all transformers in one type; each transformer reads its own fields.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Plugin {
    prefix: String,
    suffix: String,
    field_specs: Vec<FieldSpec>,
    #[serde(deserialize_with = "texts")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "texts")]
    annotations: BTreeMap<String, String>,
    image_tag: ImageEntry,
    replica: ReplicasEntry,
    path: String,
    patch: String,
    target: Option<ResourceSelector>,
    options: PatchOptions,
    json_op: String,
    paths: Vec<String>,
    patches: String,
    replacements: Vec<Replacement>,
    unset_only: bool,
    set_role_binding_subjects: String,
    sort_options: Option<SortOptions>,
}

/// Returns a generator's kind and entry from its configuration.
pub fn generator(config: &BuildResource) -> BuildResult<(String, GeneratorEntry)> {
    let kind = builtin(config)?;
    if !["ConfigMapGenerator", "SecretGenerator"].contains(&kind) {
        return Err(unknown(config));
    }
    let read: GeneratorEntry = read(config)?;
    // The configuration's name and namespace are the defaults.
    let or = |own: &str, other: &str| if own.is_empty() { other.to_owned() } else { own.to_owned() };
    let name = or(&read.name, config.object.name());
    let namespace = or(&read.namespace, config.object.namespace());
    Ok((kind.to_owned(), GeneratorEntry { name, namespace, ..read }))
}

/// Applies a transformer with its configuration.
pub fn transform(
    resources: &mut BuildResources,
    files: &dyn FileAccess,
    root: &KustomizationRoot,
    config: &BuildResource,
) -> BuildResult {
    let kind = builtin(config)?;
    let plugin: Plugin = read(config)?;
    let fields = &plugin.field_specs[..];
    let all = &mut resources.0;
    match kind {
        "PrefixTransformer" => affix::add_prefix(all, &plugin.prefix, fields),
        "SuffixTransformer" => affix::add_suffix(all, &plugin.suffix, fields),
        "PrefixSuffixTransformer" => {
            let names = [FieldSpec::for_all_kinds(NAME)];
            let fields = if fields.is_empty() { &names } else { fields };
            affix::add_prefix(all, &plugin.prefix, fields);
            affix::add_suffix(all, &plugin.suffix, fields);
        }
        "LabelTransformer" => labels::put_at(all, &plugin.labels, fields),
        "AnnotationsTransformer" => labels::put_at(all, &plugin.annotations, fields),
        "ImageTagTransformer" => images::set(all, &plugin.image_tag, fields)?,
        "ReplicaCountTransformer" => replicas::set(all, &plugin.replica, fields)?,
        "HashTransformer" => hash::add(all),
        "SortOrderTransformer" => order::arrange(all, plugin.sort_options.as_ref())?,
        "NamespaceTransformer" => {
            let how = NamespaceOptions {
                fields,
                only_these: true,
                unset_only: plugin.unset_only,
                subjects: &plugin.set_role_binding_subjects,
            };
            namespace::set(resources, config.object.namespace(), &how)?;
        }
        "PatchTransformer" => {
            let Plugin { path, patch, target, options, .. } = plugin;
            patch::apply(resources, files, root, &PatchEntry { path, patch, target, options })?;
        }
        "PatchJson6902Transformer" => {
            let Plugin { path, json_op: patch, target, options, .. } = plugin;
            patch::apply_json(resources, files, root, &PatchEntry { path, patch, target, options })?;
        }
        "PatchStrategicMergeTransformer" => {
            let patches = plugin.paths.iter().chain(Some(&plugin.patches).filter(|text| !text.is_empty()));
            patches.into_iter().try_for_each(|entry| patch::apply_strategic(resources, files, root, entry))?;
        }
        "ReplacementTransformer" => {
            plugin.replacements.iter().try_for_each(|entry| replacements::apply(all, files, root, entry))?;
        }
        _ => return Err(unknown(config)),
    }
    Ok(())
}

fn builtin(config: &BuildResource) -> BuildResult<&str> {
    if config.object.api_version() == BUILTIN { Ok(config.object.kind()) } else { Err(unknown(config)) }
}

fn unknown(config: &BuildResource) -> String {
    format!(
        "kloop does not support the plugin {} of {}\nhint: {}:{}: only the generators and transformers that are \
         built into kustomize are supported; write the output of other plugins to a file, and list that in resources",
        config.object.kind(),
        config.object.api_version(),
        config.origin.shown.display(),
        config.origin.line
    )
}

/// Deserializes a map of strings. Booleans and numbers are converted to strings.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let read = |(key, value)| match value {
        Value::String(text) => Ok((key, text)),
        Value::Bool(_) | Value::Number(_) => Ok((key, value.to_string())),
        value => Err(D::Error::custom(format!("{key}: expected a string, not {value}"))),
    };
    values.into_iter().map(read).collect()
}

/// Deserializes a configuration. Like kustomize, ignores unknown fields.
fn read<T: DeserializeOwned>(config: &BuildResource) -> BuildResult<T> {
    let Value::Object(fields) = &config.object.0 else { return Err(unknown(config)) };
    // In Go, the case of field names does not matter: `FieldSpecs` equals `fieldSpecs`.
    let lower = |name: &str| name.chars().take(1).flat_map(char::to_lowercase).chain(name.chars().skip(1)).collect();
    let fields = fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (lower(name), value.clone()));
    serde_json::from_value(Value::Object(fields.collect()))
        .map_err(|error| format!("{} {}: {error}", config.object.kind(), config.object.name()))
}
