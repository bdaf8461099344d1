//! `kloop reconcile`: runs the control plane until the cluster has converged, or until stopped.

pub mod flags;

use super::cluster::contexts;
use super::command_line::globals;
use super::output::log_writer::LogWriter;
use super::{CliResult, CommandContext, Failure, serve};
use crate::apiserver::Api;
use crate::diagnosis::convergence;
use crate::joined_node;
use crate::object::time::TimeError;
use crate::object::{IgnorePoison, Time, format_count, time};
use crate::reconcile::candidate::{self, Candidate};
use crate::reconcile::control_loop::WakeUp;
use crate::reconcile::leader::{Election, Leadership};
use crate::reconcile::retry::{is_temporary, pause_when_full};
use crate::reconcile::run_end::{Convergence, RunUntil, Unmet};
use crate::reconcile::{ControlLoop, ControlSettings, Idle, LogLevel, LogLine, RunEnd, leader, loops};
use crate::runtime::image::Environment;
use crate::runtime::{capacity, descriptors};
use crate::serve::http::{HttpServer, KubeletListener};
use crate::store;
use crate::world::pressure::{EvictionFlags, EvictionThresholds};
use colored::Colorize;
use jiff::SignedDuration;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::net::TcpListener;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Minimum number of open files for a control plane and a few pods. With slightly fewer it would
/// hang without an error.
const FEWEST_FILES: usize = 48;
/// Port at which this machine's node answers as a kubelet; any other when it is taken. It is not 10250: in a pod, localhost leads to the
/// pod itself first, and a metrics server listens at 10250 itself.
const KUBELET_PORT: u16 = 10246;

/// Run the controllers, the scheduler and the kubelet: make this machine match the state.
///
/// Without --watch it ends when nothing is left to do and leaves the processes running.
#[derive(clap::Args)]
#[command(
    override_usage = "[--watch]",
    after_help = "\
# Make the machine match the state, and end when nothing is left to do
kloop reconcile

# Keep it so: run the loops until they are interrupted
kloop reconcile --watch"
)]
pub struct Args {
    /// Run until stopped, and keep the machine matching the state.
    #[arg(short, long)]
    watch: bool,
    /// Without --watch: maximum time to converge.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
    /// End all processes of this machine's pods when the run ends.
    #[arg(long)]
    stop_on_exit: bool,
    /// Run the loops without registering this machine as a node.
    #[arg(long)]
    no_local_node: bool,
    /// Controllers to run, by the names that --verbose shows, with or without -controller: '*' for all, 'foo' for the controller foo,
    /// '-foo' to exclude it. The scheduler, the kubelet, and the loops for images, node pressure and the network always run.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Name of this machine's node [default: the host's name].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Address of this machine for others: with it, pods here and pods of machines that join (kloop node join) reach each other.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_local_node")]
    node_ip: Option<std::net::IpAddr>,
    /// Folder of manifests of static pods, which run on this machine's node as long as their files exist.
    #[arg(long, value_name = "DIR", conflicts_with = "no_local_node")]
    manifests: Option<std::path::PathBuf>,
    /// File with a KubeSchedulerConfiguration: the profiles that pods select with spec.schedulerName.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<std::path::PathBuf>,
    /// First pause before a crashed container is started again; doubled each time.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_pause)]
    restart_backoff: i64,
    /// Longest pause before a crashed container is started again.
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = parse_pause)]
    restart_backoff_max: i64,
    /// A variable that every container gets, besides PATH, HOME, TZ and the locale: NAME=VALUE, or NAME for its value here.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Maximum number of processes and threads in a pod; -1 for no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = crate::world::PIDS, allow_negative_numbers = true)]
    pod_max_pids: i64,
    /// Thresholds that evict pods immediately: memory.available, nodefs.available, nodefs.inodesFree or pid.available, each
    /// with a quantity or a percentage, such as nodefs.available<5%; empty for none.
    #[arg(long, value_name = "LIST", default_value = "memory.available<100Mi")]
    eviction_hard: String,
    /// Thresholds that evict pods when they are met for the time in --eviction-soft-grace-period.
    #[arg(long, value_name = "LIST", default_value = "")]
    eviction_soft: String,
    /// Grace period of each soft eviction threshold, such as memory.available=1m30s.
    #[arg(long, value_name = "LIST", default_value = "")]
    eviction_soft_grace_period: String,
    /// Minimum amount to reclaim before eviction stops, such as memory.available=100Mi.
    #[arg(long, value_name = "LIST", default_value = "")]
    eviction_minimum_reclaim: String,
    /// Time to wait before a node's pressure condition is cleared.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = time::parse_duration)]
    eviction_pressure_transition_period: SignedDuration,
    /// Address blocks, besides localhost, where node ports are opened, such as 192.168.0.0/16; 0.0.0.0/0 for all addresses of
    /// this machine. Other machines can then reach these Services.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    nodeport_addresses: Vec<String>,
    /// Print errors only.
    #[arg(short, long, conflicts_with = "v")]
    quiet: bool,
    /// Print problems only: failed containers and probes, warnings, refused writes.
    #[arg(long, conflicts_with_all = ["v", "quiet"])]
    problems: bool,
    /// Print every write and event, including bookkeeping.
    #[arg(short, long = "verbose", alias = "v", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "SWITCH")]
    v: Option<String>,
    /// Print `idle REVISION MILLISECONDS` whenever nothing is left to do: up to which revision, and how long until a loop
    /// looks again by itself (-1 for never).
    #[arg(long, hide = true)]
    tell_idle: bool,
    /// Also serve the REST API, as `kloop serve` does, at this port.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "8001")]
    serve: Option<u16>,
    #[command(flatten)]
    audit: serve::AuditFlags,
}

