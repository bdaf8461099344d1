//! Tokens: TokenRequests of service accounts, tokens of machines that want to join ([`bootstrap`]), and the users that tokens stand for.
//!
//! Knows: the key and the authority that the state keeps ([`keys`]), and when a token expires early: with its account, or with the Pod,
//! Secret or Node that it is bound to. Never: stores a token that it issues. Start reading at [`issue`].

pub mod authenticate;
pub mod bootstrap;
pub mod compare;
pub mod front_proxy;
pub mod keys;
mod stored_secret;

use super::admission::{self, AdmissionTarget, Operation, RequestOptions};
use super::authorization::node::node_of;
use super::authorization::{AccessRequest, AccessedResource, authorize};
use super::transaction::Transaction;
use super::{ApiResult, WriteOptions, read::exact};
use crate::kinds::service_account;
use crate::kinds::shared::token_claims::{DEFAULT_SECONDS, ISSUER, TokenClaims, check_request, refuse, uuid};
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::time::Shift;
use crate::object::{Key, Object, Reason, Resource, Status, split_api_version, time};
use jiff::SignedDuration;
use keys::ClusterKeys;
use serde_json::{Value, json};

/// Answers a TokenRequest for an account: the request with its defaults, and the token in its status.
pub fn issue(txn: &mut dyn Transaction, keys: &ClusterKeys, account: &Key, request: &Object) -> ApiResult<Object> {
    check_metadata(account, request)?;
    let account_object = exact(txn, account)?;
    let request = &admit_request(txn, account, request)?;
    let spec = &request.0["spec"];
    let audiences: Vec<String> = read_texts(&spec["audiences"]);
    let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    check_request(seconds)?;
    let bound = BoundObjects::find(txn, account, &spec["boundObjectRef"])?;
    restrict_node(txn, account, spec, &bound)?;
    let now = txn.now();
    let claims = TokenClaims {
        namespace: &account.namespace,
        account: (&account.name, account_object.uid()),
        pod: bound.pod.as_ref().map(name_and_uid),
        secret: bound.secret.as_ref().map(name_and_uid),
        node: bound.node.as_ref().map(name_and_uid),
        audiences: &audiences,
        seconds,
        issued: now.as_second(),
        id: uuid(txn.random(), txn.random()),
    };
    let token = keys.signer.sign(&claims.to_value());
    let token = token.map_err(|error| Status::new(Reason::InternalError, format!("failed to sign token: {error}")))?;
    let expires = time::rfc3339(now.later(SignedDuration::from_secs(seconds)));
    let mut answer = Object(json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": {
            "name": *account.name, "namespace": *account.namespace, "creationTimestamp": time::rfc3339(now),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": spec["boundObjectRef"]},
        "status": {"token": token, "expirationTimestamp": expires},
    }));
    for field in ["labels", "annotations"] {
        if let Some(value) = request.value_at(&["metadata", field]) {
            answer.set(&["metadata", field], value.clone());
        }
    }
    Ok(answer)
}

/// Passes the request through admission, if a policy or webhook concerns it; returns it as admission leaves it.
fn admit_request(txn: &mut dyn Transaction, account: &Key, request: &Object) -> ApiResult<Object> {
    let (operation, kind, subresource) = (Operation::Create, &service_account::KIND, "token");
    let mut admitted = request.clone();
    if !admission::may_concern(txn, kind, operation, subresource)? {
        return Ok(admitted);
    }
    admitted.set(&["apiVersion"], "authentication.k8s.io/v1");
    admitted.set(&["kind"], "TokenRequest");
    let (options, mut warnings) = (WriteOptions::default(), Vec::new());
    let options = RequestOptions::Write(&options);
    let target = AdmissionTarget { operation, kind, api_version: kind.version, subresource, key: account, options };
    let mut seen = target.request(txn, &mut admitted, None, &mut warnings);
    admission::admit(txn, &mut seen)?;
    Ok(admitted)
}

