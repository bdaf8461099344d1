//! Writes of `/status` and `/approval`, and field selectors of events, as Kubernetes' conformance suite makes them.

use super::{JSON, Server};
use crate::cluster::Cluster;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn with_server(check: impl Fn(&Server<'_>)) {
    let cluster = Cluster::new();
    check(&Server::start(&cluster, &[]));
}

/// A body that patches the status, and an annotation and a label with it.
fn patch(status: &Value) -> String {
    json!({"metadata": {"annotations": {"a": "1"}, "labels": {"l": "1"}}, "status": status}).to_string()
}

#[test]
fn status_patch_changes_the_metadata_that_the_kind_allows() {
    let containers = json!([{"name": "c", "image": "sh"}]);
    let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": containers}});
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
    let spec = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
    let deployment = json!({"metadata": {"name": "x"}, "spec": spec});
    let definition: Value = serde_yaml::from_str(include_str!("boats.yaml")).expect("a definition");
    let boats = "/apis/example.com/v1/namespaces/default/boats";
    let boat = json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "x"}});
    let (yes, no) = (json!({"a": "1"}), Value::Null);
    let labelled = json!({"l": "1"});
    with_server(|server| {
        let mut definition = definition.clone();
        definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(server.ask("POST", definitions, JSON, &definition.to_string()).0, 201);
        let message = json!({"message": "m"});
        for (path, body, status, annotations, labels) in [
            (PODS, &pod, &message, &yes, &labelled),
            (DEPLOYMENTS, &deployment, &json!({"observedGeneration": 7}), &yes, &no),
            (boats, &boat, &json!({"crew": 1}), &no, &no),
        ] {
            let (code, made) = server.ask("POST", path, JSON, &body.to_string());
            assert_eq!(code, 201, "{path}: {made}");
            let (code, patched) = server.ask("PATCH", &format!("{path}/x/status"), MERGE, &patch(status));
            assert_eq!(code, 200, "{path}: {patched}");
            let stored = server.get(&format!("{path}/x"));
            let metadata = &stored["metadata"];
            assert_eq!((&metadata["annotations"], &metadata["labels"]), (annotations, labels), "{path}: {stored}");
            for (field, value) in status.as_object().expect("a map") {
                assert_eq!(&stored["status"][field], value, "{path}: {stored}");
            }
            assert_eq!((&stored["spec"], &metadata["generation"]), (&made["spec"], &made["metadata"]["generation"]));
        }
        let invalid = json!({"metadata": {"labels": {"l": "a b"}}, "status": {"message": "other"}}).to_string();
        let (code, status) = server.ask("PATCH", &format!("{PODS}/x/status"), MERGE, &invalid);
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
        assert_eq!(server.get(&format!("{PODS}/x"))["status"]["message"], "m", "nothing was changed");
    });
}

/// A certificate signing request without a known user, PEM in base64.
fn certificate_request() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let request = rcgen::CertificateParams::default().serialize_request(&key).expect("a request");
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request.pem().expect("PEM"))
}

#[test]
fn condition_without_a_time_is_kept_where_nothing_requires_one() {
    with_server(|server| {
        let services = "/api/v1/namespaces/default/services";
        let service = json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}});
        let (code, mut service) = server.ask("POST", services, JSON, &service.to_string());
        assert_eq!(code, 201, "{service}");
        let condition = json!({"type": "E2E", "status": "True", "reason": "Set", "message": "m"});
        let mut timed = condition.clone();
        timed["lastTransitionTime"] = Value::Null;
        service["status"]["conditions"] = json!([timed]);
        let (code, written) = server.ask("PUT", &format!("{services}/x/status"), JSON, &service.to_string());
        assert_eq!((code, &written["status"]["conditions"]), (200, &json!([timed])), "{written}");
        let body = json!({"status": {"conditions": [condition]}}).to_string();
        let (code, written) = server.ask("PATCH", &format!("{services}/x/status"), MERGE, &body);
        assert_eq!((code, &written["status"]["conditions"]), (200, &json!([timed])), "{written}");

        let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
        let budget = json!({"metadata": {"name": "x"}, "spec": {"minAvailable": 1}});
        assert_eq!(server.ask("POST", budgets, JSON, &budget.to_string()).0, 201);
        let (code, status) = server.ask("PATCH", &format!("{budgets}/x/status"), MERGE, &body);
        let message = status["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.contains("status.conditions[0].lastTransitionTime: Required value"), "{status}");
    });
}

