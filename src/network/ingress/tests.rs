//! Plans of the ingress controller.

use super::super::testing::put;
use super::*;
use crate::object::{Resource, Time};
use crate::world::NodeFacts;
use crate::world::ingress_routes::IngressListeners;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

fn world() -> World {
    let mut world = World::new(Time::UNIX_EPOCH);
    world.settings.network = 9;
    world.facts.nodes.insert("here".into(), NodeFacts { ours: true, ..NodeFacts::default() });
    world
}

fn meta(name: &str) -> Value {
    json!({"name": name, "namespace": "default", "uid": name})
}

fn ingress(spec: Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("shop"), "spec": spec})
}

fn simple() -> Value {
    let backend = json!({"service": {"name": "web", "port": {"name": "http"}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    json!({"rules": [{"host": "shop.example", "http": {"paths": paths}}]})
}

fn open(world: &mut World, http: u16, https: u16, instead: &str) {
    let listener = |port| IngressListener { port, instead: instead.into() };
    world.facts.ingress_listeners = IngressListeners { http: listener(http), https: listener(https) };
}

/// Returns the plan, and records its effects as ordered.
fn ordered(world: &mut World, key: &Key) -> Plan {
    let plan = plan(world, key);
    plan.effects.iter().for_each(|effect| world.note_order(effect));
    plan
}

fn admitted(plan: &Plan) -> Option<&IngressRoute> {
    plan.effects.iter().find_map(|effect| match effect {
        Effect::SetIngress { ingress_route, .. } => ingress_route.as_deref(),
        _ => None,
    })
}

fn status(plan: &Plan) -> Option<Value> {
    plan.writes.iter().find_map(|write| match &write.verb {
        WriteVerb::Status(object) => object.value_at(&["status", "loadBalancer"]).cloned(),
        _ => None,
    })
}

fn events(plan: &Plan) -> Vec<String> {
    plan.events.iter().map(|event| format!("{} {}", event.reason, event.message)).collect()
}

#[test]
fn ingress_route_is_set_once() {
    let mut world = world();
    let mut spec = simple();
    spec["defaultBackend"] = json!({"service": {"name": "other", "port": {"number": 81}}});
    spec["rules"][0]["http"]["paths"][0]["pathType"] = "Exact".into();
    let key = put(&mut world, INGRESSES, ingress(spec));
    let first = ordered(&mut world, &key);
    let ingress_route = admitted(&first).unwrap();
    let service = |name: &str| Key::new(Resource("services"), "default", name);
    assert_eq!(&*ingress_route.address, "127.9.255.1");
    let web = IngressBackend { service: service("web"), port: BackendPort::Name("http".into()) };
    let rule = IngressPath { host: "shop.example".into(), path: "/".into(), is_exact: true, backend: Some(web) };
    assert_eq!(ingress_route.rules, [rule]);
    assert_eq!(
        ingress_route.default,
        Some(IngressBackend { service: service("other"), port: BackendPort::Number(81) })
    );
    assert!(first.writes.is_empty(), "there is no listener yet");
    assert!(plan(&world, &key).is_empty(), "ordered once");
    world.remove(&key);
    let last = ordered(&mut world, &key);
    assert_eq!(last.effects, [Effect::SetIngress { ingress: key.clone(), ingress_route: None }]);
    assert!(plan(&world, &key).is_empty());
}

#[test]
fn status_has_the_address_and_ports() {
    let refused = "port 80: permission denied";
    let elsewhere = "http://127.9.255.1:8080/ (port 80: permission denied";
    let table = [
        (80, "", true, "http://127.9.255.1/".to_owned()),
        (8080, refused, true, format!("{elsewhere}; in pods http://127.9.255.1/)")),
        (8080, refused, false, format!("{elsewhere})")),
    ];
    for (port, instead, pod_network, place) in table {
        let mut world = world();
        world.settings.pod_network = pod_network;
        let mut object = ingress(simple());
        let key = put(&mut world, INGRESSES, object.clone());
        ordered(&mut world, &key);
        open(&mut world, port, 0, instead);
        let planned = plan(&world, &key);
        let expected = json!({"ingress": [{"ip": "127.9.255.1", "ports": [{"port": port, "protocol": "TCP"}]}]});
        assert_eq!(status(&planned), Some(expected.clone()));
        assert_eq!(events(&planned), [format!("Sync Scheduled for sync: answers at {place}")]);
        object["status"] = json!({"loadBalancer": expected});
        put(&mut world, INGRESSES, object);
        assert!(plan(&world, &key).is_empty(), "a current status needs no write");
    }
}

#[test]
fn ingress_has_no_address_on_a_simulated_node() {
    let mut world = world();
    world.facts.nodes.get_mut("here").unwrap().is_simulated = true;
    let key = put(&mut world, INGRESSES, ingress(simple()));
    ordered(&mut world, &key);
    open(&mut world, 80, 0, "");
    assert!(plan(&world, &key).is_empty());
}

#[test]
fn ingress_is_served_unless_its_class_has_another_controller() {
    let class = |controller: &str| {
        let (controller, is_default) = controller.strip_prefix('*').map_or((controller, "false"), |one| (one, "true"));
        let annotations = json!({"ingressclass.kubernetes.io/is-default-class": is_default});
        json!({"metadata": {"name": "c", "uid": "c", "annotations": annotations}, "spec": {"controller": controller}})
    };
    let ours = format!("*{CONTROLLER}");
    // `*` marks the default class.
    let table = [
        (None, None, true),
        (Some("c"), None, true),
        (Some("c"), Some(CONTROLLER), true),
        (Some("c"), Some("k8s.io/ingress-nginx"), false),
        (None, Some("k8s.io/ingress-nginx"), true),
        (None, Some("*k8s.io/ingress-nginx"), true),
        (None, Some(&*ours), true),
        (Some("another"), Some("*k8s.io/ingress-nginx"), true),
    ];
    for (named, controller, expected) in table {
        for is_annotated in [false, true] {
            let mut world = world();
            let mut object = ingress(simple());
            if let Some(named) = named {
                match is_annotated {
                    true => object["metadata"]["annotations"] = json!({CLASS_ANNOTATION: named}),
                    false => object["spec"]["ingressClassName"] = named.into(),
                }
            }
            let key = put(&mut world, INGRESSES, object);
            controller.map(|controller| put(&mut world, CLASSES, class(controller)));
            assert_eq!(admitted(&plan(&world, &key)).is_some(), expected, "{named:?} {controller:?} {is_annotated}");
        }
    }
}

#[test]
fn ingress_of_another_controller_loses_its_address() {
    let mut world = world();
    let mut object = ingress(simple());
    object["spec"]["ingressClassName"] = "c".into();
    object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "127.9.255.1"}]}});
    let key = put(&mut world, INGRESSES, object.clone());
    let class = json!({"metadata": {"name": "c", "uid": "c"}, "spec": {"controller": "example.com/other"}});
    put(&mut world, CLASSES, class);
    assert_eq!(status(&plan(&world, &key)), Some(json!({})));
    object["status"]["loadBalancer"]["ingress"][0]["ip"] = "192.0.2.1".into();
    put(&mut world, INGRESSES, object);
    assert!(plan(&world, &key).is_empty(), "the other controller's status stays");
}

