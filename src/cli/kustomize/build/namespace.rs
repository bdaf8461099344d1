//! `namespace`: one namespace for everything that is in one.

use super::Built;
use super::field::Field;
use super::resource::Resources;
use crate::object::Object;
use serde_json::Value;

/// Where else a namespace is named.
const FIELDS: [Field; 3] = [
    Field::made("Namespace", "metadata/name"),
    Field { group: "apiregistration.k8s.io", kind: "APIService", path: "spec/service/namespace", create: true },
    Field {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        path: "spec/conversion/webhook/clientConfig/service/namespace",
        create: false,
    },
];

/// Puts everything into a namespace; a Namespace among the objects is then that one.
pub fn set(resources: &mut Resources, namespace: &str) -> Built {
    for at in 0..resources.0.len() {
        let resource = &mut resources.0[at];
        resource.remember();
        if !resource.id().is_cluster_scoped() {
            resource.object.set(&["metadata", "namespace"], namespace);
        }
        for field in &FIELDS {
            field.each(&mut resource.object, &mut |value| *value = namespace.into());
        }
        default_accounts(&mut resource.object, namespace);
        let id = resource.id();
        let same = resources.0.iter().filter(|other| other.object.name() == id.name && other.id().same(&id));
        if same.count() > 1 {
            return Err(format!("namespace transformation produces ID conflict: {id}"));
        }
    }
    Ok(())
}

/// Bindings of the account that every namespace has mean the one of this namespace.
fn default_accounts(object: &mut Object, namespace: &str) {
    if !["RoleBinding", "ClusterRoleBinding"].contains(&object.kind()) {
        return;
    }
    let subjects = object.0.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
    for subject in subjects.filter(|subject| subject["kind"] == "ServiceAccount" && subject["name"] == "default") {
        subject["namespace"] = namespace.into();
    }
}
