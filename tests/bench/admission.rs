//! Admission: dry runs of creating a Deployment without policies and with ten of five rules each, and the rules of a large definition.
//!
//! `cargo bench --bench admission`. Medians in one process with the state in memory.

use kloop::apiserver::{Api, WriteOptions, create};
use kloop::object::Object;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Number of measured writes.
const WRITES: usize = 500;

fn main() {
    let mut api = Api::in_memory("bench").expect("a cluster");
    let before = median(&mut api, WRITES, &deployment());
    for index in 0..10 {
        for object in policy(index) {
            write(&mut api, false, &object);
        }
    }
    let after = median(&mut api, WRITES, &deployment());
    println!(
        "create a Deployment (dry run): {before:?}, with 10 policies of 5 rules {after:?}, so {:?} of policies",
        after - before
    );
    let definition = definition(300);
    let kilobytes = definition.0.to_string().len() / 1000;
    let start = Instant::now();
    write(&mut api, false, &definition);
    println!("create a definition of {kilobytes} kB with 300 rules: {:?}", start.elapsed());
}

fn write(api: &mut Api, dry_run: bool, object: &Object) {
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    let written = api.write(dry_run, |txn| {
        let kind = txn.kinds().by_kind(object.api_version(), object.kind()).expect("a kind");
        create::create(txn, kind, object, &options)
    });
    written.unwrap_or_else(|status| panic!("{}", status.message));
}

fn median(api: &mut Api, count: usize, object: &Object) -> Duration {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let start = Instant::now();
            write(api, true, object);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[count / 2]
}

fn deployment() -> Object {
    let container = |name: &str| json!({"name": name, "image": "nginx:1.27", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
    let labels = json!({"app": "web"});
    Object(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "labels": labels},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container("a"), container("b")]}}},
    }))
}

fn policy(index: usize) -> [Object; 2] {
    let name = format!("policy-{index}");
    let expressions = [
        "object.spec.replicas <= 100",
        "object.spec.template.spec.containers.all(c, has(c.resources) && has(c.resources.limits))",
        "object.spec.template.spec.containers.all(c, !c.image.endsWith(':latest'))",
        "has(object.metadata.labels) && 'app' in object.metadata.labels",
        "object.metadata.name.matches('^[a-z0-9-]+$')",
    ];
    let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]});
    let made = |kind: &str, spec: Value| {
        Object(
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}),
        )
    };
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": validations});
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    [made("ValidatingAdmissionPolicy", spec), made("ValidatingAdmissionPolicyBinding", binding)]
}

fn definition(rules: usize) -> Object {
    let text = "Lorem ipsum dolor sit amet. ".repeat(80);
    let field = |index: usize| {
        let rules =
            json!([{"rule": format!("self.startsWith('a') || self.size() < {index} || self.matches('^[a-z]+$')")}]);
        (
            format!("field{index}"),
            json!({"type": "string", "maxLength": 60, "description": text, "x-kubernetes-validations": rules}),
        )
    };
    let fields: serde_json::Map<String, Value> = (0..rules).map(field).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    Object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "larges.example.dev"},
        "spec": {"group": "example.dev", "scope": "Namespaced", "names": {"plural": "larges", "kind": "Large"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    }))
}
