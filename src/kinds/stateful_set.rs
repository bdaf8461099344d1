//! StatefulSet (apps/v1).

use super::pod::defaults::{self, text};
use super::{Errors, Kind, Typed, omit, workload};
use crate::object::Object;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["sts"],
    categories: &["all"],
    scale: true,
    ..Kind::of::<StatefulSet>("statefulsets.apps", "v1", "StatefulSet")
};

impl Typed for StatefulSet {
    fn read(&mut self, body: &Value) {
        workload::read_selector(&mut self.spec.get_or_insert_default().selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        omit::empty(&mut spec.volume_claim_templates);
        text(&mut spec.pod_management_policy, "OrderedReady");
        spec.service_name.get_or_insert_default();
        spec.replicas.get_or_insert(1);
        spec.revision_history_limit.get_or_insert(10);
        let strategy = spec.update_strategy.get_or_insert_default();
        text(&mut strategy.type_, "RollingUpdate");
        if strategy.type_.as_deref() == Some("RollingUpdate") {
            strategy.rolling_update.get_or_insert_default().partition.get_or_insert(0);
        }
        let retention = spec.persistent_volume_claim_retention_policy.get_or_insert_default();
        text(&mut retention.when_deleted, "Retain");
        text(&mut retention.when_scaled, "Retain");
        spec.volume_claim_templates.iter_mut().flatten().for_each(claim);
        defaults::template(&mut spec.template);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({"replicas": 0, "availableReplicas": 0}));
        }
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}

/// A claim template is stored as a whole claim.
fn claim(claim: &mut PersistentVolumeClaim) {
    omit::metadata(&mut claim.metadata);
    claim.status.get_or_insert_default().phase.get_or_insert_with(|| "Pending".into());
    let spec = claim.spec.get_or_insert_default();
    spec.resources.get_or_insert_default();
    spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
}
