//! The last activity about an object or a container: its newest event.
//!
//! Knows: the mapping of events to objects. Never: guesses at activity without an event. Start reading at [`last_activity`].

use crate::object::{Object, Str, Time};
use crate::world::{Row, World};

/// Reasons of events about the machine when a pod starts, which are not activity about the pod.
const ASIDE: [&str; 7] = [
    "LimitsNotEnforced",
    "VolumesNotInMemory",
    "FilesystemWritable",
    "NoCapabilities",
    "TerminationMessageShared",
    "MissingClusterDNS",
    "DNSConfigForming",
];

/// Something that a loop did or met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastActivity {
    /// The reason of the event, one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// Time of the last occurrence.
    pub at: Time,
}

/// The subject of events: an object or one of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventSubject {
    namespace: Str,
    uid: Str,
    container: Option<String>,
}

impl EventSubject {
    /// An object, but for its containers.
    pub(super) fn from_row(row: &Row) -> EventSubject {
        EventSubject { namespace: row.key.namespace.clone(), uid: row.uid.clone(), container: None }
    }

    /// A container of a pod.
    pub(super) fn container(row: &Row, name: &str) -> EventSubject {
        EventSubject { container: Some(name.to_owned()), ..EventSubject::from_row(row) }
    }

    /// Whether an event's field, such as `spec.containers{web}`, is this subject.
    fn matches(&self, event: &Object) -> bool {
        let field = event.text(&["involvedObject", "fieldPath"]).and_then(|path| path.split_once('{'));
        field.and_then(|(_, name)| name.strip_suffix('}')) == self.container.as_deref()
    }
}

/// Returns the last activity about a subject.
pub(super) fn last_activity(world: &World, subject: &EventSubject) -> Option<LastActivity> {
    let events = events(world, &subject.namespace, &subject.uid).filter(|event| subject.matches(event));
    let activities = events.filter_map(|event| activity(&event)).filter(|activity| !ASIDE.contains(&&*activity.reason));
    activities.max_by_key(|activity| activity.at)
}

/// Returns the newest event with this reason about a subject.
pub(super) fn last_activity_with_reason(world: &World, subject: &EventSubject, reason: &str) -> Option<LastActivity> {
    let events = events(world, &subject.namespace, &subject.uid).filter(|event| subject.matches(event));
    events
        .filter_map(|event| activity(&event))
        .filter(|activity| activity.reason == reason)
        .max_by_key(|activity| activity.at)
}

/// Returns the newest event with this reason about an object or its containers.
pub(super) fn last_event_with_reason(world: &World, row: &Row, reason: &str) -> Option<LastActivity> {
    let activities = events(world, &row.key.namespace, &row.uid).filter_map(|event| activity(&event));
    activities.filter(|activity| activity.reason == reason).max_by_key(|activity| activity.at)
}

/// The reason of events about ports of this machine that cannot be opened.
pub(super) const PORT_UNAVAILABLE: &str = "PortUnavailable";

/// Returns the message of an unavailable port, unless a later event says that it is available.
pub(super) fn port_unavailable(world: &World, row: &Row) -> Option<String> {
    let unavailable = last_event_with_reason(world, row, PORT_UNAVAILABLE)?;
    let is_over =
        last_event_with_reason(world, row, "PortAvailable").is_some_and(|available| available.at >= unavailable.at);
    (!is_over).then_some(unavailable.message)
}

/// The events about an object. Those about cluster-scoped objects are in the namespace `default` (Kubernetes: client-go's recorder).
fn events<'a>(world: &'a World, namespace: &'a str, uid: &'a str) -> impl Iterator<Item = Object> + 'a {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    let named = world.list_in("events", namespace).filter(move |event| event.mentions(uid));
    named.map(|event| event.object()).filter(move |event| event.text(&["involvedObject", "uid"]) == Some(uid))
}

fn activity(event: &Object) -> Option<LastActivity> {
    Some(LastActivity {
        reason: event.text(&["reason"])?.to_owned(),
        message: event.text(&["message"])?.to_owned(),
        at: event.time(&["lastTimestamp"]).or_else(|| event.created())?,
    })
}
