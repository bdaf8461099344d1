//! The API server: the only way to write.
//!
//! Knows: the verbs (create, update, patch, apply, delete, bind, and reading) and the one pipeline that every write passes:
//! decode, default, admit, validate, check the revision, put. The pipeline works on a [`Transaction`], which is a store's transaction
//! for the command line and the overlay of a tick for the loops, so that both pass the same checks.
//! Never: decides what should exist, never starts anything, never prints.
//! Start reading at [`create`](create::create), then [`api::Api`].

pub mod admission;
pub mod aggregation;
pub mod api;
pub mod apply;
pub mod apply_patch;
pub mod authorization;
pub mod bind;
pub mod bootstrap;
pub mod connect;
pub mod conversion;
pub mod create;
pub mod custom;
pub mod delete;
pub mod encoded_bodies;
pub mod env;
pub mod evict;
pub mod forward;
pub mod hook_client;
pub mod kubelet_clients;
pub mod local_api_services;
pub mod log;
pub mod node_pods;
pub mod object_parts;
pub mod outside;
pub mod outside_client;
pub mod packed_documents;
pub mod page;
pub mod patch;
pub mod read;
pub mod remote;
pub mod rescale;
pub mod rules;
pub mod scale;
mod seen_objects;
pub mod service_endpoints;
mod shared_writer;
mod store_transaction;
mod stored;
pub mod stored_bodies;
pub mod stored_copy;
pub mod tokens;
pub mod transaction;
pub mod update;
pub mod user;
pub mod watch;
mod write_again;
mod write_rounds;
mod written_body;

pub use api::{Api, WorkTurn};
pub use env::Env;
pub use shared_writer::SharedWriter;
pub use stored::{is_stored, refused};
pub use transaction::Transaction;
pub use written_body::WrittenBody;

use crate::managed_fields::FieldManager;
use crate::object::{Object, Status};
use crate::world::Propagation;
use std::sync::Arc;

/// The writer, in the log, of the objects that every cluster begins with.
pub const BOOTSTRAP: &str = "bootstrap";

/// Result of an API operation.
pub type ApiResult<T> = std::result::Result<T, Status>;

/// Handling of unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Unknown fields are errors: kubectl's default.
    #[default]
    Strict,
    /// Unknown fields are warnings: the server's default.
    Warn,
    /// Unknown fields are dropped.
    Ignore,
}

impl FieldValidation {
    /// The name in the options of a request: `Strict`.
    pub fn name(self) -> &'static str {
        match self {
            FieldValidation::Strict => "Strict",
            FieldValidation::Warn => "Warn",
            FieldValidation::Ignore => "Ignore",
        }
    }
}

/// Options of a write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// See [`FieldValidation`].
    pub field_validation: FieldValidation,
    /// Whether the transaction is undone at the end instead of committed.
    pub dry_run: bool,
    /// The field manager, when ownership is tracked.
    pub manager: Option<FieldManager>,
    /// The manager of a server-side apply, whom admission sees; the fields that the pipeline sets have none.
    pub applier: Option<String>,
    /// The `apiVersion` that a patch is made in; none for the kind's newest.
    pub api_version: Option<String>,
    /// The text of the body, for the complaints about it; `None` where the object was not written as a whole.
    pub body: Option<Arc<WrittenBody>>,
}

impl WriteOptions {
    /// Refuses an invalid field manager name. `options_kind` names the options in the error, such as `CreateOptions`.
    pub fn check_manager(&self, options_kind: &str) -> ApiResult<()> {
        self.manager.as_ref().map_or(Ok(()), |manager| rules::field_manager::check(&manager.name, options_kind))
    }
}

/// Options of a deletion. Kubernetes: `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Seconds of grace; none for the object's own.
    pub grace: Option<i64>,
    /// Treatment of dependents; none for the one that the object's finalizers ask for.
    pub propagation: Option<Propagation>,
    /// The uid that the object must have, as a precondition.
    pub uid: Option<String>,
    /// The revision that the object must have, as a precondition.
    pub revision: Option<String>,
    /// Whether the transaction is undone at the end instead of committed.
    pub dry_run: bool,
    /// The `apiVersion` of the request; none for the kind's newest.
    pub api_version: Option<String>,
    /// Whether a pod without grace is only marked. The caller then removes it with [`delete::remove_marked`].
    pub only_marks: bool,
}

/// A successful write.
#[derive(Clone, Debug)]
pub struct WriteReply {
    /// The object after the write, or before its deletion.
    pub object: Arc<Object>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Whether the write changed the object.
    pub changed: bool,
}

impl WriteReply {
    /// A write that was not needed.
    pub fn unchanged(object: impl Into<Arc<Object>>, warnings: Vec<String>) -> WriteReply {
        WriteReply { object: object.into(), warnings, changed: false }
    }

    /// The object, to be kept or changed by the caller.
    pub fn into_object(self) -> Object {
        Arc::unwrap_or_clone(self.object)
    }

    /// A write that changed something.
    pub fn changed(object: impl Into<Arc<Object>>, warnings: Vec<String>) -> WriteReply {
        WriteReply { object: object.into(), warnings, changed: true }
    }
}
