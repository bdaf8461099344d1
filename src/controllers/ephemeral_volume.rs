//! Generic ephemeral volumes: creates a claim for each one, named after pod and volume and owned by the pod.

use super::controller_ref::Owner;
use crate::object::{Key, Object};
use crate::world::storage::{self, CLAIMS};
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb};
use serde_json::{Value, json};
use std::sync::Arc;

const ROOT: &str = "pods";

/// The loop of pods with ephemeral volumes.
pub const LOOP: Loop = Loop { name: "ephemeral-volume-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT if has_claims(row) => vec![row.key.clone()],
        // A deleted claim is recreated while its pod exists. The claim's name begins with that of its pod.
        CLAIMS => {
            let (namespace, name) = (&row.key.namespace, &row.key.name);
            let pods = name.match_indices('-').filter_map(|(end, _)| world.find(ROOT, namespace, &name[..end]));
            let uses = |pod: &&Arc<Row>| pod.pod().is_some_and(|pod| pod.claims.contains(name));
            pods.filter(uses).map(|pod| pod.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a pod has claims. Checks the parsed fields, which saves decoding the pod.
fn has_claims(row: &Row) -> bool {
    row.pod().is_some_and(|pod| !pod.claims.is_empty())
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let ended = |row: &Row| row.pod().is_some_and(|pod| pod.phase.is_terminal());
    let Some(row) = world.get(key).filter(|row| has_claims(row) && !row.is_deleting() && !ended(row)) else {
        return plan;
    };
    let owner = Owner { row, api_version: "v1", kind: "Pod" };
    for volume in row.body().items(&["spec", "volumes"]) {
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        let volume = volume["name"].as_str().unwrap_or_default();
        let name = format!("{}-{volume}", row.key.name);
        if !template.is_object() {
            continue;
        }
        match world.find(CLAIMS, &row.key.namespace, &name) {
            None => {
                let why = format!("the pod's ephemeral volume {volume} needs it");
                plan.write(WriteVerb::Create(claim(&owner, template, &name)), why);
            }
            Some(found) => {
                if let Err(why) = storage::check_made_for_pod(found, row) {
                    if !is_about_to_go(world, found) {
                        let message = format!("ephemeral volume {volume}: {why}");
                        plan.event(row, EventType::Warning, "FailedBinding", message);
                    }
                    plan.wait(why);
                }
            }
        }
    }
    plan
}

/// Whether a claim is deleted with an earlier pod of the same name.
fn is_about_to_go(world: &World, claim: &Row) -> bool {
    claim.is_deleting() || claim.controller().is_some_and(|owner| world.by_uid(&owner.uid).is_none())
}

fn claim(owner: &Owner, template: &Value, name: &str) -> Object {
    let mut metadata = json!({"name": name, "namespace": *owner.row.key.namespace,
        "ownerReferences": [owner.reference().to_value()]});
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    Object(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}))
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;

    const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c}], volumes: [{name: cache, ephemeral: {volumeClaimTemplate: {metadata: {labels: {kind: cache}}, spec: {accessModes: [ReadWriteOnce], storageClassName: standard, resources: {requests: {storage: 1Gi}}}}}}]}}";

    #[test]
    fn claim_is_created_and_deleted_with_its_pod() {
        let mut cluster = cluster(POD);
        cluster.settle();
        assert_eq!(cluster.names("persistentvolumeclaims"), "web-cache");
        assert_eq!(cluster.value("persistentvolumeclaims", "web-cache", "/metadata/labels/kind"), "cache");
        assert_eq!(cluster.value("persistentvolumeclaims", "web-cache", "/metadata/ownerReferences/0/kind"), "Pod");
        cluster.delete("pods", "web", Default::default());
        cluster.settle();
        assert_eq!(cluster.names("persistentvolumeclaims"), "");
    }

    #[test]
    fn claim_of_another_owner_is_reported_and_left_alone() {
        let mut cluster = cluster(
            "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: web-cache}, spec: {accessModes: [ReadWriteOnce], storageClassName: hand, resources: {requests: {storage: 1Gi}}}}",
        );
        cluster.add(POD);
        cluster.settle();
        let told = "event: FailedBinding ephemeral volume cache: PVC default/web-cache was not created for pod \
                    default/web (pod is not owner)";
        assert!(cluster.logged(told), "{:?}", cluster.log);
        cluster.delete("persistentvolumeclaims", "web-cache", Default::default());
        cluster.settle();
        assert_eq!(cluster.value("persistentvolumeclaims", "web-cache", "/metadata/ownerReferences/0/name"), "web");
    }
}
