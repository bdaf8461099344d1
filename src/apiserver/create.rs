//! Create: the whole pipeline, from a body to a kept object.

use super::admission::{self, Request};
use super::ledger::Ledger;
use super::rules::{metadata, names};
use super::{FieldValidation, Options, Reply, Result};
use crate::kinds::{self, Kind, UnknownField, field};
use crate::object::{Key, Object, Reason, Status, time};
use std::sync::Arc;

/// How often a generated name is tried again when it is taken (KEP-4420: eight attempts in all).
const NAME_ATTEMPTS: usize = 8;

/// Creates an object of a kind. The namespace, where the kind has one, stands in the body.
pub fn create(ledger: &mut dyn Ledger, kind: &Kind, body: &Object, options: &Options) -> Result<Reply> {
    let mut warnings = Vec::new();
    if body.text(&["metadata", "resourceVersion"]).is_some_and(|version| !version.is_empty()) {
        return Err(Status::new(Reason::BadRequest, "resourceVersion should not be set on objects to be created"));
    }
    let mut object = decode(kind, body, options, &mut warnings)?;
    own_metadata(ledger, kind, &mut object);
    let generated = object.name().is_empty();
    let base = object.text(&["metadata", "generateName"]).unwrap_or_default().to_owned();
    for attempt in 1.. {
        if generated && !base.is_empty() {
            object.set(&["metadata", "name"], names::generate(&base, ledger.random()));
        }
        let key = key_of(kind, &object);
        if !object.name().is_empty() && ledger.exists(&key)? && generated && attempt < NAME_ATTEMPTS {
            continue;
        }
        break;
    }
    let key = key_of(kind, &object);
    let mut request =
        Request { kind, object: &mut object, old: None, warnings: &mut warnings, dry_run: options.dry_run };
    admission::mutate(ledger, &mut request)?;
    // After the name is known (Jobs and namespaces carry it in a label), and the limits (a pod's QoS class follows from them).
    (kind.prepare)(&mut object, None);
    check(kind, &object, None)?;
    if let Some(existing) = ledger.see(&key)? {
        let mut status = Status::already_exists(kind.resource, object.name());
        if existing.deletion().is_some() {
            status.message = format!("object is being deleted: {}", status.message);
        }
        return Err(status);
    }
    let mut request =
        Request { kind, object: &mut object, old: None, warnings: &mut warnings, dry_run: options.dry_run };
    admission::validate(ledger, &mut request)?;
    warn(kind, &object, &mut warnings);
    let mut kept = ledger.put(&key, object)?;
    if options.dry_run {
        Arc::make_mut(&mut kept).unset(&["metadata", "resourceVersion"]);
    }
    Ok(Reply::changed(kept, warnings))
}

/// Adds what the writer should know of the kind and of an object that is in order.
pub fn warn(kind: &Kind, object: &Object, warnings: &mut Vec<String>) {
    warnings.extend((kind.warnings)(object));
    warnings.extend(kind.deprecated.map(str::to_owned));
}

/// Decodes strictly, defaults, and says what the writer should know about unknown fields.
pub fn decode(kind: &Kind, body: &Object, options: &Options, warnings: &mut Vec<String>) -> Result<Object> {
    let mut unknown = Vec::new();
    let normalized = (kind.normalize)(&body.0, &mut |field| unknown.push(field));
    let refuse = |text: String| {
        let message =
            format!("{} in version {:?} cannot be handled as a {}: {text}", kind.kind, kind.version, kind.kind);
        Status::new(Reason::BadRequest, message)
    };
    let mut object = Object(normalized.map_err(|error| {
        let misfit = Some(error.path.clone()).filter(|path| !path.is_empty());
        Status { misfit, ..refuse(error.to_string()) }
    })?);
    match options.field_validation {
        FieldValidation::Strict if !unknown.is_empty() => {
            let complaints: Vec<String> = unknown.iter().map(UnknownField::complaint).collect();
            let mut status = refuse(format!("strict decoding error: {}", complaints.join(", ")));
            status.unknown = unknown.into_iter().map(|field| (field.path, field.nearest)).collect();
            return Err(status);
        }
        FieldValidation::Warn => warnings.extend(unknown.iter().map(UnknownField::complaint)),
        _ => {}
    }
    metadata::drop_empty(&mut object);
    Ok(object)
}

/// Metadata and the kind's own rules; all errors at once.
pub fn check(kind: &Kind, object: &Object, old: Option<&Object>) -> Result<()> {
    let mut errors = kinds::metadata::validate_metadata(object, old, kind);
    errors.extend((kind.validate)(object, old));
    if errors.is_empty() { Ok(()) } else { Err(field::invalid(kind.kind, kind.resource, object.name(), &errors)) }
}

/// The key that an object of this kind stands under.
pub fn key_of(kind: &Kind, object: &Object) -> Key {
    let namespace = if kind.namespaced { object.namespace() } else { "" };
    Key::new(kind.resource, namespace, object.name())
}

fn own_metadata(ledger: &mut dyn Ledger, kind: &Kind, object: &mut Object) {
    let uid = names::uid(ledger.random(), ledger.random());
    object.set(&["metadata", "uid"], uid);
    object.set(&["metadata", "creationTimestamp"], time::rfc3339(ledger.now()));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"] {
        object.unset(&["metadata", field]);
    }
    if kind.generation {
        object.set(&["metadata", "generation"], 1);
    } else {
        object.unset(&["metadata", "generation"]);
    }
    if !kind.namespaced {
        object.unset(&["metadata", "namespace"]);
    }
}