/// Refuses to give a kubelet a token for anything but a pod of its node, or for an audience that the pod does not need (NodeRestriction).
fn restrict_node(txn: &dyn Transaction, account: &Key, spec: &Value, bound: &BoundObjects) -> ApiResult<()> {
    let Some(user) = txn.user() else { return Ok(()) };
    let Some(node) = node_of(user) else { return Ok(()) };
    let refuse = |why: &str| Err(Status::forbidden(account.resource, &account.name, why));
    let Some(pod) = &bound.pod else { return refuse("node requested token not bound to a pod") };
    if spec["boundObjectRef"]["uid"].as_str().is_none_or(str::is_empty) {
        return refuse("node requested token with a pod binding without a uid");
    }
    if pod.text(&["spec", "nodeName"]) != Some(node) {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match read_texts(&spec["audiences"]).as_slice() {
        [] => String::new(),
        [audience] => audience.clone(),
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if needs_audience(txn, pod, &audience)? {
        return Ok(());
    }
    let accessed = AccessedResource {
        resource: audience.clone(),
        namespace: account.namespace.to_string(),
        name: account.name.to_string(),
        ..AccessedResource::default()
    };
    let access = AccessRequest::for_resource("request-serviceaccounts-token-audience", accessed);
    if authorize(txn, user, &access)?.is_allowed {
        return Ok(());
    }
    refuse(&format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        user.name
    ))
}

/// Whether a volume of a pod needs tokens for an audience: a projected one, or one of a CSI driver that asks for tokens.
fn needs_audience(txn: &dyn Transaction, pod: &Object, audience: &str) -> ApiResult<bool> {
    let is_asked = |request: &Value| request["audience"].as_str().unwrap_or_default() == audience;
    for volume in pod.items(&["spec", "volumes"]) {
        let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        if sources.map(|source| &source["serviceAccountToken"]).any(|token| token.is_object() && is_asked(token)) {
            return Ok(true);
        }
        let Some(driver) = volume["csi"]["driver"].as_str() else { continue };
        let driver = txn.get_shared(&Key::new(Resource("csidrivers.storage.k8s.io"), "", driver))?;
        if driver.is_some_and(|driver| driver.items(&["spec", "tokenRequests"]).iter().any(is_asked)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn name_and_uid(object: &Object) -> (&str, &str) {
    (object.name(), object.uid())
}

fn read_texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Refuses a body that names another account than the path.
fn check_metadata(account: &Key, request: &Object) -> ApiResult<()> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::root("metadata"));
    if !request.name().is_empty() && *request.name() != *account.name {
        errors.invalid(&path.child("name"), request.name(), "must match the service account name if specified");
    } else if !request.namespace().is_empty() && *request.namespace() != *account.namespace {
        let detail = "must match the service account namespace if specified";
        errors.invalid(&path.child("namespace"), request.namespace(), detail);
    }
    if errors.0.is_empty() { Ok(()) } else { Err(refuse(&account.name, &errors)) }
}

/// The objects that a token is bound to.
#[derive(Default)]
struct BoundObjects {
    pod: Option<Object>,
    secret: Option<Object>,
    node: Option<Object>,
}

impl BoundObjects {
    fn find(txn: &dyn Transaction, account: &Key, reference: &Value) -> ApiResult<BoundObjects> {
        if !reference.is_object() {
            return Ok(BoundObjects::default());
        }
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (group_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        let (group, version) = split_api_version(group_version);
        let object = |resource, namespace: &str| exact(txn, &Key::new(Resource(resource), namespace, name));
        let mut objects = BoundObjects::default();
        let bound = match (group, kind) {
            ("", "Pod") => {
                let pod = object("pods", &account.namespace)?;
                if pod.text(&["spec", "serviceAccountName"]) != Some(&*account.name) {
                    let text = format!(
                        "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                        &*account.name
                    );
                    return Err(Status::new(Reason::BadRequest, text));
                }
                if let Some(node) = pod.text(&["spec", "nodeName"]).filter(|node| !node.is_empty()) {
                    let node_object = txn.get(&Key::new(Resource("nodes"), "", node))?;
                    objects.node = Some(node_object.unwrap_or_else(|| Object(json!({"metadata": {"name": node}}))));
                }
                &*objects.pod.insert(pod)
            }
            ("", "Secret") => &*objects.secret.insert(object("secrets", &account.namespace)?),
            ("", "Node") => &*objects.node.insert(object("nodes", "")?),
            _ => {
                let text = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(Status::new(Reason::BadRequest, text));
            }
        };
        let uid = text("uid");
        if !uid.is_empty() && uid != bound.uid() {
            let text = format!(
                "Operation cannot be fulfilled on {kind} {name:?}: the UID in the bound object reference ({uid}) does not match the \
                 UID in record. The object might have been deleted and then recreated"
            );
            return Err(Status { kind: kind.into(), name: name.into(), ..Status::new(Reason::Conflict, text) });
        }
        Ok(objects)
    }
}
