//! Tests of decisions that depend on randomness or on the cache. All other decisions are cases in `tests/cases/scheduler`.

use super::*;
use crate::object::Time;
use crate::test_cases::{self, words};
use crate::world::ClusterSettings;
use serde_json::{Value, json};

fn node(name: &str, cpu: &str, extra: Value) -> Value {
    let mut node = json!({
        "kind": "Node", "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    });
    json_patch::merge(&mut node, &extra);
    node
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    json_patch::merge(&mut pod, &json!({"spec": spec}));
    pod
}

fn asking(name: &str, cpu: &str) -> Value {
    pod(name, json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}))
}

fn world(objects: &[Value]) -> World {
    let mut world = World::new(Time::UNIX_EPOCH);
    for body in objects {
        let object = Object(body.clone());
        let resource = match object.kind() {
            "Node" => "nodes",
            "PodDisruptionBudget" => "poddisruptionbudgets.policy",
            "ReplicaSet" => "replicasets.apps",
            "Service" => "services",
            _ => "pods",
        };
        world.put(
            Key::new(crate::object::Resource(resource), object.namespace(), object.name()),
            body.to_string().into(),
        );
    }
    world
}

fn outcome(objects: &[Value], name: &str) -> String {
    let plan = plan(&world(objects), &Key::new(crate::object::Resource("pods"), "default", name));
    match &plan.writes[..] {
        [write] => match &write.verb {
            WriteVerb::Bind { node, .. } => node.to_string(),
            WriteVerb::Status(pod) => pod.items(&["status", "conditions"])[0]["message"].as_str().unwrap().to_owned(),
            other => format!("{other:?}"),
        },
        other => format!("{} writes", other.len()),
    }
}

#[test]
fn decisions_are_those_of_the_cases() {
    test_cases::check("scheduler", |case| {
        let mut world = test_cases::world(case);
        if case["profile"].is_object() {
            let (version, kind) = ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration");
            let config = json!({"apiVersion": version, "kind": kind, "profiles": [case["profile"]]});
            world.settings.profiles = config::profiles(&config).unwrap().into();
        }
        let plans = words(case, "pods").map(|pod| (pod, plan(&world, &test_cases::key(&format!("pod/{pod}")))));
        plans.map(|(pod, plan)| decision(pod, &plan)).collect()
    });
}

/// A plan of a pod as text: its node or the reason why it has none, victims, events, and the changes that it waits for.
fn decision(pod: &str, plan: &Plan) -> String {
    let condition = |pod: &Object| {
        let all = pod.items(&["status", "conditions"]);
        let text = |name: &str| all.last().and_then(|last| last[name].as_str()).unwrap_or_default();
        format!("{}, {}", text("reason"), text("message"))
    };
    let writes = plan.writes.iter().map(|write| match &write.verb {
        WriteVerb::Bind { node, .. } => format!("{pod}: goes to {node}"),
        WriteVerb::Status(object) => {
            let nominated = object.text(&["status", "nominatedNodeName"]).filter(|node| !node.is_empty());
            let node = nominated.map(|node| format!(", nominated to {node}")).unwrap_or_default();
            format!("{}: {}{node}", object.name(), condition(object))
        }
        WriteVerb::Delete { key, .. } => format!("{}: deleted", key.name),
        other => format!("{other:?}"),
    });
    let events =
        plan.events.iter().map(|event| format!("{}: event {}, {}", event.about.name, event.reason, event.message));
    let waits = plan.waits.iter().map(|wait| format!("{pod}: waits, {wait}"));
    writes.chain(events).chain(waits).map(|line| line + "\n").collect()
}

