//! Shared parts of webhook configurations and admission policies (admissionregistration.k8s.io/v1).

use super::super::catalogue::{merge_rules, shapes};
use super::super::{FieldErrors, FieldPath};
use super::policy_programs::{PolicyCheck, Wanted};
use super::{names, omit, selector, webhook_rule};
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use std::collections::BTreeSet;

/// The merge rules of both webhook configurations.
pub static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("webhooks", merge_rules::list("name", &WEBHOOK_MERGE_RULES))]);
static WEBHOOK_MERGE_RULES: MergeSchema =
    MergeSchema::new(&[("matchConditions", merge_rules::list("name", &merge_rules::ANY))]);
/// The shape of both webhook configurations.
pub static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("webhooks", shapes::keyed_list(shapes::NAME, &WEBHOOK_SHAPE))]);
static WEBHOOK_SHAPE: StructShape = StructShape::new(&[
    ("matchConditions", shapes::keyed_list(shapes::NAME, &shapes::ANY)),
    ("namespaceSelector", shapes::ATOMIC),
    ("objectSelector", shapes::ATOMIC),
]);

/// Port of the Service behind a webhook.
const HTTPS: i32 = 443;

/// Defines the catalogue's entry, defaults and checks of a webhook configuration: the two kinds have different types
/// with the same fields. `more` sets the defaults of fields in only one of them, `check` checks them.
macro_rules! configuration {
    ($kind:ident, $resource:literal, $more:expr, $check:expr) => {
        /// The catalogue's entry.
        pub const KIND: $crate::kinds::Kind = $crate::kinds::Kind {
            namespaced: false,
            categories: &["api-extensions"],
            merge_rules: &$crate::kinds::shared::webhook::MERGE_RULES,
            shape: &$crate::kinds::shared::webhook::SHAPE,
            status: false,
            unconditional_update: false,
            ..$crate::kinds::Kind::new::<$kind>(
                concat!($resource, ".admissionregistration.k8s.io"),
                "v1",
                stringify!($kind),
                &$crate::kinds::view::table_only::WEBHOOK,
            )
        };

        impl $crate::kinds::Typed for $kind {
            fn default(&mut self) {
                $crate::kinds::shared::omit::metadata(&mut self.metadata);
                $crate::kinds::shared::omit::empty(&mut self.webhooks);
                for hook in self.webhooks.iter_mut().flatten() {
                    let rules = hook.rules.get_or_insert_default();
                    $crate::kinds::shared::webhook::default_call(&mut hook.client_config, rules);
                    $crate::kinds::shared::omit::empty(&mut hook.rules);
                    hook.failure_policy.get_or_insert_with(|| "Fail".to_owned());
                    hook.match_policy.get_or_insert_with(|| "Equivalent".to_owned());
                    hook.namespace_selector.get_or_insert_default();
                    hook.object_selector.get_or_insert_default();
                    hook.timeout_seconds.get_or_insert(10);
                    $more(hook);
                }
            }

            fn validate(&self, _old: Option<&Self>, errors: &mut $crate::kinds::FieldErrors) {
                let mut names = std::collections::BTreeSet::new();
                for (index, hook) in self.webhooks.iter().flatten().enumerate() {
                    let path = $crate::kinds::FieldPath::root("webhooks").index(index);
                    $check(hook, &path, errors);
                    let webhook = $crate::kinds::shared::webhook::Webhook {
                        name: &hook.name,
                        config: &hook.client_config,
                        side_effects: &hook.side_effects,
                        versions: &hook.admission_review_versions,
                        timeout: hook.timeout_seconds,
                        rules: hook.rules.as_deref().unwrap_or_default(),
                        failure_policy: hook.failure_policy.as_deref(),
                        match_policy: hook.match_policy.as_deref(),
                        selectors: [
                            ("namespaceSelector", hook.namespace_selector.as_ref()),
                            ("objectSelector", hook.object_selector.as_ref()),
                        ],
                        conditions: hook.match_conditions.as_deref().unwrap_or_default(),
                    };
                    $crate::kinds::shared::webhook::check(&webhook, &path, errors);
                    if !hook.name.is_empty() && !names.insert(hook.name.as_str()) {
                        errors.duplicate(&path.child("name"), hook.name.as_str());
                    }
                }
            }
        }
    };
}
pub(in crate::kinds) use configuration;

