//! Sets of field paths, such as the fields of one manager, and their operations.
//!
//! Kubernetes stores a set as `FieldsV1`, where each step of a path is a text: `f:name` for a field, `k:{"name":"web"}`
//! for an item of a list by its keys, `v:"x"` for an item of a set. A `.` means that the path itself is in the set, and
//! not only paths below it. Never: interprets fields. (sigs.k8s.io/structured-merge-diff: fieldpath)

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The paths below a path, and whether the path itself is in the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the path itself is in the set.
    pub member: bool,
    below: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// A set with only the path itself.
    pub fn leaf() -> FieldSet {
        FieldSet { member: true, below: BTreeMap::new() }
    }

    /// Includes or excludes the path itself.
    pub fn with_member(self, member: bool) -> FieldSet {
        FieldSet { member, ..self }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// Returns the fields below one step.
    pub fn child(&self, step: &str) -> Option<&FieldSet> {
        self.below.get(step)
    }

    /// Each step with the paths below it.
    pub fn steps(&self) -> impl Iterator<Item = (&str, &FieldSet)> {
        self.below.iter().map(|(step, set)| (step.as_str(), set))
    }

    /// Whether a path is in the set.
    pub fn has(&self, path: &[&str]) -> bool {
        path.iter().try_fold(self, |set, step| set.child(step)).is_some_and(|set| set.member)
    }

    /// Sets the paths below a step, unless they are empty.
    pub fn put(&mut self, step: impl Into<String>, set: FieldSet) {
        if !set.is_empty() {
            self.below.insert(step.into(), set);
        }
    }

    /// Removes some steps with all paths below them.
    pub fn excluding(mut self, steps: &[&str]) -> FieldSet {
        for step in steps {
            self.below.remove(*step);
        }
        self
    }

    /// Removes and returns a step with all paths below it.
    pub fn remove(&mut self, step: &str) -> FieldSet {
        self.below.remove(step).unwrap_or_default()
    }

    /// Keeps only one step with all paths below it.
    pub fn restricted_to(mut self, step: &str) -> FieldSet {
        let mut only = FieldSet::default();
        only.put(step, self.remove(step));
        only
    }

    /// Returns the union.
    pub fn union(mut self, other: &FieldSet) -> FieldSet {
        self.member |= other.member;
        for (step, theirs) in &other.below {
            let own = self.below.remove(step).unwrap_or_default();
            self.below.insert(step.clone(), own.union(theirs));
        }
        self
    }

    /// Returns the fields that are only in this set.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// Removes the paths of another set.
    pub fn subtract(&mut self, other: &FieldSet) {
        self.member &= !other.member;
        for (step, theirs) in &other.below {
            if let Some(own) = self.below.get_mut(step) {
                own.subtract(theirs);
                if own.is_empty() {
                    self.below.remove(step);
                }
            }
        }
    }

    /// Returns the intersection.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet { member: self.member && other.member, below: BTreeMap::new() };
        for (step, own) in &self.below {
            if let Some(theirs) = other.child(step) {
                both.put(step.as_str(), own.intersection(theirs));
            }
        }
        both
    }

    /// Converts to Kubernetes' `FieldsV1`.
    pub fn into_json(self) -> Value {
        let inner = |set: FieldSet| {
            let is_both = set.member && !set.below.is_empty();
            let mut inner = set.into_json();
            if is_both {
                inner["."] = Value::Object(Map::new());
            }
            inner
        };
        Value::Object(self.below.into_iter().map(|(step, set)| (step, inner(set))).collect())
    }

    /// Reads the form of [`FieldSet::into_json`]; `None` when it is malformed.
    pub fn from_json(json: &Value) -> Option<FieldSet> {
        let mut set = FieldSet::default();
        for (step, inner) in json.as_object()? {
            let known = ["f:", "k:", "v:", "i:"].iter().any(|mark| step.starts_with(mark));
            if step != "." && !known {
                return None;
            }
            if step == "." {
                continue;
            }
            let mut below = FieldSet::from_json(inner)?;
            let inner = inner.as_object()?;
            below.member = inner.is_empty() || inner.contains_key(".");
            set.put(step.as_str(), below);
        }
        Some(set)
    }

    /// Its paths for messages, such as `.spec.containers[name="web"].image`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(&mut String::new(), &mut paths);
        paths
    }

    /// Adds the members of this level, then those below each (structured-merge-diff: `Set.Iterate`).
    fn collect(&self, path: &mut String, paths: &mut Vec<String>) {
        for (step, _) in self.below.iter().filter(|(_, set)| set.member) {
            paths.push(format!("{path}{}", step_text(step)));
        }
        for (step, set) in self.below.iter().filter(|(_, set)| !set.below.is_empty()) {
            let length = path.len();
            path.push_str(&step_text(step));
            set.collect(path, paths);
            path.truncate(length);
        }
    }
}

