//! `httpGet`, over HTTP and HTTPS, with the messages of Go's network library, which the kubelet passes on.

use super::super::low_ports;
use super::{ProbeFinding, USER_AGENT, dial};
use crate::object::{host_port, strip_port};
use crate::world::ProbeResult;
use k8s_openapi::api::core::v1::HTTPGetAction;
use std::io;
use std::time::{Duration, Instant};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// Redirects that are followed.
const REDIRECTS: usize = 10;
/// Maximum number of bytes to read of a body.
const BODY: u64 = 10 * 1024;
/// Text that Go appends when the client's own timer has fired.
const TIMED_OUT: &str = "(Client.Timeout exceeded while awaiting headers)";

/// Response to a probe.
struct HttpProbeResponse {
    status: u16,
    location: Option<String>,
    body: String,
}

/// Runs an HTTP probe. Any status from 200 to 399 is a success. A redirect to another host is not followed; it is a success with a warning.
pub fn probe(get: &HTTPGetAction, ip: &str, timeout: Duration) -> ProbeFinding {
    let url = match url(get, ip) {
        Ok(url) => url,
        Err(why) => return ProbeFinding::unknown(why),
    };
    match follow(url, get, timeout) {
        Ok(HttpProbeResponse { status: 200..300, .. }) => ProbeFinding::success(),
        Ok(HttpProbeResponse { status: 300..400, body, .. }) => ProbeFinding {
            verdict: ProbeResult::Warning,
            message: format!("Probe terminated redirects, Response body: {body}"),
        },
        Ok(HttpProbeResponse { status, .. }) => {
            ProbeFinding::failure(format!("HTTP probe failed with statuscode: {status}"))
        }
        Err(why) => ProbeFinding::failure(why),
    }
}

/// Runs an HTTP hook. Any answer is a success (Kubernetes: lifecycle/handlers.go). If the server does not speak HTTPS, the request is
/// repeated over HTTP.
pub fn hook(get: &HTTPGetAction, ip: &str, timeout: Duration) -> ProbeFinding {
    let response = url(get, ip).and_then(|url| match follow(url.clone(), get, timeout) {
        Err(why) if why.ends_with(PLAIN) => follow(url.replacen("https", "http", 1), get, timeout),
        other => other,
    });
    response.map_or_else(ProbeFinding::failure, |_| ProbeFinding::success())
}

fn url(get: &HTTPGetAction, ip: &str) -> Result<String, String> {
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_ascii_lowercase();
    let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
    let path = get.path.as_deref().unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(format!("{scheme}://{}{slash}{path}", host_port(host, dial::port(&get.port)?)))
}

/// Sends the request and follows redirects on the same host, as Go's client does.
fn follow(mut url: String, get: &HTTPGetAction, timeout: Duration) -> Result<HttpProbeResponse, String> {
    let deadline = Instant::now() + timeout;
    for _ in 0..REDIRECTS {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let answer = send_request(&url, get, left).map_err(|error| go_error(&url, &error))?;
        match answer.location.as_ref().map(|location| redirected(&url, location)) {
            Some(next) if matches!(answer.status, 301..=303 | 307 | 308) && host_of(&next) == host_of(&url) => {
                url = next
            }
            _ => return Ok(answer),
        }
    }
    Err(format!("Get {url:?}: stopped after {REDIRECTS} redirects"))
}

/// Replaces a low port of a pod by the port that is bound for it.
#[derive(Debug)]
struct PodResolver(DefaultResolver);

impl Resolver for PodResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut found = self.0.resolve(uri, config, timeout)?;
        found.iter_mut().for_each(|address| *address = low_ports::socket_address(*address));
        Ok(found)
    }
}

