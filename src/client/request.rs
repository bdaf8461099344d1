//! One request: its path, body, limits, and the answer.
//!
//! Knows: a server that is busy says when to try again (`Retry-After`), which is done while the time limit allows it; credentials that
//! are refused are asked for once more. Never: repeats a request that may have been carried out and must not be twice.
//! Start reading at [`ClientRequest`], then [`send`].

use super::connection::{ConnectionLease, ServerConnections};
use super::error::{ClientError, ClientResult};
use crate::object::Status;
use crate::runtime::https::answer::{self, BodyError};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER, WARNING};
use hyper::{Method, Request, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time limit of a request that names none.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the head of a streamed answer.
const STREAM_HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of an answer, where the request names none.
const MAX_BYTES: usize = 256 << 20;
/// Maximum number of bytes of the body of an error.
const MAX_ERROR_BYTES: usize = 3 << 20;
/// Maximum number of times that a busy server is asked again, and of seconds that it may ask for.
const MAX_RETRIES: usize = 10;
const MAX_RETRY_SECONDS: u64 = 30;
/// Maximum number of warnings of an answer that are kept.
const MAX_WARNINGS: usize = 64;

/// Bytes that stay as they are in a parameter or in one part of a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The form of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchFormat {
    /// A JSON patch, RFC 6902.
    Json,
    /// A merge patch, RFC 7396.
    Merge,
    /// A strategic merge patch.
    Strategic,
    /// A server-side apply.
    Apply,
}

impl PatchFormat {
    fn content_type(self) -> &'static str {
        match self {
            PatchFormat::Json => "application/json-patch+json",
            PatchFormat::Merge => "application/merge-patch+json",
            PatchFormat::Strategic => "application/strategic-merge-patch+json",
            PatchFormat::Apply => "application/apply-patch+yaml",
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// The method.
    pub method: Method,
    /// The path below the server's address, with its query, encoded.
    pub path: String,
    /// The media type of the body; empty without one.
    pub content_type: &'static str,
    /// The acceptable media types of the answer.
    pub accept: String,
    /// The body.
    pub body: Bytes,
    /// Time limit for the whole request.
    pub timeout: Duration,
    /// Maximum number of bytes of the answer.
    pub most_bytes: usize,
}

impl ClientRequest {
    /// Makes a request without a body.
    pub fn new(method: Method, path: impl Into<String>) -> ClientRequest {
        ClientRequest {
            method,
            path: path.into(),
            content_type: "",
            accept: "application/json".to_owned(),
            body: Bytes::new(),
            timeout: TIMEOUT,
            most_bytes: MAX_BYTES,
        }
    }

    /// Makes a GET request.
    pub fn get(path: impl Into<String>) -> ClientRequest {
        ClientRequest::new(Method::GET, path)
    }

    /// A POST of an object.
    pub fn post(path: impl Into<String>, body: &Value) -> ClientRequest {
        ClientRequest::new(Method::POST, path).with_body("application/json", body.to_string())
    }

    /// A PUT of an object.
    pub fn put(path: impl Into<String>, body: &Value) -> ClientRequest {
        ClientRequest::new(Method::PUT, path).with_body("application/json", body.to_string())
    }

    /// A patch.
    pub fn patch(path: impl Into<String>, format: PatchFormat, body: &Value) -> ClientRequest {
        ClientRequest::new(Method::PATCH, path).with_body(format.content_type(), body.to_string())
    }

    /// A DELETE with its options.
    pub fn delete(path: impl Into<String>, options: &Value) -> ClientRequest {
        ClientRequest::new(Method::DELETE, path).with_body("application/json", options.to_string())
    }

    /// The same request with a body.
    pub fn with_body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> ClientRequest {
        (self.content_type, self.body) = (content_type, body.into());
        self
    }

    /// The same request with a parameter, which is encoded here.
    pub fn query(mut self, name: &str, value: &str) -> ClientRequest {
        self.path = with_parameter(self.path, name, value);
        self
    }

    /// The same request with another time limit.
    pub fn within(mut self, timeout: Duration) -> ClientRequest {
        self.timeout = timeout;
        self
    }

