//! Lists in pages: all pages of a list show the objects at the revision of its first page.
//!
//! Changes since that revision are undone by the log: the first entry of an object after a revision knows what it was at that revision.

use super::api::Api;
use super::read::ListSelection;
use super::store_transaction::refused;
use super::{ApiResult, Transaction};
use crate::kinds::Kind;
use crate::object::{Object, Reason, Resource, Status, Str};
use crate::store::{ChangeKind, StoreRead, StoredObject};
use std::collections::BTreeMap;

/// So many rows are read at once, and of the log.
const ROWS: usize = 500;

/// Kinds of which a part is worked out when it is read.
const WORKED_OUT: [&str; 2] = ["nodes", "leases.coordination.k8s.io"];

/// A list that is wanted.
pub struct ListRequest<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// The namespace; none for all.
    pub namespace: Option<&'a str>,
    /// The selection.
    pub wanted: &'a ListSelection,
    /// As things stood at this revision; none for now.
    pub at: Option<u64>,
    /// After this namespace and name.
    pub after: Option<(&'a str, &'a str)>,
    /// At most so many; none for all.
    pub limit: Option<usize>,
}

/// A part of a list.
pub struct ListPage {
    /// Objects on the page.
    pub objects: Vec<Object>,
    /// The moment that it shows.
    pub revision: u64,
    /// Whether more follow.
    pub more: bool,
}

/// A place in a list: namespace and name.
type ListPosition = (String, String);

/// Previous states of changed objects; `None` for an object that did not exist.
type PreviousState = BTreeMap<ListPosition, Option<Str>>;

/// Reads a page.
pub fn page(api: &Api, listing: &ListRequest<'_>) -> ApiResult<ListPage> {
    listing.wanted.check(listing.kind)?;
    let snapshot = api.store().read().map_err(|error| refused(&error))?;
    let head = snapshot.revision().map_err(|error| refused(&error))?;
    let revision = listing.at.unwrap_or(head);
    if revision > head {
        return Err(too_large(revision, head));
    }
    let before = if revision < head { states_at_revision(&snapshot, listing, revision)? } else { PreviousState::new() };
    let is_worked_out = WORKED_OUT.contains(&listing.kind.resource.0);
    let (mut objects, whole) = match listing.limit {
        // A snapshot that lives at the same time shows the same.
        None if before.is_empty() && listing.after.is_none() => (api.read_view(|txn| list_all(txn, listing))?, true),
        _ if is_worked_out => (api.read_view(|txn| list_all(txn, listing))?, true),
        limit => (list_limited(&snapshot, listing, before, limit.map(|limit| limit + 1))?, false),
    };
    if whole && let Some((namespace, name)) = listing.after {
        objects.retain(|object| (object.namespace(), object.name()) > (namespace, name));
    }
    let more = listing.limit.is_some_and(|limit| objects.len() > limit);
    objects.truncate(listing.limit.unwrap_or(usize::MAX));
    Ok(ListPage { objects, revision, more })
}

/// The error for a revision that is higher than any written one.
pub fn too_large(revision: u64, head: u64) -> Status {
    let mut status =
        Status::new(Reason::Timeout, format!("Timeout: Too large resource version: {revision}, current: {head}"));
    let (reason, message) = ("ResourceVersionTooLarge".into(), "Too large resource version".into());
    status.causes.push(crate::object::Cause { reason, field: String::new(), message });
    status
}

fn list_all(txn: &dyn Transaction, listing: &ListRequest<'_>) -> ApiResult<Vec<Object>> {
    let mut objects = txn.list(listing.kind.resource, listing.namespace)?;
    objects.retain(|object| listing.wanted.admits(listing.kind, object));
    Ok(objects)
}

/// The wanted objects in order, at most so many.
fn list_limited(
    read: &dyn StoreRead,
    listing: &ListRequest<'_>,
    mut before: PreviousState,
    most: Option<usize>,
) -> ApiResult<Vec<Object>> {
    let most = most.unwrap_or(usize::MAX);
    let own = |(namespace, name): (&str, &str)| (namespace.to_owned(), name.to_owned());
    let mut after: Option<ListPosition> = listing.after.map(own);
    if let Some(after) = &after {
        before = before.split_off(after);
        before.remove(after);
    }
    let mut found = Vec::new();
    while found.len() < most {
        let place = after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let rows = read.page(listing.kind.resource, listing.namespace, place, ROWS).map_err(|error| refused(&error))?;
        let is_last = rows.len() < ROWS;
        after = rows.last().map(place_of);
        let mut bodies: BTreeMap<ListPosition, Str> = rows.into_iter().map(|row| (place_of(&row), row.body)).collect();
        for (place, body) in up_to(&mut before, after.as_ref().filter(|_| !is_last)) {
            match body {
                Some(body) => drop(bodies.insert(place, body)),
                None => drop(bodies.remove(&place)),
            }
        }
        for body in bodies.values() {
            let object: Object = serde_json::from_str(body).map(Object).map_err(|error| {
                Status::new(Reason::InternalError, format!("stored body of {}: {error}", listing.kind.resource))
            })?;
            if listing.wanted.admits(listing.kind, &object) {
                found.push(object);
            }
            if found.len() == most {
                break;
            }
        }
        if is_last {
            break;
        }
    }
    Ok(found)
}

