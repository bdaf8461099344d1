//! MutatingWebhookConfiguration (admissionregistration.k8s.io/v1).

use super::webhook;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};

webhook::configuration!(MutatingWebhookConfiguration, "mutatingwebhookconfigurations", |hook: &mut MutatingWebhook| {
    hook.reinvocation_policy.get_or_insert_with(|| "Never".to_owned());
});
