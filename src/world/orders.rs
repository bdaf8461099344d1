//! Orders: the desired network configuration and watched files that the machine was last sent.
//!
//! Knows: the last order about each object, so that a loop orders again only when the desired state has changed. Never: says whether the
//! machine has carried one out; that is for [`super::facts`]. Orders are lost when the control plane ends; the next one sends them all
//! again.

use super::World;
use super::facts::FilePatterns;
use super::ingress_routes::{HostPort, IngressRoute};
use super::node_links::{LinkEnd, NodeLink};
use super::plan::{Effect, Route};
use super::policy::NetworkPolicyRules;
use crate::object::{Key, Str};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The last orders. An order to have nothing is not kept.
#[derive(Default, Clone)]
pub struct Orders {
    /// The route of each Service.
    pub routes: BTreeMap<Key, Route>,
    /// The configuration of each Ingress.
    pub ingress_routes: BTreeMap<Key, Arc<IngressRoute>>,
    /// The ports of the machine that lead to pods.
    pub exposed: BTreeMap<Key, Vec<HostPort>>,
    /// The rules of each NetworkPolicy.
    pub policies: BTreeMap<Key, Arc<NetworkPolicyRules>>,
    /// This machine's end of the links to other machines.
    pub link_end: Option<LinkEnd>,
    /// The links to other machines, by node.
    pub node_links: BTreeMap<Str, NodeLink>,
    /// The files to watch, by the name of the Image object.
    pub watched: BTreeMap<Str, FilePatterns>,
}

impl Orders {
    fn note(&mut self, effect: &Effect) {
        match effect {
            Effect::Route { service, route } => {
                keep(&mut self.routes, service, Some(route).filter(|route| !route.is_empty()));
            }
            Effect::SetIngress { ingress, ingress_route } => {
                keep(&mut self.ingress_routes, ingress, ingress_route.as_ref());
            }
            Effect::Expose { pod, ports } => {
                keep(&mut self.exposed, pod, Some(ports).filter(|ports| !ports.is_empty()))
            }
            Effect::SetNetworkPolicy { policy, rules } => keep(&mut self.policies, policy, rules.as_ref()),
            Effect::AcceptLinks(end) => self.link_end.clone_from(end),
            Effect::SetNodeLink { node, link } => keep(&mut self.node_links, node, link.as_ref()),
            Effect::Watch { image, files } => {
                keep(&mut self.watched, image, Some(files).filter(|files| !files.globs.is_empty()));
            }
            _ => {}
        }
    }
}

fn keep<K: Ord + Clone, V: Clone>(orders: &mut BTreeMap<K, V>, about: &K, wish: Option<&V>) {
    match wish {
        Some(wish) => drop(orders.insert(about.clone(), wish.clone())),
        None => drop(orders.remove(about)),
    }
}

impl World {
    /// Notes that an effect was handed to the machine, so that the next plan sees it as pending.
    pub fn note_order(&mut self, effect: &Effect) {
        self.orders.note(effect);
        self.facts.begin(effect, self.now);
    }
}
