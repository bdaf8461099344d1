//! Cached filter and score results of nodes, shared by pods with equal requirements.
//!
//! Some results follow from the node, its pods and the pod's requirements alone: filtering by the node itself, raw
//! scores, and preemption victims. All pods of a template get the same result, and a node is evaluated again only when
//! it or one of its pods has changed ([its version](crate::world::World::version_at)). Results that depend on pods
//! elsewhere (spreading, affinity) or on the pod's claims are computed each time. Kubernetes has a similar optimization
//! for consecutive pods (KEP-5598).

use super::FilterResults;
use super::filter::{self, FilterRefusal, PodQuery};
use super::nodes::{self, CandidateNode};
use super::ranked_node::RawScores;
use super::score;
use crate::object::{Str, Time};
use crate::world::scheduler_profile::SchedulerProfile;
use crate::world::{ResourceRequests, Row};
use hashlink::LruCache;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of the verdict that refuses nothing.
pub const FITS: usize = 0;

/// Maximum number of cached node results, over all signatures.
const MAX_CACHED_RESULTS: usize = 1 << 20;

/// Maximum number of cached signatures.
const MAX_CACHED_SIGNATURES: usize = 1024;

/// Length in bytes up to which the constraints of a signature are kept. The results of longer ones are computed again each time.
const MAX_CONSTRAINTS: usize = 16 << 10;

/// The requirements of a pod that decide the results.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PodSignature {
    profile: Str,
    node_constraints: Str,
    requests: ResourceRequests,
    host_ports: Vec<(Str, Str, i64)>,
    /// The requested resources that device classes provide.
    device_resources: Vec<Str>,
    priority: i32,
}

/// The caches by signature.
struct NodeCaches {
    profiles: Arc<[SchedulerProfile]>,
    node_results: LruCache<PodSignature, NodeResultCache>,
}

impl Default for NodeCaches {
    fn default() -> NodeCaches {
        NodeCaches { profiles: Arc::new([]), node_results: LruCache::new_unbounded() }
    }
}

/// Results of all nodes for pods with one signature.
#[derive(Default)]
pub struct NodeResultCache {
    nodes: Vec<NodeResult>,
    /// Refusals by index; the first is empty: the node fits.
    verdicts: Vec<Vec<FilterRefusal>>,
    preemption_verdicts: Vec<CachedPreemptionVerdict>,
    /// Reasons why preemption on a node does not help, by index.
    preemption_failures: Vec<Vec<Cow<'static, str>>>,
    /// The nominated node of the current pod.
    nominated: Option<usize>,
    /// The last survey, for its memory.
    pub(super) last_results: FilterResults,
}

/// Result of one node, kept small because there are many.
#[derive(Clone, Copy, Default)]
struct NodeResult {
    version: u64,
    verdict: u32,
    /// The verdict with the pods nominated for the node; `None` when it depends on more than the node.
    with_nominated: Option<u32>,
    raw_scores: RawScores,
}

/// The pods to remove from a node so that a more important pod fits: the most important first, at least one.
pub struct Victims {
    /// The pods.
    pub pods: Vec<Arc<Row>>,
    pub(super) cost: VictimCost,
}

/// The victims on a node, or the reasons why there are none: an empty list when no removal would help.
pub type VictimSearch = Result<Victims, Vec<Cow<'static, str>>>;

/// Cost of a choice, compared lowest first: violated disruption budgets, highest priority, sum of priorities, number of
/// pods, and start time of the most important ones.
pub(super) type VictimCost = (usize, i32, i64, usize, Reverse<Time>);

/// Result of a search for preemption victims on a node.
#[derive(Clone)]
pub enum PreemptionVerdict {
    /// The pod fits when these pods are removed.
    Possible(Arc<Victims>),
    /// No removal of pods helps; the index of the reasons in the cache.
    Impossible(usize),
}

/// A result and the node version that it belongs to.
#[derive(Clone)]
struct CachedPreemptionVerdict {
    version: u64,
    verdict: PreemptionVerdict,
}

impl Default for CachedPreemptionVerdict {
    fn default() -> CachedPreemptionVerdict {
        CachedPreemptionVerdict { version: 0, verdict: PreemptionVerdict::Impossible(0) }
    }
}

