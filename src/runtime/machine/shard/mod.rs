//! One of the threads that hold the connections to shims. Each pod belongs to one thread, so requests to a pod keep their order.
//!
//! A pod has pending requests (starts not yet answered, stops, its removal) and at most one connection. [`Shard::ensure_connection`] gets a
//! connection: it dials the shim, or takes over the folder of a dead shim, or starts a shim, or tries again soon.
//! With more pods than descriptors for connections, [`parking`] closes the connections of idle ones.

mod answers;
mod connect;
mod missing_programs;
mod parking;

use connect::end_shim;
use missing_programs::MissingPrograms;
pub use parking::LinkBudget;

use super::super::contain::contain;
use super::super::probe::ProbeFinding;
use super::super::process::ProcessIdentity;
use super::super::wire::{ExecRequest, LaunchRequest, PodName, ShimRecord, ShimRequest};
use super::super::{build, folder, image, probe, usage, wire};
use super::MachineContext;
use super::shim_link::ShimLink;
use super::zygote_handle::ZygoteHandle;
use crate::object::{IgnorePoison, Str};
use crate::world::limits::Limits;
use crate::world::plan::ProbeRun;
use crate::world::start::Start;
use crate::world::volume::Volume;
use crate::world::{ContainerState, Effect, ProbeKind, Report};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The eventfd's token; connections count from 1.
const WAKE: u64 = 0;
/// Token of the socket on which parked shims announce changes.
const ANNOUNCEMENT: u64 = u64::MAX;
/// First pause between attempts to reach a shim that holds its lock but does not answer; doubled each time.
const RETRY: Duration = Duration::from_millis(20);
/// Maximum pause between attempts.
const MAX_RETRY: Duration = Duration::from_secs(5);
/// Pause before a busy zygote is asked again; longer when it stays busy.
const BUSY: Duration = Duration::from_millis(2);
/// Time after which a shim that has not removed its pod, or does not answer, is killed. Its folder is then swept like that of any dead
/// shim.
const SHIM_TIMEOUT: Duration = Duration::from_secs(10);
/// Shims started in a row for one request before it is given up.
const MAX_SHIM_STARTS: u32 = 3;

/// A command to a shard.
pub enum ShardCommand {
    /// Carries out an effect.
    Effect(Effect),
    /// Asks a shim of an earlier control plane for its state, and sends its record to the channel.
    Adopt(Str, Sender<(Str, ShimRecord)>),
    /// The build that a start waited for has ended.
    Built(Box<Start>, Result<(), image::ImageRefusal>),
    /// The removal of a pod's folder has ended.
    Cleared(Str, Result<(), String>),
    /// Ends the thread. Shims continue.
    Quit,
}

/// Queue of commands to a shard.
pub struct ShardInbox {
    orders: Mutex<VecDeque<ShardCommand>>,
    wake: OwnedFd,
}

impl ShardInbox {
    /// Makes an empty inbox.
    pub fn new() -> rustix::io::Result<ShardInbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ShardInbox { orders: Mutex::default(), wake })
    }

    /// Adds a command; never waits for the shard.
    pub fn put(&self, order: ShardCommand) {
        self.orders.lock().ignore_poison().push_back(order);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn pop(&self) -> Option<ShardCommand> {
        self.orders.lock().ignore_poison().pop_front()
    }

    fn is_empty(&self) -> bool {
        self.orders.lock().ignore_poison().is_empty()
    }
}

