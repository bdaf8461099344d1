//! The control plane's side of the gateway: a thread that finds or starts it and sends it the whole configuration, and does so again when
//! the gateway has died.

use super::super::super::{folder, spawn};
use super::{GATEWAY_ARGUMENT, GatewayCommand, GatewayNews, MESSAGE_TIMEOUT, SOCKET, build};
use crate::object::{Key, Str};
use crate::world::Report;
use crate::world::ingress_routes::{HostPort, IngressRoute};
use crate::world::node_links::{LinkIdentity, NodeLink};
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

/// Interval for trying again to reach or start a gateway.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Receives reports from the gateway.
pub type NewsHandler = Arc<dyn Fn(Report) + Send + Sync>;

/// Messages to the thread.
enum LinkMessage {
    /// A command for the gateway.
    Order(GatewayCommand),
    /// Whether listeners of this route could not be opened.
    Blocked(Key, bool),
    /// The connection of this number has ended.
    Lost(u64),
    /// The link is dropped.
    Stop,
}

/// The link to the gateway. The thread ends when this is dropped; the gateway does not.
pub struct GatewayLink(Sender<LinkMessage>);

impl GatewayLink {
    /// Starts the thread; `program` is the binary to run as the gateway.
    pub fn start(state: PathBuf, epoch: u64, program: PathBuf, report: NewsHandler) -> io::Result<GatewayLink> {
        let (sender, messages) = channel();
        let connection = GatewayConnection {
            state,
            epoch,
            program,
            report,
            sender: sender.clone(),
            sent: SentCommands::default(),
            stream: None,
            number: 0,
            tried: None,
        };
        std::thread::Builder::new().name("gateway".into()).spawn(move || connection.run(&messages))?;
        Ok(GatewayLink(sender))
    }

    /// Sends a command; returns at once.
    pub fn order(&self, command: GatewayCommand) {
        let _ = self.0.send(LinkMessage::Order(command));
    }
}

impl Drop for GatewayLink {
    fn drop(&mut self) {
        // The thread itself keeps a sender for its readers, so the channel does not close.
        let _ = self.0.send(LinkMessage::Stop);
    }
}

/// All commands so far, to be sent to a new gateway.
#[derive(Default)]
struct SentCommands {
    routes: BTreeMap<Key, Route>,
    ingress_routes: BTreeMap<Key, IngressRoute>,
    exposed: BTreeMap<Key, Vec<HostPort>>,
    pods: HashMap<Ipv4Addr, Str>,
    /// Services and pods with blocked listeners: a new gateway does not know them.
    blocked: BTreeSet<Key>,
    node_ports: Vec<Cidr>,
    identity: Option<Box<LinkIdentity>>,
    links: BTreeMap<Str, NodeLink>,
    network: Option<u8>,
    is_settled: bool,
}

impl SentCommands {
    fn record(&mut self, command: &GatewayCommand) {
        match command {
            GatewayCommand::Hello { .. } | GatewayCommand::Ask(_) => {}
            GatewayCommand::LinkIdentity(identity) => self.identity = Some(identity.clone()),
            GatewayCommand::NodeLink(node, None) => drop(self.links.remove(node)),
            GatewayCommand::NodeLink(node, Some(link)) => drop(self.links.insert(node.clone(), link.clone())),
            GatewayCommand::Route(key, route) if route.is_empty() => drop(self.routes.remove(key)),
            GatewayCommand::Route(key, route) => drop(self.routes.insert(key.clone(), route.clone())),
            GatewayCommand::Ingress(key, None) => drop(self.ingress_routes.remove(key)),
            GatewayCommand::Ingress(key, Some(ingress_route)) => {
                drop(self.ingress_routes.insert(key.clone(), ingress_route.clone()))
            }
            GatewayCommand::Expose(key, ports) if ports.is_empty() => drop(self.exposed.remove(key)),
            GatewayCommand::Expose(key, ports) => drop(self.exposed.insert(key.clone(), ports.clone())),
            GatewayCommand::Pod(address, namespace) => drop(self.pods.insert(*address, namespace.clone())),
            GatewayCommand::Answer(network) => self.network = Some(*network),
            GatewayCommand::NodePorts(blocks) => self.node_ports = blocks.clone(),
            GatewayCommand::Settled => self.is_settled = true,
        }
    }

    fn replay_commands(&self) -> Vec<GatewayCommand> {
        let first = std::iter::once(GatewayCommand::NodePorts(self.node_ports.clone()));
        let pods = self.pods.iter().map(|(address, namespace)| GatewayCommand::Pod(*address, namespace.clone()));
        let routes = self.routes.iter().map(|(key, route)| GatewayCommand::Route(key.clone(), route.clone()));
        let ingress_routes =
            self.ingress_routes.iter().map(|(key, route)| GatewayCommand::Ingress(key.clone(), Some(route.clone())));
        let exposed = self.exposed.iter().map(|(key, ports)| GatewayCommand::Expose(key.clone(), ports.clone()));
        let last = self
            .network
            .map(GatewayCommand::Answer)
            .into_iter()
            .chain(self.is_settled.then_some(GatewayCommand::Settled));
        let identity = self.identity.clone().map(GatewayCommand::LinkIdentity).into_iter();
        let links = self.links.values().map(|link| GatewayCommand::NodeLink(link.node.clone(), Some(link.clone())));
        let links = identity.chain(links);
        let asked = self.blocked.iter().cloned().map(GatewayCommand::Ask);
        first
            .chain(pods)
            .chain(routes)
            .chain(ingress_routes)
            .chain(exposed)
            .chain(links)
            .chain(asked)
            .chain(last)
            .collect()
    }
}

