//! Get and list.

use super::ServeResult;
use super::answer::HttpAnswer;
use super::continue_token::ContinueToken;
use super::list_body::ListBody;
use super::options::{self, ListMoment, check_reached};
use super::presentation::ReadPresentation;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use crate::apiserver::page::{self, ListPage, ListRequest};
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::{Api, is_stored};
use crate::object::{Object, Reason, Status, Time};
use crate::store::past;
use jiff::SignedDuration;
use serde_json::{Value, json};

impl ReadPresentation {
    /// Answers with one object.
    pub fn answer_object(&self, code: u16, object: Object) -> HttpAnswer {
        HttpAnswer::document(code, &self.value(object), self.form())
    }

    /// Answers with several objects.
    pub fn answer_list(&self, objects: Vec<Object>, meta: Value) -> HttpAnswer {
        HttpAnswer::document(200, &self.list_value(objects, meta), self.form())
    }
}

/// The part of a list that a request asks for.
pub struct ListPart {
    token: Option<ContinueToken>,
    at: Option<u64>,
    limit: Option<usize>,
}

impl ListPart {
    /// Reads the parameters of a request.
    pub fn from_request(api: &Api, request: &ApiRequest) -> ServeResult<ListPart> {
        let limit = request.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let token = request.parameter("continue").map(ContinueToken::parse).transpose()?;
        let at = match (&token, options::moment(request)?) {
            (Some(_), ListMoment::Since(_) | ListMoment::At(_)) => {
                let text = "specifying resource version is not allowed when using continue";
                return Err(Status::new(Reason::BadRequest, text));
            }
            (Some(token), ListMoment::Now) => token.revision,
            (None, ListMoment::At(revision)) => Some(revision),
            (None, ListMoment::Since(revision)) => {
                check_reached(api, revision)?;
                None
            }
            (None, ListMoment::Now) => None,
        };
        if let Some(token) = &token {
            check_validity(api, token, Time::now())?;
        }
        Ok(ListPart { token, at, limit })
    }

    /// The request for this part of the selected objects.
    fn listing<'a>(&'a self, asked: &'a ResolvedTarget<'_>, wanted: &'a ListSelection) -> ListRequest<'a> {
        let after = self.token.as_ref().map(|token| (token.namespace.as_str(), token.name.as_str()));
        let ListPart { at, limit, .. } = *self;
        ListRequest { kind: asked.kind, namespace: asked.namespace, wanted, at, after, limit }
    }

    /// Reads this part of the selected objects. Selected fields are those of the requested version. Also returns the metadata of the list.
    pub fn read(
        &self,
        api: &mut Api,
        show: &ReadPresentation,
        asked: &ResolvedTarget<'_>,
        wanted: &ListSelection,
    ) -> ServeResult<(Vec<Object>, Value)> {
        wanted.check(asked.kind)?;
        let everything = ListSelection::default();
        let is_selected_late = show.converts() && wanted.reads_content();
        let read = page::page(api, &self.listing(asked, if is_selected_late { &everything } else { wanted }));
        let ListPage { mut objects, revision, more, remaining } =
            read.map_err(|status| expired(status, self.token.as_ref()))?;
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if let Some(remaining) = remaining.filter(|_| !is_selected_late) {
            meta["remainingItemCount"] = remaining.into();
        }
        if let Some(last) = objects.last().filter(|_| more) {
            meta["continue"] = ContinueToken::following(revision, (last.namespace(), last.name())).to_string().into();
        }
        if is_selected_late {
            objects = show.converted(api, objects)?;
            objects.retain(|object| wanted.admits(asked.kind, object));
        }
        Ok((objects, meta))
    }
}

/// Maximum number of items on a page; the client gets a token for the rest.
const MAX_ITEMS: usize = 1000;

/// Answers with one object.
pub fn get(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    if let Some(revision) = options::revision(request)? {
        check_reached(api, revision)?;
    }
    let object = api.read_view(|txn| read::exact(txn, &asked.key()))?;
    let object = show.converted_object(api, object)?;
    Ok(show.answer_object(200, object))
}

