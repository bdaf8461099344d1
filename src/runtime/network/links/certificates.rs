//! TLS of links: both ends show a certificate of the cluster's authority for the node that they are.
//!
//! Never: accepts a certificate of another authority, nor one of another node. Start reading at [`server_config`].

use crate::kinds::node;
use crate::kinds::shared::certificate_request::Subject;
use crate::runtime::https::trust::{TlsClientKey, Trust};
use crate::world::node_links::LinkIdentity;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// The protocol of links (ALPN).
const PROTOCOL: &[u8] = b"h2";
/// The beginning of the names of nodes as users.
const PREFIX: &str = "system:node:";

/// TLS of both ends of links; an error where the certificates cannot be used.
#[derive(Clone)]
pub struct LinkTls {
    /// TLS of the end that accepts links.
    pub acceptor: Result<TlsAcceptor, String>,
    /// TLS of the end that dials.
    pub connector: Result<TlsConnector, String>,
}

impl LinkTls {
    /// Reads the certificates of this machine.
    pub fn new(identity: &LinkIdentity) -> LinkTls {
        LinkTls { acceptor: acceptor(identity), connector: connector(identity) }
    }
}

fn acceptor(identity: &LinkIdentity) -> Result<TlsAcceptor, String> {
    let config = server_config(identity).map_err(|error| error.to_string())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn server_config(identity: &LinkIdentity) -> anyhow::Result<ServerConfig> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(identity.authority.as_bytes()) {
        roots.add(authority?)?;
    }
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let chain = CertificateDer::pem_slice_iter(identity.server_certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.server_key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn connector(identity: &LinkIdentity) -> Result<TlsConnector, String> {
    let own = TlsClientKey { certificate: (&*identity.client_certificate).into(), key: (&*identity.client_key).into() };
    Trust::new(Some(identity.authority.as_bytes()))?.connector_as(own, &[PROTOCOL])
}

/// Returns the node that a verified certificate is of.
pub fn node_of(certificates: Option<&[CertificateDer<'_>]>) -> Option<String> {
    let certificate = Certificate::from_der(certificates?.first()?).ok()?;
    let subject = Subject::read(certificate.tbs_certificate.subject);
    let is_node = subject.organizations.iter().any(|organization| organization == node::GROUP);
    subject.common_name.strip_prefix(PREFIX).filter(|name| is_node && !name.is_empty()).map(str::to_owned)
}
