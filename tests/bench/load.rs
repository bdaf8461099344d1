//! Server and clients for the network benchmark; clients print their measurements as numbers in a line. The same program runs inside and
//! outside of pods, so that only the network path differs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Length of the server's response: about a small page of an API.
const BODY: usize = 256;
/// Bytes per write when throughput is measured.
const PIECE: usize = 64 << 10;

/// Pins this process to one core: the first that it may use.
pub fn pin_to_one_core() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let may = sched_getaffinity(None).expect("the cores that it may use");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|core| may.is_set(*core)).expect("a core"));
    sched_setaffinity(None, &one).expect("it stays there");
}

/// Serves HTTP at a port, discards bytes at the next one, and closes connections at the one after that.
pub fn serve(port: u16) {
    let listen = |port| TcpListener::bind(("0.0.0.0", port)).expect("a port");
    let (http, sink, bare) = (listen(port), listen(port + 1), listen(port + 2));
    std::thread::scope(|scope| {
        scope.spawn(|| each(&http, answer));
        scope.spawn(|| each(&sink, discard));
        bare.incoming().for_each(drop);
    });
}

fn each(listener: &TcpListener, serve: fn(TcpStream)) {
    for client in listener.incoming().flatten() {
        std::thread::spawn(move || serve(client));
    }
}

fn answer(mut client: TcpStream) {
    let page =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
    let _ = client.set_nodelay(true);
    let mut bytes = [0; 4096];
    let mut held = 0;
    while let Ok(read) = client.read(&mut bytes[held..]) {
        held += read;
        let is_whole = bytes[..held].ends_with(b"\r\n\r\n");
        if read == 0 || is_whole && client.write_all(page.as_bytes()).is_err() {
            return;
        }
        held = if is_whole { 0 } else { held };
    }
}

fn discard(mut client: TcpStream) {
    let mut bytes = vec![0; PIECE];
    while client.read(&mut bytes).is_ok_and(|read| read > 0) {}
    let _ = client.write_all(b"!");
}

/// Measures and prints: `connects PLACE THREADS`, `requests PLACE HOST CONNECTIONS`, `fresh PLACE THREADS` or `bytes PLACE`; `follow
/// PLACE` reads its commands from the server at that address.
pub fn client(words: &[String]) {
    let place: SocketAddr = words[1].parse().expect("a place");
    let number = |at: usize| words[at].parse::<usize>().expect("a number");
    match words[0].as_str() {
        "connects" => connects(place, number(2)),
        "requests" => requests(place, &words[2], number(3)),
        "fresh" => fresh(place, number(2)),
        "bytes" => bytes(place),
        "follow" => follow(place),
        other => panic!("{other} is not measured here"),
    }
}

/// Duration of each measurement: short, because the machine is never quiet for long.
const SPAN: Duration = Duration::from_millis(500);

/// Repeats an action on several threads; returns the durations.
fn times(threads: usize, act: impl Fn() + Sync) -> Vec<Duration> {
    let end = Instant::now() + SPAN;
    let one = || {
        let mut times = Vec::new();
        while Instant::now() < end {
            let start = Instant::now();
            act();
            times.push(start.elapsed());
        }
        times
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        all.into_iter().flat_map(|thread| thread.join().expect("a client")).collect()
    })
}

/// Prints the median in microseconds, and the rate per second.
fn print_times(mut times: Vec<Duration>) {
    times.sort();
    println!("{:.3} {:.1}", times[times.len() / 2].as_secs_f64() * 1e6, times.len() as f64 / SPAN.as_secs_f64());
}

/// Disables lingering: closed connections would use up the ports.
fn abort(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream.as_fd(), Some(Duration::ZERO));
}

/// Times only the call itself, because socket and close cost the same everywhere.
fn connects(place: SocketAddr, threads: usize) {
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    let spans = std::sync::Mutex::new(Vec::new());
    let whole = times(threads, || {
        let one = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        let start = Instant::now();
        connect(&one, &place).expect("connected");
        let took = start.elapsed();
        abort(&TcpStream::from(one));
        spans.lock().expect("not poisoned").push(took);
    });
    let mut spans = spans.into_inner().expect("not poisoned");
    spans.sort();
    let median = spans[spans.len() / 2].as_secs_f64() * 1e6;
    println!("{median:.3} {:.1}", whole.len() as f64 / SPAN.as_secs_f64());
}

fn exchange(stream: &mut TcpStream, question: &[u8]) {
    stream.write_all(question).expect("asked");
    let mut bytes = [0; 2048];
    let mut held = 0;
    loop {
        held += stream.read(&mut bytes[held..]).expect("an answer");
        let head = bytes[..held].windows(4).position(|four| four == b"\r\n\r\n");
        if head.is_some_and(|head| held >= head + 4 + BODY) {
            assert!(bytes.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&bytes[..held]));
            return;
        }
        assert!(held < bytes.len() && held > 0, "{}", String::from_utf8_lossy(&bytes[..held]));
    }
}

/// Sends each request on a new connection.
fn fresh(place: SocketAddr, threads: usize) {
    print_times(times(threads, || {
        let mut stream = TcpStream::connect(place).expect("connected");
        exchange(&mut stream, b"GET / HTTP/1.1\r\nHost: any\r\n\r\n");
        abort(&stream);
    }));
}

/// Sends requests on persistent connections, one after the other.
fn requests(place: SocketAddr, host: &str, connections: usize) {
    let question = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = std::sync::Barrier::new(connections + 1);
    let one = || {
        let mut stream = TcpStream::connect(place).expect("connected");
        let _ = stream.set_nodelay(true);
        exchange(&mut stream, question.as_bytes());
        begun.wait();
        while !is_over.load(Ordering::Relaxed) {
            exchange(&mut stream, question.as_bytes());
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..connections).for_each(|_| drop(scope.spawn(one)));
        begun.wait();
        let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
        std::thread::sleep(SPAN);
        let done = count.load(Ordering::Relaxed) - before;
        is_over.store(true, Ordering::Relaxed);
        println!("{:.1}", done as f64 / start.elapsed().as_secs_f64());
    });
}

/// Measures megabytes per second over one connection, until the other end has read them all.
fn bytes(place: SocketAddr) {
    let mut stream = TcpStream::connect(place).expect("connected");
    let piece = vec![7; PIECE];
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < SPAN {
        stream.write_all(&piece).expect("written");
        sent += piece.len();
    }
    stream.shutdown(std::net::Shutdown::Write).expect("shut");
    let _ = stream.read(&mut [0]).expect("all read");
    println!("{:.1}", sent as f64 / 1e6 / start.elapsed().as_secs_f64());
}

/// Connects repeatedly to the address that it received last, some thousand times a second; pauses after an empty line.
fn follow(orders: SocketAddr) {
    let mut orders = TcpStream::connect(orders).expect("somebody gives orders");
    orders.set_nonblocking(true).expect("a socket");
    let (mut held, mut place) = (Vec::new(), None);
    let mut bytes = [0; 256];
    loop {
        match orders.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => held.extend_from_slice(&bytes[..read]),
            Err(_) => {}
        }
        while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            place = String::from_utf8_lossy(&line).trim().parse::<SocketAddr>().ok();
        }
        if let Some(stream) = place.and_then(|place| TcpStream::connect(place).ok()) {
            abort(&stream);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
