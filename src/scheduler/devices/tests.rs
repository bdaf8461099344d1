//! Tests of the allocation of devices.

use super::super::plan;
use crate::kinds;
use crate::object::{Key, Object, Resource, Time};
use crate::world::{Plan, World, WriteVerb};
use serde_json::{Value, json};

pub(super) const DRIVER: &str = "gpu.example.com";

/// Nodes `a` and `b`, the class `gpu`, and the objects of a case; uids are numbers in this order.
pub(super) fn world(objects: &[Value]) -> World {
    let node = |name: &str, zone: &str| {
        let metadata = json!({"name": name, "labels": {"zone": zone}});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": {"pods": "9"}}})
    };
    let config = json!([{"opaque": {"driver": DRIVER, "parameters": {"of": "class"}}}]);
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"config": config}});
    let mut world = World::new(Time::UNIX_EPOCH);
    for (number, body) in [node("a", "x"), node("b", "y"), class].iter().chain(objects).enumerate() {
        let mut object = Object(body.clone());
        let kind = kinds::by_kind(object.api_version(), object.kind()).unwrap();
        object = Object((kind.normalize)(&object.0, &mut |path| panic!("{path:?}")).unwrap());
        object.set(&["metadata", "uid"], format!("{number}"));
        object.set(&["metadata", "resourceVersion"], "1");
        let namespace = if kind.namespaced { "default" } else { "" };
        object.set(&["metadata", "namespace"], namespace);
        world.put(Key::new(kind.resource, namespace, object.name()), object.0.to_string().into());
    }
    world
}

/// A slice of pool `NAME` with these devices, for the nodes that `nodes` selects.
pub(super) fn slice(name: &str, nodes: Value, devices: Value) -> Value {
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    let mut spec = json!({"driver": DRIVER, "pool": pool, "devices": devices});
    json_patch::merge(&mut spec, &nodes);
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn device(name: &str, model: &str) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}}})
}

fn claim(name: &str, devices: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": devices}})
}

/// A claim with one request, `gpu`.
pub(super) fn simple_claim(name: &str, more: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    json_patch::merge(&mut exactly, &more);
    claim(name, json!({"requests": [{"name": "gpu", "exactly": exactly}]}))
}

