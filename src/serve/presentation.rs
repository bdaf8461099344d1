//! The representation that a client wants: version, encoding, and complete objects, a table or metadata only.

use super::form::{AnswerForm, AnswerShape};
use super::list_frame::ListFrame;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::table::{self, IncludeObject};
use super::{ServeResult, protobuf, version};
use crate::apiserver::encoded_bodies::EncodedBodies;
use crate::apiserver::{Api, conversion};
use crate::kinds::Kind;
use crate::object::Object;
use serde_json::{Value, json};

/// Representation of the requested objects.
pub struct ReadPresentation {
    kind: &'static Kind,
    api_version: String,
    form: AnswerForm,
    include: IncludeObject,
}

/// The name of Kubernetes' internal type of a kind's objects or lists, as its errors have it.
fn go_type(kind: &Kind, is_list: bool) -> String {
    let list = if is_list { "List" } else { "" };
    if kind.custom.is_some() {
        return format!("*unstructured.Unstructured{list}");
    }
    let package = kind.resource.group().split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("*{package}.{}{list}", kind.kind)
}

impl ReadPresentation {
    /// Reads the representation from the request.
    pub fn from_request(request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult<ReadPresentation> {
        // A Scale has a protobuf encoding, whichever kind it is for.
        let has_protobuf = || asked.subresource == "scale" || protobuf::is_known(&asked.api_version, asked.kind.kind);
        let (form, include) = (AnswerForm::negotiate(request, has_protobuf)?, IncludeObject::from_request(request)?);
        let is_watch = asked.watch || request.flag("watch");
        let is_list = asked.name.is_empty() && !is_watch && ["GET", "DELETE"].contains(&request.method.as_str());
        form.check_metadata(is_list, || go_type(asked.kind, is_list))?;
        Ok(ReadPresentation { kind: asked.kind, api_version: asked.api_version.clone(), form, include })
    }

    /// Whether a webhook converts the objects to the requested version.
    pub fn converts(&self) -> bool {
        !matches!(self.form.shape, AnswerShape::Metadata(_)) && conversion::webhook(self.kind).is_some()
    }

    /// Returns stored objects in the requested version, where a webhook converts them.
    pub fn converted(&self, api: &mut Api, objects: Vec<Object>) -> ServeResult<Vec<Object>> {
        if self.converts() { api.converted(self.kind, objects, &self.api_version) } else { Ok(objects) }
    }

    /// Like [`ReadPresentation::converted`], for one object.
    pub fn converted_object(&self, api: &mut Api, object: Object) -> ServeResult<Object> {
        if !self.converts() {
            return Ok(object);
        }
        let mut converted = self.converted(api, vec![object.clone()])?;
        Ok(converted.pop().unwrap_or(object))
    }

    /// Returns one object in the requested version and form.
    pub fn value(&self, object: Object) -> Value {
        let object = self.shown(object);
        match &self.form.shape {
            AnswerShape::Table(version) => {
                let meta = json!({"resourceVersion": object.value_at(&["metadata", "resourceVersion"])});
                if object.kind() == "Scale" {
                    return table::scale_table(&object, meta, self.include, version);
                }
                table::table_document((self.kind, &self.api_version), &[object], meta, self.include, version)
            }
            AnswerShape::Metadata(version) => table::metadata(&object, version),
            AnswerShape::Whole | AnswerShape::Discovery(_) => object.0,
        }
    }

    /// Returns the document of several objects.
    pub fn list_value(&self, objects: Vec<Object>, meta: Value) -> Value {
        let (kind, api_version) = (self.kind, &self.api_version);
        let objects = objects.into_iter().map(|object| version::shown(kind, object, api_version));
        match &self.form.shape {
            AnswerShape::Table(version) => {
                let objects: Vec<Object> = objects.collect();
                table::table_document((kind, api_version), &objects, meta, self.include, version)
            }
            AnswerShape::Metadata(version) => {
                let items: Vec<Value> = objects.map(|object| table::metadata(&object, version)).collect();
                let api_version = format!("meta.k8s.io/{version}");
                json!({"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": meta, "items": items})
            }
            AnswerShape::Whole | AnswerShape::Discovery(_) => {
                let items: Vec<Value> = objects.map(|object| self.item(object)).collect();
                json!({"kind": kind.list_kind(), "apiVersion": api_version, "metadata": meta, "items": items})
            }
        }
    }

    /// Returns version and kind of an item of a list.
    pub fn item_kind(&self) -> (String, &'static str) {
        match &self.form.shape {
            AnswerShape::Metadata(version) => (format!("meta.k8s.io/{version}"), "PartialObjectMetadata"),
            _ => (self.api_version.clone(), self.kind.kind),
        }
    }

    /// Whether the items of a list are parts of the stored text, which need no parsing.
    pub fn copies_items(&self) -> bool {
        match self.form.shape {
            AnswerShape::Table(_) => false,
            AnswerShape::Metadata(_) => true,
            _ => match self.kind.custom {
                Some(custom) => custom.storage == self.api_version,
                None => self.kind.api_version() == self.api_version,
            },
        }
    }

    /// Returns the requested version.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the frame around the items of a list.
    pub fn list_frame(&self) -> ListFrame {
        let field = if matches!(self.form.shape, AnswerShape::Table(_)) { "rows" } else { "items" };
        let fields = self.list_value(Vec::new(), Value::Null).as_object().cloned().unwrap_or_default();
        ListFrame::new(fields, field, &self.form)
    }

    /// Returns an item of a list.
    pub fn list_item(&self, object: Object) -> Value {
        self.item(self.shown(object))
    }

    /// Returns the cells of each object's row in a table, as JSON.
    pub fn list_cells(&self, objects: Vec<Object>) -> Vec<Value> {
        let objects: Vec<Object> = objects.into_iter().map(|object| self.shown(object)).collect();
        table::cells(self.kind, &self.api_version, &objects)
    }

    /// Returns an object in the requested version.
    pub fn shown(&self, object: Object) -> Object {
        version::shown(self.kind, object, &self.api_version)
    }

    /// Part of the object that a row of a table contains.
    pub fn include(&self) -> IncludeObject {
        self.include
    }

    /// Removes `apiVersion` and `kind` from an item of a built-in kind.
    fn item(&self, mut object: Object) -> Value {
        if self.kind.custom.is_none() {
            object.unset(&["kind"]);
            object.unset(&["apiVersion"]);
        }
        object.0
    }

    /// Whether objects are shown exactly as stored.
    pub fn is_as_stored(&self) -> bool {
        let is_same = self.kind.custom.is_none() && self.kind.api_version() == self.api_version;
        is_same && self.form.shape == AnswerShape::Whole
    }

    /// Returns a stored object, given as its text and the revision that wrote it, as a document of protobuf. Objects have to be shown
    /// exactly as stored.
    pub fn encode_stored(&self, (body, revision): (&str, Option<u64>), bodies: &EncodedBodies) -> Option<Vec<u8>> {
        let (api_version, kind) = (&self.api_version, self.kind.kind);
        let encode = || protobuf::encode_content(api_version, kind, body);
        let content = match revision {
            Some(revision) => bodies.find_or_encode(revision, encode)?,
            None => encode()?.into(),
        };
        Some(protobuf::add_envelope(api_version, kind, &content))
    }

    /// Returns the object of a bookmark: an empty object of the kind, in the requested form.
    pub fn mark(&self, metadata: Value) -> Value {
        let object = json!({"kind": self.kind.kind, "apiVersion": self.api_version, "metadata": metadata});
        if self.form.shape == AnswerShape::Whole { object } else { self.value(Object(object)) }
    }

    /// Returns the form.
    pub fn form(&self) -> &AnswerForm {
        &self.form
    }
}
