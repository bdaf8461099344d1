//! The audit log: events of the requests that a policy records.

use super::{JSON, MAPS, Server, map};
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::fs;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: RequestResponse, verbs: [create], resources: [{resources: [configmaps]}], omitManagedFields: true}
- {level: Metadata, users: [admin], resources: [{resources: [secrets]}]}
- {level: None}
"#;

#[test]
fn requests_are_recorded_as_the_policy_says() {
    let cluster = Cluster::new();
    let (log, policy) = (cluster.home().join("audit.log"), cluster.home().join("policy.yaml"));
    fs::write(&policy, POLICY).expect("a policy");
    let flags = [format!("--audit-log={}", log.display()), format!("--audit-policy-file={}", policy.display())];
    let server = Server::start(&cluster, &flags.each_ref().map(String::as_str));
    assert_eq!(server.ask("POST", MAPS, JSON, &map("one", "1")).0, 201);
    assert_eq!(server.ask("GET", &format!("{MAPS}/one"), JSON, "").0, 200);
    let ann = [("Impersonate-User", "ann"), ("Audit-Id", "of-ann")];
    assert_eq!(server.ask_with("GET", "/api/v1/namespaces/default/secrets/s", JSON, "", &ann).0, 403);
    assert_eq!(server.plane.end("TERM"), 0);
    let text = fs::read_to_string(&log).expect("a log");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events.len(), 2, "{text}");
    let made = &events[0];
    let shown = |pointer: &str| made.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(
        shown("/objectRef"),
        json!({"resource": "configmaps", "namespace": "default", "name": "one", "apiVersion": "v1"})
    );
    assert_eq!((shown("/requestObject/data"), shown("/responseObject/data")), (json!({"a": "1"}), json!({"a": "1"})));
    assert_eq!((shown("/stage"), shown("/level")), (json!("ResponseComplete"), json!("RequestResponse")));
    assert_eq!((shown("/verb"), shown("/responseStatus/code")), (json!("create"), json!(201)));
    assert_eq!((shown("/user/username"), shown("/sourceIPs")), (json!("admin"), json!(["127.0.0.1"])));
    assert_eq!(shown("/responseObject/metadata/managedFields"), Value::Null);
    let refused = &events[1];
    let shown = |pointer: &str| refused.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!((shown("/impersonatedUser/username"), shown("/user/username")), (json!("ann"), json!("admin")));
    assert_eq!((shown("/auditID"), shown("/requestObject")), (json!("of-ann"), Value::Null));
    assert_eq!(shown("/annotations/authorization.k8s.io~1decision"), json!("forbid"));
    assert_eq!((shown("/responseStatus/code"), shown("/responseStatus/reason")), (json!(403), json!("Forbidden")));
}

#[test]
fn decisions_of_admission_are_recorded() {
    let cluster = Cluster::new();
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let made = |kind: &str, spec: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": spec})
            .to_string()
    };
    let validations = json!([{"expression": "false", "message": "never"}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": validations,
        "auditAnnotations": [{"key": "name", "valueExpression": "string(object.metadata.name)"}]});
    let binding = json!({"policyName": "p", "validationActions": ["Audit"]});
    let objects =
        [made("ValidatingAdmissionPolicy", spec), made("ValidatingAdmissionPolicyBinding", binding)].join("\n---\n");
    cluster.apply(&objects);
    let (log, policy) = (cluster.home().join("audit.log"), cluster.home().join("policy.yaml"));
    fs::write(&policy, POLICY).expect("a policy");
    let flags = [format!("--audit-log={}", log.display()), format!("--audit-policy-file={}", policy.display())];
    let server = Server::start(&cluster, &flags.each_ref().map(String::as_str));
    assert_eq!(server.ask("POST", MAPS, JSON, &map("one", "1")).0, 201);
    assert_eq!(server.plane.end("TERM"), 0);
    let text = fs::read_to_string(&log).expect("a log");
    let event: Value = serde_json::from_str(text.lines().next().expect("an event")).expect("JSON");
    let annotations = &event["annotations"];
    assert_eq!(annotations["p/name"], "one");
    let failures = annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap_or_default();
    assert!(failures.contains("\"message\":\"never\""), "{text}");
}

#[test]
fn malformed_audit_policy_is_refused() {
    let cluster = Cluster::new();
    let policy = cluster.home().join("policy.yaml");
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\n").expect("a policy");
    let said = cluster.kloop(&format!("serve --port=0 --audit-log=a.log --audit-policy-file={}", policy.display()));
    assert!(said.err.contains("loaded illegal policy with 0 rules"), "{}", said.err);
    assert!(cluster.kloop("serve --audit-log=a.log").err.contains("--audit-policy-file"));
}
