//! Tests of single writes and batches.

use super::writing::HOLD_TIME;
use super::*;
use crate::apiserver::WriteOptions;
use crate::apiserver::create::create;
use crate::kinds;
use crate::object::{Key, Object};
use crate::store::InjectedFault;
use serde_json::json;
use std::time::Instant;

#[test]
fn refused_writes_of_a_batch_are_undone_alone() {
    let mut api = Api::in_memory("test").unwrap();
    let before = api.read(|read| read.revision()).unwrap();
    let options = WriteOptions::default();
    let kind = kinds::by_name("configmaps").unwrap();
    let write = |write_txn: &mut dyn Transaction, name: &&str| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        create(write_txn, kind, &Object(body), &options)?;
        // Refused after it has written.
        if *name == "b" { Err(Status::new(Reason::Conflict, "no")) } else { Ok(()) }
    };
    for (dry_run, kept) in [(true, vec![]), (false, vec!["a", "c"])] {
        let mut names = ["a", "b", "a", "c"].into_iter().peekable();
        let mut done = Vec::new();
        while names.peek().is_some() {
            done.extend(api.write_next(dry_run, &mut names, write));
        }
        let went: Vec<bool> = done.iter().map(|(_, outcome)| outcome.is_ok()).collect();
        assert_eq!(went, [true, false, dry_run, true], "only a name that was kept is taken");
        let found = api.read_view(|write_txn| write_txn.list(kind.resource, Some("default"))).unwrap();
        let found: Vec<&str> = found.iter().map(Object::name).filter(|name| name.len() == 1).collect();
        assert_eq!(found, kept);
    }
    assert_eq!(api.read(|read| read.revision()).unwrap(), before + 2);
}

fn boats_definition(group: &str, pattern: &str) -> Object {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "pattern": pattern}}});
    Object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("boats.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    }))
}

fn create_definition(api: &mut Api, is_tried: bool, definition: &Object) {
    let kind = kinds::by_resource(DEFINITIONS).unwrap();
    api.write(is_tried, |txn| create(txn, kind, definition, &WriteOptions::default())).unwrap();
}

/// A definition of a kind whose objects have a text of this pattern, stored and known.
fn define_boats(api: &mut Api, group: &str, pattern: &str) -> &'static kinds::Kind {
    create_definition(api, false, &boats_definition(group, pattern));
    api.kinds().by_name(&format!("boats.{group}")).unwrap()
}

#[test]
fn definition_is_known_once_it_is_committed() {
    let mut api = Api::in_memory("test").unwrap();
    let known = |api: &Api| api.kinds().by_name("boats.known.dev").is_some();
    let definition = boats_definition("known.dev", "x");
    create_definition(&mut api, true, &definition);
    assert!(!known(&api), "a dry run teaches nothing");
    let kind = kinds::by_resource(DEFINITIONS).unwrap();
    let refused = api.write(false, |txn| {
        create(txn, kind, &definition, &WriteOptions::default())?;
        assert!(txn.kinds().by_name("boats.known.dev").is_some(), "the transaction sees what it wrote");
        Err::<(), _>(Status::new(Reason::Conflict, "undone"))
    });
    assert!(refused.is_err() && !known(&api));
    let mut items = [true, false].into_iter().peekable();
    let mut outcomes: Vec<bool> = Vec::new();
    // One call ends after some milliseconds, which may be after one item.
    while items.peek().is_some() {
        let done = api.write_next(false, &mut items, |txn, is_refused| {
            create(txn, kind, &definition, &WriteOptions::default())?;
            if *is_refused { Err(Status::new(Reason::Conflict, "undone")) } else { Ok(()) }
        });
        outcomes.extend(done.into_iter().map(|(_, outcome)| outcome.is_ok()));
    }
    assert_eq!((outcomes, known(&api)), (vec![false, true], true));
    api.write(false, |txn| {
        let key = Key::new(DEFINITIONS, "", "boats.known.dev");
        let last = txn.get(&key)?.unwrap();
        txn.remove(&key, last)
    })
    .unwrap();
    assert!(!known(&api), "a removed definition is forgotten");
}

