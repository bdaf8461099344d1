//! `kloop reconcile`: runs the control plane until the cluster has converged, or until stopped.
//!
//! [`settings`] reads the flags, [`plane`] leads and runs the loops, [`server`] serves the API beside them, and [`log`] prints what they
//! do. Never: decides anything about objects. Start reading at [`run`].

pub mod flags;
pub mod log;
mod plane;
pub mod server;
pub mod settings;
mod signal_relay;

use super::{CliResult, CommandContext, Failure, serve};
use crate::joined_node;
use crate::object::time;
use crate::reconcile::ControlSettings;
use crate::reconcile::run_end::RunUntil;
use flags::parse_pause;
use jiff::SignedDuration;
use plane::PlaneRun;
use server::RunningServer;

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
    #[arg(long, value_name = "NUMBER", default_value_t = crate::world::DEFAULT_MAX_PIDS, allow_negative_numbers = true)]
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
    log_idle: bool,
    /// Also serve the REST API, as `kloop serve` does, at this port.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "8001")]
    serve: Option<u16>,
    #[command(flatten)]
    audit: serve::AuditFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let outcome = run_plane(&args, context);
    log::flush();
    outcome
}

/// Runs the loops with these settings until they are stopped, as `reconcile --watch` does without further flags.
pub fn run_until_stopped(settings: &ControlSettings, context: &mut CommandContext) -> CliResult {
    let args = settings::parse_flags(&["--watch"]);
    let outcome = PlaneRun::new(&args, RunUntil::Stopped, settings)?.run(context);
    log::flush();
    outcome
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

fn run_plane(args: &Args, context: &mut CommandContext) -> CliResult {
    check_is_cluster(context)?;
    let until = if args.watch { RunUntil::Stopped } else { RunUntil::Converged(args.timeout) };
    let mut settings = settings::from_flags(args, context)?;
    if let (Some(node), Some(address)) = (&mut settings.node, args.node_ip) {
        flags::set_address(node, address, context)?;
    }
    settings::check_descriptors()?;
    let server = match args.serve {
        Some(port) => Some(server::start_at(port, args, &mut settings, context)?),
        None if args.watch => server::start_pod_api(&mut settings, &args.audit, context)?,
        None => None,
    };
    let outcome = PlaneRun::new(args, until, &settings)?.run(context);
    server.into_iter().for_each(RunningServer::end);
    outcome
}
