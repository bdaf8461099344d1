//! Ownership of children (Kubernetes: controller references, adoption and release): a controller keeps the children
//! that it owns, adopts matching ones without an owner, and releases owned ones that no longer match.

use crate::object::{Object, OwnerRef};
use crate::world::{Plan, Row, World, WriteVerb};
use std::sync::Arc;

/// An object in its role as the managing controller of others.
pub struct Owner<'w> {
    /// The object.
    pub row: &'w Row,
    /// The owner's `apiVersion`.
    pub api_version: &'static str,
    /// The owner's `kind`.
    pub kind: &'static str,
}

impl Owner<'_> {
    /// The reference that its children carry.
    pub fn reference(&self) -> OwnerRef {
        OwnerRef::controller(self.api_version, self.kind, &self.row.key.name, &self.row.uid)
    }

    /// Its children of a resource. Adds adoptions and releases to the plan. When there are any, the caller returns
    /// the plan and continues in the next one, so that no plan writes a child twice.
    pub fn claim<'w>(&self, world: &'w World, resource: &'static str, plan: &mut Plan) -> Vec<&'w Arc<Row>> {
        self.claim_if(world, resource, |_| true, plan)
    }

    /// Like [`Owner::claim`], but considers only children that pass a test.
    pub fn claim_if<'w>(
        &self,
        world: &'w World,
        resource: &'static str,
        may_adopt: impl Fn(&Row) -> bool,
        plan: &mut Plan,
    ) -> Vec<&'w Arc<Row>> {
        let namespace = &self.row.key.namespace;
        let mut children = Vec::new();
        for child in world.dependents(&self.row.uid).filter(|child| child.key.resource == resource) {
            let managed = child.controller().is_some_and(|owner| *owner.uid == *self.row.uid);
            if !managed || child.key.namespace != *namespace {
                continue;
            }
            if self.row.selects(child) {
                children.push(child);
            } else if !self.row.is_deleting() && !child.is_deleting() {
                self.release(child, plan);
            }
        }
        if self.row.is_deleting() {
            return children;
        }
        for orphan in world.orphans(resource, namespace).filter(|orphan| !orphan.is_deleting()) {
            if self.row.selects(orphan) && may_adopt(orphan) {
                self.adopt(orphan, plan);
                children.push(orphan);
            }
        }
        children
    }

    /// Like [`Owner::claim`], for pods that have a finalizer until they are counted: adopted ones that run get it, and released ones lose
    /// it.
    pub fn claim_tracked<'w>(&self, world: &'w World, finalizer: &str, plan: &mut Plan) -> Vec<&'w Arc<Row>> {
        let written = plan.writes.len();
        let pods = self.claim(world, "pods", plan);
        for write in &mut plan.writes[written..] {
            let WriteVerb::Update(pod) = &mut write.verb else { continue };
            let is_owned =
                pod.items(&["metadata", "ownerReferences"]).iter().any(|owner| owner["uid"] == *self.row.uid);
            match is_owned {
                true if has_ended(pod) => {}
                true => pod.add_finalizer(finalizer),
                false => pod.remove_finalizer(finalizer),
            }
        }
        pods
    }

    fn adopt(&self, child: &Row, plan: &mut Plan) {
        let mut object = child.object();
        let mut owners = object.items(&["metadata", "ownerReferences"]).to_vec();
        owners.retain(|owner| owner["uid"] != *self.row.uid);
        owners.push(self.reference().to_value());
        object.set(&["metadata", "ownerReferences"], owners);
        plan.write(
            WriteVerb::Update(object),
            format!("adopt {}: it matches the selector and has no controller", child.key),
        );
    }

    fn release(&self, child: &Row, plan: &mut Plan) {
        let object = without_owner(child, &self.row.uid);
        plan.write(WriteVerb::Update(object), format!("release {}: it no longer matches the selector", child.key));
    }
}

fn has_ended(pod: &Object) -> bool {
    matches!(pod.text(&["status", "phase"]), Some("Succeeded" | "Failed"))
}

/// The object of a row without its reference to an owner.
pub fn without_owner(child: &Row, uid: &str) -> Object {
    let mut object = child.object();
    object.retain_items(&["metadata", "ownerReferences"], |owner| owner["uid"] != uid);
    object
}
