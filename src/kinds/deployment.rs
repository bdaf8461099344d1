//! Deployment (apps/v1).

use super::pod::defaults::{self, text};
use super::{Errors, Kind, Typed, omit, workload};
use crate::object::Object;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["deploy"],
    categories: &["all"],
    scale: true,
    ..Kind::of::<Deployment>("deployments.apps", "v1", "Deployment")
};

impl Typed for Deployment {
    fn read(&mut self, body: &Value) {
        let spec = self.spec.get_or_insert_default();
        workload::read_selector(&mut spec.selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        omit::empty(&mut spec.paused);
        spec.replicas.get_or_insert(1);
        spec.revision_history_limit.get_or_insert(10);
        spec.progress_deadline_seconds.get_or_insert(600);
        let strategy = spec.strategy.get_or_insert_default();
        text(&mut strategy.type_, "RollingUpdate");
        if strategy.type_.as_deref() == Some("RollingUpdate") {
            let rolling = strategy.rolling_update.get_or_insert_default();
            rolling.max_surge.get_or_insert_with(|| IntOrString::String("25%".into()));
            rolling.max_unavailable.get_or_insert_with(|| IntOrString::String("25%".into()));
        }
        defaults::template(&mut spec.template);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({}));
        }
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}
