//! The HTTP server around the API: connections, access control, and streamed answers.
//!
//! One thread handles all connections; other threads, a limited number, read or write the state. TLS and plain HTTP share one port: a
//! client's first byte distinguishes them.

mod audit;
pub mod audit_log;
pub mod client_certificate;
mod compress;
mod connections;
mod exchange;
mod extensions;
mod fair_turns;
mod fresh_reads;
pub mod guard;
pub mod identity;
pub mod kubelet_guard;
mod log_tail;
mod piece_buffers;
pub mod problem_log;
mod proxy;
pub mod proxy_filter;
mod receive;
mod request_metrics;
mod state_place;
mod stream;
mod streams;
mod turns;
mod upkeep;
mod work;

use super::audit::AuditContext;
use super::audit::policy::AuditStage;
use super::form::AnswerForm;
use super::request::UpgradeProtocol;
use super::target::ProxyTls;
use super::{AnswerBody, ApiRequest, HttpAnswer, ServeResult, advertise, kubelet_paths};
use crate::apiserver::authorization::cache::AccessCache;
use crate::apiserver::encoded_bodies::EncodedBodies;
use crate::apiserver::outside_client::OutsideClient;
use crate::apiserver::packed_documents::PackedDocuments;
use crate::apiserver::stored_bodies::StoredBodies;
use crate::apiserver::{Api, SharedWriter, custom};
use crate::kinds::KindRegistry;
use crate::object::{Status, Time, yaml};
use crate::reconcile::metrics::LoopMetrics;
use crate::runtime::allocator::use_mimalloc;
use crate::runtime::descriptors;
use crate::runtime::peer::{Peer, Peers};
use crate::runtime::relay::accept;
use audit_log::{AuditExchange, AuditLog};
use bytes::Bytes;
use client_certificate::ConnectionIdentity;
use connections::{Client, Connection, Connections};
use exchange::{Exchange, ServerMetrics};
use extensions::Extensions;
use fair_turns::FairTurns;
use guard::{Access, AccessGuard};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use identity::{HTTP2, ServerTls};
use log_tail::LogTail;
use piece_buffers::PieceBuffers;
use problem_log::{LogText, ProblemLog};
use proxy::ProxiedHead;
use request_metrics::RequestMetrics;
use state_place::StatePlace;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::available_parallelism;
use std::time::Duration;
use stream::AnswerStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Span, debug_span};
use turns::Turns;

/// Time limit for the headers of a request, also of the next one on a connection, and for a body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a client to authenticate, from its connection on.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connections, which also is at most a quarter of this process's descriptors, because pods need some.
const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of concurrent requests.
const MAX_REQUESTS: usize = 16;
/// Maximum number of concurrent requests of unauthenticated clients.
const MAX_ANONYMOUS_REQUESTS: usize = 2;
/// Maximum number of concurrent measurements of pods and nodes.
const MAX_MEASUREMENTS: usize = 2;
/// Maximum number of concurrent requests for OpenAPI documents, which are long.
const MAX_DOCUMENT_REQUESTS: usize = 2;
/// Maximum number of threads that make pieces of long lists, because each keeps some memory; fewer where processors are few.
const MAX_LIST_THREADS: usize = 4;
/// Maximum number of headers of a request, such as those that name the groups of an impersonated user. Each request fills a table of this
/// size.
const MAX_HEADERS: usize = 256;
/// Requests on one connection of HTTP/2 at the same time, watches included.
const STREAMS: u32 = 250;
/// Maximum number of bytes that an HTTP/2 connection buffers for a client that does not read.
const MAX_UNREAD_BYTES: usize = 256 << 10;
/// Time for running requests when the server ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a body in bytes, as in Kubernetes.
const MAX_BODY_BYTES: usize = yaml::MAX_BYTES;
/// The writer's name in the log of the store.
const ACTOR: &str = "serve";
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// A server that has not started yet.
pub struct HttpServer {
    /// The cluster's file.
    pub state: PathBuf,
    /// The listening socket.
    pub listener: std::net::TcpListener,
    /// The kubeconfig for clients, which is locked until the server ends; `None` where clients need none.
    pub entry: Option<std::fs::File>,
    /// The socket at which it answers as the kubelet of this machine's node; only with TLS.
    pub kubelet: Option<KubeletListener>,
    /// Access control.
    pub guard: AccessGuard,
    /// TLS; `None` for plain HTTP.
    pub tls: Option<ServerTls>,
    /// The audit log, if one is written.
    pub audit: Option<Arc<AuditLog>>,
    /// Whether it advertises itself as the Service `kubernetes`, and compacts the log of the store.
    pub keeps_up: bool,
    /// Measurements of the control plane in this process.
    pub control_plane: Option<Arc<LoopMetrics>>,
    /// Receives lines for the log.
    pub log: LogText,
}

