//! Scheduling constraints of a pod, parsed once for all pods with the same spec.

use super::affinity;
use crate::object::{Object, Str};
use crate::world::{Row, Term, World, wishes};
use hashlink::LruCache;
use serde_json::{Value, json};
use std::sync::Arc;

/// So many different ones are remembered.
const REMEMBERED: usize = 1024;

/// Constraints of a pod, apart from numeric requests.
pub struct Wants {
    /// The part of the pod with the constraints ([`wishes`]).
    pub pod: Object,
    /// All that is about nodes by themselves, and not about the pods that run there.
    pub of_nodes: Str,
    /// The nodes that all of its required terms name, if they do.
    pub named: Option<Vec<String>>,
    /// Whether it has a node selector or node affinity.
    pub is_picky: bool,
    /// The pods that it must have near.
    pub near: Vec<Wish>,
    /// The pods that it must not have near.
    pub far: Vec<Wish>,
    /// The pods that it would like to have near, or, with less than nothing, would not.
    pub liked: Vec<(Wish, i64)>,
}

/// A term about other pods.
pub struct Wish {
    /// The same for the same term.
    pub name: String,
    /// The term.
    pub term: Arc<Term>,
}

impl Wish {
    fn of(term: &Value, namespace: &str) -> Wish {
        Wish { name: format!("near {namespace} {term}"), term: Arc::new(Term::of(term, namespace)) }
    }
}

/// Those that were read.
struct Known(LruCache<Str, Arc<Wants>>);

impl Default for Known {
    fn default() -> Known {
        Known(LruCache::new(REMEMBERED))
    }
}

impl Wants {
    /// Returns a pod's constraints. Once a pod has a node, they are read from its body.
    pub fn of(world: &World, row: &Row) -> Arc<Wants> {
        let Some(text) = row.pod().and_then(|pod| pod.wishes.as_ref()) else {
            return Arc::new(Wants::read(wishes(&row.body())));
        };
        world.remembering(|Known(known)| {
            if let Some(known) = known.get(text) {
                return known.clone();
            }
            let wants = Arc::new(Wants::read(Object(serde_json::from_str(text).unwrap_or(Value::Null))));
            known.insert(text.clone(), wants.clone());
            wants
        })
    }

    fn read(pod: Object) -> Wants {
        let terms = |field: &str, strength: &str| pod.items(&["spec", "affinity", field, strength]);
        let required = |field: &str| -> Vec<Wish> {
            let terms = terms(field, "requiredDuringSchedulingIgnoredDuringExecution");
            terms.iter().map(|term| Wish::of(term, pod.namespace())).collect()
        };
        let preferred = |(field, sign): (&str, i64)| -> Vec<(Wish, i64)> {
            let terms = terms(field, "preferredDuringSchedulingIgnoredDuringExecution").iter();
            let weight = |one: &Value| one["weight"].as_i64().unwrap_or(0) * sign;
            terms.map(|one| (Wish::of(&one["podAffinityTerm"], pod.namespace()), weight(one))).collect()
        };
        let spec = |path: &[&str]| pod.at(&[&["spec"], path].concat());
        let of_nodes = [&["nodeName"][..], &["nodeSelector"], &["affinity", "nodeAffinity"], &["tolerations"]];
        Wants {
            of_nodes: json!(of_nodes.map(spec)).to_string().into(),
            named: affinity::named_nodes(&pod).map(|names| names.into_iter().map(str::to_owned).collect()),
            is_picky: affinity::is_picky(&pod),
            near: required("podAffinity"),
            far: required("podAntiAffinity"),
            liked: [("podAffinity", 1), ("podAntiAffinity", -1)].into_iter().flat_map(preferred).collect(),
            pod,
        }
    }
}