/// Answers with the objects of a kind, or a page of them.
pub fn list(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let wanted = options::list_selection(request, (asked.kind, &asked.api_version))?;
    let mut part = ListPart::from_request(api, request)?;
    part.limit = part.limit.map(|limit| limit.min(MAX_ITEMS));
    wanted.check(asked.kind)?;
    if is_stored(asked.kind.resource) && !show.converts() {
        let mut list = ListBody::new(&part.listing(asked, &wanted), show);
        let first = list.next_piece(api, Vec::new()).map_err(|status| expired(status, part.token.as_ref()))?;
        return Ok(HttpAnswer::list(first.unwrap_or_default(), list));
    }
    let (objects, meta) = part.read(api, &show, asked, &wanted)?;
    let objects = show.converted(api, objects)?;
    Ok(show.answer_list(objects, meta))
}

/// Refuses a token whose revision was followed by another too long ago. The log may still have the revision, but clients have to expect the
/// error of Kubernetes' server, so that they meet it here, too.
fn check_validity(api: &Api, token: &ContinueToken, now: Time) -> ServeResult<()> {
    let Some(revision) = token.revision else { return Ok(()) };
    let changed = api.read(|snapshot| past::read_time_of(snapshot, revision.saturating_add(1)))?;
    if changed.is_some_and(|changed| now.duration_since(changed) > CONTINUE_VALIDITY) {
        return Err(expired(Status::new(Reason::Expired, CONTINUE_EXPIRED), Some(token)));
    }
    Ok(())
}

/// Returns Kubernetes' error for an expired list, with a token to continue with the current state.
fn expired(status: Status, token: Option<&ContinueToken>) -> Status {
    match token {
        _ if status.reason != Reason::Expired => status,
        None => Status { message: LIST_EXPIRED.into(), ..status },
        Some(token) => {
            let resume = ContinueToken { revision: None, ..token.clone() };
            Status { message: CONTINUE_EXPIRED.into(), resume: Some(resume.to_string().into()), ..status }
        }
    }
}

/// Time for which the next page of a list can be read after a change, the interval at which Kubernetes' server compacts
/// (k8s.io/apiserver/pkg/storage/storagebackend: DefaultCompactInterval).
const CONTINUE_VALIDITY: SignedDuration = SignedDuration::from_mins(5);