/// Desired state of one pod, and the connection to its shim.
#[derive(Default)]
struct ShardPod {
    link: Option<ShimLink>,
    name: Option<PodName>,
    /// Starts that were not answered yet.
    starts: Vec<LaunchRequest>,
    /// Stops that could not be sent yet.
    stops: Vec<(String, u32, u64)>,
    /// Attempts that run, as last reported.
    running: BTreeMap<String, u32>,
    execs: HashMap<u64, Box<ProbeRun>>,
    /// Requests that could not be sent, because its shim was parked.
    deferred: Vec<ShimRequest>,
    /// The shim's process.
    shim: Option<ProcessIdentity>,
    /// Whether the shim announces its next change and has no connection until then.
    parked: bool,
    /// Whether the pod is in the queue for a connection.
    queued: bool,
    removing: bool,
    /// Whether its folder is being removed; no process runs in it.
    clearing: bool,
    /// Time at which its shim is killed if it has not answered the removal.
    remove_by: Option<Instant>,
    leaving: bool,
    adopter: Option<Sender<(Str, ShimRecord)>>,
    tries: u32,
    /// Whether only the busy zygote delays the start of its shim.
    waits_for_zygote: bool,
    /// Number of consecutive waits.
    waits: u32,
    /// Number of consecutive failures to reach its shim.
    failures: u32,
    /// Time of the first of these failures.
    failing: Option<Instant>,
    /// Time of the next attempt.
    again: Option<Instant>,
}

/// The object of a piece of work: a pod, and the attempt to start, if any.
struct WorkTarget {
    uid: Option<Str>,
    start: Option<(Str, u32)>,
}

impl WorkTarget {
    fn for_pod(uid: &Str) -> WorkTarget {
        WorkTarget { uid: Some(uid.clone()), start: None }
    }

    fn for_start(start: &Start) -> WorkTarget {
        WorkTarget { uid: Some(start.pod_uid.clone()), start: Some((start.container.clone(), start.attempt)) }
    }

    fn for_effect(effect: &Effect) -> WorkTarget {
        match effect {
            Effect::Start(start) => WorkTarget::for_start(start),
            other => WorkTarget { uid: other.pod_uid().cloned(), start: None },
        }
    }
}

/// The thread's state.
pub struct Shard {
    context: Arc<MachineContext>,
    inbox: Arc<ShardInbox>,
    epoll: OwnedFd,
    pods: HashMap<Str, ShardPod>,
    tokens: HashMap<u64, Str>,
    next: u64,
    /// Pods to try again, by time.
    later: BTreeSet<(Instant, Str)>,
    zygote: ZygoteHandle,
    link_budget: LinkBudget,
    /// Attempts that wait for the build of their image, by pod and container.
    building: HashMap<(Str, Str), u32>,
    /// Attempts with a failed build in their log.
    unbuilt: HashSet<(Str, Str)>,
    /// Attempts whose program is missing.
    missing_programs: MissingPrograms,
}