    /// The same request for an answer of another media type.
    pub fn accepting(mut self, accept: &str) -> ClientRequest {
        accept.clone_into(&mut self.accept);
        self
    }
}

/// Adds a parameter to a path.
pub fn with_parameter(mut path: String, name: &str, value: &str) -> String {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.extend(utf8_percent_encode(name, ESCAPED));
    path.push('=');
    path.extend(utf8_percent_encode(value, ESCAPED));
    path
}

/// A successful answer.
#[derive(Clone, Debug)]
pub struct ClientReply {
    /// The HTTP code.
    pub code: u16,
    /// The texts of the server's warnings.
    pub warnings: Vec<String>,
    /// The media type.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
    server: String,
}

impl ClientReply {
    /// Parses the body.
    pub fn json(&self) -> ClientResult<Value> {
        serde_json::from_slice(&self.body)
            .map_err(|error| ClientError::Malformed { server: self.server.clone(), why: error.to_string() })
    }
}

/// Makes a request; asks a busy server again.
pub async fn send(connections: &ServerConnections, request: ClientRequest) -> ClientResult<ClientReply> {
    let deadline = Instant::now() + request.timeout;
    let late = || ClientError::Late { server: connections.authority() };
    let (mut retries, mut has_renewed) = (0, false);
    loop {
        let exchange = exchange(connections, &request);
        let (reply, headers) = timeout_at(deadline, exchange).await.map_err(|_| late())??;
        let pause = retry_after(reply.code, &headers).filter(|pause| Instant::now() + *pause < deadline);
        match pause {
            _ if reply.code < 300 => return Ok(reply),
            Some(pause) if retries < MAX_RETRIES => {
                retries += 1;
                sleep(pause).await;
            }
            _ if reply.code == 401 && !has_renewed && connections.forget_credentials() => has_renewed = true,
            _ => return Err(Status::from_answer(reply.code, &reply.body).into()),
        }
    }
}

/// Returns the pause that a busy server asks for.
fn retry_after(code: u16, headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER).filter(|_| code == 429 || code >= 500)?.to_str().ok()?.parse().ok()?;
    (seconds <= MAX_RETRY_SECONDS).then(|| Duration::from_secs(seconds))
}

async fn exchange(connections: &ServerConnections, request: &ClientRequest) -> ClientResult<(ClientReply, HeaderMap)> {
    let mut head = Request::builder().method(request.method.clone()).header(ACCEPT, &request.accept);
    if !request.content_type.is_empty() {
        head = head.header(CONTENT_TYPE, request.content_type);
    }
    let log = connections.config().log;
    if !request.body.is_empty() {
        log.body("Request Body", &request.body);
    }
    let (response, lease) = connections.exchange(head, &request.path, request.body.clone()).await?;
    let most = if response.status().is_success() { request.most_bytes } else { MAX_ERROR_BYTES };
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    let body = read_body(connections, response, most).await?;
    log.body("Response Body", &body);
    lease.give_back();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let warnings = headers.get_all(WARNING).iter().filter_map(|value| parse_warning(value.to_str().ok()?));
    let reply = ClientReply {
        code,
        warnings: warnings.take(MAX_WARNINGS).collect(),
        content_type: text(CONTENT_TYPE),
        body,
        server: connections.authority(),
    };
    Ok((reply, headers))
}

/// Reads a whole body.
pub async fn read_body(
    connections: &ServerConnections,
    response: Response<Incoming>,
    most: usize,
) -> ClientResult<Bytes> {
    let server = connections.authority();
    answer::read_body(response.into_body(), most).await.map_err(|error| match error {
        BodyError::TooLong(_) => ClientError::Malformed { server, why: error.to_string() },
        BodyError::Broken => ClientError::Unreachable { server, why: error.to_string() },
    })
}

/// A streamed answer: the head was read, the body was not.
pub struct OpenStream {
    pub server: String,
    pub body: Incoming,
    pub lease: ConnectionLease,
}

/// Sends a GET request, and reads the head of its answer. Fails with the server's error when it refuses.
pub async fn open_stream(connections: &ServerConnections, path: &str, accept: &str) -> ClientResult<OpenStream> {
    let head = Request::builder().method(Method::GET).header(ACCEPT, accept);
    let late = || ClientError::Late { server: connections.authority() };
    let opened = timeout(STREAM_HEAD_TIMEOUT, connections.exchange(head, path, Bytes::new())).await;
    let (response, lease) = opened.map_err(|_| late())??;
    let code = response.status();
    if !code.is_success() {
        let body = timeout(STREAM_HEAD_TIMEOUT, read_body(connections, response, MAX_ERROR_BYTES)).await;
        let body = body.map_err(|_| late())??;
        lease.give_back();
        return Err(Status::from_answer(code.as_u16(), &body).into());
    }
    Ok(OpenStream { server: connections.authority(), body: response.into_body(), lease })
}

/// Returns the text of `299 - "text"`.
fn parse_warning(value: &str) -> Option<String> {
    let quoted = value.strip_prefix("299 ")?.split_once(" \"")?.1.strip_suffix('"')?;
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        text.extend(if char == '\\' { chars.next() } else { Some(char) });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded() {
        let request = ClientRequest::get("/api/v1/pods").query("labelSelector", "a in (b, c)").query("limit", "5");
        assert_eq!(request.path, "/api/v1/pods?labelSelector=a%20in%20%28b%2C%20c%29&limit=5");
    }

    #[test]
    fn warnings_are_unquoted() {
        assert_eq!(parse_warning(r#"299 - "unknown field \"spec.a\"""#).as_deref(), Some("unknown field \"spec.a\""));
        assert_eq!((parse_warning("199 - \"a\""), parse_warning("299 - a")), (None, None));
    }

    #[test]
    fn pause_of_a_busy_server_is_bounded() {
        let headers = |value: &str| HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
        assert_eq!(retry_after(429, &headers("2")), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(503, &headers("1")), Some(Duration::from_secs(1)));
        assert_eq!([retry_after(200, &headers("1")), retry_after(429, &headers("9999"))], [None, None]);
    }
}
