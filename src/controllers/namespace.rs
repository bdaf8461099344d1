//! Deletes all objects of a namespace that is being deleted, pods first (KEP-5080), then removes the namespace's finalizer. Reports the
//! objects that are left, and the message of a refused deletion, in the namespace's conditions.

use super::pods::BURST;
use super::status;
use crate::object::{Key, Resource, condition};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROOT: &str = "namespaces";
/// The finalizer in `spec.finalizers` that keeps a namespace until it is empty.
const FINALIZER: &str = "kubernetes";

/// The condition of a namespace whose objects could not all be deleted.
pub const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";

/// The loop of namespaces.
pub const LOOP: Loop = Loop { name: "namespace-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT {
        return vec![row.key.clone()];
    }
    let around = world.find(ROOT, "", &row.key.namespace).filter(|around| around.is_deleting());
    around.map(|around| around.key.clone()).into_iter().collect()
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| row.is_deleting()) else { return plan };
    let mut content = world.content_of(&row.key.name);
    if content.is_empty() {
        finalize(row, &mut plan);
        return plan;
    }
    // The policies and the configuration that a pod relies on stay until it has ended.
    if content.iter().any(|row| row.key.resource == "pods") {
        content.retain(|row| row.key.resource == "pods");
    }
    let refusal = world.loop_memory.refusals.get(LOOP.name, key);
    let refusal = refusal.filter(|refusal| world.pausing(refusal, key));
    match refusal {
        Some(refusal) => plan.wake_at(refusal.again),
        None => delete(&content, &mut plan),
    }
    if plan.is_empty() {
        report(world, row, &content, refusal.map(|refusal| &*refusal.message), &mut plan);
    }
    plan
}

/// Deletes objects. Those that the API server refuses to delete do not keep the others.
fn delete(content: &[&Arc<Row>], plan: &mut Plan) {
    plan.is_divisible = true;
    for row in content.iter().filter(|row| !row.is_deleting()).take(BURST) {
        plan.delete(row, "its namespace is being deleted");
    }
}

fn finalize(row: &Row, plan: &mut Plan) {
    let mut object = row.object();
    let finalizers = object.items(&["spec", "finalizers"]);
    if !finalizers.iter().any(|one| one == FINALIZER) {
        return plan.wait("the namespace is empty, but has other finalizers");
    }
    let left: Vec<Value> = finalizers.iter().filter(|one| *one != FINALIZER).cloned().collect();
    object.set(&["spec", "finalizers"], left);
    plan.write(WriteVerb::Update(object), "the namespace is empty");
}

/// Reports the remaining objects and their finalizers, and why objects could not be deleted.
fn report(world: &World, row: &Row, content: &[&Arc<Row>], refusal: Option<&str>, plan: &mut Plan) {
    let mut resources: BTreeMap<Resource, usize> = BTreeMap::new();
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    for left in content {
        *resources.entry(left.key.resource).or_default() += 1;
        for finalizer in left.finalizers.iter() {
            *finalizers.entry(finalizer).or_default() += 1;
        }
    }
    let count = |resource: &Resource, count: &usize| {
        format!("{}.{} has {count} resource instances", resource.plural(), resource.group())
    };
    let remaining: Vec<String> = resources.iter().map(|(resource, number)| count(resource, number)).collect();
    let held: Vec<String> =
        finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let remaining = format!("Some resources are remaining: {}", remaining.join(", "));
    plan.wait(remaining.clone());
    let held = match held.as_slice() {
        [] => ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
        _ => (
            "True",
            "SomeFinalizersRemain",
            format!("Some content in the namespace has finalizers remaining: {}", held.join(", ")),
        ),
    };
    let failure = match refusal {
        None => {
            ("False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization".to_owned())
        }
        Some(message) => ("True", "ContentDeletionFailed", failure_message(content, message)),
    };
    let object = row.object();
    let mut new = status::status_map(&object);
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    for (kind, value, reason, message) in [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (CONTENT_FAILURE, failure.0, failure.1, &failure.2),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", &remaining),
        ("NamespaceFinalizersRemaining", held.0, held.1, &held.2),
    ] {
        condition::set(&mut conditions, condition::new(kind, value, reason, message, world.now));
    }
    new.insert("phase".into(), "Terminating".into());
    status::set_conditions(&mut new, conditions);
    status::write(plan, object, new.into(), "the remaining objects of the namespace changed");
}

