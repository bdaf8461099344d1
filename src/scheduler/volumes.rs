//! The plugins about volumes: VolumeBinding, VolumeZone and VolumeRestrictions.
//!
//! Claims with WaitForFirstConsumer are bound on the pod's node: to an existing volume that is available there and matches, or else to a
//! volume that is provisioned. The choice is written at once, so that no two pods take the same volume; the pod is bound once its claims
//! are.

use super::nodes::CandidateNode;
use crate::kinds::persistent_volume::LOCAL_DRIVER;
use crate::object::quantity::Quantity;
use crate::object::{Object, Str};
use crate::world::storage::{self, BIND_COMPLETED, ClaimSource, PodClaim, VolumeCandidate, VolumeOwner};
use crate::world::{Row, World, WriteVerb, terms};
use hashbrown::HashSet;
use serde_json::{Value, json};
use std::sync::Arc;

/// The plugin that binds claims.
pub const BINDING: &str = "VolumeBinding";
/// The plugin that compares the zones in volumes' labels with the node's.
pub const ZONE: &str = "VolumeZone";
/// The plugin that keeps a volume to one pod.
pub const RESTRICTIONS: &str = "VolumeRestrictions";

const VOLUME_MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
/// A refusal of VolumeBinding: the volume of a claim cannot be had on the node.
pub const VOLUME_AFFINITY_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
/// A refusal of VolumeBinding: no volume is left, or can be made, for a claim that waits for its first consumer.
pub const NO_MATCHING_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const ZONE_CONFLICT: &str = "node(s) had no available volume zone";
const IN_USE: &str = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

/// Topology labels of volumes; several values are joined by `__`.
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Constraints of a pod's claims on nodes.
#[derive(Clone, Default)]
pub struct PodStorage<'w> {
    /// The volumes of its bound claims; `None` for a volume that is gone.
    bound: Vec<Option<(Arc<Row>, Object)>>,
    /// The claims among these whose status does not say so yet.
    binding: Vec<Str>,
    /// The claims that wait for its node, the smallest first, so that small claims do not take large volumes.
    waiting: Vec<WaitingClaim<'w>>,
    /// The uids of other pods that use a ReadWriteOncePod claim.
    other_consumers: Vec<Str>,
}

/// A claim that waits for its first consumer.
#[derive(Clone)]
struct WaitingClaim<'w> {
    row: Arc<Row>,
    claim: Object,
    wanted: Quantity,
    volumes: Vec<VolumeCandidate<'w>>,
    class: Object,
    /// The node that was already selected for the claim.
    selected: Option<Str>,
}

impl<'w> WaitingClaim<'w> {
    fn new(world: &'w World, row: &Arc<Row>, claim: Object, class: Object) -> WaitingClaim<'w> {
        let selected = match storage::claim_source(world, row, &claim) {
            ClaimSource::On(node) => Some(node.key.name.clone()),
            _ => None,
        };
        let (wanted, volumes) = (storage::requested_storage(&claim), storage::candidates(world, row, &claim));
        WaitingClaim { row: row.clone(), claim, wanted, volumes, class, selected }
    }
}

impl<'w> PodStorage<'w> {
    /// Reads the claims of a pod; the error says why no node can satisfy them.
    pub fn from_pod(world: &'w World, row: &Row, pod: &Object) -> Result<PodStorage<'w>, String> {
        let mut storage = PodStorage::default();
        let mut is_unbound = false;
        for used in storage::pod_claims(&row.key.name, pod.items(&["spec", "volumes"])) {
            let (claim, body) = find_usable_claim(world, row, &used)?;
            if is_for_one_pod(&body) {
                storage.other_consumers.extend(find_other_consumers(world, claim, row));
            }
            match (storage::volume_of(&body), body.text(&["status", "phase"])) {
                (Some(volume), phase) if phase == Some("Bound") || body.annotation(BIND_COMPLETED).is_some() => {
                    let volume = world.find(storage::VOLUMES, "", volume);
                    storage.bound.push(volume.map(|volume| (volume.clone(), volume.object())));
                    storage.binding.extend((phase != Some("Bound")).then(|| claim.key.name.clone()));
                }
                (Some(_), _) => is_unbound = true,
                (None, _) => match storage::unprovisioned_class(world, &body) {
                    Some(class) => storage.waiting.push(WaitingClaim::new(world, claim, body, class)),
                    None => is_unbound = true,
                },
            }
        }
        storage.waiting.sort_by_key(|waiting| waiting.wanted);
        if is_unbound { Err("pod has unbound immediate PersistentVolumeClaims".to_owned()) } else { Ok(storage) }
    }

    /// Whether it has no claims that a node could fail.
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.waiting.is_empty() && self.other_consumers.is_empty()
    }