impl Shard {
    /// Makes a shard that carries out the commands of this inbox.
    pub fn new(
        context: Arc<MachineContext>,
        inbox: Arc<ShardInbox>,
        link_budget: LinkBudget,
    ) -> rustix::io::Result<Shard> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox.wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        epoll::add(&epoll, link_budget.socket(), epoll::EventData::new_u64(ANNOUNCEMENT), epoll::EventFlags::IN)?;
        let (pods, tokens) = (HashMap::new(), HashMap::new());
        let mut zygote = ZygoteHandle::default();
        // Started before the first pod. An error recurs at the first pod, and is reported then.
        let _ = zygote.connection(&context);
        Ok(Shard {
            context,
            inbox,
            epoll,
            pods,
            tokens,
            next: 1,
            later: BTreeSet::new(),
            zygote,
            link_budget,
            building: HashMap::new(),
            unbuilt: HashSet::new(),
            missing_programs: MissingPrograms::default(),
        })
    }

    /// Runs until the command to quit.
    pub fn run(mut self) {
        loop {
            self.balance_links();
            self.listen();
            self.retry();
            for (pod_uid, container, attempt) in self.missing_programs.take_found(&self.context.environment) {
                (self.context.report)(Report::Findable { pod_uid, container, attempt });
            }
            // One command per turn, so that a report never waits for many starts.
            match self.inbox.pop() {
                Some(ShardCommand::Effect(effect)) => {
                    let target = WorkTarget::for_effect(&effect);
                    self.contain(&target, |shard| shard.carry_out(effect));
                }
                Some(ShardCommand::Adopt(uid, adopter)) => {
                    self.contain(&WorkTarget::for_pod(&uid), |shard| shard.adopt(&uid, adopter));
                }
                Some(ShardCommand::Built(start, result)) => {
                    self.contain(&WorkTarget::for_start(&start), |shard| shard.finish_build(&start, result));
                }
                Some(ShardCommand::Cleared(uid, result)) => {
                    self.contain(&WorkTarget::for_pod(&uid), |shard| shard.finish_removal(&uid, result));
                }
                Some(ShardCommand::Quit) => return,
                None => {}
            }
        }
    }

    fn listen(&mut self) {
        let timeout = self.timeout();
        let mut events = Vec::with_capacity(64);
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        for event in events {
            let token = event.data.u64();
            if token == WAKE {
                let _ = rustix::io::read(&self.inbox.wake, &mut [0; 8][..]);
            } else if token == ANNOUNCEMENT {
                self.read_announcements();
            } else if let Some(uid) = self.tokens.get(&token).cloned() {
                self.contain(&WorkTarget::for_pod(&uid), |shard| shard.read_answers(&uid));
            }
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let due = self.later.first().map(|(at, _)| *at);
        let due = due.into_iter().chain(self.missing_programs.due()).chain(self.link_budget.due()).min();
        let left = due.map(|at| at.saturating_duration_since(Instant::now()));
        let left = if self.inbox.is_empty() { left } else { Some(Duration::ZERO) };
        left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }

    fn retry(&mut self) {
        let now = Instant::now();
        while let Some((at, uid)) = self.later.pop_first() {
            if at > now {
                self.later.insert((at, uid));
                return;
            }
            if let Some(pod) = self.pods.get_mut(&uid) {
                pod.again = None;
            }
            self.contain(&WorkTarget::for_pod(&uid), |shard| shard.ensure_connection(&uid));
        }
    }

    /// Runs work on one pod. When it panics, a start of it is refused with the panic's message, anything else is tried again later, and
    /// the other pods of this thread go on.
    fn contain(&mut self, target: &WorkTarget, work: impl FnOnce(&mut Shard)) {
        let Err(message) = contain(|| work(self)) else { return };
        match (&target.uid, &target.start) {
            (Some(uid), Some((container, attempt))) => {
                let refusal = image::ImageRefusal { reason: "InternalError", message };
                self.refuse(uid, container, *attempt, refusal);
            }
            (Some(uid), None) => {
                self.hang_up(uid);
                self.retry_later(uid);
            }
            (None, _) => {}
        }
    }

    /// Schedules the next attempt for a pod. Of several requested times the earliest counts.
    fn schedule_retry(&mut self, uid: &Str, after: Duration) {
        let at = Instant::now() + after;
        let pod = pod_mut(&mut self.pods, uid);
        if let Some(known) = pod.again {
            if known <= at {
                return;
            }
            self.later.remove(&(known, uid.clone()));
        }
        pod.again = Some(at);
        self.later.insert((at, uid.clone()));
    }

    /// Schedules another attempt to reach a shim, with increasing pauses. Kills a shim that was not reached for a long time.
    fn retry_later(&mut self, uid: &Str) {
        let pod = pod_mut(&mut self.pods, uid);
        let since = *pod.failing.get_or_insert_with(Instant::now);
        let pause = RETRY.saturating_mul(1 << pod.failures.min(8)).min(MAX_RETRY);
        pod.failures += 1;
        if since.elapsed() >= SHIM_TIMEOUT {
            end_shim(&folder::pod_path(&self.context.state, uid));
        }
        self.schedule_retry(uid, pause);
    }

    /// Kills a shim of an incompatible version, so that the pod is taken over.
    fn replace_shim(&mut self, uid: &Str) {
        end_shim(&folder::pod_path(&self.context.state, uid));
        self.retry_later(uid);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(start) => self.start(&start),
            Effect::Stop { pod_uid, container, attempt, grace_seconds } => {
                self.building.remove(&(pod_uid.clone(), container.clone()));
                self.missing_programs.forget_pod(&pod_uid, Some(&container));
                let pod = self.pods.entry(pod_uid.clone()).or_default();
                pod.stops.push((container.to_string(), attempt, (grace_seconds.max(0) as u64).saturating_mul(1000)));
                self.ensure_connection(&pod_uid);
            }
            Effect::Remove { pod_uid } => {
                self.building.retain(|(uid, _), _| *uid != pod_uid);
                self.unbuilt.retain(|(uid, _)| *uid != pod_uid);
                self.missing_programs.forget_pod(&pod_uid, None);
                self.pods.entry(pod_uid.clone()).or_default().removing = true;
                self.ensure_connection(&pod_uid);
            }
            Effect::Probe(probe) => self.exec(probe),
            Effect::Resize { pod_uid, container, attempt, limits } => {
                self.resize(&pod_uid, &container, attempt, limits)
            }
            Effect::Measure { pods } => pods.iter().for_each(|uid| self.measure(uid)),
            Effect::Route { .. }
            | Effect::SetIngress { .. }
            | Effect::AcceptLinks(_)
            | Effect::SetNodeLink { .. }
            | Effect::SetNetworkPolicy { .. }
            | Effect::Expose { .. }
            | Effect::Watch { .. }
            | Effect::Build { .. }
            | Effect::WatchStorage { .. } => {}
            Effect::DeleteVolume { volume } => {
                if let Err(why) = self.context.remover.discard_volume(&volume) {
                    (self.context.report)(Report::NotDiscarded { why });
                }
            }
            Effect::Refresh { pod_uid, volumes, .. } => self.refresh(&pod_uid, volumes.to_vec()),
        }
    }

    fn start(&mut self, start: &Start) {
        self.missing_programs.forget_pod(&start.pod_uid, Some(&start.container));
        if self.has_to_build(start) {
            return;
        }
        let launch = match image::resolve(start, &self.context.environment) {
            Ok(launch) => {
                let groups = self.context.groups(&start.pod_uid, &start.container, &start.limits);
                LaunchRequest { groups, watched: self.context.watched(&start.limits), ..launch }
            }
            Err(refusal) => {
                if refusal.is_program_missing() {
                    self.missing_programs.add(start);
                }
                return self.refuse(&start.pod_uid, &start.container, start.attempt, refusal);
            }
        };
        if !folder::is_plain_name(&start.pod_uid) {
            let message = format!("{:?} cannot be a pod's uid", start.pod_uid);
            let refusal = image::ImageRefusal { reason: "CreateContainerError", message };
            return self.refuse(&start.pod_uid, &start.container, start.attempt, refusal);
        }
        let pod = self.pods.entry(start.pod_uid.clone()).or_default();
        let name = PodName::from(start);
        if pod.name.as_ref() != Some(&name) {
            // The previous leader may have died between the fork of the shim and its first request.
            if let Some(link) = &mut pod.link {
                link.send(self.context.epoch, ShimRequest::Hello(Some(name.clone())));
            }
            pod.name = Some(name);
        }
        pod.starts.retain(|known| known.container != launch.container);
        pod.starts.push(launch.clone());
        match &mut pod.link {
            Some(link) => link.send(self.context.epoch, ShimRequest::Start(Box::new(launch))),
            None => self.ensure_connection(&start.pod_uid),
        }
    }

    /// Whether the image's program has to be built first. Orders the build, which repeats the start when it has ended.
    fn has_to_build(&mut self, start: &Start) -> bool {
        let built = start.requested_image.as_ref().and_then(|image| Some((image, image.build.as_ref()?)));
        let place = (start.pod_uid.clone(), start.container.clone());
        let context = &self.context;
        let Some((image, build)) = built else { return false };
        if build::is_done(&context.state, &image.name, build) {
            // The build ran for another start, or ahead of this one: its output is written to the log.
            if self.unbuilt.remove(&place) || build::is_news(&context.state, &image.name, start) {
                let _ = build::write_build_log(&context.state, context.epoch, start);
            }
            return false;
        }
        if self.building.insert(place, start.attempt) == Some(start.attempt) {
            return true;
        }
        let (inbox, again) = (self.inbox.clone(), Box::new(start.clone()));
        let done: build::BuildWaiter = Box::new(move |result| inbox.put(ShardCommand::Built(again, result)));
        // Created in this thread, which also orders the removal of the pod, so that no file is written for a removed pod.
        let telling = build::BuildLogWriter::create(&context.state, context.epoch, start).ok();
        let telling = telling.map(|telling| Arc::new(Mutex::new(telling)));
        context.build(image, build::BuildWait { telling, done });
        true
    }

    /// Continues a start after its build, unless the start was cancelled meanwhile.
    fn finish_build(&mut self, start: &Start, result: Result<(), image::ImageRefusal>) {
        let place = (start.pod_uid.clone(), start.container.clone());
        if self.building.get(&place) != Some(&start.attempt) {
            return;
        }
        self.building.remove(&place);
        match result {
            // The build may have produced another program.
            Ok(()) => {
                self.unbuilt.remove(&place);
                self.start(start);
            }
            Err(refusal) => {
                self.unbuilt.insert(place);
                self.refuse(&start.pod_uid, &start.container, start.attempt, refusal);
            }
        }
    }

    /// Changes the limits of a container; the request is deferred when the shim is not reachable.
    fn resize(&mut self, uid: &Str, container: &str, attempt: u32, limits: Box<Limits>) {
        let (groups, watched) = (self.context.groups(uid, container, &limits), self.context.watched(&limits));
        let container = container.to_owned();
        self.send_or_defer(uid, ShimRequest::Limit { container, attempt, groups, watched, limits });
    }

    fn measure(&self, uid: &Str) {
        let found = usage::sample_pod(&self.context.state, uid);
        let samples = found.into_iter().map(|(name, sample)| (name.as_str().into(), sample)).collect();
        (self.context.report)(Report::Usage { pod_uid: uid.clone(), at: wire::moment(wire::now_nanos()), samples });
    }

    /// Sends new volume contents to the shim. A pod without a shim needs none: its next start writes all volumes.
    fn refresh(&mut self, uid: &Str, volumes: Vec<Volume>) {
        self.send_or_defer(uid, ShimRequest::Refresh(volumes));
    }

    fn refuse(&self, uid: &Str, container: &str, attempt: u32, refusal: image::ImageRefusal) {
        let at = wire::moment(wire::now_nanos());
        let state = ContainerState::Refused { reason: refusal.reason.to_owned(), message: refusal.message, at };
        self.report_state(uid, container, attempt, state);
    }

    fn report_state(&self, uid: &Str, container: &str, attempt: u32, state: ContainerState) {
        (self.context.report)(Report::Container { pod_uid: uid.clone(), container: container.into(), attempt, state });
    }

    fn exec(&mut self, probe: Box<ProbeRun>) {
        let uid = probe.pod_uid.clone();
        let pod = self.pods.entry(uid.clone()).or_default();
        if !pod.is_reachable() {
            return (self.context.report)(probe::answer(
                &probe,
                ProbeFinding::unknown("the pod's shim is not reachable"),
            ));
        }
        let (container, attempt) = (probe.container.to_string(), probe.attempt);
        let timeout = (probe.timeout_seconds.max(1) as u64).saturating_mul(1000);
        self.next += 1;
        let keeps_leftovers = probe.kind == ProbeKind::PostStart;
        let argv = probe::command(&probe).to_vec();
        let exec = ExecRequest { id: self.next, container, attempt, argv, timeout, keeps_leftovers };
        pod.execs.insert(exec.id, probe);
        self.send_or_defer(&uid, ShimRequest::Exec(Box::new(exec)));
    }
}

fn pod_mut<'a>(pods: &'a mut HashMap<Str, ShardPod>, uid: &Str) -> &'a mut ShardPod {
    pods.entry(uid.clone()).or_default()
}
