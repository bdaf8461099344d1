//! IngressClass (networking.k8s.io/v1).

use super::shared::{names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::networking::v1::{IngressClass, IngressClassSpec};

const MAX_CONTROLLER_BYTES: usize = 250;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    ..Kind::new::<IngressClass>("ingressclasses.networking.k8s.io", "v1", "IngressClass", &view::ingress::CLASS)
};

impl Typed for IngressClass {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.controller);
        if let Some(parameters) = &mut spec.parameters {
            parameters.scope.get_or_insert_with(|| "Cluster".to_owned());
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let Some(spec) = &self.spec else { return };
        let path = FieldPath::root("spec");
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            let controller = |spec: &IngressClassSpec| spec.controller.clone().unwrap_or_default();
            errors.immutable(&path.child("controller"), &controller(spec), &controller(old));
        }
        let controller = spec.controller.as_deref().unwrap_or_default();
        if controller.len() > MAX_CONTROLLER_BYTES {
            errors.too_long(&path.child("controller"), MAX_CONTROLLER_BYTES);
        }
        check_domain_path(controller, &path.child("controller"), errors);
        if let Some(parameters) = &spec.parameters {
            let path = path.child("parameters");
            if let Some(group) = &parameters.api_group {
                errors.each_invalid(&path.child("apiGroup"), group.as_str(), names::subdomain(group));
            }
            for (field, value) in [("kind", &parameters.kind), ("name", &parameters.name)] {
                if value.is_empty() {
                    errors.required(&path.child(field), "");
                } else {
                    errors.each_invalid(&path.child(field), value.as_str(), names::path_segment(value));
                }
            }
            match parameters.scope.as_deref() {
                Some("Namespace") if parameters.namespace.is_none() => {
                    let detail = "`parameters.scope` is set to 'Namespace'";
                    errors.required(&path.child("namespace"), detail);
                }
                Some("Cluster") if parameters.namespace.is_some() => {
                    errors.forbidden(&path.child("namespace"), "`parameters.scope` is set to 'Cluster'");
                }
                Some("Namespace") => {
                    let name = parameters.namespace.as_deref().unwrap_or_default();
                    errors.each_invalid(&path.child("namespace"), name, names::label(name));
                }
                None | Some("Cluster") => {}
                Some(other) => errors.unsupported(&path.child("scope"), other, &["Cluster", "Namespace"]),
            }
        }
    }
}

/// Checks a domain-prefixed path such as `example.com/name`.
fn check_domain_path(text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match text.split_once('/') {
        None if text.is_empty() => errors.required(path, ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            errors.each_invalid(path, host, names::subdomain(host));
        }
        _ => errors.invalid(path, text, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}
