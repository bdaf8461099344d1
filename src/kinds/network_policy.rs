//! NetworkPolicy (networking.k8s.io/v1).

use super::catalogue::shapes;
use super::shared::address::{self, check_protocol};
use super::shared::{names, omit, selector};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["netpol"],
    status: false,
    shape: &SHAPE,
    ..Kind::new::<NetworkPolicy>(
        "networkpolicies.networking.k8s.io",
        "v1",
        "NetworkPolicy",
        &view::network_policy::VIEW,
    )
};

static SHAPE: StructShape = StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE)))]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("podSelector", shapes::ATOMIC)]);

impl Typed for NetworkPolicy {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        spec.pod_selector.get_or_insert_default();
        omit::empty(&mut spec.policy_types);
        omit::empty(&mut spec.ingress);
        omit::empty(&mut spec.egress);
        if spec.policy_types.is_none() {
            let egress = spec.egress.is_some().then(|| "Egress".to_owned());
            spec.policy_types = Some(std::iter::once("Ingress".to_owned()).chain(egress).collect());
        }
        for rule in spec.ingress.iter_mut().flatten() {
            omit::empty(&mut rule.from);
            omit::empty(&mut rule.ports);
        }
        for rule in spec.egress.iter_mut().flatten() {
            omit::empty(&mut rule.to);
            omit::empty(&mut rule.ports);
        }
        let ingress = spec.ingress.iter_mut().flatten().filter_map(|rule| rule.ports.as_mut());
        let egress = spec.egress.iter_mut().flatten().filter_map(|rule| rule.ports.as_mut());
        for port in ingress.chain(egress).flatten() {
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let Some(spec) = &self.spec else { return };
        let known: BTreeSet<&str> = old.map(ranges).unwrap_or_default();
        let path = FieldPath::root("spec");
        if let Some(selector) = &spec.pod_selector {
            selector::check(selector, &path.child("podSelector"), errors);
        }
        for (index, rule) in spec.ingress.iter().flatten().enumerate() {
            let path = path.child("ingress").index(index);
            check_rule(rule.ports.as_deref(), "from", rule.from.as_deref(), &known, &path, errors);
        }
        for (index, rule) in spec.egress.iter().flatten().enumerate() {
            let path = path.child("egress").index(index);
            check_rule(rule.ports.as_deref(), "to", rule.to.as_deref(), &known, &path, errors);
        }
        let types = spec.policy_types.as_deref().unwrap_or_default();
        if types.len() > 2 {
            errors.invalid(&path.child("policyTypes"), json!(types), "may not specify more than two policyTypes");
            return;
        }
        for (index, name) in types.iter().enumerate() {
            if !matches!(name.as_str(), "Ingress" | "Egress") {
                let path = path.child("policyTypes").index(index);
                errors.unsupported_as_listed(&path, name.as_str(), &["Ingress", "Egress"]);
            }
        }
    }
}

/// Returns the address ranges of a stored policy, whose notation is not checked again.
fn ranges(policy: &NetworkPolicy) -> BTreeSet<&str> {
    let spec = policy.spec.iter();
    let sources =
        spec.clone().flat_map(|spec| spec.ingress.iter().flatten()).flat_map(|rule| rule.from.iter().flatten());
    let targets = spec.flat_map(|spec| spec.egress.iter().flatten()).flat_map(|rule| rule.to.iter().flatten());
    let blocks = sources.chain(targets).filter_map(|peer| peer.ip_block.as_ref());
    blocks
        .flat_map(|block| std::iter::once(&block.cidr).chain(block.except.iter().flatten()))
        .map(String::as_str)
        .collect()
}

fn check_rule(
    ports: Option<&[NetworkPolicyPort]>,
    side: &str,
    peers: Option<&[NetworkPolicyPeer]>,
    known: &BTreeSet<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    for (index, port) in ports.unwrap_or_default().iter().enumerate() {
        check_port(port, &path.child("ports").index(index), errors);
    }
    for (index, peer) in peers.unwrap_or_default().iter().enumerate() {
        check_peer(peer, known, &path.child(side).index(index), errors);
    }
}

fn check_port(port: &NetworkPolicyPort, path: &FieldPath, errors: &mut FieldErrors) {
    check_protocol(port.protocol.as_deref(), &path.child("protocol"), errors);
    let end = path.child("endPort");
    match &port.port {
        Some(IntOrString::Int(number)) => {
            errors.each_invalid(&path.child("port"), *number, names::port((*number).into()));
            if let Some(last) = port.end_port {
                if last < *number {
                    errors.invalid(&end, *number, "must be greater than or equal to `port`");
                }
                errors.each_invalid(&end, last, names::port(last.into()));
            }
        }
        Some(IntOrString::String(name)) => {
            if let Some(last) = port.end_port {
                errors.invalid(&end, last, "may not be specified when `port` is non-numeric");
            }
            errors.each_invalid(&path.child("port"), name.as_str(), names::port_name(name));
        }
        None => {
            if let Some(last) = port.end_port {
                errors.invalid(&end, last, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn check_peer(peer: &NetworkPolicyPeer, known: &BTreeSet<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(selector) = &peer.pod_selector {
        selector::check(selector, &path.child("podSelector"), errors);
    }
    if let Some(selector) = &peer.namespace_selector {
        selector::check(selector, &path.child("namespaceSelector"), errors);
    }
    let selects = peer.pod_selector.is_some() || peer.namespace_selector.is_some();
    match &peer.ip_block {
        None if !selects => errors.required(path, "must specify a peer"),
        None => {}
        Some(block) => {
            check_block(block, known, &path.child("ipBlock"), errors);
            if selects {
                errors.forbidden(path, "may not specify both ipBlock and another peer");
            }
        }
    }
}

fn check_block(block: &IPBlock, known: &BTreeSet<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    if block.cidr.is_empty() {
        return errors.required(&path.child("cidr"), "");
    }
    if !known.contains(block.cidr.as_str()) {
        address::check_range(&block.cidr, &path.child("cidr"), errors);
    }
    for (index, cidr) in block.except.iter().flatten().enumerate() {
        let path = path.child("except").index(index);
        let valid = known.contains(cidr.as_str()) || address::check_range(cidr, &path, errors).is_some();
        if valid && !names::is_strict_subset(cidr, &block.cidr) {
            errors.invalid(&path, cidr.as_str(), "must be a strict subset of `cidr`");
        }
    }
}
