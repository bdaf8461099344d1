//! PriorityClass (scheduling.k8s.io/v1).

use super::shared::omit;
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::scheduling::v1::PriorityClass;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["pc"],
    namespaced: false,
    status: false,
    ..Kind::new::<PriorityClass>(
        "priorityclasses.scheduling.k8s.io",
        "v1",
        "PriorityClass",
        &view::priority_class::VIEW,
    )
};

/// Maximum value of user-defined classes.
pub const HIGHEST_OF_USERS: i32 = 1_000_000_000;
/// Pods of this priority and above are the system's (Kubernetes: SystemCriticalPriority).
pub const SYSTEM_CRITICAL: i64 = 2_000_000_000;
/// The built-in system classes and their values.
pub const OF_SYSTEM: &[(&str, i32)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

impl Typed for PriorityClass {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.description);
        omit::empty(&mut self.global_default);
        self.value.get_or_insert(0);
        self.preemption_policy.get_or_insert_with(|| "PreemptLowerPriority".to_owned());
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        if let Some(old) = old {
            if self.value != old.value {
                errors.forbidden(&FieldPath::root("value"), "may not be changed in an update.");
            }
            errors.immutable(&FieldPath::root("preemptionPolicy"), &self.preemption_policy, &old.preemption_policy);
            return;
        }
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let value = self.value.unwrap_or_default();
        if name.starts_with("system-") {
            let known = OF_SYSTEM.iter().find(|(known, _)| *known == name);
            let problem = match known {
                None => format!("{name} is not a known system priority class"),
                Some((_, right)) if *right != value => format!("value of {name} PriorityClass must be {right}"),
                Some(_) => return,
            };
            let reserved = "priority class names with 'system-' prefix are reserved for system use only.";
            errors.forbidden(&FieldPath::root("metadata").child("name"), &format!("{reserved} error: {problem}"));
        } else if value > HIGHEST_OF_USERS {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
            errors.forbidden(&FieldPath::root("value"), &detail);
        }
        let (path, policies) = (FieldPath::root("preemptionPolicy"), ["PreemptLowerPriority", "Never"]);
        match self.preemption_policy.as_deref() {
            Some("") => errors.required(&path, ""),
            Some(other) if !policies.contains(&other) => errors.unsupported_as_listed(&path, other, &policies),
            _ => {}
        }
    }
}
