//! The request that every stage of admission sees.
//!
//! Knows: the operation, the object in its new and its old form, and the client that asks. Never: reads or writes the state.
//! Start reading at [`AdmissionRequest`].

use super::matching::{MatchedRequest, MatchedVersion, Operation};
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::apiserver::{ApiResult, DeleteOptions, WriteOptions, conversion};
use crate::kinds::Kind;
use crate::object::{Key, Object, Status, split_api_version};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// The options that came with a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestOptions<'a> {
    /// Options of a create or an update.
    Write(&'a WriteOptions),
    /// Options of a deletion.
    Delete(&'a DeleteOptions),
    /// A connection has none.
    None,
}

/// The properties of a request that stay the same on its way.
#[derive(Clone, Copy)]
pub struct AdmissionTarget<'a> {
    /// See [`AdmissionRequest::operation`].
    pub operation: Operation,
    /// See [`AdmissionRequest::kind`].
    pub kind: &'a Kind,
    /// See [`AdmissionRequest::api_version`].
    pub api_version: &'a str,
    /// See [`AdmissionRequest::subresource`].
    pub subresource: &'a str,
    /// See [`AdmissionRequest::key`].
    pub key: &'a Key,
    /// See [`AdmissionRequest::options`].
    pub options: RequestOptions<'a>,
}

impl<'a> AdmissionTarget<'a> {
    /// A request of the user of a transaction.
    pub fn request(
        self,
        txn: &dyn Transaction,
        object: &'a mut Object,
        old: Option<&'a Object>,
        warnings: &'a mut Vec<String>,
    ) -> AdmissionRequest<'a> {
        let AdmissionTarget { operation, kind, api_version, subresource, key, options } = self;
        let dry_run = match options {
            RequestOptions::Write(options) => options.dry_run,
            RequestOptions::Delete(options) => options.dry_run,
            RequestOptions::None => false,
        };
        let user = txn.request_user();
        AdmissionRequest {
            user,
            operation,
            kind,
            api_version,
            subresource,
            key,
            object,
            old,
            options,
            warnings,
            dry_run,
        }
    }
}

/// A request on its way through admission.
pub struct AdmissionRequest<'a> {
    /// The user who asks; the administrator where no other is known.
    pub user: Arc<User>,
    /// The operation.
    pub operation: Operation,
    /// The kind of the stored object, which has the resource and its preferred version.
    pub kind: &'a Kind,
    /// The `apiVersion` of the resource in the request, one of the versions in which the kind is served.
    pub api_version: &'a str,
    /// `status`; empty for the object itself.
    pub subresource: &'a str,
    /// The object that the request names. A new object whose name is generated has none here.
    pub key: &'a Key,
    /// The object as it is to be kept, or the body of a subresource (an Eviction). Null in a deletion.
    pub object: &'a mut Object,
    /// The stored object; none on create and connect.
    pub old: Option<&'a Object>,
    /// The options.
    pub options: RequestOptions<'a>,
    /// Warnings for the client.
    pub warnings: &'a mut Vec<String>,
    /// Whether the request is a dry run.
    pub dry_run: bool,
}

