//! `replacements`: copies values from a field of one object to fields of others.

use super::BuildResult;
use super::file::{self, FieldOptions, Replacement, ReplacementSource, ReplacementTarget, ResourceSelector};
use super::path;
use super::resource::BuildResource;
use super::root::{FileAccess, KustomizationRoot};
use super::target::TargetPattern;
use crate::kinds::catalogue::typed;
use crate::object::scalar_text;
use crate::object::yaml::MAX_BYTES;
use serde_json::Value;

/// The default field.
const NAME: &str = "metadata.name";

/// Applies one entry, or those in the file that it names.
pub fn apply(
    resources: &mut [BuildResource],
    files: &dyn FileAccess,
    root: &KustomizationRoot,
    entry: &Replacement,
) -> BuildResult {
    if entry.path.is_empty() {
        return replace(resources, entry);
    }
    if entry.source.is_some() || !entry.targets.is_empty() {
        return Err("cannot specify both path and inline replacement".to_owned());
    }
    read(files, root, &entry.path)?.iter().try_for_each(|entry| replace(resources, entry))
}

/// Reads a file with one replacement or a list of them.
fn read(files: &dyn FileAccess, root: &KustomizationRoot, name: &str) -> BuildResult<Vec<Replacement>> {
    let text = root.read(files, name)?;
    let mut read = Vec::new();
    for document in file::documents(&text)? {
        let entries = match &document.value {
            Value::Array(entries) => entries.iter().collect(),
            entry => vec![entry],
        };
        for entry in entries {
            let mut unknown = None;
            let replacement = typed::read(entry, &mut |field| unknown = unknown.take().or(Some(field)));
            if let Some(field) = unknown {
                return Err(format!("{}: unknown field {:?}", text.shown.display(), field.path));
            }
            read.push(replacement.map_err(|error| format!("{}: {error}", text.shown.display()))?);
        }
    }
    Ok(read)
}

fn replace(resources: &mut [BuildResource], entry: &Replacement) -> BuildResult {
    let value = match (&entry.source, &entry.source_value) {
        (Some(source), None) => value_of(resources, source)?,
        (None, Some(text)) => text.as_str().into(),
        _ => return Err("replacements must specify a source and at least one target".to_owned()),
    };
    if entry.targets.is_empty() {
        return Err("replacements must specify a source and at least one target".to_owned());
    }
    // Repeatedly copied into itself, a value would double every time.
    if value.to_string().len() > MAX_BYTES {
        return Err(format!("the value of a replacement is larger than {MAX_BYTES} bytes"));
    }
    entry.targets.iter().try_for_each(|target| put(resources, &value, target))
}

/// Returns the value of the single object that a source selects.
fn value_of(resources: &[BuildResource], source: &ReplacementSource) -> BuildResult<Value> {
    let ReplacementSource { group, version, kind, name, namespace, field_path, options } = source;
    let [group, version, kind, name, namespace] = [group, version, kind, name, namespace].map(Clone::clone);
    let selector =
        [&kind, &name, &namespace].into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join("/");
    let wanted =
        TargetPattern::new(&ResourceSelector { group, version, kind, name, namespace, ..ResourceSelector::default() })?;
    let found: Vec<&BuildResource> = resources.iter().filter(|resource| wanted.selects_ever(resource)).collect();
    let resource = match found[..] {
        [only] => only,
        [] => return Err(format!("nothing selected by {selector}:{field_path}")),
        _ => return Err(format!("multiple matches for selector {selector}:{field_path}")),
    };
    let field = if field_path.is_empty() { NAME } else { field_path };
    let value = path::first(&resource.object.0, &path::parse(field)).filter(|value| !value.is_null());
    let value =
        value.ok_or_else(|| format!("fieldPath `{field}` is missing for replacement source {}", resource.id()))?;
    if options.delimiter.is_empty() {
        return Ok(value.clone());
    }
    let text = scalar(value)?;
    let part = usize::try_from(options.index).ok().and_then(|at| text.split(&options.delimiter).nth(at));
    part.map(Value::from).ok_or_else(|| format!("options.index {} is out of bounds for value {text}", options.index))
}

fn put(resources: &mut [BuildResource], value: &Value, target: &ReplacementTarget) -> BuildResult {
    let Some(select) = &target.select else { return Err("target must specify resources to select".to_owned()) };
    let wanted = TargetPattern::new(select)?;
    let rejected: Vec<TargetPattern> = target.reject.iter().map(TargetPattern::new).collect::<Result<_, _>>()?;
    let default_fields = [NAME.to_owned()];
    let fields = if target.field_paths.is_empty() { &default_fields[..] } else { &target.field_paths };
    for resource in resources {
        if !wanted.selects_ever(resource) || rejected.iter().any(|rejected| rejected.selects_ever(resource)) {
            continue;
        }
        // Record the old identity, because a replacement may change the name.
        resource.record_id();
        for field in fields {
            let steps = path::parse(field);
            let change = &mut |at: &mut Value| set(at, value, &target.options);
            if path::visit_values(&mut resource.object.0, &steps, target.options.create, change)? == 0 {
                let or_create = if target.options.create { "or create " } else { "" };
                return Err(format!(
                    "unable to find {or_create}field \"{field}\" in replacement target {}",
                    resource.id()
                ));
            }
        }
    }
    Ok(())
}

/// Sets a value, or the part of it selected by the options. Strings stay strings, and numbers stay
/// numbers if possible.
fn set(at: &mut Value, value: &Value, options: &FieldOptions) -> BuildResult {
    let value = match options.delimiter.as_str() {
        "" => value.clone(),
        delimiter => {
            let (old, new) = (scalar(at)?, scalar(value)?);
            let mut parts: Vec<&str> = old.split(delimiter).collect();
            match usize::try_from(options.index) {
                Err(_) => parts.insert(0, &new),
                Ok(index) if index >= parts.len() => parts.push(&new),
                Ok(index) => parts[index] = &new,
            }
            parts.join(delimiter).into()
        }
    };
    let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
    *at = match (&*at, value) {
        (Value::String(_), value) if is_scalar(&value) => scalar_text(&value).into(),
        (Value::Number(_) | Value::Bool(_), Value::String(text)) => {
            let plain =
                serde_json::from_str(&text).ok().filter(|value: &Value| value.is_number() || value.is_boolean());
            plain.unwrap_or_else(|| text.into())
        }
        (_, value) => value,
    };
    Ok(())
}

fn scalar(value: &Value) -> BuildResult<String> {
    match value {
        Value::Object(_) | Value::Array(_) => Err("delimiter option can only be used with scalar nodes".to_owned()),
        Value::Null => Ok(String::new()),
        value => Ok(scalar_text(value)),
    }
}