    /// VolumeRestrictions: why no node can take it while another pod runs.
    pub fn in_use(&self) -> Option<&'static str> {
        (!self.other_consumers.is_empty()).then_some(IN_USE)
    }

    /// Returns this storage without the consumers on a node that are assumed to be removed.
    pub fn with_assumptions(&self, node: &CandidateNode<'_>) -> PodStorage<'w> {
        let mut storage = self.clone();
        let is_removed = |uid: &Str| node.assumed_changes().any(|(pod, change)| change < 0 && pod.uid == *uid);
        storage.other_consumers.retain(|uid| !is_removed(uid));
        storage
    }

    /// VolumeBinding: why a node cannot take it.
    pub fn unbound_on(&self, node: &Row) -> Option<&'static str> {
        if self.bound.iter().any(Option::is_none) {
            return Some(VOLUME_MISSING);
        }
        if !self.bound.iter().flatten().all(|(_, volume)| storage::is_available_on(volume, node)) {
            return Some(VOLUME_AFFINITY_CONFLICT);
        }
        self.match_claims(node).is_none().then_some(NO_MATCHING_VOLUME)
    }

    /// VolumeZone: why a node cannot take it. Nodes that are in no zone are in every one.
    pub fn out_of_zone(&self, node: &Row) -> Option<&'static str> {
        let zoned = |volume: &Row| {
            ZONES.iter().any(|label| match (volume.label(label), node.label(label)) {
                (Some(zones), Some(zone)) => !zones.split("__").any(|one| one == zone),
                (Some(_), None) => ZONES.iter().any(|label| node.label(label).is_some()),
                _ => false,
            })
        };
        self.bound.iter().flatten().any(|(volume, _)| zoned(volume)).then_some(ZONE_CONFLICT)
    }

    /// Whether a pod that is placed has to wait until its claims are bound.
    pub fn has_to_wait(&self) -> bool {
        !self.waiting.is_empty() || !self.binding.is_empty()
    }

    /// Returns the names of the claims that are not bound yet.
    pub fn unbound_claims(&self) -> Vec<&str> {
        let waiting = self.waiting.iter().map(|waiting| &waiting.row.key.name);
        waiting.chain(&self.binding).map(|name| &**name).collect()
    }

    /// Returns the writes for the pod's claims when it is placed on a node.
    pub fn claim_writes(&self, node: &Row) -> Vec<(WriteVerb, String)> {
        let met = self.match_claims(node).unwrap_or_default();
        let settle = |(waiting, volume): (&WaitingClaim<'_>, Option<&VolumeCandidate<'_>>)| match volume {
            Some(volume) if storage::owner(&volume.body, &waiting.row) == VolumeOwner::This => None,
            Some(volume) => {
                let why = format!("volume {} is kept for the claim {}", volume.row.key.name, waiting.row.key.path());
                Some((WriteVerb::Update(storage::bound_to_claim(volume.body.clone(), &waiting.row)), why))
            }
            None if waiting.claim.annotation(storage::SELECTED_NODE) == Some(&*node.key.name) => None,
            None => {
                let mut claim = waiting.claim.clone();
                claim.set(&["metadata", "annotations", storage::SELECTED_NODE], &*node.key.name);
                Some((
                    WriteVerb::Update(claim),
                    format!("the claim {} is met on {}", waiting.row.key.path(), node.key.name),
                ))
            }
        };
        met.into_iter().filter_map(settle).collect()
    }

    /// The volume of each open claim on a node, without one for a claim to be provisioned; `None` when a claim cannot be met.
    fn match_claims(&self, node: &Row) -> Option<Vec<(&WaitingClaim<'w>, Option<&VolumeCandidate<'w>>)>> {
        let mut taken: HashSet<&Str> = HashSet::new();
        let mut met = Vec::new();
        for waiting in &self.waiting {
            if waiting.selected.as_ref().is_some_and(|selected| *selected != node.key.name) {
                return None;
            }
            let free = |volume: &&VolumeCandidate<'_>| {
                storage::is_available_on(&volume.body, node) && !taken.contains(&volume.row.key.name)
            };
            // If volumes are kept for the claim, only these may be used.
            let is_kept = waiting.volumes.first().is_some_and(|volume| volume.is_kept);
            let volume = waiting.volumes.iter().filter(|volume| volume.is_kept == is_kept).find(free);
            if volume.is_none() && (is_kept || !can_provision_on(&waiting.class, node)) {
                return None;
            }
            taken.extend(volume.map(|volume| &volume.row.key.name));
            met.push((waiting, volume));
        }
        Some(met)
    }
}

