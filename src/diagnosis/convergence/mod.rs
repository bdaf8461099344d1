//! Convergence: compares a World with the specs of its objects, and reports each object that has not converged.

pub mod reachability;

use crate::kinds::deployment::DEADLINE_EXCEEDED;
use crate::object::time::Shift;
use crate::object::{Object, Resource, Time};
use crate::reconcile::run_end::{Convergence, Unmet};
use crate::reconcile::store_tail;
use crate::store::{StoreError, StoreRead};
use crate::world::{Phase, Row, World};
use jiff::SignedDuration;
use std::sync::Arc;

/// Time that a Job's pod must run before it counts as converged: most failures happen at once, and the user wants to
/// see them.
const JOB_PROOF_TIME: SignedDuration = SignedDuration::from_secs(3);

/// Waiting reasons of a container that is about to start.
pub const STARTING_REASONS: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// Checks the convergence of a store in which another control plane leads.
pub fn check_store(read: &dyn StoreRead, now: Time) -> Result<Convergence, StoreError> {
    let mut world = World::new(now);
    store_tail::load(read, &mut world)?;
    Ok(check(&world))
}

/// Computes the distance of a World from its specs.
pub fn check(world: &World) -> Convergence {
    Convergence { unmet: unmet(world), proven: proven(world) }
}

/// Returns the time at which the newest running pod of a Job counts as running; `None` when no Job has a running pod.
fn proven(world: &World) -> Option<Time> {
    let of_job = |row: &&Arc<Row>| row.controller().is_some_and(|owner| owner.kind == "Job");
    let pods = world.list("pods").filter(|row| row.is_active_pod()).filter(of_job);
    pods.filter_map(|row| row.pod().filter(|pod| pod.ready)?.ready_since).max().map(|since| since.later(JOB_PROOF_TIME))
}

/// The objects that have not converged; empty means converged.
///
/// A workload has converged when its status matches its spec, a Job when it succeeded or its pods run, a pod when it is Ready or succeeded,
/// a Service when it has a ready endpoint. An object with an owner is reported with its owner, except a pod that states a reason.
pub fn unmet(world: &World) -> Vec<Unmet> {
    let unmet = |row: &Arc<Row>| {
        let why = missing(world, row)?;
        Some(Unmet { key: row.key.clone(), why, is_final: has_failed(row) })
    };
    world.all_rows().filter_map(unmet).collect()
}

/// Whether no loop has anything more to do about an object that has not converged.
fn has_failed(row: &Row) -> bool {
    let failed = match row.key.resource.0 {
        "jobs.batch" => {
            let job = row.object();
            job.has_condition("Failed") && job.value_at(&["spec", "ttlSecondsAfterFinished"]).is_none()
        }
        "pods" => row.pod().is_some_and(|pod| pod.phase == Phase::Failed),
        _ => false,
    };
    failed && !row.is_deleting()
}

/// Returns the missing state of an object, unless its owner is reported for it.
pub fn missing(world: &World, row: &Row) -> Option<String> {
    if row.is_deleting() {
        let waits = if row.finalizers.is_empty() {
            String::new()
        } else {
            format!(", waits for finalizers {}", row.finalizers.join(", "))
        };
        return Some(format!("is being deleted{waits}"));
    }
    let told_by_owner = match row.key.resource.0 {
        "jobs.batch" | "daemonsets.apps" => false,
        _ => row.controller().is_some(),
    };
    if !can_fail_to_converge(row.key.resource) {
        return reachability::missing(world, row);
    }
    if told_by_owner {
        return None;
    }
    let why = missing_of(row.key.resource, &row.object())?;
    Some(format!("{why}{}", troubled_pod(world, row)))
}

/// Whether objects of this resource can fail to converge; others converge by existing.
fn can_fail_to_converge(resource: Resource) -> bool {
    matches!(
        resource.0,
        "deployments.apps"
            | "replicasets.apps"
            | "statefulsets.apps"
            | "daemonsets.apps"
            | "jobs.batch"
            | "replicationcontrollers"
            | "pods"
    )
}

