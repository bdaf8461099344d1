//! Connects to a pod's shim: dials it; if there is none, takes over the folder of a dead one; else starts one; else tries again soon.
//!
//! Never: sends a shim more than the pod's pending requests. Start reading at [`Shard::ensure_connection`].

use super::super::super::probe::{self, ProbeFinding};
use super::super::super::wire::{self, RecordedState, ShimRecord, ShimRequest, VERSION};
use super::super::super::{folder, image, reap_dead_shim};
use super::super::facts;
use super::super::shim_link::ShimLink;
use super::{BUSY, MAX_RETRY, MAX_SHIM_STARTS, SHIM_TIMEOUT, Shard, ShardCommand, pod_mut};
use crate::object::Str;
use crate::world::Report;
use rustix::event::epoll;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Instant;

impl Shard {
    /// Asks a shim for its record: on a new connection, or on the open one when the World is loaded again.
    pub(super) fn adopt(&mut self, uid: &Str, adopter: Sender<(Str, ShimRecord)>) {
        let pod = pod_mut(&mut self.pods, uid);
        pod.adopter = Some(adopter);
        match &mut pod.link {
            Some(link) => link.send(self.context.epoch, ShimRequest::Hello(None)),
            None => self.ensure_connection(uid),
        }
    }

    /// Sends the pod's pending requests; connects to its shim first if necessary.
    pub(super) fn ensure_connection(&mut self, uid: &Str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if let Some(link) = &mut pod.link {
            // Stops are kept until the shim has identified itself; another process at the socket would lose them.
            let stops = if link.greeted { std::mem::take(&mut pod.stops) } else { Vec::new() };
            for (container, attempt, grace) in stops {
                link.send(self.context.epoch, ShimRequest::Stop { container, attempt, grace });
            }
            let (greeted, age) = (link.greeted, link.since.elapsed());
            if pod.removing {
                let is_overdue = pod.remove_by.is_some_and(|at| at <= Instant::now());
                match pod.remove_by {
                    Some(_) if is_overdue => end_shim(&folder::pod_path(&self.context.state, uid)),
                    Some(_) => {}
                    None => link.send(self.context.epoch, ShimRequest::Remove),
                }
                let by = pod.remove_by.filter(|_| !is_overdue).unwrap_or_else(|| Instant::now() + SHIM_TIMEOUT);
                pod.remove_by = Some(by);
                self.schedule_retry(uid, by.saturating_duration_since(Instant::now()));
            }
            // A silent shim with a record in this format is busy or stopped; without one it is of an incompatible version.
            if !greeted && age < SHIM_TIMEOUT {
                self.schedule_retry(uid, SHIM_TIMEOUT - age);
            } else if !greeted && folder::read_record(&folder::pod_path(&self.context.state, uid)).is_none() {
                self.hang_up(uid);
                self.replace_shim(uid);
            }
            return;
        }
        if pod.clearing || self.stays_parked(uid) {
            return;
        }
        let pod = pod_mut(&mut self.pods, uid);
        if pod.waits_for_zygote && !pod.removing {
            return self.spawn(uid);
        }
        let path = folder::pod_path(&self.context.state, uid);
        if !folder::is_plain_name(uid) || !path.exists() {
            return self.handle_missing_folder(uid);
        }
        let record = folder::read_record(&path);
        let is_foreign = record.as_ref().is_some_and(|record| record.version != VERSION);
        if !is_foreign && !self.has_room() {
            return self.wait_for_room(uid);
        }
        if let (false, Ok(socket)) = (is_foreign, folder::dial(&path)) {
            return self.connect(uid, socket);
        }
        match reap_dead_shim::take_over(std::slice::from_ref(&path), self.context.epoch).pop() {
            Some((_, record)) => self.take_over_folder(uid, &record),
            None if record.is_some_and(|record| record.epoch > self.context.epoch) => self.forget_pod(uid),
            None if is_foreign => self.replace_shim(uid),
            None => self.retry_later(uid),
        }
    }

    pub(super) fn handle_missing_folder(&mut self, uid: &Str) {
        let pod = pod_mut(&mut self.pods, uid);
        if pod.removing {
            return self.report_removed(uid);
        }
        let vanished = ShimRecord::default();
        if pod.starts.is_empty() { self.report_final_record(uid, &vanished) } else { self.spawn(uid) }
    }

    /// Applies the record of a folder that this process has locked. Nothing runs in it, so the record is up to date.
    pub(super) fn take_over_folder(&mut self, uid: &Str, record: &ShimRecord) {
        let pod = pod_mut(&mut self.pods, uid);
        if pod.removing {
            pod.clearing = true;
            let (inbox, about) = (self.inbox.clone(), uid.clone());
            return self
                .context
                .remover
                .remove_pod(uid.clone(), move |done| inbox.put(ShardCommand::Cleared(about, done)));
        }
        self.report_final_record(uid, record);
        if self.pods.get(uid).is_some_and(|pod| !pod.starts.is_empty()) {
            self.spawn(uid);
        }
    }

