//! Tests as data: files in `tests/cases/AREA/*.yaml` with objects, and below `expected: |` the text that they lead to.
//!
//! A file holds one case or several, with a line `---` between them. Each opens with a comment that says what it shows. Objects under
//! `shared:` are part of all cases that follow; an object of the same kind and name in a case takes the place of a shared one.
//! `KLOOP_UPDATE_CASES=1` writes the expected texts as they are now.

use crate::kinds::catalogue::read::UnknownField;
use crate::kinds::{self};
use crate::object::{Key, Object, Time};
use crate::world::World;
use serde_json::{Value, json};
use similar::TextDiff;
use std::fs;
use std::path::Path;

/// The line below which the expected text stands, indented.
const EXPECTED: &str = "expected: |\n";

/// The time at which all cases happen. Objects were made ten minutes before, unless they say otherwise.
pub fn now() -> Time {
    "2026-01-01T00:10:00Z".parse().expect("a time")
}

/// Runs all cases of an area; fails with the differences between the texts that are expected and those that come.
#[track_caller]
pub fn check(area: &str, run: impl Fn(&Value) -> String) {
    colored::control::set_override(false);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(area);
    let mut files: Vec<_> = fs::read_dir(&folder).expect("cases").map(|entry| entry.expect("a case").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no cases in {}", folder.display());
    let mut differences = String::new();
    for file in files {
        let name = format!("tests/cases/{area}/{}", file.file_name().unwrap_or_default().display());
        let known = fs::read_to_string(&file).expect("a text");
        let mut shared = Vec::new();
        let cases: Vec<String> =
            known.trim_end().split("\n---\n").map(|case| answered(case, &name, &mut shared, &run)).collect();
        let fresh = cases.join("---\n");
        if fresh != known && std::env::var_os("KLOOP_UPDATE_CASES").is_some() {
            fs::write(&file, fresh).expect("written");
        } else if fresh != known {
            let diff = TextDiff::from_lines(&known, &fresh);
            differences += &diff.unified_diff().header(&name, "now").to_string();
        }
    }
    assert!(differences.is_empty(), "run with KLOOP_UPDATE_CASES=1 if this is meant:\n{differences}");
}

/// A case with the text that comes now. One with `shared:` instead has objects for all that follow.
fn answered(case: &str, name: &str, shared: &mut Vec<Value>, run: impl Fn(&Value) -> String) -> String {
    assert!(case.starts_with("# "), "{name}: a case opens with a comment that says what it shows:\n{case}");
    let (input, _) = case.split_once(&format!("\n{EXPECTED}")).unwrap_or((case.trim_end(), ""));
    let value: serde_yaml::Value =
        serde_yaml::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}\n{input}"));
    let mut value = serde_json::to_value(value).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Some(objects) = value["shared"].as_array() {
        shared.extend_from_slice(objects);
        return format!("{input}\n");
    }
    let own = value["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    value["objects"] = shared.iter().chain(own).cloned().collect();
    format!("{input}\n{EXPECTED}{}", indent(&run(&value)))
}

/// Puts two blanks before each line that is not empty.
fn indent(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }).collect()
}

/// The objects of a case, completed: an apiVersion, the namespace `default`, a uid such as `Pod-web`, and a revision.
pub fn objects(input: &Value) -> Vec<Object> {
    let listed = input["objects"].as_array().expect("objects:");
    listed.iter().map(complete).collect()
}

fn complete(body: &Value) -> Object {
    let kind = kinds::by_name(body["kind"].as_str().expect("a kind")).expect("a known kind");
    let namespace = if kind.namespaced { "default" } else { "" };
    let mut meta = json!({
        "uid": format!("{}-{}", kind.kind, body["metadata"]["name"].as_str().expect("a name")),
        "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    if kind.namespaced {
        meta["namespace"] = namespace.into();
    }
    let mut whole = json!({"apiVersion": kind.api_version(), "metadata": meta});
    json_patch::merge(&mut whole, body);
    let mut unknown = |_: UnknownField| {};
    Object((kind.normalize)(&whole, &mut unknown).expect("an object"))
}

/// A World of a case's objects.
pub fn world(input: &Value) -> World {
    let mut world = World::new(now());
    for object in objects(input) {
        let kind = kinds::by_kind(object.api_version(), object.kind()).expect("a kind");
        world.put(Key::new(kind.resource, object.namespace(), object.name()), object.0.to_string().into());
    }
    world
}

/// The texts that a case's list holds under a name.
pub fn words<'a>(input: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    input[name].as_array().into_iter().flatten().map(|word| word.as_str().expect("a text"))
}

/// The key of an object such as `pod/web`, in the namespace `default`, or `pod/web -n prod`.
pub fn key(about: &str) -> Key {
    let (about, namespace) = about.split_once(" -n ").unwrap_or((about, "default"));
    let (kind, name) = about.split_once('/').expect("KIND/NAME");
    let kind = kinds::by_name(kind).expect("a known kind");
    Key::new(kind.resource, if kind.namespaced { namespace } else { "" }, name)
}
