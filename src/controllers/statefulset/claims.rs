//! The claims of a StatefulSet's pods: their creation, and their retention when the set is scaled down or deleted
//! (`persistentVolumeClaimRetentionPolicy`, KEP-1847).

use super::{ROOT, StatefulSetState, identity};
use crate::controllers::pods;
use crate::object::{Key, OwnerRef};
use crate::world::{EventType, Row, World, WriteVerb};
use jiff::SignedDuration;
use serde_json::Value;
use std::sync::Arc;

pub(super) const CLAIMS: &str = "persistentvolumeclaims";

/// Interval of checks whether the claims of an earlier pod are deleted.
const RECHECK: SignedDuration = SignedDuration::from_secs(1);

/// The owner with which the retention policy deletes a claim.
#[derive(Clone, Copy)]
enum ClaimOwner {
    Set,
    Pod,
}

/// The StatefulSets whose claims can have this name: `TEMPLATE-SET-ORDINAL`.
pub(super) fn sets_with_claim(world: &World, claim: &Key) -> Vec<Key> {
    let Some((pod, ordinal)) = claim.name.rsplit_once('-') else { return Vec::new() };
    if ordinal.parse::<u32>().is_err() {
        return Vec::new();
    }
    let names = pod.match_indices('-').map(|(at, _)| &pod[at + 1..]);
    names.filter_map(|name| world.find(ROOT, &claim.namespace, name)).map(|set| set.key.clone()).collect()
}

impl StatefulSetState<'_> {
    /// Creates those claims of an ordinal that do not exist.
    pub(super) fn create_missing_claims(&mut self, ordinal: i64, pod: &str) {
        let set = self.owner.row;
        for claim in identity::claims(&self.owner, &self.object, ordinal) {
            if self.world.find(CLAIMS, &set.key.namespace, claim.name()).is_none() {
                let message =
                    format!("Create Claim {} Pod {pod} in StatefulSet {} success", claim.name(), set.key.name);
                self.plan.event(set, EventType::Normal, "SuccessfulCreate", message);
                self.plan.write(WriteVerb::Create(claim), format!("{pod} needs it"));
            }
        }
    }

    /// Gives the claims of its pods the owners that the retention policy requires (`stateful_set_utils.go`:
    /// `updateClaimOwnerRefForSetAndPod`).
    pub(super) fn update_claim_owners(&mut self) {
        let goes =
            |when: &str| self.object.text(&["spec", "persistentVolumeClaimRetentionPolicy", when]) == Some("Delete");
        let (when_scaled, when_deleted) = (goes("whenScaled"), goes("whenDeleted"));
        let pods: Vec<(i64, &Arc<Row>)> = self.pods.iter().map(|(ordinal, pod)| (*ordinal, *pod)).collect();
        for (ordinal, pod) in pods {
            if pods::is_full(&self.plan) {
                return;
            }
            let wanted = match when_scaled && !self.is_wanted(ordinal) {
                true => Some(ClaimOwner::Pod),
                false => when_deleted.then_some(ClaimOwner::Set),
            };
            for name in identity::claim_names(&self.owner, &self.object, ordinal) {
                self.update_claim_owner(&name, pod, wanted);
            }
        }
    }

    fn update_claim_owner(&mut self, name: &str, pod: &Row, wanted: Option<ClaimOwner>) {
        let Some(claim) = self.world.find(CLAIMS, &self.owner.row.key.namespace, name) else { return };
        let own = [self.owner.reference(), OwnerRef::controller("v1", "Pod", &pod.key.name, &pod.uid)];
        let is_named = |owner: &OwnerRef, one: &OwnerRef| {
            (&owner.api_version, &owner.kind, &owner.name) == (&one.api_version, &one.kind, &one.name)
        };
        let is_ours = |owner: &OwnerRef| own.iter().any(|one| is_named(owner, one));
        // The claim belongs to an earlier set or pod of the same name.
        let is_stale =
            claim.owners.iter().any(|owner| own.iter().any(|one| is_named(owner, one) && owner.uid != one.uid));
        // Claims that others control are given up.
        let is_anothers = claim.owners.iter().any(|owner| owner.controller && !is_ours(owner));
        let wanted = wanted.filter(|_| !is_anothers);
        let owner = wanted.map(|owner| match owner {
            ClaimOwner::Set => &own[0],
            ClaimOwner::Pod => &own[1],
        });
        let identity = |owner: &OwnerRef| (owner.uid.clone(), owner.controller);
        let is_done = claim.owners.iter().filter(|owner| is_ours(owner)).map(identity).eq(owner.map(identity));
        if is_done || is_stale || claim.is_deleting() {
            return;
        }
        let mut object = claim.object();
        let entries = object.items(&["metadata", "ownerReferences"]).iter().zip(object.owners());
        let mut owners: Vec<Value> =
            entries.filter(|(_, owner)| !is_ours(owner)).map(|(entry, _)| entry.clone()).collect();
        owners.extend(owner.map(OwnerRef::to_value));
        if owners.is_empty() {
            object.unset(&["metadata", "ownerReferences"]);
        } else {
            object.set(&["metadata", "ownerReferences"], owners);
        }
        let retention = match wanted {
            Some(ClaimOwner::Pod) => "deleted with its pod, which is scaled down",
            Some(ClaimOwner::Set) => "deleted with its StatefulSet",
            None => "kept",
        };
        self.plan.write(WriteVerb::Update(object), format!("the claim is {retention}"));
    }

    /// Whether the claims of an ordinal belong to a pod that was scaled away, and are not deleted yet
    /// (`PodClaimIsStale`).
    pub(super) fn awaits_claims(&mut self, ordinal: i64) -> bool {
        let names = identity::claim_names(&self.owner, &self.object, ordinal);
        let is_of_the_past =
            |claim: &Row| claim.is_deleting() || claim.controller().is_some_and(|owner| owner.kind == "Pod");
        let stale = names.iter().find(|name| {
            let claim = self.world.find(CLAIMS, &self.owner.row.key.namespace, name);
            claim.is_some_and(|claim| is_of_the_past(claim))
        });
        let Some(stale) = stale else { return false };
        self.plan.wait(format!("waiting for the claim {stale} of the previous pod to be deleted"));
        self.plan.wake_at(self.world.now + RECHECK);
        true
    }
}
