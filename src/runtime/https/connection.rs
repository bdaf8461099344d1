//! The connections of a client: opened when needed, kept for the next request to the same server.
//!
//! Knows: a connection that was idle may be closed by the server. Never: waits without a limit; [`super::HttpsClient`] sets it.
//! Start reading at [`ConnectionPool::post`].

use super::answer::{http_error, read_body};
use super::trust::{self, Trust};
use super::{HttpsPost, HttpsReply, HttpsTarget};
use crate::object::IgnorePoison;
use crate::runtime::relay;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

/// Maximum number of requests that one server gets at the same time.
const MAX_PER_SERVER: usize = 64;
/// Maximum number of idle connections to one server.
const MAX_IDLE: usize = 8;
/// Number of servers whose connections and authorities are remembered; all are forgotten when there are more.
const MAX_SERVERS: usize = 256;

/// Identity of a server, whose requests share connections: host, port, address and authorities.
type Server = (String, u16, Option<SocketAddr>, Option<Arc<[u8]>>);

/// All connections of a client.
#[derive(Default)]
pub struct ConnectionPool {
    servers: Mutex<HashMap<Server, Arc<ServerConnections>>>,
}

/// The connections to one server.
struct ServerConnections {
    tls: Result<TlsConnector, String>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    turns: Semaphore,
}

impl ConnectionPool {
    /// Makes a request.
    pub async fn post(&self, post: HttpsPost) -> Result<HttpsReply, String> {
        let HttpsPost { target, body, most_bytes, .. } = post;
        let server = self.server(&target);
        let Ok(_turn) = server.turns.acquire().await else { return Err("the client is closed".to_owned()) };
        let body = Bytes::from(body);
        // The server may have closed an idle connection: its error does not count, that of a new connection does.
        while let Some(mut idle) = server.take_idle() {
            if idle.ready().await.is_err() {
                continue;
            }
            if let Ok(response) = idle.send_request(request(&target, body.clone())?).await {
                return server.read(response, idle, most_bytes).await;
            }
        }
        let mut fresh = server.open(&target).await?;
        let response = fresh.send_request(request(&target, body)?).await.map_err(|error| http_error(&error))?;
        server.read(response, fresh, most_bytes).await
    }

    fn server(&self, target: &HttpsTarget) -> Arc<ServerConnections> {
        let key = (target.host.clone(), target.port, target.place, target.authorities.clone());
        let mut servers = lock(&self.servers);
        if servers.len() >= MAX_SERVERS && !servers.contains_key(&key) {
            servers.clear();
        }
        let authorities = target.authorities.as_deref();
        let open = || {
            let tls = Trust::new(authorities).and_then(|trust| trust.connector(&[]));
            Arc::new(ServerConnections { tls, idle: Mutex::default(), turns: Semaphore::new(MAX_PER_SERVER) })
        };
        servers.entry(key).or_insert_with(open).clone()
    }
}

impl ServerConnections {
    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        lock(&self.idle).pop()
    }

    async fn open(&self, target: &HttpsTarget) -> Result<SendRequest<Full<Bytes>>, String> {
        let tls = self.tls.clone()?;
        let stream = connect(target).await?;
        let name = ServerName::try_from(target.host.clone()).map_err(|error| error.to_string())?;
        let stream = tls.connect(name, stream).await.map_err(|error| trust::handshake_error(&error))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| http_error(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Reads the answer, and keeps the connection.
    async fn read(
        &self,
        response: Response<Incoming>,
        sender: SendRequest<Full<Bytes>>,
        most_bytes: usize,
    ) -> Result<HttpsReply, String> {
        let status = response.status().as_u16();
        let body = read_body(response.into_body(), most_bytes).await.map_err(|error| error.to_string())?;
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(sender);
        }
        Ok(HttpsReply { status, body: body.into() })
    }
}

/// Connects to the first address that answers.
async fn connect(target: &HttpsTarget) -> Result<TcpStream, String> {
    if let Some(place) = target.place {
        return relay::connect(place).await;
    }
    let host = target.host.trim_matches(['[', ']']);
    relay::connect_to_host(host, target.port).await
}

fn request(target: &HttpsTarget, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let request = Request::post(target.path.as_str())
        .header(HOST, format!("{}:{}", target.host, target.port))
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, */*")
        .header(USER_AGENT, "kube-apiserver-admission");
    request.body(Full::new(body)).map_err(|error| error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}
