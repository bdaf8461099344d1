//! Creates pods from templates, and deletes pods.

use super::controller_ref::Owner;
use super::status;
use crate::object::{Key, Object, Resource, condition, hash_fnv1a};
use crate::world::{EventType, NAME_LETTERS, Plan, Row, World};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum number of objects of one owner that Kubernetes creates or deletes at a time.
pub const BURST: usize = 500;

/// Maximum number of pods of one owner that one plan creates or deletes, so that the same tick can also place and start
/// them.
pub const BATCH: usize = 64;

/// Maximum number of pods of one owner that wait for a node. Kubernetes creates all of `replicas`, however many, until its store is full.
pub const MAX_WAITING_PODS: usize = 10_000;

/// Number of pods that the first plan of an owner creates. The machine starts them while the control plane plans the next ones.
const FIRST_BATCH: usize = 8;

/// Returns the number of pods that one plan may create for an owner with this many: as many again (Kubernetes: `slowStartBatch`), within
/// [`FIRST_BATCH`] and [`BATCH`].
pub fn creation_batch(existing: usize) -> usize {
    existing.clamp(FIRST_BATCH, BATCH)
}

/// Whether a plan has the maximum number of writes. These writes make the key due again, so the next plan has the
/// remaining ones.
pub fn is_full(plan: &Plan) -> bool {
    plan.writes.len() >= BURST
}

/// Creates a pod from a template, with its controller as owner and without a name.
pub fn from_template(owner: &Owner, template: &Value) -> Object {
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            metadata.insert(field.into(), value.clone());
        }
    }
    metadata.insert("namespace".into(), json!(*owner.row.key.namespace));
    metadata.insert("generateName".into(), json!(format!("{}-", owner.row.key.name)));
    metadata.insert("ownerReferences".into(), json!([owner.reference().to_value()]));
    Object(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] }))
}

/// Encodes digits as letters that form no words, as in Kubernetes' hashes in names (`rand.SafeEncodeString`).
pub fn safe_encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(NAME_LETTERS[usize::from(byte) % NAME_LETTERS.len()])).collect()
}

/// The hash of a template in names and labels: FNV-1a over its canonical JSON and the count of collisions so far.
pub fn template_hash(template: &Value, collisions: Option<i64>) -> String {
    let mut text = template.to_string();
    if let Some(count) = collisions {
        text.push_str(&count.to_string());
    }
    safe_encode(&hash_fnv1a(&text).to_string())
}

/// Sets a pod's condition DisruptionTarget, with this reason and message (KEP-3329).
pub fn mark_disrupted(world: &World, pod: &Object, (reason, message): (&str, &str), plan: &mut Plan) {
    let mut conditions = pod.items(&["status", "conditions"]).to_vec();
    let mut condition = condition::new("DisruptionTarget", "True", reason, message, world.now);
    condition["lastProbeTime"] = Value::Null;
    condition["observedGeneration"] = pod.generation().into();
    condition::set(&mut conditions, condition);
    let mut new = status::status_map(pod);
    status::set_conditions(&mut new, conditions);
    status::write(plan, pod.clone(), new.into(), "it is about to be evicted");
}

/// Resources that can make the API server refuse a pod.
const REFUSAL_CAUSES: [&str; 3] = ["resourcequotas", "limitranges", "serviceaccounts"];

/// Whether an object that caused a refusal has changed since.
fn have_changed(world: &World, namespace: &str, since: u64) -> bool {
    REFUSAL_CAUSES.iter().any(|resource| world.list_in(resource, namespace).any(|row| row.revision > since))
}

/// Number of pods that a plan may create, given the result of the last one.
pub enum PodCreationBudget {
    /// At most so many, since [`MAX_WAITING_PODS`] of the owner may wait for a node.
    UpTo(usize),
    /// One pod: after a refusal, which drops a whole plan, a quota may still allow single pods.
    One,
    /// No pod until a later retry, since a single pod was refused too; with the message of the refusal.
    None(String),
}

