//! Identity of a StatefulSet's pods: names, labels, host names and claims.

use crate::controllers::controller_ref::Owner;
use crate::controllers::pods::from_template;
use crate::controllers::revisions::{self, REVISION_HASH};
use crate::object::Object;
use crate::world::Row;
use serde_json::{Value, json};

/// Label on a pod with its name.
pub(super) const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// The ordinal in a pod's name, if the name belongs to this set.
pub(super) fn ordinal(set: &Row, pod: &str) -> Option<i64> {
    let number = pod.strip_prefix(&*set.key.name)?.strip_prefix('-')?;
    number.parse::<u32>().ok().filter(|ordinal| ordinal.to_string() == number).map(i64::from)
}

/// The pod of an ordinal, from a revision's template.
pub(super) fn pod(owner: &Owner, set: &Object, revision: &Object, ordinal: i64) -> Object {
    let mut pod = from_template(owner, &revisions::template(revision));
    let name = format!("{}-{ordinal}", owner.row.key.name);
    pod.set(&["metadata", "name"], name.as_str());
    set_labels(&mut pod, &name, ordinal);
    pod.set(&["metadata", "labels", REVISION_HASH], revision.name());
    pod.set(&["spec", "hostname"], name);
    if let Some(service) = set.text(&["spec", "serviceName"]).filter(|service| !service.is_empty()) {
        pod.set(&["spec", "subdomain"], service);
    }
    let templates = set.items(&["spec", "volumeClaimTemplates"]);
    if !templates.is_empty() {
        let names: Vec<&Value> = templates.iter().map(|template| &template["metadata"]["name"]).collect();
        let volumes = pod.items(&["spec", "volumes"]).iter().filter(|volume| !names.contains(&&volume["name"]));
        let mut volumes: Vec<Value> = volumes.cloned().collect();
        volumes.extend(names.into_iter().map(
            |name| json!({ "name": name, "persistentVolumeClaim": { "claimName": claim_name(owner, name, ordinal) } }),
        ));
        pod.set(&["spec", "volumes"], volumes);
    }
    pod
}

/// Sets the labels with a pod's name and ordinal.
pub(super) fn set_labels(pod: &mut Object, name: &str, ordinal: i64) {
    pod.set(&["metadata", "labels", POD_NAME], name);
    pod.set(&["metadata", "labels", "apps.kubernetes.io/pod-index"], ordinal.to_string());
}

fn claim_name(owner: &Owner, template: &Value, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", template.as_str().unwrap_or_default(), owner.row.key.name)
}

/// Returns the names of an ordinal's claims.
pub(super) fn claim_names(owner: &Owner, set: &Object, ordinal: i64) -> Vec<String> {
    let templates = set.items(&["spec", "volumeClaimTemplates"]).iter();
    templates.map(|template| claim_name(owner, &template["metadata"]["name"], ordinal)).collect()
}

/// The claims of an ordinal. They outlive their pod; with `whenDeleted: Delete` they are deleted with the set
/// (KEP-1847).
pub(super) fn claims(owner: &Owner, set: &Object, ordinal: i64) -> Vec<Object> {
    let go_along = set.text(&["spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"]) == Some("Delete");
    let claim = |template: &Value| {
        let name = claim_name(owner, &template["metadata"]["name"], ordinal);
        let mut claim = Object(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": template["metadata"],
            "spec": template["spec"],
        }));
        claim.set(&["metadata", "name"], name);
        claim.set(&["metadata", "namespace"], &*owner.row.key.namespace);
        for (key, value) in set.pairs(&["spec", "selector", "matchLabels"]) {
            claim.set(&["metadata", "labels", key], value);
        }
        if go_along {
            claim.set(&["metadata", "ownerReferences"], json!([owner.reference().to_value()]));
        }
        claim
    };
    set.items(&["spec", "volumeClaimTemplates"]).iter().map(claim).collect()
}
