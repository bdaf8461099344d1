//! The plugins that refuse nodes, in Kubernetes' order, with its words.

use super::devices::{self, PodDevices, SearchFailure};
use super::inter_pod_affinity::InterPodAffinity;
use super::nodes::CandidateNode;
use super::pod_constraints::PodConstraints;
use super::spread::PodSpread;
use super::volume_limits::{self, LIMITS};
use super::volumes::{self, PodStorage};
use super::{affinity, profile_of};
use crate::object::Object;
use crate::world::scheduler_profile::SchedulerProfile;
use crate::world::{PodFields, Row, Taint, World, taint};
use std::borrow::Cow;

/// Input of the plugins about one pod, computed once for all nodes.
#[derive(Clone)]
pub struct PodQuery<'a> {
    /// The World.
    pub world: &'a World,
    /// The pod's row.
    pub row: &'a Row,
    /// Its constraints.
    pub constraints: &'a PodConstraints,
    /// The parts of the pod with these constraints.
    pub pod: &'a Object,
    /// Its scheduler profile.
    pub profile: Cow<'a, SchedulerProfile>,
    /// Its fields.
    pub fields: Cow<'a, PodFields>,
    /// Its inter-pod affinity.
    pub inter_pod_affinity: InterPodAffinity,
    /// Its topology spread constraints.
    pub spread: PodSpread,
    /// Constraints from its claims, or the reason why no node satisfies them.
    pub storage: Result<PodStorage<'a>, String>,
    /// Constraints from its device claims, or the reason why no node satisfies them.
    pub devices: Result<PodDevices, String>,
}

impl<'a> PodQuery<'a> {
    /// Reads them from the pod.
    pub fn from_pod(world: &'a World, row: &'a Row, constraints: &'a PodConstraints) -> PodQuery<'a> {
        // A pod of another scheduler is explained as if it used the default profile.
        let profile = profile_of(world, row).map_or_else(|| Cow::Owned(SchedulerProfile::default()), Cow::Borrowed);
        PodQuery {
            world,
            row,
            constraints,
            pod: &constraints.pod,
            fields: row.pod().map_or_else(Cow::default, Cow::Borrowed),
            inter_pod_affinity: InterPodAffinity::from_pod(world, row, constraints),
            spread: PodSpread::from_pod(world, &constraints.pod, row, &profile),
            storage: PodStorage::from_pod(world, row, &constraints.pod),
            devices: PodDevices::from_pod(world, row),
            profile,
        }
    }

    /// The same query, with the hypothetical pods of one node taken into account.
    pub fn with_assumptions(&self, node: &CandidateNode<'_>) -> Cow<'_, PodQuery<'a>> {
        let has_used_claims = self.storage.as_ref().is_ok_and(|storage| storage.in_use().is_some());
        let is_concerned = self.depends_on_other_pods()
            || has_used_claims
            || node.assumed_changes().any(|(pod, _)| has_anti_affinity(pod));
        if node.is_actual() || !is_concerned {
            return Cow::Borrowed(self);
        }
        let inter_pod_affinity = self.inter_pod_affinity.with_assumptions(self.world, self.row, node);
        Cow::Owned(PodQuery {
            inter_pod_affinity,
            spread: self.spread.with_assumptions(self.world, node),
            storage: self.storage.as_ref().map(|storage| storage.with_assumptions(node)).map_err(Clone::clone),
            ..self.clone()
        })
    }

    fn may_refuse(&self, plugin: &str) -> bool {
        !self.profile.without.contains(plugin)
    }

    fn has_claims(&self) -> bool {
        self.storage.as_ref().is_ok_and(|storage| !storage.is_empty())
    }

    /// Whether the result for a node depends only on the node and its pods.
    pub fn depends_on_node_only(&self) -> bool {
        !self.depends_on_other_pods() && !self.has_claims() && !self.has_devices()
    }

    /// Whether the pod has device claims.
    pub fn has_devices(&self) -> bool {
        self.devices.as_ref().is_ok_and(|devices| !devices.is_empty())
    }

    /// Returns the plugin that refuses the pod on every node, and its reason.
    pub fn refusal_everywhere(&self) -> Option<(&'static str, &str)> {
        let by_volumes = self.storage.as_ref().err().map(|why| (volumes::BINDING, why.as_str()));
        by_volumes.or_else(|| self.devices.as_ref().err().map(|why| (devices::PLUGIN, why.as_str())))
    }

    /// Whether the result depends on the labels and places of other pods.
    fn depends_on_other_pods(&self) -> bool {
        !self.spread.is_empty() || !self.inter_pod_affinity.is_empty()
    }
}

fn has_anti_affinity(pod: &Row) -> bool {
    pod.pod().is_some_and(|fields| fields.anti_affinity.is_some())
}

/// A reason for which a node is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRefusal {
    /// The plugin that refuses.
    pub plugin: &'static str,
    /// In Kubernetes' words.
    pub reason: Cow<'static, str>,
    /// Removing other pods cannot help.
    pub unresolvable: bool,
    /// Whether it is an error that ends the attempt to place the pod, also where another node could take it.
    pub is_error: bool,
}