/// A second socket of a server, at which the paths are those of a kubelet.
pub struct KubeletListener {
    /// The listening socket.
    pub listener: std::net::TcpListener,
    /// The name of the node.
    pub node: String,
}

/// State shared by all connections.
struct ServerState {
    state: StatePlace,
    guard: AccessGuard,
    tls: Option<ServerTls>,
    audit: Option<Arc<AuditLog>>,
    /// Open states that are not in use.
    idle: Mutex<Vec<Api>>,
    /// The kinds of the cluster, shared by all of them.
    kinds: KindRegistry,
    /// Roles and bindings by user, shared by all of them.
    access_cache: AccessCache,
    /// Encodings of stored bodies, shared by all of them.
    encoded_bodies: EncodedBodies,
    /// Stored bodies of objects that clients have got, shared by all of them.
    stored_bodies: StoredBodies,
    /// Long documents, shared by all of them.
    packed_documents: PackedDocuments,
    /// Makes the writes of all clients.
    writer: Arc<SharedWriter>,
    tail: OnceLock<Arc<LogTail>>,
    metrics: Arc<ServerMetrics>,
    /// Turns of requests of anonymous clients.
    anonymous: Arc<FairTurns>,
    /// Turns of requests that measure, which wait for a moment.
    measuring: Arc<FairTurns>,
    /// Turns of requests for OpenAPI documents.
    documents: Arc<FairTurns>,
    /// The client of the server's own work.
    itself: Arc<Client>,
    /// Permits for streams.
    streams: Arc<Semaphore>,
    /// Turns of the threads that make pieces of long lists.
    lists: Arc<FairTurns>,
    /// Buffers for the pieces of lists.
    buffers: Arc<PieceBuffers>,
    /// Turns of the threads that read or write the state.
    turns: Turns,
    /// Asks webhooks for all clients.
    outside: Arc<OutsideClient>,
    /// The state of the loop that asks extension servers.
    extensions: Extensions,
    /// Problems of the server's own work.
    problems: ProblemLog,
    /// Permits for requests that extension servers answer.
    extension_requests: Arc<Semaphore>,
}

impl HttpServer {
    /// The address that the Service `kubernetes` leads to while this server runs; `None` for plain HTTP.
    fn advertised_address(&self) -> Option<SocketAddr> {
        self.tls.as_ref().filter(|_| self.keeps_up).and(self.listener.local_addr().ok()).map(advertise::reachable)
    }

    /// Serves until `stop` completes.
    pub fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let runtime = turns::make_runtime(MAX_REQUESTS)?;
        let advertised = self.advertised_address();
        use_mimalloc();
        let HttpServer { state, listener, entry, kubelet, guard, tls, audit, keeps_up, control_plane, log } = self;
        let shared = Arc::new(ServerState::new(state, (guard, tls, audit.clone()), control_plane, log));
        let ended = runtime.block_on(async move {
            let upkeep = if keeps_up { upkeep::start(&shared) } else { Vec::new() };
            let advertising = advertised.map(|address| tokio::spawn(upkeep::advertise(shared.clone(), address)));
            let clients = accept_clients(listener, shared.clone(), None)?;
            let kubelet = kubelet.filter(|_| shared.tls.is_some());
            let kubelet = kubelet.map(|own| accept_clients(own.listener, shared.clone(), Some(own.node.into())));
            let kubelet = kubelet.transpose()?;
            stop.await;
            clients.abort();
            kubelet.iter().for_each(JoinHandle::abort);
            upkeep.iter().for_each(JoinHandle::abort);
            if let (Some(address), Some(advertising)) = (advertised, advertising) {
                upkeep::withdraw(&shared, address, advertising).await;
            }
            Ok(())
        });
        // Waits for running writes.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        audit.iter().for_each(|audit| audit.flush());
        drop(entry);
        ended
    }
}