fn place_of(stored: &StoredObject) -> ListPosition {
    (stored.key.namespace.to_string(), stored.key.name.to_string())
}

/// Takes out what comes up to a place, or all.
fn up_to(before: &mut PreviousState, last: Option<&ListPosition>) -> PreviousState {
    match last {
        None => std::mem::take(before),
        Some(last) => {
            let mut rest = before.split_off(last);
            let own = rest.remove(last).map(|body| (last.clone(), body));
            let mut part = std::mem::replace(before, rest);
            part.extend(own);
            part
        }
    }
}

/// Returns the state at a revision of each object that has changed since.
fn states_at_revision(read: &dyn StoreRead, listing: &ListRequest<'_>, revision: u64) -> ApiResult<PreviousState> {
    let (mut before, mut last) = (PreviousState::new(), revision);
    loop {
        let entries = read.log_after(last, ROWS).map_err(|error| refused(&error))?;
        let Some(newest) = entries.last() else { return Ok(before) };
        last = newest.revision;
        for entry in entries {
            let (ChangeKind::Put(stored) | ChangeKind::Removed(stored)) = &entry.change;
            if is_of(stored, listing.kind.resource, listing.namespace) {
                before.entry(place_of(stored)).or_insert(entry.previous);
            }
        }
    }
}

fn is_of(stored: &StoredObject, resource: Resource, namespace: Option<&str>) -> bool {
    stored.key.resource == resource && namespace.is_none_or(|namespace| *stored.key.namespace == *namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::{WriteOptions, create::create, delete, update};
    use crate::kinds;
    use crate::object::Key;
    use serde_json::json;

    fn map(name: &str, data: &str) -> Object {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"d": data}});
        Object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
    }

    #[test]
    fn all_pages_show_the_same_moment() {
        let mut api = Api::in_memory("test").unwrap();
        let kind = kinds::by_name("configmaps").unwrap();
        let options = WriteOptions::default();
        for name in ["b", "d", "f", "h"] {
            api.write(false, |txn| create(txn, kind, &map(name, "old"), &options)).unwrap();
        }
        let wanted = ListSelection::default();
        let listing =
            ListRequest { kind, namespace: Some("default"), wanted: &wanted, at: None, after: None, limit: Some(1) };
        let first = page(&api, &listing).unwrap();
        assert_eq!((first.objects[0].name(), first.more), ("b", true));
        for name in ["a", "c", "e"] {
            api.write(false, |txn| create(txn, kind, &map(name, "new"), &options)).unwrap();
        }
        api.write(false, |txn| update::update(txn, kind, &map("f", "new"), update::UpdatePart::Main, &options))
            .unwrap();
        for name in ["d", "e"] {
            let key = Key::new(kind.resource, "default", name);
            api.write(false, |txn| delete::delete(txn, kind, &key, &delete::DeleteOptions::default())).unwrap();
        }
        let shown = |page: &ListPage| -> Vec<String> {
            page.objects.iter().map(|object| format!("{}={}", object.name(), object.label("d").unwrap())).collect()
        };
        let rest = ListRequest { at: Some(first.revision), after: Some(("default", "b")), limit: Some(2), ..listing };
        let second = page(&api, &rest).unwrap();
        assert_eq!((shown(&second), second.more), (vec!["d=old".to_owned(), "f=old".to_owned()], true));
        let third = page(&api, &ListRequest { after: Some(("default", "f")), ..rest }).unwrap();
        assert_eq!((shown(&third), third.more), (vec!["h=old".to_owned()], false));
        let now = page(&api, &ListRequest { at: None, after: None, limit: None, ..rest }).unwrap();
        assert_eq!(shown(&now), ["a=new", "b=old", "c=new", "f=new", "h=old"]);
        let later = page(&api, &ListRequest { at: Some(now.revision + 1), ..rest });
        assert!(later.is_err_and(|status| status.message.starts_with("Timeout: Too large resource version")));
    }
}