#[test]
fn approval_changes_the_conditions_of_a_request_and_status_does_not_decide() {
    with_server(|server| {
        let spec = json!({"request": certificate_request(), "signerName": "example.com/s", "usages": ["client auth"]});
        let request = json!({"metadata": {"name": "r"}, "spec": spec}).to_string();
        assert_eq!(server.ask("POST", REQUESTS, JSON, &request).0, 201);
        let approval = format!("{REQUESTS}/r/approval");
        let condition =
            |condition: &str| json!({"conditions": [{"type": condition, "status": "True"}], "certificate": "eA=="});
        let types = |object: &Value| -> Vec<String> {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().map(|one| one["type"].as_str().expect("a type").to_owned()).collect()
        };
        let (code, undecided) = server.ask(
            "PATCH",
            &format!("{REQUESTS}/r/status"),
            MERGE,
            &patch(&json!({"conditions": condition("Approved")["conditions"]})),
        );
        assert_eq!((code, types(&undecided)), (200, vec![]), "{undecided}");
        let (code, mut approved) = server.ask("PATCH", &approval, MERGE, &patch(&condition("Approved")));
        assert_eq!((code, types(&approved)), (200, vec!["Approved".to_owned()]), "{approved}");
        assert_eq!(approved["metadata"]["annotations"], json!({"a": "1"}));
        assert_eq!(approved["status"].get("certificate"), None, "an approval writes conditions alone");
        assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string(), "{approved}");
        let (code, refused) = server.ask("PATCH", &approval, MERGE, &patch(&condition("Denied")));
        assert_eq!(code, 422, "{refused}");
        assert!(
            refused["message"]
                .as_str()
                .expect("a message")
                .contains("updates may not remove a condition of type \"Approved\"")
        );
        approved["status"]["conditions"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"type": "Seen", "status": "False"}));
        let (code, seen) = server.ask("PUT", &approval, JSON, &approved.to_string());
        assert_eq!((code, types(&seen)), (200, vec!["Approved".to_owned(), "Seen".to_owned()]), "{seen}");
        assert_eq!(types(&server.get(&approval)).len(), 2);
    });
}

#[test]
fn events_are_selected_by_the_fields_of_the_version_asked_for() {
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events";
    let core = "/api/v1/namespaces/default/events";
    let event = |name: &str, controller: &str| {
        json!({
            "metadata": {"name": name}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "action": "Act", "reason": "Why",
            "reportingController": controller, "reportingInstance": "i", "note": "n", "regarding": {"namespace": "default", "name": name},
        })
    };
    with_server(|server| {
        for (name, controller) in [("a", "example.com/a"), ("b", "example.com/b")] {
            assert_eq!(server.ask("POST", newer, JSON, &event(name, controller).to_string()).0, 201);
        }
        for (in_newer, in_core, names) in [
            ("reportingController=example.com/a", "reportingComponent=example.com/a", &["a"][..]),
            ("regarding.name=b", "involvedObject.name=b", &["b"]),
            (
                "regarding.namespace=default,metadata.name!=b",
                "involvedObject.namespace=default,metadata.name!=b",
                &["a"],
            ),
            ("source=example.com/b", "source=example.com/b", &["b"]),
            ("reason=Why,type=Normal", "reason=Why,type=Normal", &["a", "b"]),
            ("reason=Other", "reason=Other", &[]),
        ] {
            for (own, other, own_field, other_field) in
                [(newer, core, in_newer, in_core), (core, newer, in_core, in_newer)]
            {
                let items = server.get(&format!("{own}?fieldSelector={own_field}"))["items"].clone();
                let found: Vec<&Value> =
                    items.as_array().expect("a list").iter().map(|one| &one["metadata"]["name"]).collect();
                assert_eq!(found, names, "{own} {own_field}");
                if own_field != other_field {
                    let (code, refused) = server.ask("GET", &format!("{other}?fieldSelector={own_field}"), JSON, "");
                    let message = refused["message"].as_str().expect("a message");
                    assert!(code == 400 && message.starts_with("field label not supported: "), "{other}: {refused}");
                }
            }
        }
    });
}

#[test]
fn certificate_verbs_decide_once() {
    let cluster = Cluster::new();
    let spec = json!({"request": certificate_request(), "signerName": "example.com/s", "usages": ["client auth"]});
    for name in ["a", "b"] {
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec,
        });
        assert_eq!(cluster.run(&["create", "-f", "-"], &request.to_string()).code, 0);
    }
    let approved = "certificatesigningrequest.certificates.k8s.io/a approved\n";
    assert_eq!(cluster.ok("certificate approve a"), approved);
    assert_eq!(cluster.ok("certificate approve a"), approved, "it is already");
    assert_eq!(cluster.ok("certificate deny b"), "certificatesigningrequest.certificates.k8s.io/b denied\n");
    let said = cluster.kloop("certificate deny a");
    assert_eq!((said.code, &*said.err), (1, "error: certificate signing request \"a\" is already Approved\n"));
    let said = cluster.kloop("certificate approve");
    assert!(
        said.code == 1 && said.err.contains("one or more CSRs must be specified as <name> or -f <filename>"),
        "{said:?}"
    );
    let said = cluster.kloop("certificate approve nobody");
    assert!(said.code == 1 && said.err.contains("\"nobody\" not found"), "{said:?}");
    let columns = "-o jsonpath={.items[*].status.conditions[*].reason}";
    assert_eq!(cluster.ok(&format!("get csr {columns}")), "KubectlApprove KubectlDeny");
}

