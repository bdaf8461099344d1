//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction, and the requester in the spec of a CertificateSigningRequest.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::authorization::{AccessRequest, AccessedResource, authorize};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::ADMINISTRATORS;
use crate::kinds::shared::certificate_request::CertificateRequest;
use crate::object::{Object, Status};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Notes who requests the certificate; the body does not count.
pub fn set_requester(_: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates(REQUESTS) {
        return Ok(());
    }
    let info = request.user.info();
    for field in ["username", "uid", "groups", "extra"] {
        match info.get(field) {
            Some(value) => request.object.set(&["spec", field], value.clone()),
            None => drop(request.object.unset(&["spec", field])),
        }
    }
    Ok(())
}

/// Refuses a decision about a request to a signer for which the user may not approve.
pub fn check_approval(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    match request.subresource {
        "approval" => check_signer(txn, request, "approve"),
        _ => Ok(()),
    }
}

/// Refuses a certificate, or a failure, of a signer for which the user may not sign.
pub fn check_signing(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if request.subresource != "status" || request.kind.resource != REQUESTS {
        return Ok(());
    }
    let is_same = |field: &str| {
        request.old.is_some_and(|old| old.value_at(&["status", field]) == request.object.value_at(&["status", field]))
    };
    if is_same("certificate") && is_same("conditions") { Ok(()) } else { check_signer(txn, request, "sign") }
}

/// Refuses a user who has the verb neither for the signer nor for all signers of its domain.
fn check_signer(txn: &dyn Transaction, request: &AdmissionRequest<'_>, verb: &str) -> ApiResult<()> {
    let Some(user) = txn.user().filter(|_| request.kind.resource == REQUESTS) else { return Ok(()) };
    // The spec cannot change.
    let signer = request.old.and_then(|old| old.text(&["spec", "signerName"])).unwrap_or_default();
    let (domain, _) = signer.split_once('/').unwrap_or((signer, ""));
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let accessed = AccessedResource {
            group: "certificates.k8s.io".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..AccessedResource::default()
        };
        if authorize(txn, user, &AccessRequest::for_resource(verb, accessed))?.is_allowed {
            return Ok(());
        }
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(Status::forbidden(request.kind.resource, request.object.name(), &why))
}

/// Refuses certificates of administrators: they could not be taken back.
pub fn restrict_subject(_: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    if !request.creates(REQUESTS) || request.object.text(&["spec", "signerName"]) != Some(CLIENT_SIGNER) {
        return Ok(());
    }
    let why = match parse(request.object) {
        Err(why) => format!("failed to parse CSR: {why}"),
        Ok(parsed) if parsed.subject.organizations.iter().any(|group| group == ADMINISTRATORS) => {
            format!("use of {CLIENT_SIGNER} signer with {ADMINISTRATORS} group is not allowed")
        }
        Ok(_) => return Ok(()),
    };
    Err(Status::forbidden(request.kind.resource, request.object.name(), &why))
}

fn parse(request: &Object) -> Result<CertificateRequest, String> {
    let text = request.text(&["spec", "request"]).unwrap_or_default();
    CertificateRequest::parse(&STANDARD.decode(text).map_err(|error| error.to_string())?)
}
