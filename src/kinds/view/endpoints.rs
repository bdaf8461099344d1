//! Endpoints and EndpointSlices.

use super::age::age_since;
use super::body::{BodyRead, text_or};
use super::service::first_few;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time, host_port};
use serde_json::Value;

/// The view of endpoints.
pub static ENDPOINTS: KindView =
    KindView { columns: ENDPOINTS_COLUMNS, cells: endpoints_cells, describe: describe_endpoints };

/// The view of endpoint slices.
pub static SLICE: KindView = KindView { columns: SLICE_COLUMNS, cells: slice_cells, describe: describe_slice };

const ENDPOINTS_COLUMNS: &[Column] = &[Column::text("Name"), Column::text("Endpoints"), Column::text("Age")];

const SLICE_COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("AddressType"),
    Column::text("Ports"),
    Column::text("Endpoints"),
    Column::text("Age"),
];

/// Maximum number of listed endpoints; further ones are only counted.
const MAX_LISTED_ENDPOINTS: usize = 3;

fn endpoints_cells(endpoints: &Object, now: Time) -> Vec<TableCell> {
    let subsets = endpoints.0.list("subsets");
    let mut all = Vec::new();
    for subset in subsets {
        let addresses: Vec<&str> = subset.list("addresses").iter().map(|address| address.text("ip")).collect();
        if subset.list("ports").is_empty() {
            all.extend(addresses.iter().map(|address| (*address).to_owned()));
        }
        for port in subset.list("ports") {
            all.extend(addresses.iter().map(|address| host_port(address, port.plain("port"))));
        }
    }
    let text = if subsets.is_empty() { "<none>".into() } else { first_few(&all, MAX_LISTED_ENDPOINTS) };
    vec![endpoints.name().into(), text.into(), age_since(endpoints.created(), now).into()]
}

fn slice_cells(slice: &Object, now: Time) -> Vec<TableCell> {
    let body = &slice.0;
    let ports: Vec<String> =
        body.list("ports").iter().map(|port| text_or(&port.plain("port"), "*").to_owned()).collect();
    let addresses: Vec<String> =
        body.list("endpoints").iter().flat_map(|endpoint| endpoint.texts("addresses")).map(str::to_owned).collect();
    vec![
        slice.name().into(),
        body.text("addressType").into(),
        text_or(&first_few(&ports, MAX_LISTED_ENDPOINTS), "<unset>").into(),
        text_or(&first_few(&addresses, MAX_LISTED_ENDPOINTS), "<unset>").into(),
        age_since(slice.created(), now).into(),
    ]
}

fn ports_table(out: &mut Describe, level: usize, ports: &[Value]) {
    out.heading(level, "Ports");
    out.header(level + 1, &["Name", "Port", "Protocol"]);
    for port in ports {
        let number = port.plain("port");
        out.row(
            level + 1,
            &[&text_or(port.text("name"), "<unset>"), &text_or(&number, "<unset>"), &port.text("protocol")],
        );
    }
}

fn describe_endpoints(endpoints: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.name_and_namespace(endpoints);
    out.labels_and_annotations(endpoints);
    out.heading(0, "Subsets");
    for subset in endpoints.0.list("subsets") {
        for (label, field) in [("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")] {
            let addresses: Vec<&str> = subset.list(field).iter().map(|address| address.text("ip")).collect();
            out.field(1, label, text_or(&addresses.join(","), "<none>"));
        }
        if !subset.list("ports").is_empty() {
            ports_table(out, 1, subset.list("ports"));
        }
        out.blank();
    }
    events::write_events(endpoints, related, out);
}

fn describe_slice(slice: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &slice.0;
    out.name_and_namespace(slice);
    out.labels_and_annotations(slice);
    out.field(0, "AddressType", body.text("addressType"));
    match body.list("ports") {
        [] => out.line(0, "Ports: <unset>"),
        ports => ports_table(out, 0, ports),
    }
    match body.list("endpoints") {
        [] => out.line(0, "Endpoints: <none>"),
        endpoints => {
            out.heading(0, "Endpoints");
            endpoints.iter().for_each(|endpoint| describe_endpoint(out, endpoint));
        }
    }
    events::write_events(slice, related, out);
}

fn describe_endpoint(out: &mut Describe, endpoint: &Value) {
    out.field(1, "- Addresses", text_or(&endpoint.texts("addresses").join(", "), "<none>"));
    out.heading(2, "Conditions");
    out.field(3, "Ready", text_or(&endpoint.plain("conditions.ready"), "<unset>"));
    out.field(2, "Hostname", text_or(endpoint.text("hostname"), "<unset>"));
    if let Some(target) = endpoint.get("targetRef") {
        out.field(2, "TargetRef", format_args!("{}/{}", target.text("kind"), target.text("name")));
    }
    out.field(2, "NodeName", text_or(endpoint.text("nodeName"), "<unset>"));
    out.field(2, "Zone", text_or(endpoint.text("zone"), "<unset>"));
}
