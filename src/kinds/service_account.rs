//! ServiceAccount (core/v1).

use super::view;
use super::{FieldErrors, Kind, Typed, omit};
use k8s_openapi::api::core::v1::ServiceAccount;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["sa"],
    status: false,
    generation: false,
    ..Kind::new::<ServiceAccount>("serviceaccounts", "v1", "ServiceAccount", &view::service_account::VIEW)
};

impl Typed for ServiceAccount {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.secrets);
        omit::empty(&mut self.image_pull_secrets);
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut FieldErrors) {}
}
