//! `httpGet` and `tcpSocket`, with the messages of Go's network library, which the kubelet passes on.

use serde_json::Value;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Redirects that are followed.
const REDIRECTS: usize = 10;

/// Asks; any status from 200 to 399 is a success. Redirects to another host are not followed and count as success.
pub fn http(get: &Value, ip: &str, timeout: Duration) -> Result<(), String> {
    match answer(get, ip, timeout)? {
        200..400 => Ok(()),
        status => Err(format!("HTTP probe failed with statuscode: {status}")),
    }
}

/// Asks; gives the status of whatever is answered.
pub fn answer(get: &Value, ip: &str, timeout: Duration) -> Result<u16, String> {
    let scheme = get["scheme"].as_str().unwrap_or("HTTP").to_ascii_lowercase();
    if scheme != "http" {
        return Err(format!("{scheme} probes are not supported; use scheme HTTP, or a tcpSocket or exec probe"));
    }
    let host = get["host"].as_str().filter(|host| !host.is_empty()).unwrap_or(ip);
    let authority = authority(host, port(get)?);
    let path = get["path"].as_str().unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut url = format!("http://{authority}{slash}{path}");
    let deadline = Instant::now() + timeout;
    for _ in 0..=REDIRECTS {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let (status, location) = ask(&url, get, left).map_err(|error| go_error(&url, &authority, &error))?;
        match location.map(|location| redirected(&url, &location)) {
            Some(next) if (301..=308).contains(&status) && host_of(&next) == host_of(&url) => url = next,
            _ => return Ok(status),
        }
    }
    Err(format!("Get {url:?}: stopped after {REDIRECTS} redirects"))
}

fn ask(url: &str, get: &Value, timeout: Duration) -> Result<(u16, Option<String>), ureq::Error> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(0)
        .proxy(None)
        .user_agent("kube-probe/1.36")
        .accept("*/*")
        .build()
        .new_agent();
    let headers = get["httpHeaders"].as_array().map(Vec::as_slice).unwrap_or_default();
    let request = headers.iter().fold(agent.get(url), |request, header| {
        request.header(header["name"].as_str().unwrap_or_default(), header["value"].as_str().unwrap_or_default())
    });
    let response = request.call()?;
    let location = response.headers().get("location").and_then(|location| location.to_str().ok());
    Ok((response.status().as_u16(), location.map(str::to_owned)))
}

/// The error as Go's `http.Client` words it.
fn go_error(url: &str, authority: &str, error: &ureq::Error) -> String {
    let why = match error {
        ureq::Error::Timeout(ureq::Timeout::Connect) => format!("dial tcp {authority}: i/o timeout"),
        ureq::Error::Timeout(_) => {
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned()
        }
        ureq::Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionReset => format!("read tcp {authority}: read: connection reset by peer"),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "EOF".to_owned(),
            io::ErrorKind::TimedOut => format!("dial tcp {authority}: i/o timeout"),
            _ => dial_error(authority, error),
        },
        ureq::Error::ConnectionFailed => format!("dial tcp {authority}: connect: connection refused"),
        ureq::Error::HostNotFound => format!("dial tcp: lookup {}: no such host", host_of(url)),
        ureq::Error::Protocol(_) => "malformed HTTP response".to_owned(),
        other => other.to_string(),
    };
    format!("Get {url:?}: {why}")
}

