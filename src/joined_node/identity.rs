//! The client certificate of a node: requested with the join token, stored in the folder of the node's state, renewed before it expires.
//!
//! Knows: a request (CertificateSigningRequest) is approved and signed at the server; the key never leaves this machine.
//! Never: writes a file before it has the certificate. Start reading at [`request_certificate`].

use crate::client::{ApiClient, ClientError, ClientRequest, Credentials, ServerConfig};
use crate::kinds::node;
use crate::object::{Time, io_error_text};
use crate::runtime::folder;
use crate::runtime::https::trust::TlsClientKey;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Map, Value, json};
use std::fs::{self};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use x509_cert::Certificate;
use x509_cert::der::DecodePem;

/// The requests for certificates.
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Signers of the certificates of nodes: as a client of the server, and as a server itself.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of the certificate with which a node serves.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// Usual time limit for the approval and the signature.
const SIGNATURE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time after which a message names a request that still waits.
const REPORT_AFTER: Duration = Duration::from_secs(5);
/// Minimum and maximum pause between two reads of a request.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A certificate to request.
pub struct NodeCertificateRequest<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The signer.
    pub signer: &'a str,
    /// Addresses and names of a server; empty for a client.
    pub addresses: &'a [String],
}

/// The wait for the signature of a request.
pub struct WaitForSignature<'a> {
    /// Time limit.
    pub patience: Duration,
    /// Called with the name of a request that waits for longer than usual, once.
    pub tell: &'a dyn Fn(&str),
    /// Whether the certificate is no longer needed.
    pub is_over: &'a dyn Fn() -> bool,
}

impl Default for WaitForSignature<'_> {
    fn default() -> Self {
        WaitForSignature { patience: SIGNATURE_TIMEOUT, tell: &|_| {}, is_over: &|| false }
    }
}

/// Requests a certificate, and waits until it is signed.
pub fn request_certificate(
    client: &ApiClient,
    order: &NodeCertificateRequest<'_>,
    wait: &WaitForSignature<'_>,
) -> Result<TlsClientKey, String> {
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let request = encode_request(order, &key).map_err(|error| error.to_string())?;
    let purpose = if order.signer == SERVING_SIGNER { "server auth" } else { "client auth" };
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "node-csr-"},
        "spec": {
            "signerName": order.signer, "request": BASE64_STANDARD.encode(request),
            "usages": ["digital signature", purpose],
        },
    });
    let made = client.send(ClientRequest::post(REQUESTS, &body)).and_then(|reply| reply.json());
    let made = made.map_err(|error| explain(&error))?;
    let name = made["metadata"]["name"].as_str().ok_or("the server gave the request no name")?;
    let certificate = wait_for_certificate(client, name, wait)?;
    Ok(TlsClientKey { certificate: certificate.into(), key: key.serialize_pem().into() })
}

/// Explains why a server refuses a token.
pub fn explain(error: &ClientError) -> String {
    match error.code() {
        401 => "the server does not know this token: it is wrong, or its time is over (`kloop node token create` makes one)".to_owned(),
        403 => format!("the token may not ask for a node's certificate: {error}"),
        404 => "the server knows no CertificateSigningRequests of version v1: it speaks an older Kubernetes, or none".to_owned(),
        _ => error.to_string(),
    }
}

fn encode_request(order: &NodeCertificateRequest<'_>, key: &KeyPair) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, node::GROUP);
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{}", order.node));
    for address in order.addresses {
        params.subject_alt_names.push(match address.parse::<IpAddr>() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(address.as_str().try_into()?),
        });
    }
    params.serialize_request(key)?.pem()
}

/// Waits until a request is signed.
fn wait_for_certificate(client: &ApiClient, name: &str, wait: &WaitForSignature<'_>) -> Result<String, String> {
    let path = format!("{REQUESTS}/{name}");
    let (started, mut pause, mut is_told) = (Instant::now(), FIRST_PAUSE, false);
    while started.elapsed() < wait.patience && !(wait.is_over)() {
        let request = client.send(ClientRequest::get(&path)).and_then(|reply| reply.json());
        let request = request.map_err(|error| error.to_string())?;
        let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
        if let Some(refused) =
            conditions.clone().find(|condition| matches!(condition["type"].as_str(), Some("Denied" | "Failed")))
        {
            let message = refused["message"].as_str().unwrap_or_default();
            return Err(format!("the request {name} for the node's certificate was refused: {message}"));
        }
        if let Some(text) = request["status"]["certificate"].as_str().filter(|text| !text.is_empty()) {
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| error.to_string())?;
            return String::from_utf8(bytes).map_err(|error| error.to_string());
        }
        if !is_told && started.elapsed() >= REPORT_AFTER {
            (wait.tell)(name);
            is_told = true;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
    Err(format!(
        "the request {name} for the node's certificate was not approved and signed within {} s: a control plane has to run at the \
         server (kloop reconcile --watch), or an administrator approves it: kubectl certificate approve {name}",
        wait.patience.as_secs()
    ))
}

/// Returns the moment after which a certificate is to be renewed: when four fifths of its time are over.
pub fn renewal_time(certificate: &str) -> Option<Time> {
    let certificate = Certificate::from_pem(certificate).ok()?;
    let validity = certificate.tbs_certificate.validity;
    let seconds = |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).ok();
    let (begin, end) = (seconds(validity.not_before)?, seconds(validity.not_after)?);
    Time::from_second(begin + (end - begin) / 5 * 4).ok()
}

