//! Ingress (networking.k8s.io/v1).

use super::catalogue::{shapes, typed};
use super::shared::{load_balancer, names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, Ingress, IngressBackend, IngressLoadBalancerIngress, IngressRule, IngressServiceBackend,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["ing"],
    warnings,
    shape: &SHAPE,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<Ingress>("ingresses.networking.k8s.io", "v1", "Ingress", &view::ingress::VIEW)
};

static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&shapes::SERVICE_STATUS))),
]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("defaultBackend", shapes::map(&BACKEND_SHAPE))]);
static BACKEND_SHAPE: StructShape = StructShape::new(&[("resource", shapes::ATOMIC)]);

/// The annotation by which older Ingresses name their class.
pub const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

fn warnings(ingress: &Object) -> Vec<String> {
    let old = ingress.annotation(CLASS_ANNOTATION).is_some() && ingress.text(&["spec", "ingressClassName"]).is_none();
    let text = format!("annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead");
    old.then_some(text).into_iter().collect()
}

impl Typed for Ingress {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.rules);
        omit::empty(&mut spec.tls);
        for rule in spec.rules.iter_mut().flatten() {
            omit::empty(&mut rule.host);
            for path in rule.http.iter_mut().flat_map(|http| &mut http.paths) {
                omit::empty(&mut path.path);
            }
        }
        self.status.get_or_insert_default().load_balancer.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({"loadBalancer": {}}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let spec = self.spec.clone().unwrap_or_default();
        let annotated = self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CLASS_ANNOTATION));
        if old.is_none() && annotated && spec.ingress_class_name.is_some() {
            let path = FieldPath::root("annotations").child(CLASS_ANNOTATION);
            let class = self.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_ANNOTATION));
            errors.invalid(&path, json!(class), "can not be set when the class field is also set");
        }
        let path = FieldPath::root("spec");
        let rules = spec.rules.as_deref().unwrap_or_default();
        if rules.is_empty() && spec.default_backend.is_none() {
            errors.invalid(&path, Value::Null, "either `defaultBackend` or `rules` must be specified");
        }
        if let Some(backend) = &spec.default_backend {
            check_backend(backend, &path.child("defaultBackend"), errors);
        }
        for (index, rule) in rules.iter().enumerate() {
            check_rule(rule, &path.child("rules").index(index), errors);
        }
        for (index, tls) in spec.tls.iter().flatten().enumerate() {
            let path = path.child("tls").index(index);
            for (index, host) in tls.hosts.iter().flatten().enumerate() {
                check_host(host, &path.child("hosts").index(index), errors);
            }
            if let Some(secret) = tls.secret_name.as_deref().filter(|secret| !secret.is_empty()) {
                errors.each_invalid(&path.child("secretName"), secret, names::subdomain(secret));
            }
        }
        if let Some(class) = &spec.ingress_class_name {
            errors.each_invalid(&path.child("ingressClassName"), class.as_str(), names::subdomain(class));
        }
    }
}

fn check_status(new: &Ingress, old: &Ingress, errors: &mut FieldErrors) {
    let path = FieldPath::root("status").child("loadBalancer").child("ingress");
    let known: BTreeSet<&str> = ingress_points(old).filter_map(|point| point.ip.as_deref()).collect();
    for (index, point) in ingress_points(new).enumerate() {
        let path = path.index(index);
        load_balancer::check_address(point.ip.as_deref(), &known, &path, errors);
        load_balancer::check_host_name(point.hostname.as_deref(), &path, errors);
    }
}

fn ingress_points(ingress: &Ingress) -> impl Iterator<Item = &IngressLoadBalancerIngress> {
    let balancer = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.into_iter().flat_map(|balancer| balancer.ingress.iter().flatten())
}

fn check_rule(rule: &IngressRule, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(host) = &rule.host {
        if host.parse::<std::net::IpAddr>().is_ok() {
            errors.invalid(&path.child("host"), host.as_str(), "must be a DNS name, not an IP address");
        }
        check_host(host, &path.child("host"), errors);
    }
    let Some(http) = &rule.http else { return };
    let path = path.child("http").child("paths");
    if http.paths.is_empty() {
        errors.required(&path, "");
    }
    for (index, entry) in http.paths.iter().enumerate() {
        check_path(entry, &path.index(index), errors);
    }
}

fn check_host(host: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let problems = if host.contains('*') { names::wildcard_subdomain(host) } else { names::subdomain(host) };
    errors.each_invalid(path, host, problems);
}

fn check_path(entry: &HTTPIngressPath, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, text) = (path.child("path"), entry.path.as_deref().unwrap_or_default());
    match entry.path_type.as_str() {
        "" => return errors.required(&path.child("pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errors.invalid(&at, text, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| text.contains(**part)) {
                errors.invalid(&at, text, &format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].iter().filter(|end| text.ends_with(**end)) {
                errors.invalid(&at, text, &format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.invalid(&at, text, "must be an absolute path");
            }
        }
        other => {
            errors.unsupported(&path.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]);
        }
    }
    check_backend(&entry.backend, &path.child("backend"), errors);
}

fn check_backend(backend: &IngressBackend, path: &FieldPath, errors: &mut FieldErrors) {
    match (&backend.service, &backend.resource) {
        (Some(_), Some(_)) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (None, None) => errors.invalid(path, "", "resource or service backend is required"),
        (Some(service), None) => check_service(service, path, errors),
        (None, Some(resource)) => {
            let path = path.child("resource");
            if let Some(group) = &resource.api_group {
                errors.each_invalid(&path.child("apiGroup"), group.as_str(), names::subdomain(group));
            }
            for (field, value) in [("kind", &resource.kind), ("name", &resource.name)] {
                match value.as_str() {
                    "" => errors.required(&path.child(field), ""),
                    text => errors.each_invalid(&path.child(field), text, names::path_segment(text)),
                }
            }
        }
    }
}

fn check_service(service: &IngressServiceBackend, path: &FieldPath, errors: &mut FieldErrors) {
    let name = path.child("service").child("name");
    match service.name.as_str() {
        "" => errors.required(&name, ""),
        text => errors.each_invalid(&name, text, names::label(text)),
    }
    let port = service.port.clone().unwrap_or_default();
    let at = path.child("service").child("port");
    match (port.name.filter(|name| !name.is_empty()), port.number.filter(|number| *number != 0)) {
        (Some(_), Some(_)) => errors.invalid(path, "", "cannot set both port name & port number"),
        (Some(name), None) => errors.each_invalid(&at.child("name"), name.as_str(), names::port_name(&name)),
        (None, Some(number)) => errors.each_invalid(&at.child("number"), number, names::port(number.into())),
        (None, None) => errors.required(path, "port name or number is required"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn resource_of_a_backend_is_checked() {
        let found = |resource| {
            let spec = json!({"defaultBackend": {"resource": resource}});
            crate::kinds::testing::refusals(
                json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec}),
            )
            .join("; ")
        };
        assert_eq!(found(json!({"apiGroup": "a.b", "kind": "K", "name": "n"})), "");
        let kind = found(json!({"kind": "a/b", "name": "n"}));
        assert_eq!(kind, "spec.defaultBackend.resource.kind: Invalid value: \"a/b\": may not contain '/'");
        assert!(
            found(json!({"apiGroup": "A", "kind": "K", "name": "n"}))
                .starts_with("spec.defaultBackend.resource.apiGroup: Invalid value")
        );
    }
}
