//! Carries TCP connections from one place to another, for clients that are no pods: both ways, half-closed when one side is.
//!
//! Knows: where each connection goes is asked for at that moment, so that it never goes to whoever was there before. All connections
//! of a thread are read into the same bytes: what the other side takes at once, which is nearly everything, is kept nowhere.
//! Never: looks into a byte.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// So much is read at once.
const AT_ONCE: usize = 64 << 10;

thread_local! {
    /// Where a thread reads to.
    static BYTES: RefCell<Box<[u8]>> = RefCell::new(vec![0; AT_ONCE].into());
}

/// Serves a listener until it is dropped: each connection goes to the first place that takes it, and `failed` is told why when none
/// does. Give it to a `LocalSet`.
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
            if let Err(why) = carry(client, places.await).await {
                failed(&why);
            }
        });
    };
    accept(listener, meet).await;
}

/// Meets each client of a listener until it is dropped.
pub async fn accept(listener: TcpListener, mut meet: impl FnMut(TcpStream, SocketAddr)) {
    loop {
        match listener.accept().await {
            Ok((client, from)) => meet(client, from),
            // Out of descriptors, mostly: the client that waits is taken when there is one again.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Carries a connection until it is over. A client for whom nobody is there is hung up on.
pub async fn carry(mut client: TcpStream, places: Vec<SocketAddr>) -> Result<(), String> {
    let mut why = "nobody is there".to_owned();
    for place in places {
        match connect(place).await {
            Ok(mut server) => {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let _ = both_ways(&mut client, &mut server).await;
                return Ok(());
            }
            Err(error) => why = format!("dial tcp {place}: {error}"),
        }
    }
    let _ = client.set_zero_linger();
    Err(why)
}

/// On loopback a connection is there, or refused, with the call: to wait for the kernel's word would be a round more.
async fn connect(place: SocketAddr) -> io::Result<TcpStream> {
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    let connected = rustix::net::connect(&socket, &place);
    let stream = TcpStream::from_std(socket.into());
    match connected {
        Ok(()) => stream,
        Err(rustix::io::Errno::INPROGRESS) => {
            let stream = stream?;
            stream.writable().await?;
            stream.take_error()?.map_or(Ok(stream), Err)
        }
        Err(error) => Err(error.into()),
    }
}

async fn both_ways(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let (mut there, mut back) = (Way::default(), Way::default());
    poll_fn(|context| {
        let there = there.advance(context, Pin::new(client), Pin::new(server))?;
        let back = back.advance(context, Pin::new(server), Pin::new(client))?;
        ready!(there);
        ready!(back);
        Poll::Ready(Ok(()))
    })
    .await
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    /// What was read and not yet taken, from `at` on.
    left: Vec<u8>,
    at: usize,
    /// Whether nothing more comes, and whether that was passed on.
    has_ended: bool,
    is_over: bool,
}

impl Way {
    /// Carries what there is. Ready when its end has been passed on.
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
                // Nothing is held while there is nothing to be said.
                (self.left, self.at) = (Vec::new(), 0);
                ready!(BYTES.with_borrow_mut(|bytes| self.pass(bytes, context, from.as_mut(), to.as_mut())))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Passes on what has come; ready when something has.
    fn pass(
        &mut self,
        bytes: &mut [u8],
        context: &mut Context<'_>,
        from: Pin<&mut TcpStream>,
        to: Pin<&mut TcpStream>,
    ) -> Poll<io::Result<()>> {
        let mut read = ReadBuf::new(bytes);
        ready!(from.poll_read(context, &mut read))?;
        let read = read.filled();
        self.has_ended = read.is_empty();
        if !self.has_ended {
            let taken = match to.poll_write(context, read) {
                Poll::Ready(taken) => taken?,
                Poll::Pending => 0,
            };
            self.left.extend_from_slice(&read[taken..]);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Shutdown;

    /// A way through a relay, to a server of the test's own.
    fn through(talk: impl FnOnce(std::net::TcpStream, std::net::TcpStream)) {
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
    fn a_side_that_has_said_everything_still_hears() {
        through(|mut client, mut server| {
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
    fn what_is_taken_late_is_whole_and_in_order() {
        through(|mut client, mut server| {
            let said: Vec<u8> = (0..8_000_000u32).map(|at| (at % 251) as u8).collect();
            let all = said.clone();
            let speaking = std::thread::spawn(move || {
                client.write_all(&all).unwrap();
                drop(client);
            });
            // More than all queues between the two hold: the relay meets a side that takes nothing.
            let mut heard = vec![0; 1];
            server.read_exact(&mut heard).unwrap();
            server.read_to_end(&mut heard).unwrap();
            speaking.join().unwrap();
            assert!(heard == said);
        });
    }
}
