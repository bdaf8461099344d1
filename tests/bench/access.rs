//! The cost of knowing a user and deciding about a request: RBAC with many bindings, and tokens.
//!
//! `cargo bench --bench access`. Means of many rounds; run it on a quiet machine.

use kloop::apiserver::authorization::{AccessRequest, AccessedResource, authorize};
use kloop::apiserver::create::create;
use kloop::apiserver::tokens::authenticate::authenticate;
use kloop::apiserver::tokens::issue;
use kloop::apiserver::tokens::keys::ClusterKeys;
use kloop::apiserver::user::User;
use kloop::apiserver::{Api, WriteOptions};
use kloop::kinds;
use kloop::object::{Key, Object, Resource};
use kloop::store::OpenMode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const BINDINGS: usize = 1000;
const ROUNDS: u32 = 2000;

fn main() {
    let mut api = Api::in_memory("bench").expect("a cluster");
    fill(&mut api);
    println!("RBAC with {BINDINGS} bindings, mean of {ROUNDS} requests:");
    let users = [("one binding", "user-500"), ("no binding", "nobody"), ("100 bindings", "busy")];
    for (what, name) in users {
        let user = User::impersonated(name, "", &[], BTreeMap::new());
        let request = get("pods");
        report(what, measure(|| drop(api.read_view(|txn| authorize(txn, &user, &request)).expect("a decision"))));
    }
    let user = User::impersonated("user-500", "", &[], BTreeMap::new());
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < Duration::from_secs(2) {
        // Other writes do not make the index again.
        add(
            &mut api,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{count}"), "namespace": "default"}}),
        );
        count += 1;
    }
    report(
        "after other writes",
        measure(|| drop(api.read_view(|txn| authorize(txn, &user, &get("pods"))).expect("a decision"))),
    );
    let start = Instant::now();
    bind(&mut api, "late", "late");
    let written = start.elapsed();
    let start = Instant::now();
    drop(api.read_view(|txn| authorize(txn, &user, &get("pods"))).expect("a decision"));
    println!(
        "  first after a new binding       {:>8.1} us (the write: {:.1} us)",
        micros(start.elapsed()),
        micros(written)
    );
    tokens();
}

fn tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Api::open(&folder.path().join("state.db"), OpenMode::Create, "bench").expect("a cluster");
    let (mut api, mut elsewhere) = (open(), open());
    add(
        &mut api,
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "default"}}),
    );
    let keys = api.keys().expect("keys");
    let account = Key::new(Resource("serviceaccounts"), "default", "web");
    let request = Object(json!({"spec": {"expirationSeconds": 3600}}));
    let mut new_token = || -> String {
        let issued = api.write(true, |txn| issue(txn, &keys, &account, &request)).expect("a token");
        issued.text(&["status", "token"]).expect("a token").to_owned()
    };
    let (token, first): (String, Vec<String>) = (new_token(), (0..200).map(|_| new_token()).collect());
    let keys_elsewhere = elsewhere.keys().expect("keys");
    let check_with = |keys: &ClusterKeys, token: &str| {
        let found = api.read_view(|txn| authenticate(txn, keys, token, &[])).expect("an answer");
        assert!(found.is_ok());
    };
    let check = |token: &str| check_with(&keys, token);
    println!("tokens:");
    let start = Instant::now();
    first.iter().for_each(|token| check(token));
    report("first check", start.elapsed() / first.len() as u32);
    let start = Instant::now();
    first.iter().for_each(|token| check_with(&keys_elsewhere, token));
    report("first check in another process", start.elapsed() / first.len() as u32);
    report("later checks", measure(|| check(&token)));
}

/// 1,000 bindings of as many users, of which 100 have another user, too.
fn fill(api: &mut Api) {
    let rules = json!([{"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules,
        "metadata": {"name": "reads", "namespace": "default"}});
    add(api, role);
    for number in 0..BINDINGS {
        bind(api, &format!("b{number}"), &format!("user-{number}"));
    }
}

fn bind(api: &mut Api, name: &str, user: &str) {
    let mut subjects = vec![json!({"kind": "User", "name": user})];
    if name.ends_with('7') {
        subjects.push(json!({"kind": "User", "name": "busy"}));
    }
    add(
        api,
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "subjects": subjects,
            "metadata": {"name": name, "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"}}),
    );
}

fn add(api: &mut Api, object: Value) {
    let object = Object(object);
    let kind = kinds::by_kind(object.api_version(), object.kind()).expect("a kind");
    api.write(false, |txn| create(txn, kind, &object, &WriteOptions::default())).expect("created");
}

fn get(resource: &str) -> AccessRequest {
    let accessed =
        AccessedResource { resource: resource.into(), namespace: "default".into(), ..AccessedResource::default() };
    AccessRequest::for_resource("get", accessed)
}

fn measure(mut work: impl FnMut()) -> Duration {
    work();
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| work());
    start.elapsed() / ROUNDS
}

fn report(what: &str, time: Duration) {
    println!("  {what:<30} {:>8.1} us", micros(time));
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
