//! Prerequisites of a pod besides a node: a node that answers, its claims, ConfigMaps and Secrets.

use super::dry_run::with_dry_run;
use super::remedy::{in_namespace, link_to_missing_object};
use super::{CauseLink, ControlPlaneState, ConvergenceState, node, workload};
use crate::controllers::{ephemeral_volume, node_lifecycle, pv_binder, resource_claim_templates, volume_expand};
use crate::kinds::persistent_volume::LOCAL_DRIVER;
use crate::kubelet;
use crate::object::{Key, Object, Resource};
use crate::scheduler::explain::{NO_MATCHING_VOLUME, NodeVerdict, explain};
use crate::world::{Row, World, devices, storage};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the missing prerequisites of a pod; none for an ended pod.
pub fn links(world: &mut World, row: &Row, plane: &ControlPlaneState) -> Vec<CauseLink> {
    let Some(fields) = row.pod().filter(|pod| !pod.phase.is_terminal()) else { return Vec::new() };
    let mut links = Vec::new();
    if let Some(name) = fields.node.as_ref().filter(|_| !plane.hides_nodes) {
        let key = Key::new(Resource("nodes"), "", name);
        let link = match world.get(&key).cloned() {
            Some(found) => node::link(&found),
            None => {
                let next = format!(
                    "register the node again (kloop reconcile does so for its machine when it starts, kloop node add for others), or \
                     delete the pod: kloop delete pod/{}{}",
                    row.key.name,
                    in_namespace(&row.key)
                );
                link_to_missing_object(format!("node/{name}"), "Ready", node_lifecycle::LOOP.name, next)
            }
        };
        links.push(CauseLink { prerequisite: Some(key), ..link });
    }
    // A node that is fine is worth a line only where the pod is not.
    links.retain(|link| link.state != ConvergenceState::Converged);
    if fields.ready || row.is_deleting() {
        return links;
    }
    let pod = row.object();
    for used in storage::pod_claims(&row.key.name, pod.items(&["spec", "volumes"])) {
        let name = used.name;
        let key = storage::key(&row.key.namespace, &name);
        let link = match world.get(&key).cloned() {
            Some(found) if used.is_ephemeral && storage::check_made_for_pod(&found, row).is_err() => {
                foreign_claim(&found, row)
            }
            Some(found) => claim(world, &found, plane),
            None => {
                let next = format!("create it: apply a PersistentVolumeClaim {name:?}{}", in_namespace(&key));
                link_to_missing_object(format!("persistentvolumeclaim/{name}"), "Bound", pv_binder::LOOP.name, next)
            }
        };
        links.push(CauseLink { prerequisite: Some(key), ..link });
    }
    links.retain(|link| link.state != ConvergenceState::Converged);
    links.extend(missing_claim_templates(world, &pod));
    links.extend(references(&pod).iter().filter_map(|(reference, keys)| source(world, row, reference, keys, plane)));
    links
}

/// The links of the ResourceClaimTemplates that a pod names, and that do not exist: without its claims the pod gets no node.
fn missing_claim_templates(world: &World, pod: &Object) -> Vec<CauseLink> {
    let made = pod.items(&["status", "resourceClaimStatuses"]);
    let claims = pod.items(&["spec", "resourceClaims"]).iter();
    let pending = claims.filter(|claim| !made.iter().any(|one| one["name"] == claim["name"]));
    let templates = pending.filter_map(|claim| claim["resourceClaimTemplateName"].as_str());
    let missing = templates.filter(|name| world.find(devices::TEMPLATES, pod.namespace(), name).is_none());
    let link = |name: &str| {
        let key = Key::new(Resource(devices::TEMPLATES), pod.namespace(), name);
        let next = format!("create it: apply a ResourceClaimTemplate {name:?}{}", in_namespace(&key));
        let what = format!("resourceclaimtemplate/{name}");
        CauseLink {
            prerequisite: Some(key),
            ..link_to_missing_object(what, "exists", resource_claim_templates::LOOP.name, next)
        }
    };
    missing.map(link).collect()
}

/// The link of a claim that has the name of a pod's ephemeral volume and belongs to others.
fn foreign_claim(claim: &Row, pod: &Row) -> CauseLink {
    let (name, pod_name, namespace_flag) = (&claim.key.name, &pod.key.name, in_namespace(&claim.key));
    let link = CauseLink {
        wanted: format!("made for pod {pod_name}"),
        seen: "not made for the pod".into(),
        by: ephemeral_volume::LOOP.name,
        ..CauseLink::from_row(claim)
    };
    link.stuck(format!(
        "give the pod or its volume another name, or delete the claim with its data: kloop delete pvc/{name}{namespace_flag}"
    ))
}

