//! Update: the pipeline for an object that exists, as a whole or only its status.

mod parts;

use super::admission::{self, AdmissionTarget, Operation, RequestOptions};
use super::authorization::{check_creation, check_verb};
use super::create::{check, create, decode, drop_unknown, refuse, warn};
use super::forward::{ForwardedAction, ForwardedWrite};
use super::object_parts::{self, ObjectPart};
use super::rules::metadata;
use super::rules::names::key_of;
use super::scale::{desired_replicas, scale};
use super::transaction::{PodStatusChange, Transaction};
use super::{ApiResult, WriteOptions, WriteReply, delete};
use super::{conversion, custom};
use crate::kinds::custom::DEFINITIONS;
use crate::kinds::shared::process_ids;
use crate::kinds::{self, Kind, custom_resource_definition};
use crate::managed_fields::{self, FieldManager};
use crate::object::edit::{self, TextEdit, ValueChange};
use crate::object::{Key, Object, Reason, Status, Time};
use parts::{
    PODS, SIGNING_REQUESTS, keep_other_parts, pod_status, raise_generation, signing_request_status, with_status,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The part of an object that a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdatePart {
    /// Metadata and spec; status stays as it is for kinds with a status subresource.
    Main,
    /// Status, and the metadata that a client may change with it (`/status`).
    Status,
    /// Status alone, as the control loops write it; the metadata of the body is not read.
    StatusAlone,
    /// The conditions of a CertificateSigningRequest (`/approval`), and metadata as with `/status`.
    Approval,
    /// The fields of another subresource.
    Of(&'static ObjectPart),
    /// `spec.finalizers` of a namespace (`/finalize`).
    Finalize,
    /// The number of replicas (`/scale`): admission sees a Scale.
    Scale,
}

impl UpdatePart {
    /// The subresource by which it is written; empty for the object itself.
    pub fn subresource(self) -> &'static str {
        match self {
            UpdatePart::Main => "",
            UpdatePart::Status | UpdatePart::StatusAlone => "status",
            UpdatePart::Approval => "approval",
            UpdatePart::Of(part) => part.subresource,
            UpdatePart::Finalize => "finalize",
            UpdatePart::Scale => "scale",
        }
    }

    /// Finds the part that a subresource of this kind writes; empty is the object itself. `None` when its body is not
    /// the object, or the kind lacks it.
    pub fn find(kind: &Kind, subresource: &str) -> Option<UpdatePart> {
        match subresource {
            "" => Some(UpdatePart::Main),
            "status" => kind.status.then_some(UpdatePart::Status),
            name => {
                let found = object_parts::ALL.iter().find(|part| part.subresource == name && (part.applies_to)(kind));
                found.map(|part| UpdatePart::Of(part))
            }
        }
    }

    /// The writer of this part.
    fn written_by(self, manager: Option<&FieldManager>) -> Option<FieldManager> {
        match self.subresource() {
            "" => manager.cloned(),
            subresource => manager.map(|manager| FieldManager { name: manager.name.clone(), subresource }),
        }
    }
}

/// Replaces an object, or a part of it.
pub fn update(
    txn: &mut dyn Transaction,
    kind: &Kind,
    body: &Object,
    part: UpdatePart,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    check_verb(txn, "update", part.subresource(), &key_of(kind, body))?;
    write_update(txn, kind, body, part, options)
}

/// Like [`update`], for verbs that have checked the user's rights. The answer to a dry run has the revision of the stored object.
pub fn write_update(
    txn: &mut dyn Transaction,
    kind: &Kind,
    body: &Object,
    part: UpdatePart,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    let action = ForwardedAction::Update(body, options);
    if let Some(reply) = txn.forward(&ForwardedWrite::from_body(kind, body, part.subresource(), action)) {
        return reply;
    }
    let kind = custom::current(txn, kind, body.api_version())?;
    let stored = if options.dry_run { txn.get_shared(&key_of(kind, body))? } else { None };
    let mut reply = replace(txn, kind, body, part, options)?;
    if let Some(stored) = stored.filter(|_| reply.changed) {
        Arc::make_mut(&mut reply.object).set(&["metadata", "resourceVersion"], stored.revision().to_string());
    }
    Ok(reply)
}

/// Replaces an object, or a part of it, with a body of a kind as it is defined now.
fn replace(
    txn: &mut dyn Transaction,
    kind: &Kind,
    body: &Object,
    part: UpdatePart,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    options.check_manager("UpdateOptions")?;
    let key = key_of(kind, body);
    let Some(old) = txn.get_shared(&key)? else {
        if kind.create_on_update && part == UpdatePart::Main {
            check_creation(txn, &key)?;
            return create(txn, kind, body, options);
        }
        return Err(Status::not_found(kind.resource, &key.name));
    };
    check_preconditions(kind, body, &old)?;
    let old = conversion::shared(txn, kind, old, body.api_version())?;
    let mut warnings = Vec::new();
    let target = AdmissionTarget {
        operation: Operation::Update,
        kind,
        api_version: body.api_version(),
        subresource: part.subresource(),
        key: &key,
        options: RequestOptions::Write(options),
    };
    let mut object = match part {
        UpdatePart::StatusAlone => return update_status_alone(txn, target, body, old, options),
        UpdatePart::Status | UpdatePart::Approval => {
            return update_status(txn, target, body, part, old, options);
        }
        UpdatePart::Of(part) => {
            let replace = |wanted: &Object, old: &Object| (part.replace)(kind, wanted, old);
            let object = replace(&decode(kind, body, options, &mut warnings)?, &old)?;
            admitted_part(txn, target, object, &old, &mut warnings, replace)?
        }
        UpdatePart::Scale => rescaled(txn, target, body, &old, &mut warnings)?,
        UpdatePart::Main | UpdatePart::Finalize => match whole(txn, target, body, part, &old, options, &mut warnings) {
            Ok(object) => object,
            Err(status) => return Err(status.with_warnings(warnings)),
        },
    };
    raise_generation(kind, &mut object, &old);
    if !matches!(part, UpdatePart::Main | UpdatePart::Finalize) {
        let manager = part.written_by(options.manager.as_ref());
        managed_fields::update::record_update(kind, &old, &mut object, manager.as_ref(), txn.now());
    }
    put_update(txn, (kind, &key), object, old, warnings)
}

/// Replaces the status alone, as loops write it.
fn update_status_alone(
    txn: &mut dyn Transaction,
    target: AdmissionTarget<'_>,
    body: &Object,
    old: Arc<Object>,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    let (kind, key) = (target.kind, target.key);
    let (part, mut warnings) = (UpdatePart::StatusAlone, Vec::new());
    let (status, _) = decode_status(kind, body, &[], options, &mut warnings)?;
    let status = checked_status(kind, part, status, &old, txn.now())?;
    let status = admitted_status(txn, target, status, &old, &mut warnings)?;
    let noted = match part.written_by(options.manager.as_ref()) {
        Some(manager) => StatusOwnership::By(manager),
        None => StatusOwnership::In(body.value_at(&["metadata", "managedFields"])),
    };
    keep_status(txn, (kind, key), status, old, noted, warnings)
}

/// Replaces a status, and the metadata that the kind lets such a write change.
fn update_status(
    txn: &mut dyn Transaction,
    target: AdmissionTarget<'_>,
    body: &Object,
    part: UpdatePart,
    old: Arc<Object>,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    let (kind, key, mut warnings) = (target.kind, target.key, Vec::new());
    let fields = kind.status_metadata;
    // A client's body is decoded as a whole, although only a part of it counts.
    let decoded = match decode(kind, body, options, &mut warnings) {
        Ok(decoded) => decoded,
        Err(status) => return Err(status.with_warnings(warnings)),
    };
    let (status, new_metadata) = (decoded.value_at(&["status"]).cloned(), &decoded.0["metadata"]);
    let status = checked_status(kind, part, status, &old, txn.now())?;
    let manager = part.written_by(options.manager.as_ref());
    let mut object = Object::clone(&old);
    let managed = body.value_at(&["metadata", "managedFields"]).filter(|_| manager.is_none()).cloned();
    let taken = fields.iter().map(|field| (*field, new_metadata.get(*field).cloned()));
    for (field, value) in taken.chain(managed.map(|list| ("managedFields", Some(list)))) {
        match value {
            Some(value) => object.set(&["metadata", field], value),
            None => drop(object.unset(&["metadata", field])),
        }
    }
    match status {
        Some(status) => object.set(&["status"], status),
        None => drop(object.unset(&["status"])),
    }
    let mut object = admitted_part(txn, target, object, &old, &mut warnings, with_status)?;
    let mut errors = kinds::shared::metadata::validate_metadata(&object, Some(&old), kind);
    errors.extend((kind.validate_status)(&object, &old));
    refuse(kind, &object, &errors)?;
    managed_fields::update::record_update(kind, &old, &mut object, manager.as_ref(), txn.now());
    put_update(txn, (kind, key), object, old, warnings)
}

/// Returns the status to store, checked if the kind has rules for it. That of a custom resource is checked after admission.
fn checked_status(
    kind: &Kind,
    part: UpdatePart,
    status: Option<Value>,
    old: &Object,
    now: Time,
) -> ApiResult<Option<Value>> {
    let status = match kind.resource.0 {
        SIGNING_REQUESTS => Some(signing_request_status(kind, status, old, part, now)?),
        PODS => Some(pod_status(kind, status, old)?),
        _ => status,
    };
    if kind.resource == DEFINITIONS && part != UpdatePart::StatusAlone {
        let object = old.other_status(status.clone().unwrap_or_default());
        refuse(kind, &object, &custom_resource_definition::check_status(&object))?;
    }
    Ok(status)
}

/// The status that a loop writes after admission, which is skipped where nothing wants to see it.
fn admitted_status(
    txn: &mut dyn Transaction,
    target: AdmissionTarget<'_>,
    status: Option<Value>,
    old: &Object,
    warnings: &mut Vec<String>,
) -> ApiResult<Option<Value>> {
    let is_custom = target.kind.custom.is_some();
    if !is_custom && !admission::may_concern(txn, target.kind, target.operation, target.subresource)? {
        return Ok(status);
    }
    let mut object = old.clone();
    match status {
        None if is_custom => drop(object.unset(&["status"])),
        status => object.set(&["status"], status.unwrap_or_default()),
    }
    let mut object = admitted_part(txn, target, object, old, warnings, with_status)?;
    Ok(object.0.get_mut("status").map(Value::take))
}

/// A changed part of an object after admission. `restrict` makes the object again when a webhook or a policy has changed it: the other
/// parts stay as they are, and the changed one is validated.
fn admitted_part(
    txn: &mut dyn Transaction,
    target: AdmissionTarget<'_>,
    mut object: Object,
    old: &Object,
    warnings: &mut Vec<String>,
    restrict: impl Fn(&Object, &Object) -> ApiResult<Object>,
) -> ApiResult<Object> {
    let before = object.clone();
    let mut request = target.request(txn, &mut object, Some(old), warnings);
    admission::mutate(txn, &mut request)?;
    if *request.object != before {
        *request.object = restrict(request.object, old)?;
    }
    if target.kind.custom.is_some() {
        check(txn, target.kind, target.api_version, request.object, Some(old))?;
        drop_unknown(target.kind, request.object);
    }
    admission::validate(txn, &mut request)?;
    Ok(object)
}

/// The object with the number of replicas of a body. Admission sees the Scales before and after, and may change the number.
fn rescaled(
    txn: &mut dyn Transaction,
    target: AdmissionTarget<'_>,
    body: &Object,
    old: &Object,
    warnings: &mut Vec<String>,
) -> ApiResult<Object> {
    let kind = target.kind;
    let mut object = old.clone();
    let replicas = body.value_at(&kind.replicas().0).cloned();
    object.set(&kind.replicas().0, replicas.unwrap_or_default());
    // A server-side apply has set them.
    if let Some(managers) = body.value_at(&["metadata", "managedFields"]) {
        object.set(&["metadata", "managedFields"], managers.clone());
    }
    let (old_scale, mut seen) = (scale(kind, old), scale(kind, &object));
    let mut request = target.request(txn, &mut seen, Some(&old_scale), warnings);
    admission::mutate(txn, &mut request)?;
    object.set(&kind.replicas().0, desired_replicas(&seen)?);
    (kind.prepare)(&mut object, Some(old));
    check(txn, kind, target.api_version, &object, Some(old))?;
    let mut seen = scale(kind, &object);
    let mut request = target.request(txn, &mut seen, Some(&old_scale), warnings);
    admission::validate(txn, &mut request)?;
    Ok(object)
}

/// Replaces a status without admission, as part of another request that admission has checked, such as an eviction.
pub(super) fn put_status(txn: &mut dyn Transaction, kind: &Kind, key: &Key, status: Value) -> ApiResult<WriteReply> {
    let old = txn.get_shared(key)?.ok_or_else(|| Status::not_found(kind.resource, &key.name))?;
    keep_status(txn, (kind, key), Some(status), old, StatusOwnership::In(None), Vec::new())
}

/// Replaces a pod's status without decoding it: loops write it in its stored form. The annotation with the process ids is replaced, too,
/// when the body has it; null removes it.
pub fn update_pod_status(txn: &mut dyn Transaction, kind: &Kind, body: &Object) -> ApiResult<()> {
    debug_assert_eq!(
        Ok(body.value_at(&["status"]).cloned()),
        decode_status(kind, body, &[], &WriteOptions::default(), &mut Vec::new()).map(|(status, _)| status)
    );
    let key = key_of(kind, body);
    let is_watched = admission::may_concern(txn, kind, Operation::Update, UpdatePart::Status.subresource())?;
    if !is_watched && replace_status_in_text(txn, &key, body) {
        return Ok(());
    }
    let old = txn.get_shared(&key)?.ok_or_else(|| Status::not_found(kind.resource, &key.name))?;
    check_preconditions(kind, body, &old)?;
    let (mut warnings, options) = (Vec::new(), WriteOptions::default());
    let target = AdmissionTarget {
        operation: Operation::Update,
        kind,
        api_version: kind.version,
        subresource: UpdatePart::Status.subresource(),
        key: &key,
        options: RequestOptions::Write(&options),
    };
    let status = body.value_at(&["status"]).cloned();
    let status = admitted_status(txn, target, status, &old, &mut warnings)?;
    let is_changed = body.value_at(&PROCESS_IDS) != old.value_at(&PROCESS_IDS);
    let Some(change) = process_ids_change(body).filter(|_| is_changed) else {
        return keep_status(txn, (kind, &key), status, old, StatusOwnership::In(None), warnings).map(drop);
    };
    let mut object = Arc::unwrap_or_clone(old);
    object.set(&["status"], status.unwrap_or_default());
    edit::object(&mut object, &[change]);
    txn.put(&key, object).map(drop)
}

/// The path of the annotation with the process ids of a pod.
const PROCESS_IDS: [&str; 3] = ["metadata", "annotations", process_ids::ANNOTATION];

/// The change of the annotation with the process ids that a body asks for.
fn process_ids_change(body: &Object) -> Option<TextEdit> {
    Some(match body.value_at(&PROCESS_IDS)? {
        // An empty map of annotations is not stored.
        Value::Null => TextEdit::new(&PROCESS_IDS, ValueChange::UnsetLast),
        ids => TextEdit::set(&PROCESS_IDS, ids.clone()),
    })
}

/// Replaces a pod's status, and the annotation with the process ids, in the text of the pod, where the transaction can.
fn replace_status_in_text(txn: &mut dyn Transaction, key: &Key, body: &Object) -> bool {
    let Some(status) = body.value_at(&["status"]) else { return false };
    let other = process_ids_change(body);
    txn.replace_status_in_text(key, &PodStatusChange { uid: body.uid(), revision: body.revision(), status, other })
}

/// Ownership of the fields of a status.
enum StatusOwnership<'a> {
    /// The manager becomes the owner of the changed fields.
    By(FieldManager),
    /// The managed fields that replace the previous ones; `None` keeps the previous ones.
    In(Option<&'a Value>),
}

/// Stores the object with a new status. The rest was checked when it was written and is not checked again.
fn keep_status(
    txn: &mut dyn Transaction,
    (kind, key): (&Kind, &Key),
    status: Option<Value>,
    old: Arc<Object>,
    noted: StatusOwnership,
    warnings: Vec<String>,
) -> ApiResult<WriteReply> {
    let other_managers =
        matches!(noted, StatusOwnership::In(Some(list)) if Some(list) != old.value_at(&["metadata", "managedFields"]));
    if old.value_at(&["status"]) == status.as_ref() && !other_managers {
        return Ok(WriteReply::unchanged(old, warnings));
    }
    // Without ownership tracking the old object is not needed.
    let before = (matches!(noted, StatusOwnership::By(_)) && managed_fields::is_tracked(&old)).then(|| old.clone());
    let mut object = Arc::unwrap_or_clone(old);
    match status {
        Some(status) => object.set(&["status"], status),
        None => {
            object.unset(&["status"]);
        }
    }
    match (noted, before) {
        (StatusOwnership::By(manager), Some(old)) => {
            managed_fields::update::record_update(kind, &old, &mut object, Some(&manager), txn.now());
        }
        (StatusOwnership::In(Some(list)), _) if other_managers => {
            object.set(&["metadata", "managedFields"], list.clone())
        }
        _ => {}
    }
    Ok(WriteReply::changed(conversion::put(txn, kind, key, object)?, warnings))
}

/// A body's status as it is stored, and these fields of its metadata; of the rest nothing is read.
fn decode_status(
    kind: &Kind,
    body: &Object,
    fields: &[&str],
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> ApiResult<(Option<Value>, Map<String, Value>)> {
    let field = |name: &&str| Some(((*name).to_owned(), body.value_at(&["metadata", name])?.clone()));
    let metadata: Map<String, Value> = fields.iter().filter_map(field).collect();
    let mut part = json!({"apiVersion": body.api_version(), "kind": body.kind()});
    if let Some(status) = body.value_at(&["status"]) {
        part["status"] = status.clone();
    }
    if !metadata.is_empty() {
        part["metadata"] = metadata.into();
    }
    let mut decoded = decode(kind, &Object(part), options, warnings)?;
    let metadata = match decoded.0.get_mut("metadata").map(Value::take) {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    Ok((decoded.0.get_mut("status").map(Value::take), metadata))
}

/// The object with new metadata and spec, through the whole pipeline.
fn whole(
    txn: &mut dyn Transaction,
    target: AdmissionTarget<'_>,
    body: &Object,
    part: UpdatePart,
    old: &Object,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> ApiResult<Object> {
    let kind = target.kind;
    if part == UpdatePart::Main {
        warnings.extend(kind.deprecation(body.api_version()).map(str::to_owned));
    }
    let mut object = decode(kind, body, options, warnings)?;
    (kind.set_times)(&mut object, txn.now());
    keep_other_parts(kind, &mut object, old, part);
    metadata::carry_over(&mut object, old);
    (kind.prepare)(&mut object, Some(old));
    // Runs before admission: no manager owns its changes.
    let manager = part.written_by(options.manager.as_ref());
    managed_fields::update::record_update(kind, old, &mut object, manager.as_ref(), txn.now());
    let mut request = target.request(txn, &mut object, Some(old), warnings);
    admission::mutate(txn, &mut request)?;
    check(txn, kind, body.api_version(), request.object, Some(old))?;
    drop_unknown(kind, request.object);
    if part == UpdatePart::Main {
        warn(kind, request.object, Some(old), request.warnings);
    }
    admission::validate(txn, &mut request)?;
    Ok(object)
}

/// Stores a changed object; removes it instead when this write took the last thing that its deletion waited for.
fn put_update(
    txn: &mut dyn Transaction,
    (kind, key): (&Kind, &Key),
    object: Object,
    old: Arc<Object>,
    warnings: Vec<String>,
) -> ApiResult<WriteReply> {
    if metadata::is_unchanged(&object, &old) && conversion::is_in_storage_form(txn, kind, key)? {
        return Ok(WriteReply::unchanged(old, warnings));
    }
    if delete::is_due(kind, &object) {
        let last = conversion::to_storage(txn, kind, &object)?.into_owned();
        return Ok(WriteReply::changed(txn.remove(key, last)?, warnings));
    }
    Ok(WriteReply::changed(conversion::put(txn, kind, key, object)?, warnings))
}

/// Go's reason why a revision is not a number; `None` for one that is, and for none.
fn version_problem(version: &str) -> Option<&'static str> {
    let is_number = version.bytes().all(|byte| byte.is_ascii_digit());
    match version.parse::<u64>() {
        _ if version.is_empty() => None,
        Ok(_) if is_number => None,
        Err(_) if is_number => Some("value out of range"),
        _ => Some("invalid syntax"),
    }
}

fn check_preconditions(kind: &Kind, body: &Object, old: &Object) -> ApiResult<()> {
    let version = body.text(&["metadata", "resourceVersion"]).unwrap_or_default();
    if let Some(why) = version_problem(version) {
        let text = format!("strconv.ParseUint: parsing {version:?}: {why}");
        return Err(Status::new(Reason::Unknown, text));
    }
    if matches!(version, "" | "0") && !kind.unconditional_update {
        let field = crate::kinds::FieldError {
            field: "metadata.resourceVersion".into(),
            reason: "FieldValueInvalid",
            message: "Invalid value: 0: must be specified for an update".into(),
        };
        // The storage does not know the kind.
        return Err(crate::kinds::shared::field::invalid(kind.resource.plural(), kind.resource, old.name(), &[field]));
    }
    if !version.is_empty() && version != "0" && Some(version) != old.text(&["metadata", "resourceVersion"]) {
        return Err(Status::modified(kind.resource, old.name()));
    }
    let uid = body.uid();
    if !uid.is_empty() && uid != old.uid() {
        // The message of the storage layer of Kubernetes' API server, which it sends to clients unchanged.
        let key = key_of(kind, old);
        let detail = format!(
            "StorageError: invalid object, Code: 4, Key: /{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            kind.resource.plural(),
            key.path(),
            old.uid()
        );
        return Err(Status::conflict(kind.resource, old.name(), &detail));
    }
    Ok(())
}
