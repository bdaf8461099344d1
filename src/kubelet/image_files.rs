//! The watched files of Image objects: their digests are written to the object's status, by which pods are restarted.
//!
//! A control plane that starts compares the files with the status, so that a change while none ran is neither missed nor acted on twice.

use super::image::MANIFEST_DIR;
use super::{builds, image_sources};
use crate::kinds::image::RESOURCE;
use crate::object::{Key, Object};
use crate::world::facts::FilePatterns;
use crate::world::{AppliedReport, Effect, Loop, Plan, Row, SourceDigests, World, WriteVerb};
use serde_json::{Value, json};

/// The loop.
pub const LOOP: Loop =
    Loop { name: "image-controller", root: RESOURCE, concerns, plan, reports: Some(reports), ..Loop::BASE };

fn reports(_world: &World, report: &AppliedReport) -> Vec<Key> {
    if let AppliedReport::Image(key) = report { vec![key.clone()] } else { Vec::new() }
}

fn concerns(_world: &World, row: &Row) -> Vec<Key> {
    Loop::owner_or_self(RESOURCE, "Image", row)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let row = world.get(key).filter(|row| !row.is_deleting());
    let object = row.map(|row| row.body());
    let files = object.as_deref().map(files).unwrap_or_default();
    let is_watching = !files.globs.is_empty();
    if world.orders.watched.get(&key.name).unwrap_or(&FilePatterns::default()) != &files {
        plan.effects.push(Effect::Watch { image: key.name.clone(), files });
        return plan;
    }
    let Some(object) = object else { return plan };
    let status = match image_sources::seen_sources(world, &key.name) {
        _ if !is_watching => Value::Null,
        None => {
            plan.wait("its watched files are being read");
            return plan;
        }
        Some(seen) => digests_as_json(seen),
    };
    let mut fresh = object.as_ref().clone();
    match status {
        Value::Null => drop(fresh.unset(&["status", "sources"])),
        status => fresh.set(&["status", "sources"], status),
    }
    let why = match builds::update_status(world, &mut fresh, &mut plan) {
        true => "its build went on",
        false => "the content of its watched files changed",
    };
    if fresh.value_at(&["status"]).unwrap_or(&Value::Null) != object.value_at(&["status"]).unwrap_or(&Value::Null) {
        plan.write(WriteVerb::Status(fresh), why);
    }
    plan
}

fn digests_as_json(sources: &SourceDigests) -> Value {
    let mut digests = json!({"digest": &*sources.digest, "files": sources.files});
    if !sources.message.is_empty() {
        digests["message"] = sources.message.as_str().into();
    }
    digests
}

/// Returns the watched files; empty for an object that names relative ones and was not applied from a folder.
fn files(object: &Object) -> FilePatterns {
    let globs = object.items(&["spec", "watch"]).iter().filter_map(|glob| glob.as_str()).map(str::to_owned);
    let folder = object.annotation(MANIFEST_DIR).unwrap_or("/").to_owned();
    let globs: Vec<String> = globs.collect();
    if globs.is_empty() { FilePatterns::default() } else { FilePatterns { folder, globs } }
}

#[cfg(test)]
mod tests {
    use super::super::image_sources::settled_sources;
    use super::*;
    use crate::object::{Resource, Time};
    use crate::world::Report;

    fn put(world: &mut World, spec: Value, status: Value) -> Key {
        let key = Key::new(Resource(RESOURCE), "", "web");
        let meta = json!({"name": "web", "uid": "u", "annotations": {MANIFEST_DIR: "/src"}});
        let object = json!({"apiVersion": "kloop.dev/v1alpha1", "kind": "Image", "metadata": meta, "spec": spec, "status": status});
        world.put(key.clone(), object.to_string().into());
        key
    }

    fn seen(world: &mut World, files: &FilePatterns, digest: &str) {
        let sources = SourceDigests { digest: digest.into(), files: 1, message: String::new() };
        world.facts.apply_report(Report::Sources { image: "web".into(), files: files.clone(), sources });
    }

    #[test]
    fn seen_files_are_written_once_and_survive_a_restart() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let spec = json!({"patterns": ["a"], "watch": ["*.py"]});
        let key = put(&mut world, spec.clone(), json!({"sources": {"digest": "old", "files": 1}}));
        let files = FilePatterns { folder: "/src".into(), globs: vec!["*.py".into()] };
        let watch = Effect::Watch { image: "web".into(), files: files.clone() };
        assert_eq!(plan(&world, &key).effects, std::slice::from_ref(&watch));
        world.note_order(&watch);
        assert!(plan(&world, &key).is_empty(), "it waits for the answer");
        assert_eq!(settled_sources(&world, "web"), None, "what stands there may be old");
        seen(&mut world, &files, "old");
        assert!(plan(&world, &key).is_empty(), "nothing has changed meanwhile");
        assert!(settled_sources(&world, "web").is_some());
        seen(&mut world, &files, "new");
        assert_eq!(settled_sources(&world, "web"), None);
        let written = plan(&world, &key).writes;
        let [WriteVerb::Status(object)] = &written.iter().map(|write| write.verb.clone()).collect::<Vec<_>>()[..]
        else {
            panic!("{written:?}")
        };
        put(&mut world, spec, object.0["status"].clone());
        assert!(plan(&world, &key).is_empty());
        assert_eq!(&*settled_sources(&world, "web").expect("settled").digest, "new");
        // Entries of files that are gone or no longer watched are removed.
        put(&mut world, json!({"patterns": ["a"]}), object.0["status"].clone());
        assert_eq!(plan(&world, &key).effects, [Effect::Watch { image: "web".into(), files: FilePatterns::default() }]);
        world.remove(&key);
        assert_eq!(plan(&world, &key).effects.len(), 1);
    }
}
