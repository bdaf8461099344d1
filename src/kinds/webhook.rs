//! What the two webhook configurations and the admission policies share (admissionregistration.k8s.io/v1).

use super::{Errors, Path};
use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, RuleWithOperations, WebhookClientConfig,
};

/// Port of the Service behind a webhook.
const HTTPS: i32 = 443;

/// The catalogue's entry of a webhook configuration, and its defaults and checks: the two kinds have no type in common, but
/// the same fields. `more` sets the defaults that only one of them has.
macro_rules! configuration {
    ($kind:ident, $resource:literal, $more:expr) => {
        /// The catalogue's entry.
        pub const KIND: $crate::kinds::Kind = $crate::kinds::Kind {
            namespaced: false,
            categories: &["api-extensions"],
            status: false,
            unconditional_update: false,
            ..$crate::kinds::Kind::of::<$kind>(
                concat!($resource, ".admissionregistration.k8s.io"),
                "v1",
                stringify!($kind),
            )
        };

        impl $crate::kinds::Typed for $kind {
            fn default(&mut self) {
                $crate::kinds::omit::metadata(&mut self.metadata);
                for hook in self.webhooks.iter_mut().flatten() {
                    let rules = hook.rules.get_or_insert_default();
                    $crate::kinds::webhook::default_call(&mut hook.client_config, rules);
                    $crate::kinds::omit::empty(&mut hook.rules);
                    hook.failure_policy.get_or_insert_with(|| "Fail".to_owned());
                    hook.match_policy.get_or_insert_with(|| "Equivalent".to_owned());
                    hook.namespace_selector.get_or_insert_default();
                    hook.object_selector.get_or_insert_default();
                    hook.timeout_seconds.get_or_insert(10);
                    $more(hook);
                }
            }

            fn validate(&self, _old: Option<&Self>, errors: &mut $crate::kinds::Errors) {
                for (index, hook) in self.webhooks.iter().flatten().enumerate() {
                    let hook = $crate::kinds::webhook::Webhook {
                        name: &hook.name,
                        config: &hook.client_config,
                        side_effects: &hook.side_effects,
                        versions: &hook.admission_review_versions,
                        timeout: hook.timeout_seconds,
                    };
                    let path = $crate::kinds::Path::root("webhooks").index(index);
                    $crate::kinds::webhook::check(&hook, &path, errors);
                }
            }
        }
    };
}
pub(super) use configuration;

/// The scope of rules, and the port of the Service.
pub fn default_call(config: &mut WebhookClientConfig, rules: &mut [RuleWithOperations]) {
    if let Some(service) = &mut config.service {
        service.port.get_or_insert(HTTPS);
    }
    for rule in rules {
        rule.scope.get_or_insert_with(|| "*".to_owned());
    }
}

/// What an admission policy matches when it does not say more.
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

/// One webhook, whichever of the two kinds it is of.
pub struct Webhook<'w> {
    /// Its name, a domain with three parts.
    pub name: &'w str,
    /// Whom to call.
    pub config: &'w WebhookClientConfig,
    /// `None` or `NoneOnDryRun`.
    pub side_effects: &'w str,
    /// Versions of the question that it understands.
    pub versions: &'w [String],
    /// How long to wait.
    pub timeout: Option<i32>,
}

/// Checks of one webhook.
pub fn check(webhook: &Webhook, path: &Path, errors: &mut Errors) {
    let name = path.child("name");
    if webhook.name.is_empty() {
        errors.required(&name, "");
    } else if webhook.name.split('.').count() < 3 {
        errors.invalid(&name, webhook.name, "should be a domain with at least three segments separated by dots");
    } else {
        errors.each_invalid(&name, webhook.name, super::names::subdomain(webhook.name));
    }
    if webhook.versions.is_empty() {
        let detail = "must specify one of v1, v1beta1";
        errors.required(&path.child("admissionReviewVersions"), detail);
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
    if webhook.config.url.is_some() == webhook.config.service.is_some() {
        errors.required(&path.child("clientConfig"), "exactly one of url or service is required");
    }
}
