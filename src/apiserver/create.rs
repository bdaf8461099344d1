//! Create: the whole pipeline, from a body to a kept object.

use super::admission::{self, AdmissionRequest, AdmissionTarget, Operation, RequestOptions};
use super::authorization::check_verb;
use super::forward::{ForwardedAction, ForwardedWrite};
use super::rules::metadata;
use super::rules::names::{self, key_of};
use super::transaction::{PodCopy, Transaction};
use super::{ApiResult, FieldValidation, WriteOptions, WriteReply};
use super::{conversion, custom};
use crate::kinds::custom::DEFINITIONS;
use crate::kinds::pod::{self, part_counts};
use crate::kinds::shared::field;
use crate::kinds::{self, FieldErrors, Kind, UnknownField};
use crate::managed_fields;
use crate::object::patch::count_values;
use crate::object::{Key, Misfit, Object, Reason, Status, format_uid, time};
use std::sync::Arc;

/// Number of retries for a generated name that is taken (KEP-4420: eight attempts in all).
const NAME_ATTEMPTS: usize = 8;

/// Creates an object. The body of a namespaced kind contains the namespace.
pub fn create(txn: &mut dyn Transaction, kind: &Kind, body: &Object, options: &WriteOptions) -> ApiResult<WriteReply> {
    let action = ForwardedAction::Create(body, options);
    if let Some(reply) = txn.forward(&ForwardedWrite::from_body(kind, body, "", action)) {
        return reply;
    }
    let mut warnings = Vec::new();
    let created = create_object(txn, kind, body, options, &mut warnings);
    created.map_err(|status| status.with_warnings(warnings))
}

