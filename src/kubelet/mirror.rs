//! Mirror pods: how the API shows the static pods of a node (Kubernetes: `pkg/kubelet/pod/mirror_client.go`).
//!
//! The node identifies a static pod by the hash of its manifest, the API identifies its mirror by a uid. A deleted mirror is created again,
//! and the processes go on. A mirror whose manifest has changed or is gone ends like any deleted pod.

use super::termination::remove;
use crate::kinds::shared::process_ids;
use crate::object::{Key, MIRROR, Object, Str, time};
use crate::world::{NodeFacts, Plan, Propagation, Row, StaticPod, World, WriteVerb};
use serde_json::json;

/// Plans a pod of the kubelet's own.
type StaticPodPlanner = fn(&World, &Row, &NodeFacts, &mut Plan);

/// The hash of the static pod of this name, also after its manifest was removed.
pub fn hash(world: &World, key: &Key) -> Option<Str> {
    let mirrored = || {
        let row = world.get(key).filter(|row| row.mentions(MIRROR))?;
        let object = row.body();
        Some(Str::from(object.local_uid())).filter(|hash| *hash != row.uid)
    };
    mirrored().or_else(|| world.facts.statics.get(key).map(|pod| pod.hash.clone()))
}

/// Plans a static pod, its mirror, or both.
pub fn plan(world: &World, key: &Key, hash: &Str, run: StaticPodPlanner, plan: &mut Plan) {
    let wanted = world.facts.statics.get(key);
    let Some(mirror) = world.get(key) else {
        return wanted.into_iter().for_each(|pod| create(world, key, pod, plan));
    };
    let is_mirror = mirror.uid != *hash && mirror.body().local_uid() == &**hash;
    let node = mirror.pod().and_then(|pod| world.facts.nodes.get(pod.node.as_ref()?));
    let Some(node) = node.filter(|node| node.ours) else { return };
    if !is_mirror {
        plan.wait(format!(
            "pod {} already exists and no manifest defines it; the static pod of that name is not started",
            key.path()
        ));
        return run(world, mirror, node, plan);
    }
    let known = world.facts.pods.get(hash).filter(|facts| facts.key() == *key);
    match wanted.filter(|pod| pod.hash == *hash) {
        Some(pod) if mirror.is_deleting() && mirror.finalizers.is_empty() => {
            delete(mirror, Some(0), "the mirror was deleted, its manifest was not", plan);
            write_mirror(world, pod, plan);
        }
        None if known.is_none() => delete(mirror, Some(0), "no manifest defines this static pod", plan),
        None if !mirror.is_deleting() => delete(mirror, None, "its manifest was removed or changed", plan),
        pod => {
            let first = plan.writes.len();
            run(world, &mirror_row(mirror, hash, pod), node, plan);
            plan.writes[first..].iter_mut().for_each(|write| as_mirrored(mirror, &mut write.verb));
        }
    }
}

/// Creates the mirror, once nothing is left of the previous pod of this name.
fn create(world: &World, key: &Key, pod: &StaticPod, plan: &mut Plan) {
    let mut others = world.facts.pods.named(key).filter(|(uid, facts)| **uid != pod.hash || facts.removing.is_some());
    if let Some((uid, facts)) = others.next() {
        plan.wait("the processes of the previous pod of this name are still ending");
        remove(world, uid, facts, plan);
        return;
    }
    write_mirror(world, pod, plan);
}

fn write_mirror(world: &World, pod: &StaticPod, plan: &mut Plan) {
    let name = pod.object.text(&["spec", "nodeName"]).unwrap_or_default();
    let Some(node) = world.find("nodes", "", name).filter(|_| world.facts.runs_node(name)) else {
        return plan.wait("its Node does not exist");
    };
    let mut mirror = (*pod.object).clone();
    mirror.set(&["metadata", "annotations", MIRROR], &*pod.hash);
    mirror.set(&["metadata", "annotations", "kubernetes.io/config.seen"], time::micro(world.now));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": &*node.uid, "controller": true});
    mirror.set(&["metadata", "ownerReferences"], vec![owner]);
    plan.write(WriteVerb::Create(mirror), format!("shows the static pod of {}", pod.file));
}

fn delete(mirror: &Row, grace: Option<i64>, why: &str, plan: &mut Plan) {
    plan.delete_with(mirror, grace, Propagation::Background, why);
}

