//! Tests with real objects: the recordings of Kubernetes and the manifests of other projects.

use super::{decode_document, encode_document, is_known};
use crate::kinds;
use crate::object::yaml;
use json_patch::PatchOperation;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn shared() -> PathBuf {
    std::env::var("KLOOP_SHARED").map_or_else(|_| PathBuf::from("../shared"), PathBuf::from)
}

/// Returns the files below a folder with one of these extensions.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            skip!("no real objects in {}", folder.display());
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_wanted = path.extension().is_some_and(|own| endings.iter().any(|ending| own == *ending));
            if path.is_dir() {
                folders.push(path);
            } else if is_wanted {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the objects of a document: the items of a list.
fn objects(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut map) if map.get("kind").is_some_and(|kind| kind == "List") => match map.remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        other => vec![other],
    }
}

fn names(object: &Value) -> (&str, &str) {
    (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default())
}

/// Returns an object as it is stored; `None` where it is refused or has no protobuf encoding.
fn stored(object: &Value) -> Option<Value> {
    let (api_version, kind) = names(object);
    let found = kinds::by_kind(api_version, kind).filter(|found| found.custom.is_none())?;
    is_known(api_version, kind).then(|| (found.normalize)(object, &mut |_| {}).ok()).flatten()
}

/// Whether Go writes this value for an absent field.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_zero),
    }
}

/// Whether such a change does not change the meaning of an object.
fn is_harmless(change: &PatchOperation, object: &Value) -> bool {
    match change {
        PatchOperation::Add(add) => is_zero(&add.value),
        // Go also omits zero values, by the type of a field. Items of lists have no type in protobuf.
        PatchOperation::Remove(remove) => {
            let path = remove.path.to_string();
            let is_type = path.starts_with("/items/") && (path.ends_with("/kind") || path.ends_with("/apiVersion"));
            // An empty object has a meaning, except in the maps of a schema.
            let is_left_out =
                |value: &Value| is_zero(value) && (!value.is_object() || path.contains("/openAPIV3Schema/"));
            is_type || object.pointer(&path).is_some_and(is_left_out)
        }
        _ => false,
    }
}

/// Encodes and decodes an object; returns the difference when another object would be stored.
fn differences(place: &Path, object: &Value) -> Option<String> {
    let (api_version, kind) = names(object);
    let bytes = encode_document(object)?;
    let again =
        decode_document(&bytes, api_version, kind).unwrap_or_else(|error| panic!("{}: {error:?}", place.display()));
    let written = encode_document(&again).is_some_and(|twice| twice == bytes);
    let (own, again) = stored(object).zip(stored(&again)).unwrap_or((object.clone(), again));
    let mut patch = json_patch::diff(&own, &again);
    patch.0.retain(|change| !is_harmless(change, &own));
    let told = || format!("{}: {api_version} {kind}: bytes are equal: {written}, {patch}", place.display());
    (!patch.0.is_empty() || !written).then(told)
}

#[test]
fn stored_manifests_survive_protobuf() {
    let (mut count, mut wrong) = (0, Vec::new());
    for path in files(&shared().join("corpus"), &["yaml", "yml", "json"]) {
        let Ok(text) = yaml::decode_bytes(&std::fs::read(&path).unwrap()) else { continue };
        let Ok(documents) = yaml::documents(&text) else { continue };
        for object in documents.into_iter().flat_map(|document| objects(document.value)) {
            if let Some(stored) = stored(&object) {
                count += 1;
                wrong.extend(differences(&path, &stored));
            }
        }
    }
    eprintln!("{count} manifests");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

/// Returns the objects of a recording in JSON or YAML, with values instead of the masks.
fn recorded(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let text = ["eventTime: ", "\"eventTime\": "].iter().fold(text, |text, field| {
        let (bare, quoted) = (format!("{field}<time>"), format!("{field}\"<time>\""));
        let moment = format!("{field}\"2026-01-02T03:04:05.000006Z\"");
        text.replace(&bare, &moment).replace(&quoted, &moment)
    });
    let text = text.replace("<time>", "2026-01-02T03:04:05Z").replace("<node-port>", "30000");
    let mut found = Vec::new();
    for step in text.split("\n\n") {
        let lines = step.lines().skip_while(|line| !line.starts_with('{') && !line.starts_with("apiVersion:"));
        let lines = lines.take_while(|line| !line.starts_with("! ") && !line.starts_with("? "));
        let body: String = lines.map(|line| format!("{line}\n")).collect();
        let documents = yaml::documents(&body).unwrap_or_default();
        found.extend(documents.into_iter().flat_map(|document| objects(document.value)));
    }
    found
}

#[test]
fn recorded_objects_survive_protobuf() {
    let (mut count, mut wrong) = (0, Vec::new());
    for path in files(&shared().join("golden"), &["txt"]) {
        for object in recorded(&path) {
            let (api_version, kind) = names(&object);
            if is_known(api_version, kind) {
                count += 1;
                wrong.extend(differences(&path, &object));
                wrong.extend(stored(&object).and_then(|stored| differences(&path, &stored)));
            }
        }
    }
    eprintln!("{count} objects");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}
