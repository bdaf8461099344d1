//! Storage classes and drivers, and shared columns of claims and volumes.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, go_list, text_or, truth_or_unset};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events, generic};
use crate::kinds::shared::default_class::{self, CLASS_ANNOTATION};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of storage classes.
pub static CLASS: KindView = KindView {
    columns: &[
        Column::text("Name"),
        Column::text("Provisioner"),
        Column::text("ReclaimPolicy"),
        Column::text("VolumeBindingMode"),
        Column::text("AllowVolumeExpansion"),
        Column::text("Age"),
    ],
    cells: class_cells,
    describe: describe_class,
};

/// The view of volume attachments.
pub static ATTACHMENT: KindView = KindView {
    columns: &[
        Column::text("Name"),
        Column::text("Attacher"),
        Column::text("PV"),
        Column::text("Node"),
        Column::text("Attached"),
        Column::text("Age"),
    ],
    cells: |attachment, now| {
        let body = &attachment.0;
        vec![
            attachment.name().into(),
            body.text("spec.attacher").into(),
            body.text("spec.source.persistentVolumeName").into(),
            body.text("spec.nodeName").into(),
            body.flag("status.attached").into(),
            age_since(attachment.created(), now).into(),
        ]
    },
    describe: generic::describe,
};

/// The view of CSI nodes.
pub static CSI_NODE: KindView = KindView {
    columns: &[Column::text("Name"), Column::int("Drivers"), Column::text("Age")],
    cells: |node, now| {
        vec![node.name().into(), node.0.list("spec.drivers").len().into(), age_since(node.created(), now).into()]
    },
    describe: describe_csi_node,
};

/// The view of CSI drivers.
pub static CSI_DRIVER: KindView = KindView {
    columns: &[
        Column::text("Name"),
        Column::text("AttachRequired"),
        Column::text("PodInfoOnMount"),
        Column::text("StorageCapacity"),
        Column::text("TokenRequests"),
        Column::text("RequiresRepublish"),
        Column::text("Modes"),
        Column::text("Age"),
    ],
    cells: csi_driver_cells,
    describe: generic::describe,
};

/// The view of the capacities that CSI drivers report.
pub static CSI_STORAGE_CAPACITY: KindView = KindView {
    columns: &[Column::text("Name"), Column::text("StorageClassName"), Column::text("Capacity")],
    cells: |known, _| {
        let body = &known.0;
        vec![
            known.name().into(),
            body.text("storageClassName").into(),
            text_or(&body.plain("capacity"), "<unset>").into(),
        ]
    },
    describe: generic::describe,
};

/// The view of volume attributes classes.
pub static ATTRIBUTES_CLASS: KindView = KindView {
    columns: &[Column::text("Name"), Column::text("DriverName"), Column::text("Age")],
    cells: |class, now| {
        vec![class.name().into(), class.0.text("driverName").into(), age_since(class.created(), now).into()]
    },
    describe: |class, related, out| {
        out.field(0, "Name", class.name());
        out.inline_pairs(0, "Annotations", &class.0.pairs("metadata.annotations"));
        out.field(0, "DriverName", class.0.text("driverName"));
        out.inline_pairs(0, "Parameters", &class.0.pairs("parameters"));
        events::write_events(class, related, out);
    },
};

/// The storage class of a claim or volume: the old annotation wins over the field.
pub fn claim_class(object: &Value) -> &str {
    let annotation = object.value_at("metadata.annotations").get(CLASS_ANNOTATION);
    annotation.and_then(Value::as_str).unwrap_or_else(|| object.text("spec.storageClassName"))
}

/// Abbreviates access modes: `RWO,ROX`.
pub fn access_modes(modes: &[&str]) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let known = SHORT.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short);
    known.collect::<Vec<_>>().join(",")
}

fn is_default(class: &Object) -> bool {
    default_class::is_marked(class, default_class::STORAGE)
}

fn class_cells(class: &Object, now: Time) -> Vec<TableCell> {
    let body = &class.0;
    let mark = if is_default(class) { " (default)" } else { "" };
    vec![
        format!("{}{mark}", class.name()).into(),
        body.text("provisioner").into(),
        text_or(body.text("reclaimPolicy"), "Delete").into(),
        text_or(body.text("volumeBindingMode"), "Immediate").into(),
        body.flag("allowVolumeExpansion").into(),
        age_since(class.created(), now).into(),
    ]
}

fn describe_class(class: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &class.0;
    out.field(0, "Name", class.name());
    out.field(0, "IsDefaultClass", if is_default(class) { "Yes" } else { "No" });
    out.inline_pairs(0, "Annotations", &body.pairs("metadata.annotations"));
    out.field(0, "Provisioner", body.text("provisioner"));
    out.inline_pairs(0, "Parameters", &body.pairs("parameters"));
    out.field(0, "AllowVolumeExpansion", truth_or_unset(body.value_at("allowVolumeExpansion")));
    match body.texts("mountOptions") {
        options if options.is_empty() => out.field(0, "MountOptions", "<none>"),
        options => {
            out.heading(0, "MountOptions");
            options.iter().for_each(|option| out.line(1, option));
        }
    }
    for (label, field) in [("ReclaimPolicy", "reclaimPolicy"), ("VolumeBindingMode", "volumeBindingMode")] {
        if body.has(field) {
            out.field(0, label, body.text(field));
        }
    }
    if body.has("allowedTopologies") {
        topologies(out, body.list("allowedTopologies"));
    }
    events::write_events(class, related, out);
}

fn topologies(out: &mut Describe, terms: &[Value]) {
    out.field(0, "AllowedTopologies", if terms.is_empty() { "<none>" } else { "" });
    for (at, term) in terms.iter().enumerate() {
        let lines = term
            .list("matchLabelExpressions")
            .iter()
            .map(|wanted| format!("{} in [{}]", wanted.text("key"), wanted.texts("values").join(", ")));
        out.values(1, &format!("Term {at}"), lines);
    }
}

fn describe_csi_node(node: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.field(0, "Name", node.name());
    out.labels_and_annotations(node);
    out.field(0, "CreationTimestamp", rfc1123(node.created()));
    out.heading(0, "Spec");
    let drivers = node.0.list("spec.drivers");
    if !drivers.is_empty() {
        out.heading(1, "Drivers");
    }
    for driver in drivers {
        out.heading(2, driver.text("name"));
        out.field(3, "Node ID", driver.text("nodeID"));
        if driver.has("allocatable.count") {
            out.heading(3, "Allocatables");
            out.field(4, "Count", driver.int("allocatable.count"));
        }
        if driver.has("topologyKeys") {
            out.field(3, "Topology Keys", go_list(&driver.texts("topologyKeys")));
        }
    }
    events::write_events(node, related, out);
}

fn csi_driver_cells(driver: &Object, now: Time) -> Vec<TableCell> {
    let spec = driver.0.value_at("spec");
    let audiences: Vec<&str> = spec.list("tokenRequests").iter().map(|token| token.text("audience")).collect();
    let modes = spec.texts("volumeLifecycleModes").join(",");
    vec![
        driver.name().into(),
        spec.value_at("attachRequired").as_bool().unwrap_or(true).into(),
        spec.flag("podInfoOnMount").into(),
        spec.flag("storageCapacity").into(),
        text_or(&audiences.join(","), "<unset>").into(),
        spec.flag("requiresRepublish").into(),
        text_or(&modes, "<none>").into(),
        age_since(driver.created(), now).into(),
    ]
}
