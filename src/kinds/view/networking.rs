//! IPAddresses and ServiceCIDRs: their columns and descriptions.

use super::age::age_since;
use super::body::BodyRead;
use super::{Column, Describe, KindView, RelatedObjects, events, namespace};
use crate::object::Object;
use serde_json::Value;

/// The view of addresses.
pub static IP_ADDRESS: KindView = KindView {
    columns: &[Column::text("Name"), Column::text("ParentRef"), Column::text("Age")],
    cells: |address, now| {
        let parent = parent(address.0.value_at("spec.parentRef"));
        vec![address.name().into(), parent.into(), age_since(address.created(), now).into()]
    },
    describe: describe_address,
};

/// The view of ranges.
pub static SERVICE_CIDR: KindView = KindView {
    columns: &[Column::text("Name"), Column::text("CIDRs"), Column::text("Age")],
    cells: |range, now| {
        let ranges = range.0.texts("spec.cidrs").join(",");
        vec![range.name().into(), ranges.into(), age_since(range.created(), now).into()]
    },
    describe: describe_range,
};

/// `services/default/web`.
fn parent(parent: &Value) -> String {
    if parent.is_null() {
        return "<none>".to_owned();
    }
    let dot = if parent.text("group").is_empty() { "" } else { "." };
    let kind = format!("{}{dot}{}", parent.text("resource"), parent.text("group")).to_lowercase();
    let words = [kind.as_str(), parent.text("namespace"), parent.text("name")];
    Vec::from_iter(
        words.into_iter().enumerate().filter(|(at, word)| *at != 1 || !word.is_empty()).map(|(_, word)| word),
    )
    .join("/")
}

fn describe_address(address: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let parent = address.0.value_at("spec.parentRef");
    out.field(0, "Name", address.name());
    out.labels_and_annotations(address);
    out.heading(0, "Parent Reference");
    for (label, field) in [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")] {
        out.field(1, label, parent.text(field));
    }
    events::write_events(address, related, out);
}

fn describe_range(range: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", range.name());
    out.labels_and_annotations(range);
    out.field(0, "CIDRs", range.0.texts("spec.cidrs").join(", "));
    let conditions = range.0.list("status.conditions");
    if !conditions.is_empty() {
        out.heading(0, "Status");
        namespace::conditions(out, conditions);
    }
    events::write_events(range, related, out);
}
