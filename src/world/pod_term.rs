//! The pods that an affinity term or a spread constraint selects: a label selector, applied in some namespaces.

use super::{Row, World};
use crate::object::Str;
use crate::object::selector::Selector;
use serde_json::Value;
use std::collections::BTreeSet;

/// The pods that an affinity term or a spread constraint selects.
#[derive(Clone, Debug)]
pub struct PodTerm {
    /// The node label of the topology domains.
    pub key: Str,
    own: Str,
    namespaces: Vec<Str>,
    namespace_selector: Option<Selector>,
    selector: Selector,
}

impl PodTerm {
    /// A term as it is written in an affinity of a pod in namespace `own`.
    pub fn parse(term: &Value, own: &str) -> PodTerm {
        let selector = Selector::from_label_selector(&term["labelSelector"]).unwrap_or_else(|_| Selector::nothing());
        let named = term["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let spaces = &term["namespaceSelector"];
        let namespace_selector =
            (!spaces.is_null()).then(|| Selector::from_label_selector(spaces).unwrap_or_else(|_| Selector::nothing()));
        let namespaces = named.map(Str::from).collect();
        PodTerm {
            namespaces,
            namespace_selector,
            ..PodTerm::in_namespace(term["topologyKey"].as_str().unwrap_or_default(), own, selector)
        }
    }

    /// The pods of one namespace that a selector selects.
    pub fn in_namespace(key: &str, own: &str, selector: Selector) -> PodTerm {
        PodTerm { key: key.into(), own: own.into(), namespaces: Vec::new(), namespace_selector: None, selector }
    }

    /// The label selector, applied within the term's namespaces.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Whether the term selects a pod.
    pub fn selects(&self, world: &World, pod: &Row) -> bool {
        self.selector.matches(|key| pod.label(key)) && self.is_about(world, &pod.key.namespace)
    }

    /// Whether the term covers a namespace: the listed and selected ones, or the pod's own when there are none.
    fn is_about(&self, world: &World, namespace: &Str) -> bool {
        if self.namespaces.is_empty() && self.namespace_selector.is_none() {
            return *namespace == self.own;
        }
        let selected = |selector: &Selector| {
            world.find("namespaces", "", namespace).is_some_and(|row| selector.matches(|key| row.label(key)))
        };
        self.namespaces.contains(namespace) || self.namespace_selector.as_ref().is_some_and(selected)
    }

    /// The namespaces that the term covers; none where a selector decides.
    pub(super) fn namespaces(&self) -> Option<Vec<Str>> {
        match (&self.namespace_selector, self.namespaces.is_empty()) {
            (Some(_), _) => None,
            (None, true) => Some(vec![self.own.clone()]),
            (None, false) => Some(self.namespaces.iter().cloned().collect::<BTreeSet<Str>>().into_iter().collect()),
        }
    }
}
