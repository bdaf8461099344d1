//! `grpc`: the health checking protocol of gRPC over plain HTTP/2, with the messages of the kubelet (probe/grpc/grpc.go).

use super::super::low_ports;
use super::{ProbeFinding, USER_AGENT, dial};
use crate::object::{host_port, time};
use h2::client;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::GRPCAction;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::io::Cursor;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use ureq::http::{HeaderMap, Request, Response};

/// Pause between two attempts to connect: the server may start while the probe waits.
const RETRY: Duration = Duration::from_millis(100);
/// Maximum length of the answer of a health check.
const MAX_ANSWER_BYTES: usize = 4096;

/// gRPC's status codes from 0.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
const UNKNOWN: usize = 2;
const DEADLINE_EXCEEDED: usize = 4;
const UNIMPLEMENTED: usize = 12;
const INTERNAL: usize = 13;
const UNAVAILABLE: usize = 14;

/// A failed call: its status code and its message.
struct GrpcError {
    code: usize,
    message: String,
}

/// Asks whether the service is SERVING.
pub fn probe(call: &GRPCAction, ip: &str, timeout: Duration) -> ProbeFinding {
    let authority = match dial::port(&IntOrString::Int(call.port)) {
        Ok(port) => host_port(ip, port),
        Err(why) => return ProbeFinding::unknown(why),
    };
    let Some(address) = dial::resolve(&authority) else {
        return ProbeFinding::failure(format!("error: failed to connect service at {authority:?}: no such host"));
    };
    let service = call.service.as_deref().unwrap_or_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ProbeFinding::unknown(error.to_string()),
    };
    let patience = time::format_duration(SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX));
    runtime.block_on(async {
        let deadline = tokio::time::Instant::now() + timeout;
        let connected = tokio::time::timeout_at(deadline, connect(address)).await;
        let Ok(connection) = connected else {
            return ProbeFinding::failure(format!(
                "timeout: failed to connect service {authority:?} within {patience}: context deadline exceeded"
            ));
        };
        let late = GrpcError { code: DEADLINE_EXCEEDED, message: "context deadline exceeded".into() };
        let answer = tokio::time::timeout_at(deadline, check(connection, &authority, service));
        finding_of_answer(answer.await.unwrap_or(Err(late)), &patience)
    })
}

/// Tries to connect until it succeeds; the caller sets the time limit.
async fn connect(address: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(low_ports::socket_address(address)).await {
            Ok(connection) => return connection,
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

fn finding_of_answer(answer: Result<i64, GrpcError>, patience: &str) -> ProbeFinding {
    let GrpcError { code, message } = match answer {
        Ok(1) => return ProbeFinding::success(),
        Ok(status) => {
            let known = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
            let named = usize::try_from(status).ok().and_then(|status| known.get(status));
            let status = named.map_or_else(|| status.to_string(), |name| name.to_string());
            return ProbeFinding::failure(format!("service unhealthy (responded with {status:?})"));
        }
        Err(failed) => failed,
    };
    ProbeFinding::failure(match code {
        UNIMPLEMENTED => {
            format!("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}")
        }
        DEADLINE_EXCEEDED => format!("timeout: health rpc did not complete within {patience}"),
        _ => {
            let code = CODES.get(code).map_or_else(|| format!("Code({code})"), |name| name.to_string());
            format!("error: health rpc probe failed: rpc error: code = {code} desc = {message}")
        }
    })
}

/// Calls `grpc.health.v1.Health/Check`, and returns the status in the answer.
async fn check(connection: TcpStream, authority: &str, service: &str) -> Result<i64, GrpcError> {
    let (sender, connection) =
        client::Builder::new().handshake::<_, Cursor<Vec<u8>>>(connection).await.map_err(broken)?;
    tokio::spawn(async move {
        // The call returns its errors.
        let _ = connection.await;
    });
    let mut sender = sender.ready().await.map_err(broken)?;
    let request = Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", USER_AGENT)
        .body(())
        .map_err(|error| GrpcError { code: INTERNAL, message: error.to_string() })?;
    let (response, mut stream) = sender.send_request(request, false).map_err(broken)?;
    stream.send_data(Cursor::new(framed(service)), true).map_err(broken)?;
    let (head, mut body) = response.await.map_err(broken)?.into_parts();
    // An answer of headers alone has its status there.
    status_of(&head.headers).unwrap_or(Ok(()))?;
    refuse_other(&Response::from_parts(head, ()))?;
    let mut message = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(broken)?;
        let _ = body.flow_control().release_capacity(part.len());
        message.extend_from_slice(&part);
        if message.len() > MAX_ANSWER_BYTES {
            return Err(GrpcError { code: INTERNAL, message: "the answer is too long".into() });
        }
    }
    let trailers = body.trailers().await.map_err(broken)?.unwrap_or_default();
    status_of(&trailers).unwrap_or_else(|| {
        Err(GrpcError { code: INTERNAL, message: "server closed the stream without sending trailers".into() })
    })?;
    status(message.get(5..).unwrap_or_default())
        .ok_or_else(|| GrpcError { code: INTERNAL, message: "grpc: failed to unmarshal the received message".into() })
}

fn broken(error: h2::Error) -> GrpcError {
    match error.reason().filter(|_| error.is_reset()) {
        Some(reason) => {
            let message = format!("stream terminated by RST_STREAM with error code: {reason:?}");
            GrpcError { code: INTERNAL, message }
        }
        None => GrpcError { code: UNAVAILABLE, message: format!("connection error: desc = \"{error}\"") },
    }
}

/// A server that answers as no gRPC server does.
fn refuse_other(response: &Response<()>) -> Result<(), GrpcError> {
    let status = response.status();
    if status.as_u16() != 200 {
        let code = if status.as_u16() == 404 { UNIMPLEMENTED } else { UNKNOWN };
        return Err(GrpcError { code, message: format!("unexpected HTTP status code received from server: {status}") });
    }
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match kind.starts_with("application/grpc") {
        true => Ok(()),
        false => {
            let message = format!("unexpected content-type received from server: {kind:?}");
            Err(GrpcError { code: UNKNOWN, message })
        }
    }
}

/// Returns the value of `grpc-status`, if present.
fn status_of(headers: &HeaderMap) -> Option<Result<(), GrpcError>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status")?.parse().unwrap_or(UNKNOWN);
    Some(if code == 0 { Ok(()) } else { Err(GrpcError { code, message: decoded(text("grpc-message").unwrap_or("")) }) })
}

