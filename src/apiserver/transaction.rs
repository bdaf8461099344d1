//! The transaction that the pipeline reads from and writes to.

use super::forward::ForwardedWrite;
use super::node_pods::needs_of_pod;
use super::outside::{Asked, AuditAnnotation, WebhookQuestion};
use super::rules::addresses::{ServiceAllocation, ServiceAllocations};
use super::user::User;
use super::{ApiResult, WriteReply};
use crate::kinds::custom::Uncompiled;
use crate::kinds::{Kind, KindRegistry};
use crate::object::edit::TextEdit;
use crate::object::sparse::ReadPart;
use crate::object::{Key, Object, Resource, Str, Time};
use crate::world::access::index::{AccessIndex, BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES};
use serde_json::Value;
use std::rc::Rc;
use std::sync::Arc;

/// A consistent state that can be read and changed: a store's transaction, or the overlay of a tick.
pub trait Transaction {
    /// One object.
    fn get(&self, key: &Key) -> ApiResult<Option<Object>>;

    /// Like [`Transaction::get`], but shares the object instead of copying it where the transaction already holds it.
    fn get_shared(&self, key: &Key) -> ApiResult<Option<Arc<Object>>> {
        Ok(self.get(key)?.map(Arc::new))
    }

    /// The objects of a resource, in one namespace or in all, ordered by namespace and name.
    fn list(&self, resource: Resource, namespace: Option<&str>) -> ApiResult<Vec<Object>>;

    /// Like [`Transaction::list`], but page by page, for a reader that needs only a part of each object. A transaction may read more, and
    /// may give all objects as one page.
    fn read_pages(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        _part: &ReadPart,
        reader: &mut PageReader<'_>,
    ) -> ApiResult<()> {
        reader(self.list(resource, namespace)?)
    }

    /// Namespaces and names of the objects of a resource, in their order; cheaper than reading the objects.
    fn list_names(&self, resource: Resource, namespace: Option<&str>) -> ApiResult<Vec<(String, String)>> {
        let place = |object: &Object| (object.namespace().to_owned(), object.name().to_owned());
        Ok(self.list(resource, namespace)?.iter().map(place).collect())
    }

