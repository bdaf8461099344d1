//! The garbage collector: deletes objects whose owners are gone, releases owners that waited for their dependents, and
//! removes the owner reference from orphaned dependents.
//!
//! Its root is every resource. An owner counts as gone when its uid does not exist, or exists under another kind, name or
//! namespace than the reference says: the uid alone is not trusted (kubernetes issue 65200). A dependent stays if its owner cannot be
//! looked up: the cluster does not know the owner's kind, or the owner is namespaced and the dependent is not.

use super::controller_ref::without_owner;
use crate::object::{Key, Object, OwnerRef};
use crate::world::{EventType, Loop, Plan, Propagation, Row, World, WriteVerb};
use std::collections::HashSet;
use std::sync::Arc;

/// The loop of the garbage collector.
pub const LOOP: Loop = Loop { name: "garbage-collector-controller", root: "*", concerns, plan, ..Loop::BASE };

/// Finalizer of an owner that waits for its blocking dependents.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are to be orphaned.
pub const ORPHAN: &str = "orphan";
/// Maximum number of dependents that one plan releases from their owner.
const RELEASES: usize = 50;
/// Maximum number of indirect owners in which one plan searches a circle.
const MAX_CIRCLE: usize = 1000;

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let mut keys = Vec::new();
    let live = world.get(&row.key).filter(|live| live.uid == row.uid);
    if live.is_none_or(|live| waits_for_dependents(live)) {
        keys.extend(world.dependents(&row.uid).map(|dependent| dependent.key.clone()));
    }
    if live.is_some() && (!row.owners.is_empty() || row.has_finalizer(FOREGROUND) || row.has_finalizer(ORPHAN)) {
        keys.push(row.key.clone());
    }
    let owners = row.owners.iter().filter_map(|owner| world.by_uid(&owner.uid));
    let in_deletion =
        |owner: &&Arc<Row>| owner.is_deleting() && (owner.has_finalizer(FOREGROUND) || owner.has_finalizer(ORPHAN));
    keys.extend(owners.filter(in_deletion).map(|owner| owner.key.clone()));
    keys
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    if !row.is_deleting() {
        delete_without_owners(world, row, &mut plan);
    } else if row.has_finalizer(ORPHAN) {
        orphan_dependents(world, row, &mut plan);
    } else if row.has_finalizer(FOREGROUND) {
        await_dependents(world, row, &mut plan);
    }
    plan
}

/// Whether an object is being deleted in the foreground.
fn waits_for_dependents(row: &Row) -> bool {
    row.is_deleting() && row.has_finalizer(FOREGROUND)
}

/// State of an owner.
#[derive(PartialEq)]
enum OwnerState {
    Exists,
    /// Being deleted in the foreground.
    Waiting,
    Gone,
    /// Its kind is unknown, or it is in a namespace and its dependent in none.
    Unresolvable,
}

fn owner_state(world: &World, row: &Row, owner: &OwnerRef) -> OwnerState {
    let kind = world.kinds.by_kind(&owner.api_version, &owner.kind);
    let Some(kind) = kind.filter(|kind| !kind.namespaced || !row.key.namespace.is_empty()) else {
        return OwnerState::Unresolvable;
    };
    let live = world.by_uid(&owner.uid).filter(|live| {
        let at = &live.key;
        at.resource == kind.resource
            && *at.name == *owner.name
            && (at.namespace.is_empty() || at.namespace == row.key.namespace)
    });
    match live {
        None => OwnerState::Gone,
        Some(live) if waits_for_dependents(live) => OwnerState::Waiting,
        Some(_) => OwnerState::Exists,
    }
}

/// Deletes an object when all of its owners are gone.
fn delete_without_owners(world: &World, row: &Arc<Row>, plan: &mut Plan) {
    if row.owners.is_empty() {
        return;
    }
    let states: Vec<OwnerState> = row.owners.iter().map(|owner| owner_state(world, row, owner)).collect();
    let not_existing = || row.owners.iter().zip(&states).filter(|(_, state)| **state != OwnerState::Exists);
    for (owner, _) in not_existing().filter(|(_, state)| **state != OwnerState::Waiting) {
        warn_of_foreign_owner(world, row, owner, plan);
    }
    // As long as one owner may exist, nothing is decided.
    if states.contains(&OwnerState::Unresolvable) {
        return;
    }
    if states.contains(&OwnerState::Exists) {
        let uids: Vec<&str> = not_existing().map(|(owner, _)| owner.uid.as_str()).collect();
        if !uids.is_empty() {
            let object = uids.iter().fold(row.object(), |object, uid| drop_owner(object, uid));
            plan.write(WriteVerb::Update(object), "some owners are gone: their references are removed");
        }
        return;
    }
    let has_dependents = world.dependents(&row.uid).next().is_some();
    let (propagation, why) = if states.contains(&OwnerState::Waiting) && has_dependents {
        (Propagation::Foreground, "its owner is being deleted and waits for it")
    } else if states.contains(&OwnerState::Waiting) {
        (Propagation::Background, "its owner is being deleted and waits for it")
    } else {
        (Propagation::Background, "every owner is gone")
    };
    plan.delete_with(row, None, propagation, why);
}

