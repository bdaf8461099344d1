//! APIService (apiregistration.k8s.io/v1).

use super::catalogue::merge_rules;
use super::shared::{names, omit};
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed, view};
use crate::kinds::shared::webhook;
use crate::object::Object;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec};
use serde_json::{Value, json};

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
            let is_local = new.value_at(&["spec", "service"]).is_none();
            let since = new.text(&["metadata", "creationTimestamp"]).unwrap_or_default().to_owned();
            new.set(&["status"], if is_local { local_status(&since) } else { json!({}) });
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let empty = APIServiceSpec::default();
        let spec = self.spec.as_ref().unwrap_or(&empty);
        let path = FieldPath::root("spec");
        check_name(spec, self.metadata.name.as_deref().unwrap_or_default(), &path, errors);
        for (field, number, most) in [
            ("groupPriorityMinimum", spec.group_priority_minimum, 20_000),
            ("versionPriority", spec.version_priority, 1_000),
        ] {
            if number <= 0 || number > most {
                let detail = format!("must be positive and less than {most}");
                errors.invalid(&path.child(field), number, &detail);
            }
        }
        check_server(spec, &path, errors);
    }
}

/// The status of an APIService that the server answers itself.
pub fn local_status(since: &str) -> Value {
    let mut condition = json!({
        "type": "Available", "status": "True", "reason": "Local",
        "message": "Local APIServices are always available",
    });
    if !since.is_empty() {
        condition["lastTransitionTime"] = since.into();
    }
    json!({ "conditions": [condition] })
}

fn check_name(spec: &APIServiceSpec, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let (group, version) = (spec.group.as_deref().unwrap_or_default(), spec.version.as_deref().unwrap_or_default());
    let needed = format!("{version}.{group}");
    if name != needed {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {needed:?}");
        errors.invalid(&FieldPath::root("metadata").child("name"), name, &detail);
    }
    if group.is_empty() && version != "v1" {
        errors.required(&path.child("group"), "only v1 may have an empty group and it better be legacy kube");
    }
    if !group.is_empty() {
        errors.each_invalid(&path.child("group"), group, names::subdomain(group));
    }
    errors.each_invalid(&path.child("version"), version, names::label_1035(version));
}

/// Checks the Service and how its certificate is verified.
fn check_server(spec: &APIServiceSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let bundle = spec.ca_bundle.as_ref().map_or(0, |bundle| bundle.0.len());
    let is_insecure = spec.insecure_skip_tls_verify == Some(true);
    let Some(service) = &spec.service else {
        if bundle > 0 {
            let detail = "local APIServices may not have a caBundle";
            errors.invalid(&path.child("caBundle"), format!("{bundle} bytes"), detail);
        }
        if is_insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
        }
        return;
    };
    for (field, text) in [("namespace", &service.namespace), ("name", &service.name)] {
        if text.as_deref().unwrap_or_default().is_empty() {
            errors.required(&path.child("service").child(field), "");
        }
    }
    webhook::check_service_port(service.port, &path.child("service"), errors);
    if is_insecure && bundle > 0 {
        errors.invalid(&path.child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(spec: Value) -> Vec<String> {
        let body = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.metrics.dev"}, "spec": spec});
        let mut object = Object(KIND.normalized(&body, &mut |_| {}).unwrap());
        (KIND.prepare)(&mut object, None);
        KIND.wrongs("apiregistration.k8s.io/v1", &object, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn service_and_certificates_are_checked() {
        let spec = |more: Value| {
            let mut spec =
                json!({"group": "metrics.dev", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
            json_patch::merge(&mut spec, &more);
            spec
        };
        assert_eq!(wrong(spec(json!({}))), [] as [String; 0]);
        assert_eq!(
            wrong(spec(json!({"service": {"name": "a", "namespace": "b"}, "caBundle": "YQ=="}))),
            [] as [String; 0]
        );
        let cases = [
            (
                json!({"caBundle": "YQ=="}),
                "spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle",
            ),
            (
                json!({"insecureSkipTLSVerify": true}),
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
            ),
            (json!({"service": {"name": "a"}}), "spec.service.namespace: Required value"),
            (
                json!({"service": {"name": "a", "namespace": "b", "port": 0}}),
                "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"service": {"name": "a", "namespace": "b"}, "caBundle": "YQ==", "insecureSkipTLSVerify": true}),
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            ),
            (
                json!({"versionPriority": 0}),
                "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
            ),
        ];
        for (more, expected) in cases {
            assert_eq!(wrong(spec(more)), [expected]);
        }
        assert!(
            wrong(spec(json!({"version": "v2"})))[0]
                .ends_with("must be `spec.version+\".\"+spec.group`: \"v2.metrics.dev\"")
        );
    }
}
