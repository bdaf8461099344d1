//! Certificates of clients: the common name is the user, the organizations are the groups.
//!
//! The handshake admits every certificate whose key the client has; a request with one of another authority is answered 401, as by
//! Kubernetes' API server. Start reading at [`ClientAuthority::identify_connection`].

use crate::apiserver::user::User;
use crate::kinds::shared::certificate_request::Subject;
use crate::object::format_hex;
use ring::digest::{SHA256, digest};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// The user of a connection, as its certificate names one.
#[derive(Clone, Debug, Default)]
pub enum ClientIdentity {
    /// The client shows no certificate.
    #[default]
    None,
    /// A user with a good certificate.
    User(Arc<User>),
    /// The certificate is expired, or of another authority, or for another use.
    Invalid,
}

/// The user of a connection, for as long as its certificates are valid.
#[derive(Clone, Debug, Default)]
pub struct ConnectionIdentity {
    identity: ClientIdentity,
    /// The time since 1970 at which the first of the certificates expires.
    expires: Option<Duration>,
}

impl ConnectionIdentity {
    /// Returns the user of a request: connections live on when a certificate expires.
    pub fn identity_at(&self, now: UnixTime) -> ClientIdentity {
        let is_expired = self.expires.is_some_and(|expires| expires.as_secs() < now.as_secs());
        if is_expired { ClientIdentity::Invalid } else { self.identity.clone() }
    }
}

/// The authority of the clients' certificates.
#[derive(Clone, Debug)]
pub struct ClientAuthority(Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// Trusts the authorities in PEM blocks.
    pub fn from_pem(authorities: &[u8]) -> anyhow::Result<ClientAuthority> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate?)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        Ok(ClientAuthority(verifier.allow_unauthenticated().build()?))
    }

    /// Returns the verifier for handshakes.
    pub fn handshake_verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(HandshakeVerifier(self.0.clone()))
    }

    /// Returns the user of a connection.
    pub fn identify_connection(&self, certificates: Option<&[CertificateDer<'_>]>) -> ConnectionIdentity {
        let parsed = certificates.into_iter().flatten().filter_map(|der| Certificate::from_der(der).ok());
        let ends = parsed.map(|certificate| certificate.tbs_certificate.validity.not_after.to_unix_duration());
        ConnectionIdentity { identity: self.identify(certificates), expires: ends.min() }
    }

    /// Returns the user whom a client's certificates name; the client's own certificate is first.
    fn identify(&self, certificates: Option<&[CertificateDer<'_>]>) -> ClientIdentity {
        let Some((own, others)) = certificates.and_then(<[_]>::split_first) else { return ClientIdentity::None };
        if self.0.verify_client_cert(own, others, UnixTime::now()).is_err() {
            return ClientIdentity::Invalid;
        }
        let Ok(certificate) = Certificate::from_der(own) else { return ClientIdentity::Invalid };
        let Subject { common_name, organizations, .. } = Subject::read(certificate.tbs_certificate.subject);
        if common_name.is_empty() {
            return ClientIdentity::None;
        }
        let fingerprint = format_hex(digest(&SHA256, own));
        ClientIdentity::User(Arc::new(User::certified(&common_name, organizations, &fingerprint)))
    }
}

/// Checks that a client has the key of its certificate, and nothing else.
#[derive(Debug)]
struct HandshakeVerifier(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for HandshakeVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use crate::kinds::shared::certificate_request::CertificateRequest;
    use crate::object::Time;
    use crate::object::time::Shift;
    use crate::world::CertificateOrder;
    use jiff::SignedDuration;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn identify(api: &mut Api, pem: &str) -> ClientIdentity {
        let authority = ClientAuthority::from_pem(api.keys().unwrap().authority.as_bytes()).unwrap();
        authority.identify(Some(&[CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()]))
    }

    #[test]
    fn certificate_names_a_user_and_groups() {
        let (mut api, mut other) = (Api::in_memory("test").unwrap(), Api::in_memory("test").unwrap());
        let authority = api.keys().unwrap().certificate_authority().unwrap();
        let groups = ["dev", "ops"].map(str::to_owned);
        let issue = |seconds, now| authority.issue("ann", &groups, seconds, now).unwrap().certificate;
        let good = issue(3600, Time::now());
        let ClientIdentity::User(user) = identify(&mut api, &good) else { panic!("no user") };
        assert_eq!((user.name.as_str(), user.groups.join(" ")), ("ann", "dev ops system:authenticated".to_owned()));
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
        assert!(matches!(identify(&mut other, &good), ClientIdentity::Invalid), "of another authority");
        let expired = issue(3600, Time::now().earlier(SignedDuration::from_hours(2)));
        assert!(matches!(identify(&mut api, &expired), ClientIdentity::Invalid));
        let authority = ClientAuthority::from_pem(api.keys().unwrap().authority.as_bytes()).unwrap();
        assert!(matches!(authority.identify(None), ClientIdentity::None));
        let certificate = CertificateDer::from_pem_slice(good.as_bytes()).unwrap();
        let connection = authority.identify_connection(Some(&[certificate]));
        let now = Duration::from_secs(UnixTime::now().as_secs());
        let at = |seconds| connection.identity_at(UnixTime::since_unix_epoch(now + Duration::from_secs(seconds)));
        assert!(matches!(at(3500), ClientIdentity::User(_)));
        assert!(matches!(at(3700), ClientIdentity::Invalid), "expired since the connection was opened");
    }

    #[test]
    fn certificate_of_a_server_is_none_of_a_user() {
        let mut api = Api::in_memory("test").unwrap();
        let authority = api.keys().unwrap().certificate_authority().unwrap();
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let request = CertificateRequest::parse(pem.as_bytes()).unwrap();
        assert_eq!((request.subject.common_name.as_str(), request.names.dns), ("system:node:a", 1));
        let usages = ["server auth".to_owned(), "digital signature".to_owned()];
        let order = CertificateOrder { request: &request, usages: &usages, seconds: 3600, now: Time::now() };
        let signed = authority.sign(&order).unwrap();
        assert!(matches!(identify(&mut api, &signed), ClientIdentity::Invalid));
        let odd = CertificateOrder { usages: &["odd".to_owned()], ..order };
        assert_eq!(authority.sign(&odd).unwrap_err().to_string(), "unrecognized usage values: [\"odd\"]");
    }

    #[test]
    fn changed_request_is_refused() {
        let params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        let der = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let place = der.windows(9).position(|part| part == b"a.example").unwrap();
        let mut changed = der;
        changed[place] = b'b';
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, changed);
        let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n");
        let refused = CertificateRequest::parse(pem.as_bytes()).unwrap_err();
        assert_eq!(refused, "x509: signature verification failure");
        for odd in ["not a request", "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let refused = CertificateRequest::parse(odd.as_bytes()).unwrap_err();
            assert_eq!(refused, "PEM block type must be CERTIFICATE REQUEST");
        }
    }
}
