//! Namespace (core/v1).

use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed, merge_rules, metadata, omit};
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

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let finalizers = self.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
        let path = FieldPath::root("spec").child("finalizers");
        finalizers.iter().for_each(|name| metadata::check_finalizer(name, &path, errors));
        let mut wrong = pod_security(self);
        // A namespace with labels that were already invalid may be changed in other ways.
        if old.is_none_or(|old| pod_security(old).0.is_empty()) {
            errors.0.append(&mut wrong.0);
        }
    }
}

/// Errors in the labels of Pod Security admission (`k8s.io/pod-security-admission/api`).
fn pod_security(namespace: &Namespace) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("metadata").child("labels");
    let labels = namespace.metadata.labels.iter().flatten();
    for (key, value) in labels {
        let Some(mode) = key.strip_prefix("pod-security.kubernetes.io/") else { continue };
        match mode.strip_suffix("-version").unwrap_or(mode) {
            "enforce" | "audit" | "warn" => {}
            _ => continue,
        }
        if mode.ends_with("-version") {
            let minor = value.strip_prefix("v1.").filter(|text| *text == "0" || !text.starts_with('0'));
            let numbered = minor.is_some_and(|text| text.parse::<u16>().is_ok());
            if value != "latest" && !numbered {
                errors.invalid(&path.key(key), value.as_str(), "must be \"latest\" or \"v1.x\"");
            }
        } else if !["privileged", "baseline", "restricted"].contains(&value.as_str()) {
            let detail = "must be one of privileged, baseline, restricted";
            errors.invalid(&path.key(key), value.as_str(), detail);
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::typed;

    fn wrong(patch: Value) -> Vec<String> {
        let mut body = json!({"metadata": {"name": "a"}});
        json_patch::merge(&mut body, &patch);
        let body = typed::normalize::<Namespace>(&body, &mut |_| {}).unwrap();
        typed::validate::<Namespace>(&Object(body), None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn pod_security_labels_are_checked() {
        let label = |name: &str, value: &str| json!({"metadata": {"labels": {format!("pod-security.kubernetes.io/{name}"): value}}});
        let good = [
            ("enforce", "baseline"),
            ("audit-version", "latest"),
            ("warn-version", "v1.30"),
            ("enforce-version", "v1.0"),
            ("other", "odd"),
        ];
        for (name, value) in good {
            assert_eq!(wrong(label(name, value)), Vec::<String>::new(), "{name} {value}");
        }
        let bad = [
            ("enforce", "odd"),
            ("audit", ""),
            ("warn", "Baseline"),
            ("warn-version", "v2"),
            ("audit-version", "v1.030"),
            ("enforce-version", "1.30"),
        ];
        for (name, value) in bad {
            let field = format!("metadata.labels[pod-security.kubernetes.io/{name}]");
            assert_eq!(wrong(label(name, value)), [field], "{name} {value}");
        }
    }
}
