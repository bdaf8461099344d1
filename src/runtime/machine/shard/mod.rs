//! One of the threads that hold the connections to shims: each pod belongs to one, so requests to a pod keep their order.
//!
//! A pod has pending requests (starts not yet answered, stops, its removal) and at most one connection. [`Shard::pursue`] is the whole way to one:
//! dial the shim; failing that take over the folder of a dead one; failing that start one; failing that try again soon.
//! With more pods than descriptors for connections, [`parking`] closes the connections of idle ones.

mod answers;
mod connect;
mod missing_programs;
mod parking;

use connect::end_shim;
use missing_programs::Absent;
pub use parking::LinkBudget;

use super::super::contain::contain;
use super::super::probe::ProbeFinding;
use super::super::process::ProcessIdentity;
use super::super::wire::{ExecRequest, LaunchRequest, PodName, ShimRecord, ShimRequest};
use super::super::{build, folder, image, probe, usage, wire};
use super::MachineContext;
use super::shim_link::ShimLink;
use super::zygote_handle::ZygoteHandle;
use crate::object::Str;
use crate::world::limits::Limits;
use crate::world::plan::ProbeRun;
use crate::world::start::Start;
use crate::world::volume::Volume;
use crate::world::{ContainerState, Effect, ProbeKind, Report};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The eventfd's token; connections count from 1.
const WAKE: u64 = 0;
/// Token of the socket on which parked shims announce changes.
const ANNOUNCEMENT: u64 = u64::MAX;
/// Between the first attempts to reach a shim that holds its lock but does not answer; doubled each time.
const RETRY: Duration = Duration::from_millis(20);
/// Between attempts at most.
const SELDOM: Duration = Duration::from_secs(5);
/// Until a busy zygote is asked again; longer when it stays busy.
const BUSY: Duration = Duration::from_millis(2);
/// A shim that has not removed its pod after this, or could not be spoken to for as long, is ended; what it leaves is swept as what any
/// dead shim leaves.
const OVERDUE: Duration = Duration::from_secs(10);
/// Shims started in a row for one request before it is given up.
const TRIES: u32 = 3;

/// A command to a shard.
pub enum ShardCommand {
    /// Carry this out.
    Effect(Effect),
    /// Connect to a shim that was there before; its record goes to the asker.
    Adopt(Str, Sender<(Str, ShimRecord)>),
    /// The build that a start waited for has ended.
    Built(Box<Start>, Result<(), image::ImageRefusal>),
    /// The removal of a pod's folder has ended.
    Cleared(Str, Result<(), String>),
    /// End the thread. Shims stay.
    Quit,
}

/// Queue of commands to a shard.
pub struct ShardInbox {
    orders: Mutex<VecDeque<ShardCommand>>,
    wake: OwnedFd,
}

impl ShardInbox {
    /// An empty one.
    pub fn new() -> rustix::io::Result<ShardInbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ShardInbox { orders: Mutex::default(), wake })
    }

    /// Leaves an order; never waits for the shard.
    pub fn put(&self, order: ShardCommand) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn pop(&self) -> Option<ShardCommand> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn is_empty(&self) -> bool {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
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
    /// Attempts last heard to run.
    running: BTreeMap<String, u32>,
    execs: HashMap<u64, Box<ProbeRun>>,
    /// Requests that could not be sent, because its shim was parked.
    deferred: Vec<ShimRequest>,
    /// The shim's process.
    shim: Option<ProcessIdentity>,
    /// The shim announces its next change, and has no connection until then.
    parked: bool,
    /// It is in the queue for a connection.
    queued: bool,
    removing: bool,
    /// Its folder is being removed; nothing runs in it.
    clearing: bool,
    /// When its shim is killed for not having answered the removal: it was stopped, or hangs.
    remove_by: Option<Instant>,
    leaving: bool,
    adopter: Option<Sender<(Str, ShimRecord)>>,
    tries: u32,
    /// Everything is ready for its shim, only the zygote was busy.
    unborn: bool,
    /// Number of consecutive waits.
    waits: u32,
    /// Attempts in a row to reach its shim that failed.
    failures: u32,
    /// Since when.
    failing: Option<Instant>,
    /// When it is looked at again.
    again: Option<Instant>,
}