/// Parses the eviction flags.
fn lines(args: &Args, transition: SignedDuration) -> CliResult<EvictionThresholds> {
    let words = EvictionFlags {
        hard: &args.eviction_hard,
        soft: &args.eviction_soft,
        soft_grace: &args.eviction_soft_grace_period,
        minimum_reclaim: &args.eviction_minimum_reclaim,
    };
    EvictionThresholds::parse(words, transition).map_err(Failure::plain)
}

/// Interval at which a standby tries to become leader.
const STANDBY_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let outcome = run_plane(args, context);
    LogWriter::for_stdout().into_iter().for_each(LogWriter::flush);
    outcome
}

/// Runs the loops with these settings until they are stopped, as `reconcile --watch` does without further flags.
pub fn run_until_stopped(settings: &ControlSettings, context: &mut CommandContext) -> CliResult {
    let args = parse_flags(&["--watch"]);
    let outcome = run_loops(&args, RunUntil::Stopped, settings, context);
    LogWriter::for_stdout().into_iter().for_each(LogWriter::flush);
    outcome
}

/// Prints a line of the log about another part of the process.
pub fn log_by(by: &'static str, text: &str) {
    let line = LogLine { at: Time::now(), by, about: None, text: text.to_owned(), level: LogLevel::Action };
    log_sink(Some(LogLevel::Action))(&line);
}

/// Refuses the state of a node whose control plane is elsewhere.
fn check_is_cluster(context: &CommandContext) -> CliResult {
    let state = context.state();
    match joined_node::is_copy(&state) {
        false => Ok(()),
        true => Err(Failure::plain(format!(
            "{} is the copy of a node whose control plane is elsewhere\nhint: kloop node join runs the node",
            state.display()
        ))),
    }
}

fn run_plane(args: Args, context: &mut CommandContext) -> CliResult {
    check_is_cluster(context)?;
    let until = if args.watch { RunUntil::Stopped } else { RunUntil::Converged(args.timeout) };
    let mut settings = settings(&args, context)?;
    if let (Some(node), Some(address)) = (&mut settings.node, args.node_ip) {
        flags::set_address(node, address, context)?;
    }
    check_descriptors()?;
    let server = match args.serve {
        Some(port) => {
            let address = settings.node.as_ref().filter(|_| args.watch).map(|node| node.address);
            let opened = serve::open(serve::Args::for_port(port, args.audit.clone()), address, context)?;
            let opened = if args.watch { serve_as_kubelet(opened, &mut settings) } else { opened };
            Some(RunningServer::start(opened, &settings)?)
        }
        None if args.watch => start_pod_api(&mut settings, &args.audit, context)?,
        None => None,
    };
    let outcome = run_loops(&args, until, &settings, context);
    server.into_iter().for_each(RunningServer::end);
    outcome
}

