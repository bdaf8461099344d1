//! Clients that send neither a request nor a frame, or that send and read nothing: each gets the answer of a real server, and does not
//! delay other clients.

use super::{JSON, MAPS, Server, map};
use crate::cluster::Cluster;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const WEB_SOCKET: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                          Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";
const SPDY: &str = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
const EXEC: &str = "/api/v1/namespaces/default/pods/main/exec?command=cat&stdin=true&stdout=true";

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(&server.address).expect("connected");
    // Only a failing test waits so long.
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    stream
}

/// Reads until the server closes or resets the connection.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()), "{error}");
    }
    bytes
}

#[test]
fn malformed_requests_get_their_status() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let access = format!("Host: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n", server.token);
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\n{access}{more}\r\n");
    let post =
        |more: &str, body: &str| format!("POST {MAPS} HTTP/1.1\r\n{access}Content-Type: {JSON}\r\n{more}\r\n{body}");
    let groups = |count: usize| -> String {
        let one = |index| format!("Impersonate-Group: group-{index}\r\n");
        "Impersonate-User: ann\r\n".to_owned() + &(0..count).map(one).collect::<String>()
    };
    let table = [
        ("GET /version HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("\u{0}\u{1}\u{16}garbage\r\n\r\n".to_owned(), 400),
        (get("/api/v1/namespaces/%zz/pods", ""), 400),
        (get("/version", &format!("X-Long: {}\r\n", "x".repeat(60_000))), 200),
        (get("/version", &format!("X-Long: {}\r\n", "x".repeat(1 << 20))), 431),
        (get(MAPS, &groups(200)), 403),
        (get(&format!("/{}", "x".repeat(70_000)), ""), 414),
        (post("Content-Length: many\r\n", ""), 400),
        (post("Content-Length: 3\r\nContent-Length: 4\r\n", "{}  "), 400),
        (post("Transfer-Encoding: chunked\r\n", "zz\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 422),
    ];
    for (request, code) in table {
        let mut stream = connect(&server);
        // The server need not read all of a request that it refuses.
        drop(stream.write_all(request.as_bytes()));
        let answer = String::from_utf8_lossy(&read_to_end(&mut stream)).into_owned();
        let head: String = request.chars().take(80).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{head}: {answer:.200}");
    }
}

/// The client reads the refusal before it sends the body.
#[test]
fn connection_of_a_refused_request_takes_the_next_one() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let post = format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Length: 2\r\n\r\n");
    let mut stream = connect(&server);
    stream.write_all(post.as_bytes()).expect("sent");
    let mut refusal = String::new();
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    while !refusal.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut refusal).expect("a head"), 0, "{refusal}");
    }
    assert!(refusal.starts_with("HTTP/1.1 401 "), "{refusal}");
    let length = refusal.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    reader.read_exact(&mut vec![0; length.expect("a length")]).expect("a status");
    stream.write_all(b"{}GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let answer = String::from_utf8_lossy(&read_to_end(&mut stream)).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn idle_and_slow_clients_hold_up_nobody() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let access = format!("Host: localhost\r\nAuthorization: Bearer {}\r\n", server.token);
    let half = format!("POST {MAPS} HTTP/1.1\r\n{access}Content-Type: {JSON}\r\nContent-Length: 100\r\n\r\n{{");
    let unread = format!("GET /openapi/v2 HTTP/1.1\r\n{access}\r\n");
    let watch = format!("GET {MAPS}?watch=true HTTP/1.1\r\n{access}\r\n");
    let mut held = Vec::new();
    for (words, count) in [("", 100), ("GET /api HTTP/1.1\r\nHost: loc", 60), (&half, 30), (&unread, 20), (&watch, 30)]
    {
        for _ in 0..count {
            let mut stream = connect(&server);
            // The server closes some of many connections without a token.
            drop(stream.write_all(words.as_bytes()));
            held.push(stream);
        }
        assert_eq!(server.get(MAPS)["kind"], "ConfigMapList");
    }
    assert_eq!(server.ask("POST", MAPS, JSON, &map("made", "1")).0, 201);
    assert_eq!(server.get(&format!("{MAPS}/made"))["data"]["a"], "1");
    drop(held);
}

