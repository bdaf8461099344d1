//! Applies changes of the server's collections to a node's copy.
//!
//! Never: decides what is watched. Start reading at [`write()`].

use super::merge;
use super::node_context::JoinedFacts;
use super::stored_copy::{remove_other_nodes, remove_other_pods, remove_others};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::stored_copy::CopyTxn;
use crate::kinds;
use crate::object::{Object, Resource};
use crate::store::StoreError;

/// The name of the collection of the node's pods.
pub const PODS: &str = "pods";
/// The name of the collection with the node alone.
pub const NODES: &str = "nodes";
/// The name of the collection of the pods of other machines.
pub const LINKED_PODS: &str = "linked-pods";
/// The name of the collection of all Nodes; only the Nodes of linked machines are kept.
pub const LINKED_NODES: &str = "linked-nodes";

/// A change of a collection.
pub enum CollectionChange {
    /// All objects that it has now.
    All(Vec<Object>),
    /// A new or changed object.
    Put(Object),
    /// The last state of a removed object.
    Gone(Object),
}

impl CollectionChange {
    /// Whether the collection has an object after it.
    pub fn brings_any(&self) -> bool {
        match self {
            CollectionChange::All(objects) => !objects.is_empty(),
            CollectionChange::Put(_) => true,
            CollectionChange::Gone(_) => false,
        }
    }
}

/// Takes a change into the copy, but none of the objects that are held back.
pub fn write(
    copy: &mut CopyTxn<'_>,
    facts: &JoinedFacts,
    source: &str,
    change: CollectionChange,
    is_held: impl Fn(&Object) -> bool,
) -> Result<(), StoreError> {
    match change {
        CollectionChange::All(objects) => {
            remove_unlisted(copy, facts, source, &objects)?;
            let mut wanted = objects.into_iter().filter(|object| !is_held(object));
            wanted.try_for_each(|object| put(copy, facts, source, object))
        }
        CollectionChange::Put(object) if is_held(&object) => Ok(()),
        CollectionChange::Put(object) => put(copy, facts, source, object),
        CollectionChange::Gone(object) => remove(copy, facts, source, &object),
    }
}

/// Removes objects that are missing from a list.
fn remove_unlisted(
    copy: &mut CopyTxn<'_>,
    facts: &JoinedFacts,
    source: &str,
    objects: &[Object],
) -> Result<(), StoreError> {
    match source {
        // Without its Node the node could not end its pods.
        NODES => Ok(()),
        LINKED_NODES => remove_other_nodes(copy, objects, &facts.node),
        PODS => remove_other_pods(copy, objects, |node| node == facts.node),
        LINKED_PODS => remove_other_pods(copy, objects, |node| node != facts.node),
        source => remove_others(copy, source, objects),
    }
}

fn remove(copy: &mut CopyTxn<'_>, facts: &JoinedFacts, source: &str, object: &Object) -> Result<(), StoreError> {
    let resource = match source {
        NODES => {
            facts.log("the server has removed this node: its pods end there; `kloop node join` registers it again");
            return Ok(());
        }
        LINKED_NODES if object.name() == facts.node => return Ok(()),
        LINKED_NODES => NODES,
        LINKED_PODS => PODS,
        source => source.split('/').next().unwrap_or(source),
    };
    let Some(kind) = kinds::by_resource(Resource::intern(resource)) else { return Ok(()) };
    copy.remove(&key_of(kind, object), object.uid())
}

/// Writes one object as the node keeps it.
fn put(copy: &mut CopyTxn<'_>, facts: &JoinedFacts, source: &str, object: Object) -> Result<(), StoreError> {
    match source {
        LINKED_NODES => return put_linked_node(copy, facts, &object),
        LINKED_PODS => return copy.put(&kinds::pod::KIND, merge::copy_linked_pod(&object)),
        _ => {}
    }
    let resource = source.split('/').next().unwrap_or(source);
    let Some(kind) = kinds::by_resource(Resource::intern(resource)) else { return Ok(()) };
    let key = key_of(kind, &object);
    let local = copy.get(&key)?;
    let merged = match source {
        PODS => {
            let is_local = local.as_ref().is_some_and(|local| local.uid() == object.uid());
            if !facts.pods.put(&object, &key, is_local) {
                return Ok(());
            }
            merge::merge_pod(object, local.as_ref())
        }
        NODES => merge::merge_node(object, local.as_ref(), facts.traits.is_simulated),
        _ => merge::copy(object),
    };
    copy.put_over(kind, &key, merged, local.as_ref())
}

/// Writes the parts of another machine's Node that concern its link; removes a Node without a link.
fn put_linked_node(copy: &mut CopyTxn<'_>, facts: &JoinedFacts, object: &Object) -> Result<(), StoreError> {
    if object.name() == facts.node {
        return Ok(());
    }
    match merge::copy_linked_node(object) {
        Some(node) => copy.put(&kinds::node::KIND, node),
        None => copy.remove(&key_of(&kinds::node::KIND, object), object.uid()),
    }
}
