//! Policies from their objects to the answer of a write, in memory.

use crate::apiserver::admission::Operation;
use crate::apiserver::create::create;
use crate::apiserver::delete::delete;
use crate::apiserver::rescale::rescale;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, DeleteOptions, WriteOptions, WriteReply};
use crate::object::{Key, Object, Reason, Status};
use serde_json::{Value, json};

struct Cluster(Api);

impl Cluster {
    fn new(objects: &[Value]) -> Cluster {
        let mut cluster = Cluster(Api::in_memory("test").unwrap());
        for object in objects {
            cluster.create(object.clone()).unwrap_or_else(|status| panic!("{object}: {}", status.message));
        }
        cluster
    }

    fn create(&mut self, object: Value) -> Result<WriteReply, Status> {
        let object = Object(object);
        self.0.write(false, |txn| {
            let kind = txn.kinds().by_kind(object.api_version(), object.kind()).expect("a kind");
            create(txn, kind, &object, &WriteOptions::default())
        })
    }

    fn update(&mut self, object: Value) -> Result<WriteReply, Status> {
        let mut object = Object(object);
        self.0.write(false, |txn| {
            let kind = txn.kinds().by_kind(object.api_version(), object.kind()).expect("a kind");
            let stored = txn.get(&key_of(kind, &object))?.expect("a stored object");
            object.set(&["metadata", "resourceVersion"], stored.revision().to_string());
            update(txn, kind, &object, UpdatePart::Main, &WriteOptions::default())
        })
    }

    fn delete(&mut self, name: &str) -> Result<WriteReply, Status> {
        self.0.write(false, |txn| {
            let kind = txn.kinds().by_name("configmaps").expect("a kind");
            delete(txn, kind, &Key::new(kind.resource, "default", name), &DeleteOptions::default())
        })
    }
}

fn rule(operations: &[Operation]) -> Value {
    let operations: Vec<&str> = operations.iter().map(|operation| operation.name()).collect();
    json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"]}]})
}

const WRITES: &[Operation] = &[Operation::Create, Operation::Update];

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn policy(more: Value) -> Value {
    let mut spec = json!({"matchConstraints": rule(WRITES)});
    json_patch::merge(&mut spec, &more);
    object("ValidatingAdmissionPolicy", "p", spec)
}

