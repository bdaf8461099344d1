//! The shim: one small process per pod that outlives the control plane.
//!
//! Knows: its pod's processes, their pipes, their logs and the record of their starts and ends. One thread, one `poll`.
//! It is the subreaper of the pod's processes: no process that a container starts escapes it, however it forks.
//! Never: starts an attempt that no leader ordered. It refuses requests of earlier leaders and requests for earlier attempts.
//!
//! SIGHUP and SIGINT are ignored. SIGTERM means that the machine shuts down or that a user ends every kloop process: containers keep
//! running, and the shim exits when the last one has ended. Otherwise it exits a while after the last one has ended, unless a container
//! that will restart needs volumes or shared memory that the shim keeps; the record stays and the next shim continues from it. It also
//! exits when a leader orders it to remove the pod.
//! Shims are forked from the [`zygote`]. Start reading at [`Shim::run`].

mod announcer;
mod attach;
mod bounds;
mod client;
mod container_process;
mod ending;
mod inherited_code;
mod launch;
mod log;
pub mod pause;
mod program_search;
mod requests;
mod signals;
mod standby;
mod start_inputs;
mod stdio;
mod stop_signal;
mod tree;
mod variables;
mod wait;
mod zygote;

use super::network::{FilterListener, SessionAffinity};
use super::process::{self, ProcessIdentity};
use super::view::{PodShm, base_mounts::BaseMountsState};
use super::wire::{ContainerRecord, LaunchRequest, RecordedEnd, RecordedState, ShimAnswer, ShimRecord};
use super::{folder, reap_dead_shim, volumes};
use crate::world::ingress_routes::BindReport;
use crate::world::policy::DeniedConnection;
pub use standby::COMPARISON_HOLDS;
pub use zygote::main;

use announcer::Announcer;
use attach::{AttachedClient, StdinPipe};
use bounds::ExceededBound;
use client::ShimClient;
use log::{AttemptLog, LogBuffers, OutputStream, ReadMore};
use pause::PauseProcess;
use requests::RunningCommand;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{Signal, WaitOptions};
use signals::SignalWatch;
use standby::{ExpectedStart, StandbyAttempt};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use stop_signal::SentStop;
use wait::EventOrigin;

/// Time for which a shim without containers stays, so that a quick restart needs no new one.
const IDLE_SHIM_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a repeated denied connection is not reported again, and maximum number of different ones to remember.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
const DENIED: usize = 64;
/// First and longest pause between checks of killed processes that still exist. The exit of each wakes the shim anyway; a thousand shims
/// that check all the time would slow the kernel down in ending them.
const KILL_PAUSE: Duration = Duration::from_millis(5);
const MAX_KILL_PAUSE: Duration = Duration::from_millis(320);

/// Runs the shim of the pod whose folder is the working folder, in a process of its own.
fn serve(leader: OwnedFd, base_mounts: BaseMountsState) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"shim");
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let Some(mut shim) = Shim::open(leader, base_mounts)? else { return Ok(()) };
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let ended = shim.run();
    // The process ends here: the kernel closes all descriptors and takes all memory back at once.
    std::mem::forget(shim);
    ended
}

/// A container whose main process runs, or has ended while something that it started has not.
struct LiveContainer {
    name: String,
    launch: LaunchRequest,
    process: ProcessIdentity,
    since: i64,
    streams: Vec<OutputStream>,
    log: AttemptLog,
    /// Held open for a container that wants its standard input open.
    stdin: Option<StdinPipe>,
    /// Time at which SIGKILL is sent.
    deadline: Option<Instant>,
    /// The stop signal, when the kernel does not deliver it to the first process of a namespace and SIGKILL was sent instead.
    ended_for: Option<Signal>,
    /// The stop signal, when the process had it blocked as it was sent.
    sent_stop: Option<SentStop>,
    /// End of the main process.
    end: Option<RecordedEnd>,
    /// OOM kills in the container's groups before it started.
    oom_kills: u64,
    /// The exceeded limit for which the container was killed.
    over: Option<ExceededBound>,
    /// The container's mounts, when it has its own.
    mounts: Option<OwnedFd>,
    /// The expected next attempt.
    next: Option<Box<ExpectedStart>>,
    /// Time at which the next attempt is prepared although this attempt runs.
    prepare_at: Option<Instant>,
}

