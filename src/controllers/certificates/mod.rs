//! CertificateSigningRequests: approved by rule, signed, and removed when they are old.
//!
//! Knows: which requests each signer takes ([`signers`]). Never: signs itself; the cluster's settings have the signer.
//! Start reading at [`signing`].

pub mod approving;
pub mod cleaner;
mod signers;
pub mod signing;

use crate::kinds::certificate_request::CertificateRequest;
use crate::object::Object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const ROOT: &str = "certificatesigningrequests.certificates.k8s.io";

/// The condition of a type that is true.
fn condition<'o>(request: &'o Object, condition_type: &str) -> Option<&'o Value> {
    let conditions = request.items(&["status", "conditions"]).iter();
    conditions.into_iter().find(|one| one["type"] == condition_type && one["status"] == "True")
}

fn is_issued(request: &Object) -> bool {
    request.text(&["status", "certificate"]).is_some_and(|certificate| !certificate.is_empty())
}

/// The certificate request in the spec.
fn parse(request: &Object) -> Result<CertificateRequest, String> {
    let text = request.text(&["spec", "request"]).unwrap_or_default();
    let pem = STANDARD.decode(text).map_err(|error| error.to_string())?;
    CertificateRequest::parse(&pem)
}

fn usages(request: &Object) -> Vec<String> {
    request.items(&["spec", "usages"]).iter().filter_map(|usage| usage.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
