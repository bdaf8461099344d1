//! Trust in the certificates of servers: authorities from a bundle or of the system, and the words of Go for a certificate that is not accepted.
//!
//! Never: accepts a certificate for another name, or one of an unknown authority, unless the caller asks for it
//! ([`Trust::unverified`]). Start reading at [`Trust`].

use rustls::client::WantsClientCert;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::io;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// The places where systems keep the authorities that they trust, as Go looks for them.
const SYSTEM: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Go's words for an authority that is not known.
const UNKNOWN: &str = "x509: certificate signed by unknown authority";

/// The authorities that a client trusts.
pub struct Trust {
    authorities: Vec<CertificateDer<'static>>,
    /// Whether certificates are verified.
    is_verified: bool,
}

impl Trust {
    /// Reads a bundle in PEM format; without one, the authorities of the system.
    pub fn new(bundle: Option<&[u8]>) -> Result<Trust, String> {
        let authorities = match bundle {
            Some(bundle) => read_certificates(bundle),
            None => SYSTEM.iter().find_map(|path| std::fs::read(path).ok()).and_then(|text| read_certificates(&text)),
        };
        let unable = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
        match authorities {
            Some(authorities) => Ok(Trust { authorities, is_verified: true }),
            None if bundle.is_some() => Err(unable()),
            None => Ok(Trust { authorities: Vec::new(), is_verified: true }),
        }
    }

    /// Accepts every certificate whose key has signed the handshake.
    pub fn unverified() -> Trust {
        Trust { authorities: Vec::new(), is_verified: false }
    }

    /// Makes connections that trust these authorities. `protocols` are names for ALPN.
    pub fn connector(self, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
        self.connector_as(TlsClientKey::default(), protocols)
    }

    /// Makes connections that trust these authorities, and show the certificate of a client.
    pub fn connector_as(self, own: TlsClientKey, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        let verifier: Arc<dyn ServerCertVerifier> = match roots.is_empty() {
            _ if !self.is_verified => Arc::new(AnyCertificate(provider)),
            true => Arc::new(NoAuthority(provider)),
            false => {
                let roots = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let roots = roots.map_err(|error| error.to_string())?;
                Arc::new(BundleVerifier { roots, authorities: self.authorities })
            }
        };
        let mut config = own.configure(config.dangerous().with_custom_certificate_verifier(verifier))?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// The certificate of a client with its key, both PEM; empty for a client without one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsClientKey {
    /// The certificate.
    pub certificate: Arc<str>,
    /// The key.
    pub key: Arc<str>,
}

impl TlsClientKey {
    /// Ends a configuration with this client's certificate.
    pub fn configure(&self, config: ConfigBuilder<ClientConfig, WantsClientCert>) -> Result<ClientConfig, String> {
        let Some(chain) = read_certificates(self.certificate.as_bytes()) else {
            return Ok(config.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| error.to_string())?;
        config.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
    }
}

/// The certificates of a machine that is linked.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkCertificates {
    /// The certificate that the machine shows to other machines as their client.
    pub client: TlsClientKey,
    /// The certificate that the machine shows as a server.
    pub server: TlsClientKey,
    /// The cluster's authority, PEM.
    pub authority: Arc<str>,
}

fn read_certificates(text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text).filter_map(Result::ok).collect();
    (!certificates.is_empty()).then_some(certificates)
}

/// Verifies as rustls does, and accepts a server's certificate that is in the bundle itself, as Go does.
#[derive(Debug)]
struct BundleVerifier {
    roots: Arc<WebPkiServerVerifier>,
    authorities: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.roots.verify_server_cert(certificate, intermediates, name, ocsp, now);
        // rustls has no name for the error that a server shows the certificate of an authority as its own.
        let is_in_bundle = |error: &Error| {
            let is_unnamed = matches!(error, Error::InvalidCertificate(CertificateError::Other(_)));
            is_unnamed && self.authorities.iter().any(|authority| authority == certificate)
        };
        match verified {
            Err(error) if is_in_bundle(&error) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.roots.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.roots.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.roots.supported_verify_schemes()
    }
}

/// Accepts no certificate: no authority is known.
#[derive(Debug)]
struct NoAuthority(Arc<CryptoProvider>);

impl ServerCertVerifier for NoAuthority {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts every certificate whose key has signed the handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Formats the error of a handshake as Go does.
pub fn handshake_error(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "EOF".to_owned(),
            io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
            _ => error.to_string(),
        };
    };
    let why = match tls {
        Error::InvalidMessage(_) => return "http: server gave HTTP response to HTTPS client".to_owned(),
        Error::InvalidCertificate(error) => certificate_error(error),
        Error::AlertReceived(alert) => return format!("remote error: tls: {alert:?}"),
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: {why}")
}

fn certificate_error(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => UNKNOWN.to_owned(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "x509: certificate has expired or is not yet valid".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let name = |text: &String| {
                let inner = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(text);
                inner.trim_matches('"').to_owned()
            };
            let names: Vec<String> = presented.iter().map(name).collect();
            let wanted = expected.to_str();
            match names.is_empty() {
                true => format!("x509: certificate is not valid for any names, but wanted to match {wanted}"),
                false => format!("x509: certificate is valid for {}, not {wanted}", names.join(", ")),
            }
        }
        other => format!("x509: {other}"),
    }
}