/// State of a shim.
struct Shim {
    pod: PathBuf,
    record: ShimRecord,
    live: Vec<LiveContainer>,
    /// Containers that have ended and will start again.
    awaited: HashSet<String>,
    /// Processes that wait to become the next attempts of containers that have ended.
    standbys: Vec<StandbyAttempt>,
    /// The first process of the namespace that its containers share.
    pause: Option<PauseProcess>,
    execs: Vec<RunningCommand>,
    attached: Vec<AttachedClient>,
    /// Listeners of its containers' network filters.
    filter_listeners: Vec<FilterListener>,
    /// Session affinity of the pod as a client of Services.
    affinity: Rc<SessionAffinity>,
    /// Connections that policies denied, and when each was last reported.
    denied: HashMap<DeniedConnection, Instant>,
    clients: Vec<ShimClient>,
    /// Announces changes while the control plane has parked this shim.
    announcer: Option<Announcer>,
    listener: OwnedFd,
    signals: SignalWatch,
    log_buffers: LogBuffers,
    next_client: u64,
    /// Number of the last command that was marked.
    next_mark: u64,
    removing: bool,
    /// Interval for checking killed processes.
    kill_pause: Duration,
    /// Mounts of ended attempts, and when to unmount them: that takes the kernel a while, and the next attempt starts first.
    retired_mounts: Vec<(OwnedFd, Instant)>,
    /// Time since which no process has run and no request has arrived.
    idle_since: Instant,
    /// When limits without a control group are checked next; `None` when there are none.
    next_look: Option<Instant>,
    /// Base mounts for views of files.
    base_mounts: BaseMountsState,
    /// The shared memory of the pod's containers; `None` until a container needs it.
    shm: Option<PodShm>,
    _lock: OwnedFd,
}

impl Shim {
    /// None when another shim has this pod.
    fn open(leader: OwnedFd, base_mounts: BaseMountsState) -> io::Result<Option<Shim>> {
        let pod = std::env::current_dir()?;
        let Some(lock) = folder::lock(&pod)? else { return Ok(None) };
        let mut record = folder::read_record(&pod).unwrap_or_else(ShimRecord::empty);
        reap_dead_shim::end_processes(&pod, &mut record);
        record.left = false;
        record.shim = ProcessIdentity::from_pid(std::process::id() as i32);
        // A leader that was replaced meanwhile may have started this shim: its requests are refused.
        record.epoch = record.epoch.max(folder::read_epoch_above(Path::new(".")));
        let shim = Shim {
            listener: listen_at(Path::new(folder::SOCKET))?,
            record,
            live: Vec::new(),
            awaited: HashSet::new(),
            standbys: Vec::new(),
            pause: None,
            execs: Vec::new(),
            attached: Vec::new(),
            filter_listeners: Vec::new(),
            affinity: Rc::default(),
            denied: HashMap::new(),
            clients: vec![ShimClient::new(0, leader)],
            announcer: None,
            signals: SignalWatch::start()?,
            log_buffers: LogBuffers::new(),
            next_client: 1,
            next_mark: 0,
            removing: false,
            kill_pause: KILL_PAUSE,
            retired_mounts: Vec::new(),
            idle_since: Instant::now(),
            next_look: None,
            base_mounts,
            shm: None,
            pod,
            _lock: lock,
        };
        Ok(Some(shim))
    }

