//! Rows of pods that are made by changes of a text: no object is decoded, copied and written out for them.
//!
//! A pod that is created, bound and started in one tick is written three times. Each function here returns the row that the changed object
//! would have, or `None` where the object has to be decoded. The tests compare both rows.
//!
//! Never: checks whether a change is allowed. Start reading at [`Row::bound`].

use super::row::{IndexFields, Row};
use super::row_body::{RowBody, edit_of};
use crate::object::edit::{self, TextEdit, ValueChange};
use crate::object::{Key, Object, Str, sparse};
use serde_json::Value;
use std::collections::BTreeMap;

impl Row {
    /// Whether it is this version of an object.
    pub fn is_version(&self, uid: &str, revision: u64) -> bool {
        &*self.uid == uid && self.revision == revision
    }

    /// Makes the row of a pod that these edits of its text bind to a node; `None` when the text has to be decoded first.
    pub fn bound(&self, node: &Str, labels: &[(&str, String)], edits: &[TextEdit], revision: u64) -> Option<Row> {
        let text = self.body.edited(&[edits, &[edit_of(revision)]].concat())?;
        let mut row = self.with_body(RowBody::Text(text), revision);
        if !labels.is_empty() {
            let mut all: BTreeMap<Str, Str> = row.labels.iter().cloned().collect();
            all.extend(labels.iter().map(|(label, value)| (Str::from(*label), Str::from(value.as_str()))));
            row.labels = all.into_iter().collect();
        }
        let IndexFields::Pod(pod) = &mut row.fields else { return None };
        (pod.node, pod.pod_spec, pod.nominated) = (Some(node.clone()), None, None);
        Some(row)
    }

    /// Makes the row of a new pod whose name, uid and creation time alone differ from this pod's. `text` is the text of this pod.
    pub fn copied(&self, pod: &Object, text: &str, revision: u64) -> Option<Row> {
        // Names of claims may contain that of the pod.
        self.pod().filter(|fields| fields.claims.is_empty())?;
        let metadata = ["creationTimestamp", "name", "uid"];
        let edits = metadata.map(|field| TextEdit::set(&["metadata", field], pod.0["metadata"][field].clone()));
        let text = edit::text(text, &[&edits[..], &[edit_of(revision)]].concat())?;
        let mut row = self.with_body(RowBody::Text(text.into()), revision);
        row.key = Key::new(self.key.resource, &self.key.namespace, pod.name());
        (row.uid, row.created) = (pod.uid().into(), pod.created());
        Some(row)
    }

