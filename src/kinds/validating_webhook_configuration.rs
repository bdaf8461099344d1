//! ValidatingWebhookConfiguration (admissionregistration.k8s.io/v1).

use super::webhook::{self, Webhook};
use super::{Errors, Kind, Path, Typed, omit};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    categories: &["api-extensions"],
    status: false,
    unconditional_update: false,
    ..Kind::of::<ValidatingWebhookConfiguration>(
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    )
};

impl Typed for ValidatingWebhookConfiguration {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        for hook in self.webhooks.iter_mut().flatten() {
            webhook::default_call(&mut hook.client_config, hook.rules.get_or_insert_default());
            omit::empty(&mut hook.rules);
            hook.failure_policy.get_or_insert_with(|| "Fail".to_owned());
            hook.match_policy.get_or_insert_with(|| "Equivalent".to_owned());
            hook.namespace_selector.get_or_insert_default();
            hook.object_selector.get_or_insert_default();
            hook.timeout_seconds.get_or_insert(10);
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut Errors) {
        for (index, hook) in self.webhooks.iter().flatten().enumerate() {
            let hook = Webhook {
                name: &hook.name,
                config: &hook.client_config,
                side_effects: &hook.side_effects,
                versions: &hook.admission_review_versions,
                timeout: hook.timeout_seconds,
            };
            webhook::check(&hook, &Path::root("webhooks").index(index), errors);
        }
    }
}
