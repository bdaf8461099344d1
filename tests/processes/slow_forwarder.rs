//! A network between two programs of a test: a forwarder that delays bytes, or holds them back in one direction, as a network does that
//! loses packets until it is whole again.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A direction of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the clients to the server.
    Up = 0,
    /// From the server to the clients.
    Down = 1,
}

/// The state of the network.
#[derive(Default)]
struct Weather {
    delay_millis: AtomicU64,
    is_cut: [AtomicBool; 2],
}

/// A forwarder in front of a server. It ends with the test's process; connections end with their programs.
pub struct SlowForwarder {
    /// The port for clients, of localhost.
    pub port: u16,
    weather: Arc<Weather>,
}

impl SlowForwarder {
    /// Starts one in front of a port of localhost.
    pub fn start(server: u16) -> SlowForwarder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let weather = Arc::new(Weather::default());
        let shared = weather.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that is away ends the client's connection.
                let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server))) else { continue };
                let (up, down) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                carry(up, server, shared.clone(), Direction::Up);
                carry(down, client, shared.clone(), Direction::Down);
            }
        });
        SlowForwarder { port, weather }
    }

    /// Delays all bytes from now on, in each direction.
    pub fn delay(&self, time: Duration) {
        self.weather.delay_millis.store(time.as_millis() as u64, Relaxed);
    }

    /// Holds the bytes of a direction back, or lets them go.
    pub fn cut(&self, direction: Direction, is_cut: bool) {
        self.weather.is_cut[direction as usize].store(is_cut, Relaxed);
    }
}

/// Bytes that wait for their time.
#[derive(Default)]
struct Pieces {
    waiting: VecDeque<(Instant, Vec<u8>)>,
    /// Whether no more come.
    is_over: bool,
}

/// The bytes between the two threads of a direction.
#[derive(Default)]
struct Underway {
    pieces: Mutex<Pieces>,
    changed: Condvar,
}

/// Carries one direction of a connection on two threads: one reads, one writes when the time of each piece has come.
fn carry(mut from: TcpStream, mut to: TcpStream, weather: Arc<Weather>, direction: Direction) {
    let underway = Arc::new(Underway::default());
    let (inbox, reading) = (underway.clone(), weather.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            let due = Instant::now() + Duration::from_millis(reading.delay_millis.load(Relaxed));
            let mut pieces = inbox.pieces.lock().expect("no panic");
            match read {
                0 => pieces.is_over = true,
                read => pieces.waiting.push_back((due, buffer[..read].to_vec())),
            }
            inbox.changed.notify_one();
            if read == 0 {
                return;
            }
        }
    });
    thread::spawn(move || {
        while let Some((due, bytes)) = next_piece(&underway) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            while weather.is_cut[direction as usize].load(Relaxed) {
                thread::sleep(Duration::from_millis(10));
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Write));
    });
}

/// Waits for the next piece; `None` at the end.
fn next_piece(underway: &Underway) -> Option<(Instant, Vec<u8>)> {
    let mut pieces = underway.pieces.lock().expect("no panic");
    loop {
        if let Some(piece) = pieces.waiting.pop_front() {
            return Some(piece);
        }
        if pieces.is_over {
            return None;
        }
        pieces = underway.changed.wait(pieces).expect("no panic");
    }
}
