//! Binds each claim to the smallest volume that fulfils it, and protects claims, volumes and VolumeAttributesClasses in use from deletion.
//!
//! Makes separate plans for claims and volumes, each of which writes its own status. Users and
//! [`volume_provisioner`](super::volume_provisioner) create volumes; this module creates none.

use super::status;
use crate::kinds::persistent_volume::{self, LOCAL_DRIVER};
use crate::kinds::persistent_volume_claim::{self, CLASS_ANNOTATION};
use crate::kinds::shared::default_class;
use crate::kinds::volume_attributes_class;
use crate::object::{Key, Object, Resource, time};
use crate::world::storage::{
    self, BIND_COMPLETED, BOUND_BY_CONTROLLER, BUILT_IN_PROVISIONERS, CLAIMS, PROVISIONED_BY, PROVISIONER, VOLUMES,
    VolumeOwner,
};
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb};
use serde_json::{Value, json};
use std::sync::Arc;

const ATTRIBUTES_CLASSES: &str = "volumeattributesclasses.storage.k8s.io";

/// The loop of claims and volumes.
pub const LOOP: Loop = Loop { name: "persistentvolume-controller", root: CLAIMS, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ATTRIBUTES_CLASSES => vec![row.key.clone()],
        CLAIMS => {
            let spec = row.field("spec");
            let volume = spec["volumeName"].as_str().map(|name| Key::new(Resource(VOLUMES), "", name));
            volume.into_iter().chain([row.key.clone()]).chain(deleted_classes(world)).collect()
        }
        VOLUMES => {
            let claims = world.list(CLAIMS).filter(|claim| may_bind(claim, &row.key.name));
            claims.map(|claim| claim.key.clone()).chain([row.key.clone()]).chain(deleted_classes(world)).collect()
        }
        "pods" => {
            let claims = storage::used_by(world, row);
            claims
                .filter(|claim| claim.is_deleting() || storage::is_open(claim))
                .map(|claim| claim.key.clone())
                .collect()
        }
        storage::CLASSES => {
            let open = world.list(CLAIMS).filter(|claim| storage::is_open(claim));
            open.map(|claim| claim.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a change of a volume concerns a claim: the claim is bound to this volume or to none.
fn may_bind(claim: &Row, volume: &str) -> bool {
    // There may be very many claims, nearly all of them bound to others, so that none is decoded.
    let names = |volume: &str| claim.mentions(&format!("\"volumeName\":\"{volume}\""));
    names(volume) || names("") || !claim.mentions("\"volumeName\"")
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    let object = row.object();
    match key.resource.0 {
        CLAIMS if row.is_deleting() => release_claim(world, row, object, &mut plan),
        CLAIMS => bind(world, row, object, &mut plan),
        ATTRIBUTES_CLASSES => release_class(world, row, object, &mut plan),
        _ => sync_volume(world, row, object, &mut plan),
    }
    plan
}

/// The VolumeAttributesClasses that wait for the last claim or volume with their attributes.
fn deleted_classes(world: &World) -> impl Iterator<Item = Key> {
    world.list(ATTRIBUTES_CLASSES).filter(|class| class.is_deleting()).map(|class| class.key.clone())
}

/// Removes the finalizer of a deleted VolumeAttributesClass once no claim and no volume names it.
fn release_class(world: &World, row: &Row, object: Object, plan: &mut Plan) {
    if !row.is_deleting() || !row.has_finalizer(volume_attributes_class::PROTECTION) {
        return;
    }
    const FIELDS: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    let names_it = |user: &&Arc<Row>| {
        let user = user.body();
        FIELDS.iter().any(|field| user.text(field) == Some(&*row.key.name))
    };
    match world.list(CLAIMS).chain(world.list(VOLUMES)).find(names_it) {
        Some(user) => plan.wait(format!("{} {} uses the class", user.key.resource.plural(), user.key.name)),
        None => {
            let released = object.without_finalizer(volume_attributes_class::PROTECTION);
            plan.write(WriteVerb::Update(released), "no claim and no volume uses the class");
        }
    }
}

/// Removes the finalizer of a deleted claim once no pod uses it.
fn release_claim(world: &World, row: &Row, object: Object, plan: &mut Plan) {
    if !row.has_finalizer(persistent_volume_claim::PROTECTION) {
        return;
    }
    // An ended pod counts too: it refers to the claim as long as it exists.
    let is_placed = |pod: &&Arc<Row>| pod.pod().is_some_and(|pod| pod.node.is_some());
    match storage::consumers(world, row).find(is_placed) {
        Some(pod) => plan.wait(format!("pod {} uses the claim", pod.key.name)),
        None => plan.write(
            WriteVerb::Update(object.without_finalizer(persistent_volume_claim::PROTECTION)),
            "no pod uses the claim",
        ),
    }
}

fn bind(world: &World, row: &Row, mut claim: Object, plan: &mut Plan) {
    let named = storage::volume_of(&claim).map(str::to_owned);
    let volume = match &named {
        Some(name) => world.find(VOLUMES, "", name),
        None => storage::best(world, row, &claim),
    };
    let Some(volume) = volume else {
        return report_unbound(world, row, claim, named, plan);
    };
    let mut body = volume.object();
    if let Some((reason, message)) = refusal(row, &claim, volume, &body) {
        plan.event(row, EventType::Warning, reason, message.clone());
        plan.wait(message);
        return write_unbound_phase(claim, plan);
    }
    if storage::owner(&body, row) == VolumeOwner::Unclaimed {
        let was_kept = storage::is_kept(&body);
        body.set(&["spec", "claimRef"], storage::reference(row));
        if !was_kept {
            body.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
        }
        plan.write(WriteVerb::Update(body.clone()), format!("it fulfils the claim {}", row.key.path()));
    }
    let completed = claim.annotation(BIND_COMPLETED).is_some();
    if named.is_none() || !completed {
        if named.is_none() {
            claim.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
        }
        claim.set(&["metadata", "annotations", BIND_COMPLETED], "yes");
        claim.set(&["spec", "volumeName"], &*volume.key.name);
        return plan.write(WriteVerb::Update(claim), format!("volume {} fulfils it", volume.key.name));
    }
    let mut new = status::status_map(&claim);
    new.insert("phase".into(), "Bound".into());
    new.insert("accessModes".into(), body.value_at(&["spec", "accessModes"]).cloned().unwrap_or(json!([])));
    new.insert("capacity".into(), body.value_at(&["spec", "capacity"]).cloned().unwrap_or(json!({})));
    status::write(plan, claim, new.into(), "it is bound");
}

/// Returns reason and message of the event about a volume that a claim names and cannot have. A volume that names the
/// claim itself is not checked, as in Kubernetes.
fn refusal(row: &Row, claim: &Object, volume: &Row, body: &Object) -> Option<(&'static str, String)> {
    let name = &*volume.key.name;
    let completed = claim.annotation(BIND_COMPLETED).is_some();
    match storage::owner(body, row) {
        VolumeOwner::Other if completed => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            Some(("ClaimMisbound", message.to_owned()))
        }
        VolumeOwner::Other => Some(("FailedBinding", format!("volume {name:?} already bound to a different claim."))),
        VolumeOwner::Unclaimed if !completed && !storage::is_kept(body) => {
            let why = storage::find_mismatch(volume, body, claim)?;
            Some(("VolumeMismatch", format!("Cannot bind to requested volume {name:?}: {why}")))
        }
        VolumeOwner::Unclaimed | VolumeOwner::This => None,
    }
}

/// Reports why a claim has no volume, and asks the provisioner of its class for one.
fn report_unbound(world: &World, row: &Row, claim: Object, named: Option<String>, plan: &mut Plan) {
    if claim.annotation(BIND_COMPLETED).is_some() {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        plan.event(row, EventType::Warning, "ClaimLost", message);
    } else if let Some(name) = named {
        plan.wait(format!("volume {name} does not exist"));
    } else if let Some(class) = default_class(world, &claim) {
        let mut claim = claim;
        claim.set(&["spec", "storageClassName"], class.name());
        let why = format!("it names no class, and {} is the default class", class.name());
        return plan.write(WriteVerb::Update(claim), why);
    } else if let Some(class) = storage::class_of(world, &claim) {
        match storage::is_awaiting_consumer(world, row, &claim) {
            true => await_consumer(world, row, plan),
            false => request_volume(row, &claim, &class, plan),
        }
    } else {
        report_missing_class(row, &claim, plan);
    }
    if plan.writes.is_empty() {
        plan.wait("no volume fulfils the claim");
        write_unbound_phase(claim, plan);
    }
}

/// Returns the default class for a claim that names none, because it was created before there was a default class.
fn default_class(world: &World, claim: &Object) -> Option<Object> {
    let names_class = claim.value_at(&["spec", "storageClassName"]).is_some_and(|class| !class.is_null());
    if names_class || claim.annotation(CLASS_ANNOTATION).is_some() {
        return None;
    }
    let classes: Vec<Object> = world.list(storage::CLASSES).map(|class| class.object()).collect();
    default_class::find_default_class(&classes, default_class::STORAGE).cloned()
}

fn report_missing_class(row: &Row, claim: &Object, plan: &mut Plan) {
    match claim.text(&["spec", "storageClassName"]).filter(|class| !class.is_empty()) {
        None => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            plan.event(row, EventType::Normal, "FailedBinding", message);
        }
        Some(class) => {
            let message = format!("storageclass.storage.k8s.io {class:?} not found");
            plan.event(row, EventType::Warning, "ProvisioningFailed", message);
        }
    }
}

/// Names the provisioner of the class in the claim, which makes it act, and reports that the claim waits for it.
fn request_volume(row: &Row, claim: &Object, class: &Object, plan: &mut Plan) {
    let provisioner = class.text(&["provisioner"]).unwrap_or_default();
    if provisioner.starts_with(BUILT_IN_PROVISIONERS) {
        let message = format!("no volume plugin matched name: {provisioner}");
        return plan.event(row, EventType::Warning, "ProvisioningFailed", message);
    }
    if PROVISIONER.iter().any(|annotation| claim.annotation(annotation) != Some(provisioner)) {
        let mut claim = claim.clone();
        for annotation in PROVISIONER {
            claim.set(&["metadata", "annotations", annotation], provisioner);
        }
        return plan.write(WriteVerb::Update(claim), format!("{provisioner} has to create a volume for it"));
    }
    if provisioner != LOCAL_DRIVER {
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        plan.event(row, EventType::Normal, "ExternalProvisioning", message);
        plan.wait(format!("the external provisioner {provisioner} has to create a volume"));
    }
}

/// Writes the phase of a claim that has no volume: Lost if it had one.
fn write_unbound_phase(claim: Object, plan: &mut Plan) {
    let phase = if claim.annotation(BIND_COMPLETED).is_some() { "Lost" } else { "Pending" };
    let mut new = status::status_map(&claim);
    new.insert("phase".into(), phase.into());
    status::write(plan, claim, new.into(), "no volume fulfils it");
}

/// Reports that a claim with `WaitForFirstConsumer` waits for a pod, or for the pod's node.
fn await_consumer(world: &World, row: &Row, plan: &mut Plan) {
    let pods: Vec<&str> = storage::consumers(world, row).map(|pod| &*pod.key.name).collect();
    let (reason, message) = match &pods[..] {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
    };
    plan.event(row, EventType::Normal, reason, message.clone());
    plan.wait(message);
}

/// Sets a volume's phase (Available, Bound, Released or Failed), and removes the finalizer of a deleted volume that is
/// not bound.
fn sync_volume(world: &World, row: &Row, volume: Object, plan: &mut Plan) {
    let uid = volume.text(&["spec", "claimRef", "uid"]).filter(|uid| !uid.is_empty());
    let (phase, failure) = match uid.map(|uid| world.by_uid(uid)) {
        None => ("Available", None),
        Some(Some(_)) => ("Bound", None),
        Some(None) => match reclaim_failure(row, &volume, plan) {
            None => ("Released", None),
            failure => ("Failed", failure),
        },
    };
    let held = row.has_finalizer(persistent_volume::PROTECTION);
    if row.is_deleting() && held && phase != "Bound" {
        return plan.write(
            WriteVerb::Update(volume.without_finalizer(persistent_volume::PROTECTION)),
            "no claim is bound to it",
        );
    }
    let mut new = status::status_map(&volume);
    if new.get("phase").and_then(Value::as_str) != Some(phase) {
        new.insert("phase".into(), phase.into());
        new.insert("lastPhaseTransitionTime".into(), time::rfc3339(world.now).into());
        if let Some((reason, message)) = &failure {
            plan.event(row, EventType::Warning, *reason, message.clone());
        }
    }
    match failure {
        Some((_, message)) => drop(new.insert("message".into(), message.into())),
        None => drop(new.remove("message")),
    }
    status::write(plan, volume, new.into(), "its claim was created or deleted");
}

/// Returns reason and message of the event about a released volume whose reclaim policy cannot be carried out. kloop
/// deletes the content of its own volumes only: paths of the machine can hold files that nothing else has.
fn reclaim_failure(row: &Row, volume: &Object, plan: &mut Plan) -> Option<(&'static str, String)> {
    let failure = match volume.text(&["spec", "persistentVolumeReclaimPolicy"]) {
        Some("Recycle") => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        Some("Delete") => ("VolumeFailedDelete", deletion_failure(row, volume, plan)?),
        _ => return None,
    };
    plan.wait(failure.1.clone());
    Some(failure)
}

/// Returns why nothing deletes the content of a released volume; `None` if a provisioner does.
fn deletion_failure(row: &Row, volume: &Object, plan: &mut Plan) -> Option<String> {
    if volume.text(&["spec", "csi", "driver"]) == Some(LOCAL_DRIVER) {
        return None;
    }
    let provisioner = volume.annotation(PROVISIONED_BY).unwrap_or(BUILT_IN_PROVISIONERS);
    if !provisioner.starts_with(BUILT_IN_PROVISIONERS) {
        plan.wait(format!("the external provisioner {provisioner} has to delete it"));
        return None;
    }
    Some(match volume.text(&["spec", "hostPath", "path"]) {
        Some(path) => format!(
            "kloop deletes no hostPath: remove the files in {path} and delete the volume, or set its reclaim policy to \
             Retain"
        ),
        None => {
            let name = &*row.key.name;
            format!("error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched")
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use serde_json::{Value, json};

    const STORAGE: &str = "
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v1, finalizers: [kubernetes.io/pv-protection]}, spec: {capacity: {storage: 2Gi}, accessModes: [ReadWriteOnce], storageClassName: hand}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v2}, spec: {capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce], storageClassName: hand}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: small, finalizers: [kubernetes.io/pvc-protection]}, spec: {accessModes: [ReadWriteOnce], storageClassName: hand, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: huge}, spec: {accessModes: [ReadWriteOnce], storageClassName: hand, resources: {requests: {storage: 50Gi}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mode}, spec: {accessModes: [ReadWriteMany], storageClassName: hand, resources: {requests: {storage: 1Gi}}}}
";

    fn phase(cluster: &Cluster, resource: &'static str, name: &str) -> String {
        cluster.value(resource, name, "/status/phase").as_str().unwrap_or_default().to_owned()
    }

    /// Follows `golden/storage-binding`.
    #[test]
    fn claims_bind_to_volumes() {
        for seed in 0..6 {
            let mut cluster = cluster(STORAGE).seeded(seed);
            cluster.settle();
            let claims = ["small", "huge", "mode"].map(|name| phase(&cluster, "persistentvolumeclaims", name));
            assert_eq!(claims, ["Bound", "Pending", "Pending"]);
            assert_eq!(["v1", "v2"].map(|name| phase(&cluster, "persistentvolumes", name)), ["Bound", "Available"]);
            assert_eq!(cluster.value("persistentvolumeclaims", "small", "/spec/volumeName"), "v1");
            assert_eq!(cluster.value("persistentvolumeclaims", "small", "/status/capacity/storage"), "2Gi");
            cluster.add("{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: small}}]}}");
            cluster.settle();
            cluster.delete("persistentvolumeclaims", "small", Default::default());
            cluster.settle();
            assert_ne!(cluster.value("persistentvolumeclaims", "small", "/metadata/deletionTimestamp"), Value::Null);
            cluster.patch("pods", "user", json!({"status": {"phase": "Succeeded"}}));
            cluster.settle();
            assert_eq!(cluster.names("persistentvolumeclaims"), "huge mode small", "a claim in use still exists");
            cluster.delete("pods", "user", Default::default());
            cluster.settle();
            assert_eq!(cluster.names("persistentvolumeclaims"), "huge mode");
            assert_eq!(phase(&cluster, "persistentvolumes", "v1"), "Released");
            cluster.delete("persistentvolumes", "v1", Default::default());
            cluster.settle();
            assert_eq!(cluster.names("persistentvolumes"), "v2");
        }
    }

    #[test]
    fn volume_attributes_class_ends_with_its_last_claim() {
        let mut cluster = cluster(
            "
{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, driverName: d, metadata: {name: fast, finalizers: [kubernetes.io/vac-protection]}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {volumeAttributesClassName: fast, storageClassName: hand}}
",
        );
        cluster.delete("volumeattributesclasses.storage.k8s.io", "fast", Default::default());
        cluster.settle();
        assert_eq!(cluster.names("volumeattributesclasses.storage.k8s.io"), "fast");
        cluster.delete("persistentvolumeclaims", "c", Default::default());
        cluster.settle();
        assert_eq!(cluster.names("volumeattributesclasses.storage.k8s.io"), "");
    }

    const NAMED: &str = "
{apiVersion: v1, kind: PersistentVolume, metadata: {name: one}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: hand}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {volumeName: one, accessModes: [ReadWriteOnce], storageClassName: hand, resources: {requests: {storage: 1Gi}}}}
";

    #[test]
    fn volume_names_the_controller_unless_it_was_kept_for_the_claim() {
        for (kept, by_controller) in [("", true), ("claimRef: {namespace: default, name: c}, ", false)] {
            let mut cluster = cluster(&NAMED.replacen("spec: {", &format!("spec: {{{kept}"), 1));
            cluster.settle();
            assert_eq!(phase(&cluster, "persistentvolumes", "one"), "Bound");
            let annotation =
                cluster.object("persistentvolumes", "one").annotation("pv.kubernetes.io/bound-by-controller").is_some();
            assert_eq!(annotation, by_controller, "{kept:?}");
        }
    }

    #[test]
    fn named_volume_must_satisfy_the_claim() {
        let cases = [
            (
                "resources: {requests: {storage: 1Gi}}",
                "resources: {requests: {storage: 2Gi}}",
                "requested PV is too small",
            ),
            ("storageClassName: hand, res", "storageClassName: other, res", "storageClassName does not match"),
            ("volumeName: one", "volumeName: one, volumeMode: Block", "incompatible volumeMode"),
            ("one, accessModes: [ReadWriteOnce]", "one, accessModes: [ReadWriteMany]", "incompatible accessMode"),
        ];
        for (old, new, why) in cases {
            let mut cluster = cluster(&NAMED.replacen(old, new, 1));
            cluster.settle();
            assert_eq!(phase(&cluster, "persistentvolumeclaims", "c"), "Pending", "{why}");
            assert_eq!(phase(&cluster, "persistentvolumes", "one"), "Available", "{why}");
            let event = format!("event: VolumeMismatch Cannot bind to requested volume \"one\": {why}");
            assert!(cluster.logged(&event), "{why}: {:?}", cluster.log);
        }
        let kept = NAMED
            .replace("capacity: {storage: 1Gi}", "capacity: {storage: 1Mi}, claimRef: {namespace: default, name: c}");
        let mut cluster = cluster(&kept);
        cluster.settle();
        assert_eq!(phase(&cluster, "persistentvolumeclaims", "c"), "Bound", "the volume names the claim, too");
    }

    #[test]
    fn named_volume_of_another_claim_is_reported() {
        let other = NAMED.split("---").nth(1).unwrap().replace("name: c}", "name: d}");
        let mut cluster = cluster(NAMED);
        cluster.settle();
        assert_eq!(phase(&cluster, "persistentvolumeclaims", "c"), "Bound");
        cluster.add(&other);
        cluster.settle();
        assert_eq!(phase(&cluster, "persistentvolumeclaims", "d"), "Pending");
        assert!(cluster.logged("event: FailedBinding volume \"one\" already bound to a different claim."));
    }

    #[test]
    fn default_class_is_given_to_claims_from_before_it() {
        let claim = |name: &str, class: &str| {
            format!(
                "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce]{class}, resources: {{requests: {{storage: 1Gi}}}}}}}}"
            )
        };
        let claims =
            [claim("none", ""), claim("empty", ", storageClassName: ''"), claim("named", ", storageClassName: hand")];
        let mut cluster = cluster(&claims.join("\n---\n"));
        cluster.settle();
        assert!(
            cluster.logged(
                "event: FailedBinding no persistent volumes available for this claim and no storage class is set"
            )
        );
        cluster.add("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: local.kloop.dev}");
        cluster.settle();
        let classes = ["none", "empty", "named"]
            .map(|name| cluster.value("persistentvolumeclaims", name, "/spec/storageClassName"));
        assert_eq!(classes, ["standard", "", "hand"]);
        assert_eq!(phase(&cluster, "persistentvolumeclaims", "none"), "Bound");
    }

    #[test]
    fn claim_names_the_provisioner_that_it_waits_for() {
        let class =
            "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: PROVISIONER}";
        let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], storageClassName: c, resources: {requests: {storage: 1Gi}}}}";
        for (provisioner, event) in [
            (
                "example.com/nfs",
                "event: ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'example.com/nfs' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
            ),
            ("local.kloop.dev", "event: ProvisioningSucceeded"),
            (
                "kubernetes.io/no-provisioner",
                "event: ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner",
            ),
        ] {
            let mut cluster = cluster(&[&class.replace("PROVISIONER", provisioner), claim].join("\n---\n"));
            cluster.settle();
            assert!(cluster.logged(event), "{provisioner}: {:?}", cluster.log);
            let is_named = !provisioner.starts_with("kubernetes.io/");
            for annotation in super::PROVISIONER {
                let claim = cluster.object("persistentvolumeclaims", "c");
                assert_eq!(claim.annotation(annotation), is_named.then_some(provisioner));
            }
        }
    }

    #[test]
    fn released_volume_that_nothing_reclaims_has_failed() {
        let volume = |name: &str, policy: &str, source: &str| {
            format!(
                "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: {policy}, claimRef: {{namespace: default, name: gone, uid: gone}}, {source}}}}}"
            )
        };
        let (host, nfs) = ("hostPath: {path: /tmp/x}", "nfs: {server: s, path: /}");
        let cases = [
            (
                "Delete",
                host,
                "Failed",
                "kloop deletes no hostPath: remove the files in /tmp/x and delete the volume, or set its reclaim policy to Retain",
            ),
            (
                "Delete",
                nfs,
                "Failed",
                "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched",
            ),
            ("Recycle", host, "Failed", "No recycler plugin found for the volume!"),
            ("Retain", host, "Released", ""),
        ];
        for (policy, source, wanted, message) in cases {
            let mut cluster = cluster(&volume("v", policy, source));
            cluster.settle();
            assert_eq!(phase(&cluster, "persistentvolumes", "v"), wanted, "{policy} {source}");
            let status = cluster.value("persistentvolumes", "v", "/status/message");
            assert_eq!(status.as_str().unwrap_or_default(), message);
            assert_eq!(cluster.logged(&format!("event: VolumeFailed{policy} {message}")), wanted == "Failed");
            cluster.patch("persistentvolumes", "v", json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
            cluster.settle();
            assert_eq!(cluster.value("persistentvolumes", "v", "/status/message"), Value::Null);
            assert_eq!(phase(&cluster, "persistentvolumes", "v"), "Released");
        }
        let external = volume("v", "Delete", "csi: {driver: d, volumeHandle: h}")
            .replace("name: v}", "name: v, annotations: {pv.kubernetes.io/provisioned-by: d}}");
        let mut cluster = cluster(&external);
        cluster.settle();
        assert_eq!(phase(&cluster, "persistentvolumes", "v"), "Released", "its provisioner deletes it");
    }
}
