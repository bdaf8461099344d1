//! ValidatingWebhookConfiguration (admissionregistration.k8s.io/v1).

use super::shared::webhook;
use super::{FieldErrors, FieldPath};
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};

webhook::configuration!(
    ValidatingWebhookConfiguration,
    "validatingwebhookconfigurations",
    |_: &mut ValidatingWebhook| {},
    |_: &ValidatingWebhook, _: &FieldPath, _: &mut FieldErrors| {}
);
