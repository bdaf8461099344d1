//! Lists in pages: all pages of a list show the objects at the revision of its first page.
//!
//! The log undoes later changes: the first log entry of an object after a revision holds its state at that revision.

use super::api::Api;
use super::custom;
use super::read::ListSelection;
use super::stored::{is_stored, refused};
use super::{ApiResult, Transaction};
use crate::kinds::Kind;
use crate::object::{Object, Reason, Resource, Status, Str};
use crate::store::{ChangeKind, Snapshot, StoreRead, StoredObject};
use std::collections::BTreeMap;

/// Rows, or log entries, per read.
const ROWS: usize = 500;

/// A list request.
pub struct ListRequest<'a> {
    /// The kind of the objects.
    pub kind: &'static Kind,
    /// The namespace; none for all.
    pub namespace: Option<&'a str>,
    /// The selection.
    pub wanted: &'a ListSelection,
    /// The revision to show; `None` for the current one.
    pub at: Option<u64>,
    /// The namespace and name after which the page begins.
    pub after: Option<(&'a str, &'a str)>,
    /// Maximum number of objects; `None` for all.
    pub limit: Option<usize>,
}

/// A part of a list.
pub struct ListPage {
    /// Objects on the page.
    pub objects: Vec<Object>,
    /// The revision that the page shows.
    pub revision: u64,
    /// Whether more follow.
    pub more: bool,
    /// Number of objects that follow; `None` for a list with selectors, which does not count them.
    pub remaining: Option<usize>,
}

/// A place in a list: namespace and name.
pub type ListPosition = (String, String);

/// Previous states of changed objects.
type PreviousState = BTreeMap<ListPosition, ChangedObject>;

/// An object that has changed since a revision.
struct ChangedObject {
    /// Its body at the revision; `None` when it did not exist.
    before: Option<Str>,
    /// Whether the object exists now.
    exists: bool,
}

/// The store at the revision that a list shows.
struct ListSnapshot<'a> {
    snapshot: Snapshot<'a>,
    revision: u64,
    /// Objects that have changed since the revision.
    before: PreviousState,
}

impl<'a> ListSnapshot<'a> {
    /// Opens the revision that is wanted, or the newest.
    fn open(api: &'a Api, listing: &ListRequest<'_>) -> ApiResult<ListSnapshot<'a>> {
        listing.wanted.check(listing.kind)?;
        if listing.kind.custom.is_some() {
            api.read_view(|txn| custom::load_schemas(txn, listing.kind))?;
        }
        let snapshot = api.store().read().map_err(|error| refused(&error))?;
        let head = snapshot.revision().map_err(|error| refused(&error))?;
        let revision = listing.at.unwrap_or(head);
        if revision > head {
            return Err(too_large(revision, head));
        }
        let before = match revision < head {
            true => states_at_revision(&snapshot, listing, revision)?,
            false => PreviousState::new(),
        };
        Ok(ListSnapshot { snapshot, revision, before })
    }
}

/// Reads a page.
pub fn page(api: &Api, listing: &ListRequest<'_>) -> ApiResult<ListPage> {
    let ListSnapshot { snapshot, revision, before } = ListSnapshot::open(api, listing)?;
    let moved = CountChange::new(&before);
    let (mut objects, whole) = match listing.limit {
        // A snapshot that lives at the same time shows the same.
        None if before.is_empty() && listing.after.is_none() => (api.read_view(|txn| list_all(txn, listing))?, true),
        _ if !is_stored(listing.kind.resource) => (api.read_view(|txn| list_all(txn, listing))?, true),
        limit => (list_limited(&snapshot, listing, before, limit.map(|limit| limit + 1))?, false),
    };
    if whole && let Some((namespace, name)) = listing.after {
        objects.retain(|object| (object.namespace(), object.name()) > (namespace, name));
    }
    let more = listing.limit.is_some_and(|limit| objects.len() > limit);
    let found = objects.len();
    objects.truncate(listing.limit.unwrap_or(usize::MAX));
    let remaining = match objects.last().filter(|_| more && listing.wanted.is_everything()) {
        None => None,
        Some(_) if whole => Some(found - objects.len()),
        Some(last) => {
            let place = (last.namespace(), last.name());
            let now = snapshot.count_after(listing.kind.resource, listing.namespace, place);
            Some(moved.undo(now.map_err(|error| refused(&error))?, place))
        }
    };
    Ok(ListPage { objects, revision, more, remaining })
}

/// Numbers of objects that were created and deleted between the revision of a list and now.
struct CountChange {
    created: Vec<ListPosition>,
    deleted: Vec<ListPosition>,
}

impl CountChange {
    fn new(changed: &PreviousState) -> CountChange {
        let select = |existed: bool| -> Vec<ListPosition> {
            let moved =
                changed.iter().filter(|(_, state)| state.before.is_some() == existed && state.exists != existed);
            moved.map(|(place, _)| place.clone()).collect()
        };
        CountChange { created: select(false), deleted: select(true) }
    }

    /// The number of objects after a place at the moment of the list, of the number now.
    fn undo(&self, now: usize, (namespace, name): (&str, &str)) -> usize {
        let count = |moved: &[ListPosition]| {
            moved.iter().filter(|place| (place.0.as_str(), place.1.as_str()) > (namespace, name)).count()
        };
        (now + count(&self.deleted)).saturating_sub(count(&self.created))
    }
}

