//! `configMapGenerator` and `secretGenerator`: ConfigMaps and Secrets from literals, files and env
//! files.

use super::BuildResult;
use super::file::{GeneratorEntry, GeneratorOptions};
use super::resource::{BuildResource, BuildResources, ORIGIN, Origin};
use super::root::{FileAccess, KustomizationRoot};
use crate::kinds::shared::data_keys::check_keys;
use crate::object::Object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Kind of generated object.
#[derive(Clone, Copy, PartialEq)]
pub enum GeneratedKind {
    ConfigMap,
    Secret,
}

/// Length of the lines of long base64 text.
const LINE: usize = 70;

/// Generates one object, and adds it to the resources, merges it into an existing one, or replaces
/// that.
pub fn add(
    resources: &mut BuildResources,
    (files, root): (&dyn FileAccess, &KustomizationRoot),
    make: GeneratedKind,
    (generator, general): (&GeneratorEntry, &GeneratorOptions),
    origin: Origin,
) -> BuildResult {
    if generator.name.is_empty() {
        return Err("a generator needs a name".to_owned());
    }
    if make == GeneratedKind::ConfigMap && !generator.r#type.is_empty() {
        return Err("a ConfigMap has no type".to_owned());
    }
    let mut made = BuildResource::new(object(files, root, make, generator, general)?, origin);
    made.hashed = !(generator.options.disable_name_suffix_hash || general.disable_name_suffix_hash);
    let id = made.id();
    let matches = resources.indexes_of(&id);
    match (generator.behavior.as_str(), &matches[..]) {
        ("merge" | "replace", []) => Err(format!("id {id} does not exist; cannot merge or replace")),
        (behavior @ ("merge" | "replace"), [at]) => {
            keep_parts_of(&mut made, &resources.0[*at], behavior == "merge");
            resources.0[*at] = made;
            Ok(())
        }
        ("merge" | "replace", _) => Err(format!("found multiple objects that could accept merge of {id}")),
        // As in kustomize, any other behavior means `create`.
        (_, []) => resources.add(made),
        _ => Err(format!("id {id} exists; behavior must be merge or replace")),
    }
}

/// Copies the parts of a replaced object that the generated one keeps.
fn keep_parts_of(made: &mut BuildResource, old: &BuildResource, merge: bool) {
    let metadata = [&["metadata", "labels"][..], &["metadata", "annotations"]];
    let data = [&["data"][..], &["binaryData"]];
    for path in metadata.into_iter().chain(data.into_iter().filter(|_| merge)) {
        let Some(Value::Object(mut both)) = old.object.value_at(path).cloned() else { continue };
        both.extend(made.object.value_at(path).and_then(Value::as_object).cloned().unwrap_or_default());
        made.object.set(path, both);
    }
    // A merged object keeps its origin.
    let origin = &["metadata", "annotations", ORIGIN];
    if let Some(own) = old.object.text(origin).filter(|_| merge) {
        made.object.set(origin, own);
    }
    for name in ["name", "namespace"] {
        if let Some(own) = old.object.text(&["metadata", name]) {
            made.object.set(&["metadata", name], own);
        }
    }
    made.hashed &= old.hashed;
    (made.before, made.prefixes, made.suffixes) = (old.before.clone(), old.prefixes.clone(), old.suffixes.clone());
}

fn object(
    files: &dyn FileAccess,
    root: &KustomizationRoot,
    make: GeneratedKind,
    generator: &GeneratorEntry,
    general: &GeneratorOptions,
) -> BuildResult<Object> {
    let (kind, name) = (if make == GeneratedKind::Secret { "Secret" } else { "ConfigMap" }, &generator.name);
    let pairs = pairs(files, root, generator)?;
    check_keys(&pairs, kind, name)?;
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (key, value) in pairs {
        match String::from_utf8(value) {
            Ok(text) if make == GeneratedKind::ConfigMap => data.insert(key, text.into()),
            Ok(text) => data.insert(key, encoded(text.as_bytes()).into()),
            Err(bytes) if make == GeneratedKind::ConfigMap => binary.insert(key, encoded(bytes.as_bytes()).into()),
            Err(bytes) => data.insert(key, encoded(bytes.as_bytes()).into()),
        };
    }
    let mut body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    for (field, map) in [("data", data), ("binaryData", binary)] {
        // A Secret has `data`, even if it is empty.
        if !map.is_empty() || (make == GeneratedKind::Secret && field == "data") {
            body[field] = map.into();
        }
    }
    if make == GeneratedKind::Secret {
        body["type"] = if generator.r#type.is_empty() { "Opaque" } else { &generator.r#type }.into();
    }
    let own = &generator.options;
    if own.immutable || general.immutable {
        body["immutable"] = true.into();
    }
    if !generator.namespace.is_empty() {
        body["metadata"]["namespace"] = generator.namespace.as_str().into();
    }
    for (field, general, own) in
        [("labels", &general.labels, &own.labels), ("annotations", &general.annotations, &own.annotations)]
    {
        let both: Map<String, Value> =
            general.iter().chain(own).map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        if !both.is_empty() {
            body["metadata"][field] = both.into();
        }
    }
    Ok(Object(body))
}

