//! `tcpSocket` probes, and the common parts of all network probes: their destination, and Go's messages of failed connections.

use super::super::low_ports;
use super::ProbeFinding;
use crate::object::{host_port, io_error_text};
use k8s_openapi::api::core::v1::TCPSocketAction;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Connects; that is all.
pub fn probe(socket: &TCPSocketAction, ip: &str, timeout: Duration) -> ProbeFinding {
    let host = socket.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
    let authority = match port(&socket.port) {
        Ok(port) => host_port(host, port),
        Err(why) => return ProbeFinding::unknown(why),
    };
    let Some(address) = resolve(&authority) else {
        return ProbeFinding::failure(format!("dial tcp: lookup {host}: no such host"));
    };
    match TcpStream::connect_timeout(&low_ports::socket_address(address), timeout) {
        Ok(_) => ProbeFinding::success(),
        Err(error) => ProbeFinding::failure(error_of(&authority, &error)),
    }
}

/// The first address behind a name.
pub fn resolve(authority: &str) -> Option<SocketAddr> {
    authority.to_socket_addrs().ok()?.next()
}

/// Returns the reason of a failed connection in the words of Go's network library.
pub fn error_of(authority: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "i/o timeout".to_owned(),
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => format!("connect: {}", io_error_text(error)),
    };
    format!("dial tcp {authority}: {why}")
}

/// The port of a handler, whose name was resolved before.
pub fn port(port: &IntOrString) -> Result<u16, String> {
    let (number, written) = match port {
        IntOrString::Int(number) => (u16::try_from(*number).ok(), number.to_string()),
        IntOrString::String(name) => (name.parse().ok(), format!("{name:?}")),
    };
    number.filter(|number| *number > 0).ok_or_else(|| format!("invalid port number: {written}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};
    use std::net::TcpListener;

    fn probe(socket: Value, ip: &str, timeout: Duration) -> ProbeFinding {
        super::probe(&from_value(socket).expect("an action"), ip, timeout)
    }

    #[test]
    fn connection_is_all_it_takes() {
        let second = Duration::from_secs(1);
        let port = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound").port();
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(probe(json!({"port": port}), "127.0.0.1", second), ProbeFinding::failure(refused));
        let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = silent.local_addr().expect("bound").port();
        assert_eq!(probe(json!({"port": port}), "127.0.0.1", second), ProbeFinding::success());
        assert_eq!(probe(json!({"port": port, "host": "127.0.0.1"}), "192.0.2.1", second), ProbeFinding::success());
        assert_eq!(probe(json!({"port": 0}), "127.0.0.1", second), ProbeFinding::unknown("invalid port number: 0"));
    }
}