/// Starts the API server for the pods of this machine, where there are any and the machine lets it.
pub fn start_pod_api(
    settings: &mut ControlSettings,
    audit: &serve::AuditFlags,
    context: &mut CommandContext,
) -> CliResult<Option<RunningServer>> {
    let Some(address) = settings.node.as_ref().map(|node| node.address) else { return Ok(None) };
    let server = match serve::open_for_pods(audit, address, context) {
        Ok(server) => server,
        Err(error) => {
            context.print_notice(&format!("hint: no API server for pods on this machine: {error}"));
            return Ok(None);
        }
    };
    settings.pod_api = server.listener.local_addr().ok();
    let server = serve_as_kubelet(server, settings);
    RunningServer::start(server, settings).map(Some)
}

/// Makes a server also answer as the kubelet of this machine's node, at the node's address and a port that is set in the node's status.
/// Without a free port, other programs cannot reach a kubelet of the node. A joined node has its server already.
fn serve_as_kubelet(server: HttpServer, settings: &mut ControlSettings) -> HttpServer {
    let Some(node) = settings.node.as_mut().filter(|_| !joined_node::is_copy(&settings.state)) else { return server };
    let bind = |port| TcpListener::bind((node.address, port));
    let Ok(listener) = bind(KUBELET_PORT).or_else(|_| bind(0)) else { return server };
    node.kubelet_port = listener.local_addr().map_or(0, |own| own.port());
    HttpServer { kubelet: Some(KubeletListener { listener, node: node.name.clone() }), ..server }
}

/// Parses a pause between restarts, and returns its seconds.
fn parse_pause(text: &str) -> Result<i64, TimeError> {
    let pause = time::parse_duration(text)?;
    if pause.as_secs() < 1 || pause.subsec_nanos() != 0 {
        return Err(TimeError("must be whole seconds, at least 1s".into()));
    }
    Ok(pause.as_secs())
}

/// Returns the settings of a control plane without any flags, for `kloop up`.
pub fn default_settings(context: &CommandContext) -> CliResult<ControlSettings> {
    settings(&parse_flags(&[]), context)
}

fn parse_flags(flags: &[&str]) -> Args {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("reconcile"));
    let matches = command.get_matches_from(["reconcile"].iter().chain(flags));
    <Args as clap::FromArgMatches>::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the settings of the control plane that the flags ask for.
fn settings(args: &Args, context: &CommandContext) -> CliResult<ControlSettings> {
    let node = (!args.no_local_node).then(|| capacity::measure_capacity(args.node_name.as_deref(), &context.state()));
    Ok(ControlSettings {
        state: context.state(),
        node,
        shim: None,
        loops: loops::enabled_loops(&args.controllers).map_err(Failure::plain)?,
        backoff_seconds: args.restart_backoff,
        backoff_cap_seconds: args.restart_backoff_max,
        environment: Environment::inherited().with_variables(flags::variables(&args.env)?),
        pids_per_pod: Some(args.pod_max_pids).filter(|max| *max > 0),
        scheduler: args.scheduler_config.as_deref().map_or(Ok(String::new()), flags::configuration)?,
        manifests: args.manifests.clone(),
        node_ports: flags::blocks(&args.nodeport_addresses)?,
        eviction: lines(args, args.eviction_pressure_transition_period)?,
        convergence: convergence::check,
        metrics: Arc::default(),
        on_idle: args.tell_idle.then_some(tell_idle as fn(Idle)),
        pod_api: None,
        token_source: None,
        link_certificates: None,
        host_network: false,
    })
}

