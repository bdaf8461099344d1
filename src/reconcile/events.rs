//! Events of loops, aggregated into Event objects (client-go: the EventCorrelator).
//!
//! Events never delay other writes: they are written when the tick has nothing else to do, and a batch every second while it has. As in
//! Kubernetes they are best effort: when they come faster than that, only a limited number waits ([`MAX_NORMAL`]).

use super::retention;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Transaction, WriteOptions, create};
use crate::kinds::{self, Kind};
use crate::object::{Key, Object, Resource, Str, Time, time};
use crate::world::{EventType, PlannedEvent, World};
use hashlink::LruCache;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most events written in one tick.
const BATCH_EVENTS: usize = 200;

/// While there is other work, a batch is written as often (Kubernetes' components write 50 events in a second at most: kubelet
/// `--event-qps`).
const BATCH_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// Maximum number of Normal events that wait; further ones are dropped (client-go: 1,000 of each component, `maxQueuedEvents` and
/// `DropIfChannelFull`). It is enough for a few thousand pods created at once.
const MAX_NORMAL: usize = 10_000;
/// Maximum number of warnings that wait.
const MAX_WARNINGS: usize = 50_000;

/// Number of events about one object from one source that may be written at once; after that, one in `REFILL` (client-go: 25, and one in
/// 300 s).
const BURST: i64 = 25;
const REFILL: SignedDuration = SignedDuration::from_secs(300);

/// Number of different messages with one reason about one object before they are aggregated (client-go: `maxEvents`),
/// and the quiet period after which they are forgotten.
const MAX_SIMILAR: usize = 10;
const SIMILAR_LIFETIME: SignedDuration = SignedDuration::from_secs(600);

/// The loop whose events have the newer form of events.k8s.io: an action, `eventTime`, and a series when they recur.
const SCHEDULER: &str = "default-scheduler";