impl FilterRefusal {
    fn new(reason: Cow<'static, str>, unresolvable: bool) -> FilterRefusal {
        FilterRefusal { plugin: "", reason, unresolvable, is_error: false }
    }
}

/// A plugin that refuses nodes.
pub struct FilterPlugin<F> {
    /// Its name in the scheduler's configuration.
    pub name: &'static str,
    /// Whether a profile can disable it.
    pub can_be_disabled: bool,
    /// The changes that can make it accept a node, as `why` describes them.
    pub wake_events: &'static [&'static str],
    filter: F,
}

/// Returns the reasons for which a node is refused, by the node and its pods alone.
type NodeFilter = fn(&PodQuery<'_>, &CandidateNode<'_>) -> Vec<FilterRefusal>;

/// A filter that depends on pods or volumes elsewhere in the cluster.
struct ClusterFilter {
    /// Whether it applies to a pod at all; if not, no node is checked.
    applies: fn(&PodQuery<'_>) -> bool,
    refusal: fn(&PodQuery<'_>, usize) -> Option<FilterRefusal>,
}

/// The plugins that depend only on a node and its pods, in order. The first that refuses a node gives the reason, as in Kubernetes.
static NODE_PLUGINS: [FilterPlugin<NodeFilter>; 7] = [
    node_plugin("NodeAffinity", &["a node gets other labels"], named_nodes),
    node_plugin("NodeUnschedulable", &["a node is uncordoned"], unschedulable),
    node_plugin("NodeName", &[], node_name),
    node_plugin("TaintToleration", &["a node loses a taint"], taints),
    node_plugin("NodeAffinity", &["a node gets other labels"], node_affinity),
    node_plugin("NodePorts", &["a pod ends"], ports),
    node_plugin(
        "NodeResourcesFit",
        &["a node offers more", "a pod ends on a node that then has room for this pod"],
        resources,
    ),
];

/// The plugins that depend on the rest of the cluster; they run after [`NODE_PLUGINS`].
static CLUSTER_PLUGINS: [FilterPlugin<ClusterFilter>; 7] = [
    volume_plugin(volumes::RESTRICTIONS, &["the pod that uses its claim ends"], volume_in_use),
    volume_plugin(LIMITS, &["a pod ends", "a CSINode allows more"], volume_limits),
    volume_plugin(
        volumes::BINDING,
        &["a claim is made or bound", "a volume is made or freed", "a node gets other labels"],
        volume_binding,
    ),
    volume_plugin(volumes::ZONE, &["a node gets other labels"], volume_zone),
    FilterPlugin {
        name: "PodTopologySpread",
        can_be_disabled: true,
        wake_events: &["a node gets other labels", "a pod that its constraints count is added or removed"],
        filter: ClusterFilter { applies: |query| !query.spread.is_empty(), refusal: spread },
    },
    FilterPlugin {
        name: "InterPodAffinity",
        can_be_disabled: true,
        wake_events: &[
            "a node gets other labels",
            "a pod that matches its podAffinity is added",
            "a pod that conflicts by anti-affinity is removed",
        ],
        filter: ClusterFilter { applies: |query| !query.inter_pod_affinity.is_empty(), refusal: inter_pod_affinity },
    },
    FilterPlugin {
        name: devices::PLUGIN,
        can_be_disabled: false,
        wake_events: &["a claim is made, changed or released", "a ResourceSlice or a DeviceClass changes"],
        filter: ClusterFilter { applies: |query| query.has_devices(), refusal: device_allocation },
    },
];

const fn node_plugin(
    name: &'static str,
    wake_events: &'static [&'static str],
    filter: NodeFilter,
) -> FilterPlugin<NodeFilter> {
    FilterPlugin { name, can_be_disabled: true, wake_events, filter }
}

/// A plugin about volumes: it applies to pods with claims, and no profile can disable it.
const fn volume_plugin(
    name: &'static str,
    wake_events: &'static [&'static str],
    refusal: fn(&PodQuery<'_>, usize) -> Option<FilterRefusal>,
) -> FilterPlugin<ClusterFilter> {
    let filter = ClusterFilter { applies: |query| query.has_claims(), refusal };
    FilterPlugin { name, can_be_disabled: false, wake_events, filter }
}

/// Returns the plugins that profiles can disable.
pub fn optional_plugins() -> impl Iterator<Item = &'static str> {
    let of_node = NODE_PLUGINS.iter().map(|plugin| (plugin.name, plugin.can_be_disabled));
    let of_cluster = CLUSTER_PLUGINS.iter().map(|plugin| (plugin.name, plugin.can_be_disabled));
    of_node.chain(of_cluster).filter(|(_, can_be_disabled)| *can_be_disabled).map(|(name, _)| name)
}

