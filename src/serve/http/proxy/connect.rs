//! Connections to the servers that requests are forwarded to, with or without TLS.
//!
//! Certificates of pods are not verified, as an API server does for `https:NAME:PORT`: the address comes from the cluster itself.

use crate::runtime::relay;
use crate::serve::target::ProxyTarget;
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
pub async fn connect(target: &ProxyTarget) -> Result<Box<dyn ServerStream>, String> {
    let connect = async {
        let stream = relay::connect(target.place).await?;
        if !target.is_tls {
            return Ok(Box::new(stream) as Box<dyn ServerStream>);
        }
        let connector = TLS.as_ref().map_err(|error| error.to_string())?;
        let name = ServerName::from(target.place.ip());
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        Ok(Box::new(stream) as Box<dyn ServerStream>)
    };
    timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(format!("dial tcp {}: i/o timeout", target.place)))
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
