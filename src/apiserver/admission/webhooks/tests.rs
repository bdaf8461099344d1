//! Match conditions of webhooks, in memory, where no webhook can be called.

use crate::apiserver::create::create;
use crate::apiserver::{Api, WriteOptions};
use crate::object::{Object, Reason, Status};
use serde_json::{Value, json};

/// Creates a ConfigMap where a webhook with these conditions and this failure policy sees that.
fn create_with(conditions: &[&str], policy: &str) -> Result<(), Status> {
    let name = |(index, expression): (usize, &&str)| json!({"name": format!("c{index}"), "expression": expression});
    let conditions: Vec<Value> = conditions.iter().enumerate().map(name).collect();
    let hook = json!({
        "name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "failurePolicy": policy,
        "admissionReviewVersions": ["v1"], "matchConditions": conditions,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "c"}, "webhooks": [hook]});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"k": "v"}});
    let mut api = Api::in_memory("test").unwrap();
    let mut put = |object: Value| {
        let object = Object(object);
        api.write(false, |txn| {
            let kind = txn.kinds().by_kind(object.api_version(), object.kind()).expect("a kind");
            create(txn, kind, &object, &WriteOptions::default()).map(|_| ())
        })
    };
    put(configuration)?;
    put(map)
}

#[test]
fn condition_that_cannot_be_evaluated_decides_by_the_failure_policy() {
    let (wrong, other) = ("object.data.none == 'x'", "object.data.k == oldObject.data.k");
    let refused = create_with(&[wrong, "true"], "Fail").unwrap_err();
    let error = "expression 'object.data.none == 'x'' resulted in error: no such key: none";
    assert_eq!(refused.reason, Reason::Forbidden);
    assert_eq!(refused.message, format!("configmaps \"a\" is forbidden: {error}"));
    let both = create_with(&[wrong, other], "Fail").unwrap_err().message;
    assert!(
        both.starts_with(&format!("configmaps \"a\" is forbidden: [{error}, expression '{other}' resulted")),
        "{both}"
    );
    assert!(create_with(&[wrong], "Ignore").is_ok());
    assert!(create_with(&[wrong, "object.data.k != 'v'"], "Fail").is_ok(), "a condition that is false decides");
}

#[test]
fn conditions_are_compiled_when_they_are_written() {
    let refused = create_with(&["request.nothing == 1"], "Fail").unwrap_err();
    assert!(
        refused.message.contains("webhooks[0].matchConditions[0].expression")
            && refused.message.contains("undefined field 'nothing'")
    );
    assert_eq!(create_with(&["true"; 65], "Fail").unwrap_err().reason, Reason::Invalid);
    let known = "request.operation == 'CREATE' && request.name == 'a' && namespaceObject == null \
        && authorizer.requestResource.check('create').allowed() && request.userInfo.username == 'admin'";
    assert!(create_with(&[known], "Fail").is_ok());
}
