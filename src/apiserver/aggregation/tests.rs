//! Availability of extension servers by the objects of the state, and the computed APIServices.

use super::*;
use crate::apiserver::Api;
use crate::apiserver::create::create;
use crate::kinds::{api_service, by_kind};

fn put(api: &mut Api, body: Value) {
    let object = Object(body);
    let kind = by_kind(object.api_version(), object.kind()).expect("a kind");
    api.write(false, |txn| create(txn, kind, &object, &WriteOptions::default())).expect("created");
}

fn extension() -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.sea.dev"},
        "spec": {"group": "sea.dev", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"namespace": "default", "name": "sea"}, "insecureSkipTLSVerify": true}})
}

fn reason(api: &Api) -> (&'static str, String) {
    let extension = api.find_extension("sea.dev", "v1").expect("read").expect("an extension");
    let found = api.read_view(|txn| find_server(txn, &extension));
    match found.expect("read") {
        Ok(server) => ("", format!("{} {}", server.place, server.shown)),
        Err(why) => (why.reason, why.message),
    }
}

#[test]
fn availability_follows_service_and_endpoints() {
    let mut api = Api::in_memory("test").unwrap();
    put(&mut api, extension());
    assert_eq!(reason(&api), ("ServiceNotFound", "service/sea in \"default\" is not present".to_owned()));
    let service = |port: u16| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "sea", "namespace": "default"},
            "spec": {"ports": [{"port": port, "name": "https"}]}})
    };
    put(&mut api, service(80));
    assert_eq!(
        reason(&api),
        ("ServicePortError", "service/sea in \"default\" is not listening on port 443".to_owned())
    );
    api.write(false, |txn| {
        let key = Key::new(Resource("services"), "default", "sea");
        crate::apiserver::delete::delete(txn, &kinds::service::KIND, &key, &Default::default())
    })
    .unwrap();
    put(&mut api, service(443));
    assert_eq!(
        reason(&api),
        ("EndpointsNotFound", "cannot find endpointslices for service/sea in \"default\"".to_owned())
    );
    let slice = |name: &str, ready: bool| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "sea"}},
            "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": ready}}], "ports": [{"name": "https", "port": 8443}]})
    };
    put(&mut api, slice("a", false));
    let missing = "endpointslices for service/sea in \"default\" have no addresses with port name \"https\"";
    assert_eq!(reason(&api), ("MissingEndpoints", missing.to_owned()));
    put(&mut api, slice("b", true));
    assert!(reason(&api).1.starts_with("10.1.2.3:8443 ") && reason(&api).1.ends_with(":443"), "{:?}", reason(&api));
}

#[test]
fn condition_is_written_when_it_differs() {
    let mut api = Api::in_memory("test").unwrap();
    put(&mut api, extension());
    let mut set = |found: Availability| {
        api.write(false, |txn| set_availability(txn, "v1.sea.dev", &found)).expect("written").is_some()
    };
    assert!(set(Availability::failed_check("x".to_owned())));
    assert!(!set(Availability::failed_check("x".to_owned())));
    assert!(set(Availability::passed()));
    let found = api.find_extension("sea.dev", "v1").unwrap().expect("an extension");
    assert!(found.is_available && !found.verifies && found.host() == "sea.default.svc");
}

#[test]
fn versions_of_this_server_have_computed_api_services() {
    let mut api = Api::in_memory("test").unwrap();
    put(&mut api, extension());
    let all =
        api.read_view(|txn| crate::apiserver::read::list(txn, &api_service::KIND, None, &Default::default())).unwrap();
    let apps = all.iter().find(|object| object.name() == "v1.apps").expect("apps");
    assert_eq!(
        apps.0["spec"],
        json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15})
    );
    assert_eq!(apps.0["status"]["conditions"][0]["reason"], "Local");
    assert!(all.iter().any(|object| object.name() == "v1.") && all.iter().any(|object| object.name() == "v1.sea.dev"));
    assert_eq!(api.read_view(extensions).unwrap().len(), 1);
    assert!(api.find_extension("apps", "v1").unwrap().is_none());
}

#[test]
fn deleted_api_service_of_this_server_is_made_again() {
    let mut api = Api::in_memory("test").unwrap();
    let key = Key::new(API_SERVICES, "", "v1.apps");
    let mut uids = Vec::new();
    for events in [3, 2] {
        let before = api.read(|snapshot| snapshot.revision()).unwrap();
        let found = api.read_view(|txn| txn.get(&key)).unwrap().expect("an APIService");
        let deletion = crate::apiserver::DeleteOptions {
            uid: Some(found.uid().to_owned()),
            ..crate::apiserver::DeleteOptions::default()
        };
        api.write(false, |txn| crate::apiserver::delete::delete(txn, &KIND, &key, &deletion)).expect("deleted");
        // The first one was not stored before.
        assert_eq!(api.read(|snapshot| snapshot.revision()).unwrap() - before, events);
        uids.push(found.uid().to_owned());
    }
    let labels = Object(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.batch", "labels": {"a": "b"}},
        "spec": {"group": "batch", "version": "v1", "groupPriorityMinimum": 17400, "versionPriority": 15}}));
    let again = api.write(false, |txn| create(txn, &KIND, &labels, &WriteOptions::default()));
    assert_eq!(again.expect_err("there is one").reason, crate::object::Reason::AlreadyExists);
    let found = api.read_view(|txn| txn.get(&key)).unwrap().expect("made again");
    assert!(!uids.contains(&found.uid().to_owned()) && uids[0] != uids[1], "each has a uid of its own");
}

#[test]
fn api_services_come_and_go_with_definitions() {
    let mut api = Api::in_memory("test").unwrap();
    let definition = |plural: &str, kind: &str, versions: &[&str]| {
        let versions: Vec<Value> = versions
            .iter()
            .enumerate()
            .map(|(at, name)| {
                json!({"name": name, "served": true, "storage": at == 0, "schema": {"openAPIV3Schema": {"type": "object"}}})
            })
            .collect();
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.sea.dev")},
            "spec": {"group": "sea.dev", "scope": "Cluster", "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase()}, "versions": versions}})
    };
    let changes = |api: &mut Api, body: Value| -> Vec<(String, bool)> {
        let before = api.read(|snapshot| snapshot.revision()).unwrap();
        put(api, body);
        let local = api.read_view(crate::apiserver::local_api_services::LocalVersions::read).unwrap();
        let entries = api.read(|snapshot| snapshot.log_after(before, 100)).unwrap();
        let all = entries.iter().flat_map(|entry| local.changes(entry));
        all.map(|(object, comes)| (object.name().to_owned(), comes)).collect()
    };
    assert_eq!(changes(&mut api, definition("fishes", "Fish", &["v1"])), [("v1.sea.dev".to_owned(), true)]);
    let both = changes(&mut api, definition("crabs", "Crab", &["v1", "v2"]));
    assert_eq!(both, [("v2.sea.dev".to_owned(), true)], "another definition serves v1 already");
}
