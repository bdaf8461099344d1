//! Server-side apply: a patch with all fields that one manager sets on an object (`application/apply-patch+yaml`).

use super::apply::{Applied, ApplyOutcome};
use super::authorization::{check_creation, check_verb};
use super::create::{create, refuse};
use super::forward::{ForwardedAction, ForwardedWrite};
use super::rules::field_manager;
use super::rules::names::key_of;
use super::transaction::Transaction;
use super::update::{UpdatePart, write_update};
use super::{ApiResult, WriteOptions, conversion, custom, read};
use crate::kinds::event::with_stored_names;
use crate::kinds::shared::field;
use crate::kinds::{FieldErrors, FieldPath, Kind};
use crate::managed_fields::{self, apply::ApplyManager, apply::FieldApplier};
use crate::object::{LAST_APPLIED, Object, Reason, Status};

/// The field manager that owns kubectl's last-applied annotation after a server-side apply.
const LAST_APPLIED_MANAGER: &str = "kubectl-last-applied";

/// Maximum number of times that the managers of client-side apply are taken over (kubectl: `maxPatchRetry`).
const MAX_ATTEMPTS: usize = 5;

/// Applies a configuration, whose name and namespace are those of the object, as one manager.
/// Creates a missing object. Ignores the manager in the options. `part` is the object or its status.
pub fn apply_patch(
    txn: &mut dyn Transaction,
    kind: &Kind,
    config: &Object,
    manager: ApplyManager<'_>,
    part: UpdatePart,
    options: &WriteOptions,
) -> ApiResult<Applied> {
    let bad = |text: &str| Err(Status::new(Reason::BadRequest, text));
    field_manager::check_applier(manager.name)?;
    let action = ForwardedAction::Apply(config, manager, options);
    if let Some(reply) = txn.forward(&ForwardedWrite::from_body(kind, config, part.subresource(), action)) {
        return reply.map(|reply| Applied::from_reply(ApplyOutcome::Configured, reply));
    }
    let kind = custom::current(txn, kind, config.api_version())?;
    if config.value_at(&["metadata", "managedFields"]).is_some_and(|list| !list.is_null()) {
        return bad("metadata.managedFields must be nil");
    }
    let key = key_of(kind, config);
    check_verb(txn, "patch", part.subresource(), &key)?;
    let live = match txn.get(&key)? {
        Some(live) => Some(conversion::convert(txn, kind, &live, config.api_version())?.into_owned()),
        None => None,
    };
    let (uid, own) = (config.uid(), live.as_ref().map_or("", Object::uid));
    if !uid.is_empty() && !own.is_empty() && uid != own {
        let mut errors = FieldErrors::default();
        errors.immutable(&FieldPath::root("metadata").child("uid"), &uid, &own);
        return Err(field::invalid(kind.kind, kind.resource, config.name(), &errors.0));
    }
    let applier = FieldApplier { manager, subresource: part.subresource(), now: txn.now() };
    // Managers that use different groups of Events own the same fields.
    let stored_config = with_stored_names(kind, config);
    let object = managed_fields::apply::applied(kind, live.as_ref(), &stored_config, applier)?;
    let mut object = kind.to_version(object, config.api_version());
    if let Some(custom) = kind.custom.filter(|_| part == UpdatePart::Main) {
        refuse(kind, &object, &custom.null_errors(&object))?;
    }
    // Fields that the pipeline sets have no manager.
    let options = WriteOptions { manager: None, applier: Some(manager.name.to_owned()), ..options.clone() };
    if live.is_none() && part == UpdatePart::Main {
        let uid = config.uid();
        if !uid.is_empty() {
            let detail =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(kind.resource, &key.name, &detail));
        }
        check_creation(txn, &key)?;
        return Ok(Applied::from_reply(ApplyOutcome::Created, create(txn, kind, &object, &options)?));
    }
    if !managed_fields::is_tracked(&object) {
        managed_fields::drop_managers(&mut object);
    }
    let reply = write_update(txn, kind, &object, part, &options)?;
    let outcome = if reply.changed { ApplyOutcome::Configured } else { ApplyOutcome::Unchanged };
    Ok(Applied::from_reply(outcome, reply))
}

/// Applies like `kubectl apply --server-side`. For the manager `kubectl` it also updates the last-applied annotation and takes over the
/// fields of client-side apply.
pub fn apply_as_kubectl(
    txn: &mut dyn Transaction,
    kind: &Kind,
    config: &Object,
    manager: ApplyManager<'_>,
    options: &WriteOptions,
) -> ApiResult<Applied> {
    let apply = |txn: &mut dyn Transaction, config: &Object, who| {
        apply_patch(txn, kind, config, who, UpdatePart::Main, options)
    };
    let mut done = apply(txn, config, manager)?;
    if options.dry_run {
        return Ok(done);
    }
    let annotation = ["f:metadata", "f:annotations", &format!("f:{LAST_APPLIED}")];
    if manager.name == managed_fields::apply::KUBECTL
        && done.object.annotation(LAST_APPLIED).is_some()
        && !managed_fields::is_applied(&done.object, &annotation)
    {
        let last_applied = ApplyManager { name: LAST_APPLIED_MANAGER, force: false };
        let kept = apply(txn, &identity_with_last_applied(&done.object), last_applied)?;
        done.object = kept.object;
    }
    for attempt in 1.. {
        let mut moved = done.object.clone();
        if !managed_fields::migrate(&mut moved, &annotation, manager.name) {
            break;
        }
        let options = WriteOptions { manager: None, ..options.clone() };
        match write_update(txn, kind, &moved, UpdatePart::Main, &options) {
            // Others write to a server between two requests.
            Err(status) if status.reason == Reason::Conflict && attempt < MAX_ATTEMPTS => {
                done.object = read::exact(txn, &key_of(kind, &moved))?;
            }
            written => {
                written?;
                done.object = apply(txn, config, manager)?.object;
                break;
            }
        }
    }
    Ok(done)
}