    /// Waits for events and handles them, until the shim has no more work.
    fn run(&mut self) -> io::Result<()> {
        loop {
            for source in self.wait()? {
                self.serve(source);
            }
            self.report_denials();
            self.report_binds();
            self.kill_pause = if self.is_killing() { MAX_KILL_PAUSE.min(self.kill_pause * 2) } else { KILL_PAUSE };
            self.reap_children();
            self.meet_deadlines();
            self.check_stops();
            self.check_bounds();
            self.finish_ended();
            self.prepare_due_standbys();
            self.dismiss_standbys();
            self.clients.retain(|client| !client.gone);
            self.end_sessions();
            self.settle_attached();
            self.announce();
            self.compare_standbys();
            self.retired_mounts.retain(|(_, until)| *until > Instant::now());
            if self.removing && self.is_empty() {
                self.retired_mounts.clear();
                self.pause.take().into_iter().for_each(PauseProcess::end);
                // If this fails, the shim ends without a report. The leader then removes the rest itself, or reports why it cannot.
                if volumes::remove(&self.pod).is_ok() {
                    self.send_to_subscribers(&ShimAnswer::Removed);
                }
                return Ok(());
            }
            if self.may_leave() {
                self.pause.take().into_iter().for_each(PauseProcess::end);
                self.record.left = true;
                self.save();
                self.send_to_subscribers(&ShimAnswer::Leaving);
                self.announce();
                return Ok(());
            }
        }
    }

    /// Whether it waits for processes that were killed.
    fn is_killing(&self) -> bool {
        self.removing || self.live.iter().any(|live| live.end.is_some())
    }

    fn is_empty(&self) -> bool {
        let pause = self.pause.as_ref().map(PauseProcess::pid);
        self.live.is_empty()
            && self.execs.is_empty()
            && process::own_children().into_iter().all(|child| Some(child) == pause)
    }

    fn may_leave(&mut self) -> bool {
        let is_ordered = self.signals.has_sigterm();
        let may =
            self.live.is_empty() && (is_ordered || self.idle_since.elapsed() >= IDLE_SHIM_TIMEOUT) && self.is_empty();
        if may && !is_ordered && self.keeps_memory() {
            self.idle_since = Instant::now();
            return false;
        }
        may
    }

    /// Whether a container that will restart needs files that the shim keeps in memory; they are lost when the shim ends. No container
    /// restarts in a pod whose folder was removed.
    fn keeps_memory(&self) -> bool {
        !self.awaited.is_empty()
            && self.pod.is_dir()
            && (self.shm.as_ref().is_some_and(PodShm::has_files) || volumes::hold_in_memory(&self.pod))
    }

    /// Reports connections that policies denied, each at most once in [`REPEAT_INTERVAL`].
    fn report_denials(&mut self) {
        let denials: Vec<DeniedConnection> =
            self.filter_listeners.iter_mut().filter_map(FilterListener::denied).collect();
        for denial in denials {
            let now = Instant::now();
            self.denied.retain(|_, told| now.duration_since(*told) < REPEAT_INTERVAL);
            if self.denied.len() < DENIED && !self.denied.contains_key(&denial) {
                self.denied.insert(denial.clone(), now);
                self.send_to_subscribers(&ShimAnswer::Denied(denial));
            }
        }
    }

    /// Reports ports that could not be bound, or were bound elsewhere.
    fn report_binds(&mut self) {
        let binds: Vec<BindReport> = self.filter_listeners.iter_mut().filter_map(FilterListener::bind_report).collect();
        binds.into_iter().for_each(|bind| self.send_to_subscribers(&ShimAnswer::Bind(bind)));
    }

