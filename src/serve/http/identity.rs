//! The server's TLS identity: a certificate of the cluster's authority, which is published in the kubeconfig.
//!
//! Kubernetes' clients send a kubeconfig's token over TLS only, even on the same machine (client-go:
//! `IsConfigTransportTLS`).

use super::client_certificate::ClientAuthority;
use crate::apiserver::tokens::keys::ClusterKeys;
use crate::object::IgnorePoison;
use crate::runtime::own_addresses;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use std::net::IpAddr;
use std::sync::{Arc, RwLock};
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

/// TLS of a server: its own certificate, and those of its clients.
#[derive(Clone)]
pub struct ServerTls {
    /// Proves the server's certificate to clients.
    pub acceptor: TlsAcceptor,
    /// Tells users by their certificates.
    pub clients: ClientAuthority,
    shown: Arc<ShownCertificate>,
}

/// The certificate that a server shows, until another takes its place.
#[derive(Debug)]
struct ShownCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().ignore_poison().clone())
    }
}

impl ServerTls {
    /// Shows another certificate to new clients. Both in PEM format.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> anyhow::Result<()> {
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>()?;
        let new = certified_key(chain, PrivateKeyDer::from_pem_slice(key)?)?;
        *self.shown.0.write().ignore_poison() = Arc::new(new);
        Ok(())
    }
}

fn certified_key(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> anyhow::Result<CertifiedKey> {
    Ok(CertifiedKey::from_der(chain, key, &default_provider())?)
}

/// A certificate for the addresses of one server.
pub struct ServerCertificate {
    /// The TLS side of the server.
    pub tls: ServerTls,
    /// The authority's certificate for clients, PEM.
    pub authority: String,
}

/// Makes a certificate for this machine's own names and the listening address; for all of its IPv4 addresses where it listens on every one.
/// `others`: further addresses, among them that of the Service `kubernetes`, by which clients in pods reach it.
pub fn new_certificate(keys: &ClusterKeys, address: IpAddr, others: &[IpAddr]) -> anyhow::Result<ServerCertificate> {
    let mut server = CertificateParams::new(certificate_names(address, others))?;
    server.distinguished_name.push(DnType::CommonName, "kloop");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let own = KeyPair::generate()?;
    let shown = server.signed_by(&own, &keys.issuer()?)?;

    let secret = PrivateKeyDer::Pkcs8(own.serialize_der().into());
    let tls = configure(vec![shown.der().clone()], secret, keys.authority.as_bytes())?;
    Ok(ServerCertificate { tls, authority: keys.authority.clone() })
}

fn certificate_names(address: IpAddr, others: &[IpAddr]) -> Vec<String> {
    let mut names = NAMES.map(str::to_owned).to_vec();
    names.extend([address].iter().chain(others).map(ToString::to_string));
    if address.is_unspecified() {
        names.extend(own_addresses().iter().map(ToString::to_string));
    }
    names
}

/// Reads a certificate with its chain and key, and the authority of the clients, all in PEM format.
pub fn read_certificate(chain: &[u8], key: &[u8], clients: &[u8]) -> anyhow::Result<ServerTls> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>()?;
    configure(chain, PrivateKeyDer::from_pem_slice(key)?, clients)
}

fn configure(
    chain: Vec<CertificateDer<'static>>,
    secret: PrivateKeyDer<'static>,
    clients: &[u8],
) -> anyhow::Result<ServerTls> {
    let config =
        ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let clients = ClientAuthority::from_pem(clients)?;
    let config = config.with_client_cert_verifier(clients.handshake_verifier());
    let shown = Arc::new(ShownCertificate(RwLock::new(Arc::new(certified_key(chain, secret)?))));
    let mut config = config.with_cert_resolver(shown.clone());
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(ServerTls { acceptor: TlsAcceptor::from(Arc::new(config)), clients, shown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use std::net::Ipv4Addr;
    use x509_cert::Certificate;
    use x509_cert::der::Decode;
    use x509_cert::ext::pkix::SubjectAltName;
    use x509_cert::ext::pkix::name::GeneralName;

    #[test]
    fn new_clients_see_the_replaced_certificate() {
        let keys = Api::in_memory("test").unwrap().keys().unwrap();
        let address = Ipv4Addr::LOCALHOST.into();
        let tls = new_certificate(&keys, address, &[address]).unwrap().tls;
        let shown = || tls.shown.0.read().unwrap().cert[0].to_vec();
        let before = shown();
        let own = KeyPair::generate().unwrap();
        let new = CertificateParams::new(vec!["n".to_owned()]).unwrap().self_signed(&own).unwrap();
        tls.replace(new.pem().as_bytes(), own.serialize_pem().as_bytes()).unwrap();
        assert!(shown() == new.der().to_vec() && shown() != before);
        assert!(tls.replace(b"nothing", b"nothing").is_err());
        assert_eq!(shown(), new.der().to_vec());
    }

    #[test]
    fn certificate_for_every_address_names_those_of_the_machine() {
        let keys = Api::in_memory("test").unwrap().keys().unwrap();
        let names = |address: Ipv4Addr| {
            let made = certificate_names(address.into(), &[Ipv4Addr::new(127, 9, 128, 1).into()]);
            let own = KeyPair::generate().unwrap();
            let params = CertificateParams::new(made).unwrap().signed_by(&own, &keys.issuer().unwrap()).unwrap();
            let certificate = Certificate::from_der(params.der()).unwrap();
            let (_, names) = certificate.tbs_certificate.get::<SubjectAltName>().unwrap().unwrap();
            let addresses = names.0.into_iter().filter_map(|name| match name {
                GeneralName::IpAddress(bytes) => <[u8; 4]>::try_from(bytes.as_bytes()).ok().map(Ipv4Addr::from),
                _ => None,
            });
            addresses.collect::<Vec<_>>()
        };
        let fixed = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(127, 9, 128, 1)];
        assert_eq!(names(fixed[1]), fixed);
        let all = names(Ipv4Addr::UNSPECIFIED);
        assert!(own_addresses().iter().all(|own| all.contains(own)), "{all:?}");
    }
}
