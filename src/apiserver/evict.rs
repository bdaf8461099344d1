//! Evict: a deletion of a pod that its disruption budget has to allow. Kubernetes: `pkg/registry/core/pod/storage/eviction.go`.

use super::admission::{self, AdmissionTarget, Operation, RequestOptions};
use super::authorization::check_verb;
use super::delete::{DeleteOptions, check_preconditions, delete_admitted};
use super::forward::{ForwardedAction, ForwardedWrite};
use super::transaction::Transaction;
use super::update::put_status;
use super::{ApiResult, WriteOptions, WriteReply, read};
use crate::kinds::{self, Kind};
use crate::object::selector::Selector;
use crate::object::{Cause, Key, Object, Reason, Resource, Status, condition, time};
use serde_json::{Value, json};

/// Most pods whose eviction a budget remembers. Kubernetes: `MaxDisruptedPodSize`.
const MAX_DISRUPTED: usize = 2000;

/// Evicts a pod; refused with 429 while its budget allows no disruption.
pub fn evict(txn: &mut dyn Transaction, key: &Key, options: &DeleteOptions, dry_run: bool) -> ApiResult<WriteReply> {
    check_verb(txn, "create", "eviction", key)?;
    let kind = kinds::by_resource(key.resource).ok_or_else(|| Status::not_found(key.resource, &key.name))?;
    let (eviction, write) = (eviction_body(key, options), WriteOptions { dry_run, ..WriteOptions::default() });
    let action = ForwardedAction::Create(&eviction, &write);
    if let Some(reply) = txn.forward(&ForwardedWrite::from_key(kind, key, None, "eviction", action)) {
        return reply;
    }
    let pod = read::exact(txn, key)?;
    let mut warnings = Vec::new();
    admit(txn, (kind, key), options, dry_run, &mut warnings)?;
    if !needs_no_budget(&pod) {
        let mut budgets = txn.list(Resource("poddisruptionbudgets.policy"), Some(&key.namespace))?;
        budgets.retain(|budget| selects(budget, &pod));
        if budgets.len() > 1 {
            let text =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(Reason::InternalError, text));
        }
        if let Some(budget) = budgets.pop()
            && !is_exempt_from_budget(&budget, &pod)
        {
            take_disruption(txn, budget, &pod)?;
        }
    }
    check_preconditions(kind, &pod, options)?;
    // The condition that is set next changes the revision.
    let options = DeleteOptions { uid: Some(pod.uid().to_owned()), revision: None, ..options.clone() };
    set_disruption_target(txn, (kind, key), pod)?;
    delete_admitted(txn, (kind, key), &options, warnings)
}

/// Returns the body of an eviction.
fn eviction_body(key: &Key, options: &DeleteOptions) -> Object {
    let mut eviction = Object(json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": &*key.name, "namespace": &*key.namespace},
    }));
    if let Some(grace) = options.grace {
        eviction.set(&["deleteOptions", "gracePeriodSeconds"], grace);
    }
    eviction
}

/// Asks admission for an eviction.
fn admit(
    txn: &mut dyn Transaction,
    (kind, key): (&Kind, &Key),
    options: &DeleteOptions,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let mut eviction = eviction_body(key, options);
    let write = WriteOptions { dry_run, ..WriteOptions::default() };
    let target = AdmissionTarget {
        operation: Operation::Create,
        kind,
        api_version: kind.version,
        subresource: "eviction",
        key,
        options: RequestOptions::Write(&write),
    };
    let mut request = target.request(txn, &mut eviction, None, warnings);
    admission::admit(txn, &mut request)
}

/// Sets the condition DisruptionTarget on the pod (KEP-3329). A Job's pod failure policy matches it.
fn set_disruption_target(txn: &mut dyn Transaction, (kind, key): (&Kind, &Key), mut pod: Object) -> ApiResult<()> {
    let (reason, message) = ("EvictionByEvictionAPI", "Eviction API: evicting");
    let mut condition = condition::new("DisruptionTarget", "True", reason, message, txn.now());
    condition["lastProbeTime"] = Value::Null;
    pod.set_condition(condition);
    let status = pod.0["status"].take();
    put_status(txn, kind, key, status).map(|_| ())
}

/// Whether a pod may end without a budget: it is ending, has ended or has not started.
fn needs_no_budget(pod: &Object) -> bool {
    pod.deletion().is_some() || matches!(pod.text(&["status", "phase"]), Some("Succeeded" | "Failed" | "Pending"))
}

fn selects(budget: &Object, pod: &Object) -> bool {
    let selector = budget.value_at(&["spec", "selector"]).map(Selector::from_label_selector);
    selector.is_some_and(|selector| selector.is_ok_and(|selector| selector.matches(|key| pod.label(key))))
}