/// Returns the missing state of one object, regardless of its owner.
pub fn missing_of(resource: Resource, object: &Object) -> Option<String> {
    match resource.0 {
        "pods" => pod(object),
        "jobs.batch" => job(object),
        "daemonsets.apps" => daemon_set(object),
        _ if can_fail_to_converge(resource) => replicas(object),
        _ => None,
    }
}

fn count(object: &Object, field: &str) -> i64 {
    object.int(&["status", field]).unwrap_or(0)
}

fn observed(object: &Object) -> bool {
    object.int(&["status", "observedGeneration"]).unwrap_or(0) >= object.generation()
}

fn replicas(object: &Object) -> Option<String> {
    let wanted = object.int(&["spec", "replicas"]).unwrap_or(1);
    if !observed(object) {
        return Some("its controller has not processed the newest spec yet".into());
    }
    if let Some(condition) = object.condition("Progressing").filter(|one| one["reason"] == DEADLINE_EXCEEDED) {
        return Some(condition["message"].as_str().unwrap_or("progress deadline exceeded").to_owned());
    }
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    counts.iter().find_map(|field| match (*field, count(object, field)) {
        ("updatedReplicas", count) => updates_missing(object, count, wanted),
        (_, count) => (count != wanted).then(|| format!("{field} is {count} of {wanted}")),
    })
}

/// Fewer updated pods than are due. Fewer than all are due under a partition, as kubectl's rollout status has it.
fn updates_missing(object: &Object, updated: i64, wanted: i64) -> Option<String> {
    let due = updates_due(object, wanted)?;
    let is_met = if due == wanted { updated == wanted } else { updated >= due };
    (!is_met).then(|| format!("updatedReplicas is {updated} of {due}"))
}

