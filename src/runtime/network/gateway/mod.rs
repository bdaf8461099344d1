//! The gateway: one process per cluster that answers DNS queries and accepts connections from outside of pods. It continues while no
//! control plane runs ("fail static").
//!
//! A control plane starts it, sends it the whole configuration over a socket ([`GatewayCommand`]), and gets back which listeners are open
//! and which could not be opened ([`GatewayNews`]). When that control plane ends, the gateway keeps its configuration. The next one sends
//! all of it again, and [`GatewayCommand::Settled`] drops entries that it did not send. The listening sockets stay open meanwhile, unless
//! the next control plane is of another build: then the gateway is replaced. Without a control plane it ends when no pod of the cluster
//! runs.
//!
//! Never: reads an object, or decides about destinations. Start reading at [`main`]; [`link`] is the control plane's side.

pub mod link;

use super::super::{descriptors, folder};
use super::links::NodeLinks;
use super::{ingress, proxy, resolver};
use crate::object::{IgnorePoison, Key, Str};
use crate::world::Report;
use crate::world::ingress_routes::{BlockedListener, HostPort, IngressListeners, IngressRoute};
use crate::world::node_links::{LinkIdentity, NodeLink};
use crate::world::plan::Route;
use crate::world::policy::Cidr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The word after `kloop shim` that runs a gateway; the cluster's folder follows.
pub const GATEWAY_ARGUMENT: &str = "network";
/// The socket's name in the cluster's folder.
const SOCKET: &str = "network.sock";
/// Name of the lock file, locked while the gateway runs.
const LOCK: &str = "network.lock";
/// The port with which a cluster claims its addresses, at the first of them (the port of kubelets).
const CLAIM: u16 = 10_250;
/// Interval for checking whether the gateway is still needed.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time that a predecessor gets to end.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a control plane gets to send its first message, and to read each message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Commands of a control plane: one JSON document a line.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub enum GatewayCommand {
    /// First message: identifies the leader.
    Hello {
        /// The epoch.
        epoch: u64,
        /// The build of the binary.
        build: String,
    },
    /// The route of a Service.
    Route(Key, Route),
    /// The routes of an Ingress; `None` when it is gone.
    Ingress(Key, Option<IngressRoute>),
    /// The host ports of a pod.
    Expose(Key, Vec<HostPort>),
    /// Blocks of this machine's addresses at which node ports answer besides localhost; sent before any route.
    NodePorts(Vec<Cidr>),
    /// A pod's address and its namespace.
    Pod(Ipv4Addr, Str),
    /// Starts answering DNS queries, in the cluster with the addresses 127.N.0.0/16.
    Answer(u8),
    /// Asks for the listeners of a Service or pod, some of which were blocked.
    Ask(Key),
    /// This machine's own end of the links to other machines.
    LinkIdentity(Box<LinkIdentity>),
    /// The link to the machine of this node; `None` when it is gone.
    NodeLink(Str, Option<NodeLink>),
    /// The whole configuration was sent: entries of earlier leaders that were not sent again are removed.
    Settled,
}

/// Messages of the gateway.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub enum GatewayNews {
    /// Addresses on which the Ingress proxy listens.
    Listeners(IngressListeners),
    /// Listeners of a Service, or of a pod, that could not be opened.
    Blocked(Key, Vec<BlockedListener>),
    /// Why the link to a node is down, or cannot be accepted here where the name is empty; `None` once it works.
    Link(Str, Option<String>),
    /// The N of 127.N.0.0/16 when another cluster uses these addresses too; `None` when no other does.
    Shared(Option<u8>),
}

/// Identifies the build of the binary.
fn build(program: &Path) -> String {
    let found = std::fs::metadata(program);
    found.map_or_else(|_| String::new(), |file| format!("{}.{}.{}", file.dev(), file.ino(), file.mtime()))
}

/// Locks the addresses 127.N.0.0/16 for a cluster, while its gateway runs.
fn claim(network: u8) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::new(127, network, 0, 1), CLAIM))
}

/// Whether no running cluster uses these addresses.
pub fn is_free(network: u8) -> bool {
    claim(network).is_ok()
}

