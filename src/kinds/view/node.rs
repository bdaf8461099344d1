//! Nodes.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, text_or};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::kinds::shared::resource_amounts::{ResourceAmounts, add_amounts, read_amounts, sum_with_overhead};
use crate::object::quantity::Quantity;
use crate::object::{Object, Time, condition};
use serde_json::Value;
use std::collections::BTreeSet;

/// The view of nodes.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Status"),
    Column::text("Roles"),
    Column::text("Age"),
    Column::text("Version"),
    Column::wide("Internal-IP"),
    Column::wide("External-IP"),
    Column::wide("OS-Image"),
    Column::wide("Kernel-Version"),
    Column::wide("Container-Runtime"),
];

fn cells(node: &Object, now: Time) -> Vec<TableCell> {
    let body = &node.0;
    let info = body.value_at("status.nodeInfo");
    let address = |kind: &str| {
        let found = body.list("status.addresses").iter().find(|address| address.text("type") == kind);
        TableCell::or_none(found.map_or("", |address| address.text("address")))
    };
    let known = |field: &str| TableCell::from(text_or(info.text(field), "<unknown>"));
    let kernel = match (info.text("kernelVersion"), info.text("architecture")) {
        ("", _) => "<unknown>".into(),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    };
    vec![
        node.name().into(),
        status(body).into(),
        text_or(&roles(node), "<none>").into(),
        age_since(node.created(), now).into(),
        info.text("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        kernel.into(),
        known("containerRuntimeVersion"),
    ]
}

fn status(body: &Value) -> String {
    let ready = condition::find(body.list("status.conditions"), "Ready");
    let status = match ready {
        Some(known) if known.text("status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if body.flag("spec.unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{status}{cordoned}")
}

fn roles(node: &Object) -> String {
    let roles: BTreeSet<&str> = node
        .labels()
        .filter_map(|(key, value)| match key {
            "kubernetes.io/role" => Some(value),
            _ => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn describe(node: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &node.0;
    out.field(0, "Name", node.name());
    out.field(0, "Roles", text_or(&roles(node), "<none>"));
    out.labels_and_annotations(node);
    out.field(0, "CreationTimestamp", rfc1123(node.created()));
    let mut taints: Vec<&Value> = body.list("spec.taints").iter().collect();
    taints.sort_by_key(|taint| format!("{},{}", taint.text("effect"), taint.text("key")));
    out.values(0, "Taints", taints.into_iter().map(taint));
    out.field(0, "Unschedulable", body.flag("spec.unschedulable"));
    lease(node, related, out);
    conditions(body.list("status.conditions"), out);
    out.heading(0, "Addresses");
    for address in body.list("status.addresses") {
        out.field(1, address.text("type"), address.text("address"));
    }
    for (label, path) in [("Capacity", "status.capacity"), ("Allocatable", "status.allocatable")] {
        if body.has(path) {
            out.heading(0, label);
            body.pairs(path).iter().for_each(|(name, amount)| out.field(1, name, amount));
        }
    }
    system(body, out);
    pods(node, related, out);
    events::write_events(node, related, out);
}

/// Formats a taint as `key=value:Effect`.
fn taint(taint: &Value) -> String {
    let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
    match (value, effect) {
        ("", "") => key.to_owned(),
        ("", effect) => format!("{key}:{effect}"),
        (value, "") => format!("{key}={value}:"),
        (value, effect) => format!("{key}={value}:{effect}"),
    }
}

fn lease(node: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let Some(lease) = related.get("leases.coordination.k8s.io", "kube-node-lease", node.name()) else {
        let why =
            format_args!("Failed to get lease: leases.coordination.k8s.io \"{}\" not found", node.name()).to_string();
        return out.field(0, "Lease", why);
    };
    let spec = lease.0.value_at("spec");
    let moment = |field: &str| if spec.has(field) { rfc1123(spec.time(field)) } else { "<unset>".into() };
    out.heading(0, "Lease");
    out.field(1, "HolderIdentity", text_or(spec.text("holderIdentity"), "<unset>"));
    out.field(1, "AcquireTime", moment("acquireTime"));
    out.field(1, "RenewTime", moment("renewTime"));
}

fn conditions(conditions: &[Value], out: &mut Describe) {
    if conditions.is_empty() {
        return;
    }
    out.heading(0, "Conditions");
    out.header(1, &["Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message"]);
    for known in conditions {
        let cells = [
            known.text("type"),
            known.text("status"),
            &rfc1123(known.time("lastHeartbeatTime")),
            &rfc1123(known.time("lastTransitionTime")),
            known.text("reason"),
            known.text("message"),
        ];
        out.line(1, cells.join(" \t"));
    }
}

fn system(body: &Value, out: &mut Describe) {
    let info = body.value_at("status.nodeInfo");
    let fields = [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
    ];
    out.heading(0, "System Info");
    fields.iter().for_each(|(label, field)| out.field(1, label, info.text(field)));
    let fields = [
        ("PodCIDR", body.plain("spec.podCIDR")),
        ("PodCIDRs", body.texts("spec.podCIDRs").join(",")),
        ("ProviderID", body.plain("spec.providerID")),
    ];
    for (label, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        out.field(0, label, value);
    }
}

/// Writes the pods on the node, and the sum of their requests.
fn pods(node: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let mut pods = related.list("pods", "");
    pods.retain(|pod| {
        pod.0.text("spec.nodeName") == node.name() && !matches!(pod.0.text("status.phase"), "Succeeded" | "Failed")
    });
    let body = &node.0;
    let offer = read_amounts(body.value_at(if body.has("status.allocatable") {
        "status.allocatable"
    } else {
        "status.capacity"
    }));
    out.field(0, "Non-terminated Pods", format_args!("({} in total)", pods.len()));
    out.line(1, "Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge");
    out.line(1, "---------\t----\t\t------------\t----------\t---------------\t-------------\t---");
    let (mut requests, mut limits) = (ResourceAmounts::default(), ResourceAmounts::default());
    for pod in &pods {
        let (requested, limited) = (sum_with_overhead(pod, "requests"), sum_with_overhead(pod, "limits"));
        let cells = [
            share(&requested, &offer, "cpu"),
            share(&limited, &offer, "cpu"),
            share(&requested, &offer, "memory"),
            share(&limited, &offer, "memory"),
            age_since(pod.created(), related.now()),
        ];
        out.line(1, format_args!("{}\t{}\t\t{}", pod.namespace(), pod.name(), cells.join("\t")));
        add_amounts(&mut requests, requested);
        add_amounts(&mut limits, limited);
    }
    allocated(&requests, &limits, &offer, out);
}

fn allocated(requests: &ResourceAmounts, limits: &ResourceAmounts, offer: &ResourceAmounts, out: &mut Describe) {
    out.heading(0, "Allocated resources");
    out.line(1, "(Total limits may be over 100 percent, i.e., overcommitted.)");
    out.header(1, &["Resource", "Requests", "Limits"]);
    const USUAL: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
    let pages = offer.keys().map(String::as_str).filter(|name| name.starts_with("hugepages-"));
    for name in USUAL.into_iter().chain(pages) {
        out.row(1, &[&name, &share(requests, offer, name), &share(limits, offer, name)]);
    }
    let is_extended = |name: &&str| !USUAL.contains(name) && *name != "pods" && !name.starts_with("hugepages-");
    for name in offer.keys().map(String::as_str).filter(is_extended) {
        out.row(1, &[&name, &amount(requests, name), &amount(limits, name)]);
    }
}

fn amount(amounts: &ResourceAmounts, name: &str) -> Quantity {
    amounts.get(name).copied().unwrap_or_default()
}

/// Formats an amount with its percentage of the node's allocatable one: `250m (6%)`.
fn share(amounts: &ResourceAmounts, offer: &ResourceAmounts, name: &str) -> String {
    let (amount, total) = (amount(amounts, name), amount(offer, name));
    let part = |quantity: Quantity| if name == "cpu" { quantity.milli() } else { quantity.value() } as f64;
    let percent = if total.is_zero() { 0.0 } else { part(amount) / part(total) * 100.0 };
    format!("{amount} ({}%)", percent as i64)
}
