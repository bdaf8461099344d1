//! Admission webhooks, called over TLS for writes of commands, clients and the control plane.

mod conversion;
mod server;

use crate::cluster::Cluster;
use serde_json::{Value, json};
use server::{HookServer, patch};
use std::sync::{Arc, Condvar, Mutex};

/// A configuration with one webhook; `more` replaces and adds fields of the webhook.
fn configuration(kind: &str, name: &str, client: Value, resources: &[&str], more: Value) -> Value {
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources});
    let mut hook = json!({
        "name": format!("{name}.example.com"), "clientConfig": client, "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    });
    json_patch::merge(&mut hook, &more);
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook]})
}

fn client_config(server: &HookServer, path: &str) -> Value {
    json!({"url": format!("{}{path}", server.url), "caBundle": server.bundle})
}

const MUTATING: &str = "MutatingWebhookConfiguration";
const VALIDATING: &str = "ValidatingWebhookConfiguration";

#[test]
fn webhooks_change_and_refuse_what_commands_write() {
    let server = HookServer::start(|path, review| match path {
        "/first" => patch(json!([{"op": "add", "path": "/data/first", "value": "1"}])),
        "/second" if review["request"]["object"]["data"]["third"].is_string() => {
            patch(json!([{"op": "add", "path": "/data/second", "value": "saw third"}]))
        }
        "/second" => json!({"allowed": true}),
        "/third" => patch(json!([{"op": "add", "path": "/data/third", "value": "3"}])),
        _ if review["request"]["operation"] == "DELETE" => {
            json!({"allowed": false, "status": {"message": "it stays", "reason": "Forbidden", "code": 403}})
        }
        _ if review["request"]["object"]["data"]["bad"].is_string() => {
            json!({"allowed": false, "warnings": ["be good"]})
        }
        _ => json!({"allowed": true, "warnings": ["I have seen it"]}),
    });
    let cluster = Cluster::new();
    let mutating = |name: &str, more: Value| {
        let client = client_config(&server, &format!("/{name}"));
        let writes = json!({"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
        let mut hook = configuration(MUTATING, &format!("m-{name}"), client, &["configmaps"], more);
        hook["webhooks"][0]["rules"] = json!([writes]);
        hook.to_string()
    };
    let configurations = [
        mutating("first", json!({})),
        mutating("second", json!({"reinvocationPolicy": "IfNeeded"})),
        mutating("third", json!({})),
        configuration(VALIDATING, "check", client_config(&server, "/check"), &["configmaps"], json!({})).to_string(),
    ];
    cluster.apply(&configurations.join("\n---\n"));
    let said = cluster.run(&["create", "configmap", "a", "--from-literal=x=y"], "");
    assert_eq!((said.code, &*said.out, &*said.err), (0, "configmap/a created\n", "Warning: I have seen it\n"));
    assert_eq!(cluster.read("configmap/a", "{.data}"), r#"{"first":"1","second":"saw third","third":"3","x":"y"}"#);
    let asked = server.asked("/first");
    let seen = &asked[0];
    assert_eq!(asked.len(), 1, "only a webhook that wants that is asked again");
    assert_eq!(server.asked("/second").len(), 2);
    assert_eq!(
        (&seen["operation"], &seen["name"], &seen["namespace"]),
        (&json!("CREATE"), &json!("a"), &json!("default"))
    );
    assert_eq!(seen["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(seen["object"]["metadata"]["uid"], Value::Null, "it has none yet");
    assert!(seen["oldObject"].is_null() && seen["dryRun"] == false && seen["options"]["kind"] == "CreateOptions");
    assert_eq!(seen["userInfo"]["username"], "admin");
    assert!(server.asked("/check")[0]["object"]["metadata"]["uid"].is_string());

    let refused = "Error from server: admission webhook \"check.example.com\" denied the request without explanation\n";
    let change = ["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"bad":"1"}}"#];
    let said = cluster.run(&change, "");
    assert_eq!((said.code, said.err), (1, refused.to_owned()));
    let said = cluster.run(&["delete", "configmap", "a"], "");
    let kept = "Error from server (Forbidden): admission webhook \"check.example.com\" denied the request: it stays\n";
    assert_eq!((said.code, said.err), (1, kept.to_owned()));
    assert_eq!(server.asked("/check").last().expect("asked")["oldObject"]["metadata"]["name"], "a");
    assert_eq!(
        cluster.ok("create configmap b --from-literal=x=y --dry-run=server"),
        "configmap/b created (server dry run)\n"
    );
    assert_eq!(server.asked("/check").last().expect("asked")["dryRun"], true);
    assert_eq!(cluster.kloop("get configmap b").code, 1);
    // A configuration is never shown to webhooks: a broken one can be removed.
    let all = configuration(
        VALIDATING,
        "all",
        json!({"url": "https://127.0.0.1:1/"}),
        &["*/*"],
        json!({"namespaceSelector": null}),
    );
    cluster.apply(&all.to_string());
    assert_eq!(cluster.kloop("create namespace n").code, 1);
    cluster.ok("delete validatingwebhookconfiguration all");
    cluster.ok("create namespace n");
}

#[test]
fn webhook_after_one_that_always_changes_the_object_is_asked_again() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let server = HookServer::start(move |path, _| match path {
        "/one" => {
            let number = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            patch(json!([{"op": "add", "path": "/data", "value": {"n": number.to_string()}}]))
        }
        _ => patch(json!([{"op": "add", "path": "/data/m", "value": "1"}])),
    });
    let cluster = Cluster::new();
    let hooks = ["one", "two"].map(|name| {
        let again = json!({"reinvocationPolicy": "IfNeeded"});
        let client = client_config(&server, &format!("/{name}"));
        configuration(MUTATING, name, client, &["configmaps"], again).to_string()
    });
    cluster.apply(&hooks.join("\n---\n"));
    cluster.ok("create configmap a --from-literal=x=y");
    assert_eq!(cluster.read("configmap/a", "{.data}"), r#"{"m":"1","n":"2"}"#);
    assert_eq!((server.asked("/one").len(), server.asked("/two").len()), (2, 2));
}

#[test]
fn webhook_whose_patch_is_null_changes_nothing() {
    let server = HookServer::start(|_, _| patch(Value::Null));
    let cluster = Cluster::new();
    let client = client_config(&server, "/null");
    cluster.apply(&configuration(MUTATING, "null", client, &["configmaps"], json!({})).to_string());
    cluster.ok("create configmap a --from-literal=x=y");
    assert_eq!(cluster.read("configmap/a", "{.data}"), r#"{"x":"y"}"#);
    assert_eq!(server.asked("/null").len(), 1);
}

#[test]
fn custom_resource_is_validated_as_a_webhook_has_completed_it() {
    let server = HookServer::start(|_, _| {
        patch(json!([
            {"op": "add", "path": "/status/cargo", "value": "none"},
            {"op": "add", "path": "/status/source", "value": null},
            {"op": "add", "path": "/status/unknown", "value": 1},
        ]))
    });
    let cluster = Cluster::new();
    let status = json!({
        "type": "object", "required": ["cargo", "source"],
        "properties": {"cargo": {"type": "string"}, "phase": {"type": "string"}, "source": {"x-kubernetes-preserve-unknown-fields": true}},
    });
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"status": status}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.dev"},
        "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "singular": "boat", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}}]},
    });
    cluster.apply(&definition.to_string());
    cluster.apply(r#"{"apiVersion": "sea.dev/v1", "kind": "Boat", "metadata": {"name": "b"}}"#);
    let change = r#"patch boat b --subresource=status --type=merge -p {"status":{"phase":"afloat"}}"#;
    let said = cluster.kloop(change);
    assert!(said.err.contains("status.cargo: Required value") && said.err.contains("status.source"), "{}", said.err);
    let hook = configuration(MUTATING, "completing", client_config(&server, "/a"), &["boats/status"], json!({}));
    cluster.apply(&hook.to_string());
    cluster.ok(change);
    // The value null counts as required, and is not stored.
    assert_eq!(cluster.read("boat/b", "{.status}"), r#"{"cargo":"none","phase":"afloat"}"#);
}

#[test]
fn webhooks_of_one_server_are_asked_each_about_the_same() {
    let server = HookServer::start(|_, _| json!({"allowed": true}));
    let cluster = Cluster::new();
    for (kind, name) in [(MUTATING, "a"), (MUTATING, "b"), (VALIDATING, "c"), (VALIDATING, "d")] {
        let client = client_config(&server, &format!("/{kind}"));
        cluster.apply(&configuration(kind, name, client, &["configmaps"], json!({})).to_string());
    }
    cluster.ok("create configmap a");
    assert_eq!([MUTATING, VALIDATING].map(|kind| server.asked(&format!("/{kind}")).len()), [2, 2]);
}

#[test]
fn managers_are_kept_where_a_webhook_leaves_none_that_can_be_read() {
    let server = HookServer::start(|path, _| {
        let managers = if path == "/broken" { json!([{"manager": "x"}]) } else { json!([]) };
        patch(json!([{"op": "add", "path": "/metadata/managedFields", "value": managers}]))
    });
    let cluster = Cluster::new();
    let told = "metadata.managedFields was in an invalid state after admission";
    for (path, count, is_told) in [("/broken", 1, true), ("/none", 0, false)] {
        let client = client_config(&server, path);
        cluster.apply(&configuration(MUTATING, "m", client, &["configmaps"], json!({})).to_string());
        let name = path.trim_start_matches('/');
        let said = cluster.run(&["create", "configmap", name, "--from-literal=a=b"], "");
        assert_eq!((said.code, said.err.contains(told)), (0, is_told), "{}", said.err);
        let stored: Value =
            serde_json::from_str(&cluster.ok(&format!("get configmap {name} -o json --show-managed-fields")))
                .expect("JSON");
        let managers = stored["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
        assert_eq!(managers, count, "{stored}");
    }
}

#[test]
fn match_conditions_choose_the_requests() {
    let server = HookServer::start(|_, _| patch(json!([{"op": "add", "path": "/data", "value": {"seen": "yes"}}])));
    let cluster = Cluster::new();
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let conditions = json!([
        condition("only-x", "object.metadata.name.startsWith('x')"),
        condition("not-ann", "request.userInfo.username != 'ann'"),
    ]);
    let mut hook = configuration(
        MUTATING,
        "chosen",
        client_config(&server, "/a"),
        &["configmaps"],
        json!({"matchConditions": conditions}),
    );
    hook["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE"]);
    let said = cluster.run(&["apply", "-f", "-"], &hook.to_string());
    assert_eq!((said.code, &*said.err), (0, ""), "conditions are supported");
    cluster.ok("create configmap plain");
    cluster.ok("create configmap xray");
    let seen = |name: &str| cluster.read(&format!("configmap/{name}"), "{.data.seen}");
    assert_eq!((seen("plain"), seen("xray")), (String::new(), "yes".to_owned()));
    assert_eq!(server.asked("/a").len(), 1);
}

#[test]
fn webhook_that_cannot_be_asked_decides_by_its_policy() {
    let server = HookServer::start(|path, review| match path {
        "/uid" => {
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "x", "allowed": true}})
        }
        "/empty" => json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}),
        "/patch" => patch(json!([{"op": "add", "path": "/data", "value": {}}])),
        _ => json!({"kind": review["kind"]}),
    });
    let stranger = HookServer::start(|_, _| json!({"allowed": true}));
    let cluster = Cluster::new();
    let failed = |client: Value| {
        let hook = configuration(VALIDATING, "check", client, &["configmaps"], json!({}));
        cluster.apply(&hook.to_string());
        let said = cluster.kloop("create configmap x");
        assert_eq!(said.code, 1, "{}", said.out);
        let head = "error: failed to create configmap: Internal error occurred: failed calling webhook \"check.example.com\": ";
        said.err.strip_prefix(head).unwrap_or_else(|| panic!("{}", said.err)).trim_end().to_owned()
    };
    let url = server.url.clone();
    let post = |path: &str| format!("failed to call webhook: Post \"{url}{path}?timeout=5s\": ");
    let unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let client = json!({"url": format!("{url}/a"), "caBundle": stranger.bundle});
    assert_eq!(failed(client), format!("{}{unknown}", post("/a")));
    let invalid = "received invalid webhook response: ";
    let uid = failed(client_config(&server, "/uid"));
    assert!(uid.starts_with(&format!("{invalid}expected response.uid=\"")) && uid.ends_with("\", got \"x\""), "{uid}");
    assert_eq!(failed(client_config(&server, "/empty")), format!("{invalid}webhook response was absent"));
    assert_eq!(
        failed(client_config(&server, "/patch")),
        format!("{invalid}validating webhook may not return response.patch")
    );
    let service =
        |name: &str| json!({"url": null, "caBundle": server.bundle, "service": {"name": name, "namespace": "default"}});
    let at_service =
        |name: &str| format!("failed to call webhook: Post \"https://{name}.default.svc:443/?timeout=5s\": ");
    assert_eq!(failed(service("none")), format!("{}service \"none\" not found", at_service("none")));
    cluster.ok("create service clusterip hook --tcp=443");
    assert_eq!(failed(service("hook")), format!("{}no endpoints available for service \"hook\"", at_service("hook")));
    let refused = json!({"service": null, "url": "https://127.0.0.1:1/x"});
    let dial = "dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(
        failed(refused.clone()),
        format!("failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=5s\": {dial}")
    );
    let ignored = configuration(VALIDATING, "check", refused, &["configmaps"], json!({"failurePolicy": "Ignore"}));
    cluster.apply(&ignored.to_string());
    cluster.ok("create configmap x");
}