/// Sets the default scope of rules and port of the Service.
pub fn default_call(config: &mut WebhookClientConfig, rules: &mut [RuleWithOperations]) {
    omit::empty(&mut config.ca_bundle);
    if let Some(service) = &mut config.service {
        service.port.get_or_insert(HTTPS);
    }
    for rule in rules {
        rule.scope.get_or_insert_with(|| "*".to_owned());
    }
}

/// Sets the default match criteria of an admission policy.
pub fn default_match(resources: &mut MatchResources) {
    resources.match_policy.get_or_insert_with(|| "Equivalent".to_owned());
    resources.namespace_selector.get_or_insert_default();
    resources.object_selector.get_or_insert_default();
    let scope = |rule: &mut NamedRuleWithOperations| {
        rule.scope.get_or_insert_with(|| "*".to_owned());
    };
    resources.resource_rules.iter_mut().flatten().for_each(scope);
    resources.exclude_resource_rules.iter_mut().flatten().for_each(scope);
}

/// A webhook of either kind.
pub struct Webhook<'w> {
    /// Its name, a domain with three parts.
    pub name: &'w str,
    /// The endpoint to call.
    pub config: &'w WebhookClientConfig,
    /// `None` or `NoneOnDryRun`.
    pub side_effects: &'w str,
    /// Supported versions of AdmissionReview.
    pub versions: &'w [String],
    /// The timeout, in seconds.
    pub timeout: Option<i32>,
    /// The requests for which it is called.
    pub rules: &'w [RuleWithOperations],
    /// The action when the call fails.
    pub failure_policy: Option<&'w str>,
    /// Whether rules match other versions of a resource as well.
    pub match_policy: Option<&'w str>,
    /// The selectors of objects and namespaces, with their field names.
    pub selectors: [(&'static str, Option<&'w LabelSelector>); 2],
    /// Further conditions, written in CEL.
    pub conditions: &'w [MatchCondition],
}

/// Checks a webhook.
pub fn check(webhook: &Webhook, path: &FieldPath, errors: &mut FieldErrors) {
    let name = path.child("name");
    if webhook.name.is_empty() {
        errors.required(&name, "");
    } else if webhook.name.split('.').count() < 3 {
        errors.invalid(&name, webhook.name, "should be a domain with at least three segments separated by dots");
    } else {
        errors.each_invalid(&name, webhook.name, super::names::subdomain(webhook.name));
    }
    for (index, rule) in webhook.rules.iter().enumerate() {
        webhook_rule::check(rule, &path.child("rules").index(index), errors);
    }
    let mut one_of = |field: &str, value: Option<&str>, known: &[&str]| {
        if let Some(other) = value.filter(|value| !known.contains(value)) {
            errors.unsupported(&path.child(field), other, known);
        }
    };
    one_of("failurePolicy", webhook.failure_policy, &["Fail", "Ignore"]);
    one_of("matchPolicy", webhook.match_policy, &["Equivalent", "Exact"]);
    for (field, selector) in webhook.selectors {
        if let Some(selector) = selector {
            selector::check(selector, &path.child(field), errors);
        }
    }
    match webhook.side_effects {
        "" => errors.required(&path.child("sideEffects"), "must specify one of None, NoneOnDryRun"),
        "None" | "NoneOnDryRun" => {}
        other => errors.unsupported(&path.child("sideEffects"), other, &["None", "NoneOnDryRun"]),
    }
    if let Some(seconds) = webhook.timeout.filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, detail);
    }
    check_config(webhook.config, &path.child("clientConfig"), errors);
    check_conditions(webhook.conditions, false, &path.child("matchConditions"), errors);
    check_versions(webhook.versions, &path.child("admissionReviewVersions"), errors);
}

