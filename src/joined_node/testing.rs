//! A server for tests: records requests, and answers them as the test specifies.

use super::node_context::{JoinedFacts, NodeContext, NodeFiles, NodeTraits};
use crate::client::{ApiClient, ServerConfig};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The answer to a request: its code and its body.
pub type Answer = (u16, Value);

/// An API server whose answers a test gives.
pub struct TestServer {
    /// The requests so far, such as `GET /version`.
    pub requests: Arc<Mutex<Vec<String>>>,
    url: String,
}

impl TestServer {
    /// Starts to listen. `answer` gets the method and the path of each request.
    pub fn start(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::default());
        let (noted, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &noted, &*answer));
            }
        });
        TestServer { requests, url }
    }

    /// Returns a client of the server.
    pub fn client(&self) -> ApiClient {
        ApiClient::new(ServerConfig::new(&self.url).unwrap()).unwrap()
    }

    /// Returns the shared state of the node `n`, and the lines that it logs.
    pub fn context(&self, folder: &Path) -> (Arc<NodeContext>, Arc<Mutex<Vec<String>>>) {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&lines);
        let facts =
            JoinedFacts::new("n", NodeTraits::default(), Box::new(move |line| log.lock().unwrap().push(line.into())));
        let context = NodeContext::new(
            facts,
            NodeFiles { state: folder.join("state.db"), identity: folder.join("node") },
            self.client(),
        );
        (Arc::new(context), lines)
    }

    /// Returns the number of requests with this text.
    pub fn count(&self, text: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }
}

/// Serves a connection until the client ends it.
fn serve(stream: TcpStream, noted: &Mutex<Vec<String>>, answer: &dyn Fn(&str, &str) -> Answer) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let line = read_request(&mut reader)?;
        let (method, path) = line.split_once(' ')?;
        let (code, body) = answer(method, path);
        noted.lock().unwrap().push(line.clone());
        let body = body.to_string();
        let head = format!("HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).ok()?;
    }
}

/// Reads a request with its body; returns its method and its path.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_lowercase());
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    reader.read_exact(&mut vec![0; length]).ok()?;
    let (request, _) = lines.first()?.rsplit_once(' ')?;
    let (method, path) = request.split_once(' ')?;
    Some(format!("{} {path}", method.to_uppercase()))
}
