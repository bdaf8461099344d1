//! The pod network: every pod its own address, without root and without network namespaces.
//!
//! A pod's programs run under a seccomp filter that tells the pod's shim of each `bind`, `connect` and addressed `sendto`, before the
//! kernel carries it out. Whoever binds every address, or localhost, gets the pod's own loopback address, so that replicas share
//! ports; a connection to localhost reaches the pod's own listener, or else the host's; one to a Service's address goes to an endpoint
//! that is ready at that moment ([`routes`]); what NetworkPolicies deny is refused ([`policies`]). Everything else goes on in the kernel as if nobody had asked.
//!
//! The call is done by the shim, on a duplicate of the caller's socket. This is no wall: a program that wants to can get around it.
//! Stated limits: `sendmsg` with an address, io_uring, and programs that listen to a seccomp filter of their own.
//! Knows: the kernel's side of it ([`filter`], [`notice`]), sockets ([`act`]), and what to answer ([`decide`], which is pure).
//! Never: asks the control plane anything. Start reading at [`Guard::serve`].

mod act;
mod address;
mod decide;
mod filter;
pub mod gate;
pub mod gateway;
mod ingress;
mod notice;
pub mod policies;
mod proxy;
mod resolver;
pub mod routes;

pub use decide::is_pod;
pub use gate::Gate;
pub use resolver::found as resolver_of;

use crate::network::policy::table::Flow;
use crate::world::policy::Denial;
use act::Outcome;
use decide::{Call, Decision};
use notice::Notice;
use policies::Policies;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The shim's end of one filter: what a container's processes ask for comes in here.
pub struct Guard {
    listener: OwnedFd,
    /// The pod's address.
    own: Ipv4Addr,
    /// Where the routes of Services lie.
    routes: PathBuf,
    policies: Policies,
    /// The connection that policies have just denied.
    denied: Option<Denial>,
}

impl Guard {
    /// Takes the end of a filter that a child has installed.
    fn new(listener: OwnedFd, own: Ipv4Addr, state: &Path) -> Guard {
        notice::hurry(&listener);
        Guard { listener, own, routes: state.join(routes::FOLDER), policies: Policies::of(state), denied: None }
    }

