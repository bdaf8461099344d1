//! Delete: graceful for pods, through finalizers for all kinds.

pub use super::DeleteOptions;

use super::admission::{self, AdmissionTarget, Operation, RequestOptions};
use super::authorization::check_verb;
use super::forward::{ForwardedAction, ForwardedWrite};
use super::local_api_services;
use super::rules::names::key_of;
use super::transaction::Transaction;
use super::{ApiResult, WriteReply};
use crate::controllers::garbage_collector::{FOREGROUND, ORPHAN};
use crate::kinds::Kind;
use crate::kinds::custom::{CLEANUP, DEFINITIONS};
use crate::object::time::Shift;
use crate::object::{Key, Object, Reason, Status, Time, condition, time};
use crate::world::Propagation;
use jiff::SignedDuration;
use serde_json::Value;
use std::sync::Arc;

/// Deletes an object, or marks it: `changed` in the answer is false when it only was marked further.
pub fn delete(txn: &mut dyn Transaction, kind: &Kind, key: &Key, options: &DeleteOptions) -> ApiResult<WriteReply> {
    let write = ForwardedWrite::from_key(kind, key, options.api_version.as_ref(), "", ForwardedAction::Delete(options));
    if let Some(reply) = txn.forward(&write) {
        return reply;
    }
    check_verb(txn, "delete", "", key)?;
    let old = txn.get_shared(key)?.ok_or_else(|| Status::not_found(key.resource, &key.name))?;
    check_preconditions(kind, &old, options)?;
    let mut warnings = Vec::new();
    admit(txn, (kind, key), &old, options, &mut warnings)?;
    mark_or_remove(txn, (kind, key), old, options, warnings)
}

/// Asks admission for a deletion.
fn admit(
    txn: &mut dyn Transaction,
    (kind, key): (&Kind, &Key),
    old: &Object,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let newest = kind.api_version();
    let api_version = options.api_version.as_deref().unwrap_or(&newest);
    let (operation, options) = (Operation::Delete, RequestOptions::Delete(options));
    let target = AdmissionTarget { operation, kind, api_version, subresource: "", key, options };
    let mut nothing = Object(Value::Null);
    let mut request = target.request(txn, &mut nothing, Some(old), warnings);
    admission::admit(txn, &mut request)
}

/// Deletes an object whose deletion was authorized and admitted in another form: an eviction.
pub(super) fn delete_admitted(
    txn: &mut dyn Transaction,
    (kind, key): (&Kind, &Key),
    options: &DeleteOptions,
    warnings: Vec<String>,
) -> ApiResult<WriteReply> {
    let old = txn.get_shared(key)?.ok_or_else(|| Status::not_found(key.resource, &key.name))?;
    check_preconditions(kind, &old, options)?;
    mark_or_remove(txn, (kind, key), old, options, warnings)
}

/// Removes a pod that a deletion with [`DeleteOptions::only_marks`] has marked, if nothing else keeps it; none when it is gone already.
pub fn remove_marked(txn: &mut dyn Transaction, kind: &Kind, marked: &Object) -> ApiResult<Option<WriteReply>> {
    let key = key_of(kind, marked);
    let Some(old) = txn.get_shared(&key)?.filter(|old| old.uid() == marked.uid() && is_due(kind, old)) else {
        return Ok(None);
    };
    mark_or_remove(txn, (kind, &key), old, &DeleteOptions::default(), Vec::new()).map(Some)
}

/// Carries out a deletion.
fn mark_or_remove(
    txn: &mut dyn Transaction,
    (kind, key): (&Kind, &Key),
    old: Arc<Object>,
    options: &DeleteOptions,
    warnings: Vec<String>,
) -> ApiResult<WriteReply> {
    let mut object = Object::clone(&old);
    let grace = grace_of(kind, &object, options);
    let first = object.deletion().is_none();
    if first && kind.resource == DEFINITIONS {
        mark_definition(&mut object, txn.now());
    } else {
        if let Some(propagation) = options.propagation {
            set_propagation(&mut object, propagation);
        }
        match first {
            true => mark(txn, kind, &mut object, grace),
            false => shorten(&mut object, grace, txn.now()),
        }
    }
    let stays_marked = first && options.only_marks && kind.resource == "pods";
    if is_due(kind, &object) && !stays_marked {
        // An object that is removed at once never had a deletion timestamp; only pods do, even without grace. Watchers see them marked
        // before they are gone: LeaderWorkerSet, for one, acts only on the mark.
        let last = match (first, kind.resource.0) {
            (true, "pods") => Object::clone(&*txn.put(key, object)?),
            (true, _) => Object::clone(&old),
            (false, _) => object,
        };
        let removed = match local_api_services::remake(txn, key, &last)? {
            Some(deleted) => deleted.into(),
            None => txn.remove(key, last)?,
        };
        return Ok(WriteReply::changed(removed, warnings));
    }
    if object == *old {
        return Ok(WriteReply::unchanged(old, warnings));
    }
    Ok(WriteReply::changed(txn.put(key, object)?, warnings))
}