/// Returns a claim of a pod; the error says why the pod cannot use it on any node.
fn find_usable_claim<'w>(world: &'w World, pod: &Row, used: &PodClaim) -> Result<(&'w Arc<Row>, Object), String> {
    let name = &used.name;
    let Some(claim) = world.get(&storage::key(&pod.key.namespace, name)) else {
        return Err(match used.is_ephemeral {
            true => {
                format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
            }
            false => format!("persistentvolumeclaim {name:?} not found"),
        });
    };
    let body = claim.object();
    if let (Some(volume), Some("Lost")) = (storage::volume_of(&body), body.text(&["status", "phase"])) {
        return Err(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"));
    }
    if claim.is_deleting() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    if used.is_ephemeral {
        storage::check_made_for_pod(claim, pod)?;
    }
    Ok((claim, body))
}

/// Whether volumes of a class can be provisioned for a node. kloop's own volumes are folders of the control plane's machine.
fn can_provision_on(class: &Object, node: &Row) -> bool {
    let topologies = class.items(&["allowedTopologies"]);
    let is_there = |topology: &Value| {
        let wanted = topology["matchLabelExpressions"].as_array().into_iter().flatten();
        let wanted = wanted.map(|one| json!({"key": one["key"], "operator": "In", "values": one["values"]}));
        terms::matches(&json!({"matchExpressions": wanted.collect::<Vec<_>>()}), node)
    };
    let is_provisioned = match class.text(&["provisioner"]) {
        Some(NO_PROVISIONER) => false,
        Some(LOCAL_DRIVER) => !storage::is_joined(node),
        _ => true,
    };
    is_provisioned && (topologies.is_empty() || topologies.iter().any(is_there))
}

fn is_for_one_pod(claim: &Object) -> bool {
    claim.items(&["spec", "accessModes"]).iter().any(|mode| mode == "ReadWriteOncePod")
}

/// The uids of other pods that use a claim on a node.
fn find_other_consumers(world: &World, claim: &Row, row: &Row) -> Vec<Str> {
    let lives = |pod: &Row| pod.pod().is_some_and(|pod| pod.node.is_some() && !pod.phase.is_terminal());
    let others = storage::consumers(world, claim).filter(|pod| pod.uid != row.uid && lives(pod));
    others.map(|pod| pod.uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use crate::kinds;
    use crate::object::{Key, Resource, Time};

    /// Nodes `a` and `b` in zones `za` and `zb`, a node `c` in none, classes, and the objects of a case.
    fn world(documents: &str) -> World {
        let fixed = "
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {topology.kubernetes.io/zone: za}}, status: {allocatable: {pods: '9'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b, labels: {topology.kubernetes.io/zone: zb}}, status: {allocatable: {pods: '9'}}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: by-hand}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: made}, provisioner: any, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: made-in-zb}, provisioner: any, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [zb]}]}]}
---
";
        let mut world = World::new(Time::UNIX_EPOCH);
        for (number, document) in format!("{fixed}{documents}").split("\n---\n").enumerate() {
            let mut object = Object(serde_yaml::from_str(document).unwrap());
            let kind = kinds::by_kind(object.api_version(), object.kind()).unwrap();
            object.set(&["metadata", "uid"], format!("{number}"));
            object.set(&["metadata", "resourceVersion"], "1");
            let namespace = if kind.namespaced { "default" } else { "" };
            object.set(&["metadata", "namespace"], namespace);
            world.put(Key::new(kind.resource, namespace, object.name()), object.0.to_string().into());
        }
        world
    }

    fn volume(name: &str, size: &str, class: &str, zone: &str) -> String {
        let affinity = format!(
            "nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}]}}]}}}}"
        );
        format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{capacity: {{storage: {size}}}, accessModes: [ReadWriteOnce], storageClassName: {class}, {affinity}}}}}"
        )
    }

    fn claim(name: &str, size: &str, class: &str, more: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce], storageClassName: {class}, resources: {{requests: {{storage: {size}}}}}{more}}}}}"
        )
    }

    fn pod(name: &str, claims: &[&str], more: &str) -> String {
        let volumes: Vec<String> = claims
            .iter()
            .map(|claim| format!("{{name: {claim}, persistentVolumeClaim: {{claimName: {claim}}}}}"))
            .collect();
        let volumes = volumes.join(", ");
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: x}}], volumes: [{volumes}]{more}}}}}"
        )
    }

    /// Returns the writes of the plan for pod `p` (nodes, reserved volumes, claims and their nodes), or its message.
    fn outcome(documents: &[String]) -> String {
        let world = world(&documents.join("\n---\n"));
        let plan = plan(&world, &Key::new(Resource("pods"), "default", "p"));
        let told = plan.writes.iter().map(|write| match &write.verb {
            WriteVerb::Bind { node, .. } => node.to_string(),
            WriteVerb::Update(object) if object.kind() == "PersistentVolume" => {
                format!("{}={}", object.name(), object.text(&["spec", "claimRef", "name"]).unwrap())
            }
            WriteVerb::Update(object) => {
                format!("{}@{}", object.name(), object.annotation(storage::SELECTED_NODE).unwrap())
            }
            WriteVerb::Status(pod) if pod.items(&["status", "conditions"]).is_empty() => {
                format!("waits on {}", pod.text(&["status", "nominatedNodeName"]).unwrap())
            }
            WriteVerb::Status(pod) => {
                let message = pod.items(&["status", "conditions"])[0]["message"].as_str().unwrap();
                message
                    .split(" no new claims")
                    .next()
                    .unwrap()
                    .trim_start_matches("0/2 nodes are available: ")
                    .to_owned()
            }
            _ => "?".to_owned(),
        });
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pod_is_bound_where_its_claims_can_be_met() {
        let bound = |zone: &str| {
            let mut claim = claim("d", "1Gi", "''", ", volumeName: v");
            claim.truncate(claim.len() - 1);
            [claim + ", status: {phase: Bound}}", volume("v", "1Gi", "''", zone)].to_vec()
        };
        let labelled = bound("za, zb")[1].replace("name: v", "name: v, labels: {topology.kubernetes.io/zone: zb__zc}");
        let p = || pod("p", &["d"], "");
        let nowhere = "2 node(s) didn't match PersistentVolume's node affinity.";
        let none = "2 node(s) didn't find available persistent volumes to bind.";
        let cases: [(&str, Vec<String>, &str); 15] = [
            ("its volume is there", [bound("zb"), vec![p()]].concat(), "b"),
            ("its volume is nowhere", [bound("zx"), vec![p()]].concat(), nowhere),
            ("by label", vec![bound("zb")[0].clone(), labelled, p()], "b"),
            (
                "its volume is gone",
                vec![bound("zb")[0].clone(), p()],
                "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
            ),
            ("no claim", vec![p()], "persistentvolumeclaim \"d\" not found"),
            ("unbound", vec![claim("d", "1Gi", "''", ""), p()], "pod has unbound immediate PersistentVolumeClaims"),
            (
                "by hand",
                vec![claim("d", "1Gi", "by-hand", ""), volume("v", "2Gi", "by-hand", "zb"), p()],
                "v=d waits on b",
            ),
            ("too small", vec![claim("d", "3Gi", "by-hand", ""), volume("v", "2Gi", "by-hand", "zb"), p()], none),
            (
                "kept for it elsewhere",
                vec![
                    claim("d", "1Gi", "made", ""),
                    volume("v", "2Gi", "made", "zx")
                        .replace("capacity", "claimRef: {name: d, namespace: default}, capacity"),
                    volume("w", "2Gi", "made", "za"),
                    p(),
                ],
                none,
            ),
            (
                "selected",
                vec![
                    claim("d", "1Gi", "made", "")
                        .replace("name: d}", "name: d, annotations: {volume.kubernetes.io/selected-node: b}}"),
                    p(),
                ],
                "waits on b",
            ),
            (
                "lost",
                vec![bound("za")[0].replace("Bound", "Lost"), p()],
                "persistentvolumeclaim \"d\" bound to non-existent persistentvolume \"v\"",
            ),
            ("made", vec![claim("d", "1Gi", "made-in-zb", ""), p()], "d@b waits on b"),
            (
                "rather found",
                vec![
                    claim("d", "1Gi", "made", ""),
                    volume("v", "2Gi", "made", "za"),
                    pod("p", &["d"], ", nodeSelector: {topology.kubernetes.io/zone: za}"),
                ],
                "v=d waits on a",
            ),
            (
                "each its own",
                vec![
                    claim("d", "2Gi", "by-hand", ""),
                    claim("e", "1Gi", "by-hand", ""),
                    volume("v", "2Gi", "by-hand", "zb"),
                    volume("w", "1Gi", "by-hand", "zb"),
                    pod("p", &["d", "e"], ""),
                ],
                "w=e v=d waits on b",
            ),
            (
                "two want one",
                vec![
                    claim("d", "1Gi", "by-hand", ""),
                    claim("e", "1Gi", "by-hand", ""),
                    volume("v", "2Gi", "by-hand", "zb"),
                    pod("p", &["d", "e"], ""),
                ],
                none,
            ),
        ];
        for (case, documents, wanted) in cases {
            let told = outcome(&documents);
            assert!(told.starts_with(wanted), "{case}: {told}");
        }
    }

    #[test]
    fn machine_that_has_joined_has_no_folders_of_the_cluster() {
        let far = "{apiVersion: v1, kind: Node, metadata: {name: far, labels: {zone: far}, annotations: {kloop.dev/machine: x}}, status: {allocatable: {pods: '9'}}}";
        let class = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: own}, provisioner: local.kloop.dev, volumeBindingMode: WaitForFirstConsumer}";
        let affinity = ", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [far]}]}]}}}}";
        let volume = volume("v", "1Gi", "own", "").split(", nodeAffinity").next().unwrap().to_owned();
        let (here, there) = (format!("{volume}}}}}"), format!("{volume}{affinity}"));
        let mut bound = claim("d", "1Gi", "own", ", volumeName: v");
        bound.truncate(bound.len() - 1);
        bound += ", status: {phase: Bound}}";
        let open = claim("d", "1Gi", "own", "");
        let asked = |selector: &str, storage: &[&String]| {
            let fixed = [far.to_owned(), class.to_owned(), pod("p", &["d"], selector)];
            outcome(&fixed.iter().chain(storage.iter().copied()).cloned().collect::<Vec<_>>())
        };
        let only_far = ", nodeSelector: {zone: far}";
        let told = asked(only_far, &[&bound, &here]);
        assert!(told.contains(" 1 node(s) didn't match PersistentVolume's node affinity, "), "{told}");
        let told = asked(only_far, &[&open]);
        assert!(told.contains(" 1 node(s) didn't find available persistent volumes to bind, "), "{told}");
        assert_eq!(asked(only_far, &[&bound, &there]), "far", "the volume says so");
        let told = asked("", &[&bound, &here]);
        assert!(told == "a" || told == "b", "{told}");
    }

    #[test]
    fn node_takes_no_more_volumes_than_its_drivers_can_attach() {
        let claims = ["d", "e", "f"].map(|name| claim(name, "1Gi", "made", ""));
        let limit = |node: &str, most: u32| {
            format!(
                "{{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {{name: {node}}}, spec: {{drivers: [{{name: any, nodeID: {node}, allocatable: {{count: {most}}}}}]}}}}"
            )
        };
        let other = |claim: &str| pod(&format!("of-{claim}"), &[claim], ", nodeName: a");
        let asked = |more: Vec<String>| {
            let told = [claims.to_vec(), more, vec![pod("p", &["d"], "")]].concat();
            outcome(&told)
        };
        assert_eq!(asked(vec![limit("a", 1), limit("b", 0)]), "d@a waits on a");
        assert_eq!(
            asked(vec![limit("a", 1), limit("b", 0), other("d")]),
            "d@a waits on a",
            "one volume is attached once"
        );
        let told = asked(vec![limit("a", 2), limit("b", 0), other("e"), other("f")]);
        assert!(told.starts_with("2 node(s) exceed max volume count."), "{told}");
        assert_eq!(
            asked(vec![limit("a", 2), other("e"), other("f")]),
            "d@b waits on b",
            "a node that says nothing has no limit"
        );
    }

    #[test]
    fn claim_for_one_pod_is_used_by_one() {
        let claim = claim("d", "1Gi", "made", "").replace("ReadWriteOnce", "ReadWriteOncePod");
        let other = |more: &str| pod("other", &["d"], &format!(", nodeName: a{more}"));
        let told = outcome(&[claim.clone(), other(""), pod("p", &["d"], "")]);
        assert!(told.starts_with(&format!("2 {IN_USE}.")), "{told}");
        let ended = other("").replace(", nodeName: a}", ", nodeName: a}, status: {phase: Succeeded}");
        assert!(outcome(&[claim, ended, pod("p", &["d"], "")]).ends_with(['a', 'b']));
    }

    #[test]
    fn pod_that_uses_a_claim_for_one_pod_is_preempted() {
        let claim = claim("d", "1Gi", "made", "").replace("ReadWriteOnce", "ReadWriteOncePod");
        let user = pod("other", &["d"], ", nodeName: a");
        let victims = |priority: i32| {
            let documents = [claim.clone(), user.clone(), pod("p", &["d"], &format!(", priority: {priority}"))];
            let plan = plan(&world(&documents.join("\n---\n")), &Key::new(Resource("pods"), "default", "p"));
            let deleted = plan.writes.iter().filter_map(|write| match &write.verb {
                WriteVerb::Delete { key, .. } => Some(key.name.to_string()),
                _ => None,
            });
            deleted.collect::<Vec<_>>()
        };
        assert_eq!(victims(10), ["other"]);
        assert_eq!(victims(0), [""; 0]);
    }

    #[test]
    fn claim_of_an_ephemeral_volume_is_the_pods_own() {
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: x}], volumes: [{name: d, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}}".to_owned();
        let waits = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-d\".";
        let told = outcome(std::slice::from_ref(&pod));
        assert!(told.starts_with(waits), "{told}");
        let foreign = claim("p-d", "1Gi", "made", "");
        let told = outcome(&[foreign.clone(), pod.clone()]);
        assert!(told.starts_with("PVC default/p-d was not created for pod default/p (pod is not owner)."), "{told}");
        // The pod is the seventh document, whose number is its uid.
        let owner = "name: p-d, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: '6', controller: true}]";
        let told = outcome(&[foreign.replace("name: p-d", owner), pod]);
        assert!(told.starts_with("p-d@"), "{told}");
    }

    #[test]
    fn pod_has_no_node_until_its_claims_are_bound() {
        let claim = claim("d", "1Gi", "made", "");
        let reserved = claim.replace("name: d}", "name: d, annotations: {volume.kubernetes.io/selected-node: b}}");
        let nominated = pod("p", &["d"], "").replace("]}}", "]}, status: {nominatedNodeName: b}}");
        let world = world(&[reserved.clone(), nominated.clone()].join("\n---\n"));
        let waits = plan(&world, &Key::new(Resource("pods"), "default", "p"));
        assert!(waits.writes.is_empty() && waits.events.is_empty(), "{:?}", waits.writes);
        assert_eq!(waits.waits, ["waiting for the claims d to be bound on node b"]);
        assert!(waits.scheduling_wait.is_some_and(|wait| wait.causes.contains(BINDING)));
        let binding = reserved.replace(", resources", ", volumeName: v, resources");
        let binding = binding.replace("annotations: {", "annotations: {pv.kubernetes.io/bind-completed: 'yes', ");
        assert_eq!(
            outcome(&[binding, volume("v", "1Gi", "made", "zb"), nominated.clone()]),
            "",
            "no reason to complain"
        );
        let bound = reserved
            .replace(", resources", ", volumeName: v, resources")
            .replace("}}}}", "}}}, status: {phase: Bound}}");
        assert_eq!(outcome(&[bound, volume("v", "1Gi", "made", "zb"), nominated]), "b");
    }
}
