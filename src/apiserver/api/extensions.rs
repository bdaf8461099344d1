//! The part of [`Api`] about servers that extend the API.
//!
//! Never: sends a request to them. Start reading at [`Api::extensions`].

use super::super::aggregation::documents::ExtensionDocuments;
use super::super::aggregation::{API_SERVICES, Extension, may_be_extended, select_extensions};
use super::super::stored::{object_of, objects_of};
use super::super::tokens::front_proxy::FrontProxy;
use super::Api;
use crate::apiserver::ApiResult;
use crate::object::Key;

impl Api {
    /// The identity by which extension servers know this server; makes it when there is none yet.
    pub fn front_proxy(&mut self) -> ApiResult<FrontProxy> {
        FrontProxy::load(&mut self.store)
    }

    /// The APIServices whose version an extension server answers; the computed ones are not made for it.
    pub fn extensions(&self) -> ApiResult<Vec<Extension>> {
        let stored = self.read(|snapshot| snapshot.list(API_SERVICES, None))?;
        Ok(select_extensions(&objects_of(stored)?))
    }

    /// The APIService of a version that an extension server answers.
    pub fn find_extension(&self, group: &str, version: &str) -> ApiResult<Option<Extension>> {
        if !may_be_extended(group) {
            return Ok(None);
        }
        let key = Key::new(API_SERVICES, "", &format!("{version}.{group}"));
        let stored = self.read(|snapshot| snapshot.get(&key))?;
        Ok(stored.as_ref().map(object_of).transpose()?.and_then(|object| Extension::read(&object)))
    }

    /// The documents of extension servers that the server of this API has read.
    pub fn extension_documents(&self) -> &ExtensionDocuments {
        &self.extension_documents
    }

    /// Shares the documents of extension servers.
    pub fn with_extension_documents(mut self, documents: &ExtensionDocuments) -> Api {
        self.extension_documents = documents.clone();
        self
    }
}
