//! `replacements`: values that are copied from one object's field into fields of others.

use super::BuildResult;
use super::file::{self, FieldOptions, Replacement, ReplacementSource, ReplacementTarget, ResourceSelector};
use super::path::{self, FieldStep};
use super::resource::BuildResource;
use super::root::{FileAccess, KustomizationRoot};
use super::target::TargetPattern;
use crate::kinds::typed;
use crate::object::yaml::MAX_BYTES;
use serde_json::Value;

/// The field that is meant where none is named.
const NAME: &str = "metadata.name";

/// Carries out one entry, or those of the file that it names.
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

/// A file of one replacement or a list of them.
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
    // Copied into itself again and again, a value would double every time.
    if value.to_string().len() > MAX_BYTES {
        return Err(format!("the value of a replacement is larger than {MAX_BYTES} bytes"));
    }
    entry.targets.iter().try_for_each(|aim| put(resources, &value, aim))
}

/// The value of the only object that a source means.
fn value_of(resources: &[BuildResource], source: &ReplacementSource) -> BuildResult<Value> {
    let ReplacementSource { group, version, kind, name, namespace, field_path, options } = source;
    let [group, version, kind, name, namespace] = [group, version, kind, name, namespace].map(Clone::clone);
    let said =
        [&kind, &name, &namespace].into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join("/");
    let wanted =
        TargetPattern::new(&ResourceSelector { group, version, kind, name, namespace, ..ResourceSelector::default() })?;
    let found: Vec<&BuildResource> = resources.iter().filter(|resource| wanted.was_ever(resource)).collect();
    let resource = match found[..] {
        [only] => only,
        [] => return Err(format!("nothing selected by {said}:{field_path}")),
        _ => return Err(format!("multiple matches for selector {said}:{field_path}")),
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

fn put(resources: &mut [BuildResource], value: &Value, aim: &ReplacementTarget) -> BuildResult {
    let Some(select) = &aim.select else { return Err("target must specify resources to select".to_owned()) };
    let wanted = TargetPattern::new(select)?;
    let rejected: Vec<TargetPattern> = aim.reject.iter().map(TargetPattern::new).collect::<Result<_, _>>()?;
    let usual = [NAME.to_owned()];
    let fields = if aim.field_paths.is_empty() { &usual[..] } else { &aim.field_paths };
    for resource in resources {
        if !wanted.was_ever(resource) || rejected.iter().any(|rejected| rejected.was_ever(resource)) {
            continue;
        }
        // The old name is remembered when a replacement changes the name.
        resource.remember();
        for field in fields {
            let steps = path::parse(field);
            if aim.options.create && steps.contains(&FieldStep::Each) {
                return Err("cannot support create option in a multi-value target".to_owned());
            }
            let change = &mut |at: &mut Value| set(at, value, &aim.options);
            if path::visit_values(&mut resource.object.0, &steps, aim.options.create, change)? == 0 {
                let or_create = if aim.options.create { "or create " } else { "" };
                return Err(format!(
                    "unable to find {or_create}field \"{field}\" in replacement target {}",
                    resource.id()
                ));
            }
        }
    }
    Ok(())
}

/// Sets a value, or the part of it that the options mean. What was a text stays one, and what was a number, too.
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
        (Value::String(_), value) if is_scalar(&value) => path::text(&value).into(),
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
        value => Ok(path::text(value)),
    }
}