#[test]
fn unchanged_condition_is_not_written_again() {
    let mut waiting = pod("p", json!({}));
    let said = outcome(&[waiting.clone()], "p");
    waiting["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}]});
    let plan = plan(&world(&[waiting]), &Key::new(crate::object::Resource("pods"), "default", "p"));
    assert!(plan.is_empty() && plan.events.is_empty() && !plan.waits.is_empty());
}

/// Three nodes in two zones, and a pod on the third.
fn zones(more: &[Value]) -> Vec<Value> {
    let node = |name: &str, zone: &str| node(name, "4", json!({"metadata": {"labels": {"zone": zone}}}));
    let mut there = pod("there", json!({"nodeName": "c"}));
    there["metadata"]["labels"] = json!({"app": "web"});
    let mut all = vec![node("a", "1"), node("b", "1"), node("c", "2"), there];
    all.extend_from_slice(more);
    all
}

fn pod_of_app(spec: Value) -> Value {
    let mut pod = pod("p", spec);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod
}

#[test]
fn pods_are_spread() {
    let constraint = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    assert_ne!(outcome(&zones(&[pod_of_app(constraint)]), "p"), "c");
}

/// A pod on a node, with a priority, since a second of the epoch.
fn running(name: &str, node: &str, cpu: &str, priority: i64, since: i64) -> Value {
    let mut pod = asking(name, cpu);
    pod["metadata"]["labels"] = json!({"app": name});
    pod["spec"]["nodeName"] = node.into();
    pod["spec"]["priority"] = priority.into();
    pod["status"] = json!({"phase": "Running", "startTime": time::rfc3339(Time::from_second(since).unwrap())});
    pod
}

fn important(cpu: &str) -> Value {
    let mut pod = asking("p", cpu);
    pod["spec"]["priority"] = 100.into();
    pod
}

/// Hints are evaluated once for each group of alike pods: pods nominated for different nodes wait for different pods to end.
#[test]
fn nominated_pods_wait_for_their_own_node() {
    let waits = |node_name: &str, mut pod: Value, already: bool| {
        if already {
            pod["status"] = json!({"nominatedNodeName": node_name});
        }
        let mut going = running("x", node_name, "2", 1, 0);
        if already {
            going["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
            going["status"]["conditions"] =
                json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
        }
        let world = world(&[node(node_name, "2", json!({})), going, pod]);
        let plan = plan(&world, &Key::new(crate::object::Resource("pods"), "default", "p"));
        plan.scheduling_wait.expect("it waits").alike
    };
    assert_ne!(waits("a", important("2"), false), waits("b", important("2"), false));
    assert_eq!(waits("a", important("2"), false), waits("a", important("2"), true));
}

#[test]
fn wishes_about_other_pods_rank_nodes() {
    let soft = |key: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}}}]})
    };
    let wish = |field: &str, key: &str| {
        json!({"affinity": {field: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10,
            "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}}]}}})
    };
    for seed in 0..6 {
        let goes = |spec: Value| {
            let mut world = world(&zones(&[pod_of_app(spec)]));
            world.seed = seed;
            match &plan(&world, &Key::new(crate::object::Resource("pods"), "default", "p")).writes[0].verb {
                WriteVerb::Bind { node, .. } => node.to_string(),
                other => format!("{other:?}"),
            }
        };
        assert_ne!(goes(soft("zone")), "c", "away from the crowd");
        assert_eq!(goes(wish("podAffinity", "zone")), "c", "near the others");
        assert_ne!(goes(wish("podAntiAffinity", "kubernetes.io/hostname")), "c", "away from the others");
        // A preference that ranks no node changes nothing.
        assert!(["a", "b", "c"].contains(&goes(soft("rack")).as_str()));
    }
}

/// The outcome when the pod `p` is of this profile.
fn profiled(objects: &[Value], profile: Value) -> String {
    let (version, kind) = ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration");
    let config = json!({"apiVersion": version, "kind": kind, "profiles": [profile]});
    let mut world = world(objects);
    world.settings.profiles = config::profiles(&config).unwrap().into();
    let plan = plan(&world, &Key::new(crate::object::Resource("pods"), "default", "p"));
    match plan.writes.first().map(|write| &write.verb) {
        Some(WriteVerb::Bind { node, .. }) => node.to_string(),
        Some(WriteVerb::Status(pod)) => pod.items(&["status", "conditions"])[0]["message"].as_str().unwrap().to_owned(),
        other => format!("{other:?} {}", plan.waits.join("")),
    }
}

#[test]
fn default_constraints_spread_what_a_service_selects() {
    let zones = [
        node("a", "4", json!({"metadata": {"labels": {"zone": "a"}}})),
        node("b", "4", json!({"metadata": {"labels": {"zone": "b"}}})),
    ];
    let pod_in = |name: &str, node: Value| {
        let mut pod = asking(name, "1");
        json_patch::merge(&mut pod, &json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": node}}));
        pod
    };
    let constraints = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    let args = json!({"defaultingType": "List", "defaultConstraints": constraints});
    let mut profile = json!({"pluginConfig": [{"name": "PodTopologySpread", "args": args}]});
    profile["plugins"] = json!({"score": {"disabled": [{"name": "*"}]}});
    let mut cordoned = zones[1].clone();
    cordoned["spec"]["unschedulable"] = true.into();
    let objects = [zones[0].clone(), cordoned, pod_in("q", "a".into()), pod_in("p", Value::Null)];
    assert_eq!(profiled(&objects, profile.clone()), "a", "nothing selects it");
    let mut world = world(&objects);
    let service = json!({"kind": "Service", "metadata": {"name": "s", "namespace": "default", "uid": "s"}, "spec": {"selector": {"app": "x"}}});
    world.put(Key::new(crate::object::Resource("services"), "default", "s"), service.to_string().into());
    let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]});
    world.settings.profiles = config::profiles(&config).unwrap().into();
    let plan = plan(&world, &Key::new(crate::object::Resource("pods"), "default", "p"));
    assert!(plan.waits[0].contains("1 node(s) didn't match pod topology spread constraints"), "{:?}", plan.waits);
}