/// Accepts connections, each as a task of its own. With `kubelet`, answers as the kubelet of that node.
fn accept_clients(
    listener: std::net::TcpListener,
    shared: Arc<ServerState>,
    kubelet: Option<Arc<str>>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let connections = Connections::new(MAX_CONNECTIONS.min(descriptors::soft_limit() / 4));
    let peers = Peers::open();
    Ok(tokio::spawn(accept(listener, move |client, from| {
        let _ = client.set_nodelay(true);
        let peer = client.local_addr().map_or(Peer::Address(from.ip()), |own| peers.find(from, own));
        let connection = connections.open(peer);
        let id = connection.id();
        let task = tokio::spawn(accept_connection(client, shared.clone(), connection, kubelet.clone()));
        connections.set_abort_handle(id, task.abort_handle());
    })))
}

/// Accepts one connection: by its first byte it is TLS or plain HTTP.
async fn accept_connection(
    client: TcpStream,
    shared: Arc<ServerState>,
    connection: Connection,
    kubelet: Option<Arc<str>>,
) {
    let until = Instant::now() + AUTHENTICATION_TIMEOUT;
    let address = client.peer_addr().ok().map(|address| address.ip());
    let plain = Arc::new(ClientFacts { address, ..ClientFacts::default() });
    let Some(tls) = shared.tls.clone() else {
        return serve_connection(client, shared, connection, until, plain).await;
    };
    let mut first = [0];
    match timeout_at(until, client.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == HANDSHAKE => {
            if let Ok(Ok(client)) = timeout_at(until, tls.acceptor.accept(client)).await {
                let session = client.get_ref().1;
                let is_http2 = session.alpn_protocol() == Some(HTTP2);
                let client_identity = tls.clients.identify_connection(session.peer_certificates());
                let facts = Arc::new(ClientFacts { is_http2, identity: client_identity, address, kubelet });
                serve_connection(client, shared, connection, until, facts).await;
            }
        }
        // A kubelet serves over TLS only.
        Ok(Ok(1)) if kubelet.is_none() => serve_connection(client, shared, connection, until, plain).await,
        _ => {}
    }
}

/// Serves one client until it disconnects, or until this moment while it is unauthenticated.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shared: Arc<ServerState>,
    connection: Connection,
    until: Instant,
    facts: Arc<ClientFacts>,
) {
    let connection = Arc::new(connection);
    let own = connection.clone();
    let own_facts = facts.clone();
    let service = service_fn(move |request| {
        let (shared, connection) = (shared.clone(), connection.clone());
        let facts = own_facts.clone();
        async move {
            let is_head = request.method() == Method::HEAD;
            let reply = respond(request, shared, connection, facts).await;
            Ok::<_, Infallible>(if is_head { stream::remove_body(reply) } else { reply })
        }
    });
    // Broken connections of clients are not errors here.
    let conversation: Conversation = if facts.is_http2 {
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.timer(TokioTimer::new()).max_concurrent_streams(STREAMS).max_send_buf_size(MAX_UNREAD_BYTES);
        server.keep_alive_interval(REQUEST_TIMEOUT).keep_alive_timeout(REQUEST_TIMEOUT);
        Box::pin(server.serve_connection(TokioIo::new(stream), service))
    } else {
        let mut server = hyper::server::conn::http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT).max_headers(MAX_HEADERS);
        Box::pin(server.serve_connection(TokioIo::new(stream), service).with_upgrades())
    };
    let mut conversation = pin!(conversation);
    if timeout_at(until, conversation.as_mut()).await.is_err() && !own.is_unauthenticated() {
        let _ = conversation.await;
    }
}

/// Facts about the client of a connection.
#[derive(Default)]
struct ClientFacts {
    is_http2: bool,
    /// The user of its certificate.
    identity: ConnectionIdentity,
    address: Option<IpAddr>,
    /// The node as whose kubelet the server answers; `None` for the API.
    kubelet: Option<Arc<str>>,
}

type Conversation = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

type HttpReply = Response<AnswerStream>;

