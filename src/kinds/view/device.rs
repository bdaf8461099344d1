//! Claims of devices and the devices that drivers offer: their columns.

use super::age::age_since;
use super::body::BodyRead;
use super::{Column, KindView, generic};
use crate::object::Object;

/// The view of claims.
pub static RESOURCE_CLAIM: KindView = KindView {
    columns: &[Column::text("Name"), Column::text("State"), Column::text("Age")],
    cells: |claim, now| vec![claim.name().into(), state(claim).into(), age_since(claim.created(), now).into()],
    ..generic::VIEW
};

/// The view of slices.
pub static RESOURCE_SLICE: KindView = KindView {
    columns: &[
        Column::text("Name"),
        Column::text("Node"),
        Column::text("Driver"),
        Column::text("Pool"),
        Column::text("Age"),
    ],
    cells: |slice, now| {
        let spec = slice.0.value_at("spec");
        vec![
            slice.name().into(),
            spec.text("nodeName").into(),
            spec.text("driver").into(),
            spec.text("pool.name").into(),
            age_since(slice.created(), now).into(),
        ]
    },
    ..generic::VIEW
};

/// `allocated,reserved`.
fn state(claim: &Object) -> String {
    let (is_deleted, is_allocated) = (claim.deletion().is_some(), claim.0.has("status.allocation"));
    let states = [
        ("deleted", is_deleted),
        ("pending", !is_allocated && !is_deleted),
        ("allocated", is_allocated),
        ("reserved", is_allocated && !claim.0.list("status.reservedFor").is_empty()),
    ];
    Vec::from_iter(states.into_iter().filter(|(_, is_so)| *is_so).map(|(state, _)| state)).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn states_follow_the_status() {
        let claim = |deleted: Value, status: Value| {
            Object(json!({"metadata": {"deletionTimestamp": deleted}, "status": status}))
        };
        let moment = json!("2026-01-01T00:00:00Z");
        let cases = [
            (Value::Null, json!({}), "pending"),
            (Value::Null, json!({"allocation": {}}), "allocated"),
            (Value::Null, json!({"allocation": {}, "reservedFor": [{"uid": "u"}]}), "allocated,reserved"),
            (moment.clone(), json!({}), "deleted"),
            (moment, json!({"allocation": {}}), "deleted,allocated"),
        ];
        for (deleted, status, expected) in cases {
            assert_eq!(state(&claim(deleted, status.clone())), expected, "{status}");
        }
    }
}
