//! Relays TCP connections for clients that are not pods, in both directions; half-closes one side when the other one has.
//!
//! Knows: the destination of each connection is looked up when it arrives, so that it is never outdated. All connections of a thread share
//! one read buffer; bytes are kept only when the other side does not accept them at once, which is rare.
//! A thread with only one connection polls for a moment after data has passed instead of sleeping, because sleeping and waking twice per
//! request is most of the cost of a relay. After several polls without data it stops doing so for a while.
//! Never: inspects the data.

use super::low_ports;
use super::probe::dial;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socket_with};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// Size of the read buffer.
const BUFFER_SIZE: usize = 64 << 10;

/// Time to poll without sleeping after activity; about the response time of a fast server.
const POLL_TIME: Duration = Duration::from_micros(40);
/// Maximum consecutive transfers before other tasks of the thread run.
const MAX_CONSECUTIVE: usize = 32;
/// Polling stops after this many polls without data,
const FAILED_POLLS: u8 = 3;
/// and is tried again after this many transfers.
const RETRY_AFTER: u8 = 64;

thread_local! {
    /// Number of connections of a thread.
    static CARRIED: Cell<usize> = const { Cell::new(0) };
    /// Read buffer of a thread.
    static BYTES: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_SIZE].into());
}

/// Serves a listener until it is dropped: forwards each connection to the first address that accepts it. Calls `failed` with the reason
/// when none does. Needs a `LocalSet`.
pub async fn serve<F>(
    listener: TcpListener,
    mut places: impl FnMut(SocketAddr) -> F,
    failed: impl Fn(&str) + Clone + 'static,
) where
    F: Future<Output = Vec<SocketAddr>> + 'static,
{
    let meet = |client, from| {
        let (places, failed) = (places(from), failed.clone());
        spawn_local(async move {
            if let Err(why) = carry(client, places.await, drop).await {
                failed(&why);
            }
        });
    };
    accept(listener, meet).await;
}

/// Accepts clients of a listener until it is dropped.
pub async fn accept(listener: TcpListener, mut meet: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match listener.accept().await {
            Ok((client, from)) => meet(client, from),
            Err(_) => pause_accepting().await,
        }
    }
}

/// Waits after a client could not be accepted. Usually descriptors have run out: the client is accepted once there are some again.
pub async fn pause_accepting() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Relays a connection until it is over, and calls `met` with the chosen address. Resets the connection when no address accepts it.
pub async fn carry(mut client: TcpStream, places: Vec<SocketAddr>, met: impl FnOnce(SocketAddr)) -> Result<(), String> {
    let mut why = "there is no endpoint".to_owned();
    for place in places {
        match connect(place).await {
            Ok(mut server) => {
                met(place);
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let _ = relay_both_ways(&mut client, &mut server).await;
                return Ok(());
            }
            Err(error) => why = error,
        }
    }
    let _ = client.set_zero_linger();
    Err(why)
}

/// Connects to an address; the error has Go's wording.
pub async fn connect(place: SocketAddr) -> Result<TcpStream, String> {
    dial(place).await.map_err(|error| dial::error_of(&place.to_string(), &error))
}