/// A stored body.
pub struct BodyAt {
    /// The JSON text.
    pub body: Str,
    /// The revision that wrote it; `None` for an earlier state of an object that has changed.
    pub revision: Option<u64>,
}

/// A part of a list as it is stored.
pub struct RowBatch {
    /// The bodies with their places, those that are not wanted included.
    pub rows: Vec<(ListPosition, BodyAt)>,
    /// The revision that the pages show.
    pub revision: u64,
    /// The place after which the next batch begins; none at the end.
    pub next: Option<ListPosition>,
}

/// Reads the next objects of a list, until they have this many bytes. Ignores the limit of the list.
pub fn read_rows(api: &Api, listing: &ListRequest<'_>, bytes: usize) -> ApiResult<RowBatch> {
    let ListSnapshot { snapshot, revision, mut before } = ListSnapshot::open(api, listing)?;
    let after = listing.after.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    if let Some(after) = &after {
        before = before.split_off(after);
        before.remove(after);
    }
    let (bodies, next) = read_batch(&snapshot, listing, &mut before, after.as_ref(), bytes)?;
    Ok(RowBatch { rows: bodies.into_iter().collect(), revision, next })
}

/// Counts the objects of a list after a place, selectors left aside.
pub fn count_after(api: &Api, listing: &ListRequest<'_>, place: (&str, &str)) -> ApiResult<usize> {
    let ListSnapshot { snapshot, before, .. } = ListSnapshot::open(api, listing)?;
    let now = snapshot.count_after(listing.kind.resource, listing.namespace, place).map_err(|error| refused(&error))?;
    Ok(CountChange::new(&before).undo(now, place))
}

/// The bodies after a place as they were, and the place where they end; none at the end of the list.
fn read_batch(
    read: &dyn StoreRead,
    listing: &ListRequest<'_>,
    before: &mut PreviousState,
    after: Option<&ListPosition>,
    bytes: usize,
) -> ApiResult<(BTreeMap<ListPosition, BodyAt>, Option<ListPosition>)> {
    let place = after.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    let rows = read.page_within(listing.kind.resource, listing.namespace, place, ROWS, bytes);
    let rows = rows.map_err(|error| refused(&error))?;
    let length: usize = rows.iter().map(|row| row.body.len()).sum();
    let next = rows.last().filter(|_| rows.len() == ROWS || length >= bytes).map(place_of);
    let mut bodies: BTreeMap<ListPosition, BodyAt> =
        rows.into_iter().map(|row| (place_of(&row), BodyAt { revision: Some(row.revision), body: row.body })).collect();
    for (place, state) in split_off_until(before, next.as_ref()) {
        match state.before {
            Some(body) => drop(bodies.insert(place, BodyAt { body, revision: None })),
            None => drop(bodies.remove(&place)),
        }
    }
    Ok((bodies, next))
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
    custom::complete_stored(txn, listing.kind, &mut objects)?;
    objects.retain(|object| listing.wanted.admits(listing.kind, object));
    Ok(objects)
}

/// The wanted objects in order, up to a limit.
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
        let (bodies, next) = read_batch(read, listing, &mut before, after.as_ref(), usize::MAX)?;
        for BodyAt { body, .. } in bodies.values().filter(|row| listing.wanted.may_admit(&row.body)) {
            let mut object: Object = serde_json::from_str(body).map(Object).map_err(|error| {
                Status::new(Reason::InternalError, format!("stored body of {}: {error}", listing.kind.resource))
            })?;
            listing.kind.custom.into_iter().for_each(|custom| custom.complete_stored(&mut object));
            if listing.wanted.admits(listing.kind, &object) {
                found.push(object);
            }
            if found.len() == most {
                break;
            }
        }
        if next.is_none() {
            break;
        }
        after = next;
    }
    Ok(found)
}

fn place_of(stored: &StoredObject) -> ListPosition {
    (stored.key.namespace.to_string(), stored.key.name.to_string())
}

/// Removes and returns the entries up to and including `last`; all entries without it.
fn split_off_until(before: &mut PreviousState, last: Option<&ListPosition>) -> PreviousState {
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
            let (stored, exists) = match &entry.change {
                ChangeKind::Put(stored) => (stored, true),
                ChangeKind::Removed(stored) => (stored, false),
            };
            if is_of(stored, listing.kind.resource, listing.namespace) {
                let changed =
                    before.entry(place_of(stored)).or_insert(ChangedObject { before: entry.previous, exists });
                changed.exists = exists;
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
        assert_eq!((first.objects[0].name(), first.more, first.remaining), ("b", true, Some(3)));
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
        assert_eq!(second.remaining, Some(1), "objects that came and went since are not counted");
        let third = page(&api, &ListRequest { after: Some(("default", "f")), ..rest }).unwrap();
        assert_eq!((shown(&third), third.more, third.remaining), (vec!["h=old".to_owned()], false, None));
        let now = page(&api, &ListRequest { at: None, after: None, limit: None, ..rest }).unwrap();
        assert_eq!(shown(&now), ["a=new", "b=old", "c=new", "f=new", "h=old"]);
        let later = page(&api, &ListRequest { at: Some(now.revision + 1), ..rest });
        assert!(later.is_err_and(|status| status.message.starts_with("Timeout: Too large resource version")));
    }
}