#[test]
fn client_with_many_watches_leaves_room_for_others() {
    let cluster = Cluster::new();
    cluster.ok("create serviceaccount bot");
    let bot = cluster.ok("create token bot");
    // A quarter of the descriptors are for connections, and three quarters of those for authenticated clients.
    let mut command = cluster.program("sh");
    let script = "ulimit -n 256; exec \"$0\" serve --port=0";
    command.args(["-c", script, env!("CARGO_BIN_EXE_kloop")]);
    let server = Server::of(&cluster, cluster.background_program(command));
    let request = |path: &str, token: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", token.trim())
    };
    let ask = |path: &str, token: &str| {
        let mut stream = connect(&server);
        stream.write_all(request(path, token).as_bytes()).expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        (stream, String::from_utf8_lossy(&head).to_ascii_lowercase())
    };
    let watch = format!("{MAPS}?watch=true");
    let mut watches = Vec::new();
    let refusal = loop {
        let (stream, head) = ask(&watch, &server.token);
        if !head.starts_with("http/1.1 200 ") {
            break head;
        }
        watches.push(stream);
        assert!(watches.len() < 64, "there is no limit");
    };
    assert!(refusal.starts_with("http/1.1 429 ") && refusal.contains("retry-after: 1\r\n"), "{refusal}");
    for _ in 0..4 {
        let (_, head) = ask("/version", &bot);
        assert!(head.starts_with("http/1.1 200 "), "another user gets in: {head}");
    }
    // Watches made room for it, and the client that has most connections takes none of the other's.
    let mut others: Vec<TcpStream> = (0..4).map(|_| ask("/version", &bot).0).collect();
    let more = (0..64).take_while(|_| {
        let (stream, head) = ask(&watch, &server.token);
        watches.push(stream);
        head.starts_with("http/1.1 200 ")
    });
    assert!(more.count() < 16);
    others.iter_mut().for_each(|other| {
        other.write_all(request("/version", &bot).as_bytes()).expect("sent");
        assert!(other.read(&mut [0; 64]).expect("an answer") > 0);
    });
}

/// Returns a frame of a WebSocket, with a zero mask where it has one.
fn web_socket_frame(first: u8, mask: u8, payload: &[u8]) -> Vec<u8> {
    let mask_bytes: &[u8] = if mask == 0 { &[] } else { &[0; 4] };
    [&[first, mask | payload.len() as u8], mask_bytes, payload].concat()
}

/// Returns a control frame of SPDY/3.1.
fn spdy_frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("short").to_be_bytes();
    [&[0x80, 3, 0, kind, 0], &length[1..], content].concat()
}

#[test]
fn invalid_frames_end_their_stream_only() {
    const MASKED: u8 = 0x80;
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = Server::start(&cluster, &[]);
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: main}, spec: {containers: [{name: main, image: busybox, command: [sleep, '1000']}]}}",
    );
    cluster.until_reads("pod/main", "{.status.phase}", "Running");
    let huge = [&[0x82, MASKED | 127][..], &[0xff; 8], &[0; 4]].concat();
    let frames = [
        ("an unmasked frame", WEB_SOCKET, web_socket_frame(0x82, 0, b"\0x")),
        ("reserved bits", WEB_SOCKET, web_socket_frame(0xc2, MASKED, b"\0x")),
        ("an unknown operation", WEB_SOCKET, web_socket_frame(0x85, MASKED, b"\0x")),
        ("a control frame in parts", WEB_SOCKET, web_socket_frame(0x09, MASKED, b"x")),
        ("the rest of no message", WEB_SOCKET, web_socket_frame(0x80, MASKED, b"x")),
        ("text that is not UTF-8", WEB_SOCKET, web_socket_frame(0x81, MASKED, b"\0\xff")),
        ("an impossible length", WEB_SOCKET, huge),
        ("no frame", SPDY, b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("a stream with the server's number", SPDY, spdy_frame(1, &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0])),
        ("a stream without its fields", SPDY, spdy_frame(1, &[0, 0])),
        ("data of an impossible length", SPDY, [&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff][..], &[0; 64]].concat()),
    ];
    let mut sane = server.upgrade(EXEC, WEB_SOCKET).0;
    for (what, protocol, frame) in frames {
        let (mut stream, head) = server.upgrade(EXEC, protocol);
        assert!(head.starts_with("HTTP/1.1 101 "), "{what}: {head}");
        stream.write_all(&frame).expect("sent");
        let answer = read_to_end(&mut stream);
        assert!(answer.len() < 200, "{what}: {answer:?}");
    }
    // A session that began before them still works: its command sends back a line.
    sane.write_all(&web_socket_frame(0x82, MASKED, b"\0line\n")).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\x01line\n") {
        let mut byte = [0];
        sane.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
}
