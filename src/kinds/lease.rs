//! Lease (coordination.k8s.io/v1).

use super::shared::omit;
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::coordination::v1::Lease;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    generation: false,
    unconditional_update: false,
    create_on_update: true,
    ..Kind::new::<Lease>("leases.coordination.k8s.io", "v1", "Lease", &view::table_only::LEASE)
};

impl Typed for Lease {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        self.spec.get_or_insert_default();
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let Some(spec) = &self.spec else { return };
        let path = FieldPath::root("spec");
        if let Some(seconds) = spec.lease_duration_seconds.filter(|seconds| *seconds <= 0) {
            errors.invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
        }
        if let Some(count) = spec.lease_transitions.filter(|count| *count < 0) {
            errors.invalid(&path.child("leaseTransitions"), count, "must be greater than or equal to 0");
        }
        if spec.preferred_holder.as_deref().is_some_and(|holder| !holder.is_empty()) && spec.strategy.is_none() {
            let detail = "may only be specified if `strategy` is defined";
            errors.forbidden(&path.child("preferredHolder"), detail);
        }
    }
}
