//! Finds out the authority of a server that is not trusted yet (kubeadm: `cluster-info`, `--discovery-token-ca-cert-hash`).
//!
//! Knows: anyone may read the authority's certificate; a joining node compares it with a hash from a trusted source.
//! Never: sends a token to a server before its authority was compared. Start reading at [`discover`].

use crate::client::{ApiClient, ClientError, ClientRequest, Credentials, HeaderCredentials, ServerConfig};
use crate::object::{format_hex, yaml};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use std::sync::Arc;
use x509_cert::Certificate;
use x509_cert::der::{DecodePem, Encode};

/// The object that has the authority's certificate.
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// The server to join, and the reason to trust it.
#[derive(Clone, Debug)]
pub struct JoinTarget {
    /// Its URL.
    pub server: String,
    /// The join token.
    pub token: String,
    /// Hashes of the authority's public key, any of which has to match: `sha256:HEX`.
    pub hashes: Vec<String>,
    /// The authority's certificate, PEM, from a trusted file; then nothing is discovered.
    pub authority: Option<String>,
    /// Whether any authority is accepted.
    pub trusts_any: bool,
}

/// Returns the configuration of a client with the join token, once the authority is trusted.
pub fn discover(target: &JoinTarget) -> Result<ServerConfig, String> {
    let mut config = ServerConfig::new(&target.server)?;
    if !config.address.is_tls {
        return Err(format!("{} is not an HTTPS address, and the token would be readable on its way", target.server));
    }
    let authority = match &target.authority {
        Some(authority) => authority.clone(),
        None => fetch_authority(target, &config)?,
    };
    config.authorities = Some(Arc::from(authority.into_bytes()));
    config.credentials =
        Credentials { header: HeaderCredentials::Token(target.token.clone()), ..Credentials::default() };
    Ok(config)
}

fn fetch_authority(target: &JoinTarget, config: &ServerConfig) -> Result<String, String> {
    if target.hashes.is_empty() && !target.trusts_any {
        return Err("the server cannot be trusted without the hash of its authority: give --discovery-token-ca-cert-hash, which \
             `kloop node token create` prints, or --certificate-authority with its certificate"
            .to_owned());
    }
    let unverified = ServerConfig { is_verified: false, ..config.clone() };
    let client = ApiClient::new(unverified).map_err(|error| error.to_string())?;
    let info = client.send(ClientRequest::get(CLUSTER_INFO)).and_then(|reply| reply.json());
    let info = info.map_err(|error| explain(&error))?;
    let authority = parse_authority(&info)?;
    let found = hash_authority(&authority)?;
    if !target.trusts_any && !target.hashes.iter().any(|hash| hash.eq_ignore_ascii_case(&found)) {
        return Err(format!(
            "the authority of {} has the hash {found}, and not {}: this is another cluster, or the connection is intercepted",
            target.server,
            target.hashes.join(" or ")
        ));
    }
    Ok(authority)
}

fn explain(error: &ClientError) -> String {
    match error.code() {
        401 | 403 | 404 => format!(
            "the server does not publish its authority ({error}): run `kloop node token create` there, or give its certificate with \
             --certificate-authority"
        ),
        _ => error.to_string(),
    }
}

/// Returns the certificate in the ConfigMap `cluster-info`.
fn parse_authority(info: &Value) -> Result<String, String> {
    let wrong = |why: &str| format!("the server's ConfigMap kube-public/cluster-info {why}");
    let text = info["data"]["kubeconfig"].as_str().ok_or_else(|| wrong("has no kubeconfig"))?;
    let config =
        yaml::documents(text).ok().and_then(|mut documents| (documents.len() == 1).then(|| documents.remove(0)));
    let config = config.ok_or_else(|| wrong("has a kubeconfig that is not YAML"))?.value;
    let data = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
    let data = data.ok_or_else(|| wrong("has no certificate-authority-data"))?;
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| wrong("has an authority that is not base64"))?;
    String::from_utf8(bytes).map_err(|_| wrong("has an authority that is not PEM"))
}

/// Returns the hash of an authority's public key, as kubeadm writes it.
pub fn hash_authority(pem: &str) -> Result<String, String> {
    let certificate =
        Certificate::from_pem(pem).map_err(|error| format!("the authority is not a certificate: {error}"))?;
    let key = certificate.tbs_certificate.subject_public_key_info.to_der().map_err(|error| error.to_string())?;
    Ok(format!("sha256:{}", format_hex(digest(&SHA256, &key))))
}

/// Returns the ConfigMap `cluster-info` of a cluster.
pub fn cluster_info(server: &str, authority: &str) -> Value {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "users": null, "contexts": null, "current-context": "",
        "clusters": [{"name": "", "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(authority)}}],
    });
    serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": yaml::to_yaml(&kubeconfig)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;

    #[test]
    fn published_authority_is_the_one_that_was_hashed() {
        let authority = Api::in_memory("test").unwrap().keys().unwrap().authority.clone();
        let info = cluster_info("https://a:1", &authority);
        assert_eq!(parse_authority(&info).unwrap(), authority);
        let hash = hash_authority(&authority).unwrap();
        assert!(hash.starts_with("sha256:") && hash.len() == 7 + 64, "{hash}");
        let other = Api::in_memory("test").unwrap().keys().unwrap().authority.clone();
        assert_ne!(hash_authority(&other).unwrap(), hash);
        for (info, problem) in [
            (serde_json::json!({}), "has no kubeconfig"),
            (serde_json::json!({"data": {"kubeconfig": "a: ["}}), "is not YAML"),
            (serde_json::json!({"data": {"kubeconfig": "a: b"}}), "has no certificate-authority-data"),
        ] {
            assert!(parse_authority(&info).unwrap_err().ends_with(problem));
        }
    }

    #[test]
    fn server_is_not_trusted_without_a_reason() {
        let target = JoinTarget {
            server: "https://127.0.0.1:1".into(),
            token: "abcdef.0123456789abcdef".into(),
            hashes: Vec::new(),
            authority: None,
            trusts_any: false,
        };
        assert!(discover(&target).err().unwrap().contains("cannot be trusted without the hash"));
        let plain = JoinTarget { server: "http://127.0.0.1:1".into(), ..target.clone() };
        assert!(discover(&plain).err().unwrap().contains("is not an HTTPS address"));
        let away = JoinTarget { trusts_any: true, ..target };
        assert!(discover(&away).err().unwrap().contains("was refused"));
    }
}