/// Error message for a list at a compacted revision.
const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// Error message for the next page of a list at a compacted revision; clients show it to users.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                                without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                                the results. Continuing with the provided token results in an inconsistent list - objects that were \
                                created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{AnswerBody, answer};
    use crate::store::Retention;

    fn ask(api: &mut Api, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let request = ApiRequest { body: body.to_string().into(), ..ApiRequest::new(method, target) };
        let answer = answer(api, &request);
        let AnswerBody::Whole(bytes) = answer.body else { panic!("{target}: not a whole answer") };
        (answer.code, serde_json::from_slice(&bytes).unwrap())
    }

    #[test]
    fn numbers_of_a_list_are_checked() {
        let mut api = Api::in_memory("test").unwrap();
        for (method, parameter) in [("GET", "limit"), ("GET", "timeoutSeconds"), ("DELETE", "timeoutSeconds")] {
            let target = |value: &str| format!("/api/v1/namespaces/default/configmaps?{parameter}={value}");
            assert_eq!(ask(&mut api, method, &target("5"), &json!({})).0, 200, "{method} {parameter}");
            let (code, status) = ask(&mut api, method, &target("abc"), &json!({}));
            let message = json!("strconv.ParseInt: parsing \"abc\": invalid syntax");
            assert_eq!((code, &status["message"]), (400, &message), "{method} {parameter}");
        }
    }

    #[test]
    fn metadata_of_a_list_and_of_an_object_are_told_apart() {
        let mut api = Api::in_memory("test").unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        assert_eq!(ask(&mut api, "POST", maps, &json!({"metadata": {"name": "a"}})).0, 201);
        let mut message = |target: &str, kind: &str| {
            let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1,application/json");
            let answer = answer(&mut api, &ApiRequest { accept, ..ApiRequest::new("GET", target) });
            match answer.body {
                AnswerBody::Whole(bytes) if answer.code != 200 => {
                    let status: Value = serde_json::from_slice(&bytes).unwrap();
                    (answer.code, status["message"].as_str().unwrap().to_owned())
                }
                _ => (answer.code, String::new()),
            }
        };
        let (object, list) = ("PartialObjectMetadata", "PartialObjectMetadataList");
        let refused =
            |asked: &str, found: &str| (406, format!("you requested {asked}, but the requested object is {found}"));
        let one = format!("{maps}/a");
        assert_eq!(message(maps, list), (200, String::new()));
        assert_eq!(message(&one, object), (200, String::new()));
        assert_eq!(message(&format!("{maps}?watch=true"), object), (200, String::new()));
        assert_eq!(message(maps, object), refused(object, "a list (*core.ConfigMapList)"));
        assert_eq!(message(&one, list), refused(list, "not a list (*core.ConfigMap)"));
    }

    #[test]
    fn page_is_refused_long_after_a_change() {
        let mut api = Api::in_memory("test").unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        let mut create = |name: &str| {
            let (_, made) = ask(&mut api, "POST", maps, &json!({"metadata": {"name": name}}));
            made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
        };
        let (first, last): (u64, u64) = (create("a"), create("b"));
        let reason = |revision: u64, minutes: i64| {
            let token = ContinueToken::following(revision, ("default", "a"));
            let found = check_validity(&api, &token, Time::now() + SignedDuration::from_mins(minutes));
            found.err().map(|status| (status.reason, status.resume.is_some()))
        };
        assert_eq!(reason(first, 4), None);
        assert_eq!(reason(first, 6), Some((Reason::Expired, true)));
        assert_eq!(reason(last, 6), None, "nothing has changed since");
    }

    #[test]
    fn expired_list_continues_at_the_current_revision() {
        let maps = "/api/v1/namespaces/default/configmaps";
        let mut api = Api::in_memory("test").unwrap();
        let create = |api: &mut Api, name: &str| ask(api, "POST", maps, &json!({"metadata": {"name": name}})).0;
        assert_eq!(["a", "b", "d"].map(|name| create(&mut api, name)), [201; 3]);
        let (_, first) = ask(&mut api, "GET", &format!("{maps}?limit=1"), &json!({}));
        assert_eq!(first["metadata"]["remainingItemCount"], 2, "{first}");
        let selected = ask(&mut api, "GET", &format!("{maps}?limit=1&fieldSelector=metadata.name!%3Dx"), &json!({})).1;
        assert_eq!(selected["metadata"]["remainingItemCount"], Value::Null, "selected objects are not counted");
        create(&mut api, "c");
        let none = Retention { at_least: 0, at_most: 0, since: Time::MAX, bytes: 0 };
        while api.store_mut().compact(&none, 100).unwrap() == 100 {}
        let follow =
            |list: &Value| format!("{maps}?limit=2&continue={}", list["metadata"]["continue"].as_str().unwrap());
        let (code, expired) = ask(&mut api, "GET", &follow(&first), &json!({}));
        assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
        assert!(expired["message"].as_str().unwrap().starts_with("The provided continue parameter is too old"));
        let (code, rest) = ask(&mut api, "GET", &follow(&expired), &json!({}));
        let names: Vec<&str> =
            rest["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        assert_eq!((code, &names[..], &rest["metadata"]["remainingItemCount"]), (200, &["b", "c"][..], &json!(1)));
        let old = format!(
            "{maps}?resourceVersionMatch=Exact&resourceVersion={}",
            first["metadata"]["resourceVersion"].as_str().unwrap()
        );
        let (code, expired) = ask(&mut api, "GET", &old, &json!({}));
        assert_eq!((code, &expired["metadata"]), (410, &json!({})), "{expired}");
    }
}
