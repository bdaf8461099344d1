//! PriorityLevelConfiguration (flowcontrol.apiserver.k8s.io/v1). Stored without effect: kloop's API server has no fair
//! queuing.

use super::catalogue::merge_rules;
use super::shared::{flow_control, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    merge_rules: &merge_rules::WITH_CONDITIONS,
    status_metadata: &[],
    ..Kind::new::<PriorityLevelConfiguration>(
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        &view::table_only::PRIORITY_LEVEL,
    )
};

impl Typed for PriorityLevelConfiguration {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        if let Some(limited) = self.spec.as_mut().and_then(|spec| spec.limited.as_mut()) {
            limited.nominal_concurrency_shares.get_or_insert(30);
            limited.lendable_percent.get_or_insert(0);
            let response = limited.limit_response.as_mut();
            if let Some(queuing) = response.and_then(|response| response.queuing.as_mut()) {
                for (field, usual) in
                    [(&mut queuing.queues, 64), (&mut queuing.hand_size, 8), (&mut queuing.queue_length_limit, 50)]
                {
                    omit::empty(field);
                    field.get_or_insert(usual);
                }
            }
        }
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        if let Some(spec) = &self.spec {
            let name = self.metadata.name.as_deref().unwrap_or_default();
            flow_control::check_level(name, spec, &FieldPath::root("spec"), errors);
        }
    }
}
