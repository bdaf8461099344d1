//! PodDisruptionBudgets: computes how many pods may be evicted now. The API server checks each eviction against it.

use super::{percent, status};
use crate::object::{Key, Object, Time, condition};
use crate::world::{EventType, Loop, Plan, Row, World};
use jiff::SignedDuration;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: &str = "poddisruptionbudgets.policy";
/// Time after which an eviction that led to no deletion is dropped from `disruptedPods`.
const EVICTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// Time for a budget's pods to be created before an event reports that there are none.
const NO_PODS_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// Owners whose `replicas` gives the expected number of pods.
const SCALED: [&str; 4] = ["deployments.apps", "replicasets.apps", "replicationcontrollers", "statefulsets.apps"];

/// End of the message about pods without a controller.
const UNMANAGED: &str = "were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result \
    in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.";

/// The loop of PodDisruptionBudgets.
pub const LOOP: Loop = Loop { name: "controllermanager", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT {
        return vec![row.key.clone()];
    }
    match row.key.resource.0 {
        "pods" => world.selecting(ROOT, row).into_iter().map(|budget| budget.key.clone()).collect(),
        // The owners' `replicas` give the expected number of pods.
        _ if replicas_of(world, row).is_some() => {
            world.list_in(ROOT, &row.key.namespace).map(|budget| budget.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let Some(fields) = row.workload() else { return plan };
    let object = row.object();
    let pods = world.pods_matching(&key.namespace, &fields.selector);
    report_without_pods(world, row, &pods, &mut plan);
    let disrupted = disrupted(world, &object, &pods, &mut plan);
    let healthy = |pod: &&&Arc<Row>| {
        pod.pod().is_some_and(|pod| pod.ready) && !pod.is_deleting() && !disrupted.contains_key(&*pod.key.name)
    };
    let healthy = pods.iter().filter(healthy).count() as i64;
    let expectations = expectations(world, &object, &pods);
    let mut new = status::status_map(&object);
    let (allowed, verdict) = match &expectations {
        Ok(Expectations { expected, desired, .. }) => {
            let allowed = if *expected > 0 { (healthy - desired).max(0) } else { 0 };
            for (name, count) in [
                ("currentHealthy", healthy),
                ("desiredHealthy", *desired),
                ("expectedPods", *expected),
                ("observedGeneration", row.generation),
            ] {
                new.insert(name.into(), count.into());
            }
            (allowed, if allowed > 0 { ("True", "SufficientPods", "") } else { ("False", "InsufficientPods", "") })
        }
        // A budget that cannot be computed allows no disruption.
        Err(message) => (0, ("False", "SyncFailed", message.as_str())),
    };
    new.insert("disruptionsAllowed".into(), allowed.into());
    if disrupted.is_empty() {
        new.remove("disruptedPods");
    } else {
        new.insert("disruptedPods".into(), disrupted.into());
    }
    let (value, reason, message) = verdict;
    let mut condition = condition::new("DisruptionAllowed", value, reason, message, world.now);
    condition["observedGeneration"] = row.generation.into();
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    condition::set(&mut conditions, condition);
    status::set_conditions(&mut new, conditions);
    if status::status_map(&object) != new {
        report_uncounted(row, &expectations, &mut plan);
    }
    status::write(&mut plan, object, new.into(), "the number of healthy pods changed");
    plan
}

/// Reports why the budget cannot be computed exactly, whenever its status changes.
fn report_uncounted(row: &Row, expectations: &Result<Expectations, String>, plan: &mut Plan) {
    match expectations {
        Ok(Expectations { unmanaged: false, .. }) => {}
        Ok(_) => {
            let selector = selector_text(row.object().value_at(&["spec", "selector"]));
            let message = format!("Pods selected by this PodDisruptionBudget (selector: {selector}) {UNMANAGED}");
            plan.event(row, EventType::Warning, "UnmanagedPods", message);
        }
        Err(message) => {
            let message = format!("Failed to calculate the number of expected pods: {message}");
            plan.event(row, EventType::Warning, "CalculateExpectedPodCountFailed", message);
        }
    }
}

/// Returns a label selector as Go prints it.
fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else { return "nil".to_owned() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels: BTreeMap<&String, &Value> = selector["matchLabels"].as_object().into_iter().flatten().collect();
    let labels: String = labels.into_iter().map(|(key, value)| format!("{key}: {},", text(value))).collect();
    let expression = |one: &Value| {
        let values: Vec<String> = one["values"].as_array().into_iter().flatten().map(text).collect();
        let (key, operator, values) = (text(&one["key"]), text(&one["operator"]), values.join(" "));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: String = selector["matchExpressions"].as_array().into_iter().flatten().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// Reports a budget that selects no pods, after a delay in which its pods can be created.
fn report_without_pods(world: &World, row: &Row, pods: &[&Arc<Row>], plan: &mut Plan) {
    if !pods.is_empty() {
        return;
    }
    match row.created.and_then(|created| created.checked_add(NO_PODS_DELAY).ok()) {
        Some(due) if world.now < due => plan.wake_at(due),
        _ => plan.event(row, EventType::Normal, "NoPods", "No matching pods found"),
    }
}

/// Returns evictions in progress: those whose pod still exists and that are not too old.
fn disrupted(world: &World, object: &Object, pods: &[&Arc<Row>], plan: &mut Plan) -> Map<String, Value> {
    let mut left = Map::new();
    for (name, since) in object.value_at(&["status", "disruptedPods"]).and_then(Value::as_object).into_iter().flatten()
    {
        let until = since.as_str().and_then(|text| text.parse::<Time>().ok()?.checked_add(EVICTION_TIMEOUT).ok());
        let lives = pods.iter().any(|pod| *pod.key.name == **name && !pod.is_deleting());
        if let Some(until) = until.filter(|until| lives && world.now < *until) {
            plan.wake_at(until);
            left.insert(name.clone(), since.clone());
        }
    }
    left
}

/// Pod counts of a budget.
struct Expectations {
    /// Number of expected pods.
    expected: i64,
    /// Number of pods that must be healthy.
    desired: i64,
    /// Whether `expected` excludes pods without a controller.
    unmanaged: bool,
}

fn expectations(world: &World, object: &Object, pods: &[&Arc<Row>]) -> Result<Expectations, String> {
    let scaled =
        |field: &str, total: i64| percent::resolve_percent(object.value_at(&["spec", field]), total, true).unwrap_or(0);
    let minimum = object.value_at(&["spec", "minAvailable"]).filter(|value| !value.is_null());
    if minimum.is_some_and(|value| !value.is_string()) {
        let expected = pods.len() as i64;
        return Ok(Expectations { expected, desired: scaled("minAvailable", expected), unmanaged: false });
    }
    let (expected, unmanaged) = scale(world, pods)?;
    let desired = match minimum {
        Some(_) => scaled("minAvailable", expected),
        None => (expected - scaled("maxUnavailable", expected)).max(0),
    };
    Ok(Expectations { expected, desired, unmanaged })
}

/// Sums the `replicas` of the pods' owners (or their Deployments), and returns whether pods without an owner were left
/// out. Fails for owners without scale (Kubernetes, "Specifying a Disruption Budget for your Application").
fn scale(world: &World, pods: &[&Arc<Row>]) -> Result<(i64, bool), String> {
    let mut replicas: BTreeMap<&str, i64> = BTreeMap::new();
    let mut unmanaged = false;
    for pod in pods {
        let Some(reference) = pod.controller() else {
            unmanaged = true;
            continue;
        };
        let Some(owner) = world.by_uid(&reference.uid) else {
            return Err(format!("found no controllers for pod {:?}", &*pod.key.name));
        };
        let above = owner.controller().and_then(|owner| world.by_uid(&owner.uid));
        let owner = above.filter(|above| above.key.resource == "deployments.apps").unwrap_or(owner);
        let Some(wanted) = replicas_of(world, owner) else {
            return Err(format!("{} does not implement the scale subresource", owner.key.resource.0));
        };
        replicas.insert(&owner.uid, wanted);
    }
    Ok((replicas.values().sum(), unmanaged))
}

/// The desired replicas of an owner: of a workload, or of a custom resource whose definition has a scale subresource.
fn replicas_of(world: &World, owner: &Row) -> Option<i64> {
    if SCALED.contains(&owner.key.resource.0) {
        return Some(owner.workload().map_or(0, |fields| fields.replicas));
    }
    let kind = world.kinds.by_resource(owner.key.resource)?;
    kind.scale_paths?;
    Some(owner.body().int(&kind.replicas().0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;

    #[test]
    fn budget_counts_allowed_disruptions() {
        for (budget, expected, desired, allowed) in [
            ("minAvailable: 2", 4, 2, 2),
            ("minAvailable: 4", 4, 4, 0),
            ("minAvailable: 30%", 4, 2, 2),
            ("maxUnavailable: 1", 4, 3, 1),
            ("maxUnavailable: 25%", 4, 3, 1),
        ] {
            let mut cluster = cluster(&format!(
                "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec: {{replicas: 4, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c}}]}}}}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web}}
spec: {{{budget}, selector: {{matchLabels: {{app: web}}}}}}
"
            ));
            cluster.settle();
            let status = cluster.value("poddisruptionbudgets.policy", "web", "/status");
            assert_eq!(
                (&status["expectedPods"], &status["desiredHealthy"]),
                (&expected.into(), &desired.into()),
                "{budget}"
            );
            assert_eq!(
                (&status["currentHealthy"], &status["disruptionsAllowed"]),
                (&4.into(), &allowed.into()),
                "{budget}"
            );
            let wanted = if allowed > 0 {
                "DisruptionAllowed=True SufficientPods"
            } else {
                "DisruptionAllowed=False InsufficientPods"
            };
            assert_eq!(cluster.conditions("poddisruptionbudgets.policy", "web"), wanted);
        }
    }

    #[test]
    fn selectors_are_printed_as_go_prints_them() {
        let selector = serde_json::json!({
            "matchLabels": {"b": "c", "a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
        });
        assert_eq!(
            super::selector_text(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{a: b,b: c,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
        );
        assert_eq!(super::selector_text(None), "nil");
    }

    #[test]
    fn uncountable_pods_may_not_be_disrupted() {
        let template = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}";
        let daemons = format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: web}}\nspec: {{selector: {{matchLabels: {{app: web}}}}, {template}}}"
        );
        let alone =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec: {containers: [{name: c}]}";
        let failed = "event: CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: daemonsets.apps does \
            not implement the scale subresource";
        for (pods, budget, condition, logged) in [
            (&*daemons, "maxUnavailable: 1", "DisruptionAllowed=False SyncFailed", failed),
            (alone, "minAvailable: 50%", "DisruptionAllowed=False InsufficientPods", "event: UnmanagedPods"),
        ] {
            let mut cluster = cluster(&format!(
                "{pods}\n---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: web}}\nspec: {{{budget}, selector: {{matchLabels: {{app: web}}}}}}\n"
            ));
            cluster.settle();
            assert_eq!(cluster.conditions("poddisruptionbudgets.policy", "web"), condition);
            assert_eq!(cluster.value("poddisruptionbudgets.policy", "web", "/status/disruptionsAllowed"), 0);
            assert!(cluster.logged(logged), "{logged}");
        }
    }

    #[test]
    fn budget_without_pods_is_reported_after_a_delay() {
        let selector = "selector: {matchLabels: {app: web}}";
        let mut cluster = cluster(&format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: web}}\nspec: {{minAvailable: 1, {selector}}}\n"
        ));
        cluster.settle();
        assert!(!cluster.logged("NoPods"));
        cluster.pass(11);
        assert!(cluster.logged("event: NoPods No matching pods found"));
    }
}