/// Checks the AdmissionReview versions, at least one of which must be supported.
fn check_versions(versions: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    if versions.is_empty() {
        return errors.required(path, "must specify one of v1, v1beta1");
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        if !seen.insert(version) {
            errors.invalid(&path.index(index), version.as_str(), "duplicate version");
        } else {
            errors.each_invalid(&path.index(index), version.as_str(), names::label_1035(version));
        }
    }
    if !versions.iter().any(|version| ["v1", "v1beta1"].contains(&version.as_str())) {
        errors.invalid(path, json!(versions), "must include at least one of v1, v1beta1");
    }
}

/// Maximum number of conditions.
const MAX_CONDITIONS: usize = 64;

/// Checks the names of conditions and compiles their expressions.
pub fn check_conditions(conditions: &[MatchCondition], has_params: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let expressions = PolicyCheck::new(has_params, false);
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(path, conditions.len(), MAX_CONDITIONS);
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let (path, name) = (path.index(index), condition.name.as_str());
        let at = path.child("expression");
        match condition.expression.trim() {
            "" => errors.required(&at, ""),
            _ => expressions.check(&condition.expression, Wanted::Bool, &at, errors),
        }
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            errors.each_invalid(&path.child("name"), name, names::qualified(name));
        }
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
}

/// Checks the endpoint of a webhook, a URL or a Service (`apiserver/pkg/util/webhook/validation.go`).
pub fn check_config(config: &WebhookClientConfig, path: &FieldPath, errors: &mut FieldErrors) {
    let service = config.service.as_ref();
    let service = service.map(|service| ((&*service.namespace, &*service.name), service.port, service.path.as_deref()));
    check_endpoint(config.url.as_deref(), service, path, errors);
}

/// A Service as an endpoint: its namespace and name, the port and the path.
type ServiceEndpoint<'a> = ((&'a str, &'a str), Option<i32>, Option<&'a str>);