/// Whether the gateway of the cluster with this folder runs.
pub fn runs(state: &Path) -> bool {
    let lock = File::open(state.join(LOCK));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

/// Runs the gateway of a cluster as a daemon. The first control plane is connected to standard input.
pub fn main(state: &Path) -> io::Result<()> {
    // SAFETY: only standard input, output and error are in use; other inherited descriptors have no owner here.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    // SAFETY: this process has one thread, so the child's memory is consistent.
    if unsafe { libc::fork() } != 0 {
        return Ok(());
    }
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"network");
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Each connection needs some.
    descriptors::raise();
    let Some(_lock) = lock(state)? else { return Ok(()) };
    let folder = File::open(state)?;
    let _ = std::fs::remove_file(state.join(SOCKET));
    let listener = UnixListener::bind(folder::short_path(&folder, SOCKET))?;
    let first = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    rustix::stdio::dup2_stdin(super::super::spawn::open_dev_null()?)?;
    let mut gateway = Gateway::new(state)?;
    gateway.accept_leader(first);
    gateway.run(&listener);
    let _ = std::fs::remove_file(state.join(SOCKET));
    Ok(())
}

/// Locks the cluster's folder; `None` when another gateway runs.
fn lock(state: &Path) -> io::Result<Option<File>> {
    let file = folder::open_lock_file(&state.join(LOCK))?;
    let until = Instant::now() + PREDECESSOR_TIMEOUT;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Some(file))
}

/// Messages to the control plane, repeated to the next one.
#[derive(Default)]
struct NewsOutbox {
    leader: Option<UnixStream>,
    listeners: IngressListeners,
    blocked: BTreeMap<Key, Vec<BlockedListener>>,
    broken_links: BTreeMap<Str, Option<String>>,
}

impl NewsOutbox {
    fn send(&mut self, news: GatewayNews) {
        self.send_news(&news);
        match news {
            GatewayNews::Shared(_) => {}
            // Without a leader, a link that works again is reported to the next one.
            GatewayNews::Link(node, None) if self.leader.is_some() => drop(self.broken_links.remove(&node)),
            GatewayNews::Link(node, problem) => drop(self.broken_links.insert(node, problem)),
            GatewayNews::Listeners(listeners) => self.listeners = listeners,
            // Without a leader, a listener that becomes free is reported to the next one.
            GatewayNews::Blocked(key, blocked) if blocked.is_empty() && self.leader.is_some() => {
                drop(self.blocked.remove(&key))
            }
            GatewayNews::Blocked(key, blocked) => drop(self.blocked.insert(key, blocked)),
        }
    }

    fn send_news(&mut self, news: &GatewayNews) {
        let Ok(mut line) = serde_json::to_vec(news) else { return };
        line.push(b'\n');
        // A failed write means that the leader has gone, which the read side handles.
        let _ = self.leader.as_mut().map(|leader| leader.write_all(&line));
    }

    fn set_leader(&mut self, leader: UnixStream) {
        self.leader = Some(leader);
        self.send_news(&GatewayNews::Listeners(self.listeners.clone()));
        let blocked: Vec<GatewayNews> =
            self.blocked.iter().map(|(key, blocked)| GatewayNews::Blocked(key.clone(), blocked.clone())).collect();
        let broken = self.broken_links.iter().map(|(node, why)| GatewayNews::Link(node.clone(), why.clone()));
        let all: Vec<GatewayNews> = blocked.into_iter().chain(broken).collect();
        all.iter().for_each(|news| self.send_news(news));
        self.blocked.retain(|_, blocked| !blocked.is_empty());
        self.broken_links.retain(|_, why| why.is_some());
    }
}

/// State of the gateway.
struct Gateway {
    state: PathBuf,
    epoch: u64,
    leader: Option<LeaderConnection>,
    outbox: Arc<Mutex<NewsOutbox>>,
    directory: resolver::SharedDirectory,
    /// Whether DNS queries are answered.
    answers: bool,
    /// The lock on the cluster's addresses; `None` when another cluster has them.
    claim: Option<TcpListener>,
    proxy: proxy::ProxyCommands,
    /// Addresses besides localhost on which node ports answer.
    outside: Vec<Ipv4Addr>,
    ingress: ingress::IngressProxy,
    /// Keys with a route.
    route_keys: HashSet<Key>,
    /// Keys that the current leader has sent.
    sent_keys: HashSet<Key>,
    /// Links to other machines; `None` before there are any.
    links: Option<NodeLinks>,
    /// Nodes with a link, and those that the current leader has sent.
    linked_nodes: HashSet<Str>,
    sent_nodes: HashSet<Str>,
    is_over: bool,
}