/// Key for aggregating equal events.
type EventIdentity = (Key, String, String, Cow<'static, str>, String);

/// Maximum number of events, groups and sources to remember (client-go: `maxLruCacheEntries`).
const MAX_REMEMBERED: usize = 4096;

/// Source of an event.
#[derive(Clone)]
pub struct EventReporter {
    /// The loop.
    pub by: &'static str,
    /// The scheduler that the pod asked for, for events about a pod.
    pub profile: Option<Str>,
}

/// Collects events and writes them.
pub struct EventRecorder {
    waiting: VecDeque<(EventReporter, PlannedEvent, Time)>,
    /// Number of events of type Normal.
    normal: usize,
    /// When events were last written.
    written: Option<Time>,
    /// Events that are to go.
    expired: VecDeque<Key>,
    known: LruCache<EventIdentity, Key>,
    similar: LruCache<(Key, Str, &'static str, Cow<'static, str>), SimilarEvents>,
    tokens: LruCache<(Key, Str, &'static str), (i64, Time)>,
    counter: u64,
}

impl Default for EventRecorder {
    fn default() -> EventRecorder {
        EventRecorder {
            waiting: VecDeque::new(),
            normal: 0,
            written: None,
            expired: VecDeque::new(),
            known: LruCache::new(MAX_REMEMBERED),
            similar: LruCache::new(MAX_REMEMBERED),
            tokens: LruCache::new(MAX_REMEMBERED),
            counter: 0,
        }
    }
}

impl EventRecorder {
    /// Takes events of a loop.
    pub fn extend(&mut self, reporter: &EventReporter, events: Vec<PlannedEvent>, now: Time) {
        for event in events {
            let is_normal = event.kind == EventType::Normal;
            let (waiting, most) = match is_normal {
                true => (self.normal, MAX_NORMAL),
                false => (self.waiting.len() - self.normal, MAX_WARNINGS),
            };
            if self.may_record(reporter.by, &event, now) && waiting < most {
                self.normal += usize::from(is_normal);
                self.waiting.push_back((reporter.clone(), event, now));
            }
        }
    }

    /// Whether there is anything to write.
    pub fn is_due(&self, _now: Time) -> bool {
        !self.waiting.is_empty() || !self.expired.is_empty()
    }

    /// Finds events that are no longer kept.
    pub fn prune(&mut self, world: &World) {
        if self.expired.is_empty() {
            self.expired = retention::expired_events(world).into();
        }
    }

    /// Whether events have waited for so long that some are written even while there is other work.
    pub fn is_pressing(&self, now: Time) -> bool {
        let first = self.waiting.front().map(|(_, _, since)| *since);
        let last = first.map(|since| self.written.map_or(since, |written| written.max(since)));
        last.is_some_and(|last| now.duration_since(last).abs() >= BATCH_INTERVAL)
    }

    /// Writes waiting events, up to a batch, and removes those that are no longer kept. An event that the API server refuses (its namespace
    /// is terminating) is dropped.
    pub fn flush(&mut self, txn: &mut dyn Transaction, now: Time) {
        let kind = kinds::by_resource(Resource("events"));
        for key in self.expired.drain(..BATCH_EVENTS.min(self.expired.len())) {
            // Another process may have removed it.
            drop(kind.map(|kind| delete(txn, kind, &key, &DeleteOptions::default())));
        }
        self.written = Some(now);
        for _ in 0..BATCH_EVENTS.min(self.waiting.len()) {
            if let Some((reporter, event, at)) = self.waiting.pop_front() {
                self.normal -= usize::from(event.kind == EventType::Normal);
                self.write(txn, &reporter, event, at.max(now));
            }
        }
    }

    /// The spam filter: a bucket of tokens for each object and source. One that is made again under its name begins with a full one.
    fn may_record(&mut self, by: &'static str, event: &PlannedEvent, now: Time) -> bool {
        let source = (event.about.clone(), event.uid.clone(), by);
        let (tokens, since) = self.tokens.entry(source).or_insert_with(|| (BURST, now));
        let refilled = now.duration_since(*since).as_secs() / REFILL.as_secs();
        if refilled > 0 {
            *tokens = (*tokens + refilled).min(BURST);
            *since = now;
        }
        *tokens -= 1;
        *tokens >= 0
    }

    fn write(&mut self, txn: &mut dyn Transaction, reporter: &EventReporter, event: PlannedEvent, at: Time) {
        let by = reporter.by;
        let uid = event.uid.to_string();
        let mut identity =
            (event.about.clone(), uid, event.field_path.clone(), event.reason.clone(), event.message.clone());
        let mut message = event.message.clone();
        let group = (event.about.clone(), event.uid.clone(), by, event.reason.clone());
        let combined = by != SCHEDULER
            && self.similar.entry(group).or_insert_with(SimilarEvents::default).is_one_too_many(&message, at);
        if combined {
            message = format!("(combined from similar events): {message}");
            identity.4.clear();
        }
        if let Some(key) = self.known.get(&identity).cloned()
            && count_again(txn, &key, combined.then_some(&message), at)
        {
            return;
        }
        self.counter += 1;
        let suffix = format!("{:x}", at.as_nanosecond() as u64 + self.counter);
        let kind = txn.kinds().by_resource(event.about.resource);
        let mut object = event_object((by, kind), &event, &message, &suffix, at);
        if combined {
            // client-go names the reporter of a combined event in its source alone.
            object.set(&["reportingComponent"], "");
        }
        if by == SCHEDULER {
            into_newer_form(&mut object, reporter, txn.revision(&event.about).ok().flatten(), at);
        }
        let Some(kind) = kinds::by_kind("v1", "Event") else { return };
        if let Ok(reply) = create::create(txn, kind, &object, &WriteOptions::default()) {
            self.known.insert(identity, key_of(kind, &reply.object));
        }
    }
}

/// Hashes of the recent messages with one reason about one object.
#[derive(Default)]
struct SimilarEvents {
    messages: VecDeque<u64>,
    last: Option<Time>,
}

impl SimilarEvents {
    /// Whether a message has to be aggregated because there were too many different ones. The oldest is then forgotten, so that it may
    /// recur.
    fn is_one_too_many(&mut self, message: &str, at: Time) -> bool {
        if self.last.replace(at).is_some_and(|last| at.duration_since(last) > SIMILAR_LIFETIME) {
            self.messages.clear();
        }
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let hash = hasher.finish();
        if !self.messages.contains(&hash) {
            self.messages.push_back(hash);
        }
        let too_many = self.messages.len() >= MAX_SIMILAR;
        if too_many {
            self.messages.pop_front();
        }
        too_many
    }
}

/// Increments the count of an event that recurs, and replaces its message if there is one. False when its object is gone.
fn count_again(txn: &mut dyn Transaction, key: &Key, message: Option<&String>, at: Time) -> bool {
    let (Ok(Some(mut known)), Some(kind)) = (txn.get(key), kinds::by_resource(Resource("events"))) else {
        return false;
    };
    if known.text(&["eventTime"]).is_some() {
        let count = known.int(&["series", "count"]).unwrap_or(1) + 1;
        known.set(&["series"], json!({"count": count, "lastObservedTime": time::micro(at)}));
    } else {
        known.set(&["count"], known.int(&["count"]).unwrap_or(1) + 1);
        known.set(&["lastTimestamp"], time::rfc3339(at));
    }
    if let Some(message) = message {
        known.set(&["message"], message.as_str());
    }
    update(txn, kind, &known, UpdatePart::Main, &WriteOptions::default()).is_ok()
}

/// Converts an event to the form of client-go's newer recorder (`tools/events`).
fn into_newer_form(object: &mut Object, reporter: &EventReporter, revision: Option<u64>, at: Time) {
    let action = match object.text(&["reason"]) {
        Some("Scheduled") => "Binding",
        Some("Preempted") => "Preempting",
        _ => "Scheduling",
    };
    let host = rustix::system::uname();
    object.set(&["action"], action);
    object.set(&["eventTime"], time::micro(at));
    // The profile that the pod asked for; a preempted pod may have asked for another one than its preemptor.
    let named = reporter.profile.as_deref().filter(|name| !name.is_empty());
    let profile = named.filter(|_| action != "Preempting").unwrap_or(SCHEDULER);
    object.set(&["reportingComponent"], profile);
    object.set(&["reportingInstance"], format!("{profile}-{}", host.nodename().to_string_lossy()));
    object.set(&["source"], json!({}));
    for old in ["count", "firstTimestamp", "lastTimestamp"] {
        object.unset(&[old]);
    }
    if let Some(revision) = revision {
        object.set(&["involvedObject", "resourceVersion"], revision.to_string());
    }
}

/// The event's object, by a loop about an object of this kind.
fn event_object(
    (by, kind): (&str, Option<&Kind>),
    event: &PlannedEvent,
    message: &str,
    suffix: &str,
    at: Time,
) -> Object {
    let namespace = if event.about.namespace.is_empty() { "default" } else { &event.about.namespace };
    let mut about = json!({
        "kind": kind.map(|kind| kind.kind), "apiVersion": kind.map(Kind::api_version),
        "name": &*event.about.name, "uid": &*event.uid,
    });
    if !event.about.namespace.is_empty() {
        about["namespace"] = (*event.about.namespace).into();
    }
    if !event.field_path.is_empty() {
        about["fieldPath"] = event.field_path.as_str().into();
    }
    let at: Value = time::rfc3339(at).into();
    Object(json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{}.{suffix}", event.about.name), "namespace": namespace},
        "involvedObject": about, "reason": event.reason, "message": message,
        "type": match event.kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
        "source": {"component": by}, "reportingComponent": by, "reportingInstance": "",
        "firstTimestamp": at, "lastTimestamp": at, "count": 1, "eventTime": null,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_events_are_limited_and_warnings_are_not() {
        let mut recorder = EventRecorder::default();
        let mut tell = |kind: EventType, count: usize| {
            for number in 0..count {
                let about = Key::new(Resource("pods"), "default", &format!("{kind:?}-{number}"));
                let (uid, field_path, message) = (about.name.clone(), String::new(), "why".into());
                let event =
                    PlannedEvent { about, uid, field_path, kind, reason: "Failed".into(), message, until: None };
                recorder.extend(&EventReporter { by: "kubelet", profile: None }, vec![event], Time::UNIX_EPOCH);
            }
            recorder.waiting.len()
        };
        assert_eq!(tell(EventType::Normal, MAX_NORMAL + 5), MAX_NORMAL);
        assert_eq!(tell(EventType::Warning, 20), MAX_NORMAL + 20);
        assert_eq!(tell(EventType::Normal, 5), MAX_NORMAL + 20);
        let at = |millisecond| Time::from_millisecond(millisecond).unwrap();
        assert_eq!([0, 999, 1000].map(|moment| recorder.is_pressing(at(moment))), [false, false, true]);
    }

    #[test]
    fn events_of_a_new_object_of_the_same_name_are_recorded() {
        let mut recorder = EventRecorder::default();
        let mut tell = |uid: &str| {
            let event = PlannedEvent {
                about: Key::new(Resource("pods"), "default", "web"),
                uid: uid.into(),
                field_path: String::new(),
                kind: EventType::Warning,
                reason: "Failed".into(),
                message: "why".into(),
                until: None,
            };
            recorder.may_record("kubelet", &event, Time::UNIX_EPOCH)
        };
        assert_eq!((0..30).filter(|_| tell("first")).count(), 25);
        assert!(tell("second"));
    }

    #[test]
    fn many_messages_are_told_as_one() {
        let (mut similar, at) = (SimilarEvents::default(), Time::UNIX_EPOCH);
        let mut too_many =
            |message: &str, seconds: i64| similar.is_one_too_many(message, at + SignedDuration::from_secs(seconds));
        for number in 0..9 {
            assert!(!too_many(&format!("message {number}"), 0), "{number}");
        }
        assert!(!too_many("message 3", 0), "one that was told counts once");
        assert!(too_many("message 9", 0));
        assert!(too_many("message 10", 0));
        assert!(!too_many("message 9", 1), "known by now");
        assert!(!too_many("message 11", 700), "long ago");
    }
}
