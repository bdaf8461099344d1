//! The control plane's side of the gateway: a thread that finds it, or starts it, and tells it everything; again to the next one, when
//! it has died.

use super::super::super::spawn;
use super::{MOMENT, News, Order, WORD, build, socket};
use crate::object::{Key, Str};
use crate::world::Report;
use crate::world::entrance::{Entrance, HostPort};
use crate::world::plan::Route;
use crate::world::policy::Cidr;
use rustix::process::WaitOptions;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// After so long it is tried again to reach a gateway, or to start one.
const AGAIN: Duration = Duration::from_millis(250);

/// Takes the gateway's news.
pub type Hear = Arc<dyn Fn(Report) + Send + Sync>;

/// Messages to the thread.
enum Letter {
    /// Something for the gateway.
    Order(Order),
    /// Doors of somebody could not be opened; or all of them can be now.
    Blocked(Key, bool),
    /// The connection of this number has ended.
    Lost(u64),
}

/// The way to the gateway. The thread ends when this is dropped; the gateway does not.
pub struct Link(Sender<Letter>);

impl Link {
    /// Starts the thread; `program` is the binary that gateways are.
    pub fn start(state: PathBuf, epoch: u64, program: PathBuf, hear: Hear) -> io::Result<Link> {
        let (sender, letters) = channel();
        let teller = sender.clone();
        let line =
            Line { state, epoch, program, hear, teller, told: Told::default(), stream: None, number: 0, tried: None };
        std::thread::Builder::new().name("gateway".into()).spawn(move || line.run(&letters))?;
        Ok(Link(sender))
    }

    /// Orders something; returns at once.
    pub fn order(&self, order: Order) {
        let _ = self.0.send(Letter::Order(order));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The thread holds an end of the channel itself: for its readers.
        let _ = self.0.send(Letter::Lost(u64::MAX));
    }
}

/// Everything that was ordered: a gateway that is new is told all of it.
#[derive(Default)]
struct Told {
    routes: BTreeMap<Key, Route>,
    entrances: BTreeMap<Key, Entrance>,
    exposed: BTreeMap<Key, Vec<HostPort>>,
    pods: HashMap<Ipv4Addr, Str>,
    /// Services and pods with blocked listeners: a new gateway does not know them.
    blocked: BTreeSet<Key>,
    node_ports: Vec<Cidr>,
    network: Option<u8>,
    is_settled: bool,
}

impl Told {
    fn note(&mut self, order: &Order) {
        match order {
            Order::Hello { .. } | Order::Ask(_) => {}
            Order::Route(key, route) if route.leads_nowhere() => drop(self.routes.remove(key)),
            Order::Route(key, route) => drop(self.routes.insert(key.clone(), route.clone())),
            Order::Admit(key, None) => drop(self.entrances.remove(key)),
            Order::Admit(key, Some(entrance)) => drop(self.entrances.insert(key.clone(), entrance.clone())),
            Order::Expose(key, ports) if ports.is_empty() => drop(self.exposed.remove(key)),
            Order::Expose(key, ports) => drop(self.exposed.insert(key.clone(), ports.clone())),
            Order::Pod(address, namespace) => drop(self.pods.insert(*address, namespace.clone())),
            Order::Answer(network) => self.network = Some(*network),
            Order::NodePorts(blocks) => self.node_ports = blocks.clone(),
            Order::Settled => self.is_settled = true,
        }
    }

    fn all(&self) -> Vec<Order> {
        let first = std::iter::once(Order::NodePorts(self.node_ports.clone()));
        let pods = self.pods.iter().map(|(address, namespace)| Order::Pod(*address, namespace.clone()));
        let routes = self.routes.iter().map(|(key, route)| Order::Route(key.clone(), route.clone()));
        let entrances = self.entrances.iter().map(|(key, one)| Order::Admit(key.clone(), Some(one.clone())));
        let exposed = self.exposed.iter().map(|(key, ports)| Order::Expose(key.clone(), ports.clone()));
        let last = self.network.map(Order::Answer).into_iter().chain(self.is_settled.then_some(Order::Settled));
        let asked = self.blocked.iter().cloned().map(Order::Ask);
        first.chain(pods).chain(routes).chain(entrances).chain(exposed).chain(asked).chain(last).collect()
    }
}