/// Returns descriptions of the changes that can make a plugin accept a node.
pub fn wake_events(plugin: &str) -> &'static [&'static str] {
    let of_node = NODE_PLUGINS.iter().map(|known| (known.name, known.wake_events));
    let of_cluster = CLUSTER_PLUGINS.iter().map(|known| (known.name, known.wake_events));
    of_node.chain(of_cluster).find(|(name, _)| *name == plugin).map_or(&[], |(_, events)| events)
}

/// Why a node cannot take the pod, by the first plugin that refuses it; empty when it can.
pub fn refusals(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    let mut reasons = node_refusals(query, node);
    if reasons.is_empty() {
        reasons.extend(cluster_refusal(&query.with_assumptions(node), node.slot));
    }
    reasons
}

/// Returns the refusals of all plugins for a node, in their order. Placement stops at the first, as Kubernetes does.
pub fn all_refusals(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<(&'static str, Vec<FilterRefusal>)> {
    let of_node = NODE_PLUGINS.iter().filter(|plugin| query.may_refuse(plugin.name));
    let of_node = of_node.map(|plugin| (plugin.name, (plugin.filter)(query, node)));
    let query = query.with_assumptions(node);
    let of_cluster = cluster_plugins(&query);
    let of_cluster =
        of_cluster.map(|plugin| (plugin.name, (plugin.filter.refusal)(&query, node.slot).into_iter().collect()));
    of_node.chain(of_cluster).filter(|(_, reasons)| !reasons.is_empty()).collect()
}

/// Returns the reasons why a node cannot accept the pod, regardless of pods elsewhere.
pub fn node_refusals(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    let mut verdicts = NODE_PLUGINS.iter().filter(|plugin| query.may_refuse(plugin.name)).map(|plugin| {
        let mut reasons = (plugin.filter)(query, node);
        reasons.iter_mut().for_each(|reason| reason.plugin = plugin.name);
        reasons
    });
    verdicts.find(|reasons| !reasons.is_empty()).unwrap_or_default()
}

/// Returns why pods or volumes elsewhere keep the pod from the node in this slot.
pub fn cluster_refusal(query: &PodQuery<'_>, slot: usize) -> Option<FilterRefusal> {
    if query.depends_on_node_only() {
        return None;
    }
    cluster_plugins(query)
        .find_map(|plugin| Some(FilterRefusal { plugin: plugin.name, ..(plugin.filter.refusal)(query, slot)? }))
}

/// Returns the plugins about the rest of the cluster that apply to the pod.
fn cluster_plugins(query: &PodQuery<'_>) -> impl Iterator<Item = &'static FilterPlugin<ClusterFilter>> {
    CLUSTER_PLUGINS.iter().filter(|plugin| (plugin.filter.applies)(query) && query.may_refuse(plugin.name))
}

/// Whether one plugin refuses a node regardless of the pods that run on it.
pub fn is_unresolvable_for(plugin: &str, query: &PodQuery<'_>, node: &CandidateNode<'_>) -> bool {
    let of_node = NODE_PLUGINS.iter().filter(|known| known.name == plugin);
    let of_node = of_node.flat_map(|known| (known.filter)(query, node));
    let of_cluster = CLUSTER_PLUGINS.iter().filter(|known| known.name == plugin);
    let of_cluster = of_cluster.flat_map(|known| (known.filter.refusal)(query, node.slot));
    query.may_refuse(plugin) && of_node.chain(of_cluster).any(|refusal| refusal.unresolvable)
}

fn refuse_if(refused: bool, reason: &'static str, unresolvable: bool) -> Vec<FilterRefusal> {
    if refused { vec![FilterRefusal::new(reason.into(), unresolvable)] } else { Vec::new() }
}

/// NodeAffinity as PreFilter: a pod whose every term names nodes is checked against those only.
fn named_nodes(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    let elsewhere =
        query.constraints.named.as_ref().is_some_and(|names| !names.iter().any(|name| **name == *node.row.key.name));
    refuse_if(elsewhere, "node(s) didn't satisfy plugin(s) [NodeAffinity]", true)
}

/// VolumeRestrictions.
fn volume_in_use(query: &PodQuery<'_>, _slot: usize) -> Option<FilterRefusal> {
    query.storage.as_ref().ok()?.in_use().map(|reason| FilterRefusal::new(reason.into(), false))
}

/// NodeVolumeLimits.
fn volume_limits(query: &PodQuery<'_>, slot: usize) -> Option<FilterRefusal> {
    let node = query.world.node_cache().get(slot)?;
    let is_full = query.has_claims() && volume_limits::exceeds(query.world, query.row, &node.row);
    is_full.then(|| FilterRefusal::new(volume_limits::TOO_MANY.into(), false))
}

/// VolumeBinding.
fn volume_binding(query: &PodQuery<'_>, slot: usize) -> Option<FilterRefusal> {
    let node = query.world.node_cache().get(slot)?;
    query.storage.as_ref().ok()?.unbound_on(&node.row).map(|reason| FilterRefusal::new(reason.into(), true))
}

/// VolumeZone.
fn volume_zone(query: &PodQuery<'_>, slot: usize) -> Option<FilterRefusal> {
    let node = query.world.node_cache().get(slot)?;
    query.storage.as_ref().ok()?.out_of_zone(&node.row).map(|reason| FilterRefusal::new(reason.into(), true))
}

/// DynamicResources.
fn device_allocation(query: &PodQuery<'_>, slot: usize) -> Option<FilterRefusal> {
    let node = query.world.node_cache().get(slot)?;
    let refusal = query.devices.as_ref().ok()?.refusal(&node.row)?;
    let is_error = matches!(refusal, SearchFailure::Selector(_));
    let (SearchFailure::Node(reason) | SearchFailure::Selector(reason)) = refusal;
    Some(FilterRefusal { is_error, ..FilterRefusal::new(reason.into(), true) })
}

/// PodTopologySpread.
fn spread(query: &PodQuery<'_>, slot: usize) -> Option<FilterRefusal> {
    query
        .spread
        .refusal(query.world, slot)
        .map(|(reason, unresolvable)| FilterRefusal::new(reason.into(), unresolvable))
}

/// InterPodAffinity.
fn inter_pod_affinity(query: &PodQuery<'_>, slot: usize) -> Option<FilterRefusal> {
    query.inter_pod_affinity.refusal(slot).map(|(reason, unresolvable)| FilterRefusal::new(reason.into(), unresolvable))
}

/// NodeUnschedulable: a cordoned node, unless the pod tolerates its taint.
fn unschedulable(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    if !node.fields.unschedulable {
        return Vec::new();
    }
    let taint =
        Taint { key: "node.kubernetes.io/unschedulable".into(), effect: "NoSchedule".into(), ..Taint::default() };
    let tolerations = taint::untolerated(query.pod.items(&["spec", "tolerations"]), std::iter::once(&taint)).is_none();
    refuse_if(!tolerations, "node(s) were unschedulable", true)
}

/// NodeName. A pod that names an existing node is bound already, so this refuses only unknown names.
fn node_name(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    let named = query.pod.text(&["spec", "nodeName"]).unwrap_or_default();
    refuse_if(!named.is_empty() && named != &*node.row.key.name, "node(s) didn't match the requested node name", true)
}

/// TaintToleration.
fn taints(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    if node.fields.taints.is_empty() {
        return Vec::new();
    }
    let tolerations = query.pod.items(&["spec", "tolerations"]);
    let is_kept_away = taint::repelling(tolerations, &node.fields.taints).next().is_some();
    refuse_if(is_kept_away, "node(s) had untolerated taint(s)", true)
}

/// NodeAffinity.
fn node_affinity(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    if !query.constraints.selects_nodes && query.profile.added_affinity.is_null() {
        return Vec::new();
    }
    if !affinity::required_matches(&query.profile.added_affinity, node.row) {
        return refuse_if(true, "node(s) didn't match scheduler-enforced node affinity", true);
    }
    refuse_if(!affinity::node_matches(query.pod, node.row), "node(s) didn't match Pod's node affinity/selector", true)
}

/// NodePorts.
fn ports(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    let is_taken = || node.pods().filter_map(|pod| pod.pod()).any(|pod| query.fields.shares_host_port(pod));
    refuse_if(
        !query.fields.host_ports.is_empty() && is_taken(),
        "node(s) didn't have free ports for the requested pod ports",
        false,
    )
}

fn insufficient(resource: &str) -> Cow<'static, str> {
    match resource {
        "cpu" => "Insufficient cpu".into(),
        "memory" => "Insufficient memory".into(),
        other => format!("Insufficient {other}").into(),
    }
}

/// NodeResourcesFit: reports every resource that does not fit.
fn resources(query: &PodQuery<'_>, node: &CandidateNode<'_>) -> Vec<FilterRefusal> {
    let (constraints, used, has) = (&query.fields.requests, &node.load.requests, &node.fields.allocatable);
    let mut short = refuse_if(node.load.pods + 1 > node.fields.pods, "Too many pods", false);
    let mut need = |name: &str, wanted: i64, used: i64, offered: i64| {
        if wanted > 0 && wanted > offered - used {
            // More than the node has at all.
            short.push(FilterRefusal::new(insufficient(name), wanted > offered));
        }
    };
    need("cpu", constraints.cpu_milli, used.cpu_milli, has.cpu_milli);
    need("memory", constraints.memory, used.memory, has.memory);
    need("ephemeral-storage", constraints.ephemeral, used.ephemeral, has.ephemeral);
    let by_devices = |name: &str| query.devices.as_ref().is_ok_and(|devices| devices.provides(name, node.row));
    for (name, wanted) in constraints.others.iter().filter(|(name, _)| !by_devices(name)) {
        let of = |list: &crate::world::ResourceRequests| list.others.get(name).copied().unwrap_or(0);
        need(name, *wanted, of(used), of(has));
    }
    short
}