    /// To wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers one call, if there is one. Waits for nothing longer than a moment. False when nobody is
    /// left who could call.
    pub fn serve(&mut self) -> bool {
        let mut fd = [PollFd::new(&self.listener, PollFlags::IN)];
        let _ = poll(&mut fd, Some(&Timespec::default()));
        let told = fd[0].revents();
        if told.contains(PollFlags::IN) {
            self.answer();
        }
        told.contains(PollFlags::IN) || !told.intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// The connection that policies have denied since this was last asked.
    pub fn denied(&mut self) -> Option<Denial> {
        self.denied.take()
    }

    fn answer(&mut self) {
        let Ok(notice) = notice::receive(&self.listener) else { return };
        match self.carry_out(&notice) {
            None => notice::go_on(&self.listener, &notice),
            Some(result) => notice::answer(&self.listener, &notice, result),
        }
    }

    /// None: the kernel is to carry it out as it was asked.
    fn carry_out(&mut self, notice: &Notice) -> Outcome {
        let asked = notice.address()?;
        let decision = decide::decide(notice.call, asked, self.own);
        let leaves = decision == Decision::GoOn && notice.call != Call::Bind && self.policies.bind(self.own);
        if decision == Decision::GoOn && !leaves {
            return None;
        }
        let socket = notice.socket(&self.listener)?;
        match decision {
            Decision::GoOn => {
                // Blocks of IPv6 addresses are not known here: such a place is as far away as any.
                let to = decide::v4(asked).unwrap_or(SocketAddrV4::new(Ipv4Addr::BROADCAST, asked.port()));
                let refused = self.forbid(&socket, to);
                self.denied.iter_mut().filter(|_| refused.is_some()).for_each(|denial| denial.to = asked.to_string());
                refused
            }
            Decision::Bind { port } => Some(act::bind(&socket, self.own, port)),
            Decision::Within { port } => {
                if !act::is_stream(&socket) && !act::is_bound_here(self.own, port) {
                    return self.forbid(&socket, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
                }
                match self.reach(notice, &socket, SocketAddrV4::new(self.own, port)) {
                    // Nobody in the pod listens there: the host's localhost, as the program asked.
                    Some(Err(Errno::CONNREFUSED)) => self.forbid(&socket, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)),
                    other => other,
                }
            }
            Decision::Pod(to) => self.reach(notice, &socket, to),
            Decision::Service(to) => {
                let stream = act::is_stream(&socket);
                let endpoints = routes::endpoints(&self.routes, &to.ip().to_string(), to.port(), stream, self.own);
                if !stream && self.may_reach(&endpoints) && act::is_bound_here(*to.ip(), to.port()) {
                    // The answer comes from where the question went: some programs believe no other.
                    return self.carry(notice, &socket, to);
                }
                self.route(notice, &socket, endpoints)
            }
            Decision::Names => {
                let stream = act::is_stream(&socket);
                if let Some(asked) = decide::v4(asked).filter(|asked| !stream && decide::is_resolver(asked, self.own))
                    && act::is_bound_here(*asked.ip(), asked.port())
                {
                    return self.carry(notice, &socket, asked);
                }
                let mut servers = routes::endpoints(&self.routes, routes::DNS, routes::DNS_PORT, stream, self.own);
                // Without a control plane the machine's own resolver answers.
                servers.retain(|server| act::is_bound_here(*server.ip(), server.port()));
                // Names may be asked for whatever policies say: the resolver is the cluster's own, and nobody's pod.
                match servers.first() {
                    Some(server) => self.carry(notice, &socket, *server),
                    None => self.forbid(&socket, decide::v4(asked)?),
                }
            }
        }
    }

    /// The answer to what policies deny: at once, and as a firewall of the machine itself gives it (connect(2)), so that nobody
    /// waits for a timeout or looks for a dead server. None when it may be.
    fn forbid(&mut self, socket: &OwnedFd, to: SocketAddrV4) -> Outcome {
        let protocol = if act::is_stream(socket) { "tcp" } else { "udp" };
        let denial = self.policies.denial(&Flow { from: self.own, to, protocol })?;
        if protocol == "udp" && self.is_reply(socket, to) {
            return None;
        }
        self.denied = Some(denial);
        Some(Err(Errno::ACCESS))
    }

    /// Whether policies let datagrams to all of these through, so that the gateway may choose.
    fn may_reach(&self, endpoints: &[SocketAddrV4]) -> bool {
        let flow = |to: &SocketAddrV4| Flow { from: self.own, to: *to, protocol: "udp" };
        !endpoints.is_empty() && endpoints.iter().all(|to| self.policies.denial(&flow(to)).is_none())
    }

    /// Whether a datagram may be the answer to one that was allowed: it leaves from where its receiver may send to.
    fn is_reply(&self, socket: &OwnedFd, to: SocketAddrV4) -> bool {
        let from = act::port(socket).filter(|port| *port > 0 && *port < policies::EPHEMERAL);
        from.is_some_and(|port| {
            let asked = Flow { from: *to.ip(), to: SocketAddrV4::new(self.own, port), protocol: "udp" };
            self.policies.denial(&asked).is_none()
        })
    }

    /// To one of these endpoints; the next one when that has just gone.
    fn route(&mut self, notice: &Notice, socket: &OwnedFd, endpoints: Vec<SocketAddrV4>) -> Outcome {
        let mut last = Some(Err(Errno::CONNREFUSED));
        for endpoint in endpoints {
            last = self.reach(notice, socket, endpoint);
            if !matches!(last, Some(Err(Errno::CONNREFUSED))) {
                break;
            }
        }
        last
    }

    fn reach(&mut self, notice: &Notice, socket: &OwnedFd, to: SocketAddrV4) -> Outcome {
        let refused = self.forbid(socket, to);
        if refused.is_some() {
            return refused;
        }
        self.carry(notice, socket, to)
    }

    fn carry(&self, notice: &Notice, socket: &OwnedFd, to: SocketAddrV4) -> Outcome {
        match notice.call {
            Call::Send => {
                Some(notice.message().and_then(|message| act::send(socket, self.own, to, &message, notice.flags())))
            }
            Call::Bind | Call::Connect => act::connect(socket, self.own, to),
        }
    }
}
