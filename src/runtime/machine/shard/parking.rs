//! Keeps the number of connections of a shard within the limit of descriptors.
//!
//! When the connections come near their share of the limit, the least recently used idle ones are parked: the shim is asked to announce
//! later changes by a datagram, and the connection is closed. An announcement, or something to ask of the pod, has the shard dial again,
//! and the shim then sends its whole record. The announcement socket only saves time: a parked shim repeats its announcement until it is
//! dialed, and the shard looks from time to time whether its process still runs.
//! Start reading at [`Shard::balance_links`].

use super::super::super::wire::ShimRequest;
use super::super::super::{descriptors, folder};
use super::super::shim_link::{ParkState, ShimLink};
use super::{MAX_RETRY, SHIM_TIMEOUT, Shard, ShardPod, WorkTarget, pod_mut};
use crate::object::Str;
use anyhow::{Context as _, Result};
use rustix::net::RecvFlags;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval for checking whether the process of a parked shim still runs.
const CHECK: Duration = Duration::from_secs(2);
/// Interval for looking for connections that do not answer, while pods wait for a connection.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Smallest number of connections of a shard.
const FEWEST: usize = 4;
/// Longest announcement: a uid.
const MAX_ANNOUNCEMENT_BYTES: usize = 256;

/// Maximum number of connections, and the pods that wait for one.
pub struct LinkBudget {
    most: usize,
    waiting: VecDeque<Str>,
    name: String,
    socket: OwnedFd,
}

impl LinkBudget {
    /// Returns the budget of one of several shards, which share half of the limit of descriptors.
    pub fn open(state: &Path, shard: usize, shards: usize) -> Result<LinkBudget> {
        let name = folder::announcement_socket(shard);
        let socket = folder::bind_announcements(state, &name)
            .with_context(|| format!("cannot bind the socket {}", state.join(&name).display()))?;
        let most = (descriptors::soft_limit() / 2 / shards).max(FEWEST);
        Ok(LinkBudget { most, waiting: VecDeque::new(), name, socket })
    }

    /// Returns the socket on which parked shims announce changes.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns the next moment for [`Shard::balance_links`].
    pub fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| Instant::now() + CONNECTION_CHECK_INTERVAL)
    }
}

impl ShardPod {
    /// Whether the shim has a connection or will get one when it is asked something.
    pub(super) fn is_reachable(&self) -> bool {
        self.link.is_some() || self.parked || self.queued
    }

    /// Whether nothing is to be asked of the shim.
    fn is_idle(&self) -> bool {
        let asks =
            !self.starts.is_empty() || !self.stops.is_empty() || !self.deferred.is_empty() || !self.execs.is_empty();
        !asks && !self.removing && !self.leaving && self.adopter.is_none()
    }
}

impl Shard {
    /// Gives connections to the pods that wait for one, and parks idle pods when connections become scarce.
    pub(super) fn balance_links(&mut self) {
        while self.has_room() {
            let Some(uid) = self.link_budget.waiting.pop_front() else { break };
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            pod.queued = false;
            self.contain(&WorkTarget::for_pod(&uid), |shard| shard.ensure_connection(&uid));
        }
        if !self.link_budget.waiting.is_empty() {
            self.drop_silent_links();
        }
        if self.tokens.len() > self.link_budget.most / 4 * 3 || !self.link_budget.waiting.is_empty() {
            self.park_idle_pods();
        }
    }

    /// Whether another connection fits.
    pub(super) fn has_room(&self) -> bool {
        self.tokens.len() < self.link_budget.most
    }

    /// Puts a pod into the queue for a connection.
    pub(super) fn wait_for_room(&mut self, uid: &Str) {
        let pod = pod_mut(&mut self.pods, uid);
        if !std::mem::replace(&mut pod.queued, true) {
            self.link_budget.waiting.push_back(uid.clone());
        }
    }

    /// Whether a pod is parked and can stay so: nothing is to be asked of its shim, and that still runs.
    pub(super) fn stays_parked(&mut self, uid: &Str) -> bool {
        let pod = pod_mut(&mut self.pods, uid);
        if !pod.parked {
            return false;
        }
        pod.parked = pod.is_idle() && pod.shim.is_some_and(|shim| shim.lives());
        let parked = pod.parked;
        if parked {
            self.schedule_retry(uid, CHECK);
        }
        parked
    }