/// Checks an endpoint, a URL or a Service.
pub fn check_endpoint(
    url: Option<&str>,
    service: Option<ServiceEndpoint<'_>>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    match (url, service) {
        (Some(url), None) => check_url(url, &path.child("url"), errors),
        (None, Some((name, port, target))) => check_service(name, port, target, &path.child("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

/// Checks the Service of a webhook, by its namespace and name.
fn check_service(
    (namespace, name): (&str, &str),
    port: Option<i32>,
    target: Option<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    for (field, text) in [("name", name), ("namespace", namespace)] {
        if text.is_empty() {
            errors.required(&path.child(field), &format!("service {field} is required"));
        }
    }
    check_service_port(port, path, errors);
    if let Some(target) = target {
        check_path(target, &path.child("path"), errors);
    }
}

/// Checks the port of a Service that is called.
pub fn check_service_port(port: Option<i32>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(port) = port.filter(|port| !(1..=65535).contains(port)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.invalid(&path.child("port"), port, detail);
    }
}

/// Checks authorities in PEM format.
pub fn check_bundle(bundle: &[u8], path: &FieldPath, errors: &mut FieldErrors) {
    if CertificateDer::pem_slice_iter(bundle).all(|read| read.is_err()) {
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.invalid(path, BASE64_STANDARD.encode(bundle), detail);
    }
}

/// Checks a URL; each error shows the part that it is about.
fn check_url(url: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let form = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, tail) = match scheme {
        "" => ("", rest),
        _ => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
    };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let (tail, fragment) = tail.split_once('#').unwrap_or((tail, ""));
    let query = tail.split_once('?').map_or("", |(_, query)| query);
    if scheme != "https" {
        errors.invalid(path, scheme, &format!("'https' is the only allowed URL scheme{form}"));
    }
    if host.is_empty() {
        errors.invalid(path, host, &format!("host must be specified{form}"));
    }
    if let Some(user) = user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

fn check_path(target: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if target.is_empty() || target == "/" {
        return;
    }
    if target == "//" {
        return errors.invalid(path, target, "segment[0] may not be empty");
    }
    let Some(rest) = target.strip_prefix('/') else {
        return errors.invalid(path, target, "must start with a '/'");
    };
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(path, target, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::subdomain(segment) {
            errors.invalid(path, target, &format!("segment[{index}]: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::catalogue::merge_rules::schema_for;
    use crate::kinds::testing;
    use crate::object::merge::strategic_merge;
    use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
    use serde_json::{Value, json};

    fn wrong(patch: Value) -> Vec<String> {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let mut hook = json!({
            "name": "a.example.com", "clientConfig": {"url": "https://a/b"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [rule],
        });
        json_patch::merge(&mut hook, &patch);
        let body = json!({"metadata": {"name": "a"}, "webhooks": [hook]});
        let errors = testing::field_errors::<ValidatingWebhookConfiguration>(&body, None);
        errors.into_iter().map(|error| error.field.replacen("webhooks[0].", "", 1)).collect()
    }

    #[test]
    fn patches_merge_webhooks_by_name() {
        let hooks = |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({"name": name})).collect() };
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let schema = schema_for("admissionregistration.k8s.io/v1", kind).unwrap();
            let (old, patch) = (json!({"webhooks": hooks(&["a", "b"])}), json!({"webhooks": hooks(&["b", "c"])}));
            let merged = strategic_merge(&old, &patch, schema).unwrap();
            let mut names: Vec<&str> =
                merged["webhooks"].as_array().unwrap().iter().filter_map(|hook| hook["name"].as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ["a", "b", "c"], "{kind}");
        }
    }

    #[test]
    fn webhooks_are_checked_field_by_field() {
        assert_eq!(wrong(json!({})), Vec::<String>::new());
        let service = |path: &str| json!({"clientConfig": {"url": null, "service": {"name": "s", "namespace": "n", "path": path}}});
        assert_eq!(wrong(service("/a/b")), Vec::<String>::new());
        let rule = |field: &str, value: Value| {
            let mut rule =
                json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
            rule[field] = value;
            json!({"rules": [rule]})
        };
        let cases = [
            (json!({"name": "a.b"}), "name"),
            (json!({"name": ""}), "name"),
            (json!({"clientConfig": {"url": "http://a"}}), "clientConfig.url"),
            (json!({"clientConfig": {"url": "https://a?b"}}), "clientConfig.url"),
            (json!({"clientConfig": {"url": "https://u@a"}}), "clientConfig.url"),
            (json!({"clientConfig": {"url": null}}), "clientConfig"),
            (json!({"clientConfig": {"service": {"name": "s", "namespace": "n"}}}), "clientConfig"),
            (service("a"), "clientConfig.service.path"),
            (service("/a//b"), "clientConfig.service.path"),
            (json!({"sideEffects": "Some"}), "sideEffects"),
            (json!({"sideEffects": null}), "sideEffects"),
            (json!({"admissionReviewVersions": []}), "admissionReviewVersions"),
            (json!({"admissionReviewVersions": ["v7"]}), "admissionReviewVersions"),
            (json!({"admissionReviewVersions": ["v1", "v1"]}), "admissionReviewVersions[1]"),
            (json!({"timeoutSeconds": 31}), "timeoutSeconds"),
            (json!({"timeoutSeconds": 0}), "timeoutSeconds"),
            (json!({"failurePolicy": "Odd"}), "failurePolicy"),
            (json!({"matchPolicy": "Odd"}), "matchPolicy"),
            (json!({"matchConditions": [{"name": "a", "expression": ""}]}), "matchConditions[0].expression"),
            (rule("operations", json!(["*", "CREATE"])), "rules[0].operations"),
            (rule("operations", json!(["FLY"])), "rules[0].operations[0]"),
            (rule("apiGroups", json!([])), "rules[0].apiGroups"),
            (rule("apiVersions", json!([""])), "rules[0].apiVersions[0]"),
            (rule("resources", json!(["*", "pods"])), "rules[0].resources"),
            (rule("resources", json!(["pods/*", "pods/status"])), "rules[0].resources[1]"),
            (rule("scope", json!("Odd")), "rules[0].scope"),
        ];
        for (patch, field) in cases {
            assert_eq!(wrong(patch.clone()), [field], "{patch}");
        }
    }
}