/// A gate that a webhook's answer waits for.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn wait(&self) {
        drop(self.1.wait_while(self.0.lock().expect("gate"), |open| !*open).expect("gate"));
    }

    fn open(&self) {
        *self.0.lock().expect("gate") = true;
        self.1.notify_all();
    }
}

#[test]
fn slow_webhook_holds_up_only_the_writes_that_need_it() {
    let gate = Arc::new(Gate::default());
    let waits = gate.clone();
    let server = HookServer::start(move |path, _| {
        if path == "/slow" {
            waits.wait();
        }
        patch(json!([{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]))
    });
    let cluster = Cluster::new();
    let more = json!({"timeoutSeconds": 30, "objectSelector": {"matchLabels": {"app": "slow"}}});
    let mut slow = configuration(MUTATING, "slow", client_config(&server, "/slow"), &["pods"], more);
    slow["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE"]);
    let mut quick = configuration(
        MUTATING,
        "quick",
        client_config(&server, "/quick"),
        &["pods"],
        json!({"objectSelector": {"matchLabels": {"app": "quick"}}}),
    );
    quick["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE"]);
    cluster.apply(&format!("{slow}\n---\n{quick}"));
    let plane = cluster.watch_with(&["--no-local-node"]);
    let deployment = |name: &str| {
        let labels = json!({"app": name});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 3, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    cluster.apply(&format!("{}\n---\n{}", deployment("slow"), deployment("quick")));
    cluster.until("the slow webhook is asked", || !server.asked("/slow").is_empty());
    let pods =
        |app: &str| cluster.ok(&format!("get pods -l app={app},seen=yes -o name --ignore-not-found")).lines().count();
    cluster.until("the other pods are created", || pods("quick") == 3);
    assert_eq!(pods("slow"), 0);
    assert_eq!(cluster.ok("get pods -l app=slow -o name"), "");
    let user = server.asked("/quick")[0]["userInfo"]["username"].clone();
    assert_eq!(user, "system:serviceaccount:kube-system:replicaset-controller");
    gate.open();
    cluster.until("the slow pods are created", || pods("slow") == 3);
    assert_eq!(server.asked("/slow").len(), 3, "each pod is asked about once");
    plane.end("TERM");
}