pub(super) fn pod(name: &str, claims: &[&str]) -> Value {
    let claims: Vec<Value> = claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    let spec = json!({"containers": [{"name": "c", "image": "x"}], "resourceClaims": claims});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn plan_for(world: &World, pod: &str) -> Plan {
    plan(world, &Key::new(Resource("pods"), "default", pod))
}

/// The writes of a plan: `CLAIM=DEVICE+DEVICE`, `NODE`, or the message of a pod that waits.
pub(super) fn written(plan: &Plan) -> String {
    let told = plan.writes.iter().filter_map(|write| match &write.verb {
        WriteVerb::Bind { node, .. } => Some(node.to_string()),
        WriteVerb::Status(pod) if pod.kind() == "Pod" => {
            if let Some(node) = pod.text(&["status", "nominatedNodeName"]) {
                return Some(format!("waits on {node}"));
            }
            let message = pod.items(&["status", "conditions"])[0]["message"].as_str().unwrap();
            let short = message.trim_start_matches("0/2 nodes are available: ").trim_end_matches(". not found");
            Some(short.split(" still not").next().unwrap().to_owned())
        }
        WriteVerb::Status(claim) => {
            let results = claim.items(&["status", "allocation", "devices", "results"]).iter();
            let devices: Vec<&str> = results.map(|result| result["device"].as_str().unwrap()).collect();
            Some(format!("{}={}", claim.name(), devices.join("+")))
        }
        WriteVerb::Update(claim) => claim.items(&["metadata", "finalizers"]).is_empty().then(|| "?".to_owned()),
        _ => Some("?".to_owned()),
    });
    told.collect::<Vec<_>>().join(" ")
}

fn outcome(mut objects: Vec<Value>, claims: &[&str]) -> String {
    objects.push(pod("p", claims));
    written(&plan_for(&world(&objects), "p"))
}

fn on_b(devices: Value) -> Value {
    slice("pool", json!({"nodeName": "b"}), devices)
}

#[test]
fn pod_goes_where_its_devices_are() {
    let two = || on_b(json!([device("d0", "m"), device("d1", "n")]));
    let none = "2 cannot allocate all claims.";
    let cases: Vec<(&str, Vec<Value>, &[&str], &str)> = vec![
        ("one device", vec![two(), simple_claim("x", json!({}))], &["x"], "x=d0 b"),
        ("two of one request", vec![two(), simple_claim("x", json!({"count": 2}))], &["x"], "x=d0+d1 b"),
        ("too many", vec![two(), simple_claim("x", json!({"count": 3}))], &["x"], none),
        ("all", vec![two(), simple_claim("x", json!({"allocationMode": "All"}))], &["x"], "x=d0+d1 b"),
        ("all of none", vec![simple_claim("x", json!({"allocationMode": "All"}))], &["x"], none),
        (
            "two claims",
            vec![two(), simple_claim("x", json!({})), simple_claim("y", json!({}))],
            &["x", "y"],
            "x=d0 y=d1 b",
        ),
        ("no slice", vec![simple_claim("x", json!({}))], &["x"], none),
        ("no claim", vec![two()], &["x"], ""),
        (
            "no class",
            vec![two(), simple_claim("x", json!({"deviceClassName": "no"}))],
            &["x"],
            "request gpu: device class no does not exist",
        ),
    ];
    for (case, objects, claims, expected) in cases {
        assert_eq!(outcome(objects, claims), expected, "{case}");
    }
    let everywhere = slice("net", json!({"allNodes": true}), json!([device("d0", "m")]));
    assert!(["x=d0 a", "x=d0 b"].contains(&&*outcome(vec![everywhere, simple_claim("x", json!({}))], &["x"])));
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]});
    let zone = slice("zone", json!({"nodeSelector": {"nodeSelectorTerms": [term]}}), json!([device("d0", "m")]));
    assert_eq!(outcome(vec![zone, simple_claim("x", json!({}))], &["x"]), "x=d0 a");
    let own = json!([{"name": "d0", "nodeName": "a"}, {"name": "d1", "nodeName": "b"}]);
    let own = slice("own", json!({"perDeviceNodeSelection": true}), own);
    assert_eq!(outcome(vec![own, simple_claim("x", json!({"count": 2}))], &["x"]), none);
}

#[test]
fn newest_generation_of_a_pool_counts() {
    let with = |name: &str, generation: i64, count: i64, device: &str| {
        let mut slice = slice("pool", json!({"nodeName": "b"}), json!([{"name": device}]));
        slice["metadata"]["name"] = name.into();
        slice["spec"]["pool"] = json!({"name": "pool", "generation": generation, "resourceSliceCount": count});
        slice
    };
    let asked = |slices: Vec<Value>, mode: &str| {
        outcome([slices, vec![simple_claim("x", json!({"allocationMode": mode}))]].concat(), &["x"])
    };
    assert_eq!(asked(vec![with("old", 1, 1, "d0"), with("new", 2, 1, "d1")], "ExactCount"), "x=d1 b");
    let half = vec![with("half", 1, 2, "d0")];
    assert_eq!(asked(half.clone(), "ExactCount"), "x=d0 b");
    let expected = "1 cannot allocate all claims, 1 claim default/x, request gpu: asks for all devices, but resource pool gpu.example.com/pool is currently being updated.";
    assert_eq!(asked(half, "All"), expected);
}

#[test]
fn first_possible_alternative_is_taken() {
    let parts = json!([{"name": "many", "deviceClassName": "gpu", "count": 3}, {"name": "few", "deviceClassName": "gpu", "count": 1}]);
    let claim = claim("x", json!({"requests": [{"name": "gpu", "firstAvailable": parts}]}));
    let objects = vec![on_b(json!([device("d0", "m"), device("d1", "m")])), claim, pod("p", &["x"])];
    let plan = plan_for(&world(&objects), "p");
    assert_eq!(written(&plan), "x=d0 b");
    let statuses = plan.writes.iter().filter_map(|write| match &write.verb {
        WriteVerb::Status(claim) => Some(claim.0["status"]["allocation"]["devices"]["results"][0]["request"].clone()),
        _ => None,
    });
    assert_eq!(statuses.collect::<Vec<_>>(), ["gpu/few"]);
}

