//! Events: the last section of a description, and the rows of `kubectl events`.

use super::age::age_since;
use super::body::{BodyRead, text_or};
use super::{Describe, RelatedObjects};
use crate::object::{Object, Time};

/// Writes `Events:` of an object, if the description includes events.
pub fn write_events(object: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let about = |event: &Object| {
        let involved = event.0.value_at("involvedObject");
        let uid = involved.text("uid");
        // Events of a static pod have the node's uid of the pod, and not that of the mirror pod.
        let same_uid = uid == object.uid() || uid == object.local_uid() || uid.is_empty() || object.uid().is_empty();
        // The kubelet writes the node's name as its uid.
        let of_node = object.kind() == "Node" && uid == object.name();
        involved.text("name") == object.name()
            && involved.text("namespace") == object.namespace()
            && involved.text("kind") == object.kind()
            && (same_uid || of_node)
    };
    if related.show_events() {
        let namespace = text_or(object.namespace(), "default");
        let mut events: Vec<Object> = related.list("events", namespace).into_iter().filter(about).collect();
        section(out, &mut events, related.now());
    }
}

/// Writes the section with its table, oldest first; events without a last time are first (client-go: SortableEvents).
fn section(out: &mut Describe, events: &mut [Object], now: Time) {
    if events.is_empty() {
        return out.field(0, "Events", "<none>");
    }
    events.sort_by_key(|event| event.0.time("lastTimestamp"));
    out.heading(0, "Events");
    out.line(1, "Type\tReason\tAge\tFrom\tMessage");
    out.line(1, "----\t------\t----\t----\t-------");
    for event in events {
        let body = &event.0;
        let from = text_or(body.text("source.component"), reporter(event));
        let path = body.text("involvedObject.fieldPath");
        let message = body.text("message").trim();
        let message = if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") };
        out.row(1, &[&body.text("type"), &body.text("reason"), &last_seen(event, now), &from, &message]);
    }
}

fn reporter(event: &Object) -> &str {
    event.0.text("reportingComponent")
}

/// Sorts events by their last time, stably.
pub fn sort(events: &mut [Object]) {
    events.sort_by_key(last_moment);
}

fn first_moment(event: &Object) -> Option<Time> {
    event.0.time("eventTime").or_else(|| event.0.time("firstTimestamp"))
}

fn last_moment(event: &Object) -> Option<Time> {
    let body = &event.0;
    body.time("series.lastObservedTime").or_else(|| body.time("lastTimestamp")).or_else(|| body.time("eventTime"))
}

/// Formats the last time as `25h`, or `25h (x4 over 30h)` for a repeated event.
pub fn last_seen(event: &Object, now: Time) -> String {
    let body = &event.0;
    let first = age_since(first_moment(event), now);
    if body.has("series") {
        let last = age_since(body.time("series.lastObservedTime"), now);
        format!("{last} (x{} over {first})", body.int("series.count"))
    } else if body.int("count") > 1 {
        format!("{} (x{} over {first})", age_since(body.time("lastTimestamp"), now), body.int("count"))
    } else {
        first
    }
}
