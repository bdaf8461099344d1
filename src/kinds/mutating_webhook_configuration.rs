//! MutatingWebhookConfiguration (admissionregistration.k8s.io/v1).

use super::shared::webhook;
use super::{FieldErrors, FieldPath};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};

webhook::configuration!(
    MutatingWebhookConfiguration,
    "mutatingwebhookconfigurations",
    |hook: &mut MutatingWebhook| {
        hook.reinvocation_policy.get_or_insert_with(|| "Never".to_owned());
    },
    |hook: &MutatingWebhook, path: &FieldPath, errors: &mut FieldErrors| {
        let known = ["IfNeeded", "Never"];
        if let Some(other) = hook.reinvocation_policy.as_deref().filter(|policy| !known.contains(policy)) {
            errors.unsupported(&path.child("reinvocationPolicy"), other, &known);
        }
    }
);