impl PodCreationBudget {
    /// Returns the budget of an owner, of whose pods so many are `missing`, after the result of the loop's last plan for it.
    pub fn new<'a>(
        world: &World,
        name: &'static str,
        owner: &Row,
        pods: impl Iterator<Item = &'a Arc<Row>>,
        missing: usize,
        plan: &mut Plan,
    ) -> PodCreationBudget {
        let refusal = world.loop_memory.refusals.get(name, &owner.key);
        if let Some(refusal) = refusal
            && world.pausing(refusal, &owner.key)
            && !have_changed(world, &owner.key.namespace, refusal.revision)
        {
            plan.wake_at(refusal.again);
            plan.wait(format!("refused: {}", refusal.message));
            return PodCreationBudget::None(refusal.message.clone());
        }
        let waiting = pods.filter(|pod| pod.is_active_pod() && pod.pod().is_some_and(|pod| pod.node.is_none())).count();
        let left = MAX_WAITING_PODS.saturating_sub(waiting);
        if left == 0 && missing > 0 {
            plan.wait(too_many_waiting());
        } else if missing > left && left <= BATCH {
            // This plan creates the last ones.
            plan.event(owner, EventType::Warning, "FailedCreate", format!("Error creating: {}", too_many_waiting()));
        }
        if refusal.is_some() && left > 0 { PodCreationBudget::One } else { PodCreationBudget::UpTo(left) }
    }

    /// Limits a number of pods to the budget.
    pub fn limit(&self, wanted: usize) -> usize {
        match self {
            PodCreationBudget::UpTo(most) => wanted.min(*most),
            PodCreationBudget::One => wanted.min(1),
            PodCreationBudget::None(_) => 0,
        }
    }

    /// The message of the refusal, until the next retry.
    pub fn refusal(&self) -> Option<String> {
        match self {
            PodCreationBudget::None(message) => Some(message.clone()),
            PodCreationBudget::UpTo(_) | PodCreationBudget::One => None,
        }
    }

    /// Why no pod may be created now.
    pub fn failure(&self) -> Option<String> {
        match self {
            PodCreationBudget::UpTo(0) => Some(too_many_waiting()),
            _ => self.refusal(),
        }
    }

    /// Reports the refusal as an event.
    pub fn report_refusal(&self, row: &Row, plan: &mut Plan) {
        if let PodCreationBudget::None(message) = self {
            plan.event(row, EventType::Warning, "FailedCreate", format!("Error creating: {message}"));
        }
    }
}

fn too_many_waiting() -> String {
    format!(
        "{MAX_WAITING_PODS} of its pods wait for a node, and more are created when some of them have one: add nodes, or lower replicas"
    )
}

/// The key of the object that controls a row, if it is of this kind.
pub fn controller_key(row: &Row, resource: &'static str, kind: &str) -> Option<Key> {
    let owner = row.controller().filter(|owner| owner.kind == kind)?;
    Some(Key::new(Resource(resource), &row.key.namespace, &owner.name))
}

/// The keys that a row concerns in a loop that manages pods: the row itself, its controller, or without a controller
/// every root object that selects it. A cause of refusals concerns the refused owners.
pub fn concerned(world: &World, root: &'static str, kind: &str, children: &[&str], row: &Row) -> Vec<Key> {
    if row.key.resource == root {
        return vec![row.key.clone()];
    }
    if REFUSAL_CAUSES.contains(&row.key.resource.0) {
        return world.loop_memory.refusals.objects(root, &row.key.namespace).cloned().collect();
    }
    if !children.contains(&row.key.resource.0) {
        return Vec::new();
    }
    if row.controller().is_some() {
        return controller_key(row, root, kind).into_iter().collect();
    }
    world.selecting(root, row).into_iter().map(|owner| owner.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_hash_uses_the_letters_of_kubernetes() {
        assert_eq!(safe_encode("0123456789"), "456789bcdf");
        let template = json!({"metadata": {"labels": {"a": "b"}}});
        assert_ne!(template_hash(&template, None), template_hash(&template, Some(1)));
        assert!(template_hash(&template, None).bytes().all(|byte| NAME_LETTERS.contains(&byte)));
    }
}
