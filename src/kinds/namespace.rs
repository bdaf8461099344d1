//! Namespace (core/v1).

use super::catalogue::{merge_rules, typed};
use super::shared::{metadata, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed};
use crate::object::Object;
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["ns"],
    namespaced: false,
    generation: false,
    name_rule: NameRule::Label,
    selectable: &["status.phase"],
    merge_rules: &merge_rules::WITH_CONDITIONS,
    returns_deleted: true,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<Namespace>("namespaces", "v1", "Namespace", &view::namespace::VIEW)
};

/// Label on every namespace with its name, for selectors.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Typed for Namespace {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let name = self.metadata.name.clone().unwrap_or_default();
        if !name.is_empty() {
            self.metadata.labels.get_or_insert_default().insert(NAME_LABEL.to_owned(), name);
        }
        self.spec.get_or_insert_default();
        let status = self.status.get_or_insert_with(NamespaceStatus::default);
        status.phase.get_or_insert_with(|| "Active".to_owned());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_some() {
            return;
        }
        let mut finalizers = new.items(&["spec", "finalizers"]).to_vec();
        if !finalizers.contains(&Value::from("kubernetes")) {
            finalizers.push("kubernetes".into());
        }
        new.set(&["spec", "finalizers"], finalizers);
        new.set(&["status"], json!({"phase": "Active"}));
        let name = new.name().to_owned();
        new.set(&["metadata", "labels", NAME_LABEL], name);
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let finalizers = self.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
        let path = FieldPath::root("spec").child("finalizers");
        finalizers.iter().for_each(|name| metadata::check_finalizer(name, &path, errors));
    }
}

fn check_status(new: &Namespace, _old: &Namespace, errors: &mut FieldErrors) {
    let phase = new.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let (wanted, detail) = match new.metadata.deletion_timestamp {
        None => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        Some(_) => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    if phase != wanted {
        errors.invalid(&FieldPath::root("status").child("Phase"), phase, detail);
    }
}