/// The target of a `Location`, which may be relative.
fn redirected(url: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let origin = url.match_indices('/').nth(2).map_or(url, |(at, _)| &url[..at]);
    if location.starts_with('/') {
        return format!("{origin}{location}");
    }
    let folder = url.rfind('/').filter(|at| *at >= origin.len()).map_or(origin, |at| &url[..at]);
    format!("{folder}/{location}")
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Connects; that is all.
pub fn tcp(socket: &Value, ip: &str, timeout: Duration) -> Result<(), String> {
    let host = socket["host"].as_str().filter(|host| !host.is_empty()).unwrap_or(ip);
    let authority = authority(host, port(socket)?);
    let address = resolve(&authority).ok_or_else(|| format!("dial tcp: lookup {host}: no such host"))?;
    TcpStream::connect_timeout(&address, timeout).map(drop).map_err(|error| dial_error(&authority, &error))
}

fn resolve(authority: &str) -> Option<SocketAddr> {
    authority.to_socket_addrs().ok()?.next()
}

fn dial_error(authority: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "i/o timeout".to_owned(),
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => format!("connect: {}", error.to_string().to_lowercase()),
    };
    format!("dial tcp {authority}: {why}")
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn port(handler: &Value) -> Result<u16, String> {
    let number = handler["port"].as_u64().or_else(|| handler["port"].as_str()?.parse().ok());
    let fits = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    fits.ok_or_else(|| format!("invalid port number: {}", handler["port"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const SECOND: Duration = Duration::from_secs(1);

    /// Serves these answers, one a connection, and gives the port and what was asked.
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

    fn status(line: &str) -> String {
        format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n")
    }

    #[test]
    fn statuses_below_400_are_success() {
        let table = [("200 OK", Ok(())), ("399 Odd", Ok(())), ("304 Not Modified", Ok(()))];
        let failing = [("404 Not Found", 404), ("500 Oops", 500)];
        let failing = failing.map(|(line, code)| (line, Err(format!("HTTP probe failed with statuscode: {code}"))));
        for (line, expected) in table.into_iter().chain(failing) {
            let (port, server) = serve(vec![status(line)]);
            assert_eq!(http(&json!({"port": port, "path": "/x"}), "127.0.0.1", SECOND * 5), expected, "{line}");
            server.join().expect("served");
        }
    }

    #[test]
    fn headers_are_sent_and_the_host_can_be_set() {
        let (port, server) = serve(vec![status("200 OK")]);
        let headers = json!([{"name": "Host", "value": "web.example"}, {"name": "X-A", "value": "b"}]);
        assert_eq!(http(&json!({"port": port, "httpHeaders": headers}), "127.0.0.1", SECOND * 5), Ok(()));
        let asked = server.join().expect("served").remove(0).to_lowercase();
        for line in ["get / http/1.1", "host: web.example", "x-a: b", "user-agent: kube-probe/1.36", "accept: */*"] {
            assert!(asked.contains(line), "{line} in {asked}");
        }
    }

    #[test]
    fn redirects_are_followed_on_the_same_host_only() {
        let away = "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n";
        let (port, server) = serve(vec![away.to_owned()]);
        assert_eq!(http(&json!({"port": port}), "127.0.0.1", SECOND * 5), Ok(()));
        server.join().expect("served");
        let here = "HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n".to_owned();
        let (port, server) = serve(vec![here, status("503 Later")]);
        let expected = Err("HTTP probe failed with statuscode: 503".to_owned());
        assert_eq!(http(&json!({"port": port}), "127.0.0.1", SECOND * 5), expected);
        assert!(server.join().expect("served")[1].starts_with("GET /next "));
    }

    #[test]
    fn failures_to_connect_read_as_the_kubelet_says_them() {
        let port = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound").port();
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(tcp(&json!({"port": port}), "127.0.0.1", SECOND), Err(refused.clone()));
        let expected = Err(format!("Get \"http://127.0.0.1:{port}/healthz\": {refused}"));
        assert_eq!(http(&json!({"port": port, "path": "healthz"}), "127.0.0.1", SECOND), expected);
        let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = silent.local_addr().expect("bound").port();
        assert_eq!(tcp(&json!({"port": port}), "127.0.0.1", SECOND), Ok(()));
        let slow = http(&json!({"port": port}), "127.0.0.1", Duration::from_millis(50)).expect_err("no answer");
        assert!(slow.ends_with("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"), "{slow}");
        assert!(http(&json!({"port": 0}), "127.0.0.1", SECOND).is_err());
    }

    #[test]
    fn locations_are_resolved() {
        let table = [
            ("http://a:1/b/c", "/d", "http://a:1/d"),
            ("http://a:1/b/c", "d", "http://a:1/b/d"),
            ("http://a:1", "d", "http://a:1/d"),
            ("http://a:1/b", "http://x/", "http://x/"),
        ];
        for (url, location, expected) in table {
            assert_eq!(redirected(url, location), expected);
        }
    }
}