fn drop_owner(mut object: Object, uid: &str) -> Object {
    let owners = object.items(&["metadata", "ownerReferences"]).iter();
    let left: Vec<_> = owners.filter(|owner| owner["uid"] != uid).cloned().collect();
    object.set(&["metadata", "ownerReferences"], left);
    object
}

/// Warns about an owner in another namespace. Such an owner does not count: owners are in the same namespace or
/// cluster-scoped.
fn warn_of_foreign_owner(world: &World, row: &Row, owner: &OwnerRef, plan: &mut Plan) {
    let foreign = world
        .by_uid(&owner.uid)
        .is_some_and(|live| !live.key.namespace.is_empty() && live.key.namespace != row.key.namespace);
    if foreign {
        let OwnerRef { api_version, kind, name, uid, .. } = owner;
        let namespace = &row.key.namespace;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in namespace \"{namespace}\""
        );
        plan.event(row, EventType::Warning, "OwnerRefInvalidNamespace", message);
    }
}

/// Removes the references to this owner from its dependents in batches, then the owner's finalizer.
fn orphan_dependents(world: &World, row: &Row, plan: &mut Plan) {
    let mut dependents = world.dependents(&row.uid);
    for dependent in dependents.by_ref().take(RELEASES) {
        plan.write(WriteVerb::Update(without_owner(dependent, &row.uid)), "its owner is deleted and orphans it");
    }
    // While dependents remain, these writes make the owner due again.
    if dependents.next().is_none() {
        remove_finalizer(row, ORPHAN, "all dependents are orphaned", plan);
    }
}

/// Removes an owner's finalizer when no dependent blocks its deletion. The dependents' own plans delete them.
fn await_dependents(world: &World, row: &Row, plan: &mut Plan) {
    let blocking = world.blocking_dependents(&row.uid);
    let Some((blocking, first)) = blocking.and_then(|keys| Some((keys, keys.iter().next()?))) else {
        return remove_finalizer(row, FOREGROUND, "no dependent blocks the deletion", plan);
    };
    plan.wait(format!("waiting for {} dependents to be deleted, the first is {first}", blocking.len()));
    // Owners that own each other would block each other forever.
    for dependent in owners_in_circle(world, row).filter(|owner| blocking.contains(&owner.key)).take(RELEASES) {
        plan.write(WriteVerb::Update(unblocked(dependent, &row.uid)), "owners wait for each other in a circle");
    }
}

/// The owners that wait for a row, the owners that wait for those, and so on. If one of them is a dependent of the row, the row is in a
/// cycle.
fn owners_in_circle<'w>(world: &'w World, row: &'w Row) -> impl Iterator<Item = &'w Arc<Row>> {
    let mut found: Vec<&Arc<Row>> = Vec::new();
    let mut seen = HashSet::new();
    let mut next = Some(row);
    for index in 0.. {
        let Some(row) = next.filter(|_| found.len() < MAX_CIRCLE) else { break };
        let owners =
            row.owners.iter().filter(|owner| owner.block_owner_deletion).filter_map(|owner| world.by_uid(&owner.uid));
        found.extend(owners.filter(|owner| waits_for_dependents(owner) && seen.insert(&owner.key)));
        next = found.get(index).map(|owner| &***owner);
    }
    found.into_iter()
}

fn unblocked(dependent: &Row, uid: &str) -> Object {
    let mut object = dependent.object();
    let mut owners = object.items(&["metadata", "ownerReferences"]).to_vec();
    for owner in owners.iter_mut().filter(|owner| owner["uid"] == uid) {
        owner["blockOwnerDeletion"] = false.into();
    }
    object.set(&["metadata", "ownerReferences"], owners);
    object
}

