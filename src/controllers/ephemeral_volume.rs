//! Generic ephemeral volumes: creates a claim for each one, named after pod and volume and owned by the pod.

use super::claim::Owner;
use crate::object::{Key, Object, Resource};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use serde_json::{Value, json};

const ROOT: &str = "pods";
const CLAIMS: &str = "persistentvolumeclaims";

/// The loop of pods with ephemeral volumes.
pub const LOOP: Loop = Loop { name: "ephemeral-volume-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT if has_claims(row) => vec![row.key.clone()],
        // A deleted claim is recreated while its pod exists.
        CLAIMS => {
            let pods = row.owners.iter().filter(|owner| owner.kind == "Pod");
            pods.map(|owner| Key::new(Resource(ROOT), &row.key.namespace, &owner.name)).collect()
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
        let name = format!("{}-{}", row.key.name, volume["name"].as_str().unwrap_or_default());
        if template.is_object() && world.find(CLAIMS, &row.key.namespace, &name).is_none() {
            let why = format!("the pod's ephemeral volume {} needs it", volume["name"].as_str().unwrap_or_default());
            plan.write(WriteVerb::Create(claim(&owner, template, &name)), why);
        }
    }
    plan
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
}
