//! `namespace`: one namespace for everything that is in one.

use super::BuildResult;
use super::field::BuiltinField;
use super::file::FieldSpec;
use super::resource::BuildResources;
use crate::object::Object;
use serde_json::Value;

/// Other fields with a namespace.
const FIELDS: [BuiltinField; 3] = [
    BuiltinField::created("Namespace", "metadata/name"),
    BuiltinField { group: "apiregistration.k8s.io", kind: "APIService", path: "spec/service/namespace", create: true },
    BuiltinField {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        path: "spec/conversion/webhook/clientConfig/service/namespace",
        create: false,
    },
];

/// The field that is set by itself.
const OWN: &str = "metadata/namespace";

/// Options for setting a namespace.
#[derive(Default)]
pub struct How<'a> {
    /// More fields that name it.
    pub fields: &'a [FieldSpec],
    /// Whether the fields that kustomize knows by itself are left as they are.
    pub only_these: bool,
    /// Whether what is in a namespace stays there.
    pub unset_only: bool,
    /// The subjects of bindings that get this namespace: `allServiceAccounts`, `none`, else the accounts that every namespace has.
    pub subjects: &'a str,
}

/// Puts everything into a namespace; a Namespace among the objects is then that one.
pub fn set(resources: &mut BuildResources, namespace: &str, how: &How<'_>) -> BuildResult {
    for at in 0..resources.0.len() {
        let resource = &mut resources.0[at];
        resource.remember();
        let stays = how.unset_only && !resource.object.namespace().is_empty();
        if !resource.id().is_cluster_scoped() && !stays {
            resource.object.set(&["metadata", "namespace"], namespace);
        }
        let mut put = |value: &mut Value| {
            if !how.unset_only || value.as_str().is_none_or(str::is_empty) {
                *value = namespace.into();
            }
        };
        let is_namespace = resource.id().is_cluster_scoped();
        let is_meant = |field: &&BuiltinField| !how.only_these && (is_namespace || field.kind != "Namespace");
        FIELDS.iter().filter(is_meant).for_each(|field| field.for_each_value(&mut resource.object, &mut put));
        how.fields
            .iter()
            .filter(|field| field.path != OWN)
            .for_each(|field| field.for_each_value(&mut resource.object, &mut put));
        accounts(&mut resource.object, how.subjects, &mut put);
        let id = resource.id();
        let same = resources.0.iter().filter(|other| other.object.name() == id.name && other.id().is_same(&id));
        if same.count() > 1 {
            return Err(format!("namespace transformation produces ID conflict: {id}"));
        }
    }
    Ok(())
}

/// Bindings of the account that every namespace has mean the one of this namespace; on request those of all accounts, or of none.
fn accounts(object: &mut Object, subjects: &str, put: &mut dyn FnMut(&mut Value)) {
    if !["RoleBinding", "ClusterRoleBinding"].contains(&object.kind()) || subjects == "none" {
        return;
    }
    let all = subjects == "allServiceAccounts";
    let listed = object.0.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
    for subject in listed.filter(|subject| subject["kind"] == "ServiceAccount" && (all || subject["name"] == "default"))
    {
        put(&mut subject["namespace"]);
    }
}
