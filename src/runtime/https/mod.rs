//! HTTPS requests to the servers that extend the API: webhooks of admission and conversion, and aggregated API servers.
//!
//! Knows: connections that are kept for the next request, the authorities of a bundle, limits, and Go's error messages.
//! One thread makes all requests of a client. Never: reads the bodies. Start reading at [`HttpsClient`].

pub mod answer;
mod connection;
pub mod trust;

use crate::object::IgnorePoison;
use connection::ConnectionPool;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Maximum number of requests that a client makes at the same time or keeps waiting.
const MAX_REQUESTS: usize = 1024;

/// The server and the path of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpsTarget {
    /// The name that the certificate has to have.
    pub host: String,
    /// The port in the URL.
    pub port: u16,
    /// The path with its query.
    pub path: String,
    /// The address to connect to; `None` for the address of the host's name.
    pub place: Option<SocketAddr>,
    /// Authorities in PEM format; without them those of the system.
    pub authorities: Option<Arc<[u8]>>,
}

/// A POST of JSON.
#[derive(Clone, Debug)]
pub struct HttpsPost {
    /// The server and the path.
    pub target: HttpsTarget,
    /// The body.
    pub body: Vec<u8>,
    /// Time limit for the whole request.
    pub timeout: Duration,
    /// Maximum number of bytes of the answer.
    pub most_bytes: usize,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpsReply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Receives the answer of a request, or the reason why there is none, as Go's `http.Client` words it after the URL.
pub type ReplyHandler = Box<dyn FnOnce(Result<HttpsReply, String>) + Send>;

/// Makes requests on a thread of its own, which starts with the first one and ends with the client.
#[derive(Default)]
pub struct HttpsClient {
    requests: Mutex<Option<UnboundedSender<(HttpsPost, ReplyHandler)>>>,
}

impl HttpsClient {
    /// Sends a request. `done` is called on the client's thread, and always: at the latest when the time is over.
    pub fn post(&self, post: HttpsPost, done: ReplyHandler) {
        let mut requests = self.requests.lock().ignore_poison();
        let asked = match requests.as_ref() {
            Some(sender) => sender.send((post, done)).map_err(|error| error.0),
            None => Err((post, done)),
        };
        let Err((post, done)) = asked else { return };
        match start() {
            // The thread has just started and listens.
            Ok(sender) => drop(requests.insert(sender).send((post, done))),
            Err(error) => done(Err(error.to_string())),
        }
    }
}

fn start() -> std::io::Result<UnboundedSender<(HttpsPost, ReplyHandler)>> {
    let (sender, receiver) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    let thread = std::thread::Builder::new().name("https".to_owned()).stack_size(512 << 10);
    thread.spawn(move || runtime.block_on(run(receiver)))?;
    Ok(sender)
}

/// Makes requests until the client is dropped.
async fn run(mut requests: UnboundedReceiver<(HttpsPost, ReplyHandler)>) {
    let connections = Arc::new(ConnectionPool::default());
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_REQUESTS));
    while let Some((post, done)) = requests.recv().await {
        let Ok(place) = places.clone().try_acquire_owned() else {
            done(Err("too many requests wait for webhooks".to_owned()));
            continue;
        };
        let connections = connections.clone();
        tokio::spawn(async move {
            let timeout = post.timeout;
            let replied = tokio::time::timeout(timeout, connections.post(post)).await;
            drop(place);
            done(replied.unwrap_or_else(|_| Err("context deadline exceeded".to_owned())));
        });
    }
}