/// Raises the limit of open files, and fails if it stays too low for a control plane.
pub fn check_descriptors() -> CliResult {
    descriptors::raise();
    let files = descriptors::soft_limit();
    if files < FEWEST_FILES {
        return Err(Failure::plain(format!(
            "this process may open {files} files, and reconcile needs {FEWEST_FILES}: raise the limit (ulimit -n {FEWEST_FILES})"
        )));
    }
    Ok(())
}

/// A server on a thread of its own.
pub struct RunningServer {
    /// Dropped, it stops the server.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl RunningServer {
    fn start(server: HttpServer, settings: &ControlSettings) -> CliResult<RunningServer> {
        let server = HttpServer { control_plane: Some(settings.metrics.clone()), ..server };
        let (stop, stopped) = oneshot::channel();
        let serve = move || server.run(async { drop(stopped.await) });
        Ok(RunningServer { stop, thread: std::thread::Builder::new().name("serve".into()).spawn(serve)? })
    }

    /// Stops it, and waits for its end.
    pub fn end(self) {
        drop(self.stop);
        // A panic has been printed; the cluster is as the loops left it.
        let _ = self.thread.join();
    }
}

/// Passes signals that end the process on to the present control loop.
struct SignalRelay {
    /// `None` once they are passed on.
    signals: Option<Signals>,
    outbox: Arc<Mutex<Option<Sender<WakeUp>>>>,
}

impl SignalRelay {
    fn new() -> io::Result<SignalRelay> {
        Ok(SignalRelay { signals: Some(Signals::new([SIGINT, SIGTERM, SIGHUP])?), outbox: Arc::default() })
    }

    /// Whether there was a signal before the first control loop.
    fn is_pending(&mut self) -> bool {
        self.signals.as_mut().is_some_and(|signals| signals.pending().next().is_some())
    }

    /// Passes signals on to this control loop from now on.
    fn relay_to(&mut self, outbox: Sender<WakeUp>) {
        *self.outbox.lock().ignore_poison() = Some(outbox);
        let Some(mut signals) = self.signals.take() else { return };
        let outbox = self.outbox.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                // While the first signal is being handled, there is no receiver: a second signal
                // ends the process.
                let outbox = outbox.lock().ignore_poison();
                if outbox.as_ref().is_none_or(|outbox| outbox.send(WakeUp::Stop).is_err()) {
                    std::process::exit(130);
                }
            }
        });
    }
}

/// Runs the loops, as the leader or as a standby, until they have nothing left to do or are stopped.
fn run_loops(args: &Args, until: RunUntil, settings: &ControlSettings, context: &mut CommandContext) -> CliResult {
    let mut signals = SignalRelay::new()?;
    let mut log_sink = log_sink(shown_level(args));
    let mut won = None;
    loop {
        let led = lead(args, until, context, settings, (won.take(), &mut signals), &mut log_sink)?;
        let Some(mut control) = led else { return Ok(()) };
        let start = |lock| Candidate::start(settings.state.clone(), lock, control.outbox());
        let candidate = control.candidate_lock().map(start).transpose()?;
        let ending = control.run(until, &mut log_sink)?;
        won = candidate.and_then(Candidate::finish);
        match ending {
            RunEnd::Elected => {}
            // A tick may find the epoch of this process' candidate before the loop reads its wake-up.
            RunEnd::Deposed if won.is_some() => {}
            RunEnd::Deposed => print_line(&mut log_sink, "another control plane took over; waiting".into()),
            ending => return end(args, context, control, ending, &mut log_sink),
        }
    }
}

/// Prints the node and the state file, and commands to try in another terminal.
fn print_ready(settings: &ControlSettings, log_sink: &mut dyn FnMut(&LogLine)) {
    let state = std::path::absolute(&settings.state).unwrap_or_else(|_| settings.state.clone());
    let node = settings.node.as_ref().map_or("without a node here".to_owned(), |node| format!("node {}", node.name));
    let place = match store::read_replica_address(&state) {
        Some(address) => format!("state {address}"),
        None => format!("state file {}", state.display()),
    };
    print_line(log_sink, format!("ready: {node}, {place}"));
    if joined_node::is_copy(&state) {
        return;
    }
    let export = match contexts::is_found_without_flags(&state) {
        true => String::new(),
        false => format!("export KLOOP_STATE={}; ", state.display()),
    };
    print_line(log_sink, format!("next, in another terminal: {export}kloop apply -f FILE; kloop get pods; kloop why"));
}