impl NodeResultCache {
    /// Calls `within` with the cached results for pods like this one.
    pub fn with_results<A>(query: &PodQuery<'_>, within: impl FnOnce(&mut NodeResultCache) -> A) -> A {
        let signature = PodSignature {
            profile: query.profile.name.clone(),
            node_constraints: query.constraints.node_constraints.clone(),
            requests: query.fields.requests.clone(),
            host_ports: query.fields.host_ports.clone(),
            device_resources: query
                .devices
                .as_ref()
                .map_or(Vec::new(), |devices| devices.extended_resources().to_vec()),
            priority: query.fields.priority,
        };
        let profiles = &query.world.settings.profiles;
        let node_count = query.world.node_cache().len();
        let mut node_results = query.world.with_cached(|known: &mut NodeCaches| {
            if !Arc::ptr_eq(&known.profiles, profiles) {
                *known = NodeCaches { profiles: profiles.clone(), ..NodeCaches::default() };
            }
            known.node_results.remove(&signature).unwrap_or_default()
        });
        node_results.nominated = query.fields.nominated.as_ref().and_then(|node| query.world.slot_of(node));
        node_results.nodes.resize(node_count, NodeResult::default());
        if node_results.verdicts.is_empty() {
            node_results.verdicts.push(Vec::new());
        }
        let answer = within(&mut node_results);
        if signature.node_constraints.len() > MAX_CONSTRAINTS {
            return answer;
        }
        query.world.with_cached(|known: &mut NodeCaches| {
            known.node_results.insert(signature, node_results);
            while known.node_results.len() > 1
                && (known.node_results.len() * node_count > MAX_CACHED_RESULTS
                    || known.node_results.len() > MAX_CACHED_SIGNATURES)
            {
                known.node_results.remove_lru();
            }
        });
        answer
    }

    /// Returns the number of the verdict of the node in this slot, and its raw scores if it fits. The node itself is checked first, then
    /// pods and volumes elsewhere, then the pods nominated for the node.
    pub fn verdict(&mut self, query: &PodQuery<'_>, slot: usize) -> (usize, RawScores) {
        let result = self.result_for(query, slot);
        let verdict = result.verdict as usize;
        if verdict != FITS {
            return (verdict, result.raw_scores);
        }
        if let Some(refusal) = filter::cluster_refusal(query, slot) {
            return (self.number(&[refusal]), result.raw_scores);
        }
        let verdict = match result.with_nominated {
            Some(verdict) if self.depends_on_node_only(query, slot) => verdict as usize,
            _ => nodes::candidate(query.world, slot).map_or(FITS, |node| self.verdict_with_nominated(query, node)),
        };
        (verdict, result.raw_scores)
    }

    fn verdict_with_nominated(&mut self, query: &PodQuery<'_>, mut node: CandidateNode<'_>) -> usize {
        if node.add_nominated_pods(query.row) { self.number(&filter::refusals(query, &node)) } else { FITS }
    }

    /// Whether a node's result follows from the node, its pods and its nominated pods alone; not when the pod itself is
    /// nominated there.
    fn depends_on_node_only(&self, query: &PodQuery<'_>, slot: usize) -> bool {
        !query.world.has_nominated_pods(slot) || (query.depends_on_node_only() && self.nominated != Some(slot))
    }

    /// Returns the error of a verdict, by its number.
    pub fn error(&self, verdict: usize) -> Option<&FilterRefusal> {
        self.verdicts[verdict].iter().find(|refusal| refusal.is_error)
    }