/// Connects to the first address of a host that answers; the error has Go's wording.
pub async fn connect_to_host(host: &str, port: u16) -> Result<TcpStream, String> {
    let missing = || format!("dial tcp: lookup {host}: no such host");
    let places = tokio::net::lookup_host((host, port)).await.map_err(|_| missing())?;
    let mut failed = missing();
    for place in places {
        match connect(place).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects. On loopback the system call alone decides, so waiting for writability, which costs a round through the event loop, is skipped.
async fn dial(place: SocketAddr) -> io::Result<TcpStream> {
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    let connected = rustix::net::connect(&socket, &low_ports::socket_address(place));
    let stream = TcpStream::from_std(socket.into());
    match connected {
        Ok(()) => stream,
        Err(Errno::INPROGRESS) => {
            let stream = stream?;
            stream.writable().await?;
            stream.take_error()?.map_or(Ok(stream), Err)
        }
        Err(error) => Err(error.into()),
    }
}

async fn relay_both_ways(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let (mut there, mut back) = (RelayDirection::default(), RelayDirection::default());
    let (mut poll_decision, _carried) = (PollDecision::new(), RelayConnection::new());
    poll_fn(|context| {
        let passed = there.passed + back.passed;
        for _ in 0..MAX_CONSECUTIVE {
            let there_is = there.advance(context, Pin::new(client), Pin::new(server))?;
            let back_is = back.advance(context, Pin::new(server), Pin::new(client))?;
            if there_is.is_ready() && back_is.is_ready() {
                return Poll::Ready(Ok(()));
            }
            let has_passed = there.passed + back.passed > passed;
            // After a spurious wake-up, polling ends soon.
            if !has_passed || CARRIED.get() > 1 || !poll_decision.is_worthwhile() {
                return Poll::Pending;
            }
            let is_more = BYTES.with_borrow_mut(|bytes| {
                let until = Instant::now() + POLL_TIME;
                loop {
                    if there.copy_without_waiting(bytes, client, server)?
                        | back.copy_without_waiting(bytes, server, client)?
                    {
                        return Ok(true);
                    }
                    if Instant::now() >= until {
                        return Ok::<_, io::Error>(false);
                    }
                }
            })?;
            poll_decision.learn(is_more);
            if !is_more {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Counts a connection of this thread while it exists.
struct RelayConnection;

impl RelayConnection {
    fn new() -> RelayConnection {
        CARRIED.set(CARRIED.get() + 1);
        RelayConnection
    }
}

impl Drop for RelayConnection {
    fn drop(&mut self) {
        CARRIED.set(CARRIED.get() - 1);
    }
}

/// Decides between polling and sleeping.
struct PollDecision {
    left: u8,
    /// Number of polls without data.
    without: u8,
}

impl PollDecision {
    /// Starts with polling disabled on a single processor, which the awaited process would need.
    fn new() -> PollDecision {
        let is_room = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        PollDecision { left: if is_room { FAILED_POLLS } else { 0 }, without: if is_room { 0 } else { RETRY_AFTER } }
    }

    fn is_worthwhile(&mut self) -> bool {
        if self.left == 0 && self.without < RETRY_AFTER {
            self.without += 1;
            self.left = u8::from(self.without == RETRY_AFTER);
        }
        self.left > 0
    }

    fn learn(&mut self, is_more: bool) {
        (self.left, self.without) = if is_more { (FAILED_POLLS, 0) } else { (self.left - 1, 0) };
    }
}

/// One direction of a connection.
#[derive(Default)]
struct RelayDirection {
    /// Data read and not written yet, from `at` on.
    left: Vec<u8>,
    at: usize,
    /// Whether the source has closed, and whether the close was passed on.
    has_ended: bool,
    is_over: bool,
    /// Number of transfers.
    passed: usize,
}

impl RelayDirection {
    /// Copies available data. Ready when the end has been passed on.
    fn advance(
        &mut self,
        context: &mut Context<'_>,
        mut from: Pin<&mut TcpStream>,
        mut to: Pin<&mut TcpStream>,
    ) -> Poll<io::Result<()>> {
        while !self.is_over {
            if self.at < self.left.len() {
                let taken = ready!(to.as_mut().poll_write(context, &self.left[self.at..]))?;
                self.at += taken;
            } else if self.has_ended {
                ready!(to.as_mut().poll_shutdown(context))?;
                self.is_over = true;
            } else {
                // Frees the buffer, so that an idle connection keeps no memory.
                (self.left, self.at) = (Vec::new(), 0);
                ready!(BYTES.with_borrow_mut(|bytes| self.read_and_write(bytes, context, from.as_mut(), to.as_mut())))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Copies available data; ready when some was read.
    fn read_and_write(
        &mut self,
        bytes: &mut [u8],
        context: &mut Context<'_>,
        from: Pin<&mut TcpStream>,
        to: Pin<&mut TcpStream>,
    ) -> Poll<io::Result<()>> {
        let mut read = ReadBuf::new(bytes);
        ready!(from.poll_read(context, &mut read))?;
        Poll::Ready(self.write_or_keep(read.filled(), |read| match to.poll_write(context, read) {
            Poll::Ready(taken) => taken,
            Poll::Pending => Ok(0),
        }))
    }

    /// Copies available data without waiting. Returns whether there was any.
    fn copy_without_waiting(&mut self, bytes: &mut [u8], from: &TcpStream, to: &TcpStream) -> io::Result<bool> {
        if self.has_ended || self.at < self.left.len() {
            return Ok(false);
        }
        // Bypasses the runtime, which learns about new data only after its next poll of the kernel.
        let length = match rustix::net::recv(from, &mut *bytes, RecvFlags::DONTWAIT) {
            Ok((length, _)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.write_or_keep(&bytes[..length], |read| match to.try_write(read) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            taken => taken,
        })?;
        Ok(true)
    }

    /// Writes data and keeps the part that was not accepted. Empty data is the end.
    fn write_or_keep(&mut self, read: &[u8], write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        self.passed += 1;
        self.has_ended = read.is_empty();
        if !self.has_ended {
            let taken = write(read)?;
            self.left.extend_from_slice(&read[taken..]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Shutdown;

    /// Connects a client through a relay to a server of the test.
    fn with_relay(talk: impl FnOnce(std::net::TcpStream, std::net::TcpStream)) {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let (told, door) = std::sync::mpsc::channel();
        let (_ends, over) = tokio::sync::oneshot::channel::<()>();
        let relay = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                spawn_local(serve(listener, move |_| std::future::ready(vec![to]), |why| panic!("{why}")));
                drop(over.await);
            });
        });
        let client = std::net::TcpStream::connect(door.recv().unwrap()).unwrap();
        talk(client, server.accept().unwrap().0);
        drop(_ends);
        relay.join().unwrap();
    }

    #[test]
    fn half_closed_side_still_receives() {
        with_relay(|mut client, mut server| {
            client.write_all(b"question").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut heard = String::new();
            server.read_to_string(&mut heard).unwrap();
            server.write_all(b"answer").unwrap();
            drop(server);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!((heard.as_str(), answer.as_str()), ("question", "answer"));
        });
    }

    #[test]
    fn late_reader_gets_everything_in_order() {
        with_relay(|mut client, mut server| {
            let said: Vec<u8> = (0..8_000_000u32).map(|at| (at % 251) as u8).collect();
            let all = said.clone();
            let speaking = std::thread::spawn(move || {
                client.write_all(&all).unwrap();
                drop(client);
            });
            // More than all buffers between them contain: the relay has to wait for the reader.
            let mut heard = vec![0; 1];
            server.read_exact(&mut heard).unwrap();
            server.read_to_end(&mut heard).unwrap();
            speaking.join().unwrap();
            assert!(heard == said);
        });
    }
}
