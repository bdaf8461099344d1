//! One connection to a member of etcd: gRPC over HTTP/2, with or without TLS.
//!
//! Never: chooses a member or tries again. Start reading at [`EtcdConnection::open`].

use super::address::EtcdAddress;
use crate::object::{host_port, io_error_text};
use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use hyper::http::{HeaderMap, Request};
use percent_encoding::percent_decode_str;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Maximum number of bytes of an answer, or of a message of a watch.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that a member may send before they are read.
const WINDOW: u32 = 4 << 20;

/// gRPC's status codes that kloop distinguishes.
const UNAUTHENTICATED: u16 = 16;
const PERMISSION_DENIED: u16 = 7;
const INVALID_ARGUMENT: u16 = 3;
const FAILED_PRECONDITION: u16 = 9;
const OUT_OF_RANGE: u16 = 11;
const UNIMPLEMENTED: u16 = 12;

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdError {
    /// The call did not reach a member, so nothing was changed.
    Unreachable(String),
    /// The call was sent, and etcd may have carried it out.
    Unanswered(String),
    /// etcd refused the call, or the client did not trust the member; another attempt would fail in the same way.
    Refused(String),
    /// The user's token is no longer valid.
    Unauthenticated(String),
}

impl EtcdError {
    /// The message of the failure.
    pub fn text(&self) -> &str {
        match self {
            EtcdError::Unreachable(text)
            | EtcdError::Unanswered(text)
            | EtcdError::Refused(text)
            | EtcdError::Unauthenticated(text) => text,
        }
    }

    /// Converts the failure of a call that changes nothing.
    pub fn into_read_failure(self) -> EtcdError {
        match self {
            EtcdError::Unanswered(text) => EtcdError::Unreachable(text),
            other => other,
        }
    }
}

/// The configuration of TLS for the members of an address; `None` without TLS.
pub fn read_tls(address: &EtcdAddress) -> Result<Option<Arc<ClientConfig>>, EtcdError> {
    let Some(cacert) = &address.cacert else { return Ok(None) };
    let refused = |text: String| EtcdError::Refused(text);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read_certificates(cacert)?);
    if roots.is_empty() {
        return Err(refused(format!("{} has no certificate of an authority", cacert.display())));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match &address.client_key {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let text = read_file(key)?;
            let parsed = PrivateKeyDer::from_pem_slice(&text)
                .map_err(|error| refused(format!("{} has no private key: {error}", key.display())))?;
            let chain = read_certificates(cert)?;
            config
                .with_client_auth_cert(chain, parsed)
                .map_err(|error| refused(format!("{} and {}: {error}", cert.display(), key.display())))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(config)))
}

fn read_file(path: &Path) -> Result<Vec<u8>, EtcdError> {
    std::fs::read(path)
        .map_err(|error| EtcdError::Refused(format!("cannot read {}: {}", path.display(), io_error_text(error))))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EtcdError> {
    let text = read_file(path)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
    match certificates.is_empty() {
        true => Err(EtcdError::Refused(format!("{} has no certificate in PEM", path.display()))),
        false => Ok(certificates),
    }
}

/// A connection.
#[derive(Clone)]
pub struct EtcdConnection {
    sender: SendRequest<Bytes>,
    /// Scheme and authority of its URLs.
    base: Arc<str>,
}

impl EtcdConnection {
    /// Connects to a member. Must be called on the thread of the runtime, which carries the connection.
    pub async fn open(member: &(String, u16), tls: Option<Arc<ClientConfig>>) -> Result<EtcdConnection, EtcdError> {
        let authority = host_port(&member.0, member.1);
        let at_member = |text: String| EtcdError::Unreachable(format!("{authority}: {text}"));
        let stream = TcpStream::connect((member.0.as_str(), member.1)).await;
        let stream = stream.map_err(|error| at_member(io_error_text(error)))?;
        // Small requests are not held back for others.
        let _ = stream.set_nodelay(true);
        match tls {
            None => EtcdConnection::greet(stream, format!("http://{authority}")).await.map_err(at_member),
            Some(config) => {
                let name = ServerName::try_from(member.0.clone()).map_err(|error| at_member(error.to_string()))?;
                let stream = TlsConnector::from(config).connect(name, stream).await;
                let stream = stream.map_err(|error| handshake_error(&authority, error))?;
                EtcdConnection::greet(stream, format!("https://{authority}")).await.map_err(at_member)
            }
        }
    }

    async fn greet<S>(stream: S, base: String) -> Result<EtcdConnection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (sender, connection) = builder.handshake(stream).await.map_err(|error| error.to_string())?;
        // The calls return its errors.
        tokio::spawn(connection);
        Ok(EtcdConnection { sender, base: base.into() })
    }

    /// Makes one call and returns the message of its answer.
    pub async fn call(&self, path: &str, token: Option<&str>, message: &[u8]) -> Result<Vec<u8>, EtcdError> {
        let mut answer = self.start(path, token, message, true).await?;
        let first = answer.next().await?;
        // The status follows the message.
        answer.end().await?;
        first.ok_or_else(|| EtcdError::Unanswered("etcd answered without a message".to_owned()))
    }

    /// Starts a call; `is_last`: whether no further message follows.
    pub async fn start(
        &self,
        path: &str,
        token: Option<&str>,
        message: &[u8],
        is_last: bool,
    ) -> Result<EtcdStream, EtcdError> {
        let unreachable = |error: h2::Error| EtcdError::Unreachable(error.to_string());
        let mut sender = self.sender.clone().ready().await.map_err(unreachable)?;
        let mut request = Request::post(format!("{}{path}", self.base))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("hasleader", "true");
        if let Some(token) = token {
            request = request.header("token", token);
        }
        let request = request.body(()).map_err(|error| EtcdError::Refused(error.to_string()))?;
        let (response, mut stream) = sender.send_request(request, false).map_err(unreachable)?;
        stream.send_data(frame(message), is_last).map_err(unanswered)?;
        let response = response.await.map_err(unanswered)?;
        let (head, body) = response.into_parts();
        // An answer of headers alone has its status there.
        check_status(&head.headers, false)?;
        if !head.status.is_success() {
            return Err(EtcdError::Refused(format!("it answers with HTTP {}: the server is not etcd", head.status)));
        }
        Ok(EtcdStream { body, pending: BytesMut::new(), _request: (!is_last).then_some(stream) })
    }
}

