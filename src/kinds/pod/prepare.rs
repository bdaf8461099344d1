//! Changes that the server makes to a new pod before validation.

use super::facts;
use crate::kinds::catalogue::typed;
use crate::object::Object;
use k8s_openapi::api::core::v1::{Affinity, Container, Pod, PodAffinityTerm, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sets the phase Pending and the QoS class, and converts label keys of spread constraints and affinity to selectors
/// with this pod's labels (KEP-3243, KEP-3633).
pub fn prepare_create(new: &mut Object) {
    let Some(qos_class) = qos_class(new) else { return };
    let mut status = json!({"phase": "Pending", "qosClass": qos_class});
    if !new.items(&["spec", "schedulingGates"]).is_empty() {
        status["conditions"] = json!([gated_condition(new.value_at(&["metadata", "creationTimestamp"]))]);
    }
    new.set(&["status"], status);
    if ["topologySpreadConstraints", "affinity"].iter().all(|field| new.value_at(&["spec", field]).is_none()) {
        return;
    }
    let Ok(mut pod) = typed::view::<Pod>(new) else { return };
    let Some(spec) = &mut pod.spec else { return };
    let labels = pod.metadata.labels.unwrap_or_default();
    let mut selects = false;
    for constraint in spec.topology_spread_constraints.iter_mut().flatten() {
        selects |= select(&mut constraint.label_selector, constraint.match_label_keys.as_deref(), "In", &labels);
    }
    if let Some(affinity) = &mut spec.affinity {
        for_each_term(affinity, |term| {
            selects |= select(&mut term.label_selector, term.match_label_keys.as_deref(), "In", &labels);
            selects |= select(&mut term.label_selector, term.mismatch_label_keys.as_deref(), "NotIn", &labels);
        });
    }
    if let (true, Ok(spec)) = (selects, serde_json::to_value(spec)) {
        new.set(&["spec"], spec);
    }
}

/// Computes the QoS class, and decodes only the resources for it.
fn qos_class(pod: &Object) -> Option<&'static str> {
    let resources = |holder: &Value| ResourceRequirements::deserialize(&holder["resources"]).ok();
    let containers = |list: &str| -> Vec<Container> {
        let all = pod.items(&["spec", list]).iter();
        all.map(|one| Container { resources: resources(one), ..Container::default() }).collect()
    };
    let spec = PodSpec {
        resources: resources(pod.value_at(&["spec"])?),
        containers: containers("containers"),
        init_containers: Some(containers("initContainers")),
        ..PodSpec::default()
    };
    Some(facts::qos_class(&spec))
}

fn gated_condition(since: Option<&Value>) -> Value {
    json!({
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": null, "lastTransitionTime": since,
    })
}

/// Adds the pod's values of these label keys to a selector. Returns whether it added any.
fn select(
    selector: &mut Option<LabelSelector>,
    keys: Option<&[String]>,
    operator: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let Some(selector) = selector else { return false };
    let requirement = |(key, value): (&String, &String)| LabelSelectorRequirement {
        key: key.clone(),
        operator: operator.into(),
        values: Some(vec![value.clone()]),
    };
    let known = keys.unwrap_or_default().iter().filter_map(|key| labels.get_key_value(key));
    let added: Vec<_> = known.map(requirement).collect();
    let any = !added.is_empty();
    if any {
        selector.match_expressions.get_or_insert_default().extend(added);
    }
    any
}

/// Calls a function for every term of pod affinity and anti-affinity.
pub fn for_each_term(affinity: &mut Affinity, mut each: impl FnMut(&mut PodAffinityTerm)) {
    if let Some(pods) = &mut affinity.pod_affinity {
        pods.required_during_scheduling_ignored_during_execution.iter_mut().flatten().for_each(&mut each);
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
        preferred.for_each(|term| each(&mut term.pod_affinity_term));
    }
    if let Some(pods) = &mut affinity.pod_anti_affinity {
        pods.required_during_scheduling_ignored_during_execution.iter_mut().flatten().for_each(&mut each);
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
        preferred.for_each(|term| each(&mut term.pod_affinity_term));
    }
}
