//! Patches: strategic merges and JSON patches (RFC 6902), for the object that they name or for all
//! objects of a target.

use super::BuildResult;
use super::file::{self, PatchEntry, PatchOptions, ResourceSelector};
use super::id::ResourceId;
use super::resource::{BuildResource, BuildResources};
use super::root::{FileAccess, FileText, KustomizationRoot};
use super::target::TargetPattern;
use crate::go::json::to_json;
use crate::kinds::catalogue::merge_rules;
use crate::object::{Object, merge, patch};
use serde_json::Value;

/// Parsed patch.
enum PatchChange {
    /// Strategic merges, each in the form of a partial object.
    Merge(Vec<Object>),
    /// The operations of a JSON patch.
    Operations(Value),
}

/// Applies one entry of `patches`. Returns false if its target matches no object.
pub fn apply(
    resources: &mut BuildResources,
    files: &dyn FileAccess,
    root: &KustomizationRoot,
    entry: &PatchEntry,
) -> BuildResult<bool> {
    let change = read(files, root, entry)?;
    let chosen = entry.target.as_ref().map(|target| find(resources, target)).transpose()?;
    let found = chosen.as_ref().is_none_or(|chosen| !chosen.is_empty());
    match (change, chosen) {
        (PatchChange::Operations(_), None) => {
            return Err(format!("must specify a target for patch {}", entry.patch.trim()));
        }
        (PatchChange::Operations(operations), Some(chosen)) => {
            chosen.into_iter().try_for_each(|at| apply_operations(&mut resources.0[at], &operations))?;
        }
        (PatchChange::Merge(patches), None) => {
            for patch in patches {
                let at = resources.find_single(&ResourceId::from_object(&patch))?;
                merge_into(&mut resources.0[at], &patch, &entry.options)?;
            }
        }
        (PatchChange::Merge(patches), Some(chosen)) => {
            for (patch, at) in patches.iter().flat_map(|patch| chosen.iter().map(move |at| (patch, *at))) {
                merge_into(&mut resources.0[at], patch, &entry.options)?;
            }
        }
    }
    finish(resources)?;
    Ok(found)
}

/// Applies one entry of `patchesStrategicMerge`: a file, or an inline patch.
pub fn apply_strategic(
    resources: &mut BuildResources,
    files: &dyn FileAccess,
    root: &KustomizationRoot,
    entry: &str,
) -> BuildResult {
    let is_inline = entry.trim().contains('\n') || entry.contains(": ") || entry.trim_start().starts_with('{');
    let (path, patch) = if is_inline { ("", entry) } else { (entry, "") };
    let entry = PatchEntry { path: path.to_owned(), patch: patch.to_owned(), ..PatchEntry::default() };
    apply(resources, files, root, &entry).map(drop)
}

/// Applies one entry of `patchesJson6902`. Returns false if its target matches no object.
pub fn apply_json(
    resources: &mut BuildResources,
    files: &dyn FileAccess,
    root: &KustomizationRoot,
    entry: &PatchEntry,
) -> BuildResult<bool> {
    let Some(target) = &entry.target else {
        return Err("must specify the target for a patch of patchesJson6902".into());
    };
    if target.name.is_empty() {
        return Err("must specify the target name of a patch of patchesJson6902".into());
    }
    if let PatchChange::Merge(_) = read(files, root, entry)? {
        return Err("a patch of patchesJson6902 has to be a list of operations".into());
    }
    apply(resources, files, root, entry)
}

/// Reads a patch from its file or from the entry.
fn read(files: &dyn FileAccess, root: &KustomizationRoot, entry: &PatchEntry) -> BuildResult<PatchChange> {
    let text = match (entry.path.as_str(), entry.patch.trim()) {
        ("", "") => return Err("must specify one of patch and path".into()),
        (path, "") => {
            root.read(files, path).map_err(|why| format!("failed to get the patch file from path({path}): {why}"))?
        }
        ("", patch) => FileText { shown: "patch".into(), at: root.at.clone(), bytes: patch.as_bytes().to_vec() },
        _ => return Err("patch and path can't be set at the same time".into()),
    };
    let source = || if entry.path.is_empty() { entry.patch.trim() } else { &entry.path };
    let documents =
        file::documents(&text).map_err(|why| format!("unable to parse SM or JSON patch from [{}]: {why}", source()))?;
    let values: Vec<Value> = documents.into_iter().map(|document| document.value).collect();
    match &values[..] {
        [operations @ Value::Array(_)] => Ok(PatchChange::Operations(operations.clone())),
        // A file without documents changes nothing.
        [..] if values.iter().all(Value::is_object) => Ok(PatchChange::Merge(values.into_iter().map(Object).collect())),
        _ => Err(format!("unable to parse SM or JSON patch from [{}]", source())),
    }
    .and_then(|change| require_identity(change, entry))
}