/// Starts the control plane once this process leads. Returns `None` when [`wait_to_lead`] does.
fn lead(
    args: &Args,
    until: RunUntil,
    context: &mut CommandContext,
    settings: &ControlSettings,
    (won, signals): (Option<Leadership>, &mut SignalRelay),
    log_sink: &mut dyn FnMut(&LogLine),
) -> CliResult<Option<ControlLoop>> {
    let mut api = context.take_api()?;
    let may_run_node = args.watch && settings.node.is_some();
    let leadership = match won {
        Some(leadership) => leadership,
        None => match wait_to_lead(args, until, context, (&mut api, may_run_node), signals, log_sink)? {
            Some(leadership) => leadership,
            None => return Ok(None),
        },
    };
    let leads = leadership.leads;
    let mut own_settings = settings.clone();
    if !leads {
        own_settings.loops = loops::standby_loops();
    }
    let control = ControlLoop::start(api, leadership, own_settings)?;
    match &settings.node {
        Some(node) if !leads => print_line(log_sink, format!("standing by; runs the pods of node {}", node.name)),
        _ if args.watch => print_ready(settings, log_sink),
        _ => {}
    }
    signals.relay_to(control.outbox());
    Ok(Some(control))
}

/// Waits until this process leads, as a standby if another control plane leads. Returns `None` if a
/// signal stops it, or if the other control plane has completed a one-shot run. A one-shot run
/// waits at most for its timeout.
fn wait_to_lead(
    args: &Args,
    until: RunUntil,
    context: &mut CommandContext,
    (api, may_run_node): (&mut Api, bool),
    signals: &mut SignalRelay,
    log_sink: &mut dyn FnMut(&LogLine),
) -> CliResult<Option<Leadership>> {
    let patience = if let RunUntil::Converged(patience) = until { Some(patience) } else { None };
    let started = Time::now();
    let is_over = || patience.is_some_and(|patience| Time::now().duration_since(started) >= patience);
    let (mut standby, mut is_announced) = (leader::Standby::default(), false);
    let (mut logged_holder, mut seen) = (None, None);
    loop {
        let is_standby = match standby.try_lead(api.store_mut()) {
            Ok(Election::Leads(leadership)) => return Ok(Some(leadership)),
            Ok(Election::Waits(leader)) => {
                if !std::mem::replace(&mut is_announced, true) {
                    print_line(log_sink, format!("{leader} leads; standing by"));
                }
                if may_run_node
                    && leader.host.is_some()
                    && let Some(node_only) = standby.try_run_node(api.store_mut())?
                {
                    return Ok(Some(node_only));
                }
                true
            }
            Err(error) if is_temporary(&error) && is_over() => return Err(error.into()),
            Err(error) if is_temporary(&error) => {
                print_lock_holder(&error.to_string(), &mut logged_holder, log_sink);
                pause_when_full(&error);
                false
            }
            Err(error) => return Err(error.into()),
        };
        if is_standby && patience.is_some() {
            let Convergence { unmet, proven } = check_changed_store(api, &mut seen)?;
            if unmet.is_empty() && proven.is_none_or(|at| at <= Time::now()) {
                return if args.quiet { Ok(None) } else { context.print_line("converged").map(|()| None) };
            }
            if has_failed(unmet) || is_over() {
                return Err(not_converged(args, unmet));
            }
        }
        if signals.is_pending() {
            return Ok(None);
        }
        if is_standby {
            std::thread::sleep(if api.store().is_replica() { candidate::ATTEMPT_INTERVAL } else { STANDBY_INTERVAL });
        }
    }
}

