//! Links to the other machines of a cluster: connections to their pods' addresses are carried over one TLS connection a machine.
//!
//! All of 127.0.0.0/8 is local on Linux, so that the gateway can listen at the address of a pod of another machine ([`listeners`]). A shim
//! asks it to before a program of its pod connects there ([`request`]). What arrives is carried to that machine as an HTTP/2 stream
//! ([`dialer`]), whose gateway connects to the pod from the client's own address ([`acceptor`]), so that servers and NetworkPolicies see
//! it. Both ends show certificates of the cluster's authority ([`certificates`]).
//! Never: decides which machines are linked, nor reaches an address outside of the block of a linked machine. Start reading at
//! [`NodeLinks`].

mod acceptor;
mod certificates;
mod datagrams;
mod dialer;
mod listeners;
pub mod request;
#[cfg(test)]
mod tests;

use crate::object::{IgnorePoison, Str};
use crate::runtime::network::tables;
use crate::runtime::{folder, low_ports};
use crate::world::node_links::{LinkIdentity, NodeLink};
use crate::world::policy::Cidr;
use certificates::LinkTls;
use dialer::LinkedPeer;
use listeners::OpenListeners;
use request::{FOLDER, REMOTE};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

/// Interval for trying to listen again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// HTTP/2's windows of a stream and of a connection, in bytes: the data that may be sent before the other machine acknowledges it.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Largest frame of data.
const FRAME_BYTES: u32 = 64 << 10;
/// Size of the buffers of a carried connection, each way.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of connections that are carried to, and from, one machine at once.
const MAX_STREAMS: u32 = 4096;
/// Interval of HTTP/2's pings, and the time for an answer: then a link counts as down.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Reports why the link to a node is down; `None` once it is up.
pub type LinkReport = Arc<dyn Fn(Str, Option<String>) + Send + Sync>;

/// Changes of the links.
enum LinkCommand {
    Identity(Box<LinkIdentity>),
    Link(Str, Option<NodeLink>),
}

/// The links of this machine. A thread carries them until this value is dropped.
pub struct NodeLinks(UnboundedSender<LinkCommand>);

impl NodeLinks {
    /// Starts the thread of the cluster with this folder.
    pub fn start(state: &Path, report: LinkReport) -> io::Result<NodeLinks> {
        let (sender, commands) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let table = Arc::new(LinkTable::new(state, report));
        let requests = request::listen(state)?;
        let run = move || runtime.block_on(carry_out(commands, table, requests));
        std::thread::Builder::new().name("links".into()).spawn(run)?;
        Ok(NodeLinks(sender))
    }

    /// Sets this machine's own end.
    pub fn set_identity(&self, identity: LinkIdentity) {
        let _ = self.0.send(LinkCommand::Identity(Box::new(identity)));
    }

    /// Sets the link to a node, or removes it.
    pub fn set_link(&self, node: Str, link: Option<NodeLink>) {
        let _ = self.0.send(LinkCommand::Link(node, link));
    }
}

/// The links, shared by all tasks.
struct LinkTable {
    state: PathBuf,
    report: LinkReport,
    parts: Mutex<LinkParts>,
    listeners: OpenListeners,
}

#[derive(Default)]
struct LinkParts {
    identity: Option<Arc<LinkIdentity>>,
    /// TLS of new links, by the present certificates.
    tls: Option<LinkTls>,
    wanted: BTreeMap<Str, NodeLink>,
    peers: BTreeMap<Str, Arc<LinkedPeer>>,
    acceptor: Option<AbortHandle>,
}

async fn carry_out(
    mut commands: UnboundedReceiver<LinkCommand>,
    table: Arc<LinkTable>,
    requests: std::os::unix::net::UnixListener,
) {
    if let Ok(requests) = tokio::net::UnixListener::from_std(requests) {
        tokio::spawn(listeners::answer_requests(requests, table.clone()));
    }
    while let Some(command) = commands.recv().await {
        match command {
            LinkCommand::Identity(identity) => table.set_identity(*identity),
            LinkCommand::Link(node, link) => table.set_link(node, link),
        }
        table.write_remote();
        table.listeners.close_unlinked(&table);
    }
    let mut parts = table.lock();
    parts.peers.clear();
    parts.acceptor.iter().for_each(AbortHandle::abort);
}