/// Makes the node's row of a static pod: its uid is the hash, its spec is the manifest's while there is one, its status is the mirror's.
fn mirror_row(mirror: &Row, hash: &Str, wanted: Option<&StaticPod>) -> Row {
    let mut pod = mirror.object();
    if let Some(wanted) = wanted {
        pod.set(&["spec"], wanted.object.0["spec"].clone());
        let ids = pod.annotation(process_ids::ANNOTATION).map(str::to_owned);
        for field in ["labels", "annotations"] {
            pod.unset(&["metadata", field]);
            pod.set(&["metadata", field], wanted.object.0["metadata"][field].clone());
        }
        if let Some(ids) = ids {
            pod.set(&["metadata", "annotations", process_ids::ANNOTATION], ids);
        }
        pod.unset(&["metadata", "deletionTimestamp"]);
        pod.unset(&["metadata", "deletionGracePeriodSeconds"]);
    }
    pod.set(&["metadata", "uid"], &**hash);
    Row::new(mirror.key.clone(), pod)
}

/// Redirects writes about the static pod to its mirror.
fn as_mirrored(mirror: &Row, verb: &mut WriteVerb) {
    match verb {
        WriteVerb::Status(pod) => {
            let mut updated: Object = mirror.object();
            updated.set(&["status"], pod.0["status"].take());
            *pod = updated;
        }
        WriteVerb::Delete { key, uid, .. } if *key == mirror.key => *uid = mirror.uid.clone(),
        WriteVerb::Attempt { pod_uid, .. } => *pod_uid = mirror.uid.clone(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LOOP, manifests};
    use super::*;
    use crate::object::{Resource, Time};
    use crate::world::{Effect, PodFacts};
    use std::collections::BTreeMap;

    const MANIFEST: &str =
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: x}]}}";

    /// A world in which a manifest asks for the pod `web-n`.
    fn world() -> (World, Key, Str) {
        world_with(MANIFEST)
    }

    fn world_with(manifest: &str) -> (World, Key, Str) {
        let mut world = World::new(Time::from_second(1_700_000_000).unwrap());
        world.facts.inventory_complete = true;
        world.facts.nodes.insert("n".into(), NodeFacts { ours: true, ..NodeFacts::default() });
        let node = json!({"metadata": {"name": "n", "uid": "node-uid"}});
        world.put(Key::new(Resource("nodes"), "", "n"), node.to_string().into());
        let found = manifests::read(&[("/m/a".into(), Ok(manifest.into()))], "n", &BTreeMap::new());
        let (key, pod) = found.pods.first_key_value().map(|(key, pod)| (key.clone(), pod.clone())).unwrap();
        world.facts.statics = found.pods;
        (world, key, pod.hash)
    }

    fn created(plan: &Plan) -> Option<Object> {
        plan.writes.iter().find_map(|write| match &write.verb {
            WriteVerb::Create(object) => Some(object.clone()),
            _ => None,
        })
    }

    /// The mirror as the API server keeps it.
    fn put_mirror(world: &mut World, mut mirror: Object, uid: &str) -> Object {
        mirror.set(&["metadata", "uid"], uid);
        world.put(Key::new(Resource("pods"), "default", "web-n"), mirror.0.to_string().into());
        mirror
    }

    #[test]
    fn mirror_pod_shows_the_pod_and_the_node_goes_by_its_hash() {
        let (mut world, key, hash) = world();
        let mirror = created(&(LOOP.plan)(&world, &key)).unwrap();
        assert_eq!(mirror.annotation(MIRROR), Some(&*hash));
        let owner = mirror.controller().unwrap();
        assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()), ("Node", "n", "node-uid"));
        let mut mirror = put_mirror(&mut world, mirror, "one");
        mirror.set(&["spec", "containers"], vec![json!({"name": "c", "image": "edited"})]);
        put_mirror(&mut world, mirror, "one");
        let plan = (LOOP.plan)(&world, &key);
        let written = plan.writes.iter().map(|write| match &write.verb {
            WriteVerb::Status(pod) => pod.uid().to_owned(),
            WriteVerb::Attempt { pod_uid, .. } => pod_uid.to_string(),
            other => panic!("{other:?}"),
        });
        assert!(written.into_iter().all(|uid| uid == "one"));
        let starts = plan.effects.iter().filter_map(|effect| match effect {
            Effect::Start(start) => Some((&*start.pod_uid, start.image.as_str())),
            _ => None,
        });
        assert_eq!(starts.collect::<Vec<_>>(), [(&*hash, "x")], "as the manifest says");
        assert!(plan.events.iter().all(|event| event.uid == hash));
    }

    #[test]
    fn static_pod_takes_neither_ports_nor_room_from_itself() {
        let container =
            "{name: c, image: x, ports: [{containerPort: 80, hostPort: 80}], resources: {requests: {cpu: '2'}}}";
        let manifest =
            format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{containers: [{container}]}}}}");
        for uid in ["0", "zzz"] {
            let (mut world, key, hash) = world_with(&manifest);
            let allocatable = json!({"cpu": "1", "memory": "1Gi", "pods": "1"});
            let node = json!({"metadata": {"name": "n", "uid": "node-uid"}, "status": {"allocatable": allocatable}});
            world.put(Key::new(Resource("nodes"), "", "n"), node.to_string().into());
            let mut mirror = created(&(LOOP.plan)(&world, &key)).unwrap();
            mirror.set(&["metadata", "creationTimestamp"], "2026-01-01T00:00:00Z");
            put_mirror(&mut world, mirror, uid);
            let plan = (LOOP.plan)(&world, &key);
            let is_start = |effect: &Effect| matches!(effect, Effect::Start(start) if start.pod_uid == hash);
            assert!(plan.effects.iter().any(is_start), "{uid}: {plan:?}");
        }
    }

    #[test]
    fn deleted_mirror_pod_is_created_again_and_nothing_is_stopped() {
        let (mut world, key, hash) = world();
        let mut mirror = created(&(LOOP.plan)(&world, &key)).unwrap();
        mirror.set(&["metadata", "deletionTimestamp"], "2023-11-14T22:13:50Z");
        put_mirror(&mut world, mirror, "one");
        let facts = || PodFacts { namespace: "default".into(), name: "web-n".into(), ..PodFacts::default() };
        world.facts.pods.insert(hash.clone(), facts());
        let plan = (LOOP.plan)(&world, &key);
        assert!(matches!(&plan.writes[0].verb, WriteVerb::Delete { uid, grace: Some(0), .. } if &**uid == "one"));
        assert!(created(&plan).is_some() && plan.effects.is_empty(), "{plan:?}");
        world.remove(&key);
        let plan = (LOOP.plan)(&world, &key);
        assert!(created(&plan).is_some() && plan.effects.is_empty(), "gone by force: {plan:?}");
        world.facts.pods.get_mut(&hash).unwrap().removing = Some(world.now);
        assert!(created(&(LOOP.plan)(&world, &key)).is_none(), "what is being ended goes first");
    }

    #[test]
    fn mirror_pod_without_its_manifest_terminates_within_its_grace_period() {
        let (mut world, key, hash) = world();
        let mirror = created(&(LOOP.plan)(&world, &key)).unwrap();
        let mut mirror = put_mirror(&mut world, mirror, "one");
        world.facts.statics.clear();
        let graces = |world: &World| -> Vec<Option<i64>> {
            let plan = (LOOP.plan)(world, &key);
            plan.writes
                .iter()
                .filter_map(|write| match &write.verb {
                    WriteVerb::Delete { grace, .. } => Some(*grace),
                    _ => None,
                })
                .collect()
        };
        assert_eq!(graces(&world), [Some(0)], "nothing runs");
        let facts = PodFacts { namespace: "default".into(), name: "web-n".into(), ..PodFacts::default() };
        world.facts.pods.insert(hash.clone(), facts);
        assert_eq!(graces(&world), [None], "its own grace");
        mirror.set(&["metadata", "deletionTimestamp"], "2023-11-14T22:13:50Z");
        put_mirror(&mut world, mirror, "one");
        let plan = (LOOP.plan)(&world, &key);
        assert!(plan.effects.contains(&Effect::Remove { pod_uid: hash.clone() }), "{plan:?}");
        world.remove(&key);
        assert_eq!((LOOP.plan)(&world, &key).effects, [Effect::Remove { pod_uid: hash }]);
    }
}
