//! Returns to the template of an earlier revision, as the annotation asks for that v1beta1 clients have set with a rollback
//! (Kubernetes: `pkg/controller/deployment/rollback.go`).
//!
//! Never: changes a ReplicaSet; the Deployment gets the template, and the next plan rolls it out. Start reading at
//! [`Rollout::roll_back`].

use super::Rollout;
use super::sets::{ReplicaSetState, is_shared_annotation};
use crate::kinds::deployment::POD_TEMPLATE_HASH;
use crate::object::Object;
use crate::world::{EventType, Plan, WriteVerb};
use serde_json::{Map, Value};

/// The annotation with the revision to return to; 0 for the one before the newest.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Returns the requested revision of a rollback.
pub(super) fn wanted_revision(deployment: &Object) -> Option<i64> {
    deployment.annotation(ROLLBACK_TO)?.parse().ok()
}

impl Rollout<'_> {
    /// Sets the Deployment's template and annotations to those of a revision, or records an event if it cannot. Removes the request.
    pub(super) fn roll_back(mut self, revision: i64) -> Plan {
        if self.new.is_none() {
            // The present template gets a revision first, so that it can be returned to.
            self.create_new_set();
            return self.finish();
        }
        let wanted = if revision == 0 { self.last_revision() } else { Some(revision) };
        let found = wanted.and_then(|wanted| self.sets.iter().position(|set| set.revision() == wanted));
        let name = self.object.name().to_owned();
        let mut object = self.object.clone();
        let (kind, reason, message) = match (wanted, found) {
            (None, _) => (EventType::Warning, NOT_FOUND, "Unable to find last revision.".to_owned()),
            (_, None) => (EventType::Warning, NOT_FOUND, "Unable to find the revision to rollback to.".to_owned()),
            (_, Some(at)) if Some(at) == self.new => {
                let message =
                    format!("The rollback revision contains the same template as current deployment {name:?}");
                (EventType::Warning, "DeploymentRollbackTemplateUnchanged", message)
            }
            (Some(wanted), Some(at)) => {
                take_template(&mut object, &self.sets[at]);
                let message = format!("Rolled back deployment {name:?} to revision {wanted}");
                (EventType::Normal, "DeploymentRollback", message)
            }
        };
        object.unset(&["metadata", "annotations", ROLLBACK_TO]);
        self.plan.write(WriteVerb::Update(object), message.clone());
        self.plan.event(self.owner.row, kind, reason, message);
        self.write_sets();
        self.plan
    }

    /// The second highest revision.
    fn last_revision(&self) -> Option<i64> {
        let mut revisions: Vec<i64> = self.sets.iter().map(ReplicaSetState::revision).collect();
        revisions.sort_unstable();
        revisions.into_iter().rev().nth(1).filter(|revision| *revision > 0)
    }
}

/// The reason of an event about a revision that no ReplicaSet has.
const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";

/// Copies the template and the annotations of a ReplicaSet. Annotations that the two do not share stay.
fn take_template(deployment: &mut Object, set: &ReplicaSetState<'_>) {
    let mut template = Object(set.object().value_at(&["spec", "template"]).cloned().unwrap_or_default());
    template.unset(&["metadata", "labels", POD_TEMPLATE_HASH]);
    deployment.set(&["spec", "template"], template.0);
    let annotations = ["metadata", "annotations"];
    let own = deployment.pairs(&annotations).filter(|(key, _)| !is_shared_annotation(key));
    let of_set = set.object().pairs(&annotations).filter(|(key, _)| is_shared_annotation(key));
    let all: Map<String, Value> = own.chain(of_set).map(|(key, value)| (key.to_owned(), value.into())).collect();
    deployment.set(&annotations, all);
}
