//! Subresources: status, scale, a pod's binding, and so on.

use super::body;
use super::computed;
use super::form::AnswerForm;
use super::log;
use super::options;
use super::path::PathTarget;
use super::presentation::ReadPresentation;
use super::proxy;
use super::read;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::reviews;
use super::streaming;
use super::write::{applier, change, check_name, configuration, is_apply, patch_part, replace_part, written};
use super::{HttpAnswer, ServeResult, not_allowed, unknown_path};
use crate::apiserver::apply_patch::apply_patch;
use crate::apiserver::bind::bind;
use crate::apiserver::connect::connect;
use crate::apiserver::conversion::convert;
use crate::apiserver::evict::evict;
use crate::apiserver::object_parts::{self, ObjectPart};
use crate::apiserver::patch::patched;
use crate::apiserver::read::exact;
use crate::apiserver::rescale::rescale;
use crate::apiserver::scale::{desired_replicas, missing_replicas, scale};
use crate::apiserver::tokens;
use crate::apiserver::transaction::Transaction;
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, ApiResult, WriteOptions, WriteReply};
use crate::kinds::{self, Kind};
use crate::managed_fields::FieldManager;
use crate::object::{Key, Object, Reason, Resource, Status};
use k8s_openapi::api::authentication::v1::TokenRequest;
use serde_json::{Value, json};

/// One subresource: its discovery data and its handler.
#[derive(Clone, Copy)]
pub struct Subresource {
    /// `status`, `log`.
    pub name: &'static str,
    /// Whether objects of a kind have this subresource.
    pub applies_to: fn(&Kind) -> bool,
    /// The kind of its bodies; `None` for the object's own.
    pub kind: Option<&'static str>,
    /// Group and version of that kind, when they differ from the object's.
    pub version: Option<(&'static str, &'static str)>,
    /// The verbs for discovery, which also decide the allowed methods.
    pub verbs: &'static [&'static str],
    answer: Handler,
}

/// The way in which requests for a subresource are answered.
#[derive(Clone, Copy)]
enum Handler {
    /// Requests read the object, or write this part of it.
    Part(UpdatePart),
    /// A function answers the requests.
    Answer(AnswerRequest),
}

