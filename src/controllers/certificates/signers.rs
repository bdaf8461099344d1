//! The signers of Kubernetes, and the requests that each of them takes (`pkg/controller/certificates/signer`).
//!
//! Never: checks who has made a request; approval does. Start reading at [`check`].

use crate::kinds::node;
use crate::kinds::shared::certificate_request::CertificateRequest;
use std::collections::BTreeSet;

/// Certificates of users.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Certificates with which kubelets are users.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Certificates with which kubelets are servers.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// Checks a request for a signer. `None` for a signer of another program.
pub fn check(signer: &str, request: &CertificateRequest, usages: &[String]) -> Option<Result<(), String>> {
    match signer {
        CLIENT => Some(check_client(usages)),
        KUBELET_CLIENT => Some(check_kubelet_client(request, usages)),
        KUBELET_SERVING => Some(check_kubelet_serving(request, usages)),
        _ => None,
    }
}

fn check_client(usages: &[String]) -> Result<(), String> {
    const OPTIONAL: [&str; 2] = ["digital signature", "key encipherment"];
    const REQUIRED: &str = "client auth";
    if let Some(other) = usages.iter().find(|usage| *usage != REQUIRED && !OPTIONAL.contains(&usage.as_str())) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    match usages.iter().any(|usage| usage == REQUIRED) {
        true => Ok(()),
        false => Err(format!("missing required usage for client certificate: {REQUIRED}")),
    }
}

/// Checks the request of a kubelet for the certificate with which it is a user.
pub fn check_kubelet_client(request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    check_organization(request)?;
    let names = request.names;
    let forbidden = [(names.dns, "DNS"), (names.email, "Email"), (names.ip, "IP"), (names.uri, "URI")];
    refuse_names(&forbidden)?;
    check_usages(usages, "client auth")?;
    check_common_name(request)
}

fn check_kubelet_serving(request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    check_organization(request)?;
    let names = request.names;
    if names.dns == 0 && names.ip == 0 {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    refuse_names(&[(names.email, "Email"), (names.uri, "URI")])?;
    check_usages(usages, "server auth")?;
    check_common_name(request)
}

fn check_organization(request: &CertificateRequest) -> Result<(), String> {
    match request.subject.organizations == [node::GROUP] {
        true => Ok(()),
        false => Err("subject organization is not system:nodes".to_owned()),
    }
}

fn check_common_name(request: &CertificateRequest) -> Result<(), String> {
    match request.subject.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".to_owned()),
    }
}

fn refuse_names(forbidden: &[(usize, &str)]) -> Result<(), String> {
    match forbidden.iter().find(|(count, _)| *count > 0) {
        Some((_, name)) => Err(format!("{name} subjectAltNames are not allowed")),
        None => Ok(()),
    }
}

/// Refuses other usages than these. `key encipherment` may be left out, because not all keys can encipher.
fn check_usages(usages: &[String], purpose: &str) -> Result<(), String> {
    let requested: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let all = BTreeSet::from([purpose, "digital signature", "key encipherment"]);
    let fewer = BTreeSet::from([purpose, "digital signature"]);
    if requested == all || requested == fewer {
        return Ok(());
    }
    Err(format!("usages did not match [{}]", Vec::from_iter(all).join(" ")))
}
