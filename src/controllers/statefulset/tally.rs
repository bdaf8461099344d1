//! A StatefulSet's status.

use super::StatefulSetState;
use crate::controllers::revisions::REVISION_HASH;
use crate::controllers::status;
use crate::world::{Plan, Row};

impl StatefulSetState<'_> {
    /// Counts the pods. When all are ready and have the newest revision, it becomes the current one.
    pub(super) fn count(mut self) -> Plan {
        let newest = self.history.newest().name().to_owned();
        let current = self.object.text(&["status", "currentRevision"]).filter(|name| self.history.find(name).is_some());
        let mut current = current.unwrap_or(&newest).to_owned();
        let pods: Vec<_> = self.pods.values().copied().collect();
        let of = |revision: &str| pods.iter().filter(|pod| has_revision(pod, revision)).count() as i64;
        let (mut in_current, updated) = (of(&current), of(&newest));
        let ready = pods.iter().filter(|pod| self.is_ready(pod)).count() as i64;
        let available = pods.iter().filter(|pod| self.is_available(pod)).count() as i64;
        let all = pods.len() as i64;
        let rolls = self.object.text(&["spec", "updateStrategy", "type"]) != Some("OnDelete");
        if rolls && updated == self.replicas && all == self.replicas && ready == self.replicas {
            (current, in_current) = (newest.clone(), updated);
        }
        let mut new = status::status_map(&self.object);
        new.insert("replicas".into(), all.into());
        new.insert("availableReplicas".into(), available.into());
        status::set_count(&mut new, "readyReplicas", ready);
        status::set_count(&mut new, "currentReplicas", in_current);
        status::set_count(&mut new, "updatedReplicas", updated);
        new.insert("currentRevision".into(), current.into());
        new.insert("updateRevision".into(), newest.into());
        new.insert("observedGeneration".into(), self.owner.row.generation.into());
        new.entry("collisionCount").or_insert(0.into());
        status::write(&mut self.plan, self.object, new.into(), "the counts of pods changed");
        self.plan
    }
}

fn has_revision(pod: &Row, revision: &str) -> bool {
    !pod.is_deleting() && pod.label(REVISION_HASH) == Some(revision)
}
