//! Requests to a shim, and their answers.

use super::super::limits::group;
use super::super::network::ListenerChannel;
use super::super::pid_namespace::PidNamespace;
use super::super::process::ProcessIdentity;
use super::super::session::container_not_found;
use super::super::wire::{
    ContainerRecord, ControlGroup, ExecOutcome, ExecRequest, LaunchRequest, RecordedState, RecordedStop,
    RequestEnvelope, SessionRequest, ShimAnswer, ShimRequest, SoftBounds, now_nanos,
};
use super::super::{folder, low_ports, pty, spawn, view, volumes};
use super::announcer::Announcer;
use super::container_process::{self, LaunchContext};
use super::launch::{self, ExecTime, LaunchRefusal, PreparedAttempt, StartedAttempt};
use super::standby::ExpectedStart;
use super::{LiveContainer, Shim, tree};
use crate::object::io_error_text;
use crate::world::start::DnsTarget;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::WaitStatus;
use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum milliseconds until a deadline: about thirty years, so that no sum overflows.
const MAX_DEADLINE_MILLIS: u64 = 1 << 40;
/// Maximum output of a command to keep.
const OUTPUT: usize = 10 * 1024;

/// A command that runs in a container (`exec`, probes and hooks).
pub struct RunningCommand {
    id: u64,
    container: String,
    client: u64,
    process: ProcessIdentity,
    /// Reads its output; `None` when the client receives the output directly.
    pipe: Option<OwnedFd>,
    /// Whether it is killed when its client disconnects.
    is_session: bool,
    output: Vec<u8>,
    deadline: Option<Instant>,
    timed_out: bool,
    /// Value of an environment variable that identifies all processes of the command; `None` for a session.
    mark: Option<String>,
    /// Whether its other processes may continue after the command has exited.
    keeps_leftovers: bool,
}

