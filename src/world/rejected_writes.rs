//! Writes that the API server refused: the message, how often, and when a loop may try again.
//!
//! Never: decides the next request; the loop does. Start reading at [`World::refuse`].

use super::World;
use crate::object::{Key, Resource, Time};
use jiff::SignedDuration;
use std::collections::BTreeMap;

/// The pause after a second refusal in a row; doubled each time, up to the longest (client-go: 5 ms to
/// 1000 s). It is longer than the queue's backoff, so that the next plan falls into the pause and reports the refusal.
const FIRST_PAUSE_MILLISECONDS: i64 = 20;
const MAX_PAUSE_MILLISECONDS: i64 = 1_000_000;

/// The last refusal of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRefusal {
    /// The API server's message.
    pub message: String,
    /// Number of consecutive refusals.
    pub times: u32,
    /// Time at which the loop may try again.
    pub again: Time,
    /// Revision at the time of the refusal.
    pub revision: u64,
    /// The object's generation at the time of the refusal.
    generation: i64,
}

/// The last refusals, by the object that the plan is about, and by loop.
#[derive(Default, Clone)]
pub struct WriteRefusals(BTreeMap<Key, BTreeMap<&'static str, WriteRefusal>>);

impl WriteRefusals {
    /// The last refusal of a loop's plan for an object.
    pub fn get(&self, by: &'static str, about: &Key) -> Option<&WriteRefusal> {
        self.0.get(about)?.get(by)
    }

    /// The objects of a resource and namespace about which a plan was refused.
    pub fn objects(&self, resource: &'static str, namespace: &str) -> impl Iterator<Item = &Key> {
        let first = Key::new(Resource(resource), namespace, "");
        let is_wanted = move |key: &&Key| key.resource == first.resource && key.namespace == first.namespace;
        self.0.range(Key::new(Resource(resource), namespace, "")..).map(|(key, _)| key).take_while(is_wanted)
    }

    /// Whether no plan was refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the last refusal of a loop's plan for an object, and returns the former one.
    pub fn replace(&mut self, by: &'static str, about: &Key, refusal: Option<WriteRefusal>) -> Option<WriteRefusal> {
        match refusal {
            Some(refusal) => self.0.entry(about.clone()).or_default().insert(by, refusal),
            None => {
                let loops = self.0.get_mut(about)?;
                let former = loops.remove(by);
                if loops.is_empty() {
                    self.0.remove(about);
                }
                former
            }
        }
    }

    /// Forgets what was refused about an object that is gone.
    pub fn forget_object(&mut self, about: &Key) {
        self.0.remove(about);
    }
}

impl World {
    /// Notes that a plan of a loop was refused; true for the first time in a row. After the first refusal the loop may try again at once,
    /// with a smaller plan; after that there are pauses.
    pub fn refuse(&mut self, by: &'static str, about: &Key, message: &str) -> bool {
        let generation = self.generation(about);
        let revision = self.revision + self.staged_count() as u64;
        let known = self.loop_memory.refusals.get(by, about).filter(|known| known.generation == generation);
        let times = known.map_or(0, |known| known.times) + 1;
        let pause = match times {
            1 => 0,
            _ => FIRST_PAUSE_MILLISECONDS.saturating_mul(1 << (times - 2).min(20)).min(MAX_PAUSE_MILLISECONDS),
        };
        let again = self.now.saturating_add(SignedDuration::from_millis(pause)).unwrap_or(self.now);
        let refusal = WriteRefusal { message: message.to_owned(), times, again, revision, generation };
        self.loop_memory.refusals.replace(by, about, Some(refusal));
        times == 1
    }

    /// Notes that a plan was accepted. A plan made in the pause after a refusal writes nothing, so it does not count.
    pub fn forget_refusal(&mut self, by: &'static str, about: &Key) {
        if self.loop_memory.refusals.get(by, about).is_some_and(|known| known.again <= self.now) {
            self.loop_memory.refusals.replace(by, about, None);
        }
    }

    /// Whether a loop must wait before trying again: the pause has not passed and the object is unchanged.
    pub fn pausing(&self, refusal: &WriteRefusal, about: &Key) -> bool {
        self.now < refusal.again && self.generation(about) == refusal.generation
    }

    fn generation(&self, about: &Key) -> i64 {
        self.get(about).map_or(0, |row| row.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_plan_goes_through() {
        let start: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let key = Key::new(Resource("replicasets.apps"), "default", "web");
        let mut world = World::new(start);
        let mut pauses = Vec::new();
        for _ in 0..20 {
            world.refuse("loop", &key, "no");
            let again = world.loop_memory.refusals.get("loop", &key).unwrap().again;
            pauses.push(again.duration_since(world.now).as_millis());
            // A write that succeeded in the meantime does not end the pause.
            if again > world.now {
                world.forget_refusal("loop", &key);
            }
            world.now = again;
        }
        assert_eq!(pauses[..6], [0, 20, 40, 80, 160, 320]);
        assert_eq!(pauses[15..18], [327_680, 655_360, 1_000_000]);
        world.forget_refusal("loop", &key);
        assert!(world.refuse("loop", &key, "no"), "it begins anew");
    }

    #[test]
    fn refusals_end_with_their_object() {
        let mut world = World::new("2026-01-01T00:00:00Z".parse().unwrap());
        let key = |namespace: &str, name: &str| Key::new(Resource("replicasets.apps"), namespace, name);
        let all = [key("default", "a"), key("default", "b"), key("other", "a")];
        for about in &all {
            world.put(about.clone(), "{}".into());
            world.refuse("loop", about, "no");
            world.refuse("loop", about, "no");
        }
        let refused = |world: &World, namespace: &str| {
            let objects = world.loop_memory.refusals.objects("replicasets.apps", namespace);
            objects.map(|key| key.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!((refused(&world, "default"), refused(&world, "other")), ("a b".into(), "a".into()));
        all.iter().for_each(|about| world.remove(about));
        assert!(world.loop_memory.refusals.is_empty(), "also those whose pause has not passed");
    }
}
