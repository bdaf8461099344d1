//! CertificateSigningRequest (certificates.k8s.io/v1).

use super::shared::certificate_request::{CertificateRequest, USAGES};
use super::shared::omit;
use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed};
use crate::object::Object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::json;
use std::collections::BTreeSet;

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
        &view::certificate_signing_request::VIEW,
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

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        // The spec never changes, and checking a signature takes time.
        if old.is_none()
            && let Err(why) = CertificateRequest::parse(&self.spec.request.0)
        {
            errors.invalid(&path.child("request"), STANDARD.encode(&self.spec.request.0), &why);
        }
        let usages = self.spec.usages.as_deref().unwrap_or_default();
        if usages.is_empty() {
            errors.required(&path.child("usages"), "");
        }
        let mut seen = BTreeSet::new();
        for (index, usage) in usages.iter().enumerate() {
            let path = path.child("usages").index(index);
            if !USAGES.contains(&usage.as_str()) {
                errors.unsupported(&path, usage.as_str(), &USAGES);
            } else if !seen.insert(usage) {
                errors.duplicate(&path, usage.as_str());
            }
        }
        match self.spec.signer_name.as_str() {
            "" => errors.required(&path.child("signerName"), ""),
            "kubernetes.io/legacy-unknown" => {
                let detail = "the legacy signerName is not allowed via this API version";
                errors.invalid(&path.child("signerName"), "kubernetes.io/legacy-unknown", detail);
            }
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
