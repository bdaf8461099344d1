//! The end of a link that dials: one HTTP/2 connection to a machine, made again when it breaks.
//!
//! Knows: each carried connection is a CONNECT request for the pod's address (RFC 9113, 8.5). Never: repeats a request whose connection has
//! broken. Start reading at [`LinkedPeer::open`].

use super::{CONNECTION_WINDOW, FRAME_BYTES, KEEP_ALIVE, LinkReport, STREAM_WINDOW, certificates};
use crate::object::{IgnorePoison, io_error_text};
use crate::runtime::https::trust::handshake_error;
use crate::world::node_links::NodeLink;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

/// Header with the address of the client's pod.
pub const SOURCE: &str = "kloop-source";

/// Header with the protocol of a carried connection that is not TCP.
pub const PROTOCOL: &str = "kloop-protocol";
pub const UDP: &str = "udp";

/// The content of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The bytes of a TCP connection.
    Connection,
    /// Datagrams of UDP.
    Datagrams,
}

/// Time limit for making the connection, and for the answer to a request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause before a broken link is made again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Longest reason of a refusal that is read.
const MAX_REASON_LENGTH: usize = 1024;

/// Another machine, and the connection to it. Dropped, it closes the connection.
pub struct LinkedPeer {
    /// The link.
    pub link: NodeLink,
    state: Arc<Mutex<LinkedPeerState>>,
    connector: SharedConnector,
    task: AbortHandle,
}

/// TLS of the next connection.
type SharedConnector = Arc<Mutex<Result<TlsConnector, String>>>;

#[derive(Default)]
struct LinkedPeerState {
    sender: Option<SendRequest<Empty<Bytes>>>,
    /// The reason why there is no connection.
    problem: Option<String>,
}

impl Drop for LinkedPeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LinkedPeer {
    /// Starts to connect.
    pub fn start(link: NodeLink, connector: Result<TlsConnector, String>, report: LinkReport) -> Arc<LinkedPeer> {
        let state: Arc<Mutex<LinkedPeerState>> = Arc::default();
        let connector: SharedConnector = Arc::new(Mutex::new(connector));
        let keep = keep_connected(link.clone(), connector.clone(), state.clone(), report);
        Arc::new(LinkedPeer { link, state, connector, task: tokio::spawn(keep).abort_handle() })
    }

    /// Uses other certificates from the next connection on.
    pub fn set_connector(&self, connector: Result<TlsConnector, String>) {
        *locked(&self.connector) = connector;
    }

    /// Why the link is down; `None` while it is up, or not known yet.
    pub fn problem(&self) -> Option<String> {
        locked(&self.state).problem.clone()
    }

    /// Opens a stream to a pod of that machine, for a client with this address.
    pub async fn open(&self, to: SocketAddrV4, source: Option<Ipv4Addr>, carried: Carried) -> Result<Upgraded, String> {
        let sender = locked(&self.state).sender.clone();
        let Some(mut sender) = sender else {
            return Err(self.problem().unwrap_or_else(|| "the link is not up yet".to_owned()));
        };
        let mut request = Request::connect(to.to_string());
        if let Some(source) = source {
            request = request.header(SOURCE, source.to_string());
        }
        if carried == Carried::Datagrams {
            request = request.header(PROTOCOL, UDP);
        }
        let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
        let answer = timeout(CONNECT_TIMEOUT, sender.send_request(request)).await;
        let response = answer.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
        let response = check_answer(response).await?;
        hyper::upgrade::on(response).await.map_err(|error| error.to_string())
    }
}

fn locked<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().ignore_poison()
}

/// Connects, again and again.
async fn keep_connected(
    link: NodeLink,
    connector: SharedConnector,
    state: Arc<Mutex<LinkedPeerState>>,
    report: LinkReport,
) {
    let note = |problem: Option<String>| {
        let is_news = {
            let mut state = locked(&state);
            // The first connection is news, too.
            let is_news = state.problem != problem || (problem.is_none() && state.sender.is_some());
            state.problem.clone_from(&problem);
            is_news
        };
        if is_news {
            report(link.node.clone(), problem);
        }
    };
    let mut pause = FIRST_PAUSE;
    loop {
        let connector = locked(&connector).clone();
        let connect = async { connect(&link, &connector?).await };
        let connected = timeout(CONNECT_TIMEOUT, connect).await;
        match connected.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
            Ok((sender, connection)) => {
                pause = FIRST_PAUSE;
                locked(&state).sender = Some(sender);
                note(None);
                let why = connection.await;
                locked(&state).sender = None;
                note(Some(why));
            }
            Err(why) => note(Some(why)),
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// The task of a connection; it ends with the connection, and returns why.
type LinkConnection = Pin<Box<dyn Future<Output = String> + Send>>;

async fn connect(
    link: &NodeLink,
    connector: &TlsConnector,
) -> Result<(SendRequest<Empty<Bytes>>, LinkConnection), String> {
    let failed = |error: std::io::Error| format!("dial tcp {}: {}", link.address, io_error_text(error));
    let stream = TcpStream::connect(link.address).await.map_err(failed)?;
    let _ = stream.set_nodelay(true);
    let name = ServerName::IpAddress(link.address.ip().into());
    let stream = connector.connect(name, stream).await.map_err(|error| handshake_error(&error))?;
    let node = certificates::node_of(stream.get_ref().1.peer_certificates());
    if node.as_deref() != Some(&*link.node) {
        let found = node.map_or_else(|| "no node".to_owned(), |node| format!("node {node}"));
        return Err(format!("{found} answers at {}", link.address));
    }
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let closed = || "the other machine has closed the connection".to_owned();
    let mut connection: LinkConnection =
        Box::pin(async move { connection.await.err().map_or_else(closed, |error| error.to_string()) });
    // With TLS 1.3 the other end refuses a certificate after the handshake.
    tokio::select! {
        greeted = greet(&mut sender) => greeted?,
        why = &mut connection => return Err(why),
    }
    Ok((sender, connection))
}

/// Asks the other machine whether it accepts the link from this machine.
async fn greet(sender: &mut SendRequest<Empty<Bytes>>) -> Result<(), String> {
    let request = Request::get("http://link/").body(Empty::new()).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    check_answer(response).await.map(drop)
}

/// Returns the response, or the reason of its refusal.
async fn check_answer(mut response: Response<Incoming>) -> Result<Response<Incoming>, String> {
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let body = Limited::new(response.body_mut(), MAX_REASON_LENGTH).collect().await;
    let reason = body.map(|body| body.to_bytes()).unwrap_or_default();
    Err(String::from_utf8_lossy(&reason).into_owned())
}
