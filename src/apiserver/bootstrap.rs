//! Objects of every new cluster: namespaces, priority classes, a storage class, roles, and the ServiceCIDR and the Service `kubernetes`.

use super::authorization::default_roles::default_roles;
use super::create::create;
use super::transaction::Transaction;
use super::update::{UpdatePart, update};
use super::{ApiResult, WriteOptions};
use crate::controllers::{default_service_cidr, kubernetesservice};
use crate::kinds::{self, persistent_volume::LOCAL_DRIVER};
use crate::object::{Key, Object, Reason, Resource, Status};
use serde_json::{Value, json};

/// Namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Fills an empty state. When two commands open a new state at once, the second finds it filled.
pub fn fill(txn: &mut dyn Transaction) -> ApiResult<()> {
    if txn.exists(&Key::new(Resource("namespaces"), "", NAMESPACES[0]))? {
        return Ok(());
    }
    for name in NAMESPACES {
        put(txn, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
    }
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        let description = "Used for system critical pods that must run in the cluster.";
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        });
        if kinds::by_kind("scheduling.k8s.io/v1", "PriorityClass").is_some() {
            put(txn, class)?;
        }
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": LOCAL_DRIVER,
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    });
    put(txn, class)?;
    for object in default_roles()? {
        create_as(txn, object)?;
    }
    let network = txn.network();
    put_range(txn, network)?;
    create_as(txn, kubernetesservice::service(network))
}

/// Adds the range of the Services' addresses, which is ready from the start.
fn put_range(txn: &mut dyn Transaction, network: u8) -> ApiResult<()> {
    let mut range = default_service_cidr::range(network);
    let kind = &kinds::service_cidr::KIND;
    create(txn, kind, &range, &WriteOptions::default())?;
    range.set(&["status"], default_service_cidr::ready(txn.now()));
    update(txn, kind, &range, UpdatePart::Status, &WriteOptions::default()).map(|_| ())
}

fn put(txn: &mut dyn Transaction, body: Value) -> ApiResult<()> {
    create_as(txn, Object(body))
}

fn create_as(txn: &mut dyn Transaction, object: Object) -> ApiResult<()> {
    let kind = kinds::by_kind(object.api_version(), object.kind()).ok_or_else(|| {
        Status::new(Reason::InternalError, format!("kind {} is not in the catalogue; this is a bug", object.kind()))
    })?;
    create(txn, kind, &object, &WriteOptions::default()).map(|_| ())
}
