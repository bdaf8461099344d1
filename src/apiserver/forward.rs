//! Writes as whole requests, for a transaction that sends them to another API server.
//!
//! Knows: the functions that write (create, update, patch, apply, delete, evict) offer each write to the transaction before they do
//! anything to it: the server has its own defaults, admission and validation. Never: sends anything. Start reading at
//! [`ForwardedWrite`].

use super::{DeleteOptions, WriteOptions};
use crate::client::PatchFormat;
use crate::kinds::Kind;
use crate::managed_fields::apply::ApplyManager;
use crate::object::{Key, Object};
use serde_json::Value;

/// A write as the client made it.
pub struct ForwardedWrite<'a> {
    /// The kind of the object.
    pub kind: &'a Kind,
    /// The version of the request.
    pub api_version: String,
    /// The object; a new one may have no name.
    pub key: Key,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The change.
    pub action: ForwardedAction<'a>,
}

/// The change of a [`ForwardedWrite`], with its options.
pub enum ForwardedAction<'a> {
    /// A new object, or a body for a subresource such as `eviction`.
    Create(&'a Object, &'a WriteOptions),
    /// A replacement.
    Update(&'a Object, &'a WriteOptions),
    /// A patch.
    Patch(PatchFormat, &'a Value, &'a WriteOptions),
    /// A server-side apply, by a manager.
    Apply(&'a Object, ApplyManager<'a>, &'a WriteOptions),
    /// A deletion.
    Delete(&'a DeleteOptions),
}

impl<'a> ForwardedWrite<'a> {
    /// A write of an object whose version is that of its body.
    pub fn from_body(kind: &'a Kind, body: &Object, subresource: &'a str, action: ForwardedAction<'a>) -> Self {
        let namespace = if kind.namespaced { body.namespace() } else { "" };
        let key = Key::new(kind.resource, namespace, body.name());
        ForwardedWrite { kind, api_version: body.api_version().to_owned(), key, subresource, action }
    }

    /// A write of an object by its key, in a version of its kind; `None` for the newest.
    pub fn from_key(
        kind: &'a Kind,
        key: &Key,
        api_version: Option<&String>,
        subresource: &'a str,
        action: ForwardedAction<'a>,
    ) -> Self {
        let api_version = api_version.cloned().unwrap_or_else(|| kind.api_version());
        ForwardedWrite { kind, api_version, key: key.clone(), subresource, action }
    }
}
