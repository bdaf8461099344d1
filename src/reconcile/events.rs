//! Events: what loops want told, aggregated into Event objects (client-go: the EventCorrelator).
//!
//! Events never hold up what they tell about: they are written when the beat has nothing else to do, or after a moment at most.

use crate::apiserver::update::{Part, update};
use crate::apiserver::{Ledger, Options, create};
use crate::kinds;
use crate::object::{Key, Object, Resource, Time, time};
use crate::world::{Event, EventType};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

/// Most events written in one beat.
const BATCH: usize = 200;

/// Events that may wait while there is other work.
const PRESSING: usize = 20_000;

/// Events of one object and source that may come at once, and then one in `REFILL` (client-go: 25, one in 300 s).
const BURST: i64 = 25;
const REFILL: SignedDuration = SignedDuration::from_secs(300);

/// Most messages of one reason about one object in ten minutes before they are told as one.
const SIMILAR: usize = 10;

/// What makes two events the same.
type Identity = (Key, String, String, &'static str, String);

/// Collects events and writes them.
#[derive(Default)]
pub struct Recorder {
    waiting: VecDeque<(&'static str, Event, Time)>,
    known: HashMap<Identity, Key>,
    similar: HashMap<(Key, &'static str), usize>,
    tokens: HashMap<(Key, &'static str), (i64, Time)>,
    counter: u64,
}

impl Recorder {
    /// Takes events of a loop.
    pub fn extend(&mut self, by: &'static str, events: Vec<Event>, now: Time) {
        for event in events {
            if self.may_tell(by, &event, now) {
                self.waiting.push_back((by, event, now));
            }
        }
    }

    /// Whether there is anything to write.
    pub fn is_due(&self, _now: Time) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether so much waits that it is written even while there is other work.
    pub fn is_pressing(&self) -> bool {
        self.waiting.len() > PRESSING
    }

    /// Writes what waits, up to a batch. An event that the API server refuses (its namespace is going) is dropped.
    pub fn flush(&mut self, ledger: &mut dyn Ledger, now: Time) {
        for _ in 0..BATCH.min(self.waiting.len()) {
            if let Some((by, event, at)) = self.waiting.pop_front() {
                self.write(ledger, by, event, at.max(now));
            }
        }
    }

    /// The spam filter: a bucket of tokens for each object and source.
    fn may_tell(&mut self, by: &'static str, event: &Event, now: Time) -> bool {
        let (tokens, since) = self.tokens.entry((event.about.clone(), by)).or_insert((BURST, now));
        let refilled = now.duration_since(*since).as_secs() / REFILL.as_secs();
        if refilled > 0 {
            *tokens = (*tokens + refilled).min(BURST);
            *since = now;
        }
        *tokens -= 1;
        *tokens >= 0
    }

    fn write(&mut self, ledger: &mut dyn Ledger, by: &'static str, event: Event, at: Time) {
        let identity =
            (event.about.clone(), event.uid.to_string(), event.field_path.clone(), event.reason, event.message.clone());
        if let Some(key) = self.known.get(&identity).cloned()
            && count_again(ledger, &key, at)
        {
            return;
        }
        let seen = self.similar.entry((event.about.clone(), event.reason)).or_default();
        *seen += 1;
        let message = if *seen > SIMILAR {
            format!("(combined from similar events): {}", event.message)
        } else {
            event.message.clone()
        };
        self.counter += 1;
        let suffix = format!("{:x}", at.as_nanosecond() as u64 + self.counter);
        let object = event_object(by, &event, &message, &suffix, at);
        let Some(kind) = kinds::by_kind("v1", "Event") else { return };
        if let Ok(reply) = create::create(ledger, kind, &object, &Options::default()) {
            self.known.insert(identity, create::key_of(kind, &reply.object));
        }
    }
}

/// The same event once more: its count rises. False when the object is gone.
fn count_again(ledger: &mut dyn Ledger, key: &Key, at: Time) -> bool {
    let (Ok(Some(mut known)), Some(kind)) = (ledger.get(key), kinds::by_resource(Resource("events"))) else {
        return false;
    };
    known.set(&["count"], known.int(&["count"]).unwrap_or(1) + 1);
    known.set(&["lastTimestamp"], time::rfc3339(at));
    update(ledger, kind, &known, Part::Main, &Options::default()).is_ok()
}

fn event_object(by: &str, event: &Event, message: &str, suffix: &str, at: Time) -> Object {
    let kind = kinds::by_resource(event.about.resource);
    let namespace = if event.about.namespace.is_empty() { "default" } else { &event.about.namespace };
    let mut about = json!({
        "kind": kind.map(|kind| kind.kind), "apiVersion": kind.map(kinds::Kind::api_version),
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
