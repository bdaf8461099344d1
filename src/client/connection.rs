//! The connections to a server: one of HTTP/2 for all requests, or several of HTTP/1.1 where the server speaks nothing newer.
//!
//! Knows: the server may have closed an idle connection; only a request that was not sent, or that may be repeated, is sent again. A
//! connection whose peer does not answer pings is closed, so that no watch waits for a machine that is gone.
//! Never: waits without a limit for a connection. Start reading at [`ServerConnections::exchange`].

use super::credentials::{HeldCredentials, PresentedCredentials};
use super::error::{ClientError, ClientResult};
use super::kubeconfig::ServerConfig;
use crate::object::IgnorePoison;
use crate::runtime::https::answer::http_error;
use crate::runtime::https::trust::{self, TlsClientKey};
use crate::runtime::relay;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::{AUTHORIZATION, HOST, USER_AGENT};
use hyper::http::request;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time limit for a connection, its TLS handshake included.
const CONNECT: Duration = Duration::from_secs(15);
/// Interval between pings, and the time limit for the answer to one.
const PING: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests and watches on one connection of HTTP/2; servers allow 100 to 250.
const MAX_STREAMS: usize = 90;
/// Maximum number of idle connections of HTTP/1.1 that are kept.
const MAX_IDLE: usize = 16;
/// Maximum number of objects of a page of a list, where the command names none.
const PAGE: u32 = 500;
/// Bytes of a stream and of a connection that the server may send before they are read.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The name that servers log.
const AGENT: &str = concat!("kloop/", env!("CARGO_PKG_VERSION"));

/// A connection without or with TLS.
pub trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<A: AsyncRead + AsyncWrite + Send + Unpin> ClientStream for A {}

/// A request that is ready to be sent.
type Outgoing = Request<Full<Bytes>>;

/// The connections of a client.
pub struct ServerConnections {
    config: ServerConfig,
    credentials: HeldCredentials,
    open: Arc<Mutex<OpenConnections>>,
    /// Maximum number of objects of a page of a list; 0 for whole lists.
    page: AtomicU32,
    /// Held while a connection is made, so that many requests at once share the new one.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct OpenConnections {
    /// The client's certificate in these connections.
    key: TlsClientKey,
    shared: Vec<SharedConnection>,
    idle: Vec<http1::SendRequest<Full<Bytes>>>,
}

/// A connection of HTTP/2.
#[derive(Clone)]
struct SharedConnection {
    sender: http2::SendRequest<Full<Bytes>>,
    /// A clone for each request and watch that uses the connection; their number is the reference count.
    users: Arc<()>,
}

impl ServerConnections {
    /// Makes no connection yet.
    pub fn new(config: ServerConfig) -> ClientResult<ServerConnections> {
        // Says at once that the authorities or the key cannot be used.
        config.connector(&config.credentials.key, &[]).map_err(ClientError::Config)?;
        let credentials = HeldCredentials::new(config.credentials.clone(), config.cluster_entry());
        let (open, opening) = Default::default();
        Ok(ServerConnections { config, credentials, open, page: AtomicU32::new(PAGE), opening })
    }

    /// The maximum number of objects of a page of a list; 0 for whole lists.
    pub fn page(&self) -> u32 {
        self.page.load(Ordering::Relaxed)
    }

