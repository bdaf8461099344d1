//! The index of RBAC objects at the newest revision; rebuilt only when one of them has changed.
//!
//! Knows: the newest revision at which the index is valid. Never: contains uncommitted changes. Start reading at [`AccessCache`].

use crate::apiserver::ApiResult;
use crate::apiserver::node_pods::NodePods;
use crate::apiserver::stored::{objects_of, refused};
use crate::object::{IgnorePoison, Object, Resource};
use crate::store::{StoreRead, StoreResult};
use crate::world::access::index::{AccessIndex, BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, INDEXED, ROLES};
use std::sync::{Arc, Mutex};

/// The index, and the needs of the pods of each node, which the connections of a process share.
#[derive(Clone, Default)]
pub struct AccessCache {
    index: Arc<Mutex<Option<CachedIndex>>>,
    /// The objects that pods need.
    pub pods: NodePods,
}

#[derive(Clone)]
struct CachedIndex {
    /// No RBAC object changed between the making of the index and this revision.
    revision: u64,
    index: Arc<AccessIndex>,
}

impl AccessCache {
    /// Returns the index at the revision of a snapshot. `is_committed` is false inside of a transaction that writes: an index with
    /// its changes is not kept.
    pub(in crate::apiserver) fn find(&self, read: &dyn StoreRead, is_committed: bool) -> ApiResult<Arc<AccessIndex>> {
        let wrong = |error| refused(&error);
        let revision = read.revision().map_err(wrong)?;
        let cached = self.index.lock().ignore_poison().clone();
        if let Some(cached) = cached.filter(|cached| has_no_change(read, cached.revision, revision).unwrap_or(false)) {
            if is_committed {
                self.keep(CachedIndex { revision, index: cached.index.clone() });
            }
            return Ok(cached.index);
        }
        let list = |resource: &'static str| -> ApiResult<Vec<Object>> {
            objects_of(read.list(Resource(resource), None).map_err(wrong)?)
        };
        let index =
            AccessIndex::build(&list(ROLES)?, &list(CLUSTER_ROLES)?, &list(BINDINGS)?, &list(CLUSTER_BINDINGS)?);
        let index = Arc::new(index);
        if is_committed {
            self.keep(CachedIndex { revision, index: index.clone() });
        }
        Ok(index)
    }

    /// Keeps an index unless a newer one is there.
    fn keep(&self, new: CachedIndex) {
        let mut cached = self.index.lock().ignore_poison();
        if cached.as_ref().is_none_or(|cached| cached.revision <= new.revision) {
            *cached = Some(new);
        }
    }
}

/// Whether no RBAC object changed between two revisions, in any order.
fn has_no_change(read: &dyn StoreRead, from: u64, to: u64) -> StoreResult<bool> {
    Ok(from == to || from < to && !read.has_changed_after(from, &INDEXED)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authorization::find_grants;
    use crate::apiserver::create::create;
    use crate::apiserver::user::User;
    use crate::apiserver::{Api, WriteOptions};
    use crate::kinds;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn add(api: &mut Api, object: Value) -> ApiResult<()> {
        let object = Object(object);
        let kind = kinds::by_kind(object.api_version(), object.kind()).unwrap();
        api.write(false, |txn| create(txn, kind, &object, &WriteOptions::default())).map(|_| ())
    }

    #[test]
    fn index_is_made_again_when_an_rbac_object_changes() {
        let mut api = Api::in_memory("test").unwrap();
        let user = User::impersonated("ann", "", &[], BTreeMap::new());
        let index = |api: &Api| api.read_view(|txn| txn.access_index()).unwrap();
        let count = |api: &Api| api.read_view(|txn| find_grants(txn, &user, "default")).unwrap().rules().count();
        let (first, before) = (index(&api), count(&api));
        add(
            &mut api,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}),
        )
        .unwrap();
        assert!(Arc::ptr_eq(&first, &index(&api)), "other writes do not count");
        add(
            &mut api,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "default"}, "subjects": [{"kind": "User", "name": "ann"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}),
        )
        .unwrap();
        assert!(!Arc::ptr_eq(&first, &index(&api)) && count(&api) > before);
        // A transaction that is undone leaves nothing in the index.
        let known = index(&api);
        let role = Object(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x"}}),
        );
        let undone = api.write(true, |txn| {
            create(txn, &kinds::cluster_role::KIND, &role, &WriteOptions::default())?;
            Ok(txn.access_index()?.find_rules("ClusterRole", "x", ""))
        });
        assert!(undone.unwrap().is_ok(), "a transaction sees its own roles");
        assert!(Arc::ptr_eq(&known, &index(&api)));
    }
}
