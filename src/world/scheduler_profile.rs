//! A profile of the scheduler: by which plugins, weights and arguments the pods of one `schedulerName` are placed.

use crate::object::Str;
use serde_json::Value;
use std::collections::BTreeSet;

/// Plugins that rank nodes, with their weights in Kubernetes.
pub const WEIGHTS: [(&str, i64); 7] = [
    ("NodeResourcesFit", 1),
    ("NodeResourcesBalancedAllocation", 1),
    ("NodeAffinity", 2),
    ("TaintToleration", 3),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("ImageLocality", 1),
];

/// Scheduling settings of one `schedulerName`.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerProfile {
    /// `schedulerName`.
    pub name: Str,
    /// Disabled filter plugins.
    pub without: BTreeSet<&'static str>,
    /// Weight of each plugin in [`WEIGHTS`]; zero when it is disabled.
    pub weights: [i64; WEIGHTS.len()],
    /// Whether pods of higher priority may preempt others.
    pub preempts: bool,
    /// Scoring strategy of NodeResourcesFit.
    pub strategy: ScoringStrategy,
    /// `addedAffinity`: node affinity that every pod has besides its own; null when there is none.
    pub added_affinity: Value,
    /// `defaultConstraints`: spreading of pods that ask for none; Kubernetes' own when there is no list.
    pub constraints: Option<Vec<Value>>,
    /// `hardPodAffinityWeight`: how much pods like those that they require to be near.
    pub required_affinity_weight: i64,
    /// `percentageOfNodesToScore`: 0 for fewer the more nodes there are.
    pub percentage: usize,
}

/// `scoringStrategy`: of which resources, with which weights, how.
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
    /// The freer the better.
    Least,
    /// The fuller the better.
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
            weights: WEIGHTS.map(|(_, weight)| weight),
            preempts: true,
            strategy: ScoringStrategy {
                shape: ScoringShape::Least,
                resources: vec![(ScoredResource::Cpu, 1), (ScoredResource::Memory, 1)],
            },
            added_affinity: Value::Null,
            constraints: None,
            required_affinity_weight: 1,
            percentage: 0,
        }
    }
}

impl Default for SchedulerProfile {
    fn default() -> SchedulerProfile {
        SchedulerProfile::named("default-scheduler")
    }
}