    /// Changes the size of a page.
    pub fn set_page(&self, page: u32) {
        self.page.store(page, Ordering::Relaxed);
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// `10.0.0.1:6443`
    pub fn authority(&self) -> String {
        self.config.address.authority()
    }

    /// Forgets credentials that the server does not accept, so that others are made. Returns whether there can be others.
    pub fn forget_credentials(&self) -> bool {
        self.credentials.forget()
    }

    /// Sends a request, and returns the head of the answer. The lease is given back once the body has been read.
    pub async fn exchange(
        &self,
        head: request::Builder,
        path: &str,
        body: Bytes,
    ) -> ClientResult<(Response<Incoming>, ConnectionLease)> {
        let presented = self.credentials.present().await?;
        let mut request = self.complete(head, path, &presented)?.map(|()| Full::new(body));
        let (method, url) = (request.method().clone(), request.uri().to_string());
        self.config.log.request(&method, &url, request.headers());
        let started = Instant::now();
        loop {
            let (mut sender, is_new) = self.acquire(&presented.key).await?;
            let copy = is_repeatable(&request).then(|| request.clone());
            let failed = match sender.send(request, &self.config).await {
                Ok(response) => {
                    let (status, headers) = (response.status(), response.headers());
                    self.config.log.response((&method, &url), status, headers, started.elapsed());
                    return Ok((response, ConnectionLease { sender, open: self.open.clone() }));
                }
                Err(failed) => failed,
            };
            let (unsent, error) = failed;
            // The server may have closed an older connection; the error of a new one counts.
            match unsent.or(copy).filter(|_| !is_new) {
                Some(again) => request = again,
                None => return Err(self.unreachable(http_error(&error))),
            }
        }
    }

    /// Completes the head of a request: address, name and credentials.
    pub fn complete(
        &self,
        head: request::Builder,
        path: &str,
        presented: &PresentedCredentials,
    ) -> ClientResult<Request<()>> {
        let uri = format!("{}{path}", self.config.address);
        let mut head = head.uri(uri).header(USER_AGENT, AGENT);
        if let Some(authorization) = &presented.authorization {
            head = head.header(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in self.config.impersonation.headers() {
            head = head.header(name, value);
        }
        head.body(()).map_err(|error| ClientError::Config(format!("{path:?} is not a request path: {error}")))
    }

    /// Makes a connection of its own, for a protocol other than HTTP/2. Returns the credentials to present on it.
    pub async fn open_own(&self) -> ClientResult<(Box<dyn ClientStream>, PresentedCredentials)> {
        let presented = self.credentials.present().await?;
        let (stream, _) = self.connect(&presented.key, &[b"http/1.1"]).await?;
        Ok((stream, presented))
    }

    /// Makes the error of a server that cannot be reached.
    pub fn unreachable(&self, why: String) -> ClientError {
        ClientError::Unreachable { server: self.authority(), why }
    }

    /// Returns a connection, and whether it is new.
    async fn acquire(&self, key: &TlsClientKey) -> ClientResult<(RequestSender, bool)> {
        if let Some(sender) = self.take_open(key) {
            return Ok((sender, false));
        }
        let _opening = self.opening.lock().await;
        if let Some(sender) = self.take_open(key) {
            return Ok((sender, false));
        }
        let (stream, is_http2) = self.connect(key, &[b"h2", b"http/1.1"]).await?;
        let failed = |error: hyper::Error| self.unreachable(http_error(&error));
        let stream = TokioIo::new(stream);
        if !is_http2 {
            let (sender, connection) = http1::handshake(stream).await.map_err(failed)?;
            tokio::spawn(connection);
            return Ok((RequestSender::Own(sender), true));
        }
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING_TIMEOUT);
        builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(stream).await.map_err(failed)?;
        tokio::spawn(connection);
        let shared = SharedConnection { sender, users: Arc::new(()) };
        lock(&self.open).shared.push(shared.clone());
        Ok((RequestSender::Shared(shared), true))
    }

    fn take_open(&self, key: &TlsClientKey) -> Option<RequestSender> {
        let mut open = lock(&self.open);
        if open.key != *key {
            *open = OpenConnections { key: key.clone(), ..OpenConnections::default() };
        }
        open.shared.retain(|shared| !shared.sender.is_closed());
        // The count includes the reference in the list itself.
        if let Some(shared) = open.shared.iter().find(|shared| Arc::strong_count(&shared.users) <= MAX_STREAMS) {
            return Some(RequestSender::Shared(shared.clone()));
        }
        while let Some(idle) = open.idle.pop() {
            if !idle.is_closed() {
                return Some(RequestSender::Own(idle));
            }
        }
        None
    }

    /// Connects. Returns the connection, and whether the server chose HTTP/2.
    async fn connect(&self, key: &TlsClientKey, protocols: &[&[u8]]) -> ClientResult<(Box<dyn ClientStream>, bool)> {
        let connect = async {
            let stream = relay::connect_to_host(&self.config.address.host, self.config.address.port).await?;
            // Sends small requests without delay. A failure only makes them slower.
            let _ = stream.set_nodelay(true);
            if !self.config.address.is_tls {
                return Ok((Box::new(stream) as Box<dyn ClientStream>, false));
            }
            let connector: TlsConnector = self.config.connector(key, protocols)?;
            let name = self.config.tls_name.as_ref().unwrap_or(&self.config.address.host).clone();
            let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
            let stream = connector.connect(name, stream).await.map_err(|error| trust::handshake_error(&error))?;
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok((Box::new(stream) as Box<dyn ClientStream>, is_http2))
        };
        let address = self.authority();
        let connected = timeout(CONNECT, connect).await;
        connected
            .unwrap_or_else(|_| Err(format!("dial tcp {address}: i/o timeout")))
            .map_err(|why| self.unreachable(why))
    }
}

/// Whether a request may be carried out twice.
fn is_repeatable(request: &Outgoing) -> bool {
    [Method::GET, Method::HEAD].contains(request.method())
}

/// The right to a connection until the body of the answer has been read.
pub struct ConnectionLease {
    sender: RequestSender,
    open: Arc<Mutex<OpenConnections>>,
}

impl ConnectionLease {
    /// Keeps the connection for the next request.
    pub fn give_back(self) {
        let RequestSender::Own(sender) = self.sender else { return };
        let mut open = lock(&self.open);
        if open.idle.len() < MAX_IDLE {
            open.idle.push(sender);
        }
    }
}

/// A connection that can send a request.
enum RequestSender {
    /// HTTP/1.1, for one request at a time.
    Own(http1::SendRequest<Full<Bytes>>),
    /// HTTP/2.
    Shared(SharedConnection),
}

impl RequestSender {
    /// Sends a request. A failure returns the request if nothing of it was sent.
    async fn send(
        &mut self,
        mut request: Outgoing,
        config: &ServerConfig,
    ) -> Result<Response<Incoming>, (Option<Outgoing>, hyper::Error)> {
        let sent = match self {
            RequestSender::Own(sender) => {
                if let Err(error) = sender.ready().await {
                    return Err((Some(request), error));
                }
                use_origin_form(&mut request, config);
                sender.try_send_request(request).await
            }
            RequestSender::Shared(SharedConnection { sender, .. }) => {
                if let Err(error) = sender.ready().await {
                    return Err((Some(request), error));
                }
                *request.version_mut() = Version::HTTP_2;
                sender.try_send_request(request).await
            }
        };
        sent.map_err(|mut error: TrySendError<Outgoing>| {
            let unsent = error.take_message().map(|mut request| {
                // As it was before: another connection may speak another version.
                *request.version_mut() = Version::HTTP_11;
                request
            });
            (unsent, error.into_error())
        })
    }
}

/// Gives a request of HTTP/1.1 its path alone, and the server's name as a header.
pub fn use_origin_form<B>(request: &mut Request<B>, config: &ServerConfig) {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    if let (Ok(path), Ok(host)) = (path.parse(), config.address.authority().parse()) {
        *request.uri_mut() = path;
        request.headers_mut().insert(HOST, host);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}