/// Formats a step for messages.
pub fn step_text(step: &str) -> String {
    let Some((mark, rest)) = step.split_once(':') else { return step.to_owned() };
    match mark {
        "f" => format!(".{rest}"),
        "v" => format!("[={rest}]"),
        "i" => format!("[{rest}]"),
        _ => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(json: Value) -> FieldSet {
        FieldSet::from_json(&json).unwrap()
    }

    #[test]
    fn sets_are_read_written_and_formatted() {
        let json = json!({"f:data": {".": {}, "f:a": {}}, "f:spec": {"f:ports": {
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}, "f:set": {"v:\"x\"": {}, "i:3": {}}}});
        let fields = set(json.clone());
        assert_eq!(fields.clone().into_json(), json);
        let expected = [
            ".data",
            ".data.a",
            ".spec.ports[containerPort=80,protocol=\"TCP\"]",
            ".spec.ports[containerPort=80,protocol=\"TCP\"].name",
            ".spec.set[3]",
            ".spec.set[=\"x\"]",
        ];
        assert_eq!(fields.paths(), expected);
        assert!(fields.has(&["f:data", "f:a"]) && !fields.has(&["f:spec"]) && !fields.has(&["f:spec", "f:x"]));
        for wrong in [json!([]), json!({"data": {}}), json!({"f:a": 1}), json!({"f:a": {"b": {}}}), Value::Null] {
            assert_eq!(FieldSet::from_json(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn set_operations_combine_paths() {
        let one = || set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}));
        let other = set(json!({"f:a": {"f:b": {}, "f:e": {}}, "f:c": {}}));
        let both = json!({"f:a": {".": {}, "f:b": {}, "f:e": {}}, "f:c": {".": {}, "f:d": {}}});
        assert_eq!(one().union(&other).into_json(), both);
        assert_eq!(one().difference(&other).into_json(), json!({"f:a": {}, "f:c": {"f:d": {}}}));
        assert_eq!(one().intersection(&other).into_json(), json!({"f:a": {"f:b": {}}}));
        assert_eq!(one().excluding(&["f:a"]).into_json(), json!({"f:c": {"f:d": {}}}));
        assert!(one().difference(&one()).is_empty());
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        let leaf = any::<bool>().prop_map(|member| FieldSet { member, ..FieldSet::default() });
        let any = leaf.prop_recursive(4, 24, 4, |inner| {
            let step = prop::sample::select(vec!["f:a", "f:b", "k:{\"name\":\"x\"}", "v:1"]);
            (any::<bool>(), prop::collection::vec((step, inner), 0..4)).prop_map(|(member, inner)| {
                let mut set = FieldSet { member, ..FieldSet::default() };
                inner.into_iter().for_each(|(step, below)| set.put(step, below));
                set
            })
        });
        any.prop_map(|set| FieldSet { member: false, ..set })
    }

    proptest! {
        #[test]
        fn sets_obey_the_laws_of_sets(a in any_set(), b in any_set()) {
            prop_assert_eq!(a.clone().union(&b), b.clone().union(&a));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(FieldSet::from_json(&a.clone().into_json()), Some(a));
        }
    }
}