/// Connection to the leading control plane.
struct LeaderConnection {
    stream: UnixStream,
    /// The incomplete line received so far.
    partial_line: Vec<u8>,
}

impl Gateway {
    fn new(state: &Path) -> io::Result<Gateway> {
        let outbox: Arc<Mutex<NewsOutbox>> = Arc::default();
        let sender = outbox.clone();
        let report_blocked = move |key, blocked| locked(&sender).send(GatewayNews::Blocked(key, blocked));
        Ok(Gateway {
            state: state.to_owned(),
            epoch: 0,
            leader: None,
            outbox,
            directory: resolver::SharedDirectory::default(),
            answers: false,
            claim: None,
            proxy: proxy::start(state, Box::new(report_blocked))?,
            outside: Vec::new(),
            ingress: ingress::IngressProxy::new(state),
            route_keys: HashSet::new(),
            sent_keys: HashSet::new(),
            links: None,
            linked_nodes: HashSet::new(),
            sent_nodes: HashSet::new(),
            is_over: false,
        })
    }

    /// Serves control planes until the gateway is no longer needed.
    fn run(&mut self, listener: &UnixListener) {
        let mut is_idle = false;
        while !self.is_over {
            let (has_connection, has_data) = self.wait(listener);
            if has_connection && let Ok((stream, _)) = listener.accept() {
                self.accept_leader(stream);
            }
            if has_data && !self.read_leader() {
                self.leader = None;
                locked(&self.outbox).leader = None;
            }
            // Checked twice: the next control plane may follow one that has just ended.
            let is_alone = self.leader.is_none() && !has_connection && !self.has_pods();
            if is_alone && is_idle {
                return;
            }
            is_idle = is_alone;
        }
    }

    /// Waits; returns whether there is a new connection, and whether the leader has sent data.
    fn wait(&self, listener: &UnixListener) -> (bool, bool) {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(self.leader.iter().map(|leader| PollFd::new(&leader.stream, PollFlags::IN)));
        let look = Timespec { tv_sec: 0, tv_nsec: CHECK_INTERVAL.subsec_nanos().into() };
        let _ = poll(&mut fds, self.leader.is_none().then_some(&look));
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        (is_ready(0), is_ready(1))
    }

    /// Whether any shim runs. A deleted folder has none.
    fn has_pods(&self) -> bool {
        let pods = std::fs::read_dir(self.state.join("pods")).into_iter().flatten().flatten();
        pods.into_iter().any(|pod| folder::holder(&pod.path()).is_some())
    }

    /// Accepts a new leader, unless its epoch is outdated. A leader of another build starts a new gateway.
    fn accept_leader(&mut self, stream: UnixStream) {
        let _ = stream.set_read_timeout(Some(MESSAGE_TIMEOUT));
        let _ = stream.set_write_timeout(Some(MESSAGE_TIMEOUT));
        let Ok(writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(&stream);
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line);
        let Ok(GatewayCommand::Hello { epoch, build: theirs }) = read.and_then(|_| Ok(serde_json::from_slice(&line)?))
        else {
            return;
        };
        if epoch < self.epoch {
            return;
        }
        if theirs != build(Path::new(crate::runtime::THIS)) {
            self.is_over = true;
            return;
        }
        let partial_line = reader.buffer().to_vec();
        self.epoch = epoch;
        self.sent_keys.clear();
        self.sent_nodes.clear();
        locked(&self.outbox).set_leader(writer);
        self.leader = Some(LeaderConnection { stream, partial_line });
        // Lines that arrived with the first message are already buffered.
        self.apply_lines();
    }