async fn respond(
    mut request: hyper::Request<Incoming>,
    shared: Arc<ServerState>,
    connection: Arc<Connection>,
    facts: Arc<ClientFacts>,
) -> HttpReply {
    let active = connection.begin_request();
    let upgrade_asked = streams::read_upgrade(request.headers());
    let upgrade = hyper::upgrade::on(&mut request);
    let accept = receive::text(request.headers(), &ACCEPT);
    let span = debug_span!("request", method = %request.method(), path = request.uri().path(), status = Empty);
    let (head, body) = request.into_parts();
    let mut asked = ApiRequest { upgrade: upgrade_asked.clone(), ..receive::read_head(&head) };
    match &facts.kubelet {
        Some(node) => kubelet_paths::translate(node, &mut asked),
        None => shared.guard.translate(&mut asked),
    }
    let exchange = Exchange::begin(&head.headers, &asked, &shared.kinds, &shared.metrics);
    let audited = begin_audit(&shared, &facts, &exchange, receive::target(&head.uri));
    let client = (&*connection, &*facts, audited.as_ref());
    let answer = match receive::receive_request((&head, asked), body, &shared, client).await {
        Ok(admitted) => {
            let server = (&shared, connection.client());
            answer_request(admitted, server, &exchange, audited.clone(), &span).await
        }
        Err(status) => Err(status),
    };
    let answer = answer.and_then(|answer| stream::refuse_excess(answer, &shared.streams));
    let refuse = |status: Status| {
        let form = AnswerForm::negotiate_error(&ApiRequest { accept: accept.clone(), ..ApiRequest::default() });
        HttpAnswer::refusal(&status, &form)
    };
    let answer = answer.unwrap_or_else(&refuse);
    span.record("status", answer.code);
    let answer = exchange.end(answer, &shared.metrics);
    let end = audited.filter(|audited| record_answer(audited, &answer));
    let begun = connection.begin_request();
    let server = (shared.clone(), connection.client().clone());
    let reply = match (answer.body, upgrade_asked) {
        (AnswerBody::Streams(target), Some(asked)) => streams::begin(*target, &asked, upgrade, &shared.streams, begun),
        (AnswerBody::Watch(watching), Some(asked)) if asked.protocol == UpgradeProtocol::WebSocket => {
            let is_protobuf = watching.is_protobuf();
            let events = stream::watch(*watching, server.clone());
            streams::begin_watch(events, is_protobuf, &asked, upgrade, begun)
        }
        (AnswerBody::Proxied(target), _) => {
            let query = head.uri.query().map(str::to_owned);
            let proxied = ProxiedHead { method: head.method, query, headers: head.headers, upgrade };
            let is_extension = matches!(target.tls, ProxyTls::Extension(_));
            let own = if is_extension { extensions::own_identity(&shared).await } else { None };
            let permits = if is_extension { &shared.extension_requests } else { &shared.streams };
            proxy::forward(*target, proxied, own.as_ref(), permits, begun).await
        }
        (body, _) => Ok(to_http_reply(HttpAnswer { body, ..answer }, server.clone())),
    };
    let reply = reply.unwrap_or_else(|status| to_http_reply(refuse(status), server));
    reply.map(|body| body.with_request(active, end))
}

/// Begins the audit of a request of the API; `None` without an audit log.
fn begin_audit(
    shared: &ServerState,
    facts: &ClientFacts,
    exchange: &Exchange,
    uri: &str,
) -> Option<Arc<AuditExchange>> {
    let log = shared.audit.clone().filter(|_| facts.kubelet.is_none())?;
    let source = facts.address.map(|address| address.to_string());
    let (id, uri) = (exchange.id().to_owned(), uri.to_owned());
    Some(Arc::new(AuditExchange::new(log, AuditContext { id, uri, source, received: Time::now() })))
}

/// Records an answer in the audit log. Returns whether its end is still to come.
fn record_answer(audited: &AuditExchange, answer: &HttpAnswer) -> bool {
    audited.set_answer(answer);
    match answer.body {
        AnswerBody::Whole(_) | AnswerBody::Packed(_) => audited.record(AuditStage::ResponseComplete),
        AnswerBody::List(..) => return true,
        AnswerBody::Watch(_) | AnswerBody::Log(_) | AnswerBody::Overview(_) => {
            audited.record(AuditStage::ResponseStarted);
            return true;
        }
        AnswerBody::Streams(_) | AnswerBody::Proxied(_) => audited.record(AuditStage::ResponseStarted),
    }
    false
}

