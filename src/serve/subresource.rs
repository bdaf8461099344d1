//! Subresources: status, scale, a pod's binding, and so on; and review requests that store no object.

use super::body;
use super::form::AnswerForm;
use super::log;
use super::options;
use super::path::PathTarget;
use super::read::{self, ReadPresentation};
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::write::{change, check_name, patch_part, replace_part, written};
use super::{HttpAnswer, ServeResult, not_allowed, unknown_path};
use crate::apiserver::bind::bind;
use crate::apiserver::evict::evict;
use crate::apiserver::patch::patched;
use crate::apiserver::read::exact;
use crate::apiserver::scale::{rescale, scale};
use crate::apiserver::update::UpdatePart;
use crate::apiserver::{Api, FieldManager, WriteOptions};
use crate::object::{Key, Object, Reason, Resource, Status};
use serde_json::{Value, json};

/// The part of an object that a subresource is.
fn part(asked: &ResolvedTarget<'_>) -> Option<UpdatePart> {
    match (asked.kind.resource.0, asked.subresource) {
        (_, "status") if asked.kind.status => Some(UpdatePart::Status),
        ("pods", "ephemeralcontainers") => Some(UpdatePart::EphemeralContainers),
        ("pods", "resize") => Some(UpdatePart::Resize),
        ("namespaces", "finalize") => Some(UpdatePart::Finalize),
        _ => None,
    }
}

/// Answers a request for a subresource.
pub fn answer(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    if let Some(part) = part(asked) {
        return match (request.method.as_str(), part) {
            ("PUT", part) => replace_part(api, request, asked, part),
            (_, UpdatePart::Finalize) => Err(not_allowed()),
            ("GET", _) => read::get(api, request, asked),
            ("PATCH", part) => patch_part(api, request, asked, part),
            _ => Err(not_allowed()),
        };
    }
    match (asked.kind.resource.0, asked.subresource, request.method.as_str()) {
        (_, "scale", "GET" | "PUT" | "PATCH") if asked.kind.scale => scaled(api, request, asked),
        ("pods", "binding", "POST") => binding(api, request, asked.key()),
        ("pods", "eviction", "POST") => eviction(api, request, asked.key()),
        ("pods", "log", "GET") => log::answer(api, request, asked),
        ("pods", "exec" | "attach" | "portforward", _) => {
            let verb = if asked.subresource == "portforward" { "port-forward" } else { asked.subresource };
            Err(missing(&format!("kloop serves no {} over HTTP yet: use kloop {verb}", asked.subresource)))
        }
        ("serviceaccounts", "token", "POST") => {
            Err(missing("kloop issues no tokens, as its API knows no users besides its administrator"))
        }
        ("pods", "binding" | "eviction" | "log", _) | ("serviceaccounts", "token", _) => Err(not_allowed()),
        (_, "scale", _) if asked.kind.scale => Err(not_allowed()),
        _ => Err(unknown_path()),
    }
}

fn missing(text: &str) -> Status {
    Status::new(Reason::NotImplemented, text)
}

/// Reads or changes how many replicas an object has.
fn scaled(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let key = asked.key();
    let wish = match request.method.as_str() {
        "PUT" => {
            let wish = Object(body::value(request, ("autoscaling/v1", "Scale"))?);
            check_name(&wish, asked.name)?;
            ScaleUpdate::Whole(wish)
        }
        "PATCH" => ScaleUpdate::Change(change(request)?),
        _ => {
            let object = api.read_view(|txn| exact(txn, &key))?;
            return Ok(show.answer_object(200, scale(asked.kind, &object)));
        }
    };
    let of = if request.method == "PUT" { "UpdateOptions" } else { "PatchOptions" };
    let options = options::of_write(request, of)?;
    let options = WriteOptions {
        manager: options.manager.map(|manager| FieldManager { subresource: "scale", ..manager }),
        ..options
    };
    let reply = api.write(options.dry_run, |txn| {
        let wish = match &wish {
            ScaleUpdate::Whole(wish) => wish.clone(),
            ScaleUpdate::Change((language, change)) => {
                let now = scale(asked.kind, &exact(txn, &key)?);
                Object(patched(asked.kind, &now, *language, change)?)
            }
        };
        rescale(txn, asked.kind, &key, &wish, &options)
    })?;
    let scaled = scale(asked.kind, &reply.object);
    Ok(written(&show, 200, crate::apiserver::WriteReply { object: scaled.into(), ..reply }))
}

/// Changes to a scale.
enum ScaleUpdate {
    /// This.
    Whole(Object),
    /// The one that is there, changed.
    Change((crate::apiserver::patch::PatchType, Value)),
}

/// Binds a pod to a node.
fn binding(api: &mut Api, request: &ApiRequest, pod: Key) -> ServeResult {
    let form = AnswerForm::negotiate(request, || true)?;
    let options = options::of_write(request, "CreateOptions")?;
    let wish = Object(body::value(request, ("v1", "Binding"))?);
    let node = wish.text(&["target", "name"]).unwrap_or_default();
    api.write(options.dry_run, |txn| bind(txn, &pod, wish.uid(), node))?;
    Ok(HttpAnswer::done(201, None, &form))
}

/// Evicts a pod.
fn eviction(api: &mut Api, request: &ApiRequest, pod: Key) -> ServeResult {
    let form = AnswerForm::negotiate(request, || true)?;
    let wish = body::value(request, ("policy/v1", "Eviction"))?;
    if wish["metadata"]["name"].as_str().is_some_and(|name| *name != *pod.name) {
        return Err(Status::new(Reason::BadRequest, "name in URL does not match name in Eviction object"));
    }
    let (deletion, dry_run) = options::deletion(request, &wish["deleteOptions"])?;
    api.write(dry_run, |txn| evict(txn, &pod, &deletion, dry_run))?;
    Ok(HttpAnswer::done(201, None, &form))
}

/// Answers what is about no kind of the catalogue; nothing for all else.
pub fn without_kind(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> Option<ServeResult> {
    let is_plain = named.name.is_none() && !named.watch;
    match (named.group.as_str(), named.version.as_str(), named.plural.as_str()) {
        ("", "v1", "bindings") if is_plain => Some(bindings(api, request, named)),
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") if is_plain => {
            Some(review(request, "SelfSubjectAccessReview", json!({"allowed": true})))
        }
        ("authentication.k8s.io", "v1", "selfsubjectreviews") if is_plain => {
            let user = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
            Some(review(request, "SelfSubjectReview", json!({"userInfo": user})))
        }
        _ => None,
    }
}

fn bindings(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> ServeResult {
    let (Some(namespace), "POST") = (&named.namespace, request.method.as_str()) else { return Err(not_allowed()) };
    let name = body::value(request, ("v1", "Binding"))?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    binding(api, request, Key::new(Resource("pods"), namespace, &name))
}

/// An authenticated client may do everything.
fn review(request: &ApiRequest, kind: &str, status: Value) -> ServeResult {
    if request.method != "POST" {
        return Err(not_allowed());
    }
    let form = AnswerForm::negotiate(request, || true)?;
    let api_version = if kind == "SelfSubjectReview" { "authentication.k8s.io/v1" } else { "authorization.k8s.io/v1" };
    let mut review = body::value(request, (api_version, kind))?;
    (review["apiVersion"], review["kind"], review["status"]) = (api_version.into(), kind.into(), status);
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    Ok(HttpAnswer::document(201, &review, &form))
}
