//! Validation of `spec.conversion`.

use crate::kinds::shared::names::label_1035;
use crate::kinds::shared::webhook;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Object;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as api;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;

/// Checks the conversion of a definition, which was `old` before.
pub fn check(
    spec: &api::CustomResourceDefinitionSpec,
    old: Option<&api::CustomResourceDefinition>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(conversion) = &spec.conversion else { return };
    let (client, versions) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let webhook = conversion.webhook.as_ref();
    let config = webhook.and_then(|webhook| webhook.client_config.as_ref());
    let reviewed = webhook.map(|webhook| webhook.conversion_review_versions.as_slice()).unwrap_or_default();
    match conversion.strategy.as_str() {
        "Webhook" => {
            match config {
                None => errors.required(&client, "required when strategy is set to Webhook"),
                Some(config) => check_client(config, allows_any_bundle(old), &client, errors),
            }
            check_review_versions(reviewed, requires_known_version(old), &versions, errors);
        }
        "None" => {
            let detail = "should not be set when strategy is not set to Webhook";
            if config.is_some() {
                errors.forbidden(&client, detail);
            }
            if !reviewed.is_empty() {
                errors.forbidden(&versions, detail);
            }
        }
        other => errors.unsupported(&path.child("strategy"), other, &["None", "Webhook"]),
    }
}

fn check_client(config: &api::WebhookClientConfig, any_bundle: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let service = config.service.as_ref();
    let service = service.map(|service| ((&*service.namespace, &*service.name), service.port, service.path.as_deref()));
    webhook::check_endpoint(config.url.as_deref(), service, path, errors);
    if let Some(bundle) = config.ca_bundle.as_ref().filter(|bundle| !bundle.0.is_empty() && !any_bundle) {
        webhook::check_bundle(&bundle.0, &path.child("caBundle"), errors);
    }
}

fn check_review_versions(list: &[String], requires_known: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if list.is_empty() {
        return errors.required(path, "");
    }
    let mut seen = BTreeSet::new();
    for (index, version) in list.iter().enumerate() {
        if !seen.insert(version) {
            errors.invalid(&path.index(index), version.as_str(), "duplicate version");
            continue;
        }
        errors.each_invalid(&path.index(index), version.as_str(), label_1035(version));
    }
    if requires_known && !list.iter().any(|version| is_known(version)) {
        errors.invalid(path, json!(list), "must include at least one of v1, v1beta1");
    }
}

fn is_known(version: &str) -> bool {
    matches!(version, "v1" | "v1beta1")
}

/// Whether a version of ConversionReview that is known is required: not where the definition had none before.
fn requires_known_version(old: Option<&api::CustomResourceDefinition>) -> bool {
    let conversion = old.and_then(|old| old.spec.conversion.as_ref()?.webhook.as_ref());
    let reviewed = conversion.map(|webhook| webhook.conversion_review_versions.as_slice()).unwrap_or_default();
    reviewed.is_empty() || reviewed.iter().any(|version| is_known(version))
}

/// Whether authorities that cannot be read are allowed: before the definition is established, and where there were such before.
fn allows_any_bundle(old: Option<&api::CustomResourceDefinition>) -> bool {
    let Some(old) = old.filter(|old| is_established(old)) else { return true };
    let config = old.spec.conversion.as_ref().and_then(|known| known.webhook.as_ref()?.client_config.as_ref());
    config.is_some_and(is_unreadable)
}

/// Whether the authorities of a webhook's server cannot be read.
fn is_unreadable(config: &api::WebhookClientConfig) -> bool {
    let Some(bundle) = config.ca_bundle.as_ref().filter(|bundle| !bundle.0.is_empty()) else { return false };
    let mut errors = FieldErrors::default();
    webhook::check_bundle(&bundle.0, &FieldPath::root("caBundle"), &mut errors);
    !errors.0.is_empty()
}

/// Whether the authorities of a definition's webhook cannot be read: such a definition is not established.
pub fn has_unreadable_bundle(definition: &Object) -> bool {
    let config = definition.value_at(&["spec", "conversion", "webhook", "clientConfig"]);
    let config = config.and_then(|config| api::WebhookClientConfig::deserialize(config).ok());
    config.is_some_and(|config| is_unreadable(&config))
}

/// Whether a definition has ever been established.
pub fn is_established(definition: &api::CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}