fn binding(more: Value) -> Value {
    let mut spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    json_patch::merge(&mut spec, &more);
    object("ValidatingAdmissionPolicyBinding", "b", spec)
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

/// Returns the message with which a policy with this spec refuses a ConfigMap; empty when it does not.
fn message(spec: Value) -> String {
    let mut cluster = Cluster::new(&[policy(spec), binding(json!({}))]);
    let start = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    match cluster.create(map("a", json!({"n": "5", "k": "v"}))) {
        Ok(_) => String::new(),
        Err(status) => status.message.strip_prefix(start).unwrap_or(&status.message).to_owned(),
    }
}

fn validation(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

#[test]
fn policy_refuses_with_its_message() {
    let cases = [
        (validation("object.data.k == 'v'"), ""),
        (validation("int(object.data.n) < 5"), "failed expression: int(object.data.n) < 5"),
        (json!({"validations": [{"expression": "false", "message": "no"}]}), "no"),
        (
            json!({"variables": [{"name": "n", "expression": "int(object.data.n)"}, {"name": "m", "expression": "variables.n + 1"}],
                "validations": [{"expression": "variables.m < 6", "messageExpression": "'not ' + string(variables.m)"}]}),
            "not 6",
        ),
        (
            validation("object.data.none == 'x'"),
            "expression 'object.data.none == 'x'' resulted in error: no such key: none",
        ),
        (json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.none == 'x'"}]}), ""),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.data.k != 'v'"}], "validations": [{"expression": "false"}]}),
            "",
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.none == 1"}], "validations": [{"expression": "false"}]}),
            "expression 'object.none == 1' resulted in error: no such key: none",
        ),
        (
            validation(
                "request.operation == 'CREATE' && request.resource.resource == 'configmaps' && oldObject == null",
            ),
            "",
        ),
        (
            validation(
                "request.userInfo.username == 'admin' && request.namespace == 'default' && !has(request.subResource)",
            ),
            "",
        ),
        (validation("namespaceObject.metadata.name == 'default'"), ""),
        (validation("authorizer.group('').resource('pods').namespace('default').check('delete').allowed()"), ""),
        (validation("authorizer.requestResource.check('create').allowed()"), ""),
        (
            validation(
                "authorizer.serviceAccount('default', 'x').group('').resource('pods').check('delete').allowed()",
            ),
            "failed expression: authorizer.serviceAccount('default', 'x').group('').resource('pods').check('delete').allowed()",
        ),
        (
            json!({"matchConstraints": {"objectSelector": {"matchLabels": {"a": "b"}}}, "validations": [{"expression": "false"}]}),
            "",
        ),
        (
            json!({"matchConstraints": {"namespaceSelector": {"matchLabels": {"a": "b"}}}, "validations": [{"expression": "false"}]}),
            "",
        ),
        (
            validation("lists.range(900000).all(x, x >= 0)"),
            "expression 'lists.range(900000).all(x, x >= 0)' resulted in error: operation cancelled: actual cost limit exceeded",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(message(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn reason_and_actions_decide_what_a_denial_does() {
    let mut cluster = Cluster::new(&[
        policy(json!({"validations": [{"expression": "false", "reason": "Forbidden"}]})),
        binding(json!({})),
    ]);
    let refused = cluster.create(map("a", json!({}))).unwrap_err();
    assert_eq!((refused.reason, refused.kind.as_str()), (Reason::Forbidden, "configmaps"));
    assert_eq!(refused.causes.len(), 1);
    let warns = binding(json!({"validationActions": ["Warn", "Audit"]}));
    let mut cluster = Cluster::new(&[policy(validation("false")), warns]);
    let reply = cluster.create(map("a", json!({}))).unwrap();
    let expected = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false";
    assert_eq!(reply.warnings, [expected]);
}

#[test]
fn updates_and_deletions_pass_the_policies() {
    let all = rule(&[Operation::Update, Operation::Delete]);
    let spec = json!({"matchConstraints": all, "validations":
        [{"expression": "object == null ? oldObject.data.k != 'keep' : object.data.k == oldObject.data.k"}]});
    let mut cluster = Cluster::new(&[policy(spec), binding(json!({}))]);
    for name in ["keep", "other"] {
        cluster.create(map(name, json!({"k": name}))).unwrap();
    }
    assert_eq!(cluster.update(map("keep", json!({"k": "x"}))).unwrap_err().reason, Reason::Invalid);
    assert!(cluster.update(map("keep", json!({"k": "keep", "l": "m"}))).is_ok());
    assert_eq!(cluster.delete("keep").unwrap_err().reason, Reason::Invalid);
    assert!(cluster.delete("other").is_ok());
}

#[test]
fn changed_policy_is_compiled_again() {
    let mut cluster = Cluster::new(&[policy(validation("false")), binding(json!({}))]);
    assert!(cluster.create(map("a", json!({}))).is_err());
    let changed = policy(validation("true"));
    cluster.update(changed).unwrap();
    assert!(cluster.create(map("a", json!({}))).is_ok());
}

#[test]
fn policies_do_not_see_the_configuration_of_admission() {
    let everything =
        json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]});
    let mut cluster = Cluster::new(&[
        policy(json!({"matchConstraints": everything, "validations": [{"expression": "false"}]})),
        binding(json!({})),
    ]);
    assert!(cluster.create(map("a", json!({}))).is_err());
    let other =
        object("ValidatingAdmissionPolicyBinding", "c", json!({"policyName": "p", "validationActions": ["Warn"]}));
    assert!(cluster.create(other).is_ok(), "one could not take the policy back otherwise");
}

