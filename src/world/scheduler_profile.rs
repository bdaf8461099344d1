//! A profile of the scheduler: with which changes to its plugins, weights and arguments the pods of one `schedulerName` are placed.

use crate::object::Str;
use jiff::SignedDuration;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Time for which a pod waits for the binding conditions of its devices, unless its profile says otherwise.
pub const BINDING_TIMEOUT: SignedDuration = SignedDuration::from_secs(600);

/// Scheduling settings of one `schedulerName`.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerProfile {
    /// `schedulerName`.
    pub name: Str,
    /// Disabled filter plugins.
    pub without: BTreeSet<&'static str>,
    /// The weights of score plugins that are not the plugins' own; zero for one that is disabled.
    pub weights: BTreeMap<&'static str, i64>,
    /// Whether pods of higher priority may preempt others.
    pub preempts: bool,
    /// Scoring strategy of NodeResourcesFit.
    pub strategy: ScoringStrategy,
    /// `addedAffinity`: node affinity that every pod has besides its own; null when there is none.
    pub added_affinity: Value,
    /// `defaultConstraints`: spreading of pods without constraints of their own; `None` for Kubernetes' defaults.
    pub constraints: Option<Vec<Value>>,
    /// `hardPodAffinityWeight`: the weight of required affinity when nodes are scored.
    pub required_affinity_weight: i64,
    /// `percentageOfNodesToScore`; 0 lets the number of nodes decide.
    pub percentage: usize,
    /// `bindingTimeout`: how long a pod waits for the binding conditions of its devices.
    pub binding_timeout: SignedDuration,
}

/// `scoringStrategy`: the scored resources with their weights, and the scoring function.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoringStrategy {
    /// Scoring function of the resource.
    pub shape: ScoringShape,
    /// Resources and their weights.
    pub resources: Vec<(ScoredResource, i64)>,
}

/// A resource that is scored.
#[derive(Clone, Debug, PartialEq)]
pub enum ScoredResource {
    /// `cpu`.
    Cpu,
    /// `memory`.
    Memory,
    /// `ephemeral-storage`.
    Storage,
    /// An extended one.
    Other(Str),
}

impl ScoredResource {
    /// By its name.
    pub fn named(name: &str) -> ScoredResource {
        match name {
            "cpu" => ScoredResource::Cpu,
            "memory" => ScoredResource::Memory,
            "ephemeral-storage" => ScoredResource::Storage,
            other => ScoredResource::Other(other.into()),
        }
    }
}

/// Maps the utilization of a resource to a score from 0 to 100.
#[derive(Clone, Debug, PartialEq)]
pub enum ScoringShape {
    /// Prefers nodes with more free resources.
    Least,
    /// Prefers nodes with fewer free resources.
    Most,
    /// By points of use in percent and score, with straight lines between them.
    Ratio(Vec<(i64, i64)>),
}

impl SchedulerProfile {
    /// The profile of Kubernetes' own scheduler, under a name.
    pub fn named(name: &str) -> SchedulerProfile {
        SchedulerProfile {
            name: name.into(),
            without: BTreeSet::new(),
            weights: BTreeMap::new(),
            preempts: true,
            strategy: ScoringStrategy {
                shape: ScoringShape::Least,
                resources: vec![(ScoredResource::Cpu, 1), (ScoredResource::Memory, 1)],
            },
            added_affinity: Value::Null,
            constraints: None,
            required_affinity_weight: 1,
            percentage: 0,
            binding_timeout: BINDING_TIMEOUT,
        }
    }
}

impl Default for SchedulerProfile {
    fn default() -> SchedulerProfile {
        SchedulerProfile::named("default-scheduler")
    }
}
