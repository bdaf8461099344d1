//! Connections to the servers that requests are forwarded to, with or without TLS.
//!
//! Certificates of pods are not verified, as an API server does for `https:NAME:PORT`: the address comes from the cluster itself. Those of
//! extension API servers are, unless their APIService says otherwise.

use crate::runtime::https::trust::{self, TlsClientKey, Trust};
use crate::runtime::relay;
use crate::serve::target::{ExtensionTls, ProxyTarget, ProxyTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time limit for a connection to the other server, its TLS handshake included.
const CONNECT: Duration = Duration::from_secs(30);

static TLS: LazyLock<Result<TlsConnector, Error>> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(AnyCertificate(provider));
    let config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
});

/// A connection to another server.
pub trait ServerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<A: AsyncRead + AsyncWrite + Send + Unpin> ServerStream for A {}

/// Connects to a target. The error says why it cannot be reached.
pub async fn connect(target: &ProxyTarget, own: Option<&TlsClientKey>) -> Result<Box<dyn ServerStream>, String> {
    let connect = async {
        let stream = relay::connect(target.place).await?;
        let (connector, name) = match &target.tls {
            ProxyTls::Plain => return Ok(Box::new(stream) as Box<dyn ServerStream>),
            ProxyTls::AnyCertificate => {
                (TLS.as_ref().map_err(|error| error.to_string())?.clone(), ServerName::from(target.place.ip()))
            }
            ProxyTls::Extension(tls) => {
                let name = ServerName::try_from(tls.host.clone()).map_err(|error| error.to_string())?;
                (extension_connector(tls, own)?, name)
            }
        };
        let stream = connector.connect(name, stream).await.map_err(|error| trust::handshake_error(&error))?;
        Ok(Box::new(stream) as Box<dyn ServerStream>)
    };
    timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(format!("dial tcp {}: i/o timeout", target.place)))
}

fn extension_connector(tls: &ExtensionTls, own: Option<&TlsClientKey>) -> Result<TlsConnector, String> {
    let own = own.cloned().unwrap_or_default();
    if tls.verifies {
        return Trust::new(tls.authorities.as_deref())?.connector_as(own, &[]);
    }
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.dangerous();
    let config = config.with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
    Ok(TlsConnector::from(Arc::new(own.configure(config)?)))
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
