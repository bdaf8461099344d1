//! The pod network: every pod its own address, without root and without network namespaces.
//!
//! A pod's programs run under a seccomp filter that notifies the pod's shim of each `bind`, `connect` and addressed `sendto`, before the
//! kernel carries it out. A `bind` to every address, or to localhost, gets the pod's own loopback address, so that replicas can use the
//! same port; a connection to localhost reaches the pod's own listener, or else the host's; a connection to a Service's address reaches an
//! endpoint that is ready at that moment ([`routes`]); connections that NetworkPolicies deny are refused ([`policies`]). The kernel carries
//! out all other calls unchanged. On a node of another Kubernetes, pods are on the machine's network, and only their connections to
//! Services change.
//!
//! The shim makes the call, on a duplicate of the caller's socket. This is not a security boundary: a program can bypass it on purpose.
//! A machine may reserve low ports for root. A pod then binds a higher port instead (`low_ports`), and `getsockname` still returns the
//! low one.
//! Knows: the kernel's side of it ([`filter`], [`seccomp_notify`]), sockets ([`socket_calls`]), the cluster's configuration ([`tables`]),
//! and the decision about a call ([`decide`], which is pure).
//! Never: sends a request to the control plane. Start reading at [`FilterListener::serve`].

mod address;
mod affinity;
mod bind_reports;
mod decide;
mod filter;
pub mod gateway;
mod ingress;
mod links;
pub mod listener_channel;
mod longest_idle;
pub mod policies;
mod proxy;
pub mod publisher;
mod random;
mod resolver;
pub mod routes;
mod seccomp_notify;
mod socket_calls;
mod tables;
mod worker_pool;

pub use affinity::SessionAffinity;
pub use ingress::is_key_of_another;
pub use listener_channel::ListenerChannel;
pub use proxy::host_addresses::own_addresses;
pub use resolver::resolver_address;

use super::{low_ports, ports};
use crate::network::policy::table::PolicyFlow;
use crate::world::ingress_routes::BindReport;
use crate::world::policy::DeniedConnection;
use crate::world::start::DnsTarget;
use affinity::AffinitySession;
use bind_reports::{BindResult, RecentBinds};
use decide::{CallDecision, SocketCall};
use links::request::RemoteAddresses;
use routes::EndpointChoice;
use rustix::event::PollFlags;
use rustix::io::Errno;
use seccomp_notify::{CallerHandles, SeccompNotice};
use socket_calls::{CallResult, CallerSocket};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tables::{NetworkTables, TableName};

/// Time for which a successful check that the gateway listens stays valid.
const GATEWAY_CHECK_VALIDITY: Duration = Duration::from_secs(1);

/// Ports to which programs connect only to learn their own address: 0, of Go before 1.22 (9), of musl. (Newer Go uses the DNS port, which
/// has another meaning too.)
const LOOKS: [u16; 3] = [0, 9, 65_535];

/// The server of one filter, which receives the calls of a container's processes.
pub struct FilterListener {
    listener: Rc<OwnedFd>,
    /// The pod's address.
    own: Ipv4Addr,
    tables: NetworkTables,
    callers: CallerHandles,
    /// DNS server of its programs.
    names: DnsTarget,
    /// Session affinity of the pod as a client of Services.
    affinity: Rc<SessionAffinity>,
    /// Endpoint of each UDP flow.
    flows: SessionAffinity,
    /// Number of choices so far, from which the next random number is derived.
    choices: u64,
    chance: RandomState,
    /// Addresses at which the gateway was found to accept datagrams, and when.
    open: HashMap<SocketAddrV4, Instant>,
    /// Addresses of other machines at which the gateway listens.
    remote: RemoteAddresses,
    /// The connection that policies have just denied.
    denied: Option<DeniedConnection>,
    /// A port that could not be bound, or was bound elsewhere, and is not reported yet; and those reported lately.
    bind: Option<BindReport>,
    recent_binds: RecentBinds,
}