/// Whether an object that is being deleted has nothing left to wait for: no finalizer, no grace.
pub fn is_due(kind: &Kind, object: &Object) -> bool {
    let waits_for_grace = object.int(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0) > 0;
    let namespace_content = kind.resource == "namespaces" && !object.items(&["spec", "finalizers"]).is_empty();
    object.deletion().is_some() && object.finalizers().is_empty() && !waits_for_grace && !namespace_content
}

/// Kubernetes: `rest.BeforeDelete`. Its conflict names the kind where all others name the resource.
pub(super) fn check_preconditions(kind: &Kind, old: &Object, options: &DeleteOptions) -> ApiResult<()> {
    let refuse = |what: &str, wanted: &str, actual: &str, after: &str| {
        let group = kind.resource.group();
        let about = if group.is_empty() { kind.kind.to_owned() } else { format!("{}.{group}", kind.kind) };
        let message = format!(
            "Operation cannot be fulfilled on {about} {:?}: the {what} in the precondition ({wanted}) does not match the {what} in \
             record ({actual}). The object might have been {after}",
            old.name()
        );
        let status = Status::new(Reason::Conflict, message);
        Err(Status { name: old.name().into(), kind: kind.kind.into(), group: group.into(), ..status })
    };
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != old.uid()) {
        return refuse("UID", uid, old.uid(), "deleted and then recreated");
    }
    let actual = old.text(&["metadata", "resourceVersion"]).unwrap_or_default();
    match options.revision.as_deref().filter(|revision| *revision != actual) {
        Some(revision) => refuse("ResourceVersion", revision, actual, "modified"),
        None => Ok(()),
    }
}

/// Returns the propagation policy that a kind has for clients, where neither the request nor the object's finalizers name one.
pub fn default_propagation(kind: &Kind, object: &Object) -> Option<Propagation> {
    let is_named = object.has_finalizer(FOREGROUND) || object.has_finalizer(ORPHAN);
    (kind.orphans_dependents && !is_named).then_some(Propagation::Orphan)
}

/// Replaces the finalizers of foreground and orphan deletion by the one that was asked for. The garbage collector removes it.
fn set_propagation(object: &mut Object, propagation: Propagation) {
    object.remove_finalizer(FOREGROUND);
    object.remove_finalizer(ORPHAN);
    match propagation {
        Propagation::Background => (),
        Propagation::Foreground => object.add_finalizer(FOREGROUND),
        Propagation::Orphan => object.add_finalizer(ORPHAN),
    }
}

/// Marks a definition as being deleted; it stays until its objects are gone. As in Kubernetes, the mark differs from that of other kinds:
/// it has a condition and no grace period, and does not depend on the propagation policy.
fn mark_definition(object: &mut Object, now: Time) {
    object.add_finalizer(CLEANUP);
    object.set(&["metadata", "deletionTimestamp"], time::rfc3339(now));
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    object.set_condition(condition::new("Terminating", "True", "InstanceDeletionPending", message, now));
}

/// The grace period of a deletion. Only pods with a node have one; the node's kubelet ends it (`pkg/registry/core/pod`:
/// CheckGracefulDelete).
fn grace_of(kind: &Kind, object: &Object, options: &DeleteOptions) -> i64 {
    if kind.resource != "pods" {
        return 0;
    }
    let unbound = object.text(&["spec", "nodeName"]).is_none_or(str::is_empty);
    let ended = matches!(object.text(&["status", "phase"]), Some("Succeeded" | "Failed"));
    if unbound || ended {
        return 0;
    }
    let own = object.int(&["spec", "terminationGracePeriodSeconds"]).unwrap_or(30);
    match options.grace.unwrap_or(own) {
        negative if negative < 0 => 1,
        grace => grace,
    }
}

fn mark(txn: &dyn Transaction, kind: &Kind, object: &mut Object, grace: i64) {
    let at = txn.now().later(SignedDuration::from_secs(grace));
    object.set(&["metadata", "deletionTimestamp"], time::rfc3339(at));
    object.set(&["metadata", "deletionGracePeriodSeconds"], grace);
    if kind.generation {
        object.set(&["metadata", "generation"], object.generation() + 1);
    }
    if kind.resource == "namespaces" {
        object.set(&["status", "phase"], "Terminating");
    }
}

