//! The server's TLS identity: a certificate of the cluster's authority, which is published in the kubeconfig.
//!
//! Kubernetes' clients send a kubeconfig's token over TLS only, even on the same machine (client-go:
//! `IsConfigTransportTLS`).

use crate::apiserver::tokens::keys::ClusterKeys;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ServerConfig;
use std::net::IpAddr;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// The ALPN name of HTTP/2.
pub const HTTP2: &[u8] = b"h2";

/// Names of every server.
const NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// A certificate for the addresses of one server.
pub struct ServerCertificate {
    /// Proves it to clients.
    pub acceptor: TlsAcceptor,
    /// The authority's certificate for clients, PEM.
    pub authority: String,
}

/// Makes a certificate for this machine's own names and the listening address.
/// Clients in pods reach it by the names and the address of the Service `kubernetes`.
pub fn new_certificate(keys: &ClusterKeys, address: IpAddr, service: IpAddr) -> anyhow::Result<ServerCertificate> {
    let addresses = [address.to_string(), service.to_string()];
    let mut server = CertificateParams::new([&NAMES.map(str::to_owned)[..], &addresses].concat())?;
    server.distinguished_name.push(DnType::CommonName, "kloop");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let own = KeyPair::generate()?;
    let shown = server.signed_by(&own, &keys.issuer()?)?;

    let config =
        ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let secret = PrivateKeyDer::Pkcs8(own.serialize_der().into());
    let mut config = config.with_no_client_auth().with_single_cert(vec![shown.der().clone()], secret)?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(ServerCertificate { acceptor: TlsAcceptor::from(Arc::new(config)), authority: keys.authority.clone() })
}