    /// Counts the nodes per set of reasons, given by the index of each node's result.
    pub fn refusal_counts(&self, verdicts: &[usize]) -> RefusalCounts<'_> {
        let mut counts = vec![0; self.verdicts.len()];
        verdicts.iter().for_each(|verdict| counts[*verdict] += 1);
        RefusalCounts(self.verdicts.iter().map(Vec::as_slice).zip(counts).filter(|(_, nodes)| *nodes > 0).collect())
    }

    /// Returns, by index, the results that no preemption can change.
    pub fn unresolvable(&self) -> Vec<bool> {
        self.verdicts.iter().map(|refusals| refusals.iter().any(|refusal| refusal.unresolvable)).collect()
    }

    /// Returns the victims on the node in this slot, from the cache or computed by `find`; without `remember` the cache
    /// is not used.
    pub fn preemption_verdict(
        &mut self,
        query: &PodQuery<'_>,
        slot: usize,
        remember: bool,
        find: impl FnOnce() -> VictimSearch,
    ) -> PreemptionVerdict {
        let version = query.world.version_at(slot);
        let depends_on_node_only = remember && query.depends_on_node_only() && self.depends_on_node_only(query, slot);
        match self.preemption_verdicts.get(slot) {
            Some(known) if depends_on_node_only && known.version == version => return known.verdict.clone(),
            _ => {}
        }
        let verdict = match find() {
            Ok(victims) => PreemptionVerdict::Possible(Arc::new(victims)),
            Err(reasons) => PreemptionVerdict::Impossible(place_of(&mut self.preemption_failures, &reasons)),
        };
        if depends_on_node_only
            && nodes::candidate(query.world, slot).is_some_and(|node| !node.nominated_have_anti_affinity())
        {
            self.preemption_verdicts.resize_with(self.nodes.len(), Default::default);
            self.preemption_verdicts[slot] = CachedPreemptionVerdict { version, verdict: verdict.clone() };
        }
        verdict
    }

    /// Reasons why preemption on nodes would not help, each with its number of nodes; `counts` has the number of nodes by failure index.
    pub fn preemption_failures<'a>(&'a self, counts: &'a [usize]) -> impl Iterator<Item = (&'a str, usize)> {
        self.preemption_failures
            .iter()
            .zip(counts)
            .flat_map(|(reasons, nodes)| reasons.iter().map(|why| (&**why, *nodes)))
    }

    fn result_for(&mut self, query: &PodQuery<'_>, slot: usize) -> NodeResult {
        let version = query.world.version_at(slot);
        let known = self.nodes[slot];
        if known.version == version {
            return known;
        }
        let Some(node) = nodes::candidate(query.world, slot) else { return known };
        let verdict = self.number(&filter::node_refusals(query, &node));
        let raw_scores = if verdict == FITS { score::raw_scores(query, &node) } else { RawScores::default() };
        let with_nominated = match (verdict == FITS, query.world.has_nominated_pods(slot)) {
            (true, false) => Some(FITS),
            (true, true) if self.depends_on_node_only(query, slot) && !node.nominated_have_anti_affinity() => {
                Some(self.verdict_with_nominated(query, node))
            }
            _ => None,
        };
        let with_nominated = with_nominated.map(|verdict| verdict as u32);
        self.nodes[slot] = NodeResult { version, verdict: verdict as u32, with_nominated, raw_scores };
        self.nodes[slot]
    }

    fn number(&mut self, refusals: &[FilterRefusal]) -> usize {
        place_of(&mut self.verdicts, refusals)
    }
}

/// Returns the index of a list among others, and appends it when it is missing.
fn place_of<A: Clone + PartialEq>(all: &mut Vec<Vec<A>>, list: &[A]) -> usize {
    all.iter().position(|known| known == list).unwrap_or_else(|| {
        all.push(list.to_vec());
        all.len() - 1
    })
}

/// Reasons, and how many nodes have them.
pub struct RefusalCounts<'a>(Vec<(&'a [FilterRefusal], usize)>);

impl RefusalCounts<'_> {
    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.0.iter().map(|(_, nodes)| nodes).sum()
    }

    /// The plugins that refuse at least one node.
    pub fn plugins(&self) -> BTreeSet<&'static str> {
        self.0.iter().flat_map(|(refusals, _)| *refusals).map(|refusal| refusal.plugin).collect()
    }

    /// Each reason with the number of nodes.
    pub fn reasons(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().flat_map(|(refusals, nodes)| refusals.iter().map(|refusal| (&*refusal.reason, *nodes)))
    }
}

#[cfg(test)]
mod tests {
    use crate::object::{Key, Resource, Time};
    use crate::scheduler::plan;
    use crate::world::World;
    use serde_json::{Value, json};

    /// Chance that is the same in each run.
    struct SeededRandom(u64);

    impl SeededRandom {
        fn random_below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % most
        }

        fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
            &list[self.random_below(list.len() as u64) as usize]
        }
    }

    fn node(dice: &mut SeededRandom) -> Value {
        let taints = [
            json!([]),
            json!([{"key": "k", "effect": "NoSchedule"}]),
            json!([{"key": "k", "effect": "PreferNoSchedule"}]),
        ];
        let images = [json!([]), json!([{"names": ["big:latest"], "sizeBytes": 900_000_000}])];
        json!({"kind": "Node", "metadata": {"uid": "n", "labels": {"zone": dice.pick(&["1", "2", "3"])}},
            "spec": {"taints": dice.pick(&taints), "unschedulable": dice.random_below(9) == 0},
            "status": {"images": dice.pick(&images), "allocatable": {"cpu": dice.pick(&["2", "4"]), "memory": "8Gi", "pods": "5"}}})
    }

    fn pod(dice: &mut SeededRandom, name: &str) -> Value {
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}});
        let spread = |mode: &str| json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": mode, "labelSelector": {"matchLabels": {"app": "a"}}}]);
        let pod_spec = [
            json!({}),
            json!({}),
            json!({"tolerations": [{"key": "k", "operator": "Exists"}]}),
            json!({"nodeSelector": {"zone": "2"}}),
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]}}}),
            json!({"topologySpreadConstraints": spread("DoNotSchedule")}),
            json!({"topologySpreadConstraints": spread("ScheduleAnyway")}),
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "bound"}}]}),
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "open"}}]}),
        ];
        let ports = dice.pick(&[json!([]), json!([]), json!([{"containerPort": 1, "hostPort": 80}])]).clone();
        let requests = json!({"requests": {"cpu": dice.pick(&["500m", "1", "2", "5"])}});
        let mut spec = json!({"priority": dice.random_below(3), "containers": [{"name": "c", "image": "big", "ports": ports, "resources": requests}]});
        json_patch::merge(&mut spec, dice.pick(&pod_spec));
        json!({"kind": "Pod", "metadata": {"uid": name, "namespace": "default", "labels": {"app": dice.pick(&["a", "b"])}}, "spec": spec})
    }

    /// Claims, one with a volume that can be had in one zone alone, one that waits for its first consumer, for one pod at a time.
    fn storage(dice: &mut SeededRandom) -> [(Key, Value); 4] {
        let in_zone = json!({"key": "zone", "operator": "In", "values": [dice.pick(&["1", "2", "3"])]});
        let reach = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}});
        let class =
            json!({"metadata": {"uid": "s"}, "provisioner": "any", "volumeBindingMode": "WaitForFirstConsumer"});
        let claim = |spec: Value, phase: &str| json!({"metadata": {"uid": phase, "namespace": "default"}, "spec": spec, "status": {"phase": phase}});
        [
            (key("storageclasses.storage.k8s.io", "made"), class),
            (key("persistentvolumes", "v"), json!({"metadata": {"uid": "v"}, "spec": {"nodeAffinity": reach}})),
            (key("persistentvolumeclaims", "bound"), claim(json!({"volumeName": "v"}), "Bound")),
            (
                key("persistentvolumeclaims", "open"),
                claim(json!({"storageClassName": "made", "accessModes": ["ReadWriteOncePod"]}), "Pending"),
            ),
        ]
    }

    /// Applies a random change of a node, of a pod on one, or of a waiting pod.
    fn apply_random_change(dice: &mut SeededRandom, world: &mut World) {
        let node_name = format!("n{}", dice.random_below(6));
        let pod_name = format!("p{}", dice.random_below(12));
        let (node_key, pod_key) = (key("nodes", &node_name), key("pods", &pod_name));
        match dice.random_below(10) {
            9 => storage(dice).into_iter().for_each(|(key, body)| world.put(key, body.to_string().into())),
            0 => world.remove(&node_key),
            1 | 2 => world.put(node_key, node(dice).to_string().into()),
            3 => world.remove(&pod_key),
            4 => {
                let budget = json!({"kind": "PodDisruptionBudget", "metadata": {"uid": "b", "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"app": "a"}}}, "status": {"disruptionsAllowed": dice.random_below(2)}});
                let budget_key = key("poddisruptionbudgets.policy", "b");
                if dice.random_below(3) == 0 {
                    world.put(budget_key, budget.to_string().into())
                } else {
                    world.remove(&budget_key)
                }
            }
            what => {
                let mut body = pod(dice, &pod_name);
                if what == 5 {
                    body["status"] = json!({"nominatedNodeName": node_name});
                } else {
                    body["spec"]["nodeName"] = node_name.into();
                    let since = format!("1970-01-01T00:00:0{}Z", dice.random_below(9));
                    body["status"] = json!({"phase": dice.pick(&["Running", "Succeeded"]), "startTime": since});
                    if dice.random_below(5) == 0 {
                        body["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
                    }
                }
                world.put(pod_key, body.to_string().into());
            }
        }
    }

    fn key(resource: &'static str, name: &str) -> Key {
        let is_everywhere = ["nodes", "persistentvolumes", "storageclasses.storage.k8s.io"].contains(&resource);
        let namespace = if is_everywhere { "" } else { "default" };
        Key::new(Resource(resource), namespace, name)
    }

    #[test]
    fn cached_results_change_no_plan() {
        let mut refused = 0;
        for seed in 0..10 {
            let mut dice = SeededRandom(seed);
            let mut world = World::new(Time::from_second(100).unwrap());
            storage(&mut dice).into_iter().for_each(|(key, body)| world.put(key, body.to_string().into()));
            for _ in 0..120 {
                apply_random_change(&mut dice, &mut world);
                let pending = key("pods", "pending");
                world.put(pending.clone(), pod(&mut SeededRandom(dice.random_below(20)), "pending").to_string().into());
                let mut fresh = World::new(world.now);
                world.all_rows().for_each(|row| fresh.put(row.key.clone(), row.body().0.to_string().into()));
                (world.seed, fresh.seed) = (dice.0, dice.0);
                let planned = plan(&world, &pending);
                assert_eq!(planned, plan(&fresh, &pending), "seed {seed}");
                refused += usize::from(planned.scheduling_wait.is_some());
            }
        }
        assert!((100..1100).contains(&refused), "{refused} of 1200");
    }
}
