//! CertificateSigningRequests: approved by rule, signed, and removed when they are old.
//!
//! Knows: which requests each signer takes ([`signers`]). Never: signs itself; the cluster's settings contain the signer.
//! Start reading at [`signing`]; [`approving`] and [`cleaner`] run before and after it.

pub mod approving;
pub mod cleaner;
mod signers;
pub mod signing;

use crate::kinds::shared::certificate_request::CertificateRequest;
use crate::object::{Object, Time, time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// The resource.
pub const ROOT: &str = "certificatesigningrequests.certificates.k8s.io";

/// Adds a condition that is true since now.
fn add_condition(request: &mut Object, condition_type: &str, reason: &str, message: &str, now: Time) {
    let now = time::rfc3339(now);
    let mut conditions = request.items(&["status", "conditions"]).to_vec();
    conditions.push(json!({
        "type": condition_type, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    }));
    request.set(&["status", "conditions"], conditions);
}

/// Whether a request has its certificate.
pub fn is_issued(request: &Object) -> bool {
    request.text(&["status", "certificate"]).is_some_and(|certificate| !certificate.is_empty())
}

/// Parses the certificate request in the spec.
fn parse_request(request: &Object) -> Result<CertificateRequest, String> {
    let text = request.text(&["spec", "request"]).unwrap_or_default();
    let pem = STANDARD.decode(text).map_err(|error| error.to_string())?;
    CertificateRequest::parse(&pem)
}

fn usages(request: &Object) -> Vec<String> {
    request.items(&["spec", "usages"]).iter().filter_map(|usage| usage.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
