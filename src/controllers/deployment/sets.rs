//! A Deployment's ReplicaSets: their planned sizes, and the annotations with revision and desired replicas.

use super::Rollout;
use crate::kinds::deployment::{DESIRED_REPLICAS, MAX_REPLICAS, POD_TEMPLATE_HASH, REVISION, REVISION_HISTORY};
use crate::object::LAST_APPLIED;
use crate::object::Object;
use crate::world::{ReplicaStatus, Row, WorkloadFields};
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum length of the revision history, in bytes.
const HISTORY_LENGTH: usize = 2000;

/// Annotations of a Deployment that are not copied to its sets.
const NOT_SHARED: &[&str] =
    &[LAST_APPLIED, "deprecated.deployment.rollback.to", REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS];

/// Whether a Deployment shares an annotation with its sets.
pub(super) fn is_shared_annotation(key: &str) -> bool {
    !NOT_SHARED.contains(&key)
}

/// A ReplicaSet with its planned changes.
pub(super) struct ReplicaSetState<'w> {
    pub row: &'w Arc<Row>,
    /// The planned `spec.replicas`.
    pub replicas: i64,
    object: Object,
    edited: Option<String>,
}

impl<'w> ReplicaSetState<'w> {
    pub fn new(row: &'w Arc<Row>) -> ReplicaSetState<'w> {
        let replicas = row.workload().map_or(0, |fields| fields.replicas);
        ReplicaSetState { row, replicas, object: row.object(), edited: None }
    }

    pub fn fields(&self) -> Option<&'w WorkloadFields> {
        self.row.workload()
    }

    pub fn counts(&self) -> ReplicaStatus {
        self.fields().map(|fields| fields.counts).unwrap_or_default()
    }

    /// Number of available pods, at most the planned `replicas`, since the status may still count pods to be deleted.
    pub fn available(&self) -> i64 {
        self.counts().available.min(self.replicas)
    }

    pub fn is_empty(&self) -> bool {
        let object = self.object();
        let observed = object.int(&["status", "observedGeneration"]).unwrap_or(0);
        self.replicas == 0 && self.counts().replicas == 0 && observed >= self.row.generation
    }

    pub fn object(&self) -> &Object {
        &self.object
    }

    pub fn revision(&self) -> i64 {
        self.number(REVISION).unwrap_or(0)
    }

    pub fn desired(&self) -> Option<i64> {
        self.number(DESIRED_REPLICAS)
    }

    pub fn max(&self) -> Option<i64> {
        self.number(MAX_REPLICAS)
    }

    fn number(&self, annotation: &str) -> Option<i64> {
        self.object().annotation(annotation)?.parse().ok()
    }

    /// Copies the Deployment's annotations, except [`NOT_SHARED`].
    pub fn share_annotations(&mut self, deployment: &Object) {
        for (key, value) in deployment.pairs(&["metadata", "annotations"]) {
            if is_shared_annotation(key) {
                self.annotate(key, value, "its Deployment's annotations changed");
            }
        }
    }

    /// Gives the ReplicaSet the newest revision, and records its former revision in the history.
    pub fn raise_revision(&mut self, revision: i64) {
        let before = self.revision();
        if before >= revision {
            return;
        }
        if self.object().annotation(REVISION).is_some() {
            let known = self.object().annotation(REVISION_HISTORY).unwrap_or_default();
            let mut history: Vec<String> = known.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
            history.push(before.to_string());
            while history.len() > 1 && history.join(",").len() > HISTORY_LENGTH {
                history.remove(0);
            }
            self.annotate(REVISION_HISTORY, &history.join(","), "an earlier template returned");
        }
        self.annotate(REVISION, &revision.to_string(), "it is the newest revision");
    }

    pub fn require_min_ready(&mut self, seconds: i64) {
        if self.object().int(&["spec", "minReadySeconds"]).unwrap_or(0) != seconds {
            let object = self.edit("minReadySeconds changed");
            if seconds == 0 {
                object.unset(&["spec", "minReadySeconds"]);
            } else {
                object.set(&["spec", "minReadySeconds"], seconds);
            }
        }
    }

    /// Sets the size and the annotations with desired and maximum replicas.
    pub fn size(&mut self, replicas: i64, desired: i64, surge: i64) {
        if self.replicas != replicas {
            let why = format!("scaled from {} to {replicas}", self.replicas);
            self.edit(&why).set(&["spec", "replicas"], replicas);
            self.replicas = replicas;
        }
        self.annotate(DESIRED_REPLICAS, &desired.to_string(), "it was sized for another number of replicas");
        self.annotate(MAX_REPLICAS, &(desired + surge).to_string(), "it was sized for another number of replicas");
    }

    fn annotate(&mut self, key: &str, value: &str, why: &str) {
        if self.object().annotation(key) != Some(value) {
            self.edit(why).set(&["metadata", "annotations", key], value);
        }
    }

    fn edit(&mut self, why: &str) -> &mut Object {
        self.edited.get_or_insert_with(|| why.to_owned());
        &mut self.object
    }

    /// Returns the object to write and the reason, if it changed.
    pub fn take_edit(&mut self) -> Option<(Object, String)> {
        let why = self.edited.take()?;
        Some((self.object.clone(), why))
    }
}

/// Creates a ReplicaSet with the template, its hash in labels, selector and name, and the next revision.
pub(super) fn new_replica_set(rollout: &Rollout, template: Value, hash: &str, name: &str, replicas: i64) -> Object {
    let owner = &rollout.owner;
    let mut template = Object(template);
    let mut selector = Object(rollout.object.value_at(&["spec", "selector"]).cloned().unwrap_or(Value::Null));
    selector.set(&["matchLabels", POD_TEMPLATE_HASH], hash);
    template.set(&["metadata", "labels", POD_TEMPLATE_HASH], hash);
    let mut annotations = serde_json::Map::new();
    for (key, value) in rollout.object.pairs(&["metadata", "annotations"]).filter(|(key, _)| is_shared_annotation(key))
    {
        annotations.insert(key.into(), value.into());
    }
    let spec = &rollout.spec;
    annotations.insert(REVISION.into(), rollout.next_revision().to_string().into());
    annotations.insert(DESIRED_REPLICAS.into(), spec.replicas.to_string().into());
    annotations.insert(MAX_REPLICAS.into(), (spec.replicas + spec.surge).to_string().into());
    let mut set = Object(json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": *owner.row.key.namespace,
            "labels": template.0["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [owner.reference().to_value()],
        },
        "spec": { "replicas": replicas, "selector": selector.0, "template": template.0 },
    }));
    if spec.min_ready > 0 {
        set.set(&["spec", "minReadySeconds"], spec.min_ready);
    }
    set
}
