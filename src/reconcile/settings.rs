//! The settings of a control plane.

use super::link_certificates::LinkCertificateFeed;
use super::metrics::LoopMetrics;
use super::run_end::{ConvergenceCheck, Idle};
use crate::runtime::capacity::MachineCapacity;
use crate::runtime::image::Environment;
use crate::runtime::token_signer::TokenSource;
use crate::world::Loop;
use crate::world::policy::Cidr;
use crate::world::pressure::EvictionThresholds;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of a control plane.
#[derive(Clone)]
pub struct ControlSettings {
    /// The cluster's file.
    pub state: PathBuf,
    /// This machine as a node; none with `--no-local-node`.
    pub node: Option<MachineCapacity>,
    /// The binary that is run as the shim; `None` for the running one.
    pub shim: Option<PathBuf>,
    /// The loops that run.
    pub loops: Vec<&'static Loop>,
    /// First pause of the restart backoff, in seconds.
    pub backoff_seconds: i64,
    /// Its longest pause, in seconds.
    pub backoff_cap_seconds: i64,
    /// Base environment of every container.
    pub environment: Environment,
    /// Maximum number of processes of one pod; `None` for no limit.
    pub pids_per_pod: Option<i64>,
    /// The configuration of the scheduler's profiles, as JSON that was checked; empty for Kubernetes' own.
    pub scheduler: String,
    /// The folder of static pods' manifests.
    pub manifests: Option<PathBuf>,
    /// The blocks of this machine's addresses at which node ports answer, in addition to localhost.
    pub node_ports: Vec<Cidr>,
    /// Thresholds at which this machine's nodes evict pods.
    pub eviction: EvictionThresholds,
    /// Decides whether a run until convergence is over.
    pub convergence: ConvergenceCheck,
    /// Measurements of its ticks, which others may read.
    pub metrics: Arc<LoopMetrics>,
    /// Called each time that nothing is left to do for now.
    pub on_idle: Option<fn(Idle)>,
    /// Address of the API server for pods, if one runs in this process.
    pub pod_api: Option<std::net::SocketAddr>,
    /// Source of the tokens of pods, where the cluster's keys are elsewhere.
    pub token_source: Option<TokenSource>,
    /// The certificates of this machine for its links to others, where the cluster's keys are elsewhere.
    pub link_certificates: Option<LinkCertificateFeed>,
    /// Whether all pods are on the machine's own network, as the cluster of a server that is not kloop expects of its nodes.
    pub host_network: bool,
}
