//! An object's JSON body and the metadata common to all kinds.

use super::{Time, condition};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

/// Annotation of a mirror pod, which represents a static pod in the API: the hash of the pod's manifest, which its node
/// uses as uid.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation with the manifest that kubectl applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An API object, stored as its complete JSON body. Typed forms are decoded from it where needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Object(pub Value);

/// A reference to an owner, `metadata.ownerReferences[]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRef {
    /// Group and version of the owner, such as `apps/v1`.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Its name, in the dependent's namespace or cluster-scoped.
    pub name: String,
    /// The owner's uid, which identifies it.
    pub uid: String,
    /// Whether this owner is the managing controller.
    pub controller: bool,
    /// Whether the owner waits for this dependent in foreground deletion.
    pub block_owner_deletion: bool,
}

impl OwnerRef {
    /// Creates the reference to a managing controller.
    pub fn controller(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerRef {
        OwnerRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            controller: true,
            block_owner_deletion: true,
        }
    }

    /// Its JSON in `metadata.ownerReferences`.
    pub fn to_value(&self) -> Value {
        let mut body = json!({
            "apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid,
        });
        if self.controller {
            body["controller"] = true.into();
        }
        if self.block_owner_deletion {
            body["blockOwnerDeletion"] = true.into();
        }
        body
    }

    fn from_value(value: &Value) -> OwnerRef {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        OwnerRef {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: value["controller"].as_bool().unwrap_or(false),
            block_owner_deletion: value["blockOwnerDeletion"].as_bool().unwrap_or(false),
        }
    }
}

/// A text value at a path of keys; replaces any existing value.
struct TextAtPath<'a> {
    value: &'a Value,
    path: &'a [&'a str],
    text: &'a str,
}

impl Serialize for TextAtPath<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Some((first, path)) = self.path.split_first() else { return to.serialize_str(self.text) };
        let fields = self.value.as_object().into_iter().flatten();
        let mut map = to.serialize_map(None)?;
        let before = fields.clone().filter(|(name, _)| name.as_str() < *first);
        let mut after = fields.filter(|(name, _)| name.as_str() > *first);
        before.into_iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.serialize_entry(first, &TextAtPath { value: &self.value[*first], path, text: self.text })?;
        after.try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

impl Object {
    /// The text at a path of keys.
    pub fn text(&self, path: &[&str]) -> Option<&str> {
        self.value_at(path)?.as_str()
    }

