//! FlowSchema (flowcontrol.apiserver.k8s.io/v1). Without effect, but for its condition Dangling: the API server has no fair queuing by it.

use super::catalogue::merge_rules;
use super::shared::{flow_control, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    merge_rules: &merge_rules::WITH_CONDITIONS,
    status_metadata: &[],
    ..Kind::new::<FlowSchema>(
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "v1",
        "FlowSchema",
        &view::table_only::FLOW_SCHEMA,
    )
};

impl Typed for FlowSchema {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let precedence = &mut self.spec.get_or_insert_default().matching_precedence;
        omit::empty(precedence);
        precedence.get_or_insert(1000);
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        if let Some(spec) = &self.spec {
            let name = self.metadata.name.as_deref().unwrap_or_default();
            flow_control::check_schema(name, spec, &FieldPath::root("spec"), errors);
        }
    }
}