/// Prints the process that holds the store's write lock, or another reason to wait, once for each.
fn print_lock_holder(error: &str, logged: &mut Option<String>, log_sink: &mut dyn FnMut(&LogLine)) {
    let line = match error.split_once(" has been writing") {
        Some((holder, _)) => format!("waiting to write to the cluster's file: {holder} holds its write lock"),
        None => format!("waiting: {error}"),
    };
    if logged.as_ref() != Some(&line) {
        print_line(log_sink, line.clone());
        *logged = Some(line);
    }
}

/// Returns the convergence of a cluster with another control plane; computes it again after each
/// write.
fn check_changed_store<'a>(api: &Api, seen: &'a mut Option<(u64, Convergence)>) -> CliResult<&'a Convergence> {
    let version = api.store().data_version().map_err(anyhow::Error::from)?;
    let known = match seen.take().filter(|(known, _)| *known == version) {
        Some(known) => known,
        None => (version, api.read(|snapshot| convergence::check_store(snapshot, Time::now()))?),
    };
    Ok(&seen.insert(known).1)
}

fn not_converged(args: &Args, unmet: &[Unmet]) -> Failure {
    let lines: Vec<String> = unmet.iter().map(|entry| format!("  {}: {}", entry.key, entry.why)).collect();
    let after =
        if has_failed(unmet) { String::new() } else { format!(" after {}", time::format_duration(args.timeout)) };
    Failure::plain(format!("not converged{after}:\n{}", lines.join("\n")))
}

/// Whether waiting is useless, because all unmet objects have failed permanently.
fn has_failed(unmet: &[Unmet]) -> bool {
    !unmet.is_empty() && unmet.iter().all(|entry| entry.is_final)
}

fn end(
    args: &Args,
    context: &mut CommandContext,
    mut control: ControlLoop,
    ending: RunEnd,
    log_sink: &mut dyn FnMut(&LogLine),
) -> CliResult {
    let running = control.running_pods();
    if args.stop_on_exit {
        let stopped = control.stop_pods(log_sink)?;
        print_line(log_sink, format!("ended the processes of {}", format_count(stopped, "pod")));
    } else if ending == RunEnd::Stopped && running > 0 {
        let whose = format_count(running, "pod");
        print_line(
            log_sink,
            format!("stopped; the processes of {whose} keep running (kloop reconcile takes them over again)"),
        );
    }
    match ending {
        RunEnd::Unmet(unmet) => Err(not_converged(args, &unmet)),
        RunEnd::Converged if !args.quiet => {
            LogWriter::for_stdout().into_iter().for_each(LogWriter::flush);
            context.print_line("converged")
        }
        _ => Ok(()),
    }
}

/// The least important level that is shown; `None` when nothing is.
fn shown_level(args: &Args) -> Option<LogLevel> {
    match (args.quiet, args.problems, globals::is_verbose(args.v.as_deref())) {
        (true, _, _) => None,
        (_, true, _) => Some(LogLevel::Problem),
        (_, _, true) => Some(LogLevel::Detail),
        _ => Some(LogLevel::Action),
    }
}

/// Returns a function that prints log lines.
fn log_sink(shown: Option<LogLevel>) -> impl FnMut(&LogLine) {
    move |line: &LogLine| {
        if shown.is_none_or(|shown| line.level > shown) {
            return;
        }
        let about = line.about.as_ref().map(|key| format!(" {}", key.path())).unwrap_or_default();
        let at = line.at.to_string();
        let clock = at.get(11..19).unwrap_or_default();
        let text = crate::show::escape::text(&line.text).to_string();
        log(format!("{} {}{about}: {text}", clock.dimmed(), line.by.cyan()));
    }
}

/// Queues a line of the log without blocking.
fn log(line: String) {
    if let Some(sink) = LogWriter::for_stdout() {
        sink.write(line);
    }
}

fn tell_idle(idle: Idle) {
    let pause = idle.next.map_or(-1, |next| next.duration_since(Time::now()).as_millis().max(0));
    log(format!("idle {} {pause}", idle.revision));
}

fn print_line(log_sink: &mut dyn FnMut(&LogLine), text: String) {
    log_sink(&LogLine::own_action(Time::now(), text));
}
