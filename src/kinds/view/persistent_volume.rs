//! PersistentVolumes.

use super::age::age_since;
use super::body::{BodyRead, go_list};
use super::storage::{access_modes, claim_class};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events, volumes};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of volumes.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Capacity"),
    Column::text("Access Modes"),
    Column::text("Reclaim Policy"),
    Column::text("Status"),
    Column::text("Claim"),
    Column::text("StorageClass"),
    Column::text("VolumeAttributesClass"),
    Column::text("Reason"),
    Column::text("Age"),
    Column::wide("VolumeMode"),
];

fn claim(body: &Value) -> String {
    let claim = body.value_at("spec.claimRef");
    if claim.is_null() { String::new() } else { format!("{}/{}", claim.text("namespace"), claim.text("name")) }
}

fn cells(volume: &Object, now: Time) -> Vec<TableCell> {
    let body = &volume.0;
    let phase = if volume.deletion().is_some() { "Terminating" } else { body.text("status.phase") };
    let attributes = body.text("spec.volumeAttributesClassName");
    vec![
        volume.name().into(),
        body.plain("spec.capacity.storage").into(),
        access_modes(&body.texts("spec.accessModes")).into(),
        body.text("spec.persistentVolumeReclaimPolicy").into(),
        phase.into(),
        claim(body).into(),
        claim_class(body).into(),
        super::body::text_or(attributes, "<unset>").into(),
        body.text("status.reason").into(),
        age_since(volume.created(), now).into(),
        super::body::text_or(body.text("spec.volumeMode"), "<unset>").into(),
    ]
}

fn describe(volume: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let (body, spec) = (&volume.0, volume.0.value_at("spec"));
    out.field(0, "Name", volume.name());
    out.labels_and_annotations(volume);
    out.field(0, "Finalizers", go_list(&volume.finalizers()));
    out.field(0, "StorageClass", claim_class(body));
    match volume.deletion() {
        Some(_) => {
            out.field(0, "Status", format_args!("Terminating (lasts {})", age_since(volume.deletion(), related.now())))
        }
        None => out.field(0, "Status", body.text("status.phase")),
    }
    out.field(0, "Claim", claim(body));
    out.field(0, "Reclaim Policy", spec.text("persistentVolumeReclaimPolicy"));
    out.field(0, "Access Modes", access_modes(&spec.texts("accessModes")));
    if spec.has("volumeMode") {
        out.field(0, "VolumeMode", spec.text("volumeMode"));
    }
    out.field(0, "Capacity", spec.plain("capacity.storage"));
    node_affinity(out, spec.value_at("nodeAffinity.required"));
    out.field(0, "Message", body.text("status.message"));
    out.heading(0, "Source");
    volumes::source(out, spec, volumes::SourceHolder::Cluster);
    events::write_events(volume, related, out);
}

fn node_affinity(out: &mut Describe, required: &Value) {
    if required.is_null() {
        return out.field(0, "Node Affinity", "<none>");
    }
    out.field(0, "Node Affinity", "");
    let terms = required.list("nodeSelectorTerms");
    out.field(1, "Required Terms", if terms.is_empty() { "<none>" } else { "" });
    for (at, term) in terms.iter().enumerate() {
        let lines = term.list("matchExpressions").iter().map(|wanted| {
            let (key, operator) = (wanted.text("key"), wanted.text("operator").to_lowercase());
            match wanted.texts("values").join(", ") {
                values if values.is_empty() => format!("{key} {operator}"),
                values => format!("{key} {operator} [{values}]"),
            }
        });
        out.values(2, &format!("Term {at}"), lines);
    }
}