#[test]
fn node_with_an_earlier_alternative_is_preferred() {
    let part = |name: &str, model: &str| {
        let expression = format!("device.attributes[\"{DRIVER}\"].model == \"{model}\"");
        json!({"name": name, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]})
    };
    let claim =
        claim("x", json!({"requests": [{"name": "gpu", "firstAvailable": [part("best", "m"), part("good", "n")]}]}));
    for (on_a, on_b, node) in [("n", "m", "x=d b"), ("m", "n", "x=d a")] {
        let pool = |node: &str, model: &str| slice(node, json!({"nodeName": node}), json!([device("d", model)]));
        let objects = vec![pool("a", on_a), pool("b", on_b), claim.clone(), pod("p", &["x"])];
        let mut world = world(&objects);
        for seed in 0..4 {
            world.seed = seed;
            assert_eq!(written(&plan_for(&world, "p")), node, "{seed}");
        }
    }
}

#[test]
fn error_of_a_selector_ends_the_attempt() {
    let selectors = json!([{"cel": {"expression": format!("device.attributes[\"{DRIVER}\"].model == \"m\"")}}]);
    let fits = slice("a", json!({"nodeName": "a"}), json!([device("d0", "m")]));
    let fails = on_b(json!([{"name": "d1"}]));
    let objects = vec![fits, fails, simple_claim("x", json!({ "selectors": selectors })), pod("p", &["x"])];
    let plan = plan_for(&world(&objects), "p");
    let told =
        "running \"DynamicResources\" filter plugin: claim default/x: selector #0: CEL runtime error: no such key";
    assert!(written(&plan).starts_with(told), "{}", written(&plan));
    let WriteVerb::Status(status) = &plan.writes[0].verb else { panic!("{plan:?}") };
    assert_eq!(status.items(&["status", "conditions"])[0]["reason"], "SchedulerError");
}

#[test]
fn constraints_bind_devices_together() {
    let devices = || on_b(json!([device("d0", "m"), device("d1", "n"), device("d2", "n"), {"name": "d3"}]));
    let with = |constraint: Value| {
        let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 2}}]);
        let claim = claim("x", json!({"requests": requests, "constraints": [constraint]}));
        outcome(vec![devices(), claim], &["x"])
    };
    assert_eq!(with(json!({"matchAttribute": "gpu.example.com/model"})), "x=d1+d2 b");
    assert_eq!(with(json!({"distinctAttribute": "gpu.example.com/model"})), "x=d0+d1 b");
    assert_eq!(with(json!({"matchAttribute": "gpu.example.com/none"})), "2 cannot allocate all claims.");
}

#[test]
fn tainted_devices_need_a_toleration() {
    let taints = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let asked = |request: Value| {
        let devices = json!([{"name": "d0", "taints": taints}]);
        outcome(vec![on_b(devices), simple_claim("x", request)], &["x"])
    };
    assert_eq!(asked(json!({})), "2 cannot allocate all claims.");
    assert_eq!(asked(json!({"tolerations": [{"key": "broken", "operator": "Exists"}]})), "x=d0 b");
    assert_eq!(
        asked(json!({"tolerations": [{"key": "other", "operator": "Exists"}]})),
        "2 cannot allocate all claims."
    );
}

#[test]
fn counters_of_a_pool_are_shared() {
    let part = |name: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]});
    let counters = json!([{"name": "card", "counters": {"memory": {"value": "10Gi"}}}]);
    let mut slice = on_b(json!([part("whole", "10Gi"), part("half0", "5Gi"), part("half1", "5Gi")]));
    slice["spec"]["sharedCounters"] = counters;
    assert_eq!(outcome(vec![slice.clone(), simple_claim("x", json!({}))], &["x"]), "x=whole b");
    assert_eq!(outcome(vec![slice.clone(), simple_claim("x", json!({"count": 2}))], &["x"]), "x=half0+half1 b");
    assert_eq!(outcome(vec![slice, simple_claim("x", json!({"count": 3}))], &["x"]), "2 cannot allocate all claims.");
}

