//! Device claims of a pod: a node starts its containers when the claims are reserved for it (kubelet: `PrepareDynamicResources`).
//!
//! Never: prepares a device. What a driver would do for a container is left to the program.

use super::actions::StartFailure;
use super::pod::LocalPod;
use crate::world::devices;

/// Returns the reason why the pod's claims keep it from starting.
pub fn unprepared(pod: &LocalPod) -> Option<StartFailure> {
    let why = match devices::used_by_pod(pod.world, pod.row) {
        Ok(claims) => {
            let claim = claims.into_iter().find(|claim| !devices::is_reserved_for(&claim.body, &pod.row.uid))?;
            let (row, claim) = (pod.row, claim.row);
            let (pod, name) = (&row.key.name, &claim.key.name);
            format!("pod {pod} ({}) is not allowed to use ResourceClaim {name} ({})", row.uid, claim.uid)
        }
        Err(why) => why,
    };
    let message = format!("Failed to prepare dynamic resources: prepare dynamic resources: {why}");
    Some(StartFailure { reason: "FailedPrepareDynamicResources", message })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use serde_json::json;

    /// A machine with a pod that uses claim `one`.
    fn machine() -> TestMachine {
        let container = json!({"name": "c", "image": "a"});
        let claims = json!([{"name": "gpu", "resourceClaimName": "one"}]);
        TestMachine::new(pod(json!({"containers": [container], "resourceClaims": claims})))
    }

    #[test]
    fn pod_starts_when_its_claim_is_reserved_for_it() {
        let told = |machine: &TestMachine| machine.events.last().expect("an event").message.clone();
        let mut without = machine();
        without.settle();
        assert!(without.starts.is_empty());
        assert!(told(&without).ends_with("resourceclaim \"one\" not found"), "{}", told(&without));
        let mut machine = machine();
        let mut claim = json!({"metadata": {"name": "one", "namespace": "default", "uid": "claim"}});
        machine.put("resourceclaims.resource.k8s.io", claim.clone());
        machine.settle();
        let expected = "pod p (uid-p) is not allowed to use ResourceClaim one (claim)";
        assert!(machine.starts.is_empty() && told(&machine).ends_with(expected), "{}", told(&machine));
        claim["status"] = json!({"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]});
        machine.put("resourceclaims.resource.k8s.io", claim);
        machine.settle();
        assert_eq!(machine.starts.len(), 1);
    }
}