/// Number of wanted pods that the controller itself updates to the newest template. `None` when it updates none:
/// ReplicaSets, ReplicationControllers, paused Deployments, and the `OnDelete` strategy.
pub fn updates_due(object: &Object, wanted: i64) -> Option<i64> {
    let is_paused = object.value_at(&["spec", "paused"]).is_some_and(|paused| paused == true);
    match object.kind() {
        "ReplicaSet" | "ReplicationController" => None,
        _ if is_paused || updates_on_delete(object) => None,
        "StatefulSet" => {
            let partition = object.int(&["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or(0);
            Some((wanted - partition).max(0))
        }
        _ => Some(wanted),
    }
}

/// Whether a pod gets the newest template only after a user deletes it.
pub fn updates_on_delete(object: &Object) -> bool {
    object.text(&["spec", "updateStrategy", "type"]) == Some("OnDelete")
}

fn daemon_set(object: &Object) -> Option<String> {
    let wanted = count(object, "desiredNumberScheduled");
    if !observed(object) {
        return Some("its controller has not processed the newest spec yet".into());
    }
    let counts = ["updatedNumberScheduled", "numberReady", "numberAvailable"];
    let counts = counts.iter().filter(|field| **field != "updatedNumberScheduled" || !updates_on_delete(object));
    let short = counts.map(|field| (field, count(object, field))).find(|(_, count)| *count != wanted);
    short.map(|(field, count)| format!("{field} is {count} of {wanted}"))
}

fn job(object: &Object) -> Option<String> {
    if object.has_condition("Complete") || object.has_condition("Suspended") {
        return None;
    }
    if let Some(failed) = object.true_condition("Failed") {
        let text = |field: &str| failed[field].as_str().unwrap_or_default().to_owned();
        return Some(format!("failed: {}: {}", text("reason"), text("message")));
    }
    let parallel = object.int(&["spec", "parallelism"]).unwrap_or(1);
    let left = object.int(&["spec", "completions"]).map_or(parallel, |all| all - count(object, "succeeded"));
    let wanted = parallel.min(left);
    let ready = count(object, "ready");
    (ready < wanted).then(|| format!("{ready} of {wanted} pods run"))
}

/// Whether a Job only has to finish: its pods run.
pub fn job_runs(object: &Object) -> bool {
    let is_over = object.has_condition("Complete") || object.has_condition("Suspended");
    !is_over && job(object).is_none() && object.int(&["spec", "parallelism"]) != Some(0)
}

fn pod(object: &Object) -> Option<String> {
    let phase = object.text(&["status", "phase"]).unwrap_or("Pending");
    match phase {
        "Succeeded" => None,
        "Running" if object.has_condition("Ready") => None,
        _ => Some(trouble(object).or_else(|| unready(object)).unwrap_or_else(|| format!("is {phase}"))),
    }
}

/// The first container of a running pod that is not ready, and how it ended before.
fn unready(pod: &Object) -> Option<String> {
    let mut statuses = pod.items(&["status", "containerStatuses"]).iter();
    let status = statuses.find(|status| status["ready"] == false && status["state"]["waiting"].is_null())?;
    let name = status["name"].as_str()?;
    if let Some(reason) = status["state"]["terminated"]["reason"].as_str() {
        return Some(format!("container {name} is {reason}"));
    }
    let before = status["lastState"]["terminated"]["reason"].as_str();
    let before = before.map(|reason| format!("; the last time it ended with {reason}")).unwrap_or_default();
    Some(format!("container {name} is not ready{before}"))
}

/// Why a pod is not running, in the words of its status.
fn trouble(pod: &Object) -> Option<String> {
    // A reason of the whole pod (DeadlineExceeded, Evicted) is more specific than the exit of its containers.
    let of_pod = pod.text(&["status", "reason"]).filter(|_| pod.text(&["status", "phase"]) == Some("Failed"));
    if let Some(reason) = of_pod {
        let message = pod.text(&["status", "message"]).and_then(|text| text.trim().lines().next());
        return Some(format!("is {reason}{}", message.map(|text| format!(": {text}")).unwrap_or_default()));
    }
    for status in pod.container_statuses() {
        for state in ["waiting", "terminated"] {
            let Some(reason) = status["state"][state]["reason"].as_str() else { continue };
            if reason == "Completed" || STARTING_REASONS.contains(&reason) {
                continue;
            }
            // The last line of a termination message names the error, since the message may be the end of a log.
            let message = status["state"][state]["message"].as_str().and_then(|text| text.trim().lines().last());
            let message = message.map(|text| format!(": {text}")).unwrap_or_default();
            return Some(format!("container {} is {reason}{message}", status["name"].as_str().unwrap_or_default()));
        }
    }
    let unscheduled = pod.condition("PodScheduled").filter(|one| one["status"] == "False")?;
    Some(format!("{}: {}", unscheduled["reason"].as_str()?, unscheduled["message"].as_str()?))
}

/// The first pod below an owner whose status names a problem.
fn troubled_pod(world: &World, owner: &Row) -> String {
    let below = world.dependents(&owner.uid).flat_map(|row| {
        let own = (row.key.resource == "pods").then_some(row);
        own.into_iter().chain(world.dependents(&row.uid).filter(|row| row.key.resource == "pods"))
    });
    let reason = below.filter(|row| !row.pod().is_some_and(|pod| pod.ready)).find_map(|row| {
        let object = row.object();
        trouble(&object).map(|why| format!(" (pod {}: {why})", row.key.name))
    });
    reason.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Key;
    use serde_json::{Value, json};

    fn world(objects: &[(&'static str, Value)]) -> World {
        let mut world = World::new(crate::object::Time::UNIX_EPOCH);
        for (resource, body) in objects {
            let object = Object(body.clone());
            let key = Key::new(Resource(resource), object.namespace(), object.name());
            world.put(key, body.to_string().into());
        }
        world
    }

    fn deployment(available: i64) -> (&'static str, Value) {
        (
            "deployments.apps",
            json!({
                "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 2},
                "spec": {"replicas": 3},
                "status": {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": available, "availableReplicas": available},
            }),
        )
    }

    #[test]
    fn deployment_converges_when_all_replicas_are_available() {
        assert_eq!(unmet(&world(&[deployment(3)])), []);
        assert_eq!(unmet(&world(&[deployment(1)]))[0].why, "readyReplicas is 1 of 3");
    }

    #[test]
    fn service_converges_with_ready_endpoints_or_when_none_are_wanted() {
        let service = |selector: Value, port: Value| {
            let spec = json!({"selector": selector, "ports": [{"port": 80, "targetPort": port}]});
            ("services", json!({"metadata": {"name": "s", "namespace": "default", "uid": "s"}, "spec": spec}))
        };
        let pod = |ready: &str| {
            let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
            let meta = json!({"name": "p", "namespace": "default", "uid": "p", "labels": {"app": "web"}});
            ("pods", json!({"metadata": meta, "spec": {"containers": [{"name": "c"}]}, "status": status}))
        };
        let web = json!({"app": "web"});
        let mut idle = deployment(0);
        idle.1["spec"] = json!({"replicas": 0, "template": {"metadata": {"labels": {"app": "web"}}}});
        idle.1["status"] = json!({"observedGeneration": 2});
        for (objects, expected) in [
            (vec![service(web.clone(), 80.into())], Some("no pod has the labels that it selects")),
            (vec![service(web.clone(), 80.into()), idle], None),
            (vec![service(Value::Null, 80.into())], None),
            (vec![service(web.clone(), 80.into()), pod("True")], None),
            (
                vec![service(web.clone(), "http".into()), pod("True")],
                Some("no container of its pods names a port \"http\""),
            ),
            (vec![service(web, 80.into()), pod("False")], Some("none of its pods is ready")),
        ] {
            let missing = unmet(&world(&objects));
            let told = missing.iter().find(|one| one.key.resource == "services");
            assert_eq!(told.map(|one| &*one.why), expected);
        }
    }

    #[test]
    fn pods_that_are_not_to_be_updated_are_not_waited_for() {
        let set = |kind: &str, strategy: Value, status: Value| {
            let mut body = json!({
                "kind": kind, "metadata": {"name": "s", "namespace": "default", "uid": "s", "generation": 1},
                "spec": {"replicas": 3, "updateStrategy": strategy}, "status": {"observedGeneration": 1},
            });
            status.as_object().unwrap().iter().for_each(|(field, value)| body["status"][field] = value.clone());
            (if kind == "StatefulSet" { "statefulsets.apps" } else { "daemonsets.apps" }, body)
        };
        let stateful = |strategy: Value, updated: i64, ready: i64| {
            let status = json!({
                "replicas": 3, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready,
            });
            set("StatefulSet", strategy, status)
        };
        let daemon = |strategy: Value| {
            let status = json!({
                "desiredNumberScheduled": 2, "updatedNumberScheduled": 0, "numberReady": 2, "numberAvailable": 2,
            });
            set("DaemonSet", strategy, status)
        };
        let partition = |from: i64| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": from}});
        let on_delete = json!({"type": "OnDelete"});
        for (object, expected) in [
            (stateful(partition(2), 1, 3), None),
            (stateful(partition(2), 3, 3), None),
            (stateful(partition(9), 0, 3), None),
            (stateful(partition(2), 0, 3), Some("updatedReplicas is 0 of 1")),
            (stateful(partition(0), 1, 3), Some("updatedReplicas is 1 of 3")),
            (stateful(on_delete.clone(), 0, 3), None),
            (stateful(on_delete.clone(), 3, 2), Some("readyReplicas is 2 of 3")),
            (daemon(on_delete), None),
            (daemon(json!({"type": "RollingUpdate"})), Some("updatedNumberScheduled is 0 of 2")),
        ] {
            let missing = unmet(&world(&[object]));
            assert_eq!(missing.first().map(|one| &*one.why), expected);
        }
    }

    #[test]
    fn crash_loop_is_not_converged_and_says_so() {
        let pod = |waiting: Value| {
            (
                "pods",
                json!({
                    "metadata": {"name": "p", "namespace": "default", "uid": "p"},
                    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"waiting": waiting}}]},
                }),
            )
        };
        let unmet = unmet(&world(&[pod(json!({"reason": "CrashLoopBackOff", "message": "back-off 10s"}))]));
        assert_eq!(unmet[0].why, "container c is CrashLoopBackOff: back-off 10s");
    }

    #[test]
    fn missing_pod_is_reported_with_the_reason_it_failed() {
        let container =
            |state: Value, last: Value| json!({"name": "c", "ready": false, "state": state, "lastState": last});
        let status = |phase: &str, container: Value| json!({"phase": phase, "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}, container]});
        let ended = |reason: &str, message: &str| json!({"terminated": {"reason": reason, "message": message}});
        let running = || json!({"running": {}});
        let mut late = status("Failed", container(ended("Error", ""), Value::Null));
        late["reason"] = "DeadlineExceeded".into();
        late["message"] = "Pod was active too long".into();
        for (status, expected) in [
            (late, "is DeadlineExceeded: Pod was active too long"),
            (status("Failed", container(ended("Error", "a\nno disk\n"), Value::Null)), "container c is Error: no disk"),
            (status("Running", container(ended("Completed", ""), Value::Null)), "container c is Completed"),
            (status("Running", container(running(), Value::Null)), "container c is not ready"),
            (
                status("Running", container(running(), ended("Error", ""))),
                "container c is not ready; the last time it ended with Error",
            ),
            (json!({"phase": "Pending"}), "is Pending"),
        ] {
            assert_eq!(pod(&Object(json!({"status": status}))).as_deref(), Some(expected));
        }
    }

    #[test]
    fn newest_pod_of_a_job_is_the_last_to_have_run_for_long_enough() {
        let pod = |name: &str, owner: &str, phase: &str, since: &str| {
            let owners = json!([{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": true}]);
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
            let meta = json!({"name": name, "namespace": "default", "uid": name, "ownerReferences": owners});
            ("pods", json!({"metadata": meta, "status": {"phase": phase, "conditions": ready}}))
        };
        let pods = [
            pod("old", "Job", "Running", "2026-01-01T00:00:00Z"),
            pod("new", "Job", "Running", "2026-01-01T00:00:05Z"),
            pod("over", "Job", "Succeeded", "2026-01-01T00:00:06Z"),
            pod("web", "ReplicaSet", "Running", "2026-01-01T00:00:07Z"),
        ];
        assert_eq!(proven(&world(&pods)), Some("2026-01-01T00:00:08Z".parse().unwrap()));
        assert_eq!(proven(&world(&pods[2..])), None);
    }

    #[test]
    fn failed_job_is_not_converged_a_running_one_is() {
        let job = |status: Value| {
            (
                "jobs.batch",
                json!({
                    "metadata": {"name": "j", "namespace": "default", "uid": "j"}, "spec": {"parallelism": 1, "completions": 1}, "status": status,
                }),
            )
        };
        assert_eq!(unmet(&world(&[job(json!({"active": 1, "ready": 1}))])), []);
        let told = &unmet(&world(&[job(json!({}))]))[0];
        assert_eq!((&*told.why, told.is_final), ("0 of 1 pods run", false));
        let complete = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
        for (status, runs) in [(json!({"active": 1, "ready": 1}), true), (json!({}), false), (complete, false)] {
            assert_eq!(job_runs(&Object(job(status.clone()).1)), runs, "{status}");
        }
        let failed = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}]});
        let told = &unmet(&world(&[job(failed)]))[0];
        assert_eq!((&*told.why, told.is_final), ("failed: BackoffLimitExceeded: m", true));
    }
}