impl AdmissionRequest<'_> {
    /// Whether this creates an object of the resource.
    pub fn creates(&self, resource: &str) -> bool {
        self.operation == Operation::Create && self.subresource.is_empty() && self.kind.resource.0 == resource
    }

    /// The new object; none in a deletion.
    pub fn new_object(&self) -> Option<&Object> {
        Some(&*self.object).filter(|object| !object.0.is_null())
    }

    /// The namespace of the object; a Namespace is in its own.
    pub fn namespace(&self) -> &str {
        if self.kind.resource == "namespaces" { self.name() } else { &self.key.namespace }
    }

    /// The properties that rules compare. `equivalents` are the versions that the objects are served in ([`served_versions`]).
    pub fn matched<'r>(&'r self, equivalents: &'r [String]) -> MatchedRequest<'r> {
        let (group, version) = split_api_version(self.api_version);
        MatchedRequest {
            operation: self.operation,
            group,
            version,
            equivalents,
            resource: self.kind.resource.plural(),
            subresource: self.subresource,
            namespace: self.namespace(),
            name: self.name(),
            object: self.new_object(),
            old: self.old,
        }
    }

    /// The name of the object; empty while it is to be generated.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// The refusal of a request before validation, when the name of a new object is not generated yet in Kubernetes.
    pub fn forbidden_early(&self, why: &str) -> Status {
        let start = || self.object.text(&["metadata", "generateName"]).filter(|start| !start.is_empty());
        let name = if self.name().is_empty() { start().unwrap_or("Unknown") } else { self.name() };
        Status::forbidden(self.kind.resource, name, why)
    }

    /// The refusal of a request after validation.
    pub fn forbidden(&self, why: &str) -> Status {
        let name = if self.name().is_empty() { self.object.name() } else { self.name() };
        Status::forbidden(self.kind.resource, name, why)
    }

    /// `apiVersion` and `kind` of the body: the object's, or the subresource's if it has its own.
    pub fn requested_kind(&self) -> (&str, &str) {
        match self.new_object() {
            Some(body) if !self.subresource.is_empty() && body.kind() != self.kind.kind => {
                (body.api_version(), body.kind())
            }
            _ => (self.api_version, self.kind.kind),
        }
    }

    /// Whether the body is of another kind than the stored object: that of a subresource.
    pub fn has_own_kind(&self) -> bool {
        self.requested_kind().1 != self.kind.kind
    }

    /// The options object, such as `CreateOptions`; null for a connection.
    pub fn options_object(&self) -> Value {
        let mut object = match self.options {
            RequestOptions::None => return Value::Null,
            RequestOptions::Write(options) => write_options(options, self.operation),
            RequestOptions::Delete(options) => delete_options(options),
        };
        if self.dry_run {
            object["dryRun"] = json!(["All"]);
        }
        object
    }
}

/// A GroupVersionKind or GroupVersionResource; `last` is the name of its third field.
pub fn group_version(last: &str, api_version: &str, name: &str) -> Value {
    let (group, version) = split_api_version(api_version);
    let mut value = Map::from_iter([("group".to_owned(), group.into()), ("version".to_owned(), version.into())]);
    value.insert(last.to_owned(), name.into());
    value.into()
}

/// The objects of a request in the version in which a webhook or a policy matched.
pub struct SeenObjects<'r> {
    /// The new object; none in a deletion.
    pub object: Option<Cow<'r, Object>>,
    /// The stored object.
    pub old: Option<Cow<'r, Object>>,
}

impl<'r> SeenObjects<'r> {
    /// Converts the objects of a request.
    pub fn convert(
        txn: &mut dyn Transaction,
        request: &'r AdmissionRequest<'_>,
        version: &MatchedVersion,
    ) -> ApiResult<SeenObjects<'r>> {
        let api_version = version.api_version(request.api_version);
        let mut convert = |object: &'r Object| conversion::in_version(txn, request.kind, object, api_version);
        let object = request.new_object().map(&mut convert).transpose()?;
        Ok(SeenObjects { object, old: request.old.map(convert).transpose()? })
    }
}

/// The versions that the objects of a kind are served in, as `apiVersion`s.
pub fn served_versions(kind: &Kind) -> Vec<String> {
    std::iter::once(kind.api_version()).chain(kind.also.iter().map(|version| (*version).to_owned())).collect()
}

fn write_options(options: &WriteOptions, operation: Operation) -> Value {
    let kind = if operation == Operation::Create { "CreateOptions" } else { "UpdateOptions" };
    let mut object = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    let manager = options.manager.as_ref().map(|manager| &manager.name).or(options.applier.as_ref());
    if let Some(manager) = manager {
        object["fieldManager"] = manager.as_str().into();
    }
    object["fieldValidation"] = options.field_validation.name().into();
    object
}

fn delete_options(options: &DeleteOptions) -> Value {
    let mut object = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
    if let Some(grace) = options.grace {
        object["gracePeriodSeconds"] = grace.into();
    }
    for (field, value) in [("uid", &options.uid), ("resourceVersion", &options.revision)] {
        if let Some(value) = value {
            object["preconditions"][field] = value.as_str().into();
        }
    }
    if let Some(propagation) = options.propagation {
        object["propagationPolicy"] = propagation.name().into();
    }
    object
}