struct Line {
    state: PathBuf,
    epoch: u64,
    program: PathBuf,
    hear: Hear,
    teller: Sender<Letter>,
    told: Told,
    stream: Option<UnixStream>,
    /// Number of the connection.
    number: u64,
    /// When it was last tried to connect.
    tried: Option<Instant>,
}

impl Line {
    fn run(mut self, letters: &Receiver<Letter>) {
        let mut fresh = Vec::new();
        loop {
            let letter = match self.stream.is_some() || self.told.is_nothing() {
                true => letters.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => letters.recv_timeout(AGAIN),
            };
            // Many orders come together: they go in one piece.
            let mut next = match letter {
                Ok(letter) => Some(letter),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(letter) = next {
                match letter {
                    Letter::Order(order) => fresh.push(order),
                    Letter::Blocked(key, true) => drop(self.told.blocked.insert(key)),
                    Letter::Blocked(key, false) => drop(self.told.blocked.remove(&key)),
                    Letter::Lost(u64::MAX) => return,
                    Letter::Lost(number) if number == self.number => self.stream = None,
                    Letter::Lost(_) => {}
                }
                next = letters.try_recv().ok();
            }
            fresh.iter().for_each(|order| self.told.note(order));
            if self.stream.is_some() {
                self.say(&fresh);
            }
            fresh.clear();
            if self.stream.is_none() && !self.told.is_nothing() && self.tried.is_none_or(|at| at.elapsed() >= AGAIN) {
                self.tried = Some(Instant::now());
                self.connect();
            }
        }
    }

    /// Tells; a connection that does not take it in is given up.
    fn say(&mut self, orders: &[Order]) {
        let Some(stream) = &mut self.stream else { return };
        let mut text = Vec::new();
        for order in orders {
            if let Ok(line) = serde_json::to_vec(order) {
                text.extend(line);
                text.push(b'\n');
            }
        }
        if stream.write_all(&text).is_err() {
            self.stream = None;
        }
    }

    /// Reaches the gateway that is there, or else starts one; tells it everything.
    fn connect(&mut self) {
        let found = || UnixStream::connect(socket(&File::open(&self.state).ok()?)).ok();
        let Some(stream) = found().or_else(|| self.start().ok()) else { return };
        let _ = stream.set_write_timeout(Some(MOMENT));
        let Ok(reader) = stream.try_clone() else { return };
        self.number += 1;
        let (number, teller, hear) = (self.number, self.teller.clone(), self.hear.clone());
        let read = move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                match serde_json::from_slice(&line) {
                    Ok(News::Doors(doors)) => hear(Report::Doors(doors)),
                    Ok(News::Shared(Some(network))) => hear(Report::SharedNetwork(network)),
                    Ok(News::Shared(None)) => {}
                    Ok(News::Blocked(about, doors)) => {
                        let _ = teller.send(Letter::Blocked(about.clone(), !doors.is_empty()));
                        hear(Report::Blocked { about, doors });
                    }
                    Err(_) => {}
                }
            }
            let _ = teller.send(Letter::Lost(number));
        };
        if std::thread::Builder::new().name("gateway-news".into()).spawn(read).is_err() {
            return;
        }
        self.stream = Some(stream);
        let mut all = vec![Order::Hello { epoch: self.epoch, build: build(&self.program) }];
        all.extend(self.told.all());
        self.say(&all);
    }

    /// A new gateway, that is nobody's child; our end of its first connection.
    fn start(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let words = [WORD.as_bytes(), self.state.as_os_str().as_bytes()];
        let child = spawn::helper(&self.program, &words, theirs.as_fd())?;
        // It forks at once.
        let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
        Ok(ours)
    }
}

impl Told {
    /// Whether there is nothing yet that a gateway would be needed for.
    fn is_nothing(&self) -> bool {
        self.network.is_none() && self.routes.is_empty() && self.entrances.is_empty() && self.exposed.is_empty()
    }
}
