//! NetworkPolicies.

use super::age::age_since;
use super::body::{BodyRead, text_or};
use super::related::selector;
use super::{Column, Describe, KindView, RelatedObjects, TableCell};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of network policies.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[Column::text("Name"), Column::text("Pod-Selector"), Column::text("Age")];

fn cells(policy: &Object, now: Time) -> Vec<TableCell> {
    let pods = selector(policy.0.value_at("spec.podSelector")).to_string();
    vec![policy.name().into(), pods.into(), age_since(policy.created(), now).into()]
}

fn describe(policy: &Object, _related: &dyn RelatedObjects, out: &mut Describe) {
    let spec = policy.0.value_at("spec");
    let types = spec.texts("policyTypes");
    out.name_and_namespace(policy);
    let created = policy.created().map(|created| created.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string());
    out.field(0, "Created on", created.unwrap_or_default());
    out.labels_and_annotations(policy);
    out.heading(0, "Spec");
    let all = "<none> (Allowing the specific traffic to all pods in this namespace)".to_owned();
    let pods = selector(spec.value_at("podSelector"));
    let pods = if pods.is_everything() { all } else { pods.to_string() };
    out.line(1, format_args!("PodSelector:     {pods}"));
    direction(out, "ingress", types.contains(&"Ingress"), spec.list("ingress"), "From", "from", "source");
    direction(out, "egress", types.contains(&"Egress"), spec.list("egress"), "To", "to", "destination");
    out.line(1, format_args!("Policy Types: {}", text_or(&types.join(", "), "<none>")));
}

fn direction(out: &mut Describe, name: &str, on: bool, rules: &[Value], label: &str, field: &str, end: &str) {
    if !on {
        return out.line(1, format_args!("Not affecting {name} traffic"));
    }
    out.line(1, format_args!("Allowing {name} traffic:"));
    if rules.is_empty() {
        out.line(2, format_args!("<none> (Selected pods are isolated for {name} connectivity)"));
    }
    for (at, rule) in rules.iter().enumerate() {
        if at > 0 {
            out.line(2, "----------");
        }
        if rule.list("ports").is_empty() {
            out.line(2, "To Port: <any> (traffic allowed to all ports)");
        }
        for port in rule.list("ports") {
            // As in kubectl, a port that is not set is a nil.
            let (number, protocol) =
                (text_or(&port.plain("port"), "<nil>").to_owned(), text_or(port.text("protocol"), "TCP"));
            match port.value_at("endPort").as_i64() {
                Some(last) => out.line(2, format_args!("To Port Range: {number}-{last}/{protocol}")),
                None => out.line(2, format_args!("To Port: {number}/{protocol}")),
            }
        }
        if rule.list(field).is_empty() {
            out.line(2, format_args!("{label}: <any> (traffic not restricted by {end})"));
        }
        for peer in rule.list(field) {
            out.line(2, format_args!("{label}:"));
            describe_peer(out, peer);
        }
    }
}

fn describe_peer(out: &mut Describe, peer: &Value) {
    let selectors = [("NamespaceSelector", "namespaceSelector"), ("PodSelector", "podSelector")];
    for (label, field) in selectors.into_iter().filter(|(_, field)| peer.has(field)) {
        out.line(3, format_args!("{label}: {}", selector(peer.value_at(field))));
    }
    if let Some(block) = peer.get("ipBlock") {
        out.line(3, "IPBlock:");
        out.line(4, format_args!("CIDR: {}", block.text("cidr")));
        out.line(4, format_args!("Except: {}", block.texts("except").join(", ")));
    }
}