#[test]
fn namespace_with_content_that_a_webhook_keeps_names_the_error() {
    let cluster = Cluster::new();
    let client = json!({"url": "https://127.0.0.1:1/x"});
    let mut hook = configuration(
        VALIDATING,
        "keeper",
        client,
        &["configmaps"],
        json!({"namespaceSelector": {"matchLabels": null}}),
    );
    hook["webhooks"][0]["rules"][0]["operations"] = json!(["DELETE"]);
    cluster.apply(&hook.to_string());
    cluster.ok("create namespace team");
    cluster.ok("-n team create configmap kept");
    cluster.ok("-n team create secret generic goes");
    let plane = cluster.watch_with(&["--no-local-node"]);
    cluster.ok("delete namespace team --wait=false");
    let condition =
        r#"{.status.conditions[?(@.type=="NamespaceDeletionContentFailure")]['status','reason','message']}"#;
    let read = || cluster.read("namespace/team", condition);
    cluster.until("the condition names the error", || read().starts_with("True ContentDeletionFailed "));
    let head = "True ContentDeletionFailed Failed to delete all resource types, 1 remaining: Internal error occurred: failed calling \
                webhook \"keeper.example.com\": ";
    assert!(read().starts_with(head), "{}", read());
    assert_eq!(cluster.ok("-n team get secrets -o name"), "", "other objects go");
    let said = cluster.kloop("why namespace/team");
    assert_eq!(said.code, 1, "{}", said.out);
    let next = "next: start the server of the webhook \"keeper.example.com\", or remove its configuration: \
                kloop delete validatingwebhookconfiguration/keeper";
    assert!(said.out.contains("failed calling webhook") && said.out.contains(next), "{}", said.out);
    cluster.ok("delete validatingwebhookconfiguration keeper");
    plane.end("TERM");
}