#[test]
fn parameters_are_found_by_name_and_by_selector() {
    let with = |params: Value, more: Value| {
        let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "params == null || object.data.k == params.data.k || object.metadata.name.startsWith('param')"}]});
        let mut cluster = Cluster::new(&[policy(spec)]);
        for (name, key) in [("param-a", "v"), ("param-b", "w")] {
            let mut one = map(name, json!({"k": key}));
            one["metadata"]["labels"] = json!({"param": key});
            cluster.create(one).unwrap();
        }
        cluster.create(binding(json!({"paramRef": params}))).unwrap();
        cluster.create(map("x", more)).map(|_| String::new()).unwrap_or_else(|status| status.message)
    };
    let named = |name: &str, action: &str| json!({"name": name, "parameterNotFoundAction": action});
    let selected = |labels: Value| json!({"selector": {"matchLabels": labels}, "parameterNotFoundAction": "Deny"});
    assert_eq!(with(named("param-a", "Deny"), json!({"k": "v"})), "");
    assert!(with(named("param-b", "Deny"), json!({"k": "v"})).contains("failed expression"));
    assert!(with(selected(json!({})), json!({"k": "v"})).contains("failed expression"), "each object is a parameter");
    assert_eq!(with(selected(json!({"param": "v"})), json!({"k": "v"})), "");
    assert_eq!(with(named("none", "Allow"), json!({"k": "x"})), "");
    let missing = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure \
                   binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!(with(named("none", "Deny"), json!({"k": "x"})), missing);
}

fn mutating(mutations: Value, reinvocation: &str) -> [Value; 2] {
    let spec = json!({"matchConstraints": rule(WRITES), "reinvocationPolicy": reinvocation, "mutations": mutations});
    [
        object("MutatingAdmissionPolicy", "m", spec),
        object("MutatingAdmissionPolicyBinding", "b", json!({"policyName": "m"})),
    ]
}

fn configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[test]
fn mutating_policy_changes_the_object() {
    let mutations = json!([
        configuration(
            "Object{metadata: Object.metadata{labels: {'stamped': 'yes'}}, data: {'n': string(int(object.data.n) + 1)}}"
        ),
        patch(
            "[JSONPatch{op: 'test', path: '/data/n', value: '6'}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.dev/b'), value: 'c'}]"
        ),
        patch("[JSONPatch{op: 'test', path: '/data/n', value: 'no'}, JSONPatch{op: 'remove', path: '/data'}]"),
    ]);
    let mut cluster = Cluster::new(&mutating(mutations, "Never"));
    let reply = cluster.create(map("a", json!({"n": "5"}))).unwrap();
    assert_eq!(reply.object.0["data"], json!({"n": "6"}));
    assert_eq!((reply.object.label("stamped"), reply.object.label("example.dev/b")), (Some("yes"), Some("c")));
}

#[test]
fn mutation_that_cannot_be_applied_refuses_the_request() {
    let cases = [
        (
            configuration("Object{metadata: Object.wrong{labels: {'a': 'b'}}}"),
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.metadata\"",
        ),
        (
            configuration("Object{nope: 'x'}"),
            "error applying patch: failed to convert patch object to typed object: .nope: field not declared in schema",
        ),
        (patch("[JSONPatch{op: 'remove', path: '/data/none'}]"), "JSON Patch: "),
        (patch("[JSONPatch{op: 'add', path: '/data', value: object.none}]"), "resulted in error: no such key: none"),
    ];
    for (mutation, expected) in cases {
        let mut cluster = Cluster::new(&mutating(json!([mutation]), "Never"));
        let refused = cluster.create(map("a", json!({"n": "5"}))).unwrap_err().message;
        assert!(
            refused.starts_with("policy 'm' with binding 'b' denied request: ") && refused.contains(expected),
            "{refused}"
        );
    }
}

