//! The pod network: every pod its own address, without root and without network namespaces.
//!
//! A pod's programs run under a seccomp filter that notifies the pod's shim of each `bind`, `connect` and addressed `sendto`, before the
//! kernel carries it out. A `bind` to every address, or to localhost, gets the pod's own loopback address, so that replicas can use the
//! same port; a connection to localhost reaches the pod's own listener, or else the host's; one to a Service's address goes to an endpoint
//! that is ready at that moment ([`routes`]); connections that NetworkPolicies deny are refused ([`policies`]). The kernel carries out all
//! other calls unchanged.
//!
//! The shim makes the call, on a duplicate of the caller's socket. This is no security boundary: a program can bypass it on purpose.
//! A machine may reserve low ports for root. A pod then binds a higher port instead (`low_ports`), and `getsockname` still returns the low one.
//! Knows: the kernel's side of it ([`filter`], [`seccomp_notify`]), sockets ([`socket_calls`]), what the cluster says ([`tables`]), and what to answer
//! ([`decide`], which is pure).
//! Never: asks the control plane anything. Start reading at [`FilterListener::serve`].

mod address;
mod affinity;
mod decide;
mod filter;
pub mod gateway;
mod ingress;
pub mod listener_channel;
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
pub use resolver::found as resolver_of;

use super::{low_ports, ports};
use crate::network::policy::table::PolicyFlow;
use crate::world::ingress_routes::UnboundPort;
use crate::world::policy::DeniedConnection;
use crate::world::start::DnsTarget;
use affinity::AffinitySession;
use decide::{CallDecision, SocketCall};
use routes::EndpointChoice;
use rustix::event::PollFlags;
use rustix::io::Errno;
use seccomp_notify::{CallerHandles, SeccompNotice};
use socket_calls::{CallResult, CallerSocket};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tables::NetworkTables;

/// For so long it is believed that the gateway listens where it did.
const MOMENT: Duration = Duration::from_secs(1);

/// For so long nothing is said again of a port that cannot be bound: whoever wants it may try all the time.
const QUIET: Duration = Duration::from_secs(60);

/// Ports at which programs only look for their own address: none at all, of Go before 1.22, of musl. (Go's is the one for names now, which
/// means something else, too.)
const LOOKS: [u16; 3] = [0, 9, 65_535];

/// The shim's end of one filter: what a container's processes ask for comes in here.
pub struct FilterListener {
    listener: OwnedFd,
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
    /// The connection that policies have just denied.
    denied: Option<DeniedConnection>,
    /// The port that could just not be bound, and those of which that was said lately.
    unbound: Option<UnboundPort>,
    said: HashMap<u16, Instant>,
}

impl FilterListener {
    /// Takes the end of a filter that a child has installed.
    fn new(
        listener: OwnedFd,
        own: Ipv4Addr,
        state: &Path,
        names: DnsTarget,
        affinity: Rc<SessionAffinity>,
    ) -> FilterListener {
        seccomp_notify::hurry(&listener);
        let (tables, callers, chance) = (NetworkTables::for_state(state), CallerHandles::default(), RandomState::new());
        let (open, said) = (HashMap::new(), HashMap::new());
        FilterListener {
            listener,
            own,
            tables,
            callers,
            names,
            affinity,
            flows: SessionAffinity::default(),
            choices: 0,
            chance,
            open,
            denied: None,
            unbound: None,
            said,
        }
    }

