//! ControllerRevisions: the former templates of StatefulSets and DaemonSets, for `rollout undo`.

use super::controller_ref::Owner;
use super::pods::template_hash;
use super::status;
use crate::object::Object;
use crate::world::{Plan, Row, World, WriteVerb};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The resource of ControllerRevisions.
pub const REVISIONS: &str = "controllerrevisions.apps";
/// Label on pods with the hash of their revision.
pub const REVISION_HASH: &str = "controller-revision-hash";

/// The revisions of one object, oldest first; the last has the current template.
pub struct History {
    /// Contains at least one revision.
    revisions: Vec<Object>,
}

/// Creates or renumbers the revision of the object's template among the claimed ones, so that it is the newest. `None`
/// when its name belongs to a revision with another template; then the caller increments `collisionCount`
/// ([`count_collision`]).
pub fn sync_revisions(
    world: &World,
    owner: &Owner,
    object: &Object,
    claimed: &[&Arc<Row>],
    plan: &mut Plan,
) -> Option<History> {
    let mut template = Object(object.value_at(&["spec", "template"]).cloned().unwrap_or(Value::Null));
    template.set(&["$patch"], "replace");
    let data = json!({ "spec": { "template": template.0 } });
    let mut revisions: Vec<Object> = claimed.iter().map(|row| row.object()).collect();
    revisions.sort_by(|a, b| (number(a), a.name()).cmp(&(number(b), b.name())));
    let next = revisions.last().map_or(1, |last| number(last) + 1);
    match revisions.iter().rposition(|revision| revision.value_at(&["data"]) == Some(&data)) {
        Some(at) if at + 1 == revisions.len() => {}
        Some(at) => {
            let mut returned = revisions.remove(at);
            returned.set(&["revision"], next);
            plan.write(WriteVerb::Update(returned.clone()), "an earlier template returned");
            revisions.push(returned);
        }
        None => {
            let hash = template_hash(&data, object.int(&["status", "collisionCount"]));
            let revision = new_revision(owner, object, data, &hash, next);
            match world.find(REVISIONS, &owner.row.key.namespace, revision.name()).map(|row| row.object()) {
                None => plan.write(WriteVerb::Create(revision.clone()), "the template is new"),
                // For example that of a deleted owner of this name, which is not collected yet.
                Some(known) if known.value_at(&["data"]) == revision.value_at(&["data"]) => {}
                Some(_) => return None,
            }
            revisions.push(revision);
        }
    }
    Some(History { revisions })
}

/// Increments `collisionCount`, so that the next plan tries another hash.
pub fn count_collision(object: Object, plan: &mut Plan) {
    let mut new = status::status_map(&object);
    let count = object.int(&["status", "collisionCount"]).unwrap_or(0) + 1;
    new.insert("collisionCount".into(), count.into());
    status::write(plan, object, new.into(), "the revision's name is taken");
}

fn new_revision(owner: &Owner, object: &Object, data: Value, hash: &str, number: i64) -> Object {
    let pairs = |path: &[&str]| -> Map<String, Value> {
        object.pairs(path).map(|(key, value)| (key.to_owned(), value.into())).collect()
    };
    let mut labels = pairs(&["spec", "template", "metadata", "labels"]);
    let label = if owner.kind == "DaemonSet" { REVISION_HASH } else { "controller.kubernetes.io/hash" };
    labels.insert(label.into(), hash.into());
    let mut revision = Object(json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{}-{hash}", owner.row.key.name),
            "namespace": *owner.row.key.namespace,
            "labels": labels,
            "ownerReferences": [owner.reference().to_value()],
        },
        "data": data,
        "revision": number,
    }));
    let annotations = pairs(&["metadata", "annotations"]);
    if !annotations.is_empty() {
        revision.set(&["metadata", "annotations"], annotations);
    }
    revision
}

fn number(revision: &Object) -> i64 {
    revision.int(&["revision"]).unwrap_or(0)
}

impl History {
    /// The revision of the object's template.
    pub fn newest(&self) -> &Object {
        &self.revisions[self.revisions.len() - 1]
    }

    /// A revision by name.
    pub fn find(&self, name: &str) -> Option<&Object> {
        self.revisions.iter().find(|revision| revision.name() == name)
    }

    /// The hash in the newest revision's name.
    pub fn newest_hash<'a>(&'a self, owner: &Owner) -> &'a str {
        let name = self.newest().name();
        name.get(owner.row.key.name.len() + 1..).unwrap_or(name)
    }

    /// Deletes the oldest revisions without pods beyond the limit.
    pub fn truncate(&self, world: &World, owner: &Owner, limit: i64, live: &BTreeSet<String>, plan: &mut Plan) {
        let old: Vec<&Object> = self.revisions[..self.revisions.len() - 1]
            .iter()
            .filter(|revision| {
                !live.iter().any(|live| revision.name() == live || revision.name().ends_with(&format!("-{live}")))
            })
            .collect();
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for revision in &old[..excess] {
            if let Some(row) = world.find(REVISIONS, &owner.row.key.namespace, revision.name()) {
                plan.delete(row, format!("more than {limit} old revisions"));
            }
        }
    }
}

/// The template of a revision.
pub fn template(revision: &Object) -> Value {
    let mut template = revision.value_at(&["data", "spec", "template"]).cloned().unwrap_or(Value::Null);
    if let Some(map) = template.as_object_mut() {
        map.remove("$patch");
    }
    template
}