fn create_object(
    txn: &mut dyn Transaction,
    kind: &Kind,
    body: &Object,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> ApiResult<WriteReply> {
    let kind = custom::current(txn, kind, body.api_version())?;
    check_verb(txn, "create", "", &Key::new(kind.resource, body.namespace(), ""))?;
    options.check_manager("CreateOptions")?;
    warnings.extend(kind.deprecation(body.api_version()).map(str::to_owned));
    let mut object = decode(kind, body, options, warnings)?;
    (kind.set_times)(&mut object, txn.now());
    set_server_metadata(txn, kind, &mut object);
    let generated = generate_name(txn, kind, &mut object)? || is_named_by_loop(txn, &object);
    let key = key_of(kind, &object);
    let named = if generated { Key::new(kind.resource, object.namespace(), "") } else { key.clone() };
    let target = target(kind, body, &named, options);
    if object.items(&["metadata", "managedFields"]).is_empty() {
        object.unset(&["metadata", "managedFields"]);
    }
    // Runs before admission: no manager owns fields that admission or the kind's defaults add.
    if let Some(manager) = &options.manager {
        managed_fields::update::record_create(kind, &mut object, manager, txn.now());
    }
    custom::check_not_going(txn, kind, &named.name)?;
    admit(txn, target, &mut object, warnings, admission::mutate)?;
    // After the name is known (Jobs and namespaces carry it in a label), and the limits (a pod's QoS class follows from them).
    (kind.prepare)(&mut object, None);
    // The managers were just recorded: checks need not read them, which takes a twentieth of a create.
    let managers = object.0["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
    check(txn, kind, body.api_version(), &object, None)?;
    drop_unknown(kind, &mut object);
    if let Some(managers) = managers {
        object.set(&["metadata", "managedFields"], managers);
    }
    warn(kind, &object, None, warnings);
    admit(txn, target, &mut object, warnings, admission::validate)?;
    // As in Kubernetes, it is the storage that refuses, after validation and admission; a dry run does not reach it.
    if !options.dry_run && body.text(&["metadata", "resourceVersion"]).is_some_and(|version| !version.is_empty()) {
        return Err(Status::new(Reason::BadRequest, "resourceVersion should not be set on objects to be created"));
    }
    check_storable(txn, kind, &key, &object)?;
    let mut kept = conversion::put(txn, kind, &key, object)?;
    if options.dry_run {
        Arc::make_mut(&mut kept).unset(&["metadata", "resourceVersion"]);
    }
    Ok(WriteReply::changed(kept, std::mem::take(warnings)))
}

/// Generates a name from `generateName` if the request has no name. Returns whether it did.
fn generate_name(txn: &mut dyn Transaction, kind: &Kind, object: &mut Object) -> ApiResult<bool> {
    if kind.resource == "limitranges" && object.name().is_empty() && !has_generate_name(object) {
        // Kubernetes names the object; another kind is refused without a name.
        object.set(&["metadata", "name"], format_uid(txn.random(), txn.random()));
    }
    let generated = object.name().is_empty();
    let base = object.text(&["metadata", "generateName"]).unwrap_or_default().to_owned();
    for attempt in 1.. {
        if generated && !base.is_empty() {
            object.set(&["metadata", "name"], names::generate(&base, txn.random()));
        }
        let key = key_of(kind, object);
        if !generated || object.name().is_empty() || attempt >= NAME_ATTEMPTS || !txn.exists(&key)? {
            break;
        }
    }
    Ok(generated)
}

/// Whether one of kloop's own controllers has chosen the name that `generateName` asks for. Kubernetes' controllers leave that to the API
/// server, so that refusals name only the start.
fn is_named_by_loop(txn: &dyn Transaction, object: &Object) -> bool {
    let base = object.text(&["metadata", "generateName"]).unwrap_or_default();
    let rest = object.name().strip_prefix(base.get(..names::MAX_BASE).unwrap_or(base));
    !base.is_empty()
        && rest.is_some_and(|rest| rest.len() == names::RANDOM_LETTERS)
        && txn.request_user().is_controller()
}

/// A created pod, and the body that it was made of. A body that differs only in its name is not decoded again, and is validated again only
/// when admission changes it. A controller makes many such pods at a time.
#[derive(Default)]
pub struct PodTemplateCache(Option<PodTemplate>);

struct PodTemplate {
    /// The body.
    body: Object,
    /// The stored pod that was created from the template.
    pod: Arc<Object>,
    /// The text of that pod, and a copy that gets the metadata of each further pod. `None` before there is a further pod.
    copy: Option<(String, Object)>,
}

impl PodTemplateCache {
    /// The template for this body.
    fn find_template(&mut self, body: &Object) -> Option<&mut PodTemplate> {
        let template = self.0.as_mut()?;
        let is_alike = !body.name().is_empty() && metadata::is_same_but_for(body, &template.body, &["name"]);
        is_alike.then_some(template)
    }
}

/// Creates an object; a pod may reuse the one created before from the same template. It then does not repeat the warnings of decoding.
pub fn create_like(
    txn: &mut dyn Transaction,
    kind: &Kind,
    body: &Object,
    options: &WriteOptions,
    template_cache: &mut PodTemplateCache,
) -> ApiResult<()> {
    // The cached pod has passed policies and webhooks, which may change a pod twice in another way than once.
    let is_concerned = admission::may_concern(txn, kind, Operation::Create, "")?;
    let template = if is_concerned { None } else { template_cache.find_template(body) };
    if let Some(template) = template {
        let created = create_from_template(txn, kind, body, options, template);
        if !matches!(created, Ok(true)) {
            template.copy = None;
        }
        return created.map(drop);
    }
    let reply = create(txn, kind, body, options)?;
    if kind.resource == "pods" && !body.name().is_empty() && !options.dry_run && !is_concerned {
        template_cache.0 = Some(PodTemplate { body: body.clone(), pod: reply.object, copy: None });
    }
    Ok(())
}

/// The fields of metadata in which pods of one template differ.
const OWN_METADATA: [&str; 4] = ["creationTimestamp", "name", "resourceVersion", "uid"];

/// Creates a pod from a template. Returns whether admission left the copy of the template as it was; otherwise the caller drops the copy.
fn create_from_template(
    txn: &mut dyn Transaction,
    kind: &Kind,
    body: &Object,
    options: &WriteOptions,
    template: &mut PodTemplate,
) -> ApiResult<bool> {
    let PodTemplate { pod, copy, .. } = template;
    let (text, object) = copy.get_or_insert_with(|| (pod.0.to_string(), Object::clone(pod)));
    object.set(&["metadata", "name"], body.name());
    set_server_metadata(txn, kind, object);
    let key = key_of(kind, object);
    refuse(kind, object, &kinds::shared::metadata::validate_metadata(object, None, kind))?;
    let mut warnings = Vec::new();
    // The plugins change nothing in an object that they have admitted once, unless the objects that they read have changed since.
    let named =
        if is_named_by_loop(txn, object) { Key::new(kind.resource, object.namespace(), "") } else { key.clone() };
    let target = target(kind, body, &named, options);
    admit(txn, target, object, &mut warnings, admission::mutate)?;
    let is_unchanged = metadata::is_same_but_for(object, pod, &OWN_METADATA);
    if !is_unchanged {
        (kind.prepare)(object, None);
        check(txn, kind, body.api_version(), object, None)?;
    }
    admit(txn, target, object, &mut warnings, admission::validate)?;
    check_free(txn, kind, &key)?;
    if !is_unchanged || !txn.copy_in_text(&PodCopy { template: pod, text, pod: object }) {
        txn.put(&key, object.clone())?;
    }
    Ok(is_unchanged)
}

/// One of the two phases of admission.
type AdmissionPhase = fn(&mut dyn Transaction, &mut AdmissionRequest<'_>) -> ApiResult<()>;

/// A request to create an object.
fn target<'a>(kind: &'a Kind, body: &'a Object, key: &'a Key, options: &'a WriteOptions) -> AdmissionTarget<'a> {
    let (operation, options) = (Operation::Create, RequestOptions::Write(options));
    AdmissionTarget { operation, kind, api_version: body.api_version(), subresource: "", key, options }
}

/// Runs a phase of admission on a new object.
fn admit(
    txn: &mut dyn Transaction,
    target: AdmissionTarget<'_>,
    object: &mut Object,
    warnings: &mut Vec<String>,
    phase: AdmissionPhase,
) -> ApiResult<()> {
    let mut request = target.request(txn, object, None, warnings);
    phase(txn, &mut request)
}

/// Refuses an object that a webhook cannot convert, or whose name is taken: the storage encodes an object before it looks for its name.
fn check_storable(txn: &mut dyn Transaction, kind: &Kind, key: &Key, object: &Object) -> ApiResult<()> {
    if conversion::webhook(kind).is_some() {
        conversion::to_storage(txn, kind, object)?;
    }
    check_free(txn, kind, key).map_err(|mut status| {
        if has_generate_name(object) {
            status.message.push_str(", the server was not able to generate a unique name for the object");
        }
        status
    })
}

fn has_generate_name(object: &Object) -> bool {
    object.text(&["metadata", "generateName"]).is_some_and(|prefix| !prefix.is_empty())
}

/// Refuses a name that is taken.
fn check_free(txn: &dyn Transaction, kind: &Kind, key: &Key) -> ApiResult<()> {
    let Some(existing) = txn.get_shared(key)? else { return Ok(()) };
    let mut status = Status::already_exists(kind.resource, &key.name);
    if existing.deletion().is_some() {
        status.message = format!("object is being deleted: {}", status.message);
    }
    Err(status)
}

/// Adds warnings about a valid object. Those about a definition that its old form had are not repeated.
pub fn warn(kind: &Kind, new: &Object, old: Option<&Object>, warnings: &mut Vec<String>) {
    let known = old.filter(|_| kind.resource == DEFINITIONS).map_or_else(Vec::new, |old| (kind.warnings)(old));
    if old.is_none_or(|old| !pod::warnings::are_known(new, old)) {
        warnings.extend((kind.warnings)(new).into_iter().filter(|warning| !known.contains(warning)));
    }
    if kind.custom.is_some() {
        warnings.extend(kinds::shared::metadata::finalizer_warnings(new, old));
    }
}

/// The beginning of the error about a body that does not fit its kind.
pub fn misfit_head(kind: &Kind, body: &Object) -> String {
    let version = if kind.custom.is_some() { body.api_version() } else { kind.version };
    let version = version.rsplit('/').next().unwrap_or_default();
    format!("{0} in version {version:?} cannot be handled as a {0}: ", kind.kind)
}

/// Maximum number of values in an object in any encoding. Each value takes time under the write lock, and in memory many times the size of
/// its text.
pub const MAX_VALUES: usize = 100_000;

/// Decodes strictly, sets defaults, and adds warnings or errors about unknown fields as `fieldValidation` asks.
pub fn decode(kind: &Kind, body: &Object, options: &WriteOptions, warnings: &mut Vec<String>) -> ApiResult<Object> {
    if count_values(&body.0, MAX_VALUES) > MAX_VALUES {
        let text = format!("Request entity too large: limit is {MAX_VALUES} values");
        return Err(Status::new(Reason::RequestEntityTooLarge, text));
    }
    let mut too_many = FieldErrors::default();
    part_counts::check_body(kind, body, &mut too_many);
    refuse(kind, body, &too_many.0)?;
    let mut unknown = Vec::new();
    let normalized = kind.normalized(&body.0, &mut |field| unknown.push(field));
    let refuse = |text: String| Status::bad_request(format!("{}{text}", misfit_head(kind, body)));
    let mut object = Object(normalized.map_err(|error| {
        let status = refuse(error.message);
        let misfit = Misfit { path: error.path, go_type: error.go_type };
        Status { misfit: Some(misfit).filter(|misfit| !misfit.path.is_empty()).map(Box::new), ..status }
    })?);
    let complaints = match &options.body {
        Some(body) => body.complaints(kind, &unknown),
        None => unknown.iter().map(UnknownField::complaint).collect(),
    };
    match options.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            let mut status = refuse(format!("strict decoding error: {}", complaints.join(", ")));
            status.unknown = unknown.into_iter().map(|field| (field.path, field.nearest)).collect();
            return Err(status);
        }
        FieldValidation::Warn => warnings.extend(complaints),
        _ => {}
    }
    metadata::drop_empty(&mut object);
    metadata::drop_duplicate_owners(&mut object, "", warnings);
    Ok(object)
}

/// Checks metadata and the kind's own rules, by the version that the object was written in; all errors at once.
pub fn check(
    txn: &mut dyn Transaction,
    kind: &Kind,
    api_version: &str,
    object: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    custom::defer_compilation(txn, kind, api_version, object, old)?;
    let mut errors = kinds::shared::metadata::validate_metadata(object, old, kind);
    errors.extend(kind.wrongs(api_version, object, old));
    refuse(kind, object, &errors)
}

/// Drops the fields that a webhook has added to a custom resource and that its schema does not keep.
pub fn drop_unknown(kind: &Kind, object: &mut Object) {
    if let Some(custom) = kind.custom {
        custom.complete(object);
    }
}

/// Refuses an object with errors.
pub fn refuse(kind: &Kind, object: &Object, errors: &[kinds::FieldError]) -> ApiResult<()> {
    if errors.is_empty() { Ok(()) } else { Err(field::invalid(kind.kind, kind.resource, object.name(), errors)) }
}

/// Gives a new object the metadata that the server decides: uid, creation time, generation.
pub fn set_server_metadata(txn: &mut dyn Transaction, kind: &Kind, object: &mut Object) {
    let uid = format_uid(txn.random(), txn.random());
    object.set(&["metadata", "uid"], uid);
    object.set(&["metadata", "creationTimestamp"], time::rfc3339(txn.now()));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"] {
        object.unset(&["metadata", field]);
    }
    // Kinds whose generation does not count keep the one that was sent.
    if kind.generation {
        object.set(&["metadata", "generation"], 1);
    } else if object.generation() == 0 {
        object.unset(&["metadata", "generation"]);
    }
    if !kind.namespaced {
        object.unset(&["metadata", "namespace"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::Api;
    use crate::object::Resource;
    use serde_json::json;

    /// The pod without the metadata that differs between pods of one template.
    fn shape(pod: &Object) -> Object {
        let mut shape = pod.clone();
        for field in ["name", "uid", "resourceVersion", "creationTimestamp"] {
            shape.unset(&["metadata", field]);
        }
        // The volume of the token has a random name.
        Object(
            serde_json::from_str(
                &regex::Regex::new("kube-api-access-.....").unwrap().replace_all(&shape.0.to_string(), "token"),
            )
            .unwrap(),
        )
    }

    fn create_and_get(api: &mut Api, body: &Object, template_cache: &mut PodTemplateCache) -> ApiResult<Object> {
        let (kind, options) = (&kinds::pod::KIND, WriteOptions::default());
        api.write(false, |txn| {
            create_like(txn, kind, body, &options, template_cache)?;
            Ok(txn.get(&key_of(kind, body))?.expect("it was created"))
        })
    }

    #[test]
    fn pod_like_an_earlier_one_is_what_it_would_be_by_itself() {
        let mut api = Api::in_memory("test").unwrap();
        let kind = kinds::by_resource(Resource("pods")).unwrap();
        let body = |name: &str, image: &str, label: &str| {
            let metadata =
                json!({"name": name, "namespace": "default", "generateName": "p-", "labels": {"app": label}});
            Object(
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c", "image": image}]}}),
            )
        };
        let bodies = [("a", "x", "1"), ("b", "x", "1"), ("c", "y", "1"), ("d", "y", "2"), ("e", "y", "2")]
            .map(|(n, i, l)| body(n, i, l));
        let options = WriteOptions::default();
        let mut template_cache = PodTemplateCache::default();
        let found = bodies.each_ref().map(|body| template_cache.find_template(body).is_some());
        assert_eq!(found, [false; 5], "nothing was made yet");
        let mut uids = Vec::new();
        for like in &bodies {
            let made = create_and_get(&mut api, like, &mut template_cache).unwrap();
            let mut other = like.clone();
            other.set(&["metadata", "name"], format!("{}-alone", like.name()));
            let alone = api.write(false, |txn| create(txn, kind, &other, &options)).unwrap().object;
            assert_eq!((shape(&made), made.name()), (shape(&alone), like.name()));
            uids.push(made.uid().to_owned());
        }
        uids.dedup();
        assert_eq!(uids.len(), 5);
        let mut has_template =
            |name: &str, image: &str, label: &str| template_cache.find_template(&body(name, image, label)).is_some();
        assert_eq!(
            [
                has_template("f", "y", "2"),
                has_template("f", "x", "2"),
                has_template("f", "y", "1"),
                has_template("", "y", "2")
            ],
            [true, false, false, false]
        );
        for (name, reason) in [("e", Reason::AlreadyExists), ("E!", Reason::Invalid)] {
            let refused = create_and_get(&mut api, &body(name, "y", "2"), &mut template_cache);
            assert_eq!(refused.unwrap_err().reason, reason, "{name}");
        }
        // The LimitRange that admission reads may change between two pods.
        let range =
            Object(json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "default"},
            "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}));
        let ranges = kinds::by_resource(Resource("limitranges")).unwrap();
        api.write(false, |txn| create(txn, ranges, &range, &options)).unwrap();
        let like = body("g", "y", "2");
        assert!(template_cache.find_template(&like).is_some());
        let made = create_and_get(&mut api, &like, &mut template_cache).unwrap();
        let alone = api.write(false, |txn| create(txn, kind, &body("g-alone", "y", "2"), &options)).unwrap().object;
        assert_eq!(made.items(&["spec", "containers"])[0]["resources"]["limits"]["cpu"], "2");
        assert_eq!(shape(&made), shape(&alone));
    }
}