/// The link of a claim.
pub fn claim(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let object = row.object();
    let phase = object.text(&["status", "phase"]).unwrap_or("Pending");
    let link = CauseLink { wanted: "Bound".into(), seen: phase.to_owned(), ..CauseLink::from_row(row) };
    if phase == "Bound" {
        return if storage::is_too_small(&object) { growing_claim(world, row, &object, link, plane) } else { link };
    }
    let waits = storage::is_awaiting_consumer(world, row, &object) && !is_given_up(world, row);
    let link = with_dry_run(world, row, CauseLink { state: ConvergenceState::Converging, ..link }, plane);
    let is_due = link.seen.contains("; due: ");
    let waiting = [waits_for(world, row)].into_iter().filter(|text| !text.is_empty());
    let waiting = waiting.chain(missing_class(world, &object)).collect::<Vec<_>>().join("; ");
    let link = CauseLink { error: link.error.or(Some(waiting)).filter(|text| !text.is_empty()), ..link };
    link.stuck_if(!is_due && !waits, || remedy_of_claim(world, row, &object))
}

/// Says that the class of a claim does not exist. A claim may have a class that exists only by its name, for volumes that users apply.
fn missing_class(world: &World, claim: &Object) -> Option<String> {
    // A claim that names its volume needs no class.
    let class = claim.text(&["spec", "storageClassName"]).filter(|class| !class.is_empty());
    let class = class.filter(|_| storage::volume_of(claim).is_none());
    let missing = class.filter(|_| storage::class_of(world, claim).is_none());
    missing.map(|class| format!("StorageClass {class:?} does not exist"))
}

/// Returns how a claim gets a volume.
fn remedy_of_claim(world: &World, row: &Row, claim: &Object) -> String {
    if let Some(name) = storage::volume_of(claim) {
        return match world.find(storage::VOLUMES, "", name) {
            None => format!(
                "apply the PersistentVolume {name:?}, or delete the claim and create it without spec.volumeName"
            ),
            Some(_) => "delete the claim and create it with another spec.volumeName, or without one".to_owned(),
        };
    }
    if ["dataSource", "dataSourceRef"].iter().any(|field| claim.value_at(&["spec", field]).is_some()) {
        let remedy = "delete the claim and create it without spec.dataSource and spec.dataSourceRef, or run a populator for them";
        return remedy.to_owned();
    }
    let class = claim.text(&["spec", "storageClassName"]).unwrap_or_default();
    let size = claim.text(&["spec", "resources", "requests", "storage"]).unwrap_or("its size");
    let volume = format!(
        "apply a PersistentVolume of at least {size} with the claim's access modes and storageClassName {class:?}"
    );
    let provisioner = storage::class_of(world, claim).map(|class| class.text(&["provisioner"]).map(str::to_owned));
    match provisioner {
        None if class.is_empty() => volume,
        None => {
            let (me, namespace_flag) = (&row.key.name, in_namespace(&row.key));
            format!(
                "apply the StorageClass {class:?}, or delete the claim (kloop delete pvc/{me}{namespace_flag}) and apply it with \
                 {}, or {volume}",
                existing_classes(world)
            )
        }
        Some(Some(name)) if name != LOCAL_DRIVER && !name.starts_with(storage::BUILT_IN_PROVISIONERS) => {
            format!("check that the provisioner {name} runs, or {volume}")
        }
        Some(_) => volume,
    }
}

/// Names the classes that a claim can have: `storageClassName: local`.
fn existing_classes(world: &World) -> String {
    let names: Vec<&str> = world.list(storage::CLASSES).map(|class| &*class.key.name).take(MAX_NAMED_CLASSES).collect();
    if names.is_empty() { "an existing class".into() } else { format!("storageClassName: {}", names.join(" or ")) }
}

/// Maximum number of classes to name.
const MAX_NAMED_CLASSES: usize = 3;

/// The link of a bound claim that requests more storage than it has.
fn growing_claim(
    world: &mut World,
    row: &Row,
    claim: &Object,
    link: CauseLink,
    plane: &ControlPlaneState,
) -> CauseLink {
    let [size, wanted] = [&["status", "capacity", "storage"][..], &["spec", "resources", "requests", "storage"]]
        .map(|path| claim.text(path).unwrap_or_default().to_owned());
    let (seen, state) = (format!("Bound with {size}"), ConvergenceState::Converging);
    let by = volume_expand::LOOP.name;
    let link = CauseLink { wanted: format!("Bound with {wanted}"), seen, state, by, ..link };
    let link = with_dry_run(world, row, link, plane);
    let waits = waits_for(world, row);
    let is_due = link.seen.contains("; due: ");
    let link = CauseLink { error: link.error.or(Some(waits)).filter(|text| !text.is_empty()), ..link };
    let volume = storage::volume_of(claim).unwrap_or_default();
    link.stuck_if(!is_due, || {
        format!(
            "run the resizer of the volume's driver, or, if the volume has the space, set its size: kloop patch \
             pv/{volume} -p '{{\"spec\":{{\"capacity\":{{\"storage\":\"{wanted}\"}}}}}}'"
        )
    })
}