/// Returns the node of `p` for every seed; several nodes when the seed decides.
fn goes(objects: &[Value]) -> String {
    let mut found = BTreeSet::new();
    for seed in 0..6 {
        let mut world = world(objects);
        world.seed = seed;
        let plan = plan(&world, &Key::new(crate::object::Resource("pods"), "default", "p"));
        let Some(WriteVerb::Bind { node, .. }) = plan.writes.first().map(|write| &write.verb) else {
            return "none".into();
        };
        found.insert(node.to_string());
    }
    Vec::from_iter(found).join(",")
}

fn default_selector(kind: &str, name: &str, selector: Value) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"selector": selector}})
}

#[test]
fn pods_of_services_and_owners_are_spread_by_default() {
    let at = |name: &str, zone: &str| {
        node(name, "4", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
    };
    let of = |name: &str, node: Value, app: &str| {
        let mut pod = asking(name, "1");
        pod["metadata"]["labels"] = json!({"app": app});
        pod["metadata"]["ownerReferences"] =
            json!([{"uid": "rs", "name": "rs", "kind": "ReplicaSet", "controller": true}]);
        pod["spec"]["nodeName"] = node;
        pod
    };
    let service = default_selector("Service", "s", json!({"app": "x"}));
    let owner = default_selector("ReplicaSet", "rs", json!({"matchLabels": {"app": "x"}}));
    // Every node has one pod of one core, so that only spreading distinguishes them.
    let objects = |more: &[Value]| -> Vec<Value> {
        let pods = [of("q", "a".into(), "x"), of("r", "b".into(), "y"), of("s", "c".into(), "y")];
        let zones = [at("a", "1"), at("b", "1"), at("c", "2")];
        zones.into_iter().chain(pods).chain([of("p", Value::Null, "x")]).chain(more.iter().cloned()).collect()
    };
    assert_eq!(goes(&objects(&[])), "a,b,c", "nothing selects it");
    assert_eq!(goes(&objects(std::slice::from_ref(&service))), "c");
    assert_eq!(goes(&objects(std::slice::from_ref(&owner))), "c");
    assert_eq!(goes(&objects(&[default_selector("ReplicaSet", "rs", json!({"matchLabels": {"app": "y"}}))])), "a");
    assert_eq!(goes(&objects(&[default_selector("Service", "s", json!({"app": "z"}))])), "a,b,c");
    let mut own = objects(&[service]);
    own[6]["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "y"}}}]);
    assert_eq!(goes(&own), "a", "its own constraints alone count");
    let mut leaving = objects(std::slice::from_ref(&owner));
    leaving[3]["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
    assert_eq!(goes(&leaving), "a,b,c", "pods that are leaving do not count");
    // Nodes without zones are still ranked by the label with their names.
    let mut plain = objects(&[owner]);
    plain[..3].iter_mut().for_each(|node| {
        node["metadata"]["labels"].as_object_mut().unwrap().remove("topology.kubernetes.io/zone");
    });
    assert_eq!(goes(&plain), "b,c");
    let list = json!({"pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}]}}]});
    assert_eq!(profiled(&plain, list), "a", "a list replaces them, and by zones that are not there nothing is ranked");
}

#[test]
fn affinity_of_running_pods_counts() {
    let required = |field: &str| {
        json!({field: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}})
    };
    let preferred = |field: &str| {
        json!({field: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm":
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}}]}})
    };
    let nodes = [node("a", "4", json!({})), node("b", "4", json!({}))];
    let objects = |affinity: Value, app: &str| -> Vec<Value> {
        let mut there = pod("there", json!({"nodeName": "a", "affinity": affinity}));
        there["metadata"]["labels"] = json!({"app": "db"});
        let mut p = pod("p", json!({}));
        p["metadata"]["labels"] = json!({"app": app});
        nodes.iter().cloned().chain([there, pod("other", json!({"nodeName": "b"})), p]).collect()
    };
    for (case, affinity, app, wanted) in [
        ("they prefer it near", preferred("podAffinity"), "web", "a"),
        ("they prefer another near", preferred("podAffinity"), "cache", "a,b"),
        ("they prefer it far", preferred("podAntiAffinity"), "web", "b"),
        ("they had to be near pods like it", required("podAffinity"), "web", "a"),
    ] {
        assert_eq!(goes(&objects(affinity, app)), wanted, "{case}");
    }
    let indifferent = json!({"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 0}}],
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "InterPodAffinity"}]}}});
    let mut world = world(&objects(required("podAffinity"), "web"));
    let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [indifferent]});
    world.settings.profiles = config::profiles(&config).unwrap().into();
    let key = Key::new(crate::object::Resource("pods"), "default", "p");
    let scores = |world: &World| -> Vec<i64> {
        explain::explain(world, &key).iter().map(|node| node.scores.iter().map(|(_, score)| score).sum()).collect()
    };
    assert_eq!(scores(&world), [0, 0]);
    // Counts follow the pods.
    world.settings.profiles = ClusterSettings::default().profiles;
    assert!(scores(&world)[0] > scores(&world)[1]);
    world.remove(&Key::new(crate::object::Resource("pods"), "default", "there"));
    world.remove(&Key::new(crate::object::Resource("pods"), "default", "other"));
    let left = scores(&world);
    assert_eq!(left[0], left[1]);
}

#[test]
fn images_that_nodes_have_rank_them() {
    let having = |name: &str, image: &str, megabytes: i64| {
        node(name, "4", json!({"status": {"images": [{"names": [image], "sizeBytes": megabytes << 20}]}}))
    };
    let wants = |image: &str| pod("p", json!({"containers": [{"name": "c", "image": image}]}));
    let with = |image: &str, pod: &str| goes(&[having("a", image, 600), node("b", "4", json!({})), wants(pod)]);
    assert_eq!(with("docker.io/library/big:latest", "docker.io/library/big"), "a");
    assert_eq!(with("big:1", "big:2"), "a,b");
    assert_eq!(goes(&[having("a", "x:1", 20), node("b", "4", json!({})), wants("x:1")]), "a,b", "too small to matter");
    // 300 MiB count for a, because one of two nodes has them: (300 - 23) of (1000 - 23).
    let world = world(&[having("a", "x:1", 600), node("b", "4", json!({})), wants("x:1")]);
    let verdicts = explain::explain(&world, &Key::new(crate::object::Resource("pods"), "default", "p"));
    assert_eq!(verdicts[0].scores.last(), Some(&("ImageLocality", 28)));
}