fn remove_finalizer(row: &Row, finalizer: &str, why: &str, plan: &mut Plan) {
    plan.write(WriteVerb::Update(row.object().without_finalizer(finalizer)), why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{Cluster, cluster};
    use serde_json::{Value, json};

    /// Creates a ConfigMap with owners, each given by name and `blockOwnerDeletion`.
    fn map(cluster: &mut Cluster, name: &str, owners: &[(&str, bool)]) {
        let reference = |(owner, blocks): &(&str, bool)| {
            let uid = cluster.object("configmaps", owner).uid().to_owned();
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocks})
        };
        let owners: Vec<Value> = owners.iter().map(reference).collect();
        cluster.create(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}}),
        );
    }

    fn maps(cluster: &Cluster) -> String {
        cluster.names("configmaps").replace("kube-root-ca.crt ", "")
    }

    /// grandchild -> child -> owner, and half, which also has another owner.
    fn family() -> Cluster {
        let mut cluster = cluster("");
        map(&mut cluster, "other", &[]);
        map(&mut cluster, "owner", &[]);
        map(&mut cluster, "child", &[("owner", true)]);
        map(&mut cluster, "grandchild", &[("child", true)]);
        map(&mut cluster, "half", &[("owner", false), ("other", false)]);
        cluster.settle();
        cluster
    }

    #[test]
    fn background_and_foreground_deletion_delete_dependents() {
        for propagation in [Propagation::Background, Propagation::Foreground] {
            let mut cluster = family();
            cluster.delete("configmaps", "owner", propagation);
            cluster.settle();
            assert_eq!(maps(&cluster), "half other", "{propagation:?}");
            assert_eq!(cluster.object("configmaps", "half").owners().len(), 1);
        }
    }

    #[test]
    fn orphaned_dependents_stay() {
        let mut cluster = family();
        cluster.delete("configmaps", "owner", Propagation::Orphan);
        cluster.settle();
        assert_eq!(maps(&cluster), "child grandchild half other");
        assert!(cluster.object("configmaps", "child").owners().is_empty());
    }

    #[test]
    fn owner_waits_for_a_dependent_with_a_finalizer() {
        let mut cluster = family();
        cluster.patch("configmaps", "child", json!({"metadata": {"finalizers": ["x.dev/hold"]}}));
        cluster.delete("configmaps", "owner", Propagation::Foreground);
        cluster.settle();
        assert_eq!(maps(&cluster), "child half other owner");
        assert_eq!(cluster.value("configmaps", "owner", "/metadata/finalizers"), json!(["foregroundDeletion"]));
        cluster.patch("configmaps", "child", json!({"metadata": {"finalizers": null}}));
        cluster.settle();
        assert_eq!(maps(&cluster), "half other");
    }

    /// A ConfigMap that waits for this many dependents, which have finalizers.
    fn owner_that_waits_for(dependents: usize) -> Cluster {
        let mut cluster = cluster("");
        map(&mut cluster, "owner", &[]);
        for number in 0..dependents {
            let name = format!("held-{number}");
            map(&mut cluster, &name, &[("owner", true)]);
            cluster.patch("configmaps", &name, json!({"metadata": {"finalizers": ["x.dev/hold"]}}));
        }
        cluster.delete("configmaps", "owner", Propagation::Foreground);
        cluster.settle();
        cluster
    }

    #[test]
    fn release_of_one_dependent_costs_the_same_whatever_their_number() {
        let cost = |dependents: usize| {
            let cluster = owner_that_waits_for(dependents);
            let (owner, held) = (cluster.key("configmaps", "owner"), cluster.key("configmaps", "held-7"));
            let row = cluster.world.get(&held).unwrap().clone();
            let before = cluster.world.lookups.get();
            assert_eq!(concerns(&cluster.world, &row), [held, owner.clone()]);
            let plan = plan(&cluster.world, &owner);
            assert!(plan.waits[0].contains(&format!("{dependents} dependents")), "{:?}", plan.waits);
            cluster.world.lookups.get() - before
        };
        assert_eq!(cost(20), cost(200), "rows looked up among 20 dependents, and among 200");
    }

    #[test]
    fn orphaning_releases_all_dependents_some_at_a_time() {
        let mut cluster = cluster("");
        map(&mut cluster, "owner", &[]);
        (0..3 * RELEASES + 1).for_each(|number| map(&mut cluster, &format!("child-{number}"), &[("owner", true)]));
        cluster.settle();
        cluster.delete("configmaps", "owner", Propagation::Orphan);
        let owner = cluster.key("configmaps", "owner");
        let first = plan(&cluster.world, &owner);
        assert_eq!(first.writes.len(), RELEASES);
        cluster.settle();
        assert!(cluster.world.get(&owner).is_none(), "the owner has gone");
        let children = cluster.world.list("configmaps").filter(|row| row.key.name.starts_with("child-"));
        assert_eq!(children.filter(|row| row.owners.is_empty()).count(), 3 * RELEASES + 1);
    }

    #[test]
    fn references_to_missing_objects_are_no_owners() {
        let lost = |reference: Value| {
            let mut cluster = cluster("");
            cluster.create(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "far"}}));
            cluster.create(json!({"kind": "ConfigMap", "metadata": {"name": "there", "namespace": "far"}}));
            let uid = cluster.world.find("configmaps", "far", "there").unwrap().uid.to_string();
            let mut reference = reference;
            if reference["uid"] == "far" {
                reference["uid"] = uid.into();
            }
            cluster.create(json!({"kind": "ConfigMap", "metadata": {"name": "lost", "ownerReferences": [reference]}}));
            cluster.settle();
            (cluster.world.find("configmaps", "default", "lost").is_some(), cluster.logged("OwnerRefInvalidNamespace"))
        };
        let owner = |api_version: &str, kind: &str, name: &str, uid: &str| json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid});
        assert_eq!(lost(owner("v1", "ConfigMap", "gone", "nowhere")), (false, false));
        assert_eq!(lost(owner("v1", "ConfigMap", "there", "far")), (false, true));
        // u1 is the node a: cluster-scoped owners count under their own name and kind.
        assert_eq!(lost(owner("v1", "Node", "a", "u1")), (true, false));
        assert_eq!(lost(owner("v1", "Node", "b", "u1")), (false, false));
        assert_eq!(lost(owner("v1", "ConfigMap", "a", "u1")), (false, false));
        // The definition of this kind may be created later.
        assert_eq!(lost(owner("example.com/v1", "Boat", "ann", "nowhere")), (true, false));
    }

    #[test]
    fn cluster_scoped_objects_are_kept_for_owners_in_a_namespace() {
        let mut cluster = cluster("");
        map(&mut cluster, "owner", &[]);
        let uid = cluster.object("configmaps", "owner").uid().to_owned();
        let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
        for (name, uid) in [("near", &*uid), ("lost", "nowhere")] {
            let metadata = json!({"name": name, "ownerReferences": owner(uid)});
            cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        }
        cluster.settle();
        assert!(["near", "lost"].iter().all(|name| cluster.world.find("namespaces", "", name).is_some()));
        assert!(cluster.logged("OwnerRefInvalidNamespace"));
    }

    #[test]
    fn cycle_of_owners_does_not_block_itself() {
        let mut cluster = family();
        let uid = cluster.object("configmaps", "child").uid().to_owned();
        let back =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "child", "uid": uid, "blockOwnerDeletion": true}]);
        cluster.patch("configmaps", "owner", json!({"metadata": {"ownerReferences": back}}));
        cluster.delete("configmaps", "owner", Propagation::Foreground);
        cluster.settle();
        assert_eq!(maps(&cluster), "half other");
    }
    #[test]
    fn longer_owner_cycle_is_collected_however_its_members_are_deleted() {
        for (propagation, deleted) in [
            (Propagation::Foreground, &["a"][..]),
            (Propagation::Background, &["a"]),
            (Propagation::Foreground, &["a", "b", "c", "d"]),
        ] {
            let mut cluster = cluster("");
            map(&mut cluster, "a", &[]);
            for (name, owner) in [("b", "a"), ("c", "b"), ("d", "c")] {
                map(&mut cluster, name, &[(owner, true)]);
            }
            let uid = cluster.object("configmaps", "d").uid().to_owned();
            let last =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "d", "uid": uid, "blockOwnerDeletion": true});
            cluster.patch("configmaps", "a", json!({"metadata": {"ownerReferences": [last]}}));
            cluster.settle();
            let left =
                |cluster: &Cluster| cluster.names("configmaps").replace("kube-root-ca.crt", "").trim().to_owned();
            assert_eq!(left(&cluster), "a b c d");
            deleted.iter().for_each(|name| cluster.delete("configmaps", name, propagation));
            cluster.settle();
            assert_eq!(left(&cluster), "", "{propagation:?} {deleted:?}");
        }
    }
}