impl FilterListener {
    /// Makes the server for the listener that a child has sent.
    fn new(
        listener: OwnedFd,
        own: Ipv4Addr,
        state: &Path,
        names: DnsTarget,
        affinity: Rc<SessionAffinity>,
    ) -> FilterListener {
        seccomp_notify::enable_sync_wake_up(&listener);
        let (tables, callers, chance) = (NetworkTables::for_state(state), CallerHandles::default(), RandomState::new());
        let (open, remote) = (HashMap::new(), RemoteAddresses::new(state));
        FilterListener {
            listener: Rc::new(listener),
            own,
            tables,
            callers,
            names,
            affinity,
            flows: SessionAffinity::default(),
            choices: 0,
            chance,
            open,
            remote,
            denied: None,
            bind: None,
            recent_binds: RecentBinds::default(),
        }
    }

    /// Returns the descriptor to poll.
    pub fn listener(&self) -> Rc<OwnedFd> {
        self.listener.clone()
    }

    /// Answers one call, if `poll` has reported one (otherwise receiving would block). Blocks only briefly. Returns false when no process
    /// is left under the filter.
    pub fn serve(&mut self, events: PollFlags) -> bool {
        if events.contains(PollFlags::IN) {
            self.answer();
        }
        events.contains(PollFlags::IN) || !events.intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Whether a call left something to report: [`FilterListener::denied`] or [`FilterListener::bind_report`].
    pub fn has_report(&self) -> bool {
        self.denied.is_some() || self.bind.is_some()
    }

    /// Returns the connection that policies have denied since the last call.
    pub fn denied(&mut self) -> Option<DeniedConnection> {
        self.denied.take()
    }

    /// Returns the port that could not be bound, or was bound elsewhere, since the last call.
    pub fn bind_report(&mut self) -> Option<BindReport> {
        self.bind.take()
    }

    fn answer(&mut self) {
        let Ok(notice) = seccomp_notify::receive(&self.listener) else { return };
        match self.carry_out(&notice) {
            None => seccomp_notify::go_on(&self.listener, &notice),
            Some(result) => seccomp_notify::answer(&self.listener, &notice, result),
        }
    }

    /// Carries out a call; `None` makes the kernel continue it unchanged.
    fn carry_out(&mut self, notice: &SeccompNotice) -> CallResult {
        if notice.call == SocketCall::Name {
            let socket = notice.socket(&self.listener, &mut self.callers).ok()?;
            return CallerSocket::name(&socket, self.own).map(|name| notice.give_name(&name));
        }
        let asked = notice.address()?;
        if !low_ports::is_pod(self.own) {
            return self.carry_out_on_host(notice, asked);
        }
        let decision = decide::decide(notice.call, asked, self.own, &self.names);
        if notice.call != SocketCall::Bind {
            self.tables.refresh();
        }
        let leaves = decision == CallDecision::GoOn
            && notice.call != SocketCall::Bind
            && policies::may_restrict_egress(&self.tables, self.own);
        if decision == CallDecision::GoOn && !leaves {
            return None;
        }
        let socket = match self.find_socket(notice, asked) {
            Ok(socket) => socket,
            Err(result) => return result,
        };
        match decision {
            CallDecision::GoOn => {
                // Blocks of IPv6 addresses are not known here, so an IPv6 address counts as outside of every block.
                let to = decide::v4(asked).unwrap_or(SocketAddrV4::new(Ipv4Addr::BROADCAST, asked.port()));
                let refused = self.forbid(&socket, to);
                self.denied.iter_mut().filter(|_| refused.is_some()).for_each(|denial| denial.to = asked.to_string());
                refused
            }
            CallDecision::Bind { port } => {
                let bound = socket_calls::bind(&socket, self.own, port);
                self.note_bind(&socket, port, bound);
                Some(bound)
            }
            CallDecision::Within { port } => self.connect_within_pod(notice, &socket, port),
            CallDecision::Pod(to) if *to.ip() == self.own && self.is_kept_off(&socket, to.port()) => {
                self.forbid(&socket, SocketAddrV4::new(Ipv4Addr::LOCALHOST, to.port()))
            }
            CallDecision::Pod(to) => {
                let refused = self.forbid(&socket, to).or_else(|| self.prepare(&socket, to));
                refused.or_else(|| self.as_asked(notice, &socket, to))
            }
            CallDecision::Service(to) => self.service(notice, &socket, to),
            CallDecision::Names => self.names(notice, &socket, decide::v4(asked)?),
        }
    }

    /// Carries out a call of a pod on the machine's network. Only two kinds of connections are not left to the kernel: those to pods of
    /// other machines, and those to Services of another Kubernetes. The addresses of both lead nowhere on this machine.
    fn carry_out_on_host(&mut self, notice: &SeccompNotice, asked: SocketAddr) -> CallResult {
        if !matches!(notice.call, SocketCall::Connect | SocketCall::Send) {
            return None;
        }
        let to = decide::v4(asked)?;
        self.tables.refresh();
        let is_remote = self.remote.holds(&self.tables, *to.ip());
        // The gateway listens at the addresses of kloop's own Services, which are loopback addresses.
        let is_service = || {
            let routes = self.tables.text(routes::FOLDER, *to.ip());
            !to.ip().is_loopback() && routes.is_ok_and(|routes| !routes.is_empty())
        };
        if !is_remote && !is_service() {
            return None;
        }
        match self.find_socket(notice, asked) {
            Ok(socket) if is_remote => self.prepare(&socket, to),
            Ok(socket) => self.service(notice, &socket, to),
            Err(result) => result,
        }
    }

    /// Returns the caller's socket, or the result of the call where there is none.
    fn find_socket(&mut self, notice: &SeccompNotice, asked: SocketAddr) -> Result<CallerSocket, CallResult> {
        match notice.socket(&self.listener, &mut self.callers) {
            Ok(socket) => Ok(CallerSocket::new(socket, notice.call, asked)),
            // Without free descriptors the policies cannot be checked, so the call fails.
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(Some(Err(errno))),
            Err(_) => Err(None),
        }
    }

    /// Records a port that could not be bound because of the machine, and not because of the pod itself; or that was bound elsewhere,
    /// because the machine keeps it for root.
    fn note_bind(&mut self, socket: &CallerSocket, port: u16, bound: Result<i64, Errno>) {
        let moved_to = low_ports::moved_address(SocketAddrV4::new(self.own, port)).port();
        if port == 0 || bound.is_ok() && (moved_to == port || socket.is_v6_only()) {
            return;
        }
        let result = BindResult { port, is_udp: !socket.is_stream, is_bound: bound.is_ok() };
        let now = Instant::now();
        if !self.recent_binds.is_news(result, now) {
            return;
        }
        let holder = match bound {
            Ok(_) | Err(Errno::ACCESS) => None,
            Err(Errno::ADDRINUSE) if socket.is_stream => match ports::holder(moved_to) {
                Some(holder) => Some(holder.to_string()),
                None => return,
            },
            Err(_) => return,
        };
        let (is_udp, moved_to) = (result.is_udp, result.is_bound.then_some(moved_to));
        self.recent_binds.note(result, now);
        self.bind = Some(BindReport { port, is_udp, holder, moved_to });
    }

    /// Connects to the pod itself, or to the host where the pod has no listener.
    fn connect_within_pod(&mut self, notice: &SeccompNotice, socket: &CallerSocket, port: u16) -> CallResult {
        let host = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        if !socket.is_stream && !self.receives_here(socket, port) || self.is_kept_off(socket, port) {
            return self.forbid(socket, host);
        }
        // Servers that trust localhost see localhost as the source. Replies to a datagram must have the address that it was sent to.
        let from = if socket.is_stream { Ipv4Addr::LOCALHOST } else { self.own };
        match self.reach(notice, socket, from, SocketAddrV4::new(self.own, port)) {
            // No listener in the pod: continue with the host's localhost, as the program asked.
            Some(Err(Errno::CONNREFUSED)) => self.forbid(socket, host),
            other => other,
        }
    }

    /// Whether policies forbid the pod to reach the machine, and only the machine could answer at this port of the pod's address. A program
    /// bound to every address answers at this one too, and so does a client of the pod that waits for a reply.
    fn is_kept_off(&self, socket: &CallerSocket, port: u16) -> bool {
        let (here, host) = (SocketAddrV4::new(self.own, port), SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let protocol = if socket.is_stream { "tcp" } else { "udp" };
        !policies::is_allowed(&self.tables, &PolicyFlow { from: self.own, to: host, protocol })
            && !match socket.is_stream {
                true => socket_calls::listens_here(self.own, port),
                false => self.receives_here(socket, port) || self.is_reply(socket, here),
            }
    }

    /// Whether the pod has a socket at this port that would receive a datagram from this one.
    fn receives_here(&self, socket: &CallerSocket, port: u16) -> bool {
        let sender = SocketAddrV4::new(self.own, socket.port().unwrap_or(0));
        socket_calls::receives_here(self.own, port, sender)
    }

    /// Connects to an endpoint of a Service.
    fn service(&mut self, notice: &SeccompNotice, socket: &CallerSocket, to: SocketAddrV4) -> CallResult {
        let choice = self.choose(*to.ip(), to.port(), socket.is_stream);
        if !socket.is_stream && self.may_reach(&choice.endpoints) && self.is_open(to) {
            // The source of the reply must be the address of the query: some programs accept no other.
            return self.as_asked(notice, socket, to);
        }
        self.route(notice, socket, to, choice)
    }

    /// Connects to a DNS server.
    fn names(&mut self, notice: &SeccompNotice, socket: &CallerSocket, asked: SocketAddrV4) -> CallResult {
        if !socket.is_stream && decide::is_resolver(&asked, self.own) && self.is_open(asked) {
            return self.as_asked(notice, socket, asked);
        }
        let servers = self.choose(routes::DNS, routes::DNS_PORT, socket.is_stream).endpoints;
        // Without a control plane the machine's own resolver answers. Policies do not apply to DNS queries: the resolver is part of the
        // cluster and no pod.
        match servers.into_iter().find(|server| self.is_open(*server)) {
            Some(server) => self.carry(notice, socket, self.own, server),
            None => self.forbid(socket, asked),
        }
    }

    /// Returns the error for a connection that policies deny: at once, and the same as from a local firewall (connect(2)), so that the
    /// client does not wait for a timeout or look for a dead server. `None` when the connection is allowed.
    fn forbid(&mut self, socket: &CallerSocket, to: SocketAddrV4) -> CallResult {
        let protocol = if socket.is_stream { "tcp" } else { "udp" };
        let denial = match policies::denial(&self.tables, &PolicyFlow { from: self.own, to, protocol }) {
            Ok(denial) => denial?,
            Err(error) => return Some(Err(Errno::from_io_error(&error).unwrap_or(Errno::ACCESS))),
        };
        if protocol == "udp" && self.is_reply(socket, to) {
            return None;
        }
        if !self.is_look(socket, to) {
            self.denied = Some(denial);
        }
        Some(Err(Errno::ACCESS))
    }

    /// Whether a program only asks the kernel for its own source address, as resolvers do that sort addresses (RFC 6724). They connect a
    /// datagram socket without sending, before a TCP connection (glibc), or to one of these ports without any.
    fn is_look(&self, socket: &CallerSocket, to: SocketAddrV4) -> bool {
        let is_meant = || policies::is_allowed(&self.tables, &PolicyFlow { from: self.own, to, protocol: "tcp" });
        !socket.is_stream && socket.connects && (LOOKS.contains(&to.port()) || is_meant())
    }

    /// Returns the endpoints of a Service's port, in the order in which to try them.
    fn choose(&mut self, service: impl Into<TableName>, port: u16, is_stream: bool) -> EndpointChoice {
        self.choices += 1;
        let chance = self.chance.hash_one(self.choices);
        let text = self.tables.text(routes::FOLDER, service).unwrap_or_default();
        routes::choose(&text, port, is_stream, self.own, chance).preferred(&self.affinity)
    }

    /// Whether the gateway receives datagrams at this address. A positive result is cached for a moment, because the check takes longer
    /// than the rest of the call.
    fn is_open(&mut self, at: SocketAddrV4) -> bool {
        self.open.retain(|_, since| since.elapsed() < GATEWAY_CHECK_VALIDITY);
        let is_open = self.open.contains_key(&at) || socket_calls::is_bound_here(*at.ip(), at.port());
        if is_open {
            self.open.entry(at).or_insert_with(Instant::now);
        }
        is_open
    }

    /// Whether policies allow datagrams to all of these endpoints, so that the gateway may choose one.
    fn may_reach(&self, endpoints: &[SocketAddrV4]) -> bool {
        let flow = |to: &SocketAddrV4| PolicyFlow { from: self.own, to: *to, protocol: "udp" };
        !endpoints.is_empty() && endpoints.iter().all(|to| policies::is_allowed(&self.tables, &flow(to)))
    }

    /// Whether a datagram may be the reply to an allowed one: its receiver may send to the address that it leaves from.
    fn is_reply(&self, socket: &CallerSocket, to: SocketAddrV4) -> bool {
        let from = socket.port().map(|port| low_ports::requested_port(self.own, port));
        let from = from.filter(|port| *port > 0 && *port < policies::EPHEMERAL);
        from.is_some_and(|port| {
            let asked = PolicyFlow { from: *to.ip(), to: SocketAddrV4::new(self.own, port), protocol: "udp" };
            policies::is_allowed(&self.tables, &asked)
        })
    }

    /// Connects to an endpoint of a Service; tries the next endpoint when the first one has just ended.
    fn route(
        &mut self,
        notice: &SeccompNotice,
        socket: &CallerSocket,
        service: SocketAddrV4,
        mut choice: EndpointChoice,
    ) -> CallResult {
        let is_datagram = notice.call == SocketCall::Send && !socket.is_stream;
        // A socket without a port has not sent anything yet.
        if is_datagram && socket.port().is_some_and(|port| port != 0) {
            self.flows.prefer(&self.flow(socket, service), &mut choice.endpoints);
        }
        for at in 0..choice.endpoints.len() {
            let endpoint = choice.endpoints[at];
            let reached = self.reach(notice, socket, self.own, endpoint);
            if matches!(reached, Some(Err(Errno::CONNREFUSED | Errno::HOSTUNREACH))) {
                continue;
            }
            if matches!(reached, None | Some(Ok(_) | Err(Errno::INPROGRESS))) {
                choice.taken(&self.affinity, endpoint);
                if is_datagram {
                    // The socket has got its port by now.
                    self.flows.remember(self.flow(socket, service), endpoint);
                }
            }
            return reached;
        }
        match socket.is_stream {
            true => Some(Err(Errno::CONNREFUSED)),
            // Linux refuses no datagram at once: programs connect a socket just to learn their own address (udp(7)).
            false => self.forbid(socket, service).or_else(|| self.as_asked(notice, socket, service)),
        }
    }

    fn flow(&self, socket: &CallerSocket, service: SocketAddrV4) -> AffinitySession {
        AffinitySession::for_flow(self.own, socket.port().unwrap_or(0), service)
    }

    fn reach(&mut self, notice: &SeccompNotice, socket: &CallerSocket, from: Ipv4Addr, to: SocketAddrV4) -> CallResult {
        let refused = self.forbid(socket, to).or_else(|| self.prepare(socket, to));
        refused.or_else(|| self.carry(notice, socket, from, to))
    }

    /// Prepares a connection to an address of another machine; the error when that cannot be reached.
    fn prepare(&mut self, socket: &CallerSocket, to: SocketAddrV4) -> CallResult {
        self.remote.prepare(&self.tables, to, socket.is_stream).err().map(Err)
    }

    /// When only the source address differs from the request, the kernel completes the call, and waits where that takes
    /// time.
    fn as_asked(&self, notice: &SeccompNotice, socket: &CallerSocket, to: SocketAddrV4) -> CallResult {
        if low_ports::moved_address(to) != to || notice.call == SocketCall::Send && socket.is_everywhere() {
            return self.carry(notice, socket, self.own, to);
        }
        socket_calls::set_source(socket, self.own);
        None
    }

    fn carry(&self, notice: &SeccompNotice, socket: &CallerSocket, from: Ipv4Addr, to: SocketAddrV4) -> CallResult {
        match notice.call {
            SocketCall::Send => Some(
                notice.message().and_then(|message| socket_calls::send(socket, from, to, &message, notice.flags())),
            ),
            SocketCall::Bind | SocketCall::Connect | SocketCall::Name => socket_calls::connect(socket, from, to),
        }
    }
}
