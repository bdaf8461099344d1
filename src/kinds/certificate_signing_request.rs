//! CertificateSigningRequest (certificates.k8s.io/v1).

use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed, omit};
use crate::object::Object;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["csr"],
    namespaced: false,
    generation: false,
    name_rule: NameRule::PathSegment,
    selectable: &["spec.signerName"],
    ..Kind::new::<CertificateSigningRequest>(
        "certificatesigningrequests.certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        &view::table_only::SIGNING_REQUEST,
    )
};

impl Typed for CertificateSigningRequest {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        match old.and_then(|old| old.value_at(&["spec"])) {
            // The spec of a request is immutable.
            Some(spec) => new.set(&["spec"], spec.clone()),
            None => new.set(&["status"], json!({})),
        }
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        if self.spec.usages.as_ref().is_none_or(Vec::is_empty) {
            errors.required(&path.child("usages"), "");
        }
        match self.spec.signer_name.as_str() {
            "" => errors.required(&path.child("signerName"), ""),
            name if !name.contains('/') => {
                let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
                errors.invalid(&path.child("signerName"), name, detail);
            }
            _ => {}
        }
        if let Some(seconds) = self.spec.expiration_seconds.filter(|seconds| *seconds < 600) {
            let detail = "may not specify a duration less than 600 seconds (10 minutes)";
            errors.invalid(&path.child("expirationSeconds"), seconds, detail);
        }
    }
}
