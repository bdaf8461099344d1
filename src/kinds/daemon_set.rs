//! DaemonSet (apps/v1).

use super::pod::defaults::{self, text};
use super::{Errors, Kind, Typed, omit, workload};
use crate::object::Object;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind =
    Kind { short: &["ds"], categories: &["all"], ..Kind::of::<DaemonSet>("daemonsets.apps", "v1", "DaemonSet") };

/// Counts the changes of the template; an annotation since apps/v1 has no field for it.
const TEMPLATE_GENERATION: [&str; 3] = ["metadata", "annotations", "deprecated.daemonset.template.generation"];

impl Typed for DaemonSet {
    fn read(&mut self, body: &Value) {
        workload::read_selector(&mut self.spec.get_or_insert_default().selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        spec.revision_history_limit.get_or_insert(10);
        let strategy = spec.update_strategy.get_or_insert_default();
        text(&mut strategy.type_, "RollingUpdate");
        if strategy.type_.as_deref() == Some("RollingUpdate") {
            let rolling = strategy.rolling_update.get_or_insert_default();
            rolling.max_unavailable.get_or_insert(IntOrString::Int(1));
            rolling.max_surge.get_or_insert(IntOrString::Int(0));
        }
        defaults::template(&mut spec.template);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        let Some(old) = old else {
            let none = json!({
                "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
            });
            new.set(&["status"], none);
            return new.set(&TEMPLATE_GENERATION, "1");
        };
        let before: i64 = old.text(&TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0);
        let changed = new.at(&["spec", "template"]) != old.at(&["spec", "template"]);
        new.set(&TEMPLATE_GENERATION, (before + i64::from(changed)).to_string());
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}