#[test]
fn address_of_another_controller_stays_without_a_class() {
    let mut world = world();
    let mut object = ingress(simple());
    for (address, is_replaced) in [
        (json!({"ip": "192.0.2.1"}), false),
        (json!({"hostname": "lb.example"}), false),
        (json!({"ip": "127.8.255.1"}), true),
    ] {
        object["status"] = json!({"loadBalancer": {"ingress": [address]}});
        let key = put(&mut world, INGRESSES, object.clone());
        ordered(&mut world, &key);
        open(&mut world, 80, 0, "");
        assert_eq!(status(&plan(&world, &key)).is_some(), is_replaced, "{address}");
    }
}

#[test]
fn certificates_are_read_from_secrets() {
    let mut world = world();
    let mut spec = simple();
    spec["tls"] = json!([{"hosts": ["shop.example"], "secretName": "cert"}]);
    let key = put(&mut world, INGRESSES, ingress(spec));
    let bare = ordered(&mut world, &key);
    assert_eq!(admitted(&bare).unwrap().certificates, []);
    assert_eq!(events(&bare), ["BadCertificate no TLS for its hosts: secret \"cert\" not found"]);
    assert!(plan(&world, &key).events.is_empty(), "reported once");
    let pem = |what: &str| STANDARD.encode(format!("-----BEGIN {what}-----\n"));
    let secret =
        |key: &str| json!({"metadata": meta("cert"), "data": {"tls.crt": pem("CERTIFICATE"), "tls.key": pem(key)}});
    let cert = put(&mut world, SECRETS, secret("EC PRIVATE KEY"));
    assert_eq!(concerns(&world, world.get(&cert).unwrap()), std::slice::from_ref(&key));
    let full = ordered(&mut world, &key);
    let certificates = &admitted(&full).unwrap().certificates;
    assert_eq!(certificates[0].hosts, [Str::from("shop.example")]);
    assert!(certificates[0].key.starts_with(b"-----BEGIN EC PRIVATE KEY"));
    open(&mut world, 80, 443, "");
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]);
    assert_eq!(status(&plan(&world, &key)).unwrap()["ingress"][0]["ports"], ports);
    put(&mut world, SECRETS, secret("NOTHING"));
    let bad = plan(&world, &key);
    assert_eq!(
        events(&bad)[0],
        "BadCertificate no TLS for its hosts: tls.key of secret \"cert\" has no PRIVATE KEY in PEM format"
    );
}

#[test]
fn unserved_parts_of_an_ingress_are_reported() {
    let mut world = world();
    let mut spec = simple();
    spec["rules"][0]["http"]["paths"][0]["backend"] = json!({"resource": {"kind": "Bucket", "name": "b"}});
    let mut object = ingress(spec);
    object["metadata"]["annotations"] = json!({"nginx.ingress.kubernetes.io/rewrite-target": "/"});
    let key = put(&mut world, INGRESSES, object);
    let plan = plan(&world, &key);
    assert_eq!(admitted(&plan).unwrap().rules[0].backend, None);
    let reasons: Vec<&str> = plan.events.iter().map(|event| &*event.reason).collect();
    assert_eq!(reasons, ["UnsupportedBackend", "IgnoredAnnotation"]);
}
