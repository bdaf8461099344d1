//! `generators` and `transformers`: the plugins that are built into kustomize, each with a configuration of its own.

use super::affix::{self, NAME};
use super::file::{
    FieldSpec, GeneratorEntry, ImageEntry, PatchEntry, PatchOptions, Replacement, ReplicasEntry, ResourceSelector,
    SortOptions,
};
use super::namespace::{self, How};
use super::resource::{BuildResource, BuildResources};
use super::root::{FileAccess, KustomizationRoot};
use super::{BuildResult, hash, images, labels, order, patch, replacements, replicas};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// The API version of plugins that are built in.
const BUILTIN: &str = "builtin";

/// Configuration of all transformers in one type: each reads its own part.
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

/// The generator that a configuration is of: its kind and what it says.
pub fn generator(config: &BuildResource) -> BuildResult<(String, GeneratorEntry)> {
    let kind = builtin(config)?;
    if !["ConfigMapGenerator", "SecretGenerator"].contains(&kind) {
        return Err(unknown(config));
    }
    let read: GeneratorEntry = read(config)?;
    // The name of the configuration stands in for one that the generator does not have.
    let or = |own: &str, other: &str| if own.is_empty() { other.to_owned() } else { own.to_owned() };
    let name = or(&read.name, config.object.name());
    let namespace = or(&read.namespace, config.object.namespace());
    Ok((kind.to_owned(), GeneratorEntry { name, namespace, ..read }))
}

/// Does what the configuration of a transformer says.
pub fn transform(
    resources: &mut BuildResources,
    (files, root): (&dyn FileAccess, &KustomizationRoot),
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
            let names = [FieldSpec::of_all(NAME)];
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
            let how = How {
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
            plugin.replacements.iter().try_for_each(|one| replacements::apply(all, files, root, one))?;
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
        "kloop does not carry out the plugin {} of {}\nhint: {}:{}: of plugins only the generators and transformers that are \
         built into kustomize are carried out; put what others make into a file, and name that in resources",
        config.object.kind(),
        config.object.api_version(),
        config.origin.shown.display(),
        config.origin.line
    )
}

/// Reads a map of texts; `true` and `1` are as good as text there.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let read = |(key, value)| match value {
        Value::String(text) => Ok((key, text)),
        Value::Bool(_) | Value::Number(_) => Ok((key, value.to_string())),
        value => Err(D::Error::custom(format!("{key}: expected a text, not {value}"))),
    };
    values.into_iter().map(read).collect()
}

/// A configuration's fields; what is not known is passed over, as by kustomize.
fn read<T: DeserializeOwned>(config: &BuildResource) -> BuildResult<T> {
    let Value::Object(fields) = &config.object.0 else { return Err(unknown(config)) };
    // In Go the case of a field's name does not matter: `FieldSpecs` is as good as `fieldSpecs`.
    let lower = |name: &str| name.chars().take(1).flat_map(char::to_lowercase).chain(name.chars().skip(1)).collect();
    let fields = fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (lower(name), value.clone()));
    serde_json::from_value(Value::Object(fields.collect()))
        .map_err(|error| format!("{} {}: {error}", config.object.kind(), config.object.name()))
}