/// Subject of a piece of work: a pod, and the attempt that it starts, if any.
struct Subject {
    uid: Option<Str>,
    start: Option<(Str, u32)>,
}

impl Subject {
    fn of_pod(uid: &Str) -> Subject {
        Subject { uid: Some(uid.clone()), start: None }
    }

    fn of_start(start: &Start) -> Subject {
        Subject { uid: Some(start.pod_uid.clone()), start: Some((start.container.clone(), start.attempt)) }
    }

    fn of_effect(effect: &Effect) -> Subject {
        match effect {
            Effect::Start(start) => Subject::of_start(start),
            other => Subject { uid: other.pod_uid().cloned(), start: None },
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
    /// Pods to look at again, by when.
    later: BTreeSet<(Instant, Str)>,
    zygote: ZygoteHandle,
    link_budget: LinkBudget,
    /// Attempts that wait for the build of their image, by pod and container.
    building: HashMap<(Str, Str), u32>,
    /// Attempts whose log tells of a build that has failed.
    unbuilt: HashSet<(Str, Str)>,
    /// Attempts whose program is not there.
    absent: Absent,
}

impl Shard {
    /// A shard that takes its orders from this inbox.
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
        // Started ahead of the first pod. If that fails, the first pod says why.
        let _ = zygote.control(&context);
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
            absent: Absent::default(),
        })
    }

    /// Works until told to quit.
    pub fn run(mut self) {
        loop {
            self.balance_links();
            self.listen();
            self.retry();
            for (pod_uid, container, attempt) in self.absent.found(&self.context.environment) {
                (self.context.report)(Report::Findable { pod_uid, container, attempt });
            }
            // One order a turn: a report never waits behind a long row of starts.
            match self.inbox.pop() {
                Some(ShardCommand::Effect(effect)) => {
                    let subject = Subject::of_effect(&effect);
                    self.contain(&subject, |shard| shard.carry_out(effect));
                }
                Some(ShardCommand::Adopt(uid, adopter)) => {
                    pod_mut(&mut self.pods, &uid).adopter = Some(adopter);
                    self.contain(&Subject::of_pod(&uid), |shard| shard.pursue(&uid));
                }
                Some(ShardCommand::Built(start, result)) => {
                    self.contain(&Subject::of_start(&start), |shard| shard.built(&start, result));
                }
                Some(ShardCommand::Cleared(uid, result)) => {
                    self.contain(&Subject::of_pod(&uid), |shard| shard.cleared(&uid, result));
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
                self.contain(&Subject::of_pod(&uid), |shard| shard.read_answers(&uid));
            }
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let due = self.later.first().map(|(at, _)| *at);
        let due = due.into_iter().chain(self.absent.due()).chain(self.link_budget.due()).min();
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
            self.contain(&Subject::of_pod(&uid), |shard| shard.pursue(&uid));
        }
    }

    /// Runs work on one pod. When it panics, a start of it is refused with the panic's message, anything else is tried again later, and
    /// the other pods of this thread go on.
    fn contain(&mut self, subject: &Subject, work: impl FnOnce(&mut Shard)) {
        let Err(message) = contain(|| work(self)) else { return };
        match (&subject.uid, &subject.start) {
            (Some(uid), Some((container, attempt))) => {
                let refusal = image::ImageRefusal { reason: "InternalError", message };
                self.refuse(uid, container, *attempt, refusal);
            }
            (Some(uid), None) => {
                self.hang_up(uid);
                self.not_reached(uid);
            }
            (None, _) => {}
        }
    }

    /// Each pod has one moment to look again, the earliest that was asked for.
    fn look_again(&mut self, uid: &Str, after: Duration) {
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

    /// Its shim was not reached: later again, each time later. One that was never reached for long is given up.
    fn not_reached(&mut self, uid: &Str) {
        let pod = pod_mut(&mut self.pods, uid);
        let since = *pod.failing.get_or_insert_with(Instant::now);
        let pause = RETRY.saturating_mul(1 << pod.failures.min(8)).min(SELDOM);
        pod.failures += 1;
        if since.elapsed() >= OVERDUE {
            end_shim(&folder::pod(&self.context.state, uid));
        }
        self.look_again(uid, pause);
    }

    /// Another version of the shim holds the pod, and nothing can be asked of it: it ends, and the pod is taken over.
    fn give_up(&mut self, uid: &Str) {
        end_shim(&folder::pod(&self.context.state, uid));
        self.not_reached(uid);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(start) => self.start(&start),
            Effect::Stop { pod_uid, container, attempt, grace_seconds } => {
                self.building.remove(&(pod_uid.clone(), container.clone()));
                self.absent.forget_pod(&pod_uid, Some(&container));
                let pod = self.pods.entry(pod_uid.clone()).or_default();
                pod.stops.push((container.to_string(), attempt, (grace_seconds.max(0) as u64).saturating_mul(1000)));
                self.pursue(&pod_uid);
            }
            Effect::Remove { pod_uid } => {
                self.building.retain(|(uid, _), _| *uid != pod_uid);
                self.unbuilt.retain(|(uid, _)| *uid != pod_uid);
                self.absent.forget_pod(&pod_uid, None);
                self.pods.entry(pod_uid.clone()).or_default().removing = true;
                self.pursue(&pod_uid);
            }
            Effect::Probe(probe) => self.exec(probe),
            Effect::Resize { pod_uid, container, attempt, limits } => {
                self.resize(&pod_uid, &container, attempt, limits)
            }
            Effect::Measure { pods } => pods.iter().for_each(|uid| self.measure(uid)),
            Effect::Route { .. }
            | Effect::SetIngress { .. }
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
            Effect::Refresh { pod_uid, volumes } => self.refresh(&pod_uid, volumes.to_vec()),
        }
    }

    fn start(&mut self, start: &Start) {
        self.absent.forget_pod(&start.pod_uid, Some(&start.container));
        if self.has_to_build(start) {
            return;
        }
        let launch = match image::resolve(start, &self.context.environment) {
            Ok(launch) => {
                let groups = self.context.groups(&start.pod_uid, &start.container, &start.limits);
                LaunchRequest { groups, watched: self.context.watched(&start.limits), ..launch }
            }
            Err(refusal) => {
                if refusal.is_absent() {
                    self.absent.add(start);
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
        let name = PodName {
            uid: start.pod_uid.to_string(),
            namespace: start.namespace.to_string(),
            name: start.pod.to_string(),
            node: start.node.to_string(),
            ip: start.ip.to_string(),
        };
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
            None => self.pursue(&start.pod_uid),
        }
    }

    /// Whether the image's program has to be built first; then that is ordered, and the start comes again.
    fn has_to_build(&mut self, start: &Start) -> bool {
        let built = start.requested_image.as_ref().and_then(|image| Some((image, image.build.as_ref()?)));
        let place = (start.pod_uid.clone(), start.container.clone());
        let context = &self.context;
        let Some((image, build)) = built else { return false };
        if build::is_done(&context.state, &image.name, build) {
            // Somebody else's build went well meanwhile, or it was built ahead of this start: that is what the log has to tell.
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
        // Made here, where the pod's removal is ordered, too: nothing is written of a pod that has gone.
        let telling = build::BuildLogWriter::create(&context.state, context.epoch, start).ok();
        context.build(image, build::BuildWait { telling, done });
        true
    }

    /// Unless the pod was to end meanwhile.
    fn built(&mut self, start: &Start, result: Result<(), image::ImageRefusal>) {
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

    /// One that cannot be reached now is asked again later.
    fn resize(&mut self, uid: &Str, container: &str, attempt: u32, limits: Box<Limits>) {
        let (groups, watched) = (self.context.groups(uid, container, &limits), self.context.watched(&limits));
        let container = container.to_owned();
        self.send_or_defer(uid, ShimRequest::Limit { container, attempt, groups, watched, limits });
    }

    fn measure(&self, uid: &Str) {
        let found = usage::of_pod(&self.context.state, uid);
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