/// Answers a request for a subresource.
type AnswerRequest = fn(&mut Api, &ApiRequest, &ResolvedTarget<'_>) -> ServeResult;

/// Verbs of object parts.
const PART: &[&str] = &["get", "patch", "update"];

/// Verbs of streams.
const CONNECT: &[&str] = &["create", "get"];

/// Verbs of proxies.
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

/// Makes a subresource of pods.
const fn pod_subresource(name: &'static str, verbs: &'static [&'static str], answer: AnswerRequest) -> Subresource {
    let applies_to = |kind: &Kind| kind.resource == "pods";
    Subresource { name, applies_to, kind: None, version: None, verbs, answer: Handler::Answer(answer) }
}

/// Makes a subresource that is a part of the object.
const fn part(name: &'static str, applies_to: fn(&Kind) -> bool, part: UpdatePart) -> Subresource {
    Subresource { name, applies_to, kind: None, version: None, verbs: PART, answer: Handler::Part(part) }
}

/// The subresources that are an [`ObjectPart`].
const OBJECT_PARTS: &[Subresource] = &{
    const PARTS: &[&ObjectPart] = object_parts::ALL;
    let mut all = [part("", |_| false, UpdatePart::Status); PARTS.len()];
    let mut index = 0;
    while index < PARTS.len() {
        all[index] = part(PARTS[index].subresource, PARTS[index].applies_to, UpdatePart::Of(PARTS[index]));
        index += 1;
    }
    all
};

/// The other subresources.
const OTHER_SUBRESOURCES: &[Subresource] = &[
    part("status", |kind| kind.status, UpdatePart::Status),
    Subresource {
        name: "scale",
        applies_to: |kind| kind.scale,
        kind: Some("Scale"),
        version: Some(("autoscaling", "v1")),
        verbs: PART,
        answer: Handler::Answer(answer_scale),
    },
    Subresource {
        kind: Some("Binding"),
        ..pod_subresource("binding", &["create"], |api, request, asked| binding(api, request, asked.key()))
    },
    Subresource {
        kind: Some("Eviction"),
        version: Some(("policy", "v1")),
        ..pod_subresource("eviction", &["create"], eviction)
    },
    pod_subresource("log", &["get"], log::answer),
    Subresource { kind: Some("PodExecOptions"), ..pod_subresource("exec", CONNECT, streaming::exec) },
    Subresource { kind: Some("PodAttachOptions"), ..pod_subresource("attach", CONNECT, streaming::attach) },
    Subresource {
        kind: Some("PodPortForwardOptions"),
        ..pod_subresource("portforward", CONNECT, streaming::port_forward)
    },
    Subresource { kind: Some("PodProxyOptions"), ..pod_subresource("proxy", PROXY, proxy::answer) },
    Subresource {
        applies_to: |kind| kind.resource == "services",
        kind: Some("ServiceProxyOptions"),
        ..pod_subresource("proxy", PROXY, proxy::answer)
    },
    Subresource {
        applies_to: |kind| kind.resource == "nodes",
        kind: Some("NodeProxyOptions"),
        ..pod_subresource("proxy", PROXY, proxy::answer)
    },
    Subresource { verbs: &["update"], ..part("finalize", |kind| kind.resource == "namespaces", UpdatePart::Finalize) },
    part("approval", |kind| kind.resource == "certificatesigningrequests.certificates.k8s.io", UpdatePart::Approval),
    Subresource {
        name: "token",
        applies_to: |kind| kind.resource == "serviceaccounts",
        kind: Some("TokenRequest"),
        version: Some(("authentication.k8s.io", "v1")),
        verbs: &["create"],
        answer: Handler::Answer(token),
    },
];

/// The subresources of a kind.
pub fn subresources(kind: &Kind) -> impl Iterator<Item = &'static Subresource> + use<'_> {
    OTHER_SUBRESOURCES.iter().chain(OBJECT_PARTS).filter(|known| (known.applies_to)(kind))
}

/// Answers a request for a subresource.
pub fn answer(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let known = subresources(asked.kind).find(|known| known.name == asked.subresource).ok_or_else(unknown_path)?;
    let verb = match request.method.as_str() {
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "POST" => "create",
        _ => "delete",
    };
    if !known.verbs.contains(&verb) {
        return Err(not_allowed());
    }
    if let Some(options) = known.kind.filter(|_| known.verbs == CONNECT || known.verbs == PROXY) {
        connect(api, &asked.key(), asked.subresource, &connection_options(options, request))?;
    }
    match known.answer {
        Handler::Part(part) => answer_part(api, request, asked, part),
        Handler::Answer(answer) => answer(api, request, asked),
    }
}

/// The options of a connection as an object, as admission sees them.
fn connection_options(kind: &str, request: &ApiRequest) -> Object {
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for flag in ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|flag| request.parameter(flag).is_some()) {
        options[flag] = request.flag(flag).into();
    }
    if let Some(container) = request.parameter("container") {
        options["container"] = container.into();
    }
    let all = |name: &str| -> Vec<&str> {
        request.query.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    };
    for list in ["command", "ports"].into_iter().filter(|list| !all(list).is_empty()) {
        options[list] = json!(all(list));
    }
    Object(options)
}

/// Reads or writes a part of an object.
fn answer_part(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>, part: UpdatePart) -> ServeResult {
    match request.method.as_str() {
        "PUT" => replace_part(api, request, asked, part),
        "PATCH" => patch_part(api, request, asked, part),
        _ => read::get(api, request, asked),
    }
}

/// Issues a token of a service account. Nothing is stored.
fn token(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let (account, form) = (asked.key(), AnswerForm::negotiate_whole(request)?);
    options::write_options(request, "CreateOptions")?;
    let requested = Object(body::typed::<TokenRequest>(request, ("authentication.k8s.io/v1", "TokenRequest"))?);
    let keys = api.keys()?;
    let issued = api.write(true, |txn| tokens::issue(txn, &keys, &account, &requested))?;
    Ok(HttpAnswer::document(201, &issued.0, &form))
}

/// Reads or changes the number of replicas of an object.
fn answer_scale(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let key = asked.key();
    let requested = match request.method.as_str() {
        "PATCH" if is_apply(request) => return apply_scale(api, request, asked, &show),
        "PUT" => {
            let requested = Object(body::value(request, ("autoscaling/v1", "Scale"))?);
            check_name(&requested, asked.name)?;
            ScaleUpdate::Whole(requested)
        }
        "PATCH" => ScaleUpdate::Change(change(request)?),
        _ => {
            let object = api.read_view(|txn| exact(txn, &key))?;
            let object = show.converted_object(api, object)?;
            if let Some(path) = missing_replicas(asked.kind, &object) {
                let text = format!("Internal error occurred: the spec replicas field {path:?} does not exist");
                return Err(Status::new(Reason::InternalError, text));
            }
            return Ok(show.answer_object(200, scale(asked.kind, &object)));
        }
    };
    let of = if request.method == "PUT" { "UpdateOptions" } else { "PatchOptions" };
    let options = options::write_options(request, of)?;
    let options = WriteOptions {
        manager: options.manager.map(|manager| FieldManager { subresource: "scale", ..manager }),
        ..options
    };
    let reply = api.write(options.dry_run, |txn| {
        let requested = match &requested {
            ScaleUpdate::Whole(requested) => requested.clone(),
            ScaleUpdate::Change((language, change)) => {
                let stored = exact(txn, &key)?;
                let stored = convert(txn, asked.kind, &stored, &asked.api_version)?;
                let patched = Object(patched(asked.kind, &scale(asked.kind, &stored), *language, change)?);
                let is_unset = patched.value_at(&["spec", "replicas"]).is_none_or(Value::is_null);
                if let Some(path) = missing_replicas(asked.kind, &stored).filter(|_| is_unset) {
                    return Err(Status::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
                }
                patched
            }
        };
        rescale(txn, (asked.kind, &asked.api_version), &key, &requested, &options)
    })?;
    let object = show.converted_object(api, Object::clone(&reply.object))?;
    let scaled = scale(asked.kind, &object);
    Ok(written(&show, 200, WriteReply { object: scaled.into(), ..reply }))
}

/// Applies a Scale: its manager owns the number of replicas, which is a field of the object.
fn apply_scale(
    api: &mut Api,
    request: &ApiRequest,
    asked: &ResolvedTarget<'_>,
    show: &ReadPresentation,
) -> ServeResult {
    let options = options::write_options(request, "PatchOptions")?;
    let manager = applier(request)?;
    let (wanted, mut warnings) = configuration(request, ("autoscaling/v1", "Scale"), options.field_validation)?;
    let wanted = Object(wanted);
    if wanted.value_at(&["metadata", "name"]).is_some() {
        check_name(&wanted, asked.name)?;
    }
    let key = asked.key();
    let head = json!({"apiVersion": asked.api_version, "kind": asked.kind.kind, "metadata": {"name": asked.name}});
    let mut config = Object(head);
    if !key.namespace.is_empty() {
        config.set(&["metadata", "namespace"], &*key.namespace);
    }
    if wanted.value_at(&["spec", "replicas"]).is_some() {
        config.set(&asked.kind.replicas().0, desired_replicas(&wanted)?);
    }
    let done = api.write(options.dry_run, |txn| {
        exact(txn, &key)?;
        apply_patch(txn, asked.kind, &config, manager, UpdatePart::Scale, &options)
    })?;
    let object = show.converted_object(api, done.object)?;
    let scaled = scale(asked.kind, &object);
    warnings.extend(done.warnings);
    Ok(written(show, 200, WriteReply::changed(scaled, warnings)))
}

/// An update of a Scale.
enum ScaleUpdate {
    /// A replacement.
    Whole(Object),
    /// A patch of the current Scale.
    Change((crate::apiserver::patch::PatchType, Value)),
}

/// Binds a pod to a node.
fn binding(api: &mut Api, request: &ApiRequest, pod: Key) -> ServeResult {
    let form = AnswerForm::negotiate_whole(request)?;
    let options = options::write_options(request, "CreateOptions")?;
    let binding = Object(body::value(request, ("v1", "Binding"))?);
    check_kind(&binding.0, "Binding", &["v1"])?;
    check_named(&binding.0, &pod, "Binding")?;
    let kind = binding.text(&["target", "kind"]).unwrap_or_default();
    if !["", "Node"].contains(&kind) {
        let message = format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
        return Err(Status::new(Reason::Unknown, message));
    }
    let node = binding.text(&["target", "name"]).unwrap_or_default();
    api.write(options.dry_run, |txn| {
        bind(txn, &pod, binding.uid(), node)?;
        annotate_bound(txn, &pod, &binding, &options)
    })?;
    Ok(HttpAnswer::done(201, None, &form))
}

/// Refuses the body of a subresource that does not name the pod.
fn check_named(body: &Value, pod: &Key, kind: &str) -> ServeResult<()> {
    if body["metadata"]["name"].as_str().unwrap_or_default() == &*pod.name {
        return Ok(());
    }
    Err(Status::new(Reason::BadRequest, format!("name in URL does not match name in {kind} object")))
}

/// Copies the annotations of a binding to its pod. Custom schedulers pass data to agents of the node in them.
fn annotate_bound(txn: &mut dyn Transaction, pod: &Key, binding: &Object, options: &WriteOptions) -> ApiResult<()> {
    let path = ["metadata", "annotations"];
    let Some(kind) = kinds::by_resource(pod.resource).filter(|_| binding.pairs(&path).next().is_some()) else {
        return Ok(());
    };
    let mut bound = exact(txn, pod)?;
    for (name, value) in binding.pairs(&path) {
        bound.set(&["metadata", "annotations", name], value);
    }
    update(txn, kind, &bound, UpdatePart::Main, options).map(drop)
}

/// Refuses a body that names another kind, or a version that does not have it. `versions`: the usual one first.
fn check_kind(body: &Value, kind: &str, versions: &[&str]) -> ServeResult<()> {
    let text = |field: &str| body[field].as_str().filter(|text| !text.is_empty());
    let version = text("apiVersion").or(versions.first().copied()).unwrap_or_default();
    let found = text("kind").unwrap_or(kind);
    if found == kind && versions.contains(&version) {
        return Ok(());
    }
    Err(Status::bad_request(format!("no kind {found:?} is registered for version {version:?}")))
}

/// Evicts a pod.
fn eviction(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let pod = asked.key();
    let form = AnswerForm::negotiate_whole(request)?;
    let requested = body::value(request, ("policy/v1", "Eviction"))?;
    check_kind(&requested, "Eviction", &["policy/v1", "policy/v1beta1"])?;
    check_named(&requested, &pod, "Eviction")?;
    let (deletion, dry_run) = options::read_delete_options(request, &requested["deleteOptions"])?;
    api.write(dry_run, |txn| evict(txn, &pod, &deletion, dry_run))?;
    Ok(HttpAnswer::done(201, None, &form))
}

/// Answers requests for resources without a kind in the catalogue; `None` for others.
pub fn without_kind(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> Option<ServeResult> {
    let is_plain = named.name.is_none() && !named.watch;
    match (named.group.as_str(), named.version.as_str(), named.plural.as_str()) {
        ("", "v1", "bindings") if is_plain => Some(bindings(api, request, named)),
        _ => reviews::answer(api, request, named).or_else(|| computed::answer(api, request, named)),
    }
}

fn bindings(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> ServeResult {
    let (Some(namespace), "POST") = (&named.namespace, request.method.as_str()) else { return Err(not_allowed()) };
    let name = body::value(request, ("v1", "Binding"))?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    binding(api, request, Key::new(Resource("pods"), namespace, &name))
}