    /// Sends a request, at once or when a parked shim has a connection again. A shim that cannot be reached does not get it.
    pub(super) fn send_or_defer(&mut self, uid: &Str, request: ShimRequest) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if let Some(link) = &mut pod.link {
            link.send(self.context.epoch, request);
        } else if pod.is_reachable() {
            pod.deferred.push(request);
            self.ensure_connection(uid);
        }
    }

    /// Closes the connection of a shim that has parked, unless something was asked of it meanwhile.
    pub(super) fn parked(&mut self, uid: &Str) {
        let Some(link) = self.pods.get_mut(uid).and_then(|pod| pod.link.as_mut()) else { return };
        match link.park_state {
            ParkState::Asked => {
                self.hang_up(uid);
                pod_mut(&mut self.pods, uid).parked = true;
                self.schedule_retry(uid, CHECK);
            }
            ParkState::Withdrawn => link.park_state = ParkState::Reporting,
            ParkState::Reporting | ParkState::Impossible => {}
        }
    }

    /// Dials the shims that have announced a change.
    pub(super) fn read_announcements(&mut self) {
        let mut block = [0; MAX_ANNOUNCEMENT_BYTES];
        while let Ok((length, _)) = rustix::net::recv(&self.link_budget.socket, &mut block[..], RecvFlags::DONTWAIT) {
            let Ok(uid) = std::str::from_utf8(&block[..length]) else { continue };
            let uid = Str::from(uid);
            let Some(pod) = self.pods.get_mut(&uid).filter(|pod| pod.parked) else { continue };
            pod.parked = false;
            self.contain(&WorkTarget::for_pod(&uid), |shard| shard.ensure_connection(&uid));
        }
    }

    /// Asks the least recently used idle shims to park, until half of the budget is left.
    fn park_idle_pods(&mut self) {
        let uids = self.tokens.values();
        let links = uids.filter_map(|uid| Some((uid, self.pods.get(uid)?)));
        let mut idle: Vec<(Instant, Str)> = Vec::new();
        let mut leaving = 0;
        for (uid, pod) in links {
            let Some(link) = &pod.link else { continue };
            leaving += usize::from(link.park_state == ParkState::Asked);
            if link.can_park() && pod.is_idle() {
                idle.push((link.used, uid.clone()));
            }
        }
        let surplus = (self.tokens.len() - leaving).saturating_sub(self.link_budget.most / 2);
        idle.sort_unstable();
        for (_, uid) in idle.into_iter().take(surplus) {
            let link = self.pods.get_mut(&uid).and_then(|pod| pod.link.as_mut());
            if let Some(link) = link {
                link.ask_to_park(self.context.epoch, &self.link_budget.name);
            }
        }
    }

    /// Closes connections that other pods need: those of shims that have not answered for long, and in turn those of shims that cannot
    /// be parked. All these are dialed again later. Every request that was not answered is sent again then.
    fn drop_silent_links(&mut self) {
        let awaits_answer = |pod: &ShardPod, link: &ShimLink| {
            !link.greeted || link.park_state == ParkState::Asked || !pod.starts.is_empty()
        };
        let is_silent = |uid: &&Str| {
            let Some(pod) = self.pods.get(*uid).filter(|pod| pod.execs.is_empty() && !pod.removing) else {
                return false;
            };
            let Some(link) = &pod.link else { return false };
            let has_had_turn =
                link.park_state == ParkState::Impossible && link.since.elapsed() >= CONNECTION_CHECK_INTERVAL;
            (has_had_turn && pod.is_idle()) || (link.used.elapsed() >= SHIM_TIMEOUT && awaits_answer(pod, link))
        };
        let silent: Vec<Str> = self.tokens.values().filter(is_silent).cloned().collect();
        for uid in silent {
            self.hang_up(&uid);
            self.schedule_retry(&uid, MAX_RETRY);
        }
    }
}