    /// The value at a path of keys.
    pub fn value_at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.0, |value, name| value.get(name))
    }

    /// An integer at a path of keys.
    pub fn int(&self, path: &[&str]) -> Option<i64> {
        self.value_at(path)?.as_i64()
    }

    /// Sets the value at a path of keys, creates missing maps and replaces any other value on the way.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        let mut at = &mut self.0;
        for name in path {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[*name];
        }
        *at = value.into();
    }

    /// Removes the value at a path of keys. Returns whether there was one.
    pub fn unset(&mut self, path: &[&str]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut at = &mut self.0;
        for name in parents {
            match at.get_mut(name) {
                Some(next) => at = next,
                None => return false,
            }
        }
        at.as_object_mut().is_some_and(|map| map.remove(*last).is_some())
    }

    /// Keeps some items of the list at a path of keys, and removes a list without any.
    pub fn retain_items(&mut self, path: &[&str], keep: impl Fn(&Value) -> bool) {
        let kept: Vec<Value> = self.items(path).iter().filter(|item| keep(item)).cloned().collect();
        if kept.is_empty() {
            self.unset(path);
        } else {
            self.set(path, kept);
        }
    }

    /// `apiVersion`; empty when absent.
    pub fn api_version(&self) -> &str {
        self.text(&["apiVersion"]).unwrap_or_default()
    }

    /// `kind`; empty when absent.
    pub fn kind(&self) -> &str {
        self.text(&["kind"]).unwrap_or_default()
    }

    /// `metadata.name`; empty when absent.
    pub fn name(&self) -> &str {
        self.text(&["metadata", "name"]).unwrap_or_default()
    }

    /// `metadata.namespace`; empty when absent.
    pub fn namespace(&self) -> &str {
        self.text(&["metadata", "namespace"]).unwrap_or_default()
    }

    /// `metadata.uid`; empty when absent.
    pub fn uid(&self) -> &str {
        self.text(&["metadata", "uid"]).unwrap_or_default()
    }

    /// Returns the uid that the pod's node uses: its own, except for the mirror of a static pod, whose node uses the
    /// hash of its manifest.
    pub fn local_uid(&self) -> &str {
        let is_hash = |text: &&str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.annotation(MIRROR).filter(is_hash).unwrap_or_else(|| self.uid())
    }

    /// `metadata.resourceVersion` as the store's revision; 0 when unset or not a number.
    pub fn revision(&self) -> u64 {
        self.text(&["metadata", "resourceVersion"]).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Its stored form: compact text with this `metadata.resourceVersion`, serialized without a copy of the body.
    pub fn text_at(&self, revision: u64) -> String {
        let place = TextAtPath { value: &self.0, path: &["metadata", "resourceVersion"], text: &revision.to_string() };
        serde_json::to_string(&place).unwrap_or_default()
    }

    /// Its status with its names, uid and revision, for a write of the status.
    pub fn status_alone(&self) -> Object {
        self.other_status(self.0["status"].clone())
    }

    /// Another status with this object's names, uid and revision, for a write of the status.
    pub fn other_status(&self, status: Value) -> Object {
        let mut named = self.identity();
        named.set(&["status"], status);
        named
    }

    /// Its kind, names, uid and revision, without anything else.
    pub fn identity(&self) -> Object {
        let part = |name: &str, of: &Value| (name.to_owned(), of[name].clone());
        let names = ["name", "namespace", "uid", "resourceVersion"];
        let metadata: Map<String, Value> = names.iter().map(|name| part(name, &self.0["metadata"])).collect();
        let parts = ["apiVersion", "kind"].iter().map(|name| part(name, &self.0));
        Object(Value::Object(parts.chain([("metadata".to_owned(), metadata.into())]).collect()))
    }

    /// `metadata.generation`; 0 for kinds without one.
    pub fn generation(&self) -> i64 {
        self.int(&["metadata", "generation"]).unwrap_or(0)
    }

    /// `metadata.creationTimestamp`.
    pub fn created(&self) -> Option<Time> {
        self.time(&["metadata", "creationTimestamp"])
    }

    /// `metadata.deletionTimestamp`.
    pub fn deletion(&self) -> Option<Time> {
        self.time(&["metadata", "deletionTimestamp"])
    }

    /// The time at a path of keys.
    pub fn time(&self, path: &[&str]) -> Option<Time> {
        self.text(path)?.parse().ok()
    }

    /// Labels sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs(&["metadata", "labels"])
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.text(&["metadata", "labels", key])
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.text(&["metadata", "annotations", key])
    }

    /// The text entries of a map at a path.
    pub fn pairs(&self, path: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        self.value_at(path)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// `metadata.finalizers`.
    pub fn finalizers(&self) -> Vec<&str> {
        self.items(&["metadata", "finalizers"]).iter().filter_map(Value::as_str).collect()
    }

    /// Whether it has a finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.items(&["metadata", "finalizers"]).iter().any(|known| known == finalizer)
    }

    /// Adds a finalizer, unless it is there.
    pub fn add_finalizer(&mut self, finalizer: &str) {
        if !self.has_finalizer(finalizer) {
            let mut finalizers = self.items(&["metadata", "finalizers"]).to_vec();
            finalizers.push(finalizer.into());
            self.set(&["metadata", "finalizers"], finalizers);
        }
    }

    /// Removes a finalizer, and the list when it was the last one.
    pub fn remove_finalizer(&mut self, finalizer: &str) {
        if self.has_finalizer(finalizer) {
            self.retain_items(&["metadata", "finalizers"], |known| known != finalizer);
        }
    }

    /// Returns the object without a finalizer.
    pub fn without_finalizer(mut self, finalizer: &str) -> Object {
        self.remove_finalizer(finalizer);
        self
    }

    /// The list at a path of keys; empty when absent.
    pub fn items(&self, path: &[&str]) -> &[Value] {
        self.value_at(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The init containers of a pod, then its containers; ephemeral containers are left out.
    pub fn containers(&self) -> impl Iterator<Item = &Value> {
        ["initContainers", "containers"].into_iter().flat_map(|list| self.items(&["spec", list]))
    }

    /// The statuses of a pod's init containers, then those of its containers; ephemeral containers are left out.
    pub fn container_statuses(&self) -> impl Iterator<Item = &Value> {
        ["initContainerStatuses", "containerStatuses"].into_iter().flat_map(|list| self.items(&["status", list]))
    }

    /// The status of a pod's container of any sort, which are named apart.
    pub fn container_status(&self, container: &str) -> Option<&Value> {
        let ephemeral = self.items(&["status", "ephemeralContainerStatuses"]);
        self.container_statuses().chain(ephemeral).find(|status| status["name"] == container)
    }

    /// The condition of a type in `status.conditions`.
    pub fn condition(&self, condition_type: &str) -> Option<&Value> {
        condition::find(self.items(&["status", "conditions"]), condition_type)
    }

    /// Sets a condition as [`condition::set`] does.
    pub fn set_condition(&mut self, new: Value) {
        let mut conditions = self.items(&["status", "conditions"]).to_vec();
        condition::set(&mut conditions, new);
        self.set(&["status", "conditions"], conditions);
    }

    /// The condition of a type if it is True.
    pub fn true_condition(&self, condition_type: &str) -> Option<&Value> {
        self.condition(condition_type).filter(|condition| condition["status"] == "True")
    }

    /// Whether the condition of a type is True.
    pub fn has_condition(&self, condition_type: &str) -> bool {
        self.true_condition(condition_type).is_some()
    }

    /// `metadata.ownerReferences`.
    pub fn owners(&self) -> Vec<OwnerRef> {
        self.items(&["metadata", "ownerReferences"]).iter().map(OwnerRef::from_value).collect()
    }

    /// The managing controller.
    pub fn controller(&self) -> Option<OwnerRef> {
        self.owners().into_iter().find(|owner| owner.controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_at_sets_the_revision() {
        let cases = [
            (json!({"kind": "A", "metadata": {"name": "n", "uid": "u"}, "spec": {}}), "name"),
            (json!({"metadata": {"resourceVersion": "3", "name": "n"}}), "name"),
            (json!({"kind": "A"}), "kind"),
        ];
        for (value, kept) in cases {
            let mut object = Object(value);
            let text = object.text_at(17);
            object.set(&["metadata", "resourceVersion"], "17");
            assert_eq!(text, object.0.to_string());
            assert!(text.contains(kept));
        }
    }
}