/// Returns all entries: from env files, then literals, then files.
fn pairs(
    files: &dyn FileAccess,
    root: &KustomizationRoot,
    generator: &GeneratorEntry,
) -> BuildResult<Vec<(String, Vec<u8>)>> {
    let mut pairs = Vec::new();
    let more = Some(&generator.env).filter(|env| !env.is_empty());
    for path in generator.envs.iter().chain(more) {
        let content = root.read(files, path).map_err(|why| format!("env source files: [{path}]: {why}"))?;
        let text =
            String::from_utf8(content.bytes).map_err(|_| format!("env source files: [{path}]: it is not UTF-8"))?;
        pairs.extend(text.trim_start_matches('\u{feff}').lines().filter_map(variable));
    }
    for literal in &generator.literals {
        let pair = literal.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = pair.ok_or_else(|| {
            format!("literal sources [{literal}]: invalid literal source {literal}, expected key=value")
        })?;
        pairs.push((key.to_owned(), unquoted(value).into()));
    }
    for source in &generator.files {
        let (key, path) = named_file(source)?;
        let content = root.read(files, path).map_err(|why| format!("file sources: [{source}]: {why}"))?;
        pairs.push((key.to_owned(), content.bytes));
    }
    Ok(pairs)
}

/// Parses a line of an env file; `None` for empty lines and comments.
fn variable(line: &str) -> Option<(String, Vec<u8>)> {
    let line = line.trim_start();
    let (key, value) = line.split_once('=').unwrap_or((line, ""));
    (!line.is_empty() && !line.starts_with('#')).then(|| (key.to_owned(), value.into()))
}

/// Removes a pair of quotes around a value.
fn unquoted(value: &str) -> &str {
    let without = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    without('"').or_else(|| without('\'')).unwrap_or(value)
}

/// Splits `key=path`. The default key is the path's last part.
fn named_file(source: &str) -> BuildResult<(&str, &str)> {
    match source.split_once('=') {
        Some(("", path)) => Err(format!("key name for file path {path} missing")),
        Some((key, "")) => Err(format!("file path for key name {key} missing")),
        Some((_, path)) if path.contains('=') => Err("key names or file paths cannot contain '='".to_owned()),
        Some(pair) => Ok(pair),
        None => Ok((source.rsplit('/').next().unwrap_or(source), source)),
    }
}

fn encoded(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    if text.len() < LINE {
        return text;
    }
    text.as_bytes().chunks(LINE).map(|line| String::from_utf8_lossy(line).into_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_parsed_like_kustomize() {
        for (line, expected) in [
            ("a=1", Some(("a", "1"))),
            ("  a=b=c ", Some(("a", "b=c "))),
            ("a", Some(("a", ""))),
            ("# a=1", None),
            ("   ", None),
        ] {
            let expected = expected.map(|(key, value): (&str, &str)| (key.to_owned(), value.into()));
            assert_eq!(variable(line), expected, "{line:?}");
        }
        for (value, expected) in [("\"a b\"", "a b"), ("'a'", "a"), ("'a\"", "'a\""), ("\"", "\""), ("a'", "a'")] {
            assert_eq!(unquoted(value), expected);
        }
        for (source, expected) in [("a/b.txt", Some(("b.txt", "a/b.txt"))), ("k=a/b", Some(("k", "a/b"))), ("=a", None)]
        {
            assert_eq!(named_file(source).ok(), expected, "{source}");
        }
    }

    #[test]
    fn long_base64_is_split_into_lines() {
        assert_eq!(encoded(b"abc"), "YWJj");
        let long = encoded(&[0; 60]);
        assert_eq!(long, format!("{}\n{}\n", "A".repeat(70), "A".repeat(10)));
    }
}
