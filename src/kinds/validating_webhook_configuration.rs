//! ValidatingWebhookConfiguration (admissionregistration.k8s.io/v1).

use super::{Errors, Path, webhook};
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};

webhook::configuration!(
    ValidatingWebhookConfiguration,
    "validatingwebhookconfigurations",
    |_: &mut ValidatingWebhook| {},
    |_: &ValidatingWebhook, _: &Path, _: &mut Errors| {}
);
