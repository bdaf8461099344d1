//! Real manifests of other projects (`../shared/corpus`; its README names the sources): all of them are accepted or refused for Kubernetes'
//! own reason, and those that need only programs of this machine run.

mod mutation;
mod run;
mod stand_ins;

use crate::shared_folder::find_shared_folder;
use kloop::apiserver::{Api, Transaction, WriteOptions, apply, create, custom};
use kloop::kinds::{self, Kind};
use kloop::object::{Key, Object, Resource, Status, yaml};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns a folder of the corpus; prints that the caller's test is skipped when it does not exist.
fn folder(name: &str) -> Option<PathBuf> {
    find_shared_folder("corpus", name)
}

/// Collects the files below a folder, in order.
fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path());
    let mut entries: Vec<PathBuf> = entries.collect();
    entries.sort();
    for path in entries {
        match path.extension().and_then(|end| end.to_str()) {
            _ if path.is_dir() => files_below(&path, found),
            Some("yaml" | "yml" | "json") => found.push(path),
            _ => {}
        }
    }
}

/// Returns the objects of a file, including the items of lists; an error is the reason why it cannot be read.
fn objects(path: &Path) -> Result<Vec<Value>, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let text = yaml::decode_bytes(&bytes).map_err(|error| error.to_string())?;
    let documents = yaml::documents(&text).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for document in documents {
        let is_list = document.value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match document.value["items"].as_array() {
            Some(items) if is_list => found.extend(items.iter().cloned()),
            _ => found.push(document.value),
        }
    }
    Ok(found)
}

/// Creates the objects that a body requires: namespace, priority class, service account.
fn make_way(txn: &mut dyn Transaction, body: &Value) {
    let namespace = body["metadata"]["namespace"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
    let mut before = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
    for spec in [&body["spec"], &body["spec"]["template"]["spec"]] {
        if let Some(name) = spec["priorityClassName"].as_str() {
            let version = "scheduling.k8s.io/v1";
            before.push(
                json!({"apiVersion": version, "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}),
            );
        }
        if let Some(name) = spec["serviceAccountName"].as_str() {
            let metadata = json!({"name": name, "namespace": namespace});
            before.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        }
    }
    for object in before.into_iter().map(Object) {
        let kind = kinds::by_kind(object.api_version(), object.kind()).expect("kind");
        // The object may exist already; an impossible name is refused again with the object that uses it.
        drop(create::create(txn, kind, &object, &WriteOptions::default()));
    }
}

/// Applies one object strictly; creates it when it has no name.
fn admit(txn: &mut dyn Transaction, kind: &Kind, body: &Value) -> Result<(), Status> {
    make_way(txn, body);
    let mut object = Object(body.clone());
    if kind.namespaced
        && matches!(&body["metadata"]["namespace"], Value::Null | Value::String(_))
        && object.namespace().is_empty()
    {
        object.set(&["metadata", "namespace"], "default");
    }
    let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
    if object.name().is_empty() && object.text(&["metadata", "generateName"]).is_some() {
        return create::create(txn, kind, &object, &options).map(drop);
    }
    apply::apply(txn, kind, &object, true, &options).map(drop)
}

/// Whether the manifest contains placeholders that other tools fill in.
fn is_template(body: &Value) -> bool {
    let text = body.to_string();
    ["{{", "REPLACE_", "<node-hostname>"].iter().any(|hole| text.contains(hole))
}

#[test]
fn every_manifest_is_accepted_or_refused_with_a_reason() {
    let Some(folder) = folder("accept") else { return };
    let (mut files, mut accepted, mut refused, mut unknown, mut unread) =
        (Vec::new(), 0, Vec::new(), Vec::new(), Vec::new());
    files_below(&folder, &mut files);
    let mut api = Api::in_memory("test").expect("a cluster in memory");
    // Several manifests contain a class of this name with another provisioner, which conflicts with an existing one.
    let class = Key::new(Resource("storageclasses.storage.k8s.io"), "", "standard");
    let unclassed = api.write(false, |txn| match txn.get(&class)? {
        Some(standard) => txn.remove(&class, standard).map(drop),
        None => Ok(()),
    });
    unclassed.expect("the class goes");
    for file in &files {
        let name = file.strip_prefix(&folder).expect("below").display().to_string();
        let objects = match objects(file) {
            Ok(objects) => objects,
            Err(error) => {
                unread.push(format!("{name}: {error}"));
                continue;
            }
        };
        // One dry-run transaction per file, so that files do not see each other. It is made again when rules were compiled; the last
        // counts.
        let before = (accepted, refused.len());
        let done = api.write(true, |txn| {
            accepted = before.0;
            refused.truncate(before.1);
            for body in objects.iter().filter(|body| !is_template(body)) {
                let (version, kind) =
                    (body["apiVersion"].as_str().unwrap_or_default(), body["kind"].as_str().unwrap_or_default());
                // This process still knows a kind that another file defined, but the cluster does not.
                let known = kinds::by_kind(version, kind).filter(|kind| custom::current(txn, kind, version).is_ok());
                match known.map(|kind| admit(txn, kind, body)) {
                    None => unknown.push(format!("{version} {kind}")),
                    Some(Ok(())) => accepted += 1,
                    Some(Err(status)) => refused.push(format!("{name}: {status}")),
                }
            }
            Ok(())
        });
        done.expect("the transaction");
    }
    unknown.sort();
    unknown.dedup_by(|one, other| one == other);
    refused.iter().for_each(|line| eprintln!("refused: {line}"));
    unread.iter().for_each(|line| eprintln!("cannot be read: {line}"));
    eprintln!("not in the catalogue: {}", unknown.join(", "));
    eprintln!(
        "corpus: {} files, {accepted} objects accepted, {} refused, {} files unread",
        files.len(),
        refused.len(),
        unread.len()
    );
    assert!(accepted >= ACCEPTED, "{accepted} objects are accepted, before it was {ACCEPTED}");
    assert!(refused.len() <= REFUSED, "{} objects are refused, before it was {REFUSED}", refused.len());
    assert!(unread.is_empty(), "{} files cannot be read", unread.len());
}

/// Number of accepted objects; may only rise.
const ACCEPTED: usize = 1996;
/// Number of objects refused for Kubernetes' own reasons; may only fall.
const REFUSED: usize = 41;