/// A claim that has device `d0` on node `b`, with these consumers.
fn allocated(name: &str, consumers: Value, more: Value) -> Value {
    let mut result = json!({"request": "gpu", "driver": DRIVER, "pool": "pool", "device": "d0"});
    json_patch::merge(&mut result, &more);
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["b"]});
    let mut claim = simple_claim(name, json!({}));
    claim["status"] = json!({
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}},
        "reservedFor": consumers,
    });
    claim
}

#[test]
fn devices_of_other_claims_are_taken() {
    let slices = || on_b(json!([device("d0", "m")]));
    let other = |more: Value| allocated("other", json!([{"resource": "pods", "name": "q", "uid": "q"}]), more);
    let none = "2 cannot allocate all claims.";
    assert_eq!(outcome(vec![slices(), other(json!({})), simple_claim("x", json!({}))], &["x"]), none);
    assert_eq!(
        outcome(vec![slices(), other(json!({"adminAccess": true})), simple_claim("x", json!({}))], &["x"]),
        "x=d0 b"
    );
    let admin = simple_claim("x", json!({"adminAccess": true}));
    assert_eq!(outcome(vec![slices(), other(json!({})), admin], &["x"]), "x=d0 b", "an administrator shares");
}

#[test]
fn shared_claim_is_reserved_for_the_next_pod_on_its_node() {
    let consumers = |count: usize| {
        let consumer = |number| json!({"resource": "pods", "name": format!("q{number}"), "uid": format!("q{number}")});
        Value::from((0..count).map(consumer).collect::<Vec<_>>())
    };
    let slices = || on_b(json!([device("d0", "m")]));
    assert_eq!(outcome(vec![slices(), allocated("x", consumers(1), json!({}))], &["x"]), "x=d0 b");
    let full = allocated("x", consumers(256), json!({}));
    assert_eq!(outcome(vec![slices(), full], &["x"]), "resourceclaim in use");
    let mut elsewhere = pod("p", &["x"]);
    elsewhere["spec"]["nodeSelector"] = json!({"zone": "x"});
    let objects = vec![slices(), allocated("x", consumers(1), json!({})), elsewhere];
    let told = written(&plan_for(&world(&objects), "p"));
    let expected = "1 node(s) didn't match Pod's node affinity/selector, 1 resourceclaim not available on the node.";
    assert_eq!(told, expected);
}