/// `%20` and its like, as gRPC writes messages.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).filter(|_| *first == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `HealthCheckRequest {service = 1}` with the five bytes that gRPC puts before a message.
fn framed(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let length = (message.len() as u32).to_be_bytes();
    [&[0][..], &length, &message].concat()
}

/// `HealthCheckResponse {status = 1}`; 0 when it is left out.
fn status(message: &[u8]) -> Option<i64> {
    match message {
        [] => Some(0),
        [0x08, number] if *number < 0x80 => Some(i64::from(*number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};
    use std::net::TcpListener;

    /// Behaviour of the test server for one call: a status in the message, a status of the call, or no answer.
    #[derive(Clone, Copy)]
    enum TestServerBehaviour {
        Says(u8),
        Refuses(&'static str, &'static str),
        IsPlainHttp,
        IsSilent,
    }

    /// Serves one call. Returns the port, and from the thread the request.
    fn serve(manner: TestServerBehaviour) -> (u16, std::thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let (connection, _) = listener.accept().expect("a connection");
                connection.set_nonblocking(true).expect("set");
                let connection = TcpStream::from_std(connection).expect("taken");
                let mut connection =
                    h2::server::Builder::new().handshake::<_, Cursor<Vec<u8>>>(connection).await.expect("hands shaken");
                let (request, mut respond) = connection.accept().await.expect("a call").expect("a call");
                assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                let mut body = request.into_body();
                let driver = tokio::spawn(async move { while connection.accept().await.is_some() {} });
                let asked = body.data().await.expect("a message").expect("a message").to_vec();
                let head = |status| Response::builder().status(status).header("content-type", "application/grpc");
                match manner {
                    TestServerBehaviour::Says(status) => {
                        let mut stream = respond.send_response(head(200).body(()).expect("made"), false).expect("sent");
                        let message = if status == 0 { vec![0; 5] } else { vec![0, 0, 0, 0, 2, 8, status] };
                        stream.send_data(Cursor::new(message), false).expect("sent");
                        let mut trailers = HeaderMap::new();
                        trailers.insert("grpc-status", "0".parse().expect("a value"));
                        stream.send_trailers(trailers).expect("sent");
                    }
                    TestServerBehaviour::Refuses(code, message) => {
                        let head = head(200).header("grpc-status", code).header("grpc-message", message);
                        respond.send_response(head.body(()).expect("made"), true).expect("sent");
                    }
                    TestServerBehaviour::IsPlainHttp => {
                        respond.send_response(head(404).body(()).expect("made"), true).expect("sent");
                    }
                    TestServerBehaviour::IsSilent => {}
                }
                drop(driver.await);
                asked
            })
        });
        (port, thread)
    }

    fn probe(call: Value, ip: &str, timeout: Duration) -> ProbeFinding {
        super::probe(&from_value(call).expect("an action"), ip, timeout)
    }

    #[test]
    fn answer_is_judged_as_the_kubelet_judges_it() {
        let unhealthy = |status: &str| format!("service unhealthy (responded with \"{status}\")");
        let lacking = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ";
        let not_found = "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service";
        let table = [
            (TestServerBehaviour::Says(1), None),
            (TestServerBehaviour::Says(2), Some(unhealthy("NOT_SERVING"))),
            (TestServerBehaviour::Says(0), Some(unhealthy("UNKNOWN"))),
            (TestServerBehaviour::Refuses("5", "unknown%20service"), Some(not_found.into())),
            (TestServerBehaviour::Refuses("12", "unknown method"), Some(format!("{lacking}unknown method"))),
            (
                TestServerBehaviour::IsPlainHttp,
                Some(format!("{lacking}unexpected HTTP status code received from server: 404 Not Found")),
            ),
        ];
        for (manner, expected) in table {
            let (port, server) = serve(manner);
            let found = probe(json!({"port": port, "service": "db"}), "127.0.0.1", Duration::from_secs(20));
            assert_eq!(found, expected.map_or_else(ProbeFinding::success, ProbeFinding::failure));
            assert_eq!(server.join().expect("served"), [&[0, 0, 0, 0, 4, 10, 2][..], b"db"].concat());
        }
    }

    #[test]
    fn time_runs_out_before_the_connection_or_after_it() {
        let (port, server) = serve(TestServerBehaviour::IsSilent);
        let found = probe(json!({"port": port}), "127.0.0.1", Duration::from_secs(1));
        assert_eq!(found, ProbeFinding::failure("timeout: health rpc did not complete within 1s"));
        assert_eq!(server.join().expect("served"), [0; 5]);
        let found = probe(json!({"port": port}), "127.0.0.1", Duration::from_millis(50));
        let expected =
            format!("timeout: failed to connect service \"127.0.0.1:{port}\" within 50ms: context deadline exceeded");
        assert_eq!(found, ProbeFinding::failure(expected));
    }
}