/// Returns the kubeconfig of a node: its server, the authority, and its certificate.
fn kubeconfig(config: &ServerConfig, node: &str) -> Value {
    let mut cluster = json!({"server": config.address.to_string()});
    if let Some(authorities) = &config.authorities {
        cluster["certificate-authority-data"] = BASE64_STANDARD.encode(authorities).into();
    }
    let key = &config.credentials.key;
    let user = json!({
        "client-certificate-data": BASE64_STANDARD.encode(key.certificate.as_bytes()),
        "client-key-data": BASE64_STANDARD.encode(key.key.as_bytes()),
    });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": node,
        "clusters": [{"name": node, "cluster": cluster}],
        "contexts": [{"name": node, "context": {"cluster": node, "user": node}}],
        "users": [{"name": node, "user": user}],
    })
}

/// Writes the kubeconfig of a node, readable by its owner only; replaces an older one at once.
pub fn store(path: &Path, config: &ServerConfig, node: &str) -> Result<(), String> {
    write_private(path, &kubeconfig(config, node).to_string())
}

/// Writes a file that only its owner can read; replaces an older one at once.
pub fn write_private(path: &Path, text: &str) -> Result<(), String> {
    folder::replace_durably(path, text.as_bytes())
        .map_err(|error| format!("cannot write {}: {}", path.display(), io_error_text(error)))
}

/// Reads the kubeconfig of a node. Returns the node's name and the configuration; `None` when there is none.
pub fn load(path: &Path) -> Result<Option<(String, ServerConfig)>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {}", path.display(), io_error_text(error))),
    };
    let wrong = |why: String| format!("{} is damaged ({why}): remove it, and join with a token again", path.display());
    let config: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let entry =
        |list: &str, key: &str| -> Map<String, Value> { config[list][0][key].as_object().cloned().unwrap_or_default() };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let server =
        ServerConfig::from_entries(&entry("clusters", "cluster"), &entry("users", "user"), folder).map_err(wrong)?;
    let node = config["current-context"].as_str().unwrap_or_default().to_owned();
    Ok(Some((node, server)))
}

/// Returns the same server for another certificate.
pub fn with_key(config: &ServerConfig, key: TlsClientKey) -> ServerConfig {
    ServerConfig { credentials: Credentials { key, ..Credentials::default() }, ..config.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::shared::certificate_request::CertificateRequest;

    #[test]
    fn request_names_the_node_and_its_addresses() {
        let key = KeyPair::generate().unwrap();
        let addresses = ["10.0.0.1".to_owned(), "a.example".to_owned()];
        let order = NodeCertificateRequest { node: "a", signer: SERVING_SIGNER, addresses: &addresses };
        let request = CertificateRequest::parse(encode_request(&order, &key).unwrap().as_bytes()).unwrap();
        assert_eq!(
            (request.subject.common_name.as_str(), request.names.dns, request.names.ip),
            ("system:node:a", 1, 1)
        );
        assert_eq!(request.subject.organizations, ["system:nodes"]);
    }

    #[test]
    fn stored_identity_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.kubeconfig");
        assert!(load(&path).unwrap().is_none());
        let config = ServerConfig::new("https://10.0.0.1:6443").unwrap();
        let config = with_key(&config, TlsClientKey { certificate: "C".into(), key: "K".into() });
        store(&path, &config, "a").unwrap();
        let (node, read) = load(&path).unwrap().unwrap();
        assert_eq!((node.as_str(), read.address.to_string().as_str()), ("a", "https://10.0.0.1:6443"));
        assert!(read.credentials.key == config.credentials.key);
        fs::write(&path, "{").unwrap();
        assert!(load(&path).err().unwrap().contains("is damaged"));
    }
}