    /// To wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers a call, if polling has just told of one: asked for another it would wait. Waits for nothing longer than a moment. False
    /// when nobody is left who could call.
    pub fn serve(&mut self, told: PollFlags) -> bool {
        if told.contains(PollFlags::IN) {
            self.answer();
        }
        told.contains(PollFlags::IN) || !told.intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// The connection that policies have denied since this was last asked.
    pub fn denied(&mut self) -> Option<DeniedConnection> {
        self.denied.take()
    }

    /// The port that could not be bound since this was last asked.
    pub fn unbound(&mut self) -> Option<UnboundPort> {
        self.unbound.take()
    }

    fn answer(&mut self) {
        let Ok(notice) = seccomp_notify::receive(&self.listener) else { return };
        match self.carry_out(&notice) {
            None => seccomp_notify::go_on(&self.listener, &notice),
            Some(result) => seccomp_notify::answer(&self.listener, &notice, result),
        }
    }

    /// None: the kernel is to carry it out as it was asked.
    fn carry_out(&mut self, notice: &SeccompNotice) -> CallResult {
        if notice.call == SocketCall::Name {
            let socket = notice.socket(&self.listener, &mut self.callers).ok()?;
            return CallerSocket::name(&socket, self.own).map(|name| notice.give_name(&name));
        }
        let asked = notice.address()?;
        let decision = decide::decide(notice.call, asked, self.own, &self.names);
        if notice.call != SocketCall::Bind {
            self.tables.refresh();
        }
        let leaves =
            decision == CallDecision::GoOn && notice.call != SocketCall::Bind && policies::bind(&self.tables, self.own);
        if decision == CallDecision::GoOn && !leaves {
            return None;
        }
        let socket = match notice.socket(&self.listener, &mut self.callers) {
            Ok(socket) => CallerSocket::new(socket, notice.call, asked),
            // Out of descriptors: nobody could say what policies deny, so the kernel is not to go on.
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Some(Err(errno)),
            Err(_) => return None,
        };
        match decision {
            CallDecision::GoOn => {
                // Blocks of IPv6 addresses are not known here: such a place is as far away as any.
                let to = decide::v4(asked).unwrap_or(SocketAddrV4::new(Ipv4Addr::BROADCAST, asked.port()));
                let refused = self.forbid(&socket, to);
                self.denied.iter_mut().filter(|_| refused.is_some()).for_each(|denial| denial.to = asked.to_string());
                refused
            }
            CallDecision::Bind { port } => {
                let bound = socket_calls::bind(&socket, self.own, port);
                if let Err(error) = bound {
                    self.blame(&socket, port, error);
                }
                Some(bound)
            }
            CallDecision::Within { port } => self.connect_within_pod(notice, &socket, port),
            CallDecision::Pod(to) if *to.ip() == self.own && self.is_kept_off(&socket, to.port()) => {
                self.forbid(&socket, SocketAddrV4::new(Ipv4Addr::LOCALHOST, to.port()))
            }
            CallDecision::Pod(to) => self.forbid(&socket, to).or_else(|| self.as_asked(notice, &socket, to)),
            CallDecision::Service(to) => self.service(notice, &socket, to),
            CallDecision::Names => self.names(notice, &socket, decide::v4(asked)?),
        }
    }

    /// Notes that a port could not be bound, where that is the machine's doing and not the pod's own.
    fn blame(&mut self, socket: &CallerSocket, port: u16, error: Errno) {
        self.said.retain(|_, since| since.elapsed() < QUIET);
        if port == 0 || self.said.contains_key(&port) {
            return;
        }
        let holder = match error {
            Errno::ACCESS => None,
            Errno::ADDRINUSE if socket.is_stream => {
                match ports::holder(low_ports::moved_address(SocketAddrV4::new(self.own, port)).port()) {
                    Some(holder) => Some(holder.to_string()),
                    None => return,
                }
            }
            _ => return,
        };
        self.said.insert(port, Instant::now());
        self.unbound = Some(UnboundPort { port, is_udp: !socket.is_stream, holder });
    }

    /// To the pod itself; where it has no listener, to the machine.
    fn connect_within_pod(&mut self, notice: &SeccompNotice, socket: &CallerSocket, port: u16) -> CallResult {
        let host = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        if !socket.is_stream && !socket_calls::is_bound_here(self.own, port) || self.is_kept_off(socket, port) {
            return self.forbid(socket, host);
        }
        // Servers that trust localhost see it. A datagram's answer comes only from where it was sent.
        let from = if socket.is_stream { Ipv4Addr::LOCALHOST } else { self.own };
        match self.reach(notice, socket, from, SocketAddrV4::new(self.own, port)) {
            // Nobody in the pod listens there: the host's localhost, as the program asked.
            Some(Err(Errno::CONNREFUSED)) => self.forbid(socket, host),
            other => other,
        }
    }

    /// Whether policies keep the pod off the machine, and nobody but the machine would answer at this port of the pod's address: a
    /// program that is bound to every address is so to this one, too. So is a client of the pod's own that waits for its answer.
    fn is_kept_off(&self, socket: &CallerSocket, port: u16) -> bool {
        let (here, host) = (SocketAddrV4::new(self.own, port), SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let protocol = if socket.is_stream { "tcp" } else { "udp" };
        !policies::allow(&self.tables, &PolicyFlow { from: self.own, to: host, protocol })
            && !match socket.is_stream {
                true => socket_calls::listens_here(self.own, port),
                false => socket_calls::is_bound_here(self.own, port) || self.is_reply(socket, here),
            }
    }

    /// To an endpoint of a Service.
    fn service(&mut self, notice: &SeccompNotice, socket: &CallerSocket, to: SocketAddrV4) -> CallResult {
        let choice = self.choose(&to.ip().to_string(), to.port(), socket.is_stream);
        if !socket.is_stream && self.may_reach(&choice.endpoints) && self.is_open(to) {
            // The answer comes from where the question went: some programs believe no other.
            return self.as_asked(notice, socket, to);
        }
        self.route(notice, socket, to, choice)
    }

    /// To who answers names.
    fn names(&mut self, notice: &SeccompNotice, socket: &CallerSocket, asked: SocketAddrV4) -> CallResult {
        if !socket.is_stream && decide::is_resolver(&asked, self.own) && self.is_open(asked) {
            return self.as_asked(notice, socket, asked);
        }
        let servers = self.choose(routes::DNS, routes::DNS_PORT, socket.is_stream).endpoints;
        // Without a control plane the machine's own resolver answers. Names may be asked for whatever policies say: the
        // resolver is the cluster's own, and nobody's pod.
        match servers.into_iter().find(|server| self.is_open(*server)) {
            Some(server) => self.carry(notice, socket, self.own, server),
            None => self.forbid(socket, asked),
        }
    }

    /// The answer to what policies deny: at once, and as a firewall of the machine itself gives it (connect(2)), so that nobody
    /// waits for a timeout or looks for a dead server. None when it may be.
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

    /// Whether a program only asks the kernel for its own address on the way there, as resolvers do that put addresses in order (RFC 6724):
    /// they connect for datagrams and send none, and what they mean is a connection (glibc), or at these ports nothing at all.
    fn is_look(&self, socket: &CallerSocket, to: SocketAddrV4) -> bool {
        let is_meant = || policies::allow(&self.tables, &PolicyFlow { from: self.own, to, protocol: "tcp" });
        !socket.is_stream && socket.connects && (LOOKS.contains(&to.port()) || is_meant())
    }

    /// The endpoints of a Service's port, in the order in which to try them.
    fn choose(&mut self, service: &str, port: u16, is_stream: bool) -> EndpointChoice {
        self.choices += 1;
        let chance = self.chance.hash_one(self.choices);
        let text = self.tables.text(routes::FOLDER, service.to_owned()).unwrap_or_default();
        routes::choose(&text, port, is_stream, self.own, chance).preferred(&self.affinity)
    }

    /// Whether the gateway takes datagrams there. Once found that is believed for a moment: to look takes longer than all the rest.
    fn is_open(&mut self, at: SocketAddrV4) -> bool {
        self.open.retain(|_, since| since.elapsed() < MOMENT);
        let is_open = self.open.contains_key(&at) || socket_calls::is_bound_here(*at.ip(), at.port());
        if is_open {
            self.open.entry(at).or_insert_with(Instant::now);
        }
        is_open
    }

    /// Whether policies let datagrams to all of these through, so that the gateway may choose.
    fn may_reach(&self, endpoints: &[SocketAddrV4]) -> bool {
        let flow = |to: &SocketAddrV4| PolicyFlow { from: self.own, to: *to, protocol: "udp" };
        !endpoints.is_empty() && endpoints.iter().all(|to| policies::allow(&self.tables, &flow(to)))
    }

    /// Whether a datagram may be the answer to one that was allowed: it leaves from where its receiver may send to.
    fn is_reply(&self, socket: &CallerSocket, to: SocketAddrV4) -> bool {
        let from = socket.port().map(|port| low_ports::requested_port(self.own, port));
        let from = from.filter(|port| *port > 0 && *port < policies::EPHEMERAL);
        from.is_some_and(|port| {
            let asked = PolicyFlow { from: *to.ip(), to: SocketAddrV4::new(self.own, port), protocol: "udp" };
            policies::allow(&self.tables, &asked)
        })
    }

    /// To one of these endpoints of a Service; the next one when that has just gone.
    fn route(
        &mut self,
        notice: &SeccompNotice,
        socket: &CallerSocket,
        service: SocketAddrV4,
        mut choice: EndpointChoice,
    ) -> CallResult {
        let is_datagram = notice.call == SocketCall::Send && !socket.is_stream;
        // A socket without a port has sent nothing yet.
        if is_datagram && socket.port().is_some_and(|port| port != 0) {
            self.flows.prefer(&self.flow(socket, service), &mut choice.endpoints);
        }
        for at in 0..choice.endpoints.len() {
            let endpoint = choice.endpoints[at];
            let reached = self.reach(notice, socket, self.own, endpoint);
            if matches!(reached, Some(Err(Errno::CONNREFUSED))) {
                continue;
            }
            if matches!(reached, None | Some(Ok(_) | Err(Errno::INPROGRESS))) {
                choice.taken(&self.affinity, endpoint);
                if is_datagram {
                    // By now it has its port.
                    self.flows.remember(self.flow(socket, service), endpoint);
                }
            }
            return reached;
        }
        Some(Err(Errno::CONNREFUSED))
    }

    fn flow(&self, socket: &CallerSocket, service: SocketAddrV4) -> AffinitySession {
        AffinitySession::of_flow(self.own, socket.port().unwrap_or(0), service)
    }

    fn reach(&mut self, notice: &SeccompNotice, socket: &CallerSocket, from: Ipv4Addr, to: SocketAddrV4) -> CallResult {
        let refused = self.forbid(socket, to);
        if refused.is_some() {
            return refused;
        }
        self.carry(notice, socket, from, to)
    }

    /// When only the source address differs from the request, the kernel completes the call, and waits where that takes
    /// time.
    fn as_asked(&self, notice: &SeccompNotice, socket: &CallerSocket, to: SocketAddrV4) -> CallResult {
        if low_ports::moved_address(to) != to || notice.call == SocketCall::Send && socket.is_everywhere() {
            return self.carry(notice, socket, self.own, to);
        }
        socket_calls::leave_from(socket, self.own);
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