#[test]
fn allocation_has_configurations_nodes_and_consumers() {
    let own = json!([{"requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": {"of": "claim"}}}]);
    let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]);
    let claim = claim("x", json!({"requests": requests, "config": own}));
    let objects = vec![on_b(json!([device("d0", "m")])), claim, pod("p", &["x"])];
    let plan = plan_for(&world(&objects), "p");
    let [protect, status, bind] = &plan.writes[..] else { panic!("{:?}", plan.writes) };
    let WriteVerb::Update(claim) = &protect.verb else { panic!("{protect:?}") };
    assert_eq!(claim.0["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    assert!(matches!(bind.verb, WriteVerb::Bind { .. }));
    let WriteVerb::Status(claim) = &status.verb else { panic!("{status:?}") };
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["b"]});
    let config = |of: &str, source: &str| json!({"source": source, "requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": {"of": of}}});
    let expected = json!({
        "allocation": {
            "devices": {
                "results": [{"request": "gpu", "driver": DRIVER, "pool": "pool", "device": "d0"}],
                "config": [config("class", "FromClass"), config("claim", "FromClaim")],
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            "allocationTimestamp": "1970-01-01T00:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "5"}],
    });
    assert_eq!(claim.0["status"], expected);
}

#[test]
fn selectors_choose_devices() {
    let asked = |expression: &str| {
        let selectors = json!([{"cel": {"expression": expression}}]);
        let devices = json!([device("d0", "m"), device("d1", "n")]);
        outcome(vec![on_b(devices), simple_claim("x", json!({ "selectors": selectors }))], &["x"])
    };
    assert_eq!(asked(r#"device.attributes["gpu.example.com"].model == "n""#), "x=d1 b");
    assert_eq!(asked(r#"device.driver == "other""#), "2 cannot allocate all claims.");
    let told = asked(r#"device.attributes["gpu.example.com"].none == "n""#);
    assert!(told.contains("claim default/x: selector #0: CEL runtime error: no such key"), "{told}");
    assert!(asked("device.").starts_with("claim default/x: selector #0: CEL compile error: "), "{}", asked("device."));
}

#[test]
fn hopeless_search_ends() {
    // 48 devices of which no 25 have one model.
    let devices: Vec<Value> =
        (0..48).map(|at| device(&format!("d{at}"), if at % 2 == 0 { "m" } else { "n" })).collect();
    let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 25}}]);
    let constraint = json!({"matchAttribute": "gpu.example.com/model"});
    let claim = claim("x", json!({"requests": requests, "constraints": [constraint]}));
    let told = outcome(vec![on_b(devices.into()), claim], &["x"]);
    assert!(told.contains("no devices were found for the claims within"), "{told}");
}

/// A device with 10Gi of memory that claims share in steps of 1Gi.
fn shared_device(name: &str) -> Value {
    let policy = json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}});
    let memory = json!({"value": "10Gi", "requestPolicy": policy});
    json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": memory}})
}

fn memory(amount: &str) -> Value {
    json!({"capacity": {"requests": {"memory": amount}}})
}

#[test]
fn claims_share_the_capacity_of_a_device() {
    let two = |amounts: [&str; 2]| {
        let claims = [simple_claim("x", memory(amounts[0])), simple_claim("y", memory(amounts[1]))];
        outcome([vec![on_b(json!([shared_device("d0")]))], claims.to_vec()].concat(), &["x", "y"])
    };
    assert_eq!(two(["6Gi", "4Gi"]), "x=d0 y=d0 b");
    assert_eq!(two(["6Gi", "5Gi"]), "2 cannot allocate all claims.");
    let both = on_b(json!([shared_device("d0"), shared_device("d1")]));
    let claims = [simple_claim("x", memory("6Gi")), simple_claim("y", memory("6Gi"))];
    assert_eq!(outcome([vec![both], claims.to_vec()].concat(), &["x", "y"]), "x=d0 y=d1 b");
    let unknown = json!({"capacity": {"requests": {"cores": "1"}}});
    let told = outcome(vec![on_b(json!([shared_device("d0")])), simple_claim("x", unknown)], &["x"]);
    assert_eq!(told, "2 cannot allocate all claims.");
}

#[test]
fn shares_of_other_claims_are_taken() {
    let share = |amount: &str| json!({"shareID": "s", "consumedCapacity": {"memory": amount}});
    let asked = |amount: &str| {
        let other = allocated("other", json!([{"resource": "pods", "name": "q", "uid": "q"}]), share("7Gi"));
        outcome(vec![on_b(json!([shared_device("d0")])), other, simple_claim("x", memory(amount))], &["x"])
    };
    assert_eq!(asked("3Gi"), "x=d0 b");
    assert_eq!(asked("4Gi"), "2 cannot allocate all claims.");
}

#[test]
fn capacity_is_a_condition_for_a_whole_device() {
    let devices = json!([
        {"name": "small", "capacity": {"memory": {"value": "1Gi"}}}, {"name": "large", "capacity": {"memory": {"value": "8Gi"}}}
    ]);
    assert_eq!(outcome(vec![on_b(devices), simple_claim("x", memory("2Gi"))], &["x"]), "x=large b");
}