/// Requires a name and a kind in a patch without a target.
fn require_identity(change: PatchChange, entry: &PatchEntry) -> BuildResult<PatchChange> {
    if let (PatchChange::Merge(patches), None) = (&change, &entry.target) {
        for patch in patches {
            let identity = [("kind", patch.kind()), ("metadata.name", patch.name())];
            if let Some((field, _)) = identity.into_iter().find(|(_, value)| value.is_empty()) {
                let text = to_json(&patch.0);
                return Err(format!("missing {field} in the patch {text}, and it has no target"));
            }
        }
    }
    Ok(change)
}

fn find(resources: &BuildResources, target: &ResourceSelector) -> BuildResult<Vec<usize>> {
    let pattern = TargetPattern::new(target)?;
    Ok((0..resources.0.len()).filter(|at| pattern.selects(&resources.0[*at])).collect())
}

/// Merges a patch. The object's identity changes only if the options allow it.
fn merge_into(resource: &mut BuildResource, patch: &Object, options: &PatchOptions) -> BuildResult {
    let (id, api_version) = (resource.id(), resource.object.api_version().to_owned());
    if options.allow_name_change || options.allow_kind_change {
        resource.record_id();
    }
    let schema = merge_rules::schema_for(&api_version, &id.kind);
    remove_fields_without_value(resource, schema);
    let mut patch = patch.0.clone();
    remove_merge_directives(&mut patch);
    let merged = merge::overlay(&resource.object.0, &patch, schema).map_err(|error| error.to_string())?;
    resource.object = Object(merged);
    remove_empty_annotations(&mut resource.object);
    if resource.object.0.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(());
    }
    if !options.allow_kind_change {
        resource.object.set(&["kind"], id.kind);
        resource.object.set(&["apiVersion"], api_version);
    }
    if !options.allow_name_change {
        resource.object.set(&["metadata", "name"], id.name);
    }
    match id.namespace.as_str() {
        "" => drop(resource.object.unset(&["metadata", "namespace"])),
        namespace => resource.object.set(&["metadata", "namespace"], namespace),
    }
    Ok(())
}

/// Removes `$patch: merge`, which is the default. kustomize accepts it, but Kubernetes' own merge
/// refuses it.
fn remove_merge_directives(patch: &mut Value) {
    match patch {
        Value::Object(map) => {
            if map.get("$patch").is_some_and(|directive| directive == "merge") {
                map.remove("$patch");
            }
            map.values_mut().for_each(remove_merge_directives);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_merge_directives),
        _ => {}
    }
}

/// Removes fields without a value, such as `image:`. Like kustomize's merge, this keeps
/// `image: null`.
fn remove_fields_without_value(resource: &mut BuildResource, schema: Option<merge::MergeSchemaRef>) {
    let (object, origin) = (&mut resource.object.0, &resource.origin);
    let path_prefix = if origin.path_prefix.is_empty() { String::new() } else { format!("{}.", origin.path_prefix) };
    let nulls = merge::null_fields(object, schema).into_iter().map(|path| format!("{path_prefix}{path}")).collect();
    let left_out = origin.document.without_value(nulls);
    if !left_out.is_empty() {
        let paths = left_out.iter().map(|path| path[path_prefix.len()..].to_owned()).collect();
        merge::remove_fields(object, &paths, "");
    }
}

fn apply_operations(resource: &mut BuildResource, operations: &Value) -> BuildResult {
    resource.record_id();
    let patched = patch::json_patch(&resource.object.0, operations);
    let patched = patched.map_err(|error| format!("the JSON patch does not fit {}: {error}", resource.id()))?;
    if !patched.is_object() {
        return Err(format!("after the JSON patch, {} is not an object", resource.id()));
    }
    resource.object = Object(patched);
    remove_empty_annotations(&mut resource.object);
    Ok(())
}

/// Removes objects that a patch deleted, and refuses duplicates that it created.
fn finish(resources: &mut BuildResources) -> BuildResult {
    let patched = std::mem::take(&mut resources.0);
    let is_there = |resource: &BuildResource| resource.object.0.as_object().is_some_and(|fields| !fields.is_empty());
    patched.into_iter().filter(is_there).try_for_each(|resource| resources.add(resource))
}

/// Removes empty or null annotations, but not labels, as kustomize does.
pub fn remove_empty_annotations(object: &mut Object) {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    if object.value_at(&["metadata", "annotations"]).is_some_and(is_empty) {
        object.unset(&["metadata", "annotations"]);
    }
}