fn send_request(url: &str, get: &HTTPGetAction, timeout: Duration) -> Result<HttpProbeResponse, ureq::Error> {
    let headers = get.http_headers.as_deref().unwrap_or_default();
    let own = |name: &str, otherwise: &str| {
        let has = headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
        if has { String::new() } else { otherwise.to_owned() }
    };
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(0)
        .proxy(None)
        .tls_config(TlsConfig::builder().disable_verification(true).build())
        .user_agent(own("User-Agent", USER_AGENT))
        .accept(own("Accept", "*/*"))
        .build();
    let agent = ureq::Agent::with_parts(config, DefaultConnector::default(), PodResolver(DefaultResolver::default()));
    // An empty value means that the header is not sent.
    let sent = headers.iter().filter(|header| !header.value.is_empty());
    let request = sent.fold(agent.get(url), |request, header| request.header(&header.name, &header.value));
    let mut response = request.call()?;
    let location = response.headers().get("location").and_then(|location| location.to_str().ok()).map(str::to_owned);
    let status = response.status().as_u16();
    let body = if (300..400).contains(&status) { text(response.body_mut()) } else { String::new() };
    Ok(HttpProbeResponse { status, location, body })
}

fn text(body: &mut ureq::Body) -> String {
    let mut bytes = Vec::new();
    // The part before a read error is used.
    let _ = io::Read::read_to_end(&mut io::Read::take(body.as_reader(), BODY), &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Go's message for a server that speaks plain HTTP where TLS is expected.
const PLAIN: &str = "http: server gave HTTP response to HTTPS client";

/// The error as Go's `http.Client` words it.
fn go_error(url: &str, error: &ureq::Error) -> String {
    let authority = authority_of(url);
    let why = match error {
        ureq::Error::Timeout(ureq::Timeout::Connect) => format!("dial tcp {authority}: i/o timeout {TIMED_OUT}"),
        ureq::Error::Timeout(_) => format!("context deadline exceeded {TIMED_OUT}"),
        ureq::Error::Rustls(error) => tls(&error.to_string()),
        ureq::Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionReset => format!("read tcp {authority}: read: connection reset by peer"),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "EOF".to_owned(),
            io::ErrorKind::TimedOut => format!("dial tcp {authority}: i/o timeout {TIMED_OUT}"),
            io::ErrorKind::InvalidData => tls(&error.to_string()),
            _ => dial::error_of(authority, error),
        },
        ureq::Error::ConnectionFailed => format!("dial tcp {authority}: connect: connection refused"),
        ureq::Error::HostNotFound => format!("dial tcp: lookup {}: no such host", host_of(url)),
        ureq::Error::Protocol(_) => {
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned()
        }
        other => other.to_string(),
    };
    format!("Get {url:?}: {why}")
}

fn tls(why: &str) -> String {
    if why.contains("corrupt message") { PLAIN.into() } else { format!("tls: {why}") }
}

/// The target of a `Location`, which may be relative (RFC 3986, 5.2).
fn redirected(url: &str, location: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_scheme =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    match location {
        _ if location.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) => location.to_owned(),
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ if location.starts_with('?') => format!("{scheme}://{authority}{path}{location}"),
        _ => {
            let folder = path.rfind('/').map_or("", |at| &path[..at]);
            format!("{scheme}://{authority}{folder}/{location}")
        }
    }
}

fn authority_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

