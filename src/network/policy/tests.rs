//! Tests of resolved policies.

use super::super::testing::put;
use super::*;
use crate::object::Time;
use serde_json::json;

fn pod(world: &mut World, namespace: &str, name: &str, app: &str, ip: &str, phase: &str) {
    let ports = json!([{"name": "http", "containerPort": if app == "web" { 8080 } else { 9090 }}]);
    let meta =
        json!({"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "labels": {"app": app}});
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "ports": ports}]});
    put(world, "pods", json!({"metadata": meta, "spec": spec, "status": {"phase": phase, "podIP": ip}}));
}

fn world() -> World {
    let mut world = World::new(Time::UNIX_EPOCH);
    world.settings.network = 9;
    for (name, team) in [("shop", "a"), ("other", "b")] {
        put(&mut world, "namespaces", json!({"metadata": {"name": name, "uid": name, "labels": {"team": team}}}));
    }
    pod(&mut world, "shop", "web-1", "web", "127.9.1.2", "Running");
    pod(&mut world, "shop", "web-2", "web", "127.9.1.1", "Running");
    pod(&mut world, "shop", "db", "db", "127.9.1.3", "Running");
    pod(&mut world, "shop", "done", "db", "127.9.1.4", "Succeeded");
    pod(&mut world, "shop", "on-host", "db", "192.0.2.1", "Running");
    pod(&mut world, "other", "web", "web", "127.9.1.5", "Running");
    world
}

fn put_policy(world: &mut World, spec: Value) -> Key {
    let meta = json!({"name": "p", "namespace": "shop", "uid": "p"});
    put(world, POLICIES, json!({"metadata": meta, "spec": spec}))
}

/// Returns the resolved policy as shims read it, and the selected pods.
fn resolved_text(spec: Value) -> String {
    let mut world = world();
    let key = put_policy(&mut world, spec);
    let row = world.get(&key).unwrap();
    let policy = resolver::resolve(&world, row);
    let subjects: Vec<String> = policy.subjects.iter().map(ToString::to_string).collect();
    format!("{}\n{}", subjects.join(" "), table::text(&policy))
}

#[test]
fn selectors_become_addresses() {
    let web = json!({"matchLabels": {"app": "web"}});
    let from = |peer: Value| json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [peer]}]});
    let all = "127.9.1.1 127.9.1.2 127.9.1.3";
    let table = [
        (json!({"podSelector": web, "policyTypes": ["Ingress"]}), "127.9.1.1 127.9.1.2\ningress\n".to_owned()),
        (json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}), format!("{all}\ningress\negress\n")),
        (json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}), format!("{all}\ningress\n * *\n")),
        (from(json!({"podSelector": web})), format!("{all}\ningress\n =127.9.1.1,127.9.1.2 *\n")),
        (from(json!({"podSelector": {"matchLabels": {"app": "none"}}})), format!("{all}\ningress\n = *\n")),
        (
            from(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}})),
            format!("{all}\ningress\n =127.9.1.5 *\n"),
        ),
        (
            from(json!({"namespaceSelector": {}, "podSelector": web})),
            format!("{all}\ningress\n =127.9.1.1,127.9.1.2,127.9.1.5 *\n"),
        ),
        (
            from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}})),
            format!("{all}\ningress\n =10.0.0.0/8!10.1.0.0/16 *\n"),
        ),
        (from(json!({"ipBlock": {"cidr": "2001:db8::/32"}})), format!("{all}\ningress\n = *\n")),
    ];
    for (spec, expected) in table {
        assert_eq!(resolved_text(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn ports_are_resolved_by_number_range_and_name() {
    let ingress = |ports: Value| json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"ports": ports}]});
    let table = [
        (
            json!([{"protocol": "TCP", "port": 80}, {"protocol": "UDP", "port": 53, "endPort": 60}]),
            "=tcp:80-80,udp:53-60",
        ),
        (json!([{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 80}]), "=tcp:80-80"),
        (json!([{"protocol": "UDP"}]), "=udp:0-65535"),
        (
            json!([{"protocol": "TCP", "port": "http"}]),
            "=tcp:8080-8080@127.9.1.1,tcp:8080-8080@127.9.1.2,tcp:9090-9090@127.9.1.3",
        ),
        (json!([{"protocol": "TCP", "port": "none"}]), "="),
    ];
    for (ports, expected) in table {
        let text = resolved_text(ingress(ports));
        let mut found: Vec<&str> =
            text.trim_end().rsplit(' ').next().unwrap().trim_start_matches('=').split(',').collect();
        found.sort_unstable();
        assert_eq!(format!("={}", found.join(",")), expected);
    }
    let to = json!([{"podSelector": {"matchLabels": {"app": "db"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]);
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"],
        "egress": [{"to": to, "ports": [{"protocol": "TCP", "port": "http"}]}]});
    let expected = "127.9.1.1 127.9.1.2\negress\n =127.9.1.3,10.0.0.0/8 =tcp:9090-9090@127.9.1.3\n";
    assert_eq!(resolved_text(spec), expected, "a named port is resolved for each server");
    // Also without peers, and with a block.
    for (to, peers) in [(json!([]), "*"), (json!([{"ipBlock": {"cidr": "127.9.1.2/31"}}]), "127.9.1.2/31")] {
        let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"],
            "egress": [{"to": to, "ports": [{"protocol": "TCP", "port": "http"}]}]});
        let text = resolved_text(spec);
        assert!(text.contains("tcp:8080-8080@127.9.1.2") && text.contains("tcp:9090-9090@127.9.1.3"), "{text}");
        assert_eq!(text.contains("tcp:8080-8080@127.9.1.1"), peers == "*", "{text}");
    }
}

