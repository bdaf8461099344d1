//! From effects to machines: pods of simulated nodes go to the simulated twin, all others to this machine.

use crate::object::{Str, Time};
use crate::runtime::machine::{Host, Machine};
use crate::runtime::simulated::Simulated;
use crate::world::{Effect, Report, World};

/// The machines that carry out effects.
pub struct Machines {
    /// This machine; none with `--no-local-node`.
    pub local: Option<Machine>,
    /// The twin that only pretends.
    pub simulated: Simulated,
}

impl Machines {
    /// Hands effects over, and notes in the World's facts that they are under way.
    pub fn carry_out(&mut self, world: &mut World, effects: Vec<Effect>) {
        let now = world.now;
        for effect in effects {
            world.facts.ordered(&effect, now);
            let pretends = is_simulated(world, pod_of(&effect));
            match &mut self.local {
                Some(local) if !pretends => local.carry_out(now, &effect),
                _ => self.simulated.carry_out(now, &effect),
            }
        }
    }

    /// What the simulated twin has to report by now.
    pub fn pretended(&mut self, now: Time) -> Vec<Report> {
        self.simulated.due(now)
    }

    /// When the simulated twin has its next report.
    pub fn next(&self) -> Option<Time> {
        self.simulated.next()
    }
}

fn pod_of(effect: &Effect) -> &Str {
    match effect {
        Effect::Start(start) => &start.pod_uid,
        Effect::Stop { pod_uid, .. } | Effect::Remove { pod_uid } => pod_uid,
        Effect::Probe(probe) => &probe.pod_uid,
    }
}

fn is_simulated(world: &World, pod_uid: &Str) -> bool {
    let node = world.facts.pods.get(pod_uid).map(|pod| &pod.node);
    node.and_then(|node| world.facts.nodes.get(node)).is_some_and(|node| node.simulated)
}
