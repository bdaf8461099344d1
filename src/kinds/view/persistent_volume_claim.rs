//! PersistentVolumeClaims.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, go_list, text_or};
use super::storage::{access_modes, claim_class};
use super::volumes::data_source;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of claims.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Status"),
    Column::text("Volume"),
    Column::text("Capacity"),
    Column::text("Access Modes"),
    Column::text("StorageClass"),
    Column::text("VolumeAttributesClass"),
    Column::text("Age"),
    Column::wide("VolumeMode"),
];

/// Capacity and access modes; empty for an unbound claim.
fn bound(body: &Value) -> (String, String) {
    if body.text("spec.volumeName").is_empty() {
        return (String::new(), String::new());
    }
    let capacity = body.plain("status.capacity.storage");
    // As in Go, an absent quantity is zero.
    (text_or(&capacity, "0").to_owned(), access_modes(&body.texts("status.accessModes")))
}

fn cells(claim: &Object, now: Time) -> Vec<TableCell> {
    let body = &claim.0;
    let (capacity, modes) = bound(body);
    let phase = if claim.deletion().is_some() { "Terminating" } else { body.text("status.phase") };
    vec![
        claim.name().into(),
        phase.into(),
        body.text("spec.volumeName").into(),
        capacity.into(),
        modes.into(),
        claim_class(body).into(),
        text_or(body.text("spec.volumeAttributesClassName"), "<unset>").into(),
        age_since(claim.created(), now).into(),
        text_or(body.text("spec.volumeMode"), "<unset>").into(),
    ]
}

fn describe(claim: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &claim.0;
    let (capacity, modes) = bound(body);
    out.name_and_namespace(claim);
    out.field(0, "StorageClass", claim_class(body));
    match claim.deletion() {
        Some(_) => {
            out.field(0, "Status", format_args!("Terminating (lasts {})", age_since(claim.deletion(), related.now())))
        }
        None => out.field(0, "Status", body.text("status.phase")),
    }
    out.field(0, "Volume", body.text("spec.volumeName"));
    out.labels_and_annotations(claim);
    out.field(0, "Finalizers", go_list(&claim.finalizers()));
    out.field(0, "Capacity", capacity);
    out.field(0, "Access Modes", modes);
    if body.has("spec.volumeMode") {
        out.field(0, "VolumeMode", body.text("spec.volumeMode"));
    }
    data_source(out, 0, body.value_at("spec.dataSource"));
    out.values(0, "Used By", users(claim, related));
    conditions(out, body.list("status.conditions"));
    events::write_events(claim, related, out);
}

/// The pods that use the claim.
fn users(claim: &Object, related: &dyn RelatedObjects) -> Vec<String> {
    let mounts = |pod: &Object| {
        let volumes = pod.0.list("spec.volumes").iter();
        let own = claim.controller().is_some_and(|owner| owner.kind == "Pod" && owner.uid == pod.uid());
        own || volumes.map(|volume| volume.text("persistentVolumeClaim.claimName")).any(|name| name == claim.name())
    };
    let pods = related.list("pods", claim.namespace());
    let mut names: Vec<String> = pods.iter().filter(|pod| mounts(pod)).map(|pod| pod.name().to_owned()).collect();
    names.sort_unstable();
    names
}

fn conditions(out: &mut Describe, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    out.heading(0, "Conditions");
    out.line(1, "Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage");
    out.line(1, "----\t------\t-----------------\t------------------\t------\t-------");
    for known in conditions {
        let cells = [
            known.text("type"),
            known.text("status"),
            &rfc1123(known.time("lastProbeTime")),
            &rfc1123(known.time("lastTransitionTime")),
            known.text("reason"),
            known.text("message"),
        ];
        out.line(1, cells.join(" \t"));
    }
}
