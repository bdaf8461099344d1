//! Event (core/v1; events.k8s.io/v1 is converted to core/v1).

mod rules;

use super::catalogue::{shapes, typed};
use super::shared::omit;
use super::view;
use super::{DecodeError, FieldErrors, FieldPath, Kind, NameRule, Typed, UnknownField};
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::core::v1::Event;
use serde_json::Value;
use std::borrow::Cow;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["ev"],
    status: false,
    generation: false,
    create_on_update: true,
    // Clients name Events after their objects. Only the newer version checks it as other names.
    name_rule: NameRule::PathSegment,
    also: &[EVENTS_GROUP],
    to_also: to_events_group,
    normalize,
    validate_version: rules::validate_version,
    selectable: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    shape: &SHAPE,
    ..Kind::new::<Event>("events", "v1", "Event", &view::event::CORE)
};

static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("involvedObject", shapes::ATOMIC),
    ("related", shapes::ATOMIC),
    ("source", shapes::in_place(shapes::map(&shapes::ANY))),
]);

/// Stores unknown times of an Event as `null`, so that clients print `<nil>`.
fn normalize(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut event = match body["apiVersion"].as_str() {
        Some(EVENTS_GROUP) => typed::normalize::<Event>(&from_events_group(body), unknown)?,
        _ => typed::normalize::<Event>(body, unknown)?,
    };
    omit::null_when_missing(&mut event, &["eventTime", "firstTimestamp", "lastTimestamp"]);
    Ok(event)
}

/// The newer version, whose names of some fields differ.
pub const EVENTS_GROUP: &str = "events.k8s.io/v1";

/// Fields of events.k8s.io/v1, and their names in core/v1.
pub const RENAMED: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
];

fn from_events_group(body: &Value) -> Value {
    let mut body = body.clone();
    body["apiVersion"] = "v1".into();
    for (theirs, ours) in RENAMED {
        if let Some(value) = body.as_object_mut().and_then(|map| map.remove(*theirs)) {
            body[*ours] = value;
        }
    }
    body
}

/// Returns the part of an Event that a client applies with the field names of core/v1, in which all managers own fields; other kinds stay.
pub fn with_stored_names<'o>(kind: &Kind, config: &'o Object) -> Cow<'o, Object> {
    match kind.resource == KIND.resource && config.api_version() == EVENTS_GROUP {
        true => Cow::Owned(Object(from_events_group(&config.0))),
        false => Cow::Borrowed(config),
    }
}

/// Returns an Event of core/v1 with the field names of events.k8s.io/v1.
fn to_events_group(mut event: Object) -> Object {
    event.set(&["apiVersion"], EVENTS_GROUP);
    for (theirs, ours) in RENAMED {
        if let Some(value) = event.0.as_object_mut().and_then(|map| map.remove(*ours)) {
            event.set(&[theirs], value);
        }
    }
    event
}

impl Typed for Event {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        self.source.get_or_insert_default();
        self.reporting_component.get_or_insert_default();
        self.reporting_instance.get_or_insert_default();
        omit::empty(&mut self.action);
        omit::empty(&mut self.count);
        omit::empty(&mut self.message);
        omit::empty(&mut self.reason);
        omit::empty(&mut self.type_);
    }

    /// Checks that an Event is in the namespace of its object, or in `default` or `kube-system` for a cluster-scoped
    /// one.
    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let own = self.metadata.namespace.as_deref().unwrap_or_default();
        let about = self.involved_object.namespace.as_deref().unwrap_or_default();
        let fits = match (about, &self.event_time) {
            ("", Some(_)) => matches!(own, "default" | "kube-system"),
            ("", None) => matches!(own, "" | "default"),
            (_, Some(_)) => true,
            (_, None) => about == own,
        };
        if !fits {
            let path = FieldPath::root("involvedObject").child("namespace");
            errors.invalid(&path, about, "does not match event.namespace");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::validate_metadata;
    use serde_json::json;

    #[test]
    fn events_of_the_core_group_are_named_after_any_object() {
        let found = |name: &str, finalizer: &str, version: &str| {
            let metadata = json!({"name": name, "namespace": "default", "finalizers": [finalizer]});
            let event =
                Object(json!({"metadata": metadata, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
                "reportingComponent": "a/b", "reportingInstance": "i", "action": "A", "reason": "R"}));
            let mut errors = validate_metadata(&event, None, &KIND);
            errors.extend(rules::validate_version(version, &event, None));
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found("system:node.17f", "plain", "v1"), "");
        assert_eq!(found("a/b", "plain", "v1"), "metadata.name");
        assert_eq!(found("system:node.17f", "a.b/c", EVENTS_GROUP), "metadata.name");
    }

    #[test]
    fn events_group_is_converted_to_core() {
        let body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "a"},
            "regarding": {"kind": "Pod", "namespace": "a"}, "note": "n", "reportingController": "c", "deprecatedCount": 2,
        });
        let event = (KIND.normalize)(&body, &mut |field| panic!("unknown {}", field.path)).expect("an Event");
        assert_eq!(event["apiVersion"], "v1");
        assert_eq!(event["involvedObject"]["kind"], "Pod");
        assert_eq!(
            (&event["message"], &event["reportingComponent"], &event["count"]),
            (&json!("n"), &json!("c"), &json!(2))
        );
        assert_eq!(event["eventTime"], Value::Null);
    }
}
