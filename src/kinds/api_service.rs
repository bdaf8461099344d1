//! APIService (apiregistration.k8s.io/v1).

use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed, merge_rules, omit};
use crate::object::Object;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec};
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    categories: &["api-extensions"],
    generation: false,
    unconditional_update: false,
    name_rule: NameRule::PathSegment,
    merge_rules: &merge_rules::WITH_CONDITIONS,
    status_metadata: &[],
    ..Kind::new::<APIService>("apiservices.apiregistration.k8s.io", "v1", "APIService", &view::table_only::API_SERVICE)
};

const HTTPS: i32 = 443;

impl Typed for APIService {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        if let Some(service) = self.spec.as_mut().and_then(|spec| spec.service.as_mut()) {
            service.port.get_or_insert(HTTPS);
        }
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            new.set(&["status"], json!({}));
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let empty = APIServiceSpec::default();
        let spec = self.spec.as_ref().unwrap_or(&empty);
        let (group, version) = (spec.group.as_deref().unwrap_or_default(), spec.version.as_deref().unwrap_or_default());
        let needed = format!("{version}.{group}");
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name != needed {
            let detail = "must be `spec.version+\".\"+spec.group`";
            errors.invalid(&FieldPath::root("metadata").child("name"), name, detail);
        }
        let path = FieldPath::root("spec");
        for (field, number, most) in [
            ("groupPriorityMinimum", spec.group_priority_minimum, 20_000),
            ("versionPriority", spec.version_priority, 1_000),
        ] {
            if number <= 0 || number > most {
                let detail = format!("must be positive and less than {most}");
                errors.invalid(&path.child(field), number, &detail);
            }
        }
    }
}
