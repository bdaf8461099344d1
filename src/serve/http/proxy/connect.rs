//! Connections to the servers that requests are forwarded to, with or without TLS.
//!
//! Certificates of pods are not verified, as in an API server's proxy to `https:NAME:PORT`: the address is from the cluster itself. Those
//! of extension API servers are verified, unless their APIService sets `insecureSkipTLSVerify`.

use crate::runtime::https::trust::{self, TlsClientKey, Trust};
use crate::runtime::relay;
use crate::serve::target::{ExtensionTls, ProxyTarget, ProxyTls};
use rustls::pki_types::ServerName;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time limit for a connection to the other server, its TLS handshake included.
const CONNECT: Duration = Duration::from_secs(30);

/// Time limit for the TLS handshake, as in Go: a server without TLS may wait for more of a request instead of an answer.
const HANDSHAKE: Duration = Duration::from_secs(10);

static TLS: LazyLock<Result<TlsConnector, String>> = LazyLock::new(|| Trust::unverified().connector(&[]));

/// A connection to another server.
pub trait ServerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<A: AsyncRead + AsyncWrite + Send + Unpin> ServerStream for A {}

/// Connects to a target. The error says why it cannot be reached.
pub async fn connect(target: &ProxyTarget, own: Option<&TlsClientKey>) -> Result<Box<dyn ServerStream>, String> {
    let connect = async {
        let stream = relay::connect(target.place).await?;
        let (connector, name) = match &target.tls {
            ProxyTls::Plain => return Ok(Box::new(stream) as Box<dyn ServerStream>),
            ProxyTls::AnyCertificate => (TLS.clone()?, ServerName::from(target.place.ip())),
            ProxyTls::Kubelet(tls) => {
                let trust = Trust::new(Some(&tls.authorities))?;
                (trust.connector_as(tls.own.clone(), &[])?, ServerName::from(target.place.ip()))
            }
            ProxyTls::Extension(tls) => {
                let name = ServerName::try_from(tls.host.clone()).map_err(|error| error.to_string())?;
                (extension_connector(tls, own)?, name)
            }
        };
        let handshake = timeout(HANDSHAKE, connector.connect(name, stream)).await;
        let handshake = handshake.map_err(|_| "net/http: TLS handshake timeout".to_owned())?;
        let stream = handshake.map_err(|error| trust::handshake_error(&error))?;
        Ok(Box::new(stream) as Box<dyn ServerStream>)
    };
    timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(format!("dial tcp {}: i/o timeout", target.place)))
}

fn extension_connector(tls: &ExtensionTls, own: Option<&TlsClientKey>) -> Result<TlsConnector, String> {
    let trust = if tls.verifies { Trust::new(tls.authorities.as_deref())? } else { Trust::unverified() };
    trust.connector_as(own.cloned().unwrap_or_default(), &[])
}
