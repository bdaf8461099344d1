//! Objects of every namespace: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

use crate::object::{Key, Object, Resource};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use serde_json::json;

const ROOT: &str = "namespaces";
const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";

/// The loop that furnishes namespaces.
pub const LOOP: Loop = Loop { name: "serviceaccount-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    match (row.key.resource.0, &*row.key.name) {
        (ROOT, _) => vec![row.key.clone()],
        ("serviceaccounts", ACCOUNT) | ("configmaps", ROOT_CA) => {
            vec![Key::new(Resource(ROOT), "", &row.key.namespace)]
        }
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::nothing();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let namespace = &*row.key.name;
    if world.find("serviceaccounts", namespace, ACCOUNT).is_none() {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT, "namespace": namespace },
        });
        plan.write(WriteVerb::Create(Object(account)), "every namespace has a default ServiceAccount");
    }
    if world.find("configmaps", namespace, ROOT_CA).is_none() {
        plan.write(
            WriteVerb::Create(Object(root_ca(namespace))),
            "every namespace has the cluster's root certificates",
        );
    }
    plan
}

fn root_ca(namespace: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": ROOT_CA,
            "namespace": namespace,
            "annotations": {
                "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using \
                    internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                    guaranteed across distributions of Kubernetes clusters.",
            },
        },
        "data": { "ca.crt": "" },
    })
}
