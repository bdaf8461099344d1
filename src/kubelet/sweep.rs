//! Removes the remains of pods that the store no longer has.
//!
//! A pod is identified by its uid: its name may already belong to a new, living pod.

use super::mirror;
use super::termination::remove;
use crate::object::{Key, Str};
use crate::world::{Plan, World};

/// Ends pods that run under this name with uids that the store does not have.
pub fn plan(world: &World, key: &Key, plan: &mut Plan) {
    if world.facts.pods.named(key).next().is_none() {
        return;
    }
    let kept = mirror::hash(world, key);
    let is_stranger = |uid: &Str| world.by_uid(uid).is_none() && kept.as_ref() != Some(uid);
    let strangers = world.facts.pods.named(key).filter(|(uid, _)| is_stranger(uid));
    for (uid, pod) in strangers {
        plan.wait(format!(
            "pod {} ({uid}) is no longer in the store: its remaining processes are being ended",
            key.path()
        ));
        remove(world, uid, pod, plan);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, key, pod};
    use serde_json::json;

    #[test]
    fn processes_of_a_forgotten_pod_are_ended() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "a"}]})));
        machine.run_to(5);
        machine.take_messages();
        machine.world.remove(&key("p"));
        machine.settle();
        assert_eq!(machine.take_messages(), ["5 remove uid-p"]);
        assert!(machine.world.facts.pods.get("uid-p").is_none());
    }

    #[test]
    fn new_pod_of_the_same_name_survives_the_sweep() {
        let spec = json!({"containers": [{"name": "c", "image": "a"}]});
        let mut machine = TestMachine::new(pod(spec.clone()));
        machine.run_to(5);
        machine.take_messages();
        let mut again = pod(spec);
        again["metadata"]["uid"] = "uid-new".into();
        machine.put("pods", again);
        machine.settle();
        assert_eq!(machine.take_messages(), ["5 remove uid-p", "5 start c#0"]);
        assert_eq!(machine.summary(), "Running c+=running/0");
        assert!(machine.world.facts.pods.get("uid-new").is_some());
    }
}
