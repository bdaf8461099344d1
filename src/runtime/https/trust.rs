//! Trust in the certificates of servers: authorities from a bundle or of the system, and the words of Go for a certificate that is not
//! accepted.
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
use std::time::Duration;
use tokio_rustls::TlsConnector;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5280::{ANY_EXTENDED_KEY_USAGE, ID_KP_SERVER_AUTH};
use x509_cert::ext::pkix::ExtendedKeyUsage;

/// Files with the trusted authorities of the system, in the order in which Go searches them.
const SYSTEM: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Go's words for a certificate that is not accepted, before the reason.
const PREFIX: &str = "tls: failed to verify certificate: ";
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

/// Verifies as rustls does. Like Go, also accepts a server's certificate that is in the bundle itself, with any signer.
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
        match self.authorities.iter().any(|authority| authority == certificate) {
            true => verify_listed_certificate(certificate, name, now).map(|()| ServerCertVerified::assertion()),
            false => self.roots.verify_server_cert(certificate, intermediates, name, ocsp, now),
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

/// Checks the times, the name and the purpose of a certificate that is trusted itself, so that no issuer has to be found.
fn verify_listed_certificate(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    let damaged = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
    let content = Certificate::from_der(certificate).map_err(damaged)?.tbs_certificate;
    let now = Duration::from_secs(now.as_secs());
    if now < content.validity.not_before.to_unix_duration() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > content.validity.not_after.to_unix_duration() {
        return Err(CertificateError::Expired.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    let purposes = content.get::<ExtendedKeyUsage>().map_err(damaged)?.map(|(_, purposes)| purposes.0);
    let serves = |purpose: &ObjectIdentifier| [ID_KP_SERVER_AUTH, ANY_EXTENDED_KEY_USAGE].contains(purpose);
    match purposes {
        Some(purposes) if !purposes.iter().any(serves) => Err(CertificateError::InvalidPurpose.into()),
        _ => Ok(()),
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
    format!("{PREFIX}{why}")
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
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "x509: certificate specifies an incompatible key usage".to_owned()
        }
        other => format!("x509: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};

    /// 2026-06-01
    const NOW: u64 = 1_780_272_000;

    /// A certificate for `127.0.0.1` that an authority outside the bundle signed; valid from 2026 to 2027.
    fn issue(purposes: &[ExtendedKeyUsagePurpose]) -> CertificateDer<'static> {
        let issuer =
            Issuer::new(CertificateParams::new(["authority".to_owned()]).unwrap(), KeyPair::generate().unwrap());
        let mut parameters = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        parameters.extended_key_usages = purposes.to_vec();
        parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2027, 1, 1);
        parameters.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone()
    }

    /// Verifies `shown` with a bundle of `listed`.
    fn verify(
        listed: &CertificateDer<'static>,
        shown: &CertificateDer<'_>,
        name: &str,
        now: u64,
    ) -> Result<(), String> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(listed.clone()).unwrap();
        let roots = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let verifier = BundleVerifier { roots, authorities: vec![listed.clone()] };
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let verified = verifier.verify_server_cert(shown, &[], &name, &[], now);
        verified.map(|_| ()).map_err(|error| handshake_error(&io::Error::other(error)))
    }

    #[test]
    fn server_certificate_in_the_bundle_needs_no_authority_there() {
        let listed = issue(&[ExtendedKeyUsagePurpose::ServerAuth]);
        assert_eq!(verify(&listed, &listed, "127.0.0.1", NOW), Ok(()));
        assert_eq!(verify(&issue(&[]), &listed, "127.0.0.1", NOW), Err(format!("{PREFIX}{UNKNOWN}")));
        let unnamed = issue(&[]);
        assert_eq!(verify(&unnamed, &unnamed, "127.0.0.1", NOW), Ok(()));
    }

    #[test]
    fn server_certificate_in_the_bundle_is_checked_for_name_time_and_purpose() {
        let listed = issue(&[ExtendedKeyUsagePurpose::ServerAuth]);
        let names = "x509: certificate is valid for 127.0.0.1, not 127.0.0.2";
        assert_eq!(verify(&listed, &listed, "127.0.0.2", NOW), Err(format!("{PREFIX}{names}")));
        let times = "x509: certificate has expired or is not yet valid";
        for now in [NOW - 300 * 86_400, NOW + 300 * 86_400] {
            assert_eq!(verify(&listed, &listed, "127.0.0.1", now), Err(format!("{PREFIX}{times}")));
        }
        let client = issue(&[ExtendedKeyUsagePurpose::ClientAuth]);
        let purpose = "x509: certificate specifies an incompatible key usage";
        assert_eq!(verify(&client, &client, "127.0.0.1", NOW), Err(format!("{PREFIX}{purpose}")));
    }
}