/// The link of a volume, whose reclaim policy can fail.
pub fn volume(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let link = workload::link(world, row, plane);
    let object = row.object();
    if row.is_deleting() || object.text(&["status", "phase"]) != Some("Failed") {
        return link;
    }
    let error = object.text(&["status", "message"]).map(str::to_owned);
    let (wanted, by, name) = ("reclaimed".to_owned(), pv_binder::LOOP.name, &row.key.name);
    CauseLink { wanted, seen: "Failed".into(), by, error, ..link }.stuck(format!(
        "keep it: kloop patch pv/{name} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}', or delete it: \
         kloop delete pv/{name}"
    ))
}

/// Whether no node has a volume for a claim that waits for its pod's node, so that the pod would wait forever.
fn is_given_up(world: &World, claim: &Row) -> bool {
    let waiting = storage::consumers(world, claim).filter(|pod| pod.pod().is_some_and(|fields| fields.node.is_none()));
    let is_refused = |verdict: &NodeVerdict| !verdict.refusals.is_empty();
    let for_lack = |verdict: &NodeVerdict| {
        verdict.refused().is_some_and(|first| first.reasons.iter().any(|reason| reason == NO_MATCHING_VOLUME))
    };
    waiting.map(|pod| explain(world, &pod.key)).any(|all| all.iter().all(is_refused) && all.iter().any(for_lack))
}

fn waits_for(world: &mut World, row: &Row) -> String {
    super::dry_run::dry_run(world, &row.key).waits.join("; ")
}

/// A ConfigMap or Secret that a pod cannot do without: its resource and name.
type RequiredObject = (&'static str, String);

/// Returns a pod's required references, with the keys that it names.
fn references(pod: &Object) -> BTreeMap<RequiredObject, Vec<String>> {
    let mut found: BTreeMap<RequiredObject, Vec<String>> = BTreeMap::new();
    let mut note = |resource: &'static str, source: &Value, name: &str, keys: Vec<String>| {
        // The cluster creates this ConfigMap itself.
        let given = source[name].as_str().filter(|name| *name != "kube-root-ca.crt");
        if let Some(name) = given.filter(|_| source["optional"] != true) {
            found.entry((resource, name.to_owned())).or_default().extend(keys);
        }
    };
    let items = |source: &Value| -> Vec<String> {
        let items = source["items"].as_array().into_iter().flatten();
        items.filter_map(|item| item["key"].as_str()).map(str::to_owned).collect()
    };
    for volume in pod.items(&["spec", "volumes"]) {
        note("configmaps", &volume["configMap"], "name", items(&volume["configMap"]));
        note("secrets", &volume["secret"], "secretName", items(&volume["secret"]));
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            note("configmaps", &source["configMap"], "name", items(&source["configMap"]));
            note("secrets", &source["secret"], "name", items(&source["secret"]));
        }
    }
    for container in pod.containers() {
        for from in container["envFrom"].as_array().into_iter().flatten() {
            note("configmaps", &from["configMapRef"], "name", Vec::new());
            note("secrets", &from["secretRef"], "name", Vec::new());
        }
        for variable in container["env"].as_array().into_iter().flatten() {
            let from = &variable["valueFrom"];
            let key = |source: &Value| source["key"].as_str().map(str::to_owned).into_iter().collect();
            note("configmaps", &from["configMapKeyRef"], "name", key(&from["configMapKeyRef"]));
            note("secrets", &from["secretKeyRef"], "name", key(&from["secretKeyRef"]));
        }
    }
    found
}

/// The link of a ConfigMap or Secret, when it or one of its keys is missing.
fn source(
    world: &World,
    pod: &Row,
    (resource, name): &RequiredObject,
    keys: &[String],
    plane: &ControlPlaneState,
) -> Option<CauseLink> {
    let key = Key::new(Resource(resource), &pod.key.namespace, name);
    let (what, namespace_flag) = (super::name(&key), in_namespace(&key));
    let make = if *resource == "secrets" { "secret generic" } else { "configmap" };
    let Some(row) = world.get(&key) else {
        let next = format!("create it: kloop create {make} {name} --from-literal=KEY=VALUE{namespace_flag}");
        let link = link_to_missing_object(what, "exists", kubelet::LOOP.name, next);
        return Some(CauseLink { prerequisite: Some(key), ..link });
    };
    let object = row.object();
    let has = |key: &str| ["data", "binaryData", "stringData"].iter().any(|field| object.0[*field].get(key).is_some());
    let missing = keys.iter().find(|key| !has(key))?;
    let link = CauseLink {
        wanted: format!("a key {missing:?}"),
        seen: "it has no such key".into(),
        what,
        by: kubelet::LOOP.name,
        prerequisite: Some(key.clone()),
        ..CauseLink::default()
    };
    let field = if *resource == "secrets" { "stringData" } else { "data" };
    let add = if plane.is_preview || !row.owners.is_empty() {
        plane.correct(world, row)
    } else {
        let me = super::name(&key);
        format!("kloop patch {me}{namespace_flag} --type=merge -p '{{\"{field}\":{{\"{missing}\":\"VALUE\"}}}}'")
    };
    Some(link.stuck(format!("add the key {missing:?}: {add}")))
}
