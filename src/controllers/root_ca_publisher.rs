//! The ConfigMap `kube-root-ca.crt` of every namespace: the certificates by which pods verify the API server.
//!
//! Never: creates ServiceAccounts. An admission webhook that refuses the ConfigMaps of a namespace must not keep it without its account.

use crate::object::{Key, Object, Resource};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use serde_json::json;

const ROOT: &str = "namespaces";
const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";

/// The loop that adds the ConfigMap to namespaces.
pub const LOOP: Loop =
    Loop { name: "root-ca-certificate-publisher-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    match (row.key.resource.0, &*row.key.name) {
        (ROOT, _) => vec![row.key.clone()],
        ("configmaps", ROOT_CA) => vec![Key::new(Resource(ROOT), "", &row.key.namespace)],
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let namespace = &*row.key.name;
    let wanted = root_ca(namespace, &world.settings.root_ca);
    match world.find("configmaps", namespace, ROOT_CA) {
        None => {
            plan.write(WriteVerb::Create(Object(wanted)), "every namespace has the cluster's root certificates");
        }
        Some(row) if !row.is_deleting() => {
            let mut object = row.object();
            let is_described = object.annotation(DESCRIPTION).is_some_and(|text| !text.is_empty());
            if object.0.get("data") != wanted.get("data") || !is_described {
                object.0["data"] = wanted["data"].clone();
                let description = wanted["metadata"]["annotations"][DESCRIPTION].clone();
                object.set(&["metadata", "annotations", DESCRIPTION], description);
                plan.write(WriteVerb::Update(object), "the cluster's root certificates must not be changed");
            }
        }
        Some(_) => {}
    }
    plan
}

fn root_ca(namespace: &str, certificate: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": ROOT_CA,
            "namespace": namespace,
            "annotations": {
                DESCRIPTION: "Contains a CA bundle that can be used to verify the kube-apiserver when using \
                    internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                    guaranteed across distributions of Kubernetes clusters.",
            },
        },
        "data": { "ca.crt": certificate },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use super::{DESCRIPTION, ROOT_CA};
    use crate::world::Propagation;
    use serde_json::json;

    #[test]
    fn root_certificates_come_back_when_they_are_changed_or_deleted() {
        let mut cluster = cluster("");
        cluster.settle();
        cluster.patch("configmaps", ROOT_CA, json!({"data": {"ca.crt": "x", "y": "z"}}));
        cluster.settle();
        assert_eq!(cluster.value("configmaps", ROOT_CA, "/data"), json!({"ca.crt": ""}));
        cluster.patch("configmaps", ROOT_CA, json!({"metadata": {"annotations": null}}));
        cluster.settle();
        assert!(cluster.object("configmaps", ROOT_CA).annotation(DESCRIPTION).is_some());
        cluster.delete("configmaps", ROOT_CA, Propagation::Background);
        cluster.settle();
        assert_eq!(cluster.value("configmaps", ROOT_CA, "/data"), json!({"ca.crt": ""}));
    }
}