/// Whether the budget's unhealthyPodEvictionPolicy exempts this unready pod from the budget.
fn is_exempt_from_budget(budget: &Object, pod: &Object) -> bool {
    if pod.has_condition("Ready") {
        return false;
    }
    let count = |field: &str| budget.int(&["status", field]).unwrap_or(0);
    let healthy = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
    budget.text(&["spec", "unhealthyPodEvictionPolicy"]) == Some("AlwaysAllow") || healthy
}

/// Takes one of the disruptions that the budget allows.
fn take_disruption(txn: &mut dyn Transaction, mut budget: Object, pod: &Object) -> ApiResult<()> {
    let refuse = |text: String| Err(Status::new(Reason::TooManyRequests, text));
    let count = |field: &str| budget.int(&["status", field]).unwrap_or(0);
    let (allowed, observed) = (count("disruptionsAllowed"), count("observedGeneration"));
    let disrupted =
        budget.value_at(&["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if observed < budget.generation() || disrupted > MAX_DISRUPTED {
        return refuse(format!(
            "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget {} is still being \
             processed by the server.",
            budget.name()
        ));
    }
    if allowed <= 0 {
        let text = "Cannot evict pod as it would violate the pod's disruption budget.";
        let message = format!(
            "The disruption budget {} needs {} healthy pods and has {} currently",
            budget.name(),
            count("desiredHealthy"),
            count("currentHealthy")
        );
        let cause = Cause { reason: "DisruptionBudget".into(), field: String::new(), message };
        return Err(Status { causes: vec![cause], ..Status::new(Reason::TooManyRequests, text) });
    }
    budget.set(&["status", "disruptionsAllowed"], allowed - 1);
    budget.set(&["status", "disruptedPods", pod.name()], json!(time::rfc3339(txn.now())));
    let Some(kind) = kinds::by_name("poddisruptionbudgets") else { return Ok(()) };
    let key = Key::new(kind.resource, budget.namespace(), budget.name());
    let status = budget.value_at(&["status"]).cloned().unwrap_or_default();
    put_status(txn, kind, &key, status).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use crate::apiserver::create::create;
    use crate::apiserver::update::{UpdatePart, write_update};

    fn add(api: &mut Api, body: Value) {
        let object = Object(body);
        let kind = kinds::by_kind(object.api_version(), object.kind()).unwrap();
        let status = object.value_at(&["status"]).cloned();
        api.write(false, |txn| {
            let mut made = create(txn, kind, &object, &WriteOptions::default())?.into_object();
            if let Some(status) = &status {
                made.set(&["status"], status.clone());
                write_update(txn, kind, &made, UpdatePart::Status, &WriteOptions::default())?;
            }
            Ok(())
        })
        .unwrap();
    }

    fn add_pod(api: &mut Api, name: &str) {
        add(
            api,
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    }

    #[test]
    fn eviction_checks_the_preconditions_of_the_caller() {
        let mut api = Api::in_memory("test").unwrap();
        add_pod(&mut api, "a");
        let key = Key::new(Resource("pods"), "default", "a");
        let pod = api.read_view(|txn| txn.get_shared(&key)).unwrap().unwrap();
        let current = (Some(pod.uid().to_owned()), pod.text(&["metadata", "resourceVersion"]).map(str::to_owned));
        let mut evict = |uid: Option<String>, revision: Option<String>| {
            let options = DeleteOptions { uid, revision, ..DeleteOptions::default() };
            api.write(false, |txn| evict(txn, &key, &options, false))
        };
        for (uid, revision, what) in [(Some("other".into()), None, "UID"), (None, Some("1".into()), "ResourceVersion")]
        {
            let refused = evict(uid, revision).unwrap_err();
            assert_eq!(refused.reason, Reason::Conflict);
            assert!(refused.message.contains(&format!("the {what} in the precondition")), "{}", refused.message);
        }
        evict(current.0, current.1).unwrap();
    }

    #[test]
    fn budget_is_spent_and_then_refuses() {
        let mut api = Api::in_memory("test").unwrap();
        for name in ["a", "b"] {
            add_pod(&mut api, name);
        }
        add(
            &mut api,
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
                "status": {"disruptionsAllowed": 1, "observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1,
                    "expectedPods": 2}}),
        );
        let key = |name: &str| Key::new(Resource("pods"), "default", name);
        api.write(false, |txn| evict(txn, &key("a"), &DeleteOptions::default(), false)).unwrap();
        let refused = api.write(false, |txn| evict(txn, &key("b"), &DeleteOptions::default(), false)).unwrap_err();
        assert_eq!(refused.reason, Reason::TooManyRequests);
        assert_eq!(refused.message, "Cannot evict pod as it would violate the pod's disruption budget.");
        let kept = api.read_view(|txn| txn.get_shared(&key("b"))).unwrap().expect("it stays");
        assert_eq!(kept.items(&["status", "conditions"]).len(), 1, "it is not told of either");
        let evicted = api.read_view(|txn| txn.get_shared(&key("a"))).unwrap().expect("it ends");
        let told = evicted.condition("DisruptionTarget");
        assert_eq!(told.expect("a condition")["reason"], "EvictionByEvictionAPI");
    }
}
