//! Watch: the log as events, through a selection.

use super::ApiResult;
use super::local_api_services::LocalVersions;
use super::read::ListSelection;
use super::stored::{object_of, refused};
use crate::kinds::Kind;
use crate::object::Object;
use crate::store::{ChangeKind, LogEntry, StoreRead};

/// Change of an object, as a selection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object entered the selection.
    Added,
    /// The object changed inside the selection.
    Modified,
    /// The object no longer matches the selector, or was deleted.
    Deleted,
}

impl EventKind {
    /// The `type` of the event in JSON.
    pub fn word(self) -> &'static str {
        match self {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        }
    }
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// The change.
    pub kind: EventKind,
    /// The object; for DELETED its last state, with the revision of the deletion.
    pub object: Object,
}

/// Selection of objects to watch.
pub struct WatchSelection<'a> {
    /// The kind of the objects.
    pub kind: &'a Kind,
    /// The namespace of the objects; none for all.
    pub namespace: Option<&'a str>,
    /// The label and field selectors.
    pub wanted: &'a ListSelection,
    /// For APIServices: the versions of this server, whose APIServices are computed.
    pub local: Option<&'a LocalVersions>,
}

impl WatchSelection<'_> {
    /// Whether an entry is about an object of the kind, in the namespace.
    pub fn is_about(&self, entry: &LogEntry) -> bool {
        let key = &entry.change.stored().key;
        let is_here = |namespace: &str| !self.kind.namespaced || *key.namespace == *namespace;
        key.resource == self.kind.resource && self.namespace.is_none_or(is_here)
    }

    /// Returns the event type of an entry for a watch without selectors; needs no decoding.
    pub fn change(entry: &LogEntry) -> EventKind {
        match (&entry.change, &entry.previous) {
            (ChangeKind::Removed(_), _) => EventKind::Deleted,
            (ChangeKind::Put(_), None) => EventKind::Added,
            (ChangeKind::Put(_), Some(_)) => EventKind::Modified,
        }
    }
}

/// Most log entries read at once.
const BATCH: usize = 1000;

/// The events after a revision, and the revision up to which they go. 410 when the revision is no longer kept.
pub fn events_after(
    read: &dyn StoreRead,
    watched: &WatchSelection<'_>,
    revision: u64,
) -> ApiResult<(Vec<WatchEvent>, u64)> {
    let entries = read.log_after(revision, BATCH).map_err(|error| refused(&error))?;
    let last = entries.last().map_or(revision, |entry| entry.revision);
    let mut events = Vec::new();
    for entry in &entries {
        events.extend(events_of(watched, entry)?);
    }
    Ok((events, last))
}

/// Returns the events that a log entry causes for a watch.
pub fn events_of(watched: &WatchSelection<'_>, entry: &LogEntry) -> ApiResult<Vec<WatchEvent>> {
    let computed = watched.local.map(|local| local.changes(entry)).unwrap_or_default();
    let computed = computed.into_iter().filter(|(object, _)| watched.wanted.admits(watched.kind, object));
    let mut events: Vec<WatchEvent> = computed
        .map(|(object, comes)| WatchEvent { kind: if comes { EventKind::Added } else { EventKind::Deleted }, object })
        .collect();
    events.extend(event(watched, entry)?);
    Ok(events)
}

fn event(watched: &WatchSelection<'_>, entry: &LogEntry) -> ApiResult<Option<WatchEvent>> {
    let (stored, gone) = match &entry.change {
        ChangeKind::Put(stored) => (stored, false),
        ChangeKind::Removed(stored) => (stored, true),
    };
    if !watched.is_about(entry) {
        return Ok(None);
    }
    let may_be_in = |body: &str| watched.wanted.may_admit(body);
    if !may_be_in(&stored.body) && !entry.previous.as_ref().is_some_and(|body| may_be_in(body)) {
        return Ok(None);
    }
    let mut object = object_of(stored)?;
    let mut before = entry.previous.as_ref().and_then(|text| serde_json::from_str(text).ok()).map(Object);
    if let Some(custom) = watched.kind.custom {
        custom.complete_stored(&mut object);
        before.iter_mut().for_each(|before| custom.complete_stored(before));
    }
    let was_in = before.as_ref().is_some_and(|before| watched.wanted.admits(watched.kind, before));
    let is_in = !gone && watched.wanted.admits(watched.kind, &object);
    let kind = match (was_in, is_in) {
        (false, false) => return Ok(None),
        (false, true) => EventKind::Added,
        (true, true) => EventKind::Modified,
        (true, false) => EventKind::Deleted,
    };
    let object = match before.filter(|_| kind == EventKind::Deleted && !gone) {
        // An object that left the selection is reported in its last selected state (apiserver: convertToWatchEvent).
        Some(mut before) => {
            before.set(&["metadata", "resourceVersion"], entry.revision.to_string());
            before
        }
        None => object,
    };
    Ok(Some(WatchEvent { kind, object }))
}