#[test]
fn patterns_are_compiled_between_two_attempts_of_a_write() {
    let mut api = Api::in_memory("test").unwrap();
    let kind = define_boats(&mut api, "patterns.dev", "^first-[a-z]+$");
    let boat = |name: &str, text: &str| {
        let metadata = json!({"name": name, "namespace": "default"});
        Object(json!({"apiVersion": "patterns.dev/v1", "kind": "Boat", "metadata": metadata, "name": text}))
    };
    let options = WriteOptions::default();
    let mut attempts = Vec::new();
    for name in ["a", "b"] {
        api.write(false, |txn| {
            attempts.push(name);
            create(txn, kind, &boat(name, "first-x"), &options)
        })
        .unwrap();
    }
    assert_eq!(attempts, ["a", "a", "b"], "the first write was made again once its pattern was compiled");
    let refused = api.write(false, |txn| create(txn, kind, &boat("c", "other"), &options)).unwrap_err();
    assert_eq!(refused.reason, Reason::Invalid);
}

#[test]
fn several_writes_go_on_after_the_patterns_of_one_are_compiled() {
    let mut api = Api::in_memory("test").unwrap();
    let kind = define_boats(&mut api, "several.dev", "^second-[a-z]+$");
    let options = WriteOptions::default();
    let mut names = ["second-a", "wrong", "second-b"].into_iter().peekable();
    let mut done = Vec::new();
    while names.peek().is_some() {
        done.extend(api.write_next(false, &mut names, |txn, name: &&str| {
            let metadata = json!({"name": name, "namespace": "default"});
            let body = json!({"apiVersion": "several.dev/v1", "kind": "Boat", "metadata": metadata, "name": name});
            create(txn, kind, &Object(body), &options).map(|_| ())
        }));
    }
    let kept: Vec<(&str, bool)> = done.iter().map(|(name, outcome)| (*name, outcome.is_ok())).collect();
    assert_eq!(kept, [("second-a", true), ("wrong", false), ("second-b", true)]);
}

#[test]
fn lost_commit_fails_each_tried_write_and_skips_no_other() {
    let mut api = Api::in_memory("test").unwrap();
    let mut names = ["a", "b", "c"].into_iter().peekable();
    api.store_mut().inject_fault(Some(InjectedFault::LostCommit));
    let done = api.write_next(false, &mut names, |write_txn, name: &&str| {
        // The time of one transaction is over with the second.
        let start = Instant::now();
        while *name == "b" && start.elapsed() < HOLD_TIME {}
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        create(write_txn, kinds::by_name("configmaps").unwrap(), &Object(body), &WriteOptions::default()).map(|_| ())
    });
    assert!(done.iter().all(|(_, outcome)| outcome.is_err()));
    // On a busy machine the time may be over with the first.
    let tried: Vec<&str> = done.iter().map(|(name, _)| *name).collect();
    assert!(!tried.is_empty() && !tried.contains(&"c"), "{tried:?}");
    assert_eq!(tried.into_iter().chain(names).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn pod_with_too_many_containers_is_refused_before_admission() {
    let mut api = Api::in_memory("test").unwrap();
    let kind = kinds::by_name("pods").unwrap();
    let containers: Vec<_> = (0..1001).map(|number| json!({"name": format!("c{number}"), "image": "x"})).collect();
    // Admission would refuse the namespace, which does not exist.
    let body = Object(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big", "namespace": "nowhere"}, "spec": {"containers": containers},
    }));
    let refused = api.write(false, |txn| create(txn, kind, &body, &WriteOptions::default())).unwrap_err();
    assert_eq!(
        refused.message,
        "Pod \"big\" is invalid: spec.containers: Too many: 1001: must have at most 1000 items"
    );
}
