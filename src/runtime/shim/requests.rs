//! What a shim is asked, and how it answers.

use super::super::network::{self, Gate};
use super::super::process::{Identity, signal_from};
use super::super::wire::{Answer, Container, Envelope, Exec, ExecOutcome, Launch, Request, State, Stopping, now};
use super::super::{spawn, volumes};
use super::launch::{self, Place};
use super::{Live, Shim, tree};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitStatus};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Milliseconds that a deadline is ahead at most: some thirty years, so that no sum overflows.
const LONGEST: u64 = 1 << 40;
/// What is kept of a command's output.
const OUTPUT: usize = 10 * 1024;

/// A command that runs beside a container.
pub struct Running {
    exec: Exec,
    client: u64,
    process: Identity,
    pipe: Option<OwnedFd>,
    output: Vec<u8>,
    deadline: Option<Instant>,
    timed_out: bool,
}

impl Shim {
    pub(super) fn request(&mut self, client: u64, envelope: Envelope) {
        if envelope.epoch < self.record.epoch {
            let why = format!("epoch {} is over, {} leads", envelope.epoch, self.record.epoch);
            return self.tell(client, &Answer::Refused { why, start: None });
        }
        self.record.epoch = envelope.epoch;
        match envelope.request {
            Request::Hello(pod) => {
                if let Some(pod) = pod {
                    self.record.pod = pod;
                }
                // Nothing to lose before the first start, and the first record is cheaper than one that replaces another.
                if !self.record.containers.is_empty() {
                    self.save();
                }
                if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
                    client.subscribed = true;
                    client.tell(&Answer::State(self.record.clone()));
                }
            }
            Request::Start(launch) => self.start(client, *launch),
            Request::Stop { container, attempt, grace } => self.stop(client, &container, attempt, grace),
            Request::Refresh(volumes) => drop(volumes::lay_out(&self.pod, &volumes)),
            Request::Exec(exec) => self.exec(client, *exec),
            Request::Remove => {
                self.removing = true;
                tree::kill_all();
            }
        }
    }

    fn tell(&mut self, client: u64, answer: &Answer) {
        if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
            client.tell(answer);
        }
    }

    /// Tells where a container stands to one who seems not to know.
    fn remind(&mut self, client: u64, name: &str) {
        if let Some(container) = self.record.containers.get(name).cloned() {
            self.tell(client, &Answer::Container { name: name.to_owned(), container });
        }
    }

    fn start(&mut self, client: u64, mut launch: Launch) {
        let before = self.record.containers.get(&launch.container).cloned();
        // An attempt that was refused may be tried again under its number: nothing of it has run.
        let is_over =
            |before: &Container| before.attempt == launch.attempt && !matches!(before.state, State::Refused { .. });
        if before.as_ref().is_some_and(|before| before.attempt > launch.attempt || is_over(before)) {
            return self.remind(client, &launch.container);
        }
        let still_runs = self.live.iter().any(|live| live.name == launch.container);
        if self.removing || still_runs || !super::folder::is_plain_name(&launch.container) {
            let why =
                format!("container {:?} cannot start now: it still runs or its pod is being removed", launch.container);
            let start = Some((launch.container, launch.attempt));
            return self.tell(client, &Answer::Refused { why, start });
        }
        self.told_to_leave.store(false, Ordering::Relaxed);
        let name = launch.container.clone();
        let pod = self.pod.clone();
        let gate = self.gate();
        let state = match launch::start(&pod, &mut launch, gate.as_ref()) {
            Ok(started) => {
                self.keep_guard(gate);
                let state = State::Running { process: started.process, since: started.since };
                self.live.push(Live {
                    name: name.clone(),
                    launch: launch.clone(),
                    process: started.process,
                    since: started.since,
                    streams: started.streams,
                    log: started.log,
                    _stdin: started.stdin,
                    deadline: None,
                    end: None,
                });
                state
            }
            Err(refused) => State::Refused { reason: refused.reason.into(), message: refused.message, at: now() },
        };
        self.idle = Instant::now();
        self.record.containers.insert(name.clone(), Container::started(&launch, state, before));
        self.publish(&name);
    }

    fn stop(&mut self, client: u64, name: &str, attempt: u32, grace: u64) {
        let running = self.live.iter_mut().find(|live| live.name == name && live.launch.attempt == attempt);
        let Some(live) = running.filter(|live| live.end.is_none()) else { return self.remind(client, name) };
        let Some(known) = self.record.containers.get_mut(name) else { return };
        let deadline = Instant::now() + Duration::from_millis(grace.min(LONGEST));
        match live.deadline {
            Some(earlier) if earlier <= deadline => return,
            // The deadline has passed and it is still there: it was frozen, or waits in the kernel.
            None if known.stopping.is_some() => return tree::kill_from(live.process),
            _ => live.deadline = Some(deadline),
        }
        let kill_at = now().saturating_add((grace as i64).saturating_mul(1_000_000));
        let is_first = known.stopping.is_none();
        known.stopping = Some(Stopping { since: known.stopping.map_or_else(now, |stop| stop.since), kill_at });
        if is_first && grace > 0 {
            live.process.signal(signal_from(live.launch.stop_signal).unwrap_or(Signal::TERM));
        }
        self.save();
    }

    /// For a pod that has an address of its own.
    fn gate(&self) -> Option<Gate> {
        self.address().and_then(|_| Gate::new().ok())
    }

    fn keep_guard(&mut self, gate: Option<Gate>) {
        let routes = self.pod.ancestors().nth(2).unwrap_or(Path::new("/")).join(network::routes::FOLDER);
        let guard = self.address().zip(gate).and_then(|(own, gate)| gate.guard(own, routes));
        self.guards.extend(guard);
    }

    fn address(&self) -> Option<Ipv4Addr> {
        self.record.pod.ip.parse().ok().filter(|ip| network::is_pod(*ip))
    }

    fn exec(&mut self, client: u64, exec: Exec) {
        let id = exec.id;
        if let Err(message) = self.start_exec(client, exec) {
            let outcome = ExecOutcome::Failed(message);
            self.tell(client, &Answer::ExecDone { id, outcome, output: String::new() });
        }
    }

    fn start_exec(&mut self, client: u64, exec: Exec) -> Result<(), String> {
        let running = self.live.iter().find(|live| live.name == exec.container && live.end.is_none());
        let Some(live) = running.filter(|live| live.launch.attempt == exec.attempt) else {
            return Err(format!("container {:?} does not run attempt {}", exec.container, exec.attempt));
        };
        let (pipe, output) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| error.to_string())?;
        rustix::io::ioctl_fionbio(&output, false).map_err(|error| error.to_string())?;
        let nothing = spawn::nothing().map_err(|error| error.to_string())?;
        let cwd = live.launch.cwd.as_deref().unwrap_or("/");
        let place = if live.launch.view.is_some() { Place::Of(live.process.pid) } else { Place::Here };
        let gate = self.gate();
        let stdio = [&nothing, &output, &output];
        let pid = launch::run(&exec.argv, &live.launch.env, Path::new(cwd), stdio, place, gate.as_ref())?;
        self.keep_guard(gate);
        let process = Identity::of(pid).ok_or("the process cannot be seen in /proc")?;
        let deadline = Some(Instant::now() + Duration::from_millis(exec.timeout.min(LONGEST)));
        let output = Vec::new();
        self.execs.push(Running { exec, client, process, pipe: Some(pipe), output, deadline, timed_out: false });
        Ok(())
    }

    pub(super) fn exec_done(&mut self, mut exec: Running, status: WaitStatus) {
        exec.read();
        let code = status.terminating_signal().map(|signal| 128 + signal).or(status.exit_status()).unwrap_or(137);
        let outcome = if exec.timed_out { ExecOutcome::TimedOut } else { ExecOutcome::Exited(code) };
        let output = String::from_utf8_lossy(&exec.output).into_owned();
        self.tell(exec.client, &Answer::ExecDone { id: exec.exec.id, outcome, output });
    }
}

impl Running {
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    pub fn is_of(&self, container: &str) -> bool {
        self.exec.container == container
    }

    pub fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    pub fn output_fd(&self) -> &OwnedFd {
        self.pipe.as_ref().expect("asked only while open")
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Takes what it wrote; what is over the limit is read and dropped.
    pub fn read(&mut self) {
        let mut block = [0; 4096];
        while let Some(pipe) = &self.pipe {
            match rustix::io::read(pipe, &mut block[..]) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    let room = OUTPUT.saturating_sub(self.output.len()).min(read);
                    self.output.extend_from_slice(&block[..room]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Kills it with everything that it started.
    pub fn time_out(&mut self) {
        self.timed_out = true;
        self.deadline = None;
        tree::kill_from(self.process);
    }
}