#[test]
fn rules_of_the_same_peers_become_one() {
    let web = json!({"podSelector": {"matchLabels": {"app": "web"}}});
    let same = json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}});
    let rule = |peer: &Value, port: usize| json!({"from": [peer, peer], "ports": [{"protocol": "TCP", "port": port}]});
    let rules = |count: usize, last: Value| {
        let listed = (0..count).map(|number| rule(if number % 2 == 0 { &web } else { &same }, 80 + number % 4));
        let ingress: Vec<Value> = listed.chain([last]).collect();
        resolved_text(json!({"podSelector": web["podSelector"], "policyTypes": ["Ingress"], "ingress": ingress}))
    };
    let peers = "127.9.1.1,127.9.1.2";
    let ports = "tcp:80-80,tcp:81-81,tcp:82-82,tcp:83-83";
    let db = json!({"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]});
    assert_eq!(
        rules(5000, db),
        format!("127.9.1.1 127.9.1.2\ningress\n ={peers} ={ports}\n =127.9.1.3 *\n"),
        "the text that shims read does not grow with equal rules"
    );
    // Peers of other namespaces, by a selector that each pod is compared with.
    let other = json!({"namespaceSelector": {"matchLabels": {"team": "b"}},
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}});
    let text = rules(5000, json!({"from": [other, {"ipBlock": {"cidr": "10.0.0.0/8"}}]}));
    assert!(text.ends_with("\n =127.9.1.5,10.0.0.0/8 *\n"), "{text}");
    let all_ports = json!({"from": [web]});
    assert_eq!(rules(8, all_ports), format!("127.9.1.1 127.9.1.2\ningress\n ={peers} *\n"));
}

#[test]
fn named_ports_are_of_containers_and_sidecars() {
    let port = |number: u16| json!([{"name": "admin", "containerPort": number}]);
    let init = json!([{"name": "setup", "ports": port(7001)}, {"name": "proxy", "ports": port(7002), "restartPolicy": "Always"}]);
    let spec = json!({"nodeName": "n", "initContainers": init, "containers": [{"name": "c"}]});
    let meta = json!({"name": "web-3", "namespace": "shop", "uid": "web-3"});
    let mut world = world();
    put(
        &mut world,
        "pods",
        json!({"metadata": meta, "spec": spec, "status": {"phase": "Running", "podIP": "127.9.1.9"}}),
    );
    let ports = json!([{"protocol": "TCP", "port": "admin"}]);
    let key =
        put_policy(&mut world, json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"ports": ports}]}));
    let text = table::text(&resolver::resolve(&world, world.get(&key).unwrap()));
    assert!(text.ends_with(" * =tcp:7002-7002@127.9.1.9\n"), "an ended init container has no port: {text}");
}

#[test]
fn policy_effects_are_ordered_once_and_revoked() {
    let mut world = world();
    let key = put_policy(&mut world, json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let first = plan(&world, &key);
    let [Effect::SetNetworkPolicy { rules: Some(rules), .. }] = &first.effects[..] else {
        panic!("{:?}", first.effects)
    };
    assert_eq!(rules.subjects.len(), 3);
    world.note_order(&first.effects[0]);
    assert!(plan(&world, &key).is_empty());
    pod(&mut world, "shop", "web-3", "web", "127.9.1.9", "Running");
    let row = world.find("pods", "shop", "web-3").unwrap().clone();
    assert_eq!(concerns(&world, &row), std::slice::from_ref(&key));
    assert_eq!(concerns(&world, &world.find("pods", "other", "web").unwrap().clone()), []);
    assert_eq!(plan(&world, &key).effects.len(), 1, "one more pod");
    world.remove(&key);
    let last = plan(&world, &key);
    assert_eq!(last.effects, [Effect::SetNetworkPolicy { policy: key.clone(), rules: None }]);
    world.note_order(&last.effects[0]);
    assert!(plan(&world, &key).is_empty());
}