#[test]
fn binding_annotates_its_pod_and_names_a_node() {
    with_server(|server| {
        let pod = json!({"metadata": {"name": "x"}, "spec": {"schedulerName": "mine", "containers": [{"name": "c", "image": "sh"}]}});
        assert_eq!(server.ask("POST", PODS, JSON, &pod.to_string()).0, 201);
        let node = json!({"metadata": {"name": "n"}}).to_string();
        assert_eq!(server.ask("POST", "/api/v1/nodes", JSON, &node).0, 201);
        let binding = |annotations: Value| {
            json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x", "annotations": annotations},
                "target": {"kind": "Node", "name": "n"},
            })
        };
        let path = format!("{PODS}/x/binding");
        let mut to_pod = binding(json!({}));
        to_pod["target"]["kind"] = "Pod".into();
        let (code, status) = server.ask("POST", &path, JSON, &to_pod.to_string());
        let message = "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"";
        assert_eq!((code, &status["message"]), (500, &json!(message)));
        let (code, status) = server.ask("POST", &path, JSON, &binding(json!({"a b": "1"})).to_string());
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
        assert_eq!(server.get(&format!("{PODS}/x"))["spec"].get("nodeName"), None, "nothing was changed");
        let (code, status) = server.ask("POST", &path, JSON, &binding(json!({"example.com/gpu": "2"})).to_string());
        assert_eq!(code, 201, "{status}");
        let bound = server.get(&format!("{PODS}/x"));
        assert_eq!(
            (&bound["spec"]["nodeName"], &bound["metadata"]["annotations"]["example.com/gpu"]),
            (&json!("n"), &json!("2"))
        );
    });
}

#[test]
fn observed_generation_follows_many_updates_of_a_pod() {
    let cluster = Cluster::new();
    let server = Server::of(&cluster, cluster.watch_with(&["--serve=0"]));
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {terminationGracePeriodSeconds: 0,
        containers: [{name: main, image: busybox, command: [sleep, '1000']}]}}",
    );
    cluster.until_reads("pod/p", "{.status.phase}", "Running");
    let updates = 500;
    for number in 0..updates {
        let change = json!({"spec": {"activeDeadlineSeconds": 100_000 - number}}).to_string();
        let path = "/api/v1/namespaces/default/pods/p";
        let (code, pod) = server.ask("PATCH", path, "application/merge-patch+json", &change);
        assert_eq!((code, &pod["metadata"]["generation"]), (200, &json!(number + 2)), "{pod}");
    }
    cluster.until_reads("pod/p", "{.status.observedGeneration}", &(updates + 1).to_string());
    assert_eq!(cluster.read("pod/p", "{.status.containerStatuses[0].restartCount}"), "0");
}

#[test]
fn invalid_statuses_are_refused() {
    let template =
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "sh"}]}});
    let deployment = json!({"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template});
    let points = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
    with_server(|server| {
        for (path, spec, status, problem) in [
            (
                DEPLOYMENTS,
                &deployment,
                json!({"replicas": -5}),
                "status.replicas: Invalid value: -5: must be greater than",
            ),
            (
                "/api/v1/namespaces/default/services",
                &json!({"ports": [{"port": 80}]}),
                points.clone(),
                "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
            ),
            (
                "/api/v1/namespaces/default/resourcequotas",
                &json!({"hard": {"pods": "1"}}),
                json!({"used": {"pods": "-1"}}),
                "status.used[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
        ] {
            let body = json!({"metadata": {"name": "checked"}, "spec": spec});
            let (code, made) = server.ask("POST", path, JSON, &body.to_string());
            assert_eq!(code, 201, "{made}");
            let place = format!("{path}/checked/status");
            let (code, refused) = server.ask("PATCH", &place, MERGE, &json!({"status": status}).to_string());
            let message = refused["message"].as_str().unwrap_or_default();
            assert!(code == 422 && message.contains(problem), "{place}: {code} {refused}");
            assert_eq!(server.get(&format!("{path}/checked"))["status"], made["status"], "nothing was changed");
        }
    });
}