    /// Lists objects by the selectors of a request (`labelSelector`, `fieldSelector`). `None` where the caller selects from a whole list.
    fn list_selected(
        &self,
        _kind: &Kind,
        _namespace: Option<&str>,
        _query: &[(&'static str, String)],
    ) -> Option<ApiResult<Vec<Object>>> {
        None
    }

    /// Sends a write whole to another API server. `None` where the caller carries it out in this transaction.
    fn forward(&mut self, _write: &ForwardedWrite<'_>) -> Option<ApiResult<WriteReply>> {
        None
    }

    /// Whether another API server carries the writes out, and gives objects that are complete.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether an object exists; cheaper than reading it.
    fn exists(&self, key: &Key) -> ApiResult<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The revision of an object; cheaper than reading it.
    fn revision(&self, key: &Key) -> ApiResult<Option<u64>> {
        Ok(self.get_shared(key)?.map(|object| object.revision()))
    }

    /// A label of an object, where it and its object are there; cheaper than reading the object.
    fn label(&self, key: &Key, label: &str) -> ApiResult<Option<String>> {
        Ok(self.get(key)?.and_then(|object| object.label(label).map(str::to_owned)))
    }

    /// Returns the fields that decide whether a pod may be bound; cheaper than reading the pod.
    fn bind_preconditions(&self, pod: &Key) -> ApiResult<Option<BindPreconditions>> {
        Ok(self.get_shared(pod)?.map(|pod| BindPreconditions::from_pod(&pod)))
    }

    /// Keeps a pod as bound without reading it whole. Where a transaction cannot, nothing is kept and this is false.
    fn bind_in_text(&mut self, _pod: &Key, _binding: &Binding) -> bool {
        false
    }

    /// Stores a copy of a pod that differs in its own metadata alone, without serializing it again. Returns false, and stores nothing,
    /// where the transaction does not support this.
    fn copy_in_text(&mut self, _copy: &PodCopy<'_>) -> bool {
        false
    }

    /// Replaces the status of a pod without reading the pod whole. Where a transaction cannot, nothing is kept and this is false.
    fn replace_status_in_text(&mut self, _pod: &Key, _change: &PodStatusChange<'_>) -> bool {
        false
    }

    /// Returns the allocations of all Services; cheaper than reading the Services for each of many creations.
    fn holdings(&mut self) -> ApiResult<Rc<ServiceAllocations>> {
        let mut holdings = ServiceAllocations::default();
        for service in self.list(Resource("services"), None)? {
            let key = Key::new(Resource("services"), service.namespace(), service.name());
            holdings.put(&key, ServiceAllocation::from_service(&service));
        }
        Ok(Rc::new(holdings))
    }

    /// The roles and bindings of the cluster, by user.
    fn access_index(&self) -> ApiResult<Arc<AccessIndex>> {
        let list = |resource: &'static str| self.list(Resource(resource), None);
        let (roles, cluster_roles) = (list(ROLES)?, list(CLUSTER_ROLES)?);
        Ok(Arc::new(AccessIndex::build(&roles, &cluster_roles, &list(BINDINGS)?, &list(CLUSTER_BINDINGS)?)))
    }

    /// Whether a pod of a node and namespace needs an object, given by its resource and name.
    fn pods_need(&self, node: &str, namespace: &str, (resource, name): (&'static str, &str)) -> ApiResult<bool> {
        let pods = self.list(Resource("pods"), Some(namespace))?;
        let needed = (resource, name.to_owned());
        let is_there = |pod: &Object| pod.text(&["spec", "nodeName"]) == Some(node);
        Ok(pods.iter().any(|pod| is_there(pod) && needs_of_pod(pod).contains(&needed)))
    }

    /// The kinds of the cluster, with those that this transaction's own definitions declare.
    fn kinds(&self) -> &KindRegistry;

    /// Keeps an object, gives it the next revision, and returns it as kept.
    fn put(&mut self, key: &Key, object: Object) -> ApiResult<Arc<Object>>;

    /// Removes an object; `last` is its last state, which watchers get.
    fn remove(&mut self, key: &Key, last: Object) -> ApiResult<Arc<Object>>;

    /// Takes patterns and rules that the validation of this write needs and that are not compiled. True when they will be compiled once the
    /// lock is free, and the write is made again then; otherwise the validation compiles them.
    fn defer_compilation(&mut self, _needed: Vec<Uncompiled>) -> bool {
        false
    }

    /// Calls a webhook. By default webhooks are unavailable.
    fn ask(&mut self, _question: WebhookQuestion) -> Asked {
        Asked::Unavailable
    }

    /// Adds an annotation to the event of the request in the audit log. By default there is no log.
    fn annotate(&mut self, _annotation: AuditAnnotation) {}

    /// Visits all objects of a resource in the order of their names. The visitor gets uid and revision, and reads an object only when it
    /// does not know that revision.
    fn visit(&self, resource: Resource, visitor: &mut ObjectVisitor<'_>) -> ApiResult<()> {
        for object in self.list(resource, None)? {
            visitor(object.uid(), object.revision(), &|| Ok(object.clone()))?;
        }
        Ok(())
    }

    /// The time that goes into the objects.
    fn now(&self) -> Time;

    /// A random number, for uids and generated names.
    fn random(&mut self) -> u64;

    /// N of the cluster's 127.N.0.0/16.
    fn network(&self) -> u8;

    /// The user who writes; `None` for the administrator.
    fn user(&self) -> Option<&User> {
        None
    }

    /// The user as admission sees the request: the administrator where no other is known.
    fn request_user(&self) -> Arc<User> {
        Arc::new(self.user().cloned().unwrap_or_else(User::administrator))
    }

    /// The user whose rights each verb has to check; `None` where the request was authorized before, and for the
    /// administrator.
    fn acting_user(&self) -> Option<&User> {
        None
    }
}

/// Gets the next objects of a list.
pub type PageReader<'r> = dyn FnMut(Vec<Object>) -> ApiResult<()> + 'r;

/// Gets the uid and the revision of an object, and a function that reads it.
pub type ObjectVisitor<'v> = dyn FnMut(&str, u64, &dyn Fn() -> ApiResult<Object>) -> ApiResult<()> + 'v;

/// A write whose result the caller keeps.
pub type AnyWrite<'w> = dyn FnMut(&mut dyn Transaction) -> ApiResult<()> + 'w;

/// The fields of a pod that decide whether it may be bound.
pub struct BindPreconditions {
    /// The pod's uid.
    pub uid: Str,
    /// Whether the pod is being deleted.
    pub is_deleting: bool,
    /// The node to which the pod is bound already.
    pub node: Option<Str>,
    /// Whether the pod has scheduling gates.
    pub is_gated: bool,
    /// The pod's generation.
    pub generation: i64,
}

impl BindPreconditions {
    /// Reads the fields from a pod.
    pub fn from_pod(pod: &Object) -> BindPreconditions {
        BindPreconditions {
            uid: pod.uid().into(),
            is_deleting: pod.deletion().is_some(),
            node: pod.text(&["spec", "nodeName"]).filter(|node| !node.is_empty()).map(Str::from),
            is_gated: !pod.items(&["spec", "schedulingGates"]).is_empty(),
            generation: pod.generation(),
        }
    }
}

/// The changes that a binding makes to a pod.
pub struct Binding {
    /// The node.
    pub node: Str,
    /// The labels that the node gives its pods.
    pub labels: Vec<(&'static str, String)>,
    /// All changes, including the labels.
    pub edits: Vec<TextEdit>,
}

/// A new pod that differs from another one in its name, uid and creation time alone.
pub struct PodCopy<'a> {
    /// The other pod, as it was kept.
    pub template: &'a Object,
    /// The text of the other pod.
    pub text: &'a str,
    /// The new pod. Only its metadata is read.
    pub pod: &'a Object,
}

/// The changes that a new status makes to a pod.
pub struct PodStatusChange<'a> {
    /// The uid of the pod.
    pub uid: &'a str,
    /// The revision of the pod that the status was computed from.
    pub revision: u64,
    /// The status.
    pub status: &'a Value,
    /// A change outside of the status, of a place that no field of a row depends on.
    pub other: Option<TextEdit>,
}