impl Shim {
    pub(super) fn handle_request(&mut self, client: u64, envelope: RequestEnvelope) {
        // Any client may open sessions and attachments, so they have no epoch.
        let is_led = !matches!(
            envelope.request,
            ShimRequest::Session(_) | ShimRequest::Attach(_) | ShimRequest::Resize(_) | ShimRequest::Ping
        );
        if is_led {
            // A new leader writes its epoch there before it reads any record, and greets the shims later. The working folder is the pod's,
            // also after its state folder was moved.
            self.record.epoch = self.record.epoch.max(folder::read_epoch_above(Path::new(".")));
        }
        if is_led && envelope.epoch < self.record.epoch {
            let why = format!("epoch {} is outdated: epoch {} leads", envelope.epoch, self.record.epoch);
            return self.send_to_client(client, &ShimAnswer::Refused { why, start: None });
        }
        self.record.epoch = self.record.epoch.max(envelope.epoch);
        match envelope.request {
            ShimRequest::Hello(pod) => {
                let is_known = pod.as_ref().is_none_or(|pod| *pod == self.record.pod);
                if let Some(pod) = pod {
                    self.record.pod = pod;
                }
                // Before the first start the record is not needed, and creating it later is cheaper than replacing it. For a new epoch
                // alone it is not written: the state folder has that epoch already, and a new leader greets all shims.
                if !is_known && !self.record.containers.is_empty() {
                    self.save();
                }
                if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
                    client.subscribed = true;
                    client.send(&ShimAnswer::State(self.record.clone()));
                    let reports = self.announcer.take().map_or(Vec::new(), Announcer::into_reports);
                    reports.iter().for_each(|report| client.send(report));
                }
            }
            ShimRequest::Park { socket } => self.park(client, socket),
            ShimRequest::Start(launch) => self.start(client, *launch),
            ShimRequest::Stop { container, attempt, grace } => self.stop(client, &container, attempt, grace),
            ShimRequest::Limit { container, attempt, groups, watched, limits } => {
                if let Some(error) = self.set_limits(&container, attempt, groups, watched) {
                    self.send_to_client(client, &ShimAnswer::Limited { container, attempt, limits, error });
                }
            }
            ShimRequest::Refresh(volumes) => {
                if let Err(error) = volumes::refresh(&self.pod, &volumes) {
                    self.send_to_client(client, &ShimAnswer::NotRefreshed { error });
                }
                // The expected start no longer applies.
                self.dismiss_expected_starts();
            }
            ShimRequest::Exec(exec) => self.run_exec(client, &exec),
            ShimRequest::Session(session) => self.open_session(client, &session),
            ShimRequest::Attach(attach) => self.attach(client, &attach),
            ShimRequest::Resize(size) => self.resize(client, size),
            ShimRequest::Ping => self.send_to_client(client, &ShimAnswer::Pong),
            ShimRequest::Remove => {
                self.removing = true;
                tree::kill_all();
            }
        }
    }

    fn park(&mut self, client: u64, socket: String) {
        let Some(client) = self.clients.iter_mut().find(|known| known.id == client) else { return };
        if !folder::is_plain_name(&socket) {
            let why = format!("{socket:?} cannot be a socket's name");
            return client.send(&ShimAnswer::Refused { why, start: None });
        }
        client.subscribed = false;
        client.send(&ShimAnswer::Parked);
        self.announcer = Some(Announcer::new(socket));
    }

    pub(super) fn send_to_client(&mut self, client: u64, answer: &ShimAnswer) {
        if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
            client.send(answer);
        }
    }

    /// Sends the state of a container to a client whose request is outdated.
    fn send_state(&mut self, client: u64, name: &str) {
        if let Some(container) = self.record.containers.get(name).cloned() {
            self.send_to_client(client, &ShimAnswer::Container { name: name.to_owned(), container });
        }
    }

    fn start(&mut self, client: u64, launch: LaunchRequest) {
        let before = self.record.containers.get(&launch.container).cloned();
        // A refused attempt may be repeated with the same number, because it did not run.
        let is_over = |before: &ContainerRecord| {
            before.attempt == launch.attempt && !matches!(before.state, RecordedState::Refused { .. })
        };
        if before.as_ref().is_some_and(|before| before.attempt > launch.attempt || is_over(before)) {
            return self.send_state(client, &launch.container);
        }
        let still_runs = self.live.iter().any(|live| live.name == launch.container);
        if self.removing || still_runs || !folder::is_plain_name(&launch.container) {
            let why =
                format!("container {:?} cannot start now: it still runs or its pod is being removed", launch.container);
            let start = Some((launch.container, launch.attempt));
            return self.send_to_client(client, &ShimAnswer::Refused { why, start });
        }
        self.signals.stay();
        let name = launch.container.clone();
        let attempt = launch.attempt;
        self.awaited.remove(&name);
        // Memory written by the previous attempt would count for this one.
        if launch.has_memory_bound() {
            self.retired_mounts.clear();
        }
        let oom_kills = group::oom_kills(&launch.groups);
        let state = match self.launch(launch) {
            Ok((started, next)) => {
                self.serve_filter(started.channel, started.launch.names.clone());
                let state = RecordedState::Running { process: started.process, since: started.since };
                self.live.push(LiveContainer {
                    name: name.clone(),
                    mounts: started.launch.view.as_ref().and_then(|_| view::hold_namespace(started.process.pid)),
                    launch: started.launch,
                    process: started.process,
                    since: started.since,
                    streams: started.streams,
                    log: started.log,
                    stdin: started.stdin,
                    deadline: None,
                    ended_for: None,
                    sent_stop: None,
                    end: None,
                    oom_kills,
                    over: None,
                    prepare_at: next.as_ref().and_then(|next| next.prepare_at()),
                    next,
                });
                self.next_look = self.first_look();
                state
            }
            Err(refused) => {
                RecordedState::Refused { reason: refused.reason.into(), message: refused.message, at: now_nanos() }
            }
        };
        self.idle_since = Instant::now();
        self.record.containers.insert(name.clone(), ContainerRecord::started(attempt, state, before));
        self.publish(&name);
    }

    /// Starts an attempt, by its standby process when there is one. Also returns the expected next start.
    fn launch(&mut self, launch: LaunchRequest) -> Result<(StartedAttempt, Option<Box<ExpectedStart>>), LaunchRefusal> {
        let next = ExpectedStart::following(&launch);
        if let Some(started) = self.take_standby(&launch).and_then(|standby| standby.launch().ok()) {
            return Ok((started, next));
        }
        volumes::lay_out(&self.pod, &launch.volumes)
            .map_err(|message| LaunchRefusal { reason: "FailedMount", message })?;
        let channel = self.open_listener_channel()?;
        let prepared = self.prepare(launch, channel, ExecTime::MayBeNow)?;
        Ok((prepared.launch()?, next))
    }

    /// Prepares an attempt in its PID namespace.
    pub(super) fn prepare(
        &mut self,
        launch: LaunchRequest,
        channel: Option<ListenerChannel>,
        exec: ExecTime,
    ) -> Result<PreparedAttempt, LaunchRefusal> {
        let pid_namespace = self.pid_namespace(&launch.processes)?;
        launch::prepare(&self.pod, launch, &mut self.base_mounts, &mut self.shm, channel, pid_namespace.as_ref(), exec)
    }

    fn stop(&mut self, client: u64, name: &str, attempt: u32, grace: u64) {
        let running = self.live.iter_mut().find(|live| live.name == name && live.launch.attempt == attempt);
        let Some(live) = running.filter(|live| live.end.is_none()) else { return self.send_state(client, name) };
        let Some(known) = self.record.containers.get_mut(name) else { return };
        let grace = grace.min(MAX_DEADLINE_MILLIS);
        let deadline = Instant::now() + Duration::from_millis(grace);
        match live.deadline {
            Some(earlier) if earlier <= deadline => return,
            // The deadline has passed and the container still runs: it was frozen, or waits in the kernel.
            None if known.stopping.is_some() => return tree::kill_from(live.process),
            _ => live.deadline = Some(deadline),
        }
        let kill_at = now_nanos().saturating_add((grace as i64).saturating_mul(1_000_000));
        let is_first = known.stopping.is_none();
        known.stopping =
            Some(RecordedStop { since: known.stopping.map_or_else(now_nanos, |stop| stop.since), kill_at });
        if is_first && grace > 0 {
            live.ask_to_end();
        }
        self.dismiss_expected_start(name);
        self.save();
    }

    /// Changes the limits of a running attempt. Returns `None` when it does not run, otherwise the error, if any.
    fn set_limits(
        &mut self,
        container: &str,
        attempt: u32,
        groups: Vec<ControlGroup>,
        watched: SoftBounds,
    ) -> Option<Option<String>> {
        let at = self.find_running(container).filter(|at| self.live[*at].launch.attempt == attempt)?;
        let live = &mut self.live[at];
        let done = group::create_groups(&groups).and_then(|_| {
            let is_new = |group: &&ControlGroup| live.launch.groups.iter().all(|known| known.folder != group.folder);
            groups.iter().filter(is_new).try_for_each(|group| group::move_tree(group, live.process))
        });
        if done.is_ok() {
            live.launch.groups = groups;
            live.launch.watched = watched;
            self.next_look = self.first_look();
            self.dismiss_expected_start(container);
        }
        Some(done.err())
    }

    /// Opens the channel for a listener on the pod's connections; `None` for a pod on the machine's network that
    /// needs none.
    pub(super) fn open_listener_channel(&self) -> Result<Option<ListenerChannel>, String> {
        let channel = self.address().map(|_| ListenerChannel::new()).transpose();
        channel.map_err(|error| format!("cannot join the pod's network: {error}", error = io_error_text(error)))
    }

    fn serve_filter(&mut self, channel: Option<ListenerChannel>, names: DnsTarget) {
        let state = self.pod.ancestors().nth(2).unwrap_or(Path::new("/"));
        let affinity = self.affinity.clone();
        let listener = self
            .address()
            .zip(channel)
            .and_then(|(own, channel)| channel.into_filter_server(own, state, names, affinity));
        self.filter_listeners.extend(listener);
    }

    fn address(&self) -> Option<Ipv4Addr> {
        let pod = &self.record.pod;
        pod.ip.parse().ok().filter(|ip| pod.uses_services || low_ports::is_pod(*ip))
    }

    fn run_exec(&mut self, client: u64, exec: &ExecRequest) {
        if let Err(message) = self.start_exec(client, exec) {
            self.send_failure(client, exec.id, message);
        }
    }

    fn send_failure(&mut self, client: u64, id: u64, message: String) {
        let outcome = ExecOutcome::Failed(message);
        self.send_to_client(client, &ShimAnswer::ExecDone { id, outcome, output: String::new() });
    }

    fn start_exec(&mut self, client: u64, exec: &ExecRequest) -> Result<(), String> {
        let (pipe, output) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(io_error_text)?;
        rustix::io::ioctl_fionbio(&output, false).map_err(io_error_text)?;
        let dev_null = spawn::open_dev_null().map_err(io_error_text)?;
        let is_attempt = |at: &usize| self.live[*at].launch.attempt == exec.attempt;
        let running = self.find_running(&exec.container).filter(is_attempt);
        let missing = || format!("container {:?} does not run attempt {}", exec.container, exec.attempt);
        self.next_mark += 1;
        let mark = format!("{}.{}", std::process::id(), self.next_mark);
        let variables = &[(folder::EXEC, mark.as_str())];
        let stdio = [&dev_null, &output, &output];
        let process = self.run_command(running.ok_or_else(missing)?, &exec.argv, variables, stdio, None)?;
        let deadline = Some(Instant::now() + Duration::from_millis(exec.timeout.min(MAX_DEADLINE_MILLIS)));
        self.execs.push(RunningCommand {
            pipe: Some(pipe),
            deadline,
            mark: Some(mark),
            keeps_leftovers: exec.keeps_leftovers,
            ..RunningCommand::new(exec.id, &exec.container, client, process)
        });
        Ok(())
    }

    fn open_session(&mut self, client: u64, session: &SessionRequest) {
        if let Err(message) = self.start_session(client, session) {
            self.send_failure(client, 0, message);
        }
    }

    fn start_session(&mut self, client: u64, session: &SessionRequest) -> Result<(), String> {
        let requester =
            self.clients.iter_mut().find(|known| known.id == client).ok_or("the client has disconnected")?;
        let stdio = std::mem::take(&mut requester.descriptors);
        let dev_null = spawn::open_dev_null().map_err(io_error_text)?;
        let (stdio, terminal) = match &stdio[..] {
            [to] if session.terminal => ([&dev_null; 3], Some(pty::PtyRequest { to, size: session.size })),
            [input, output, error] if !session.terminal => ([input, output, error], None),
            _ => return Err("a session request must pass descriptors for standard input, output and error".into()),
        };
        let running = self.find_running(&session.container);
        let missing = || container_not_found(&session.container);
        let process = self.run_command(running.ok_or_else(missing)?, &session.argv, &[], stdio, terminal)?;
        let running =
            RunningCommand { is_session: true, ..RunningCommand::new(0, &session.container, client, process) };
        self.execs.push(running);
        Ok(())
    }

    pub(super) fn find_running(&self, container: &str) -> Option<usize> {
        self.live.iter().position(|live| live.name == container && live.end.is_none())
    }

    /// Starts a command with the environment, working folder, view of files and network of a running container.
    fn run_command(
        &mut self,
        at: usize,
        argv: &[String],
        variables: &[(&str, &str)],
        stdio: [&OwnedFd; 3],
        terminal: Option<pty::PtyRequest>,
    ) -> Result<ProcessIdentity, String> {
        let (process, launch) = (self.live[at].process, &self.live[at].launch);
        let channel = self.open_listener_channel()?;
        let cwd = launch::folder_of(launch);
        let mut env = Cow::Borrowed(&launch.env);
        if terminal.is_some() {
            launch::add_term(env.to_mut());
        }
        if !variables.is_empty() {
            env.to_mut().extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        }
        let groups = &group::create_groups(&launch.groups)?;
        let context = LaunchContext { launch, env: &env, cwd, stdio, terminal, groups };
        let pid_namespace = PidNamespace::from_process(process.pid)?;
        let pid = container_process::run(argv, &context, process.pid, channel.as_ref(), pid_namespace.as_ref())?;
        let names = launch.names.clone();
        self.serve_filter(channel, names);
        ProcessIdentity::from_pid(pid).ok_or_else(|| "the process cannot be seen in /proc".into())
    }

    /// Kills the processes of sessions whose client has disconnected.
    pub(super) fn end_sessions(&self) {
        let is_orphaned =
            |exec: &&RunningCommand| exec.is_session && !self.clients.iter().any(|client| client.id == exec.client);
        self.execs.iter().filter(is_orphaned).for_each(|exec| tree::kill_from(exec.process));
    }

    pub(super) fn exec_done(&mut self, mut exec: RunningCommand, status: WaitStatus) {
        exec.read();
        if let Some(mark) = exec.mark.as_deref().filter(|_| exec.timed_out || !exec.keeps_leftovers) {
            tree::kill_marked(exec.process, mark);
        }
        let code = status.terminating_signal().map(|signal| 128 + signal).or(status.exit_status()).unwrap_or(137);
        let outcome = if exec.timed_out { ExecOutcome::TimedOut } else { ExecOutcome::Exited(code) };
        let output = String::from_utf8_lossy(&exec.output).into_owned();
        self.send_to_client(exec.client, &ShimAnswer::ExecDone { id: exec.id, outcome, output });
    }
}

impl RunningCommand {
    fn new(id: u64, container: &str, client: u64, process: ProcessIdentity) -> RunningCommand {
        let (container, output) = (container.to_owned(), Vec::new());
        RunningCommand {
            id,
            container,
            client,
            process,
            pipe: None,
            is_session: false,
            output,
            deadline: None,
            timed_out: false,
            mark: None,
            keeps_leftovers: true,
        }
    }

    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    pub fn runs_in(&self, container: &str) -> bool {
        self.container == container
    }

    /// Returns the pipe of its output, until the output ends.
    pub fn output_fd(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Reads its output; output above the limit is dropped.
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

    /// Kills the command and all processes that it started.
    pub fn time_out(&mut self) {
        self.timed_out = true;
        self.deadline = None;
        tree::kill_from(self.process);
    }
}