/// Returns the identifying fields of an object and the annotation.
fn identity_with_last_applied(object: &Object) -> Object {
    let mut identity = Object(serde_json::json!({}));
    let annotation = ["metadata", "annotations", LAST_APPLIED];
    for path in [&["apiVersion"][..], &["kind"], &["metadata", "name"], &["metadata", "namespace"], &annotation] {
        if let Some(value) = object.value_at(path) {
            identity.set(path, value.clone());
        }
    }
    identity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use crate::kinds;
    use serde_json::json;

    const TESTER: ApplyManager = ApplyManager { name: "test", force: false };

    #[test]
    fn appliers_of_both_groups_of_events_conflict() {
        let mut api = Api::in_memory("test").unwrap();
        let kind = kinds::by_name("events").unwrap();
        let mut apply = |config: &serde_json::Value, manager: &str| {
            let (config, options) = (Object(config.clone()), WriteOptions::default());
            api.write(false, |txn| {
                apply_patch(
                    txn,
                    kind,
                    &config,
                    ApplyManager { name: manager, force: false },
                    UpdatePart::Main,
                    &options,
                )
            })
        };
        let about = json!({"kind": "Pod", "name": "p", "namespace": "default"});
        let metadata = json!({"name": "e", "namespace": "default"});
        let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about,
            "reason": "r", "message": "x"});
        let newer = |note: &str| json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata, "regarding": about, "note": note});
        apply(&core, "a").unwrap();
        let refused = apply(&newer("y"), "b").err().unwrap();
        assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"a\": .message");
        assert_eq!(apply(&newer("x"), "b").unwrap().object.text(&["message"]), Some("x"));
        let refused = apply(&newer("y"), "b").err().unwrap();
        assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"a\": .message");
        let done =
            apply(&json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about}), "a")
                .unwrap();
        assert_eq!(done.object.text(&["message"]), Some("x"), "the other manager still applies it");
        // No other manager is left, and the newer group forbids a change of the note.
        assert_eq!(apply(&newer("y"), "b").err().unwrap().reason, Reason::Invalid);
    }

    #[test]
    fn sole_manager_that_applies_nothing_owns_nothing() {
        let mut api = Api::in_memory("test").unwrap();
        let kind = kinds::by_name("configmaps").unwrap();
        let mut apply = |config: serde_json::Value| {
            let options = WriteOptions::default();
            let config = Object(config);
            let applied =
                |txn: &mut dyn Transaction| apply_patch(txn, kind, &config, TESTER, UpdatePart::Main, &options);
            api.write(false, applied).unwrap().object
        };
        let metadata = json!({"name": "a", "namespace": "default"});
        let done = apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"y": "1"}}));
        assert_eq!(done.items(&["metadata", "managedFields"]).len(), 1);
        let done = apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
        assert_eq!((done.value_at(&["data"]), done.value_at(&["metadata", "managedFields"])), (None, None));
    }

    #[test]
    fn null_field_of_a_custom_object_is_refused_unless_it_may_be_null_or_has_a_default() {
        let mut api = Api::in_memory("test").unwrap();
        let fields = json!({"crew": {"type": "integer"}, "sail": {"type": "string", "default": "red"},
            "note": {"type": "string", "nullable": true}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        let definition = Object(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.null.dev"},
            "spec": {"group": "null.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        }));
        let definitions = kinds::by_name("customresourcedefinitions").unwrap();
        api.write(false, |txn| create(txn, definitions, &definition, &WriteOptions::default())).unwrap();
        let mut apply = |spec: serde_json::Value| {
            let config = Object(json!({"apiVersion": "null.dev/v1", "kind": "Boat",
                "metadata": {"name": "b", "namespace": "default"}, "spec": spec}));
            let options = WriteOptions::default();
            api.write(false, |txn| {
                let kind = txn.kinds().by_kind("null.dev/v1", "Boat").expect("a kind");
                apply_patch(txn, kind, &config, TESTER, UpdatePart::Main, &options)
            })
        };
        let refused = apply(json!({"crew": null})).err().unwrap();
        let told = "spec.crew: Invalid value: \"null\": spec.crew in body must be of type integer: \"null\"";
        assert_eq!(refused.message, format!("Boat.null.dev \"b\" is invalid: {told}"));
        let told = "spec: Invalid value: \"null\": spec in body must be of type object: \"null\"";
        let refused = apply(serde_json::Value::Null).err().unwrap();
        assert_eq!(refused.message, format!("Boat.null.dev \"b\" is invalid: {told}"));
        let done = apply(json!({"sail": null, "note": null})).unwrap();
        assert_eq!(done.object.0["spec"], json!({"sail": "red", "note": null}));
    }

    #[test]
    fn absent_object_with_a_uid_is_not_created() {
        let mut api = Api::in_memory("test").unwrap();
        let kind = kinds::by_name("configmaps").unwrap();
        let mut apply = |config: &Object| {
            let options = WriteOptions::default();
            api.write(false, |txn| apply_patch(txn, kind, config, TESTER, UpdatePart::Main, &options))
        };
        let mut config = Object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default", "uid": "1"}}));
        let refused = apply(&config).err().unwrap();
        assert_eq!(
            (refused.reason, refused.message.as_str()),
            (
                Reason::Conflict,
                "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid 1, and no \
                 existing object was found"
            )
        );
        config.unset(&["metadata", "uid"]);
        assert_eq!(apply(&config).unwrap().outcome, ApplyOutcome::Created);
    }
}
