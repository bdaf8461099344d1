//! The warning about a TLS Secret whose key and certificate do not match, with the messages of Go's `tls.X509KeyPair`.

use super::data_keys::decode_value;
use crate::object::Object;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Warnings about a Secret.
pub fn warnings(secret: &Object) -> Vec<String> {
    if secret.text(&["type"]) != Some("kubernetes.io/tls") {
        return Vec::new();
    }
    let part = |name: &str| {
        let text = secret.text(&["data", name]).unwrap_or_default();
        decode_value(text)
    };
    problem(&part("tls.crt"), &part("tls.key")).into_iter().map(str::to_owned).collect()
}

/// The problem of a pair of PEM texts, if any.
fn problem(certificate: &[u8], key: &[u8]) -> Option<&'static str> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let Some(chain) = chain.ok().filter(|chain| !chain.is_empty()) else {
        return Some("tls: failed to find any PEM data in certificate input");
    };
    let Ok(key) = PrivateKeyDer::from_pem_slice(key) else {
        return Some("tls: failed to find any PEM data in key input");
    };
    let Ok(key) = any_supported_type(&key) else { return Some("tls: failed to parse private key") };
    match CertifiedKey::new(chain, key).keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Some("tls: private key does not match public key")
        }
        Err(rustls::Error::InvalidCertificate(_)) => Some("x509: malformed certificate"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use serde_json::json;

    #[test]
    fn mismatched_key_pair_is_reported() {
        let warned = |kind: &str, certificate: &str| {
            let data = json!({"tls.crt": base64::engine::general_purpose::STANDARD.encode(certificate), "tls.key": ""});
            warnings(&Object(json!({"type": kind, "data": data})))
        };
        assert_eq!(warned("Opaque", ""), Vec::<String>::new());
        assert_eq!(warned("kubernetes.io/tls", "x"), ["tls: failed to find any PEM data in certificate input"]);
        let block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(warned("kubernetes.io/tls", block), ["tls: failed to find any PEM data in key input"]);
    }
}
