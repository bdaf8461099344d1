//! Get and list.

use super::answer::HttpAnswer;
use super::form::{AnswerEncoding, AnswerForm, AnswerShape};
use super::options::{self, ListMoment};
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::table::{self, IncludeObject};
use super::{ServeResult, protobuf, version};
use crate::apiserver::page::{self, ListPage, ListRequest};
use crate::apiserver::{Api, read};
use crate::kinds::Kind;
use crate::object::{Object, Reason, Status};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use serde_json::{Value, json};

/// Representation of the requested objects.
pub struct ReadPresentation {
    kind: &'static Kind,
    api_version: String,
    form: AnswerForm,
    include: IncludeObject,
}

impl ReadPresentation {
    /// Reads it from the request.
    pub fn from_request(request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult<ReadPresentation> {
        // A scale has an encoding, whatever it is of.
        let has_protobuf = || asked.subresource == "scale" || protobuf::is_known(&asked.api_version, asked.kind.kind);
        let (form, include) = (AnswerForm::negotiate(request, has_protobuf)?, IncludeObject::from_request(request)?);
        Ok(ReadPresentation { kind: asked.kind, api_version: asked.api_version.clone(), form, include })
    }

    /// One object, in the version and the form that are wanted.
    pub fn value(&self, object: Object) -> Value {
        let object = version::shown(self.kind, object, &self.api_version);
        match &self.form.shape {
            AnswerShape::Table(version) => {
                let meta = json!({"resourceVersion": object.value_at(&["metadata", "resourceVersion"])});
                if object.kind() == "Scale" {
                    return table::of_scale(&object, meta, self.include, version);
                }
                table::table_document(self.kind, &[object], meta, self.include, version)
            }
            AnswerShape::Metadata(version) => table::metadata(&object, version),
            AnswerShape::Whole | AnswerShape::Discovery(_) => object.0,
        }
    }

    /// The answer with one object.
    pub fn answer_object(&self, code: u16, object: Object) -> HttpAnswer {
        HttpAnswer::document(code, &self.value(object), &self.form)
    }

    /// The answer with many.
    fn answer_list(&self, objects: Vec<Object>, meta: Value) -> HttpAnswer {
        let (kind, api_version) = (self.kind, &self.api_version);
        let objects = objects.into_iter().map(|object| version::shown(kind, object, api_version));
        let list = match &self.form.shape {
            AnswerShape::Table(version) => {
                let objects: Vec<Object> = objects.collect();
                table::table_document(kind, &objects, meta, self.include, version)
            }
            AnswerShape::Metadata(version) => {
                let items: Vec<Value> = objects.map(|object| table::metadata(&object, version)).collect();
                let api_version = format!("meta.k8s.io/{version}");
                json!({"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": meta, "items": items})
            }
            AnswerShape::Whole | AnswerShape::Discovery(_) => {
                let items: Vec<Value> = objects.map(|object| self.item(object)).collect();
                json!({"kind": format!("{}List", kind.kind), "apiVersion": api_version, "metadata": meta, "items": items})
            }
        };
        HttpAnswer::document(200, &list, &self.form)
    }

    /// The items of a list of a built-in kind do not repeat what they are.
    fn item(&self, mut object: Object) -> Value {
        if self.kind.custom.is_none() {
            object.unset(&["kind"]);
            object.unset(&["apiVersion"]);
        }
        object.0
    }

    /// The list of what was deleted.
    pub fn list(&self, objects: Vec<Object>, revision: u64) -> HttpAnswer {
        self.answer_list(objects, json!({"resourceVersion": revision.to_string()}))
    }

    /// Whether objects are shown as they are stored, letter by letter.
    pub fn is_as_stored(&self) -> bool {
        let is_same = self.kind.custom.is_none() && self.kind.api_version() == self.api_version;
        is_same && self.form.shape == AnswerShape::Whole && self.form.encoding != AnswerEncoding::Protobuf
    }

    /// No object, only how far a watch has come.
    pub fn mark(&self, metadata: Value) -> Value {
        let (kind, api_version) = match &self.form.shape {
            AnswerShape::Table(version) => ("Table", format!("meta.k8s.io/{version}")),
            AnswerShape::Metadata(version) => ("PartialObjectMetadata", format!("meta.k8s.io/{version}")),
            AnswerShape::Whole | AnswerShape::Discovery(_) => (self.kind.kind, self.api_version.clone()),
        };
        json!({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    }

    /// The form of it.
    pub fn form(&self) -> &AnswerForm {
        &self.form
    }
}

/// One object.
pub fn get(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    if let Some(revision) = options::revision(request)? {
        check_reached(api, revision)?;
    }
    let object = api.read_view(|txn| read::exact(txn, &asked.key()))?;
    Ok(show.answer_object(200, object))
}

/// Refuses a revision that was not written yet.
pub fn check_reached(api: &Api, revision: u64) -> ServeResult<()> {
    match api.read(|snapshot| snapshot.revision())? {
        head if revision > head => Err(page::too_large(revision, head)),
        _ => Ok(()),
    }
}

/// The objects of a kind, or a part of them.
pub fn list(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let wanted = options::list_selection(request)?;
    let limit = request.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let token = request.parameter("continue").map(ContinueToken::parse).transpose()?;
    let at = match (&token, options::moment(request)?) {
        (Some(_), ListMoment::Since(_) | ListMoment::At(_)) => {
            let text = "specifying resource version is not allowed when using continue";
            return Err(Status::new(Reason::BadRequest, text));
        }
        (Some(token), ListMoment::Now) => Some(token.revision),
        (None, ListMoment::At(revision)) => Some(revision),
        (None, ListMoment::Since(revision)) => {
            check_reached(api, revision)?;
            None
        }
        (None, ListMoment::Now) => None,
    };
    let after = token.as_ref().map(|token| (token.namespace.as_str(), token.name.as_str()));
    let listing = ListRequest { kind: asked.kind, namespace: asked.namespace, wanted: &wanted, at, after, limit };
    let ListPage { objects, revision, more } = page::page(api, &listing)?;
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if let Some(last) = objects.last().filter(|_| more) {
        meta["continue"] = ContinueToken::following(revision, last).to_string().into();
    }
    Ok(show.answer_list(objects, meta))
}

/// As Go reads it, bits that mean nothing are no error.
const CODE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Position in a list, which clients pass back unchanged.
struct ContinueToken {
    revision: u64,
    namespace: String,
    name: String,
}

impl ContinueToken {
    fn following(revision: u64, last: &Object) -> ContinueToken {
        ContinueToken { revision, namespace: last.namespace().into(), name: last.name().into() }
    }

    fn parse(text: &str) -> ServeResult<ContinueToken> {
        let refuse = |why: String| {
            Status::new(Reason::BadRequest, format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = CODE.decode(text).map_err(|error| refuse(error.to_string()))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| match bytes.first() {
            None | Some(b'{') => refuse(error.to_string()),
            // As Go says it of a byte that begins no JSON.
            Some(byte) => refuse(format!("invalid character '{}' looking for beginning of value", quoted(*byte))),
        })?;
        let start = value["start"].as_str().and_then(|start| start.split_once('/'));
        match (value["rv"].as_u64(), start) {
            (Some(revision), Some((namespace, name))) => {
                Ok(ContinueToken { revision, namespace: namespace.into(), name: name.into() })
            }
            _ => Err(refuse("it is not one of this server's".into())),
        }
    }
}

fn quoted(byte: u8) -> String {
    if byte.is_ascii() { char::from(byte).escape_default().to_string() } else { format!("\\u{byte:04x}") }
}

impl std::fmt::Display for ContinueToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = format!("{}/{}", self.namespace, self.name);
        f.write_str(&CODE.encode(json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": start}).to_string()))
    }
}