struct GatewayConnection {
    state: PathBuf,
    epoch: u64,
    program: PathBuf,
    report: NewsHandler,
    sender: Sender<LinkMessage>,
    sent: SentCommands,
    stream: Option<UnixStream>,
    /// Number of the connection.
    number: u64,
    /// Time of the last attempt to connect.
    tried: Option<Instant>,
}

impl GatewayConnection {
    fn run(mut self, messages: &Receiver<LinkMessage>) {
        let mut unsent = Vec::new();
        loop {
            let message = match self.stream.is_some() || self.sent.is_empty() {
                true => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => messages.recv_timeout(RETRY_INTERVAL),
            };
            // Many commands arrive together: they are sent in one write.
            let mut next = match message {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(message) = next {
                match message {
                    LinkMessage::Order(command) => unsent.push(command),
                    LinkMessage::Blocked(key, true) => drop(self.sent.blocked.insert(key)),
                    LinkMessage::Blocked(key, false) => drop(self.sent.blocked.remove(&key)),
                    LinkMessage::Stop => return,
                    LinkMessage::Lost(number) if number == self.number => self.stream = None,
                    LinkMessage::Lost(_) => {}
                }
                next = messages.try_recv().ok();
            }
            unsent.iter().for_each(|command| self.sent.record(command));
            if self.stream.is_some() {
                self.send_commands(&unsent);
            }
            unsent.clear();
            if self.stream.is_none()
                && !self.sent.is_empty()
                && self.tried.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL)
            {
                self.tried = Some(Instant::now());
                self.connect();
            }
        }
    }

    /// Sends commands; closes the connection when that fails.
    fn send_commands(&mut self, commands: &[GatewayCommand]) {
        let Some(stream) = &mut self.stream else { return };
        let mut text = Vec::new();
        for command in commands {
            if let Ok(line) = serde_json::to_vec(command) {
                text.extend(line);
                text.push(b'\n');
            }
        }
        if stream.write_all(&text).is_err() {
            self.stream = None;
        }
    }

    /// Connects to the running gateway or starts one, and sends it all commands.
    fn connect(&mut self) {
        let found = || UnixStream::connect(folder::short_path(&File::open(&self.state).ok()?, SOCKET)).ok();
        let Some(stream) = found().or_else(|| self.start().ok()) else { return };
        let _ = stream.set_write_timeout(Some(MESSAGE_TIMEOUT));
        let Ok(reader) = stream.try_clone() else { return };
        self.number += 1;
        let (number, sender, report) = (self.number, self.sender.clone(), self.report.clone());
        let read = move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                match serde_json::from_slice(&line) {
                    Ok(GatewayNews::Listeners(listeners)) => report(Report::IngressListeners(listeners)),
                    Ok(GatewayNews::Shared(Some(network))) => report(Report::SharedNetwork(network)),
                    Ok(GatewayNews::Shared(None)) => {}
                    Ok(GatewayNews::Link(node, problem)) => report(Report::LinkState { node, problem }),
                    Ok(GatewayNews::Blocked(about, listeners)) => {
                        let _ = sender.send(LinkMessage::Blocked(about.clone(), !listeners.is_empty()));
                        report(Report::Blocked { about, listeners });
                    }
                    Err(_) => {}
                }
            }
            let _ = sender.send(LinkMessage::Lost(number));
        };
        if std::thread::Builder::new().name("gateway-news".into()).spawn(read).is_err() {
            return;
        }
        self.stream = Some(stream);
        let mut all = vec![GatewayCommand::Hello { epoch: self.epoch, build: build(&self.program) }];
        all.extend(self.sent.replay_commands());
        self.send_commands(&all);
    }

    /// Starts a gateway, which becomes a daemon. Returns our end of its first connection.
    fn start(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let words = [GATEWAY_ARGUMENT.as_bytes(), self.state.as_os_str().as_bytes()];
        // The gateway raises its limit of descriptors itself.
        let child = spawn::spawn_helper(&self.program, &words, theirs.as_fd(), true)?;
        // It forks and exits at once.
        let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
        Ok(ours)
    }
}

impl SentCommands {
    /// Whether no configuration needs a gateway yet.
    fn is_empty(&self) -> bool {
        self.identity.is_none()
            && self.network.is_none()
            && self.routes.is_empty()
            && self.ingress_routes.is_empty()
            && self.exposed.is_empty()
    }
}