#[test]
fn policy_that_asks_for_it_sees_later_changes() {
    let counts = |reinvocation: &str| {
        let first = configuration("Object{data: {'seen': has(object.data.late) ? 'late' : 'early'}}");
        let [first, first_binding] = mutating(json!([first]), reinvocation);
        let late = configuration("Object{data: {'late': 'yes'}}");
        let [mut second, mut second_binding] = mutating(json!([late]), "Never");
        second["metadata"]["name"] = "n".into();
        second_binding["metadata"]["name"] = "c".into();
        second_binding["spec"]["policyName"] = "n".into();
        let mut cluster = Cluster::new(&[first, first_binding, second, second_binding]);
        let reply = cluster.create(map("a", json!({"k": "v"}))).unwrap();
        reply.object.0["data"]["seen"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!((counts("Never").as_str(), counts("IfNeeded").as_str()), ("early", "late"));
}

#[test]
fn audit_log_gets_failures_and_annotations() {
    let spec = json!({
        "validations": [{"expression": "true"}, {"expression": "false", "message": "no"}],
        "auditAnnotations": [{"key": "name", "valueExpression": "'is ' + object.metadata.name"}, {"key": "none", "valueExpression": "null"}],
    });
    let audits = binding(json!({"validationActions": ["Audit"]}));
    let mut cluster = Cluster::new(&[policy(spec), audits]);
    assert!(cluster.create(map("a", json!({}))).is_ok());
    let found: Vec<(String, String)> =
        cluster.0.take_annotations().into_iter().map(|annotation| (annotation.key, annotation.value)).collect();
    let failure = "[{\"binding\":\"b\",\"expressionIndex\":1,\"message\":\"no\",\"policy\":\"p\",\"validationActions\":[\"Audit\"]}]";
    let failure = ("validation.policy.admission.k8s.io/validation_failure".to_owned(), failure.to_owned());
    assert_eq!(found, [("p/name".to_owned(), "is a".to_owned()), failure]);
    let wrong = json!({"validations": [{"expression": "true"}], "auditAnnotations": [{"key": "k", "valueExpression": "string(object.none)"}]});
    let mut cluster = Cluster::new(&[policy(wrong), binding(json!({"validationActions": ["Warn"]}))]);
    let refused = cluster.create(map("a", json!({}))).unwrap_err().message;
    assert!(refused.ends_with("expression 'string(object.none)' resulted in error: no such key: none"), "{refused}");
}

#[test]
fn scale_is_seen_as_a_scale_and_not_as_a_change_of_its_object() {
    let rule = |resource: &str| json!({"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource]}]});
    let expression = "object.kind == 'Scale' && object.apiVersion == 'autoscaling/v1' && object.spec.replicas <= 3 \
         && oldObject.spec.replicas == 1 && request.subResource == 'scale' && request.kind.group == 'autoscaling' \
         && request.resource.resource == 'deployments' && request.name == 'web'";
    let labels = json!({"app": "web"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod}});
    let rescaled = |resource: &str, expression: &str, replicas: i64| {
        let spec = json!({"matchConstraints": rule(resource), "validations": [{"expression": expression}]});
        let mut cluster = Cluster::new(&[deployment.clone(), policy(spec), binding(json!({}))]);
        cluster.0.write(false, |txn| {
            let kind = txn.kinds().by_name("deployments").expect("a kind");
            let scale = Object(json!({"spec": {"replicas": replicas}}));
            rescale(
                txn,
                (kind, "apps/v1"),
                &Key::new(kind.resource, "default", "web"),
                &scale,
                &WriteOptions::default(),
            )
        })
    };
    let scaled = rescaled("deployments/scale", expression, 3).unwrap();
    assert_eq!((scaled.object.int(&["spec", "replicas"]), scaled.object.generation()), (Some(3), 2));
    assert_eq!(rescaled("deployments/scale", expression, 4).unwrap_err().reason, Reason::Invalid);
    assert!(rescaled("deployments", "false", 4).is_ok());
}

#[test]
fn policy_refuses_before_a_taken_name_does() {
    let denies = json!({"validations": [{"expression": "!('bad' in object.data)", "message": "no"}]});
    let mut cluster = Cluster::new(&[policy(denies), binding(json!({})), map("a", json!({"k": "v"}))]);
    let taken = cluster.create(map("a", json!({"k": "v"}))).expect_err("the name is taken");
    assert_eq!(taken.reason, Reason::AlreadyExists);
    let refused = cluster.create(map("a", json!({"bad": "x"}))).expect_err("refused");
    assert!(refused.message.ends_with("denied request: no"), "{}", refused.message);
}