impl LinkTable {
    fn new(state: &Path, report: LinkReport) -> LinkTable {
        let listeners = OpenListeners::default();
        LinkTable { state: state.to_owned(), report, parts: Mutex::default(), listeners }
    }

    fn lock(&self) -> MutexGuard<'_, LinkParts> {
        self.parts.lock().ignore_poison()
    }

    fn set_identity(self: &Arc<LinkTable>, identity: LinkIdentity) {
        let mut parts = self.lock();
        if parts.identity.as_deref() == Some(&identity) {
            return;
        }
        let place = |identity: &LinkIdentity| (identity.address, identity.pods);
        let has_moved = parts.identity.as_deref().is_none_or(|before| place(before) != place(&identity));
        let tls = LinkTls::new(&identity);
        let identity = Arc::new(identity);
        (parts.identity, parts.tls) = (Some(identity.clone()), Some(tls.clone()));
        if !has_moved {
            // Open connections stay. New ones use the new certificates.
            parts.peers.values().for_each(|peer| peer.set_connector(tls.connector.clone()));
            return;
        }
        let accept = acceptor::accept_links(self.clone(), identity.address);
        let before = parts.acceptor.replace(tokio::spawn(accept).abort_handle());
        before.iter().for_each(AbortHandle::abort);
        let wanted: Vec<NodeLink> = parts.wanted.values().cloned().collect();
        for link in wanted {
            let peer = LinkedPeer::start(link.clone(), tls.connector.clone(), self.report.clone());
            parts.peers.insert(link.node, peer);
        }
    }

    fn set_link(self: &Arc<LinkTable>, node: Str, link: Option<NodeLink>) {
        let mut parts = self.lock();
        if parts.wanted.get(&node) == link.as_ref() {
            return;
        }
        let Some(link) = link else {
            parts.wanted.remove(&node);
            parts.peers.remove(&node);
            return;
        };
        parts.wanted.insert(node.clone(), link.clone());
        if let Some(tls) = parts.tls.clone() {
            parts.peers.insert(node, LinkedPeer::start(link, tls.connector, self.report.clone()));
        }
    }

    /// Writes the blocks of other machines for shims. A write that fails is repeated with the next change.
    fn write_remote(&self) {
        let parts = self.lock();
        let own = parts.identity.as_ref().map(|identity| identity.pods);
        let blocks = parts.peers.values().map(|peer| peer.link.pods);
        let text = request::remote_text(own, blocks);
        let folder = self.state.join(FOLDER);
        let written =
            folder::private_folder(&folder).is_ok() && folder::replace(&folder.join(REMOTE), text.as_bytes()).is_ok();
        if written {
            let _ = tables::renew(&self.state);
        }
    }

    /// Returns the machine that an address belongs to; `None` for one of this machine, or of none.
    fn peer_of(&self, address: Ipv4Addr) -> Option<Arc<LinkedPeer>> {
        let parts = self.lock();
        let own = parts.identity.as_ref()?.pods;
        let peer = parts.peers.values().filter(|peer| peer.link.pods.contains(address));
        let peer = peer.max_by_key(|peer| peer.link.pods.bits)?;
        let is_own = own.contains(address) && own.bits > peer.link.pods.bits;
        (!is_own).then(|| peer.clone())
    }

    fn acceptor(&self) -> Result<TlsAcceptor, String> {
        self.lock().tls.as_ref().map_or_else(|| Err("no certificate".to_owned()), |tls| tls.acceptor.clone())
    }

    fn own_block(&self) -> Option<Cidr> {
        self.lock().identity.as_ref().map(|identity| identity.pods)
    }

    /// Returns the block of the machine of a node.
    fn block_of(&self, node: &str) -> Option<Cidr> {
        self.lock().wanted.get(node).map(|link| link.pods)
    }
}

/// Returns the address of a client that is a pod of this machine; `None` for any other program.
fn pod_source(table: &LinkTable, client: SocketAddr) -> Option<Ipv4Addr> {
    let IpAddr::V4(address) = client.ip() else { return None };
    let is_own = low_ports::is_pod(address) && table.own_block().is_some_and(|own| own.contains(address));
    is_own.then_some(address)
}
