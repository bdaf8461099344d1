//! ReplicaSet (apps/v1).

use super::pod::defaults;
use super::{Errors, Kind, Typed, omit, workload};
use crate::object::Object;
use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["rs"],
    categories: &["all"],
    scale: true,
    ..Kind::of::<ReplicaSet>("replicasets.apps", "v1", "ReplicaSet")
};

impl Typed for ReplicaSet {
    fn read(&mut self, body: &Value) {
        workload::read_selector(&mut self.spec.get_or_insert_default().selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        spec.replicas.get_or_insert(1);
        defaults::template(spec.template.get_or_insert_default());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({"replicas": 0}));
        }
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}
