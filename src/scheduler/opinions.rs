//! What nodes think of pods that ask for the same, kept as long as it holds.
//!
//! Whether a node refuses a pod by itself, what it is worth to the pod, and who would have to go from it, follow from the node, its pods
//! and what the pod asks of nodes: all pods of a template get the same answer, and a node has to be asked again only when it or one of
//! its pods has changed ([`World::version_at`]). What depends on pods elsewhere (spreading, affinity) is asked each time. Kubernetes
//! does the like for pods that follow each other (KEP-5598).

use super::filter::{self, Asks, Refusal};
use super::nodes;
use super::preemption::Dismissal;
use super::score::{self, Merits};
use crate::object::Str;
use crate::world::profile::Profile;
use crate::world::{Requests, World};
use hashlink::LruCache;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of the verdict that refuses nothing.
pub const FITS: usize = 0;

/// Opinions on so many nodes are remembered, of all pods together.
const REMEMBERED: usize = 1 << 20;

/// What a pod asks of nodes.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Signature {
    profile: Str,
    of_nodes: Str,
    requests: Requests,
    host_ports: Vec<(Str, Str, i64)>,
    priority: i32,
}

/// What is remembered.
struct Known {
    profiles: Arc<[Profile]>,
    opinions: LruCache<Signature, Opinions>,
}

impl Default for Known {
    fn default() -> Known {
        Known { profiles: Arc::new([]), opinions: LruCache::new_unbounded() }
    }
}

/// What the nodes think of pods with one signature.
#[derive(Default)]
pub struct Opinions {
    nodes: Vec<Opinion>,
    /// Why nodes refuse, by number; the first refuses nothing.
    verdicts: Vec<Vec<Refusal>>,
    dismissals: Vec<(u64, Arc<Dismissal>)>,
}

/// What one node thinks.
#[derive(Clone, Copy, Default)]
struct Opinion {
    version: u64,
    verdict: usize,
    merits: Merits,
}

impl Opinions {
    /// Lets what the nodes think of a pod be asked.
    pub fn on<A>(asks: &Asks<'_>, within: impl FnOnce(&mut Opinions) -> A) -> A {
        let signature = Signature {
            profile: asks.profile.name.clone(),
            of_nodes: asks.wants.of_nodes.clone(),
            requests: asks.fields.requests.clone(),
            host_ports: asks.fields.host_ports.clone(),
            priority: asks.fields.priority,
        };
        let profiles = &asks.world.settings.profiles;
        let fleet = asks.world.fleet().len();
        let mut opinions = asks.world.remembering(|known: &mut Known| {
            if !Arc::ptr_eq(&known.profiles, profiles) {
                *known = Known { profiles: profiles.clone(), ..Known::default() };
            }
            known.opinions.remove(&signature).unwrap_or_default()
        });
        opinions.nodes.resize(fleet, Opinion::default());
        if opinions.verdicts.is_empty() {
            opinions.verdicts.push(Vec::new());
        }
        let answer = within(&mut opinions);
        asks.world.remembering(|known: &mut Known| {
            known.opinions.insert(signature, opinions);
            while known.opinions.len() > 1 && known.opinions.len() * fleet > REMEMBERED {
                known.opinions.remove_lru();
            }
        });
        answer
    }

    /// The number of the verdict of the node that stands here: by itself, then for the pods everywhere, then with the pods that it was
    /// promised to.
    pub fn verdict(&mut self, asks: &Asks<'_>, slot: usize) -> usize {
        let alone = self.of(asks, slot).verdict;
        if alone != FITS {
            return alone;
        }
        if let Some(refusal) = filter::refused_by_crowds(asks, slot) {
            return self.number(&[refusal]);
        }
        if !asks.world.is_promised(slot) {
            return FITS;
        }
        let Some(mut node) = nodes::candidate(asks.world, slot) else { return FITS };
        if node.welcome_promised(asks.row) { self.number(&filter::refusals(asks, &node)) } else { FITS }
    }

    /// What a node is worth to the pod that it does not refuse.
    pub fn merits(&mut self, asks: &Asks<'_>, slot: usize) -> Merits {
        self.of(asks, slot).merits
    }

    /// How many nodes refuse the pod for the same reasons, by the number of each one's verdict.
    pub fn tally(&self, verdicts: &[usize]) -> Tally<'_> {
        let mut counts = vec![0; self.verdicts.len()];
        verdicts.iter().for_each(|verdict| counts[*verdict] += 1);
        Tally(self.verdicts.iter().map(Vec::as_slice).zip(counts).filter(|(_, nodes)| *nodes > 0).collect())
    }

    /// Which verdicts no pod's end would change, by their numbers.
    pub fn for_good(&self) -> Vec<bool> {
        self.verdicts.iter().map(|refusals| refusals.iter().any(|refusal| refusal.for_good)).collect()
    }

    /// Who would have to go from a node, as it is known, or else as it is found now.
    pub fn dismissal(&mut self, world: &World, slot: usize, find: impl FnOnce() -> Dismissal) -> Arc<Dismissal> {
        let version = world.version_at(slot);
        if self.dismissals.len() <= slot {
            self.dismissals.resize_with(self.nodes.len(), Default::default);
        }
        let known = &mut self.dismissals[slot];
        if known.0 != version {
            *known = (version, Arc::new(find()));
        }
        known.1.clone()
    }

    fn of(&mut self, asks: &Asks<'_>, slot: usize) -> Opinion {
        let version = asks.world.version_at(slot);
        let known = self.nodes[slot];
        if known.version == version {
            return known;
        }
        let Some(node) = nodes::candidate(asks.world, slot) else { return known };
        let verdict = self.number(&filter::refused_by_itself(asks, &node));
        let merits = if verdict == FITS { score::merits(asks, &node) } else { Merits::default() };
        self.nodes[slot] = Opinion { version, verdict, merits };
        self.nodes[slot]
    }

    fn number(&mut self, refusals: &[Refusal]) -> usize {
        self.verdicts.iter().position(|known| known == refusals).unwrap_or_else(|| {
            self.verdicts.push(refusals.to_vec());
            self.verdicts.len() - 1
        })
    }
}

/// Reasons, and how many nodes have them.
pub struct Tally<'a>(Vec<(&'a [Refusal], usize)>);

impl Tally<'_> {
    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.0.iter().map(|(_, nodes)| nodes).sum()
    }

    /// The plugins that refuse any of them.
    pub fn plugins(&self) -> BTreeSet<&'static str> {
        self.0.iter().flat_map(|(refusals, _)| *refusals).map(|refusal| refusal.plugin).collect()
    }

    /// Each reason with the number of nodes.
    pub fn reasons(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().flat_map(|(refusals, nodes)| refusals.iter().map(|refusal| (&*refusal.reason, *nodes)))
    }
}