    /// Reads commands of the leader. Returns false when it has gone.
    fn read_leader(&mut self) -> bool {
        let Some(leader) = &mut self.leader else { return true };
        let mut bytes = [0; 65_536];
        match leader.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(read) => leader.partial_line.extend_from_slice(&bytes[..read]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return true;
            }
            Err(_) => return false,
        }
        self.apply_lines();
        true
    }

    fn apply_lines(&mut self) {
        let Some(leader) = &mut self.leader else { return };
        let Some(end) = leader.partial_line.iter().rposition(|byte| *byte == b'\n') else { return };
        let rest = leader.partial_line.split_off(end + 1);
        let lines = std::mem::replace(&mut leader.partial_line, rest);
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // Commands of the same build can always be parsed.
            if let Ok(command) = serde_json::from_slice(line) {
                self.apply_command(command);
            }
        }
    }

    fn apply_command(&mut self, command: GatewayCommand) {
        match command {
            GatewayCommand::Hello { .. } => {}
            GatewayCommand::Route(key, route) => self.route(key, route),
            GatewayCommand::Ingress(key, ingress_route) => self.apply_ingress(key, ingress_route),
            GatewayCommand::Expose(key, ports) => self.expose(key, &ports),
            GatewayCommand::Pod(address, namespace) => {
                self.directory.lock().ignore_poison().pod(address, namespace);
            }
            GatewayCommand::Answer(network) if !self.answers => {
                self.claim = claim(network).ok();
                locked(&self.outbox).send(GatewayNews::Shared((self.claim.is_none()).then_some(network)));
                self.answers = resolver::start(&self.state, network, &self.directory).is_ok();
            }
            GatewayCommand::Answer(_) => {}
            GatewayCommand::Ask(key) => drop(self.proxy.send(proxy::ProxyCommand::Ask(key))),
            GatewayCommand::LinkIdentity(identity) => {
                self.links().iter().for_each(|links| links.set_identity((*identity).clone()));
            }
            GatewayCommand::NodeLink(node, link) => self.set_link(node, link),
            GatewayCommand::NodePorts(blocks) => self.outside = proxy::host_addresses::addresses(&blocks),
            GatewayCommand::Settled => {
                let unsent: Vec<Key> = self.route_keys.difference(&self.sent_keys).cloned().collect();
                unsent.into_iter().for_each(|key| self.remove_key(key));
                let unsent: Vec<Str> = self.linked_nodes.difference(&self.sent_nodes).cloned().collect();
                unsent.into_iter().for_each(|node| self.set_link(node, None));
            }
        }
    }

    /// Returns the links, and starts their thread at the first call.
    fn links(&mut self) -> Option<&NodeLinks> {
        if self.links.is_none() {
            let outbox = self.outbox.clone();
            let report = Arc::new(move |node, problem| locked(&outbox).send(GatewayNews::Link(node, problem)));
            self.links = NodeLinks::start(&self.state, report).ok();
        }
        self.links.as_ref()
    }

    fn set_link(&mut self, node: Str, link: Option<NodeLink>) {
        self.sent_nodes.insert(node.clone());
        let _ = if link.is_some() { self.linked_nodes.insert(node.clone()) } else { self.linked_nodes.remove(&node) };
        self.links().iter().for_each(|links| links.set_link(node.clone(), link.clone()));
    }

    fn record_key(&mut self, key: &Key, has_route: bool) {
        self.sent_keys.insert(key.clone());
        let _ = if has_route { self.route_keys.insert(key.clone()) } else { self.route_keys.remove(key) };
    }

    fn route(&mut self, key: Key, route: Route) {
        self.record_key(&key, !route.is_empty());
        self.directory.lock().ignore_poison().set_route(&key, &route);
        self.ingress.route_service(&key, &route);
        let _ = self.proxy.send(proxy::ProxyCommand::Open(key, proxy::listeners_for_service(&route, &self.outside)));
    }

    fn apply_ingress(&mut self, key: Key, ingress_route: Option<IngressRoute>) {
        self.record_key(&key, ingress_route.is_some());
        let outbox = self.outbox.clone();
        let new_callback = || -> ingress::ListenersCallback {
            Box::new(move |report| {
                if let Report::IngressListeners(listeners) = report {
                    locked(&outbox).send(GatewayNews::Listeners(listeners));
                }
            })
        };
        self.ingress.admit(&key, ingress_route.map(Arc::new), &self.state, new_callback);
    }

    fn expose(&mut self, key: Key, ports: &[HostPort]) {
        self.record_key(&key, !ports.is_empty());
        let _ = self.proxy.send(proxy::ProxyCommand::Open(key, proxy::listeners_for_pod(ports)));
    }

    /// Removes a key that the current leader has not sent.
    fn remove_key(&mut self, key: Key) {
        match key.resource.0 {
            "services" => self.route(key, Route::default()),
            "pods" => self.expose(key, &[]),
            _ => self.apply_ingress(key, None),
        }
    }
}

fn locked(outbox: &Mutex<NewsOutbox>) -> std::sync::MutexGuard<'_, NewsOutbox> {
    outbox.lock().ignore_poison()
}