    fn serve(&mut self, source: EventOrigin) {
        match source {
            EventOrigin::Signals => self.signals.read(),
            EventOrigin::Listener => {
                if let Ok(socket) = client::accept(&self.listener) {
                    self.clients.push(ShimClient::new(self.next_client, socket));
                    self.next_client += 1;
                }
            }
            EventOrigin::Client(id) => self.read_client(id),
            EventOrigin::Output(pid, at) => self.pump(pid, at),
            EventOrigin::Pause => self.pause.iter().for_each(PauseProcess::drain_signal),
            EventOrigin::Attached(watched) => self.serve_attached(&watched),
            EventOrigin::Filter(fd, told) => {
                self.filter_listeners
                    .retain_mut(|listener| listener.listener().as_raw_fd() != fd || listener.serve(told));
            }
            EventOrigin::Exec(pid) => {
                if let Some(exec) = self.execs.iter_mut().find(|exec| exec.pid() == pid) {
                    exec.read();
                }
            }
        }
    }

    fn read_client(&mut self, id: u64) {
        let Some(client) = self.clients.iter_mut().find(|client| client.id == id) else { return };
        client.flush();
        for envelope in client.read() {
            self.handle_request(id, envelope);
        }
    }

    fn pump(&mut self, pid: i32, at: usize) {
        let Some(live) = self.live.iter_mut().find(|live| live.process.pid == pid) else { return };
        let Some(stream) = live.streams.get_mut(at) else { return };
        match stream.pump(&mut self.log_buffers, &mut live.log) {
            ReadMore::Closed => {
                stream.finish(&mut live.log);
                live.streams.remove(at);
            }
            ReadMore::More => {
                let tag = stream.tag();
                attach::send_output_to_all(&mut self.attached, live, tag, self.log_buffers.last_output());
            }
            ReadMore::Dry => {}
        }
    }

    /// Takes in everything that has ended, orphans included.
    fn reap_children(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            if let Some(live) = self.live.iter_mut().find(|live| live.process.pid == pid) {
                live.end = Some(live.ended(status));
                live.deadline = None;
            } else if let Some(at) = self.execs.iter().position(|exec| exec.pid() == pid) {
                let exec = self.execs.remove(at);
                self.exec_done(exec, status);
            } else {
                self.pause.take_if(|pause| pause.pid() == pid);
                self.forget_standby(pid);
            }
        }
    }

    fn meet_deadlines(&mut self) {
        let now = Instant::now();
        for live in self.live.iter_mut().filter(|live| live.deadline.is_some_and(|at| at <= now)) {
            live.deadline = None;
            tree::kill_from(live.process);
        }
        for exec in self.execs.iter_mut().filter(|exec| exec.deadline().is_some_and(|at| at <= now)) {
            exec.time_out();
        }
        if self.removing {
            tree::kill_all();
        }
    }

    /// Records the state of a container, then sends it to all clients, so that a reported state is never lost.
    fn publish(&mut self, name: &str) {
        self.save();
        if let Some(container) = self.record.containers.get(name) {
            let answer = ShimAnswer::Container { name: name.to_owned(), container: container.clone() };
            self.send_to_subscribers(&answer);
        }
    }

    fn save(&self) {
        // A full disk must not end the pod. The current leader has the report; only a later leader would not find it.
        let _ = folder::write_record(Path::new("."), &self.record);
    }

    fn send_to_subscribers(&mut self, answer: &ShimAnswer) {
        for client in self.clients.iter_mut().filter(|client| client.subscribed) {
            client.send(answer);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.note(answer);
        }
    }

    fn announce(&mut self) {
        if let Some(announcer) = &mut self.announcer {
            // A pod's folder has its uid as its name.
            announcer.announce(self.pod.file_name().unwrap_or_default());
        }
    }
}

impl ContainerRecord {
    fn started(attempt: u32, state: RecordedState, before: Option<ContainerRecord>) -> ContainerRecord {
        let last = before.and_then(|before| before.ended().cloned().or(before.last));
        ContainerRecord { attempt, state, stopping: None, last }
    }
}

fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let _ = std::fs::remove_file(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&listener, &SocketAddrUnix::new(path)?)?;
    listen(&listener, 128)?;
    Ok(listener)
}
