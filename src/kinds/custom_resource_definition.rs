//! CustomResourceDefinition (apiextensions.k8s.io/v1).

use super::{Errors, Kind, Path, Typed, omit};
use crate::object::Object;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["crd", "crds"],
    namespaced: false,
    categories: &["api-extensions"],
    unconditional_update: false,
    ..Kind::of::<CustomResourceDefinition>(
        "customresourcedefinitions.apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    )
};

impl Typed for CustomResourceDefinition {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let names = &mut self.spec.names;
        omit::empty(&mut names.singular);
        omit::empty(&mut names.list_kind);
        omit::empty(&mut names.short_names);
        omit::empty(&mut names.categories);
        names.singular.get_or_insert_with(|| names.kind.to_lowercase());
        names.list_kind.get_or_insert_with(|| format!("{}List", names.kind));
        omit::empty(&mut self.spec.preserve_unknown_fields);
        let conversion = self.spec.conversion.get_or_insert_default();
        if conversion.strategy.is_empty() {
            conversion.strategy = "None".to_owned();
        }
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            let versions = new.items(&["spec", "versions"]).iter();
            let stored = versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone());
            let stored: Vec<_> = stored.collect();
            new.set(&["status"], json!({"acceptedNames": {"kind": "", "plural": ""}, "storedVersions": stored}));
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut Errors) {
        let spec = &self.spec;
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name != format!("{}.{}", spec.names.plural, spec.group) {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            errors.invalid(&Path::root("metadata").child("name"), name, detail);
        }
        let path = Path::root("spec");
        match spec.scope.as_str() {
            "" => errors.required(&path.child("scope"), ""),
            "Cluster" | "Namespaced" => {}
            other => errors.unsupported(&path.child("scope"), other, &["Cluster", "Namespaced"]),
        }
        if spec.versions.iter().filter(|version| version.storage).count() != 1 {
            let detail = "must have exactly one version marked as storage version";
            errors.invalid(&path.child("versions"), json!(spec.versions), detail);
        }
        for (index, version) in spec.versions.iter().enumerate() {
            if version.schema.as_ref().is_none_or(|schema| schema.open_api_v3_schema.is_none()) {
                let path = path.child("versions").index(index).child("schema").child("openAPIV3Schema");
                errors.required(&path, "");
            }
        }
        if let Some(old) = old {
            errors.immutable(&path.child("group"), &spec.group, &old.spec.group);
            errors.immutable(&path.child("scope"), &spec.scope, &old.spec.scope);
            errors.immutable(&path.child("names").child("kind"), &spec.names.kind, &old.spec.names.kind);
            errors.immutable(&path.child("names").child("plural"), &spec.names.plural, &old.spec.names.plural);
        }
    }
}
