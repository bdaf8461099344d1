//! The controllers of workloads, Services, owners, namespaces and nodes: pure functions from the World to a Plan.
//!
//! Each file implements one controller of Kubernetes' controller manager. Never: writes, reads a clock, or calls
//! another controller; controllers interact only through objects. Start reading at [`replicaset`]. A new controller
//! needs one new file, its `mod`, and one line in [`ALL`].

use crate::world::Loop;

mod backends;
#[cfg(test)]
mod bounds_tests;
mod controller_ref;
mod percent;
mod pods;
pub mod revisions;
pub mod status;
#[cfg(test)]
mod testing;

pub mod certificates;
pub mod clusterrole_aggregation;
pub mod cronjob;
pub mod customresourcedefinition;
pub mod daemonset;
pub mod default_service_cidr;
pub mod deployment;
pub mod device_taint_eviction;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslicemirroring;
pub mod ephemeral_volume;
pub mod flow_schema;
pub mod garbage_collector;
pub mod horizontalpodautoscaler;
pub mod job;
pub mod kubernetesservice;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod pod_gc;
pub mod poddisruptionbudget;
pub mod pv_binder;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resource_claim_release;
pub mod resource_claim_templates;
pub mod resourcequota;
pub mod root_ca_publisher;
pub mod service_lb;
pub mod serviceaccount;
pub mod serviceaccount_token;
pub mod statefulset;
pub mod taint_eviction;
pub mod token_cleaner;
pub mod ttl_after_finished;
pub mod validatingadmissionpolicy_status;
pub mod volume_expand;
pub mod volume_provisioner;

/// Every controller.
pub static ALL: &[&Loop] = &[
    &deployment::LOOP,
    &replicaset::LOOP,
    &replicationcontroller::LOOP,
    &statefulset::LOOP,
    &daemonset::LOOP,
    &job::LOOP,
    &ttl_after_finished::LOOP,
    &cronjob::LOOP,
    &poddisruptionbudget::LOOP,
    &endpointslice::LOOP,
    &endpointslicemirroring::LOOP,
    &endpoints::LOOP,
    &garbage_collector::LOOP,
    &namespace::LOOP,
    &customresourcedefinition::LOOP,
    &serviceaccount::LOOP,
    &root_ca_publisher::LOOP,
    &serviceaccount_token::LOOP,
    &token_cleaner::LOOP,
    &kubernetesservice::LOOP,
    &default_service_cidr::LOOP,
    &flow_schema::LOOP,
    &service_lb::LOOP,
    &node_ipam::LOOP,
    &node_lifecycle::LOOP,
    &taint_eviction::LOOP,
    &pod_gc::LOOP,
    &resourcequota::LOOP,
    &pv_binder::LOOP,
    &volume_provisioner::LOOP,
    &volume_expand::LOOP,
    &ephemeral_volume::LOOP,
    &resource_claim_templates::LOOP,
    &resource_claim_release::LOOP,
    &device_taint_eviction::LOOP,
    &horizontalpodautoscaler::LOOP,
    &clusterrole_aggregation::LOOP,
    &validatingadmissionpolicy_status::LOOP,
    &certificates::approving::LOOP,
    &certificates::signing::LOOP,
    &certificates::cleaner::LOOP,
];

#[cfg(test)]
mod tests {
    use super::ALL;
    use super::testing::{cluster, key_of};
    use crate::object::Object;
    use crate::world::World;
    use serde_json::{Value, json};

    const KINDS: [&str; 17] = [
        "CronJob",
        "DaemonSet",
        "Deployment",
        "EndpointSlice",
        "Endpoints",
        "HorizontalPodAutoscaler",
        "Job",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "Service",
        "StatefulSet",
    ];

    /// Runs every loop on objects with malformed fields: none panics, and plans are equal.
    #[test]
    fn malformed_objects_make_no_loop_panic() {
        let odd =
            [json!(null), json!(7), json!("text"), json!([]), json!({}), json!(-1), json!({"matchLabels": {"a": "b"}})];
        let fields = [
            "replicas",
            "selector",
            "template",
            "parallelism",
            "completions",
            "schedule",
            "ports",
            "strategy",
            "minReadySeconds",
            "hard",
            "taints",
            "minAvailable",
            "scaleTargetRef",
            "capacity",
            "claimRef",
        ];
        let mut world = World::new("2026-01-01T00:00:00Z".parse().unwrap());
        let mut bodies: Vec<Value> = Vec::new();
        for value in &odd {
            bodies.push(json!({"spec": value, "status": value}));
            bodies.extend(fields.iter().map(|field| json!({"spec": {*field: value}, "status": {"conditions": value}})));
        }
        for (number, body) in bodies.iter().enumerate() {
            for kind in KINDS {
                let mut body = body.clone();
                body["kind"] = kind.into();
                body["metadata"] =
                    json!({"name": format!("x{number}"), "uid": format!("{kind}{number}"), "labels": {"a": "b"}});
                let object = Object(body);
                world.put(key_of(&object), object.0.to_string().into());
            }
        }
        let rows: Vec<_> = world.all_rows().cloned().collect();
        for spec in ALL {
            for row in &rows {
                for key in (spec.concerns)(&world, row).into_iter().take(3).chain([row.key.clone()]) {
                    let fits = spec.root == "*" || key.resource == spec.root;
                    assert!(!fits || (spec.plan)(&world, &key) == (spec.plan)(&world, &key), "{} {key}", spec.name);
                }
            }
        }
    }

    /// Runs all loops together, in many orders: the world settles, and then every plan is empty.
    #[test]
    fn everything_together_settles() {
        let all = "
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 2, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: work}, spec: {completions: 3, parallelism: 2, template: {spec: {restartPolicy: Never, containers: [{name: c}]}}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: '50'}}}";
        for seed in 0..8 {
            let mut cluster = cluster(all).seeded(seed);
            cluster.crashes = seed as u32;
            cluster.settle();
            assert_eq!(cluster.count("pods"), 3 + 2 + 2 + 3, "seed {seed}");
            cluster.world.now += jiff::SignedDuration::from_secs(100);
            cluster.settle();
        }
    }
}
