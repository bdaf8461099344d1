//! StatefulSets.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, go_list, text_or};
use super::containers::{names_and_images, template};
use super::related::{pods_status, selector};
use super::storage::claim_class;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of stateful sets.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Ready"),
    Column::text("Age"),
    Column::wide("Containers"),
    Column::wide("Images"),
];

fn cells(set: &Object, now: Time) -> Vec<TableCell> {
    let body = &set.0;
    let (names, images) = names_and_images(body.value_at("spec.template.spec"));
    let ready = format!("{}/{}", body.int("status.readyReplicas"), body.int("spec.replicas"));
    vec![set.name().into(), ready.into(), age_since(set.created(), now).into(), names.into(), images.into()]
}

fn describe(set: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &set.0;
    out.name_and_namespace(set);
    out.field(0, "CreationTimestamp", rfc1123(set.created()));
    out.field(0, "Selector", selector(body.value_at("spec.selector")));
    out.labels_and_annotations(set);
    let (desired, total) = (body.int("spec.replicas"), body.int("status.replicas"));
    out.field(0, "Replicas", format_args!("{desired} desired | {total} total"));
    let strategy = body.value_at("spec.updateStrategy");
    out.field(0, "Update Strategy", strategy.text("type"));
    if strategy.has("rollingUpdate.partition") {
        out.field(1, "Partition", strategy.int("rollingUpdate.partition"));
        if strategy.has("rollingUpdate.maxUnavailable") {
            out.field(1, "MaxUnavailable", strategy.plain("rollingUpdate.maxUnavailable"));
        }
    }
    out.field(0, "Pods Status", pods_status(set, body.value_at("spec.selector"), related));
    template(out, body.value_at("spec.template"));
    claims(out, body.list("spec.volumeClaimTemplates"));
    events::write_events(set, related, out);
}

fn claims(out: &mut Describe, claims: &[Value]) {
    if claims.is_empty() {
        return out.field(0, "Volume Claims", "<none>");
    }
    out.heading(0, "Volume Claims");
    for claim in claims {
        out.field(1, "Name", claim.text("metadata.name"));
        out.field(1, "StorageClass", claim_class(claim));
        out.pairs(1, "Labels", &claim.pairs("metadata.labels"));
        out.pairs(1, "Annotations", &claim.pairs("metadata.annotations"));
        out.field(1, "Capacity", text_or(&claim.plain("spec.resources.requests.storage"), "<default>"));
        out.field(1, "Access Modes", go_list(&claim.texts("spec.accessModes")));
    }
}