    /// Makes the row of a pod with another status, and with a change outside of it that no field of a row depends on. `None` when the
    /// status is unchanged.
    pub fn with_status(&self, status: &Value, other: Option<&TextEdit>, revision: u64) -> Option<Row> {
        // Claims of devices are in the spec or in the status.
        self.pod().filter(|fields| !fields.has_devices)?;
        let before = self.body.text()?;
        let after = serde_json::to_string(status).ok()?;
        if sparse::read_field(&before, "status").ok()? == Some(&after) {
            return None;
        }
        let mut edits = vec![TextEdit::new(&["status"], ValueChange::SetText(after)), edit_of(revision)];
        edits.extend(other.cloned());
        let text = edit::text(&before, &edits)?;
        let mut row = self.with_body(RowBody::Text(text.into()), revision);
        let IndexFields::Pod(fields) = &mut row.fields else { return None };
        fields.set_status(status);
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use serde_json::json;

    #[test]
    fn row_that_is_bound_in_its_text_is_the_row_of_the_bound_pod() {
        let pod = |name: &str, spec: Value, status: Value| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status,
                "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "3", "labels": {"u": "1", "z": "2"}},
            })
        };
        let container = json!({"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 8080}],
            "resources": {"requests": {"cpu": "100m"}}});
        let near = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"u": "1"}}}]}});
        let conditions = json!([{"type": "PodScheduled", "status": "False"}, {"type": "Ready", "status": "True"}]);
        let pods = [
            pod("plain", json!({"containers": [container]}), json!({"phase": "Pending"})),
            pod("near", json!({"affinity": near, "containers": [container], "priority": 7}), json!({})),
            pod("promised", json!({"containers": []}), json!({"nominatedNodeName": "a", "conditions": conditions})),
        ];
        let labels: [&[(&'static str, String)]; 2] = [&[], &[("zone", "a".into()), ("u", "2".into())]];
        for (pod, labels) in pods.iter().flat_map(|pod| labels.map(|labels| (pod, labels))) {
            let key = Key::new(Resource("pods"), "default", pod["metadata"]["name"].as_str().unwrap());
            let scheduled = json!({"type": "PodScheduled", "status": "True"});
            let mut edits = vec![
                TextEdit::set(&["spec", "nodeName"], "node"),
                TextEdit::new(&["status", "conditions"], ValueChange::Condition(scheduled)),
                TextEdit::new(&["status", "nominatedNodeName"], ValueChange::Unset),
            ];
            edits.extend(
                labels.iter().map(|(label, value)| TextEdit::set(&["metadata", "labels", label], value.as_str())),
            );
            let before = Row::from_text(key.clone(), pod.to_string().into());
            let bound = before.bound(&"node".into(), labels, &edits, 4).unwrap();
            let mut whole = Object(pod.clone());
            edit::object(&mut whole, &edits);
            whole.set(&["metadata", "resourceVersion"], "4");
            let whole = Row::new(key, whole);
            for revision in [4, 17] {
                assert_eq!(bound.text_at(revision), whole.text_at(revision));
            }
            assert_eq!(fields(&bound), fields(&whole));
        }
    }

    fn fields(row: &Row) -> String {
        let metadata = (&row.key, &row.uid, row.revision, row.generation, row.created, row.deletion);
        format!("{metadata:?} {:?}", (&row.labels, &row.owners, &row.finalizers, row.pod()))
    }

    fn made_pod(name: &str, spec: Value) -> Object {
        Object(json!({
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "generateName": "w-", "namespace": "default", "uid": name, "resourceVersion": "3",
                "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "w"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "r", "controller": true}]},
        }))
    }

    #[test]
    fn copied_row_is_the_row_of_the_other_pod() {
        let spec = json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}], "priority": 7});
        let (first, mut second) = (made_pod("w-1", spec.clone()), made_pod("w-2", spec));
        second.set(&["metadata", "creationTimestamp"], "2026-01-01T00:00:09Z");
        let key = |name: &str| Key::new(Resource("pods"), "default", name);
        let row = Row::new(key("w-1"), first.clone());
        let copied = row.copied(&second, &first.0.to_string(), 4).unwrap();
        second.set(&["metadata", "resourceVersion"], "4");
        let whole = Row::new(key("w-2"), second);
        assert_eq!(copied.text_at(4), whole.text_at(4));
        assert_eq!(fields(&copied), fields(&whole));
        let own_claim =
            json!({"containers": [], "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]});
        let first = made_pod("w-1", own_claim);
        let row = Row::new(key("w-1"), first.clone());
        assert!(
            row.copied(&first, &first.0.to_string(), 4).is_none(),
            "the name of the claim contains that of the pod"
        );
    }

    #[test]
    fn row_with_another_status_is_the_row_of_the_changed_pod() {
        let key = Key::new(Resource("pods"), "default", "w-1");
        let spec = json!({"containers": [{"name": "c", "image": "x"}], "nodeName": "n"});
        let before = made_pod("w-1", spec);
        let ready =
            |status: &str| json!([{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-02T00:00:00Z"}]);
        let statuses = [
            json!({"phase": "Running", "podIP": "127.0.0.9", "startTime": "2026-01-01T00:00:00Z", "conditions": ready("True"),
                "containerStatuses": [{"name": "c", "restartCount": 3}]}),
            json!({"phase": "Failed", "conditions": ready("False"), "nominatedNodeName": "m"}),
            json!({}),
        ];
        let mut row = Row::from_text(key.clone(), before.0.to_string().into());
        for (revision, status) in (4..).zip(&statuses) {
            let ids = TextEdit::set(&["metadata", "annotations", "ids"], "c=1");
            row = row.with_status(status, Some(&ids), revision).unwrap();
            let mut whole = before.clone();
            whole.set(&["metadata", "resourceVersion"], revision.to_string());
            whole.set(&["status"], status.clone());
            edit::object(&mut whole, std::slice::from_ref(&ids));
            let whole = Row::new(key.clone(), whole);
            assert_eq!(row.text_at(revision), whole.text_at(revision));
            assert_eq!(fields(&row), fields(&whole));
            assert!(row.with_status(status, Some(&ids), 9).is_none(), "nothing changes");
        }
        let with_devices =
            Row::from_text(key, made_pod("w-1", json!({"resourceClaims": [{"name": "d"}]})).0.to_string().into());
        assert!(with_devices.with_status(&json!({"phase": "Running"}), None, 4).is_none());
    }
}
