//! Reads that take microseconds, such as of one small object. They run on the connections' thread.
//!
//! Never: handles a request that may wait, take long or fail; the workers handle those.
//! Start reading at [`answer_brief`].

use super::HttpAnswer;
use super::form::AnswerEncoding;
use super::path::ApiPath;
use super::presentation::ReadPresentation;
use super::request::ApiRequest;
use super::resolve::{self, RequestedPath};
use crate::apiserver::stored_bodies::StoredBody;
use crate::apiserver::{Api, is_stored};
use crate::object::Object;

/// Maximum size of the stored object.
const MAX_BYTES: usize = 32 << 10;

/// Answers a request for one small object as it is stored; `None` for every other request.
pub fn answer_brief(api: &Api, request: &ApiRequest, requested: &RequestedPath) -> Option<HttpAnswer> {
    let is_plain = request.method == "GET" && request.query.is_empty();
    let Some(ApiPath::Object(named)) = requested.path.as_ref().filter(|_| is_plain) else { return None };
    if named.watch || named.name.is_none() || named.subresource.is_some() {
        return None;
    }
    // Custom kinds, which can change, are left to the usual way.
    let kind = requested.kind.filter(|kind| kind.custom.is_none() && is_stored(kind.resource))?;
    let asked = resolve::resolve_target(kind, named).ok().filter(|_| kind.deprecated.is_none())?;
    let show = ReadPresentation::from_request(request, &asked).ok()?;
    let stored = api.get_stored(&asked.key()).ok()??;
    (stored.body.len() <= MAX_BYTES).then(|| answer_stored(api, &show, stored))?
}

/// Answers with a stored object, whose text is copied where that is the answer.
fn answer_stored(api: &Api, show: &ReadPresentation, stored: StoredBody) -> Option<HttpAnswer> {
    let form = show.form();
    match form.encoding {
        AnswerEncoding::Json if show.is_as_stored() && !form.is_pretty => {
            return Some(HttpAnswer::encoded([stored.body.as_bytes(), b"\n"].concat(), form.encoding));
        }
        AnswerEncoding::Protobuf if show.is_as_stored() => {
            let encode = || show.encode_stored((&stored.body, None), api.encoded_bodies());
            return Some(HttpAnswer::encoded(stored.encoded(encode)?.to_vec(), form.encoding));
        }
        _ => {}
    }
    let object = serde_json::from_str(&stored.body).ok()?;
    Some(show.answer_object(200, Object(object)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{AnswerBody, answer};
    use serde_json::json;

    fn answer_brief(api: &Api, request: &ApiRequest) -> Option<HttpAnswer> {
        super::answer_brief(api, request, &RequestedPath::parse(&request.path, api.kinds()))
    }

    fn request(method: &str, target: &str, accept: &str) -> ApiRequest {
        ApiRequest { accept: accept.into(), ..ApiRequest::new(method, target) }
    }

    fn body(answer: HttpAnswer) -> (u16, String, Vec<u8>) {
        let AnswerBody::Whole(bytes) = answer.body else { panic!("not a whole answer") };
        (answer.code, answer.content_type, bytes)
    }

    #[test]
    fn brief_answer_is_the_usual_one() {
        let mut api = Api::in_memory("test").unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = json!({"metadata": {"name": "a", "labels": {"e": "x"}}, "data": {"z": "\u{1}\"\\é", "a": "1"}});
        let create = ApiRequest { body: map.to_string().into(), ..ApiRequest::new("POST", maps) };
        assert_eq!(answer(&mut api, &ApiRequest { agent: "test".into(), ..create }).code, 201);
        let forms = ["", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
        let shapes = ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"];
        for accept in forms.into_iter().chain(shapes) {
            let asked = request("GET", &format!("{maps}/a"), accept);
            let brief = answer_brief(&api, &asked).unwrap();
            assert_eq!(body(brief), body(answer(&mut api, &asked)), "{accept}");
        }
    }

    #[test]
    fn other_requests_are_not_brief() {
        let mut api = Api::in_memory("test").unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        let create = |api: &mut Api, name: &str, length: usize| {
            let map = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(length)}});
            answer(api, &ApiRequest { body: map.to_string().into(), ..ApiRequest::new("POST", maps) }).code
        };
        assert_eq!((create(&mut api, "a", 1), create(&mut api, "large", MAX_BYTES)), (201, 201));
        let is_brief = |method: &str, target: &str| answer_brief(&api, &request(method, target, "")).is_some();
        assert!(is_brief("GET", &format!("{maps}/a")));
        for target in ["large", "missing", "a?pretty=true", "a?watch=true", ""] {
            assert!(!is_brief("GET", &format!("{maps}/{target}")), "{target}");
        }
        assert!(!is_brief("DELETE", &format!("{maps}/a")));
        assert!(!is_brief("GET", "/api/v1/namespaces/default/status"));
        assert!(!is_brief("GET", "/api/v1/nodes/n"));
        assert!(!is_brief("GET", "/healthz"));
    }
}
