//! Worker threads for connections: a new connection is assigned to the thread with the fewest. The first worker is the caller's own
//! thread; the others start when they are needed.
//!
//! Never: moves a connection to another thread.

use super::super::connection_slot::ConnectionSlot;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

/// Maximum number of threads.
pub const MAX_THREADS: usize = 4;
/// Number of connections up to which all stay on one thread, because passing one to another thread costs more.
const MAX_SINGLE_THREAD_CONNECTIONS: usize = 4;

thread_local! {
    /// Index of this thread.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Task for a connection, run on the worker's thread.
type ConnectionTask = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The threads, as seen by the thread that accepts connections.
pub struct WorkerPool {
    name: &'static str,
    own: Arc<AtomicUsize>,
    others: Vec<PoolWorker>,
    most: usize,
    few: usize,
}

struct PoolWorker {
    /// Number of its connections.
    load: Arc<AtomicUsize>,
    works: UnboundedSender<ConnectionTask>,
}

impl WorkerPool {
    /// Makes a pool with as many threads as the machine has processors. `name` is the name of the threads.
    pub fn new(name: &'static str) -> WorkerPool {
        let most = std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
        WorkerPool { name, own: Arc::default(), others: Vec::new(), most, few: MAX_SINGLE_THREAD_CONNECTIONS }
    }

    /// Returns the index of the calling thread, below [`MAX_THREADS`].
    pub fn number() -> usize {
        NUMBER.get()
    }

    /// Gives a connection to one of the threads. Call it on a `LocalSet`.
    pub fn spawn_future<F: Future<Output = ()> + 'static>(
        &mut self,
        stream: TcpStream,
        talk: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) {
        let Some(hand) = self.fewest() else {
            let held = ConnectionSlot::new(&self.own);
            spawn_local(async move {
                let _held = held;
                talk(stream).await;
            });
            return;
        };
        let (held, Ok(stream)) = (ConnectionSlot::new(&hand.load), stream.into_std()) else { return };
        let work = move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                let _held = held;
                if let Ok(stream) = TcpStream::from_std(stream) {
                    talk(stream).await;
                }
            })
        };
        let _ = hand.works.send(Box::new(work));
    }

    /// Returns the worker with the fewest connections; `None` for the caller's own thread.
    fn fewest(&mut self) -> Option<&PoolWorker> {
        let load = |load: &AtomicUsize| load.load(Ordering::Relaxed);
        let own = load(&self.own);
        if own < self.few {
            return None;
        }
        let at = (0..self.others.len()).min_by_key(|at| load(&self.others[*at].load));
        if let Some(at) = at.filter(|at| load(&self.others[*at].load) < own) {
            return self.others.get(at);
        }
        let may_begin = self.others.len() + 1 < self.most;
        if may_begin && let Ok(hand) = start_worker(self.name, self.others.len() + 1) {
            self.others.push(hand);
            return self.others.last();
        }
        None
    }
}

fn start_worker(name: &'static str, number: usize) -> io::Result<PoolWorker> {
    let (works, mut given) = unbounded_channel::<ConnectionTask>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = async move {
        NUMBER.set(number);
        while let Some(work) = given.recv().await {
            spawn_local(work());
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(move || LocalSet::new().block_on(&runtime, run))?;
    Ok(PoolWorker { load: Arc::default(), works })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    #[test]
    fn connections_go_to_the_worker_with_the_fewest() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let mut workers = WorkerPool { most: 3, few: 1, ..WorkerPool::new("test") };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (sender, mut told) = unbounded_channel();
            let mut clients = Vec::new();
            for wave in 0..2 {
                for _ in 0..3 {
                    clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
                    let (stream, _) = listener.accept().await.unwrap();
                    let sender = sender.clone();
                    workers.spawn_future(stream, move |mut stream: TcpStream| async move {
                        sender.send(WorkerPool::number()).unwrap();
                        let _ = stream.read(&mut [0]).await;
                    });
                }
                let mut numbers = BTreeSet::new();
                for _ in 0..3 {
                    numbers.insert(told.recv().await.unwrap());
                }
                assert_eq!(numbers, BTreeSet::from([0, 1, 2]), "wave {wave}: one each");
            }
        });
    }
}