    /// Takes a record as the last word of a pod without a shim.
    pub(super) fn report_final_record(&mut self, uid: &Str, record: &ShimRecord) {
        let pod = pod_mut(&mut self.pods, uid);
        pod.deferred.clear();
        for (_, probe) in pod.execs.drain() {
            (self.context.report)(probe::answer(&probe, ProbeFinding::unknown("the container has ended")));
        }
        let mut running = std::mem::take(&mut pod.running);
        running.extend(pod.stops.drain(..).map(|(container, attempt, _)| (container, attempt)));
        for (container, attempt) in running.iter().filter(|(name, _)| !record.containers.contains_key(*name)) {
            let end = wire::RecordedEnd::unknown("", None);
            self.report_state(uid, container, *attempt, facts::state(&RecordedState::Ended(end)));
        }
        self.take_state(uid, record);
        let pod = pod_mut(&mut self.pods, uid);
        pod.leaving = false;
        if pod.starts.is_empty() {
            self.pods.remove(uid);
        }
    }

    /// A folder that could not be removed is there until it can be: the kubelet asks again.
    pub(super) fn finish_removal(&mut self, uid: &Str, result: Result<(), String>) {
        match result {
            Ok(()) => self.report_removed(uid),
            Err(why) => {
                pod_mut(&mut self.pods, uid).clearing = false;
                (self.context.report)(Report::NotRemoved { pod_uid: uid.clone(), why });
            }
        }
    }

    pub(super) fn report_removed(&mut self, uid: &Str) {
        if let Ok(tree) = &self.context.limits {
            tree.remove_pod(uid);
        }
        self.forget_pod(uid);
        (self.context.report)(Report::Removed { pod_uid: uid.clone() });
    }

    pub(super) fn forget_pod(&mut self, uid: &Str) {
        if let Some(link) = self.pods.remove(uid).and_then(|pod| pod.link) {
            self.tokens.remove(&link.token);
        }
    }

    pub(super) fn spawn(&mut self, uid: &Str) {
        if !self.has_room() {
            pod_mut(&mut self.pods, uid).waits_for_zygote = true;
            return self.wait_for_room(uid);
        }
        let pod = pod_mut(&mut self.pods, uid);
        let shim = match pod.tries {
            0..MAX_SHIM_STARTS => self.zygote.start_shim(&self.context, uid).map_err(|error| format!("{error:#}")),
            _ => Err("its shim ends at once, again and again".to_owned()),
        };
        pod.waits_for_zygote = matches!(shim, Ok(None));
        match shim {
            Ok(Some(socket)) => {
                pod.tries += 1;
                pod.waits = 0;
                self.connect(uid, socket);
            }
            Ok(None) => {
                pod.waits += 1;
                let pause = BUSY.saturating_mul(1 + pod.waits / 8).min(MAX_RETRY);
                self.schedule_retry(uid, pause);
            }
            Err(why) => {
                let starts = std::mem::take(&mut pod.starts);
                self.forget_pod(uid);
                for launch in starts {
                    let message = format!("cannot start the pod's shim: {why}");
                    let refusal = image::ImageRefusal { reason: "CreateContainerError", message };
                    self.refuse(uid, &launch.container, launch.attempt, refusal);
                }
            }
        }
    }

    /// Sends the hello and all pending requests.
    pub(super) fn connect(&mut self, uid: &Str, socket: OwnedFd) {
        self.next += 1;
        let token = self.next;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let pod = pod_mut(&mut self.pods, uid);
        pod.leaving = false;
        if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(token), flags).is_err() {
            return self.retry_later(uid);
        }
        // Answers to commands are sent on the connection of the request.
        let is_deferred =
            |id: u64| pod.deferred.iter().any(|request| matches!(request, ShimRequest::Exec(exec) if exec.id == id));
        for (_, probe) in pod.execs.extract_if(|id, _| !is_deferred(*id)) {
            let result = ProbeFinding::unknown("the connection to the pod's shim was lost");
            (self.context.report)(probe::answer(&probe, result));
        }
        let mut link = ShimLink::new(socket, token);
        link.send(self.context.epoch, ShimRequest::Hello(pod.name.clone()));
        for launch in &pod.starts {
            link.send(self.context.epoch, ShimRequest::Start(Box::new(launch.clone())));
        }
        for request in pod.deferred.drain(..) {
            link.send(self.context.epoch, request);
        }
        pod.link = Some(link);
        self.tokens.insert(token, uid.clone());
        self.ensure_connection(uid);
    }

    /// The connection broke: the shim left, died, or dropped us.
    pub(super) fn lost(&mut self, uid: &Str) {
        let Some(link) = self.hang_up(uid) else { return };
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.leaving && pod.starts.is_empty() && !pod.removing {
            self.forget_pod(uid);
            return;
        }
        if link.greeted && link.since.elapsed() >= MAX_RETRY {
            (pod.failures, pod.failing) = (0, None);
        }
        // A shim that dies is replaced at once; one that drops us again and again is not asked more and more often.
        match pod.failures {
            0 => {
                pod.failures = 1;
                self.ensure_connection(uid);
            }
            _ => self.retry_later(uid),
        }
    }

    pub(super) fn hang_up(&mut self, uid: &Str) -> Option<ShimLink> {
        let link = self.pods.get_mut(uid)?.link.take()?;
        self.tokens.remove(&link.token);
        Some(link)
    }
}

/// Ends the shim of a pod that cannot be spoken to.
pub(super) fn end_shim(pod: &Path) {
    if let Some(shim) = folder::holder(pod) {
        reap_dead_shim::end_shim(shim);
    }
}