#[test]
fn share_has_an_id_and_its_capacity() {
    let objects = vec![on_b(json!([shared_device("d0")])), simple_claim("x", memory("1500Mi")), pod("p", &["x"])];
    let results = |plan: &Plan| {
        let status = plan.writes.iter().find_map(|write| match &write.verb {
            WriteVerb::Status(claim) => claim.0.pointer("/status/allocation/devices/results/0").cloned(),
            _ => None,
        });
        status.unwrap()
    };
    let world = world(&objects);
    let result = results(&plan_for(&world, "p"));
    assert_eq!(result["consumedCapacity"], json!({"memory": "2Gi"}));
    assert_eq!(result["shareID"].as_str().map(str::len), Some(36));
    assert_eq!(results(&plan_for(&world, "p")), result, "equal Worlds give equal plans");
}

/// A pod whose containers request devices as extended resources.
pub(super) fn extended_pod(containers: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": containers})
}

pub(super) fn container(name: &str, amount: &str) -> Value {
    let requests = json!({"example.com/gpu": amount});
    json!({"name": name, "image": "x", "resources": {"requests": requests, "limits": {"example.com/gpu": amount}}})
}

pub(super) fn extended_class() -> Value {
    let spec = json!({"extendedResourceName": "example.com/gpu"});
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "ext"}, "spec": spec})
}

#[test]
fn extended_resource_of_a_class_is_a_claim() {
    let devices = || on_b(json!([device("d0", "m"), device("d1", "m"), device("d2", "m")]));
    let brief = container("setup", "3");
    let spec = json!({"initContainers": [brief], "containers": [container("one", "1"), container("two", "1")]});
    let plan = plan_for(&world(&[devices(), extended_class(), extended_pod(spec.clone())]), "p");
    let [create, status, named, bind] = &plan.writes[..] else { panic!("{:?}", plan.writes) };
    let (WriteVerb::Create(claim), WriteVerb::Status(status), WriteVerb::Status(named)) =
        (&create.verb, &status.verb, &named.verb)
    else {
        panic!("{:?}", plan.writes)
    };
    assert!(claim.name().starts_with("p-extended-resources-"), "{}", claim.name());
    assert!(matches!(&bind.verb, WriteVerb::Bind { node, .. } if **node == *"b"));
    let requests = claim.items(&["spec", "devices", "requests"]).iter();
    let requests: Vec<_> = requests.map(|one| (&one["name"], &one["exactly"]["count"])).collect();
    let count = json!(1);
    let names = ["container-0-request-0", "container-1-request-0", "container-2-request-0"].map(Value::from);
    assert_eq!(requests, names.iter().map(|name| (name, &count)).collect::<Vec<_>>());
    assert_eq!(status.items(&["status", "allocation", "devices", "results"]).len(), 3);
    assert_eq!(status.0["status"]["reservedFor"][0]["name"], "p");
    let own = &named.0["status"]["extendedResourceClaimStatus"];
    assert_eq!(own["resourceClaimName"], claim.name());
    let mappings = own["requestMappings"].as_array().unwrap().iter();
    let mappings: Vec<String> = mappings
        .map(|one| format!("{}={}", one["containerName"].as_str().unwrap(), one["requestName"].as_str().unwrap()))
        .collect();
    let expected = [
        "one=container-1-request-0",
        "two=container-2-request-0",
        "setup=container-1-request-0",
        "setup=container-2-request-0",
        "setup=container-0-request-0",
    ];
    assert_eq!(mappings, expected);
    let few = on_b(json!([device("d0", "m"), device("d1", "m")]));
    let told = written(&plan_for(&world(&[few, extended_class(), extended_pod(spec)]), "p"));
    assert_eq!(told, "2 cannot allocate all claims.");
}

#[test]
fn extended_resource_of_a_node_needs_no_claim() {
    let spec = || json!({"containers": [container("one", "1")]});
    let told = |objects: &[Value]| written(&plan_for(&world(objects), "p"));
    let without_class = told(&[extended_pod(spec())]);
    assert!(without_class.starts_with("2 Insufficient example.com/gpu."), "{without_class}");
    let status = json!({"allocatable": {"pods": "9", "example.com/gpu": "1"}});
    let offering = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c"}, "status": status});
    let objects = [offering, extended_class(), extended_pod(spec())];
    assert_eq!(told(&objects), "c");
}
