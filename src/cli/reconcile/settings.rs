//! The settings of a control plane, from the flags of `kloop reconcile` or from their defaults.
//!
//! Start reading at [`from_flags`].

use super::{Args, flags, log};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::diagnosis::convergence;
use crate::reconcile::{ControlSettings, Idle, loops};
use crate::runtime::image::Environment;
use crate::runtime::{capacity, descriptors};
use crate::world::pressure::{EvictionFlags, EvictionThresholds};
use std::sync::Arc;

/// Minimum number of open files for a control plane and a few pods. With slightly fewer it would
/// hang without an error.
const MIN_OPEN_FILES: usize = 48;

/// Returns the settings of a control plane without any flags, for `kloop up`.
pub fn default_settings(context: &CommandContext) -> CliResult<ControlSettings> {
    from_flags(&parse_flags(&[]), context)
}

/// Parses flags as the command line gives them.
pub fn parse_flags(flags: &[&str]) -> Args {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("reconcile"));
    let matches = command.get_matches_from(["reconcile"].iter().chain(flags));
    <Args as clap::FromArgMatches>::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the settings of the control plane that the flags ask for.
pub fn from_flags(args: &Args, context: &CommandContext) -> CliResult<ControlSettings> {
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
        eviction: eviction_thresholds(args)?,
        convergence: convergence::check,
        metrics: Arc::default(),
        on_idle: args.log_idle.then_some(log::print_idle as fn(Idle)),
        pod_api: None,
        token_source: None,
        link_certificates: None,
        host_network: false,
    })
}

/// Parses the eviction flags.
fn eviction_thresholds(args: &Args) -> CliResult<EvictionThresholds> {
    let words = EvictionFlags {
        hard: &args.eviction_hard,
        soft: &args.eviction_soft,
        soft_grace: &args.eviction_soft_grace_period,
        minimum_reclaim: &args.eviction_minimum_reclaim,
    };
    EvictionThresholds::parse(words, args.eviction_pressure_transition_period).map_err(Failure::plain)
}

/// Raises the limit of open files, and fails if it stays too low for a control plane.
pub fn check_descriptors() -> CliResult {
    descriptors::raise();
    let files = descriptors::soft_limit();
    if files < MIN_OPEN_FILES {
        return Err(Failure::plain(format!(
            "this process may open {files} files, and reconcile needs {MIN_OPEN_FILES}: raise the limit (ulimit -n {MIN_OPEN_FILES})"
        )));
    }
    Ok(())
}
