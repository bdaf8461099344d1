//! Tests of binding conditions: pods that wait until a driver has made their devices ready.

use super::tests::{
    DRIVER, container, device, extended_class, extended_pod, plan_for, pod, simple_claim, slice, world, written,
};
use crate::object::time::Shift;
use crate::object::{Key, Object, Time};
use crate::world::{World, WriteVerb};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// A device that has to be attached first.
fn attachable(name: &str) -> Value {
    json!({
        "name": name, "bindsToNode": true, "bindingConditions": ["dra.example.com/attached"],
        "bindingFailureConditions": ["dra.example.com/failed"],
    })
}

fn everywhere(name: &str, devices: Value) -> Value {
    slice(name, json!({"allNodes": true}), devices)
}

/// Stages the writes of statuses, as their commit would.
fn keep_statuses(world: &mut World, pod: &str) {
    for write in plan_for(world, pod).writes {
        let object = match write.verb {
            WriteVerb::Status(status) => status,
            WriteVerb::Create(object) => object,
            _ => continue,
        };
        let plural = if object.kind() == "Pod" { "pods" } else { "resourceclaims.resource.k8s.io" };
        let key = Key::new(crate::object::Resource(plural), "default", object.name());
        let mut kept = world.get(&key).map_or_else(|| object.clone(), |row| row.object());
        kept.set(&["status"], object.0["status"].clone());
        kept.set(&["metadata", "resourceVersion"], "2");
        world.put(key, kept.0.to_string().into());
    }
}

/// Changes the claim `x`.
fn change_claim(world: &mut World, change: impl Fn(&mut Object)) {
    let row = world.find("resourceclaims.resource.k8s.io", "default", "x").unwrap().clone();
    let mut claim = row.object();
    change(&mut claim);
    world.put(row.key.clone(), claim.0.to_string().into());
}

/// Reports a condition of a device, as its driver does.
fn report(world: &mut World, pool: &str, device: &str, condition: &str) {
    let condition = json!({"type": condition, "status": "True"});
    let reported = json!([{"driver": DRIVER, "pool": pool, "device": device, "conditions": [condition]}]);
    change_claim(world, |claim| claim.set(&["status", "devices"], reported.clone()));
}

/// A pod that waits for device `d0` on a node.
fn waiting() -> (World, String) {
    let objects = [
        everywhere("net", json!([attachable("d0"), attachable("d1")])),
        simple_claim("x", json!({})),
        pod("p", &["x"]),
    ];
    let mut world = world(&objects);
    let plan = plan_for(&world, "p");
    let node = ["a", "b"].into_iter().find(|node| written(&plan) == format!("x=d0 waits on {node}"));
    let node = node.unwrap_or_else(|| panic!("{}", written(&plan)));
    let event = plan.events.first().map(|event| (event.reason.clone(), event.message.clone()));
    let message = format!("waiting for binding conditions for device on node {node}");
    assert_eq!(event, Some(("BindingConditionsPending".into(), message)));
    keep_statuses(&mut world, "p");
    (world, node.to_owned())
}

#[test]
fn pod_is_bound_when_its_devices_are_ready() {
    let (mut world, node) = waiting();
    let claim = world.find("resourceclaims.resource.k8s.io", "default", "x").unwrap().object();
    let result = &claim.0["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(result["bindingConditions"], json!(["dra.example.com/attached"]));
    assert_eq!(result["bindingFailureConditions"], json!(["dra.example.com/failed"]));
    let selector = &claim.0["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0];
    assert_eq!(selector["values"], json!([node]), "the device binds the claim to its node");
    let plan = plan_for(&world, "p");
    assert!(plan.writes.is_empty() && plan.events.is_empty(), "{:?}", plan.writes);
    assert_eq!(plan.wake, Some(Time::UNIX_EPOCH + SignedDuration::from_secs(600)));
    assert!(plan.scheduling_wait.is_some_and(|wait| wait.causes.contains(super::PLUGIN)));
    report(&mut world, "net", "d1", "dra.example.com/attached");
    assert_eq!(written(&plan_for(&world, "p")), "", "another device is ready");
    report(&mut world, "net", "d0", "dra.example.com/attached");
    assert_eq!(written(&plan_for(&world, "p")), node);
}

#[test]
fn claim_of_a_failed_or_late_device_is_allocated_again() {
    for case in ["failed", "late"] {
        let (mut world, node) = waiting();
        match case {
            "failed" => report(&mut world, "net", "d0", "dra.example.com/failed"),
            _ => world.now = world.now.later(SignedDuration::from_secs(600)),
        }
        let plan = plan_for(&world, "p");
        let told = "x= 2 resourceclaim not available on the node. deallocation of ResourceClaim completed, preemption: \
                    0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
        assert_eq!(written(&plan), told, "{case}");
        assert!(matches!(&plan.writes[0].verb, WriteVerb::Status(claim) if claim.0["status"] == json!({})));
        keep_statuses(&mut world, "p");
        assert!(written(&plan_for(&world, "p")).starts_with("x=d0 waits on "), "{case}, first on {node}");
    }
}

#[test]
fn claim_that_another_pod_uses_keeps_its_device() {
    let (mut world, _) = waiting();
    let two = json!([{"resource": "pods", "name": "p", "uid": "5"}, {"resource": "pods", "name": "q", "uid": "q"}]);
    change_claim(&mut world, |claim| claim.set(&["status", "reservedFor"], two.clone()));
    report(&mut world, "net", "d0", "dra.example.com/failed");
    assert_eq!(written(&plan_for(&world, "p")), "2 resourceclaim not available on the node.");
}

#[test]
fn ready_devices_are_preferred() {
    let slices = [everywhere("a", json!([attachable("slow")])), everywhere("b", json!([device("here", "m")]))];
    let objects = [&slices[..], &[simple_claim("x", json!({})), pod("p", &["x"])]].concat();
    let told = written(&plan_for(&world(&objects), "p"));
    assert!(["x=here a", "x=here b"].contains(&&*told), "{told}");
}

#[test]
fn pod_with_extended_resources_waits_with_one_claim() {
    let spec = json!({"containers": [container("one", "1")]});
    let mut world =
        world(&[everywhere("net", json!([attachable("d0"), attachable("d1")])), extended_class(), extended_pod(spec)]);
    let told = written(&plan_for(&world, "p"));
    assert!(told.contains("=d0 waits on "), "{told}");
    keep_statuses(&mut world, "p");
    let plan = plan_for(&world, "p");
    assert!(plan.writes.is_empty(), "{:?}", plan.writes);
}
