//! Objects of every new cluster: namespaces, priority classes, a storage class, roles, and the ServiceCIDR and the Service `kubernetes`.

use super::authorization::default_roles::{default_roles, reconciled};
use super::create::{create, set_server_metadata};
use super::rules::names::key_of;
use super::transaction::Transaction;
use super::update::{UpdatePart, update};
use super::{ApiResult, WriteOptions};
use crate::controllers::{default_service_cidr, kubernetesservice};
use crate::kinds::{self, Kind, persistent_volume::LOCAL_DRIVER};
use crate::object::{Key, Object, Resource, Status};
use serde_json::{Value, json};

/// Namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Adds the namespaces, priority classes and roles that an older state lacks, and the rules and subjects that its default roles and
/// bindings lack. Other objects, such as the storage class, stay deleted. Returns the number of changes.
pub fn reconcile(txn: &mut dyn Transaction) -> ApiResult<usize> {
    let mut count = 0;
    for object in namespaces().chain(priority_classes()).chain(default_roles()?) {
        let kind = kind_of(&object)?;
        let Some(existing) = txn.get(&key_of(kind, &object))? else {
            create_as(txn, object)?;
            count += 1;
            continue;
        };
        if let Some(reconciled) = reconciled(&existing, &object) {
            update(txn, kind, &reconciled, UpdatePart::Main, &WriteOptions::default())?;
            count += 1;
        }
    }
    Ok(count)
}

/// Whether a state has all that [`reconcile`] adds; cheap, since it writes nothing.
pub fn is_reconciled(txn: &dyn Transaction) -> ApiResult<bool> {
    for object in namespaces().chain(priority_classes()).chain(default_roles()?) {
        let existing = txn.get_shared(&key_of(kind_of(&object)?, &object))?;
        if existing.is_none_or(|existing| reconciled(&existing, &object).is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn namespaces() -> impl Iterator<Item = Object> {
    NAMESPACES.iter().map(|name| Object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})))
}

fn priority_classes() -> impl Iterator<Item = Object> {
    let class = |(name, value): (&str, i64)| {
        let description = "Used for system critical pods that must run in the cluster.";
        Object(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        }))
    };
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)].into_iter().map(class)
}

/// Fills an empty state. When two commands open a new state at once, the second finds it filled.
pub fn fill(txn: &mut dyn Transaction) -> ApiResult<()> {
    if txn.exists(&Key::new(Resource("namespaces"), "", NAMESPACES[0]))? {
        return Ok(());
    }
    for object in namespaces().chain(priority_classes()) {
        create_as(txn, object)?;
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": LOCAL_DRIVER,
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    });
    put(txn, class)?;
    for role in default_roles()? {
        put_stored_form(txn, role)?;
    }
    let network = txn.network();
    put_range(txn, network)?;
    create_as(txn, kubernetesservice::service(network))
}

/// Keeps an object that has the form in which [`create`] would store it, without decoding, admission and validation, which took half of the
/// time that a new state takes.
fn put_stored_form(txn: &mut dyn Transaction, mut object: Object) -> ApiResult<()> {
    let kind = kind_of(&object)?;
    set_server_metadata(txn, kind, &mut object);
    txn.put(&key_of(kind, &object), object).map(drop)
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
    create(txn, kind_of(&object)?, &object, &WriteOptions::default()).map(|_| ())
}

fn kind_of(object: &Object) -> ApiResult<&'static Kind> {
    kinds::by_kind(object.api_version(), object.kind())
        .ok_or_else(|| Status::bug(format_args!("kind {} is not in the catalogue", object.kind())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use crate::apiserver::delete::{DeleteOptions, delete};

    #[test]
    fn roles_of_a_new_state_have_the_form_that_create_gives_them() {
        let mut api = Api::in_memory("test").unwrap();
        for role in default_roles().unwrap() {
            let kind = kind_of(&role).unwrap();
            let key = key_of(kind, &role);
            let mut stored = api.read_view(|txn| txn.get(&key)).unwrap().expect("a role");
            api.write(false, |txn| delete(txn, kind, &key, &DeleteOptions::default())).expect("deleted");
            let created = api.write(false, |txn| create(txn, kind, &role, &WriteOptions::default())).expect("created");
            for field in ["uid", "resourceVersion", "creationTimestamp"] {
                stored.set(&["metadata", field], created.object.value_at(&["metadata", field]).cloned());
            }
            assert_eq!(stored.0.to_string(), created.object.0.to_string());
        }
    }

    #[test]
    fn older_state_gets_the_roles_and_rules_that_it_lacks() {
        let mut api = Api::in_memory("test").unwrap();
        assert!(api.read_view(is_reconciled).unwrap());
        let roles = &kinds::cluster_role::KIND;
        let key = |name: &str| Key::new(roles.resource, "", name);
        let edit = |api: &mut Api, name: &str, annotation: &str| {
            api.write(false, |txn| {
                let mut role = txn.get(&key(name))?.expect("a role");
                role.set(&["rules"], json!([]));
                role.set(&["metadata", "annotations", "rbac.authorization.kubernetes.io/autoupdate"], annotation);
                update(txn, roles, &role, UpdatePart::Main, &WriteOptions::default())
            })
            .expect("written");
        };
        edit(&mut api, "system:basic-user", "true");
        edit(&mut api, "system:discovery", "false");
        api.write(false, |txn| delete(txn, roles, &key("system:node"), &DeleteOptions::default())).expect("deleted");
        assert!(!api.read_view(is_reconciled).unwrap());
        assert_eq!(api.write(false, reconcile).expect("reconciled"), 2);
        let count = |name: &str| {
            let role = api.read_view(|txn| txn.get(&key(name))).unwrap();
            role.map(|role| role.items(&["rules"]).len())
        };
        assert!(count("system:basic-user") > Some(0) && count("system:node") > Some(0));
        assert_eq!(count("system:discovery"), Some(0), "it says that it stays");
    }
}
