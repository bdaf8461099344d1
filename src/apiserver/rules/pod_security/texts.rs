//! Parts of checks and messages: containers of a pod, lists of names, singular and plural.

use super::{CheckedPod, Violation};
use serde_json::Value;
use std::collections::BTreeSet;

/// Names and values in the order of messages.
pub type SortedTexts = BTreeSet<String>;

impl<'a> CheckedPod<'a> {
    /// All containers, in the order of messages.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> {
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| items(&self.spec[list]))
    }

    /// The names of the containers for which a condition holds.
    pub fn containers_where(&self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<String> {
        let bad = self.containers().filter(|container| is_bad(container));
        bad.map(|container| text(&container["name"]).to_owned()).collect()
    }

    /// The settings of the pod, then those of the containers, with a given path; a check says which are bad. Returns `pod`
    /// and `container "a"`, joined by `and`; nothing without a bad one.
    pub fn setters(&self, field: &str, mut is_bad: impl FnMut(&'a Value) -> bool) -> Option<String> {
        let security = &self.spec["securityContext"];
        let is_pod_bad = !security[field].is_null() && is_bad(&security[field]);
        let containers = self.containers_where(|container| {
            let setting = &container["securityContext"][field];
            !setting.is_null() && is_bad(setting)
        });
        let mut setters: Vec<String> = is_pod_bad.then(|| "pod".to_owned()).into_iter().collect();
        if !containers.is_empty() {
            setters.push(name_containers(&containers));
        }
        (!setters.is_empty()).then(|| setters.join(" and "))
    }

    /// Whether the pod asks for a user namespace, for which some checks are relaxed.
    pub fn has_user_namespace(&self) -> bool {
        self.spec["hostUsers"] == false
    }

    /// Whether it is a pod for Windows, for which some checks do not count.
    pub fn is_for_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

/// A violation with its detail.
pub fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason, detail: detail.into() })
}

/// The items of a list; none of anything else.
pub fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text; an empty one of anything else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `container "a"` or `containers "a", "b"`.
pub fn name_containers(names: &[String]) -> String {
    format!("{} {}", pluralize("container", "containers", names.len()), quote_all(names))
}

/// `"a", "b"`. Nothing is escaped.
pub fn quote_all<'t>(texts: impl IntoIterator<Item = &'t String>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("\"{text}\"")).collect();
    quoted.join(", ")
}

/// The singular for one thing, else the plural.
pub fn pluralize<'t>(singular: &'t str, plural: &'t str, count: usize) -> &'t str {
    if count == 1 { singular } else { plural }
}
