//! ServiceCIDRs and IPAddresses.

use super::age::age_since;
use super::body::BodyRead;
use super::namespace::conditions;
use super::{Column, Describe, KindView, RelatedObjects, events};
use crate::object::Object;

/// The view of ranges of service addresses.
pub static SERVICE_CIDR: KindView = KindView {
    resource: "servicecidrs.networking.k8s.io",
    columns: &[Column::text("Name"), Column::text("CIDRs"), Column::text("Age")],
    cells: |range, now| {
        vec![range.name().into(), range.0.texts("spec.cidrs").join(",").into(), age_since(range.created(), now).into()]
    },
    describe: describe_range,
};

/// The view of addresses in use.
pub static IP_ADDRESS: KindView = KindView {
    resource: "ipaddresses.networking.k8s.io",
    columns: &[Column::text("Name"), Column::text("ParentRef")],
    cells: |address, _| vec![address.name().into(), parent(address).into()],
    describe: describe_address,
};

/// `services/default/kubernetes`.
fn parent(address: &Object) -> String {
    let parent = address.0.value_at("spec.parentRef");
    let resource = match parent.text("group") {
        "" => parent.text("resource").to_owned(),
        group => format!("{}.{group}", parent.text("resource")),
    };
    match parent.text("namespace") {
        "" => format!("{resource}/{}", parent.text("name")),
        namespace => format!("{resource}/{namespace}/{}", parent.text("name")),
    }
}

fn describe_range(range: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", range.name());
    out.labels_and_annotations(range);
    out.field(0, "CIDRs", range.0.texts("spec.cidrs").join(", "));
    if !range.0.list("status.conditions").is_empty() {
        out.heading(0, "Status");
    }
    conditions(out, range.0.list("status.conditions"));
    events::write_events(range, related, out);
}

fn describe_address(address: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", address.name());
    out.labels_and_annotations(address);
    if let Some(parent) = address.0.value_at("spec").get("parentRef") {
        out.heading(0, "Parent Reference");
        for (label, field) in
            [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")]
        {
            out.field(1, label, parent.text(field));
        }
    }
    events::write_events(address, related, out);
}
