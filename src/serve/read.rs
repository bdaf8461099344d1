//! Get and list.

use super::ServeResult;
use super::answer::HttpAnswer;
use super::options::{self, ListMoment, check_reached};
use super::presentation::ReadPresentation;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use crate::apiserver::page::{self, ListPage, ListRequest};
use crate::apiserver::{Api, read};
use crate::object::{Object, Reason, Status};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use serde_json::{Value, json};

impl ReadPresentation {
    /// The answer with one object.
    pub fn answer_object(&self, code: u16, object: Object) -> HttpAnswer {
        HttpAnswer::document(code, &self.value(object), self.form())
    }

    /// The answer with many.
    fn answer_list(&self, objects: Vec<Object>, meta: Value) -> HttpAnswer {
        HttpAnswer::document(200, &self.list_value(objects, meta), self.form())
    }

    /// The list of what was deleted.
    pub fn list(&self, objects: Vec<Object>, revision: u64) -> HttpAnswer {
        self.answer_list(objects, json!({"resourceVersion": revision.to_string()}))
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