/// The answer of a call.
pub struct EtcdStream {
    body: RecvStream,
    pending: BytesMut,
    /// The request's side of a call that stays open.
    _request: Option<h2::SendStream<Bytes>>,
}

impl EtcdStream {
    /// Returns the next message; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, EtcdError> {
        loop {
            if let Some(head) = self.pending.first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if length > MAX_BYTES {
                    return Err(EtcdError::Unanswered(format!("its answer is longer than {MAX_BYTES} bytes")));
                }
                if self.pending.len() >= 5 + length {
                    let message = self.pending.split_to(5 + length);
                    return Ok(Some(message[5..].to_vec()));
                }
            }
            let Some(part) = self.body.data().await else { return Ok(None) };
            let part = part.map_err(unanswered)?;
            let _ = self.body.flow_control().release_capacity(part.len());
            self.pending.extend_from_slice(&part);
        }
    }

    /// Waits for the status after the last message.
    pub async fn end(&mut self) -> Result<(), EtcdError> {
        while let Some(part) = self.body.data().await {
            let part = part.map_err(unanswered)?;
            let _ = self.body.flow_control().release_capacity(part.len());
        }
        let trailers = self.body.trailers().await.map_err(unanswered)?.unwrap_or_default();
        check_status(&trailers, true)
    }
}

fn unanswered(error: h2::Error) -> EtcdError {
    EtcdError::Unanswered(error.to_string())
}

/// Frames a message as gRPC does: no compression, the length, the message.
fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.extend_from_slice(&[0]);
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed.freeze()
}

/// Returns the error of a gRPC status in headers or trailers.
fn check_status(headers: &HeaderMap, must_be_there: bool) -> Result<(), EtcdError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = text("grpc-status").and_then(|code| code.parse::<u16>().ok()) else {
        return match must_be_there {
            true => Err(EtcdError::Unanswered("etcd ended its answer without a status".to_owned())),
            false => Ok(()),
        };
    };
    let message = percent_decode_str(text("grpc-message").unwrap_or_default()).decode_utf8_lossy().into_owned();
    let message = message.strip_prefix("etcdserver: ").unwrap_or(&message).to_owned();
    match code {
        0 => Ok(()),
        UNAUTHENTICATED => Err(EtcdError::Unauthenticated(message)),
        PERMISSION_DENIED | INVALID_ARGUMENT | FAILED_PRECONDITION | OUT_OF_RANGE | UNIMPLEMENTED => {
            Err(EtcdError::Refused(message))
        }
        _ => Err(EtcdError::Unanswered(message)),
    }
}

/// Returns the failure of a TLS handshake: one about certificates is final.
fn handshake_error(authority: &str, error: std::io::Error) -> EtcdError {
    let text = format!("{authority}: {error}");
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(_) => EtcdError::Refused(text),
        None => EtcdError::Unreachable(text),
    }
}