/// Answers brief requests on this thread, and others on a worker. Anonymous requests and metrics wait for a turn.
async fn answer_request(
    (request, access): (ApiRequest, Access),
    (shared, client): (&Arc<ServerState>, &Arc<Client>),
    exchange: &Exchange,
    audited: Option<Arc<AuditExchange>>,
    span: &Span,
) -> ServeResult<HttpAnswer> {
    if let Some(audited) = &audited {
        audited.set_request_body(&request);
    }
    let _turn = shared.wait_for_special_turn(access, &request.path, client).await?;
    let brief = (access == Access::Full).then(|| shared.answer_here(&request, exchange, span)).flatten();
    if let Some(answer) = brief {
        return Ok(answer);
    }
    let (working, metrics, is_gzip) = (span.clone(), shared.metrics.clone(), exchange.is_gzip());
    let work = move |api: &mut Api| {
        working.in_scope(|| exchange::answer(api, &request, is_gzip, &metrics, audited.as_deref()))
    };
    shared.work(client, work).await
}

/// Converts the answer to an HTTP response.
fn to_http_reply(answer: HttpAnswer, server: (Arc<ServerState>, Arc<Client>)) -> HttpReply {
    let mut response = Response::builder().status(answer.code).header(CONTENT_TYPE, answer.content_type);
    if !answer.headers.iter().any(|(name, _)| CACHE_CONTROL == *name) {
        response = response.header(CACHE_CONTROL, "no-cache, private");
    }
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let body = match answer.body {
        AnswerBody::Whole(bytes) => AnswerStream::Whole(Full::new(Bytes::from(bytes))),
        AnswerBody::Packed(document) => AnswerStream::unpack(document),
        AnswerBody::List(first, list) => stream::list(first, list, server),
        AnswerBody::Watch(watching) => stream::watch(*watching, server),
        AnswerBody::Log(logs) => stream::log(*logs),
        AnswerBody::Overview(feed) => stream::overview(*feed, &server.0.streams),
        AnswerBody::Streams(_) | AnswerBody::Proxied(_) => AnswerStream::Ended,
    };
    response.body(body).unwrap_or_else(|error| {
        let why = AnswerStream::Whole(Full::new(Bytes::from(error.to_string())));
        let mut response = Response::new(why);
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

impl ServerState {
    fn new(
        state: PathBuf,
        (guard, tls, audit): (AccessGuard, Option<ServerTls>, Option<Arc<AuditLog>>),
        control_plane: Option<Arc<LoopMetrics>>,
        log: LogText,
    ) -> ServerState {
        let kinds = custom::kinds_in(&state);
        let access_cache = AccessCache::default();
        ServerState {
            writer: Arc::new(SharedWriter::new(&state, ACTOR, &kinds, &access_cache)),
            kinds,
            access_cache,
            encoded_bodies: EncodedBodies::default(),
            stored_bodies: StoredBodies::default(),
            packed_documents: PackedDocuments::default(),
            state: StatePlace::new(state),
            guard,
            tls,
            audit: audit.clone(),
            idle: Mutex::default(),
            tail: OnceLock::new(),
            metrics: Arc::new(ServerMetrics { requests: RequestMetrics::default(), control_plane, audit }),
            lists: FairTurns::new(available_parallelism().map_or(2, usize::from).clamp(2, MAX_LIST_THREADS)),
            buffers: Arc::default(),
            turns: Turns::new(MAX_REQUESTS),
            outside: Arc::default(),
            itself: Arc::new(Client { user: "system:apiserver".into(), peer: Peer::User(0) }),
            anonymous: FairTurns::new(MAX_ANONYMOUS_REQUESTS),
            measuring: FairTurns::new(MAX_MEASUREMENTS),
            documents: FairTurns::new(MAX_DOCUMENT_REQUESTS),
            extensions: Extensions::default(),
            problems: ProblemLog::new(log),
            extension_requests: Arc::new(Semaphore::new(streams::MAX_STREAMS.min(descriptors::soft_limit() / 16))),
            streams: Arc::new(Semaphore::new(streams::MAX_STREAMS.min(descriptors::soft_limit() / 16))),
        }
    }
}