/// Returns Kubernetes' text about resources that could not be deleted.
fn failure_message(content: &[&Arc<Row>], message: &str) -> String {
    let failed: BTreeSet<Resource> =
        content.iter().filter(|row| !row.is_deleting()).map(|row| row.key.resource).collect();
    format!("Failed to delete all resource types, {} remaining: {message}", failed.len())
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use serde_json::json;

    const TEAM: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: team}, spec: {finalizers: [kubernetes]}}";

    #[test]
    fn pods_go_before_everything_else() {
        let mut cluster = cluster(TEAM);
        let held = json!({"name": "held", "namespace": "team", "finalizers": ["x.dev/hold"]});
        cluster.create(json!({"kind": "Pod", "metadata": held, "spec": {"nodeName": "a"}}));
        cluster.create(json!({"kind": "ConfigMap", "metadata": {"name": "used", "namespace": "team"}}));
        cluster.settle();
        cluster.delete("namespaces", "team", Default::default());
        cluster.settle();
        assert!(cluster.world.find("pods", "team", "held").unwrap().is_deleting());
        assert!(!cluster.world.find("configmaps", "team", "used").unwrap().is_deleting());
        let conditions = cluster.object("namespaces", "team").items(&["status", "conditions"]).to_vec();
        let messages: Vec<&str> = conditions.iter().filter_map(|one| one["message"].as_str()).collect();
        assert_eq!(
            messages[3..],
            [
                "Some resources are remaining: pods. has 1 resource instances",
                "Some content in the namespace has finalizers remaining: x.dev/hold in 1 resource instances",
            ]
        );
        let mut held = cluster.world.find("pods", "team", "held").unwrap().object();
        held.unset(&["metadata", "finalizers"]);
        cluster.update(held);
        cluster.settle();
        assert_eq!(cluster.names("namespaces"), "default");
    }

    #[test]
    fn refused_deletion_is_reported_and_retried() {
        let mut cluster = cluster(TEAM);
        cluster.create(json!({"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "team"}}));
        cluster.settle();
        cluster.delete("namespaces", "team", Default::default());
        let key = cluster.key("namespaces", "team");
        // The first refusal has no pause.
        for _ in 0..2 {
            cluster.world.refuse(super::LOOP.name, &key, "failed calling webhook \"w\"");
        }
        cluster.settle();
        let conditions = cluster.object("namespaces", "team").items(&["status", "conditions"]).to_vec();
        let failure = conditions.iter().find(|one| one["type"] == super::CONTENT_FAILURE).expect("a condition");
        assert_eq!((&failure["status"], &failure["reason"]), (&json!("True"), &json!("ContentDeletionFailed")));
        let message = failure["message"].as_str().unwrap();
        assert!(message.starts_with("Failed to delete all resource types, "), "{message}");
        assert!(message.ends_with(" remaining: failed calling webhook \"w\""), "{message}");
        cluster.pass(60);
        assert_eq!(cluster.names("namespaces"), "default");
    }

    #[test]
    fn everything_goes_and_then_the_namespace() {
        let mut cluster = cluster(TEAM);
        cluster
            .create(json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": {"nodeName": "a"}}));
        cluster.create(json!({"kind": "ConfigMap", "metadata": {"name": "held", "namespace": "team", "finalizers": ["x.dev/hold"]}}));
        cluster.settle();
        assert!(cluster.world.find("serviceaccounts", "team", "default").is_some());
        assert!(cluster.world.find("configmaps", "team", "kube-root-ca.crt").is_some());
        cluster.delete("namespaces", "team", Default::default());
        cluster.settle();
        let messages: Vec<String> = cluster
            .object("namespaces", "team")
            .items(&["status", "conditions"])
            .iter()
            .map(|one| {
                format!(
                    "{} {} {} {}",
                    one["type"].as_str().unwrap(),
                    one["status"].as_str().unwrap(),
                    one["reason"].as_str().unwrap(),
                    one["message"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(
            messages,
            [
                "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered All resources successfully discovered",
                "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions All legacy kube types successfully parsed",
                "NamespaceDeletionContentFailure False ContentDeleted All content successfully deleted, may be waiting on finalization",
                "NamespaceContentRemaining True SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances",
                "NamespaceFinalizersRemaining True SomeFinalizersRemain Some content in the namespace has finalizers remaining: x.dev/hold in 1 resource instances",
            ]
        );
        let mut held = cluster.world.find("configmaps", "team", "held").unwrap().object();
        held.unset(&["metadata", "finalizers"]);
        cluster.update(held);
        cluster.settle();
        assert_eq!(cluster.names("namespaces"), "default");
    }
}
