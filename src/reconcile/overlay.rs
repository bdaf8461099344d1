//! The overlay of a tick as a transaction: writes are staged in the World, so that the next plan sees them.

use crate::apiserver::outside::{Asked, WebhookQuestion, WriteInputs};
use crate::apiserver::transaction::{BindPreconditions, Binding, ObjectVisitor, PodCopy, PodStatusChange};
use crate::apiserver::user::User;
use crate::apiserver::{ApiResult, Transaction};
use crate::kinds::KindRegistry;
use crate::object::{Key, Object, Resource, Time};
use crate::world::{Row, World};
use hashbrown::HashMap;
use std::sync::Arc;

/// The World with the writes of this tick on top.
pub struct Overlay<'a> {
    /// The World that plans see.
    pub world: &'a mut World,
    /// Revision given to the last staged write; the real one is given at the commit.
    pub revision: u64,
    /// The last states of the objects that this tick removes.
    pub last: &'a mut HashMap<Key, Arc<Object>>,
    /// The user that admission sees: that of the loop whose plan it is.
    pub user: &'a Arc<User>,
    /// The answers of webhooks, and the numbers of earlier attempts; `None` in a preview, which calls no webhooks.
    pub inputs: Option<&'a mut WriteInputs>,
    /// Source of random numbers.
    pub random: &'a mut dyn FnMut() -> u64,
}

impl Overlay<'_> {
    /// Stages a row that has the next revision, if there is one.
    fn stage_row(&mut self, row: Option<Row>) -> bool {
        let Some(row) = row else { return false };
        self.revision += 1;
        self.world.stage_row(row);
        true
    }
}

impl Transaction for Overlay<'_> {
    fn get(&self, key: &Key) -> ApiResult<Option<Object>> {
        Ok(self.world.get(key).map(|row| row.object()))
    }

    fn get_shared(&self, key: &Key) -> ApiResult<Option<Arc<Object>>> {
        Ok(self.world.get(key).map(|row| row.shared()))
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> ApiResult<Vec<Object>> {
        Ok(match namespace {
            Some(namespace) => self.world.list_in(resource.0, namespace).map(|row| row.object()).collect(),
            None => self.world.list(resource.0).map(|row| row.object()).collect(),
        })
    }

    fn kinds(&self) -> &KindRegistry {
        &self.world.kinds
    }

    fn exists(&self, key: &Key) -> ApiResult<bool> {
        Ok(self.world.get(key).is_some())
    }

    fn revision(&self, key: &Key) -> ApiResult<Option<u64>> {
        Ok(self.world.get(key).map(|row| row.revision))
    }

    fn label(&self, key: &Key, label: &str) -> ApiResult<Option<String>> {
        Ok(self.world.get(key).and_then(|row| row.label(label).map(str::to_owned)))
    }

    fn bind_preconditions(&self, pod: &Key) -> ApiResult<Option<BindPreconditions>> {
        Ok(self.world.get(pod).map(|row| BindPreconditions {
            uid: row.uid.clone(),
            is_deleting: row.is_deleting(),
            node: row.pod().and_then(|pod| pod.node.clone()),
            is_gated: is_gated(row),
            generation: row.generation,
        }))
    }

    fn bind_in_text(&mut self, pod: &Key, binding: &Binding) -> bool {
        let row = self.world.get(pod);
        self.stage_row(row.and_then(|row| row.bound(&binding.node, &binding.labels, &binding.edits, self.revision + 1)))
    }

    fn copy_in_text(&mut self, copy: &PodCopy<'_>) -> bool {
        let PodCopy { template, text, pod } = *copy;
        let row = self.world.get(&Key::new(Resource("pods"), template.namespace(), template.name()));
        let row = row.filter(|row| row.is_version(template.uid(), template.revision()));
        self.stage_row(row.and_then(|row| row.copied(pod, text, self.revision + 1)))
    }

    fn replace_status_in_text(&mut self, pod: &Key, change: &PodStatusChange<'_>) -> bool {
        let row = self.world.get(pod).filter(|row| row.is_version(change.uid, change.revision));
        self.stage_row(row.and_then(|row| row.with_status(change.status, change.other.as_ref(), self.revision + 1)))
    }

    fn put(&mut self, key: &Key, mut object: Object) -> ApiResult<Arc<Object>> {
        self.revision += 1;
        object.set(&["metadata", "resourceVersion"], self.revision.to_string());
        let object = Arc::new(object);
        self.world.stage(key.clone(), Some(object.clone()));
        Ok(object)
    }

    fn remove(&mut self, key: &Key, last: Object) -> ApiResult<Arc<Object>> {
        let last = Arc::new(last);
        self.revision += 1;
        self.world.stage(key.clone(), None::<Object>);
        self.last.insert(key.clone(), last.clone());
        Ok(last)
    }

    fn now(&self) -> Time {
        self.world.now
    }

    fn random(&mut self) -> u64 {
        match &mut self.inputs {
            Some(inputs) => inputs.number(&mut *self.random),
            None => (self.random)(),
        }
    }

    fn visit(&self, resource: Resource, visitor: &mut ObjectVisitor<'_>) -> ApiResult<()> {
        self.world.list(resource.0).try_for_each(|row| visitor(&row.uid, row.revision, &|| Ok(row.object())))
    }

    fn ask(&mut self, question: WebhookQuestion) -> Asked {
        let now = self.world.now;
        self.inputs.as_mut().map_or(Asked::Unavailable, |inputs| inputs.ask(question, now))
    }

    fn request_user(&self) -> Arc<User> {
        self.user.clone()
    }

    fn network(&self) -> u8 {
        self.world.settings.network
    }
}

/// Whether a pod has scheduling gates. Decodes the pod only if the text of its scheduling fields mentions them.
fn is_gated(row: &Row) -> bool {
    let text = row.pod().and_then(|pod| pod.pod_spec.as_ref());
    text.is_some_and(|text| text.contains("schedulingGates"))
        && !row.body().items(&["spec", "schedulingGates"]).is_empty()
}
