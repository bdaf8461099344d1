//! `namespace`: sets the namespace of all namespaced objects.

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

/// The field that [`set`] changes first.
const OWN: &str = "metadata/namespace";

/// Options for setting a namespace.
#[derive(Default)]
pub struct NamespaceOptions<'a> {
    /// Additional fields with a namespace.
    pub fields: &'a [FieldSpec],
    /// Whether kustomize's built-in fields are left unchanged.
    pub only_these: bool,
    /// Whether objects that have a namespace keep it.
    pub unset_only: bool,
    /// The ServiceAccount subjects of bindings that get this namespace: `allServiceAccounts`,
    /// `none`, or by default the account `default`.
    pub subjects: &'a str,
}

/// Sets the namespace of all namespaced objects, and renames Namespace objects to it.
pub fn set(resources: &mut BuildResources, namespace: &str, options: &NamespaceOptions<'_>) -> BuildResult {
    for at in 0..resources.0.len() {
        let resource = &mut resources.0[at];
        resource.record_id();
        let keeps_namespace = options.unset_only && !resource.object.namespace().is_empty();
        if !resource.id().is_cluster_scoped() && !keeps_namespace {
            resource.object.set(&["metadata", "namespace"], namespace);
        }
        let mut put = |value: &mut Value| {
            if !options.unset_only || value.as_str().is_none_or(str::is_empty) {
                *value = namespace.into();
            }
        };
        let is_namespace = resource.id().is_cluster_scoped();
        let applies = |field: &&BuiltinField| !options.only_these && (is_namespace || field.kind != "Namespace");
        FIELDS.iter().filter(applies).for_each(|field| field.for_each_value(&mut resource.object, &mut put));
        options
            .fields
            .iter()
            .filter(|field| field.path != OWN)
            .for_each(|field| field.for_each_value(&mut resource.object, &mut put));
        set_subject_namespaces(&mut resource.object, options.subjects, &mut put);
        let id = resource.id();
        let same = resources.0.iter().filter(|other| other.object.name() == id.name && other.id().is_same(&id));
        if same.count() > 1 {
            return Err(format!("namespace transformation produces ID conflict: {id}"));
        }
    }
    Ok(())
}

/// Sets the namespace of a binding's ServiceAccount subjects, as selected by `subjects`.
fn set_subject_namespaces(object: &mut Object, subjects: &str, put: &mut dyn FnMut(&mut Value)) {
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