fn host_of(url: &str) -> &str {
    strip_port(authority_of(url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const SECOND: Duration = Duration::from_secs(1);

    /// Serves these answers, one per connection. Returns the port, and from the thread the requests.
    fn serve(answers: Vec<String>) -> (u16, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let thread = std::thread::spawn(move || {
            let serve_one = |answer: String| {
                let (mut connection, _) = listener.accept().expect("a connection");
                let mut block = [0; 4096];
                let read = connection.read(&mut block).expect("a request");
                connection.write_all(answer.as_bytes()).expect("answered");
                String::from_utf8_lossy(&block[..read]).into_owned()
            };
            answers.into_iter().map(serve_one).collect()
        });
        (port, thread)
    }

    fn action(get: Value) -> HTTPGetAction {
        from_value(get).expect("an action")
    }

    fn status(line: &str) -> String {
        format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n")
    }

    #[test]
    fn statuses_below_400_are_success() {
        let table = [("200 OK", ProbeFinding::success())];
        let failing = [("404 Not Found", 404), ("500 Oops", 500)];
        let failing = failing
            .map(|(line, code)| (line, ProbeFinding::failure(format!("HTTP probe failed with statuscode: {code}"))));
        for (line, expected) in table.into_iter().chain(failing) {
            let (port, server) = serve(vec![status(line)]);
            assert_eq!(
                probe(&action(json!({"port": port, "path": "/x"})), "127.0.0.1", SECOND * 5),
                expected,
                "{line}"
            );
            server.join().expect("served");
        }
    }

    #[test]
    fn headers_are_sent_and_the_host_can_be_set() {
        let (port, server) = serve(vec![status("200 OK")]);
        let headers = json!([{"name": "Host", "value": "web.example"}, {"name": "X-A", "value": "b"}]);
        let found = probe(&action(json!({"port": port, "httpHeaders": headers})), "127.0.0.1", SECOND * 5);
        assert_eq!(found, ProbeFinding::success());
        let asked = server.join().expect("served").remove(0).to_lowercase();
        for line in ["get / http/1.1", "host: web.example", "x-a: b", "user-agent: kube-probe/1.36", "accept: */*"] {
            assert!(asked.contains(line), "{line} in {asked}");
        }
    }

    #[test]
    fn redirects_are_followed_on_the_same_host_only() {
        let away = "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n";
        let (port, server) = serve(vec![away.to_owned()]);
        let message = "Probe terminated redirects, Response body: ".to_owned();
        let expected = ProbeFinding { verdict: ProbeResult::Warning, message };
        assert_eq!(probe(&action(json!({"port": port})), "127.0.0.1", SECOND * 5), expected);
        server.join().expect("served");
        let here = "HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n".to_owned();
        let (port, server) = serve(vec![here.clone(), status("503 Later")]);
        let expected = ProbeFinding::failure("HTTP probe failed with statuscode: 503");
        assert_eq!(probe(&action(json!({"port": port})), "127.0.0.1", SECOND * 5), expected);
        assert!(server.join().expect("served")[1].starts_with("GET /next "));
        let (port, server) = serve(vec![here; 10]);
        let stopped = format!("Get \"http://127.0.0.1:{port}/next\": stopped after 10 redirects");
        assert_eq!(probe(&action(json!({"port": port})), "127.0.0.1", SECOND * 5), ProbeFinding::failure(stopped));
        server.join().expect("served");
    }

    #[test]
    fn failures_to_connect_read_as_the_kubelet_says_them() {
        let port = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound").port();
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        let expected = ProbeFinding::failure(format!("Get \"http://127.0.0.1:{port}/healthz\": {refused}"));
        assert_eq!(probe(&action(json!({"port": port, "path": "healthz"})), "127.0.0.1", SECOND), expected);
        let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = silent.local_addr().expect("bound").port();
        let slow = probe(&action(json!({"port": port})), "127.0.0.1", Duration::from_millis(50)).message;
        assert!(slow.ends_with("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"), "{slow}");
        assert_eq!(probe(&action(json!({"port": 0})), "127.0.0.1", SECOND).verdict, ProbeResult::Unknown);
    }

    #[test]
    fn server_without_tls_is_told_from_one_that_is_gone() {
        let (port, server) = serve(vec![status("200 OK")]);
        let found = probe(&action(json!({"port": port, "scheme": "HTTPS"})), "127.0.0.1", SECOND * 5);
        server.join().expect("served");
        assert_eq!(found, ProbeFinding::failure(format!("Get \"https://127.0.0.1:{port}/\": {PLAIN}")));
        let (port, server) = serve(vec![status("200 OK"), status("500 Oops")]);
        let found = hook(&action(json!({"port": port, "scheme": "HTTPS"})), "127.0.0.1", SECOND * 5);
        server.join().expect("served");
        assert_eq!(found, ProbeFinding::success(), "a hook asks once more without, and takes any answer");
    }

    #[test]
    fn locations_are_resolved() {
        let table = [
            ("http://a:1/b/c", "/d", "http://a:1/d"),
            ("http://a:1/b/c", "d", "http://a:1/b/d"),
            ("http://a:1", "d", "http://a:1/d"),
            ("http://a:1/b", "http://x/", "http://x/"),
            ("http://a:1/b?to=/c/d", "e", "http://a:1/e"),
            ("http://a:1/b", "/login?next=https://x/", "http://a:1/login?next=https://x/"),
            ("https://a:1/b", "//x/c", "https://x/c"),
            ("http://a:1/b?c=d", "?e=f", "http://a:1/b?e=f"),
        ];
        for (url, location, expected) in table {
            assert_eq!(redirected(url, location), expected);
        }
    }
}
