//! The last known documents of extension servers: discovery, OpenAPI 2, and the hashes of their documents in version 3.
//!
//! Never: sends a request; the HTTP server fetches the documents and stores them here. Start reading at [`ExtensionDocuments`].

use super::open_api::OpenApiPart;
use crate::object::IgnorePoison;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The documents of a version.
#[derive(Clone, Debug, Default)]
pub struct VersionDocuments {
    /// The resources (`APIResourceList`).
    pub resources: Arc<Vec<Value>>,
    /// The hash of its OpenAPI document in version 3, where the server has one.
    pub open_api: Option<String>,
    /// Its part of the OpenAPI document in version 2, where the server has one.
    pub open_api_2: Option<Arc<OpenApiPart>>,
    /// Whether the server has answered the last time.
    pub is_current: bool,
}

/// The documents of all extension servers by the name of their APIService; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ExtensionDocuments(Arc<Mutex<BTreeMap<String, VersionDocuments>>>);

impl ExtensionDocuments {
    /// The documents of a version.
    pub fn find(&self, name: &str) -> VersionDocuments {
        self.lock().get(name).cloned().unwrap_or_default()
    }

    /// Keeps the documents of a version.
    pub fn put(&self, name: &str, documents: VersionDocuments) {
        self.lock().insert(name.to_owned(), documents);
    }

    /// Marks the documents of a version as those of an earlier answer.
    pub fn mark_stale(&self, name: &str) {
        if let Some(known) = self.lock().get_mut(name) {
            known.is_current = false;
        }
    }

    /// Forgets the versions that are not among these.
    pub fn retain(&self, names: &[String]) {
        self.lock().retain(|known, _| names.contains(known));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, VersionDocuments>> {
        self.0.lock().ignore_poison()
    }
}
