//! Subresources: status, scale, a pod's binding, and so on; and review requests that store no object.

use super::body;
use super::log;
use super::options;
use super::path::Named;
use super::read::{self, Show};
use super::request::Request;
use super::resolve::Asked;
use super::write::{change, check_name, patch_part, replace_part, written};
use super::{Answer, Result, not_allowed, unknown_path};
use crate::apiserver::bind::bind;
use crate::apiserver::evict::evict;
use crate::apiserver::patch::patched;
use crate::apiserver::read::exact;
use crate::apiserver::scale::{rescale, scale};
use crate::apiserver::update::Part;
use crate::apiserver::{Api, Manager, Options};
use crate::object::{Key, Object, Reason, Resource, Status};
use serde_json::{Value, json};

/// The part of an object that a subresource is.
fn part(asked: &Asked<'_>) -> Option<Part> {
    match (asked.kind.resource.0, asked.subresource) {
        (_, "status") if asked.kind.status => Some(Part::Status),
        ("pods", "ephemeralcontainers") => Some(Part::EphemeralContainers),
        ("pods", "resize") => Some(Part::Resize),
        ("namespaces", "finalize") => Some(Part::Finalize),
        _ => None,
    }
}

/// Answers a request for a subresource.
pub fn answer(api: &mut Api, request: &Request, asked: &Asked<'_>) -> Result {
    if let Some(part) = part(asked) {
        return match (request.method.as_str(), part) {
            ("PUT", part) => replace_part(api, request, asked, part),
            (_, Part::Finalize) => Err(not_allowed()),
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
fn scaled(api: &mut Api, request: &Request, asked: &Asked<'_>) -> Result {
    let show = Show::of(request, asked)?;
    let key = asked.key();
    let wish = match request.method.as_str() {
        "PUT" => {
            let wish = Object(body::value(request, "Scale")?);
            check_name(&wish, asked.name)?;
            Wish::Whole(wish)
        }
        "PATCH" => Wish::Change(change(request)?),
        _ => {
            let object = api.look(|ledger| exact(ledger, &key))?;
            return Ok(show.one(200, scale(asked.kind, &object)));
        }
    };
    let of = if request.method == "PUT" { "UpdateOptions" } else { "PatchOptions" };
    let options = options::of_write(request, of)?;
    let options =
        Options { manager: options.manager.map(|manager| Manager { subresource: "scale", ..manager }), ..options };
    let reply = api.write(options.dry_run, |ledger| {
        let wish = match &wish {
            Wish::Whole(wish) => wish.clone(),
            Wish::Change((language, change)) => {
                let now = scale(asked.kind, &exact(ledger, &key)?);
                Object(patched(asked.kind, &now, *language, change)?)
            }
        };
        rescale(ledger, asked.kind, &key, &wish, &options)
    })?;
    let scaled = scale(asked.kind, &reply.object);
    Ok(written(&show, 200, crate::apiserver::Reply { object: scaled.into(), ..reply }))
}

/// Changes to a scale.
enum Wish {
    /// This.
    Whole(Object),
    /// The one that is there, changed.
    Change((crate::apiserver::patch::PatchType, Value)),
}

/// Binds a pod to a node.
fn binding(api: &mut Api, request: &Request, pod: Key) -> Result {
    let options = options::of_write(request, "CreateOptions")?;
    let wish = Object(body::value(request, "Binding")?);
    let node = wish.text(&["target", "name"]).unwrap_or_default();
    api.write(options.dry_run, |ledger| bind(ledger, &pod, wish.uid(), node))?;
    Ok(Answer::done(201, None, &Default::default()))
}

/// Evicts a pod.
fn eviction(api: &mut Api, request: &Request, pod: Key) -> Result {
    let wish = body::value(request, "Eviction")?;
    if wish["metadata"]["name"].as_str().is_some_and(|name| *name != *pod.name) {
        return Err(Status::new(Reason::BadRequest, "name in URL does not match name in Eviction object"));
    }
    let (deletion, dry_run) = options::deletion(request, &wish["deleteOptions"])?;
    api.write(dry_run, |ledger| evict(ledger, &pod, &deletion, dry_run))?;
    Ok(Answer::done(201, None, &Default::default()))
}

/// Answers what is about no kind of the catalogue; nothing for all else.
pub fn without_kind(api: &mut Api, request: &Request, named: &Named) -> Option<Result> {
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

fn bindings(api: &mut Api, request: &Request, named: &Named) -> Result {
    let (Some(namespace), "POST") = (&named.namespace, request.method.as_str()) else { return Err(not_allowed()) };
    let name = body::value(request, "Binding")?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    binding(api, request, Key::new(Resource("pods"), namespace, &name))
}

/// Whoever is let in may do everything.
fn review(request: &Request, kind: &str, status: Value) -> Result {
    if request.method != "POST" {
        return Err(not_allowed());
    }
    let mut review = body::value(request, kind)?;
    let api_version = if kind == "SelfSubjectReview" { "authentication.k8s.io/v1" } else { "authorization.k8s.io/v1" };
    (review["apiVersion"], review["kind"], review["status"]) = (api_version.into(), kind.into(), status);
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    Ok(Answer::of(201, &review, &Default::default()))
}