/// A later delete may only shorten the grace.
fn shorten(object: &mut Object, grace: i64, now: Time) {
    let known = object.int(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let Some(asked) = object.deletion().filter(|_| grace < known) else { return };
    // A grace period beyond the range of times was cut, so the time of the deletion request cannot be computed from it.
    let start = Some(asked.earlier(SignedDuration::from_secs(known)));
    let start = start.filter(|start| object.created().is_none_or(|created| created <= *start)).unwrap_or(now);
    let at = start.later(SignedDuration::from_secs(grace));
    object.set(&["metadata", "deletionTimestamp"], time::rfc3339(at));
    object.set(&["metadata", "deletionGracePeriodSeconds"], grace);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::{Api, WriteOptions, create::create};
    use crate::kinds;
    use crate::object::Resource;
    use crate::store::LogEntry;
    use serde_json::json;

    #[test]
    fn given_propagation_policy_replaces_the_finalizers_of_the_others() {
        for (finalizer, policy, left) in [
            (ORPHAN, None, "a.b/keep orphan"),
            (ORPHAN, Some(Propagation::Orphan), "a.b/keep orphan"),
            (ORPHAN, Some(Propagation::Foreground), "a.b/keep foregroundDeletion"),
            (ORPHAN, Some(Propagation::Background), "a.b/keep"),
            (FOREGROUND, Some(Propagation::Orphan), "a.b/keep orphan"),
            (FOREGROUND, Some(Propagation::Background), "a.b/keep"),
        ] {
            let mut api = Api::in_memory("test").unwrap();
            let kind = kinds::by_name("configmaps").unwrap();
            let finalizers = json!(["a.b/keep", finalizer]);
            let body = Object(json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "default", "finalizers": finalizers}}));
            api.write(false, |txn| create(txn, kind, &body, &WriteOptions::default())).unwrap();
            let key = Key::new(Resource("configmaps"), "default", "a");
            let options = DeleteOptions { propagation: policy, ..DeleteOptions::default() };
            let reply = api.write(false, |txn| delete(txn, kind, &key, &options)).unwrap();
            assert_eq!(reply.object.finalizers().join(" "), left, "{finalizer} {policy:?}");
        }
    }

    #[test]
    fn pod_without_grace_is_marked_before_it_is_removed() {
        let mut api = Api::in_memory("test").unwrap();
        let body = Object(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}));
        let kind = kinds::by_name("pods").unwrap();
        let made = api.write(false, |txn| create(txn, kind, &body, &WriteOptions::default())).unwrap();
        let key = Key::new(Resource("pods"), "default", "a");
        let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        api.write(false, |txn| delete(txn, kind, &key, &options)).unwrap();
        let entries = api.read(|snapshot| snapshot.log_after(made.object.revision(), 10)).unwrap();
        let marks = |entry: &LogEntry| {
            let object = Object(serde_json::from_str(&entry.change.stored().body).unwrap());
            (entry.change.live().is_some(), object.deletion().is_some())
        };
        assert_eq!(entries.iter().map(marks).collect::<Vec<_>>(), [(true, true), (false, true)]);
    }

    #[test]
    fn pod_that_is_only_marked_is_removed_in_a_second_step() {
        let mut api = Api::in_memory("test").unwrap();
        let kind = kinds::by_name("pods").unwrap();
        let options = DeleteOptions { only_marks: true, ..DeleteOptions::default() };
        for (name, finalizers) in [("a", json!([])), ("b", json!(["x.y/z"]))] {
            let body = Object(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "finalizers": finalizers},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}));
            api.write(false, |txn| create(txn, kind, &body, &WriteOptions::default())).unwrap();
            let key = Key::new(Resource("pods"), "default", name);
            let marked = api.write(false, |txn| delete(txn, kind, &key, &options)).unwrap().object;
            assert_eq!(marked.int(&["metadata", "deletionGracePeriodSeconds"]), Some(0));
            assert!(api.read_view(|txn| txn.get(&key)).unwrap().is_some(), "{name}");
            let is_kept = name == "b";
            for is_first in [true, false] {
                let removed = api.write(false, |txn| remove_marked(txn, kind, &marked)).unwrap();
                assert_eq!(removed.is_some(), is_first && !is_kept, "{name}");
                assert_eq!(api.read_view(|txn| txn.get(&key)).unwrap().is_some(), is_kept, "{name}");
            }
        }
    }

    #[test]
    fn shortened_grace_counts_from_the_deletion_if_that_is_known() {
        let now: Time = "2026-01-01T00:10:00Z".parse().unwrap();
        for (end, known, wanted) in [
            // Asked for at 00:09:00.
            ("2026-01-01T00:10:30Z", 90, "2026-01-01T00:09:05Z"),
            ("9999-12-30T22:00:00Z", i64::MAX, "2026-01-01T00:10:05Z"),
        ] {
            let mut pod = Object(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": end, "deletionGracePeriodSeconds": known}}));
            shorten(&mut pod, 5, now);
            assert_eq!(pod.text(&["metadata", "deletionTimestamp"]), Some(wanted));
            assert_eq!(pod.int(&["metadata", "deletionGracePeriodSeconds"]), Some(5));
        }
    }
}
