//! Certificates: the choice for a client, by the name that it requests (SNI).

use crate::network::ingress::table::is_host;
use crate::object::Key;
use crate::world::ingress_routes::{IngressCertificate, IngressRoute};
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Name of HTTP/2 in ALPN.
pub const SECOND: &[u8] = b"h2";

/// The certificates of all Ingresses.
#[derive(Default)]
pub struct CertificateStore(BTreeMap<Key, Vec<CertificateForHosts>>);

/// A certificate with its hosts; an empty list is for any host.
type CertificateForHosts = (Vec<crate::object::Str>, Arc<CertifiedKey>);

impl CertificateStore {
    /// Replaces the certificates of an Ingress. Unreadable ones are left out.
    pub fn put(&mut self, ingress: &Key, ingress_route: Option<&IngressRoute>) {
        let certificates = ingress_route.into_iter().flat_map(|ingress_route| &ingress_route.certificates);
        let read = |one: &IngressCertificate| Some((one.hosts.clone(), Arc::new(read(one)?)));
        let read: Vec<CertificateForHosts> = certificates.filter_map(read).collect();
        match read.is_empty() {
            true => self.0.remove(ingress),
            false => self.0.insert(ingress.clone(), read),
        };
    }

    /// Returns the certificate for a name: an exact match, a wildcard, or one for any host. A client without SNI gets the first.
    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let all = || self.0.values().flatten();
        let Some(name) = name else { return all().next().map(|(_, key)| key.clone()) };
        let own = all().find(|(hosts, _)| hosts.iter().any(|host| host.eq_ignore_ascii_case(name)));
        let wild = || all().find(|(hosts, _)| hosts.iter().any(|host| is_host(host, name)));
        let any = || all().find(|(hosts, _)| hosts.is_empty());
        own.or_else(wild).or_else(any).map(|(_, key)| key.clone())
    }
}

fn read(certificate: &IngressCertificate) -> Option<CertifiedKey> {
    let key = pair(&certificate.chain, &certificate.key)?;
    // With a key of another certificate each handshake would fail with an obscure error.
    key.keys_match().ok().map(|()| key)
}

fn pair(chain: &[u8], key: &[u8]) -> Option<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let key = PrivateKeyDer::from_pem_slice(key).ok()?;
    Some(CertifiedKey::new(chain.ok()?, any_supported_type(&key).ok()?))
}

/// Whether a key belongs to another certificate. False when either cannot be read.
pub fn is_key_of_another(chain: &[u8], key: &[u8]) -> bool {
    let mismatch = rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch);
    pair(chain, key).is_some_and(|key| key.keys_match() == Err(mismatch))
}

/// Returns an acceptor that uses the current certificates.
pub fn acceptor(shared: Arc<super::SharedIngress>) -> Result<TlsAcceptor, rustls::Error> {
    let config =
        ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(CertificateResolver(shared)));
    config.alpn_protocols = vec![SECOND.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct CertificateResolver(Arc<super::SharedIngress>);

impl std::fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("certificates of Ingresses")
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock_state().certificates.find(hello.server_name())
    }
}
