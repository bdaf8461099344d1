//! Watches: each change is one line of JSON or one frame of protobuf.
//!
//! Knows: the first revision and the form of the events. Never: waits for changes; the HTTP server passes them in.

use super::ServeResult;
use super::form::AnswerEncoding;
use super::options::{self, check_reached};
use super::presentation::ReadPresentation;
use super::protobuf;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use crate::apiserver::aggregation::API_SERVICES;
use crate::apiserver::encoded_bodies::EncodedBodies;
use crate::apiserver::local_api_services::LocalVersions;
use crate::apiserver::page::{self, ListPosition, ListRequest};
use crate::apiserver::read::ListSelection;
use crate::apiserver::watch::{EventKind, WatchSelection, events_of};
use crate::apiserver::{Api, is_stored};
use crate::kinds::Kind;
use crate::kinds::custom::{self, DEFINITIONS};
use crate::object::{FieldSelector, Object, Reason, Status, Str};
use crate::store::{ChangeKind, LogEntry, StoredObject};
use serde_json::{Value, json};
use std::time::Duration;

/// Interval of bookmarks for clients that request them.
pub const BOOKMARK: Duration = Duration::from_secs(60);

/// Maximum duration of a watch that sets a timeout, in seconds: a year.
const MAX_WATCH_SECONDS: u64 = 365 * 24 * 3600;

/// Minimum duration of a watch that sets none, in seconds; a random time of at most the same length follows, as with Kubernetes'
/// `--min-request-timeout`. A client whose rights or credentials have ended is so refused when it watches again.
const MIN_WATCH_SECONDS: u64 = 1800;

/// Maximum number of log entries per read.
pub const BATCH: usize = 1000;

/// Error message for a watch as YAML, whose events would have no separators.
const STREAMED: &str = "only the following media types are accepted: application/json;stream=watch, \
                        application/vnd.kubernetes.protobuf;stream=watch";

/// An open watch.
pub struct ActiveWatch {
    kind: &'static Kind,
    namespace: Option<String>,
    wanted: ListSelection,
    /// For APIServices, those of this server's own versions.
    local: Option<LocalVersions>,
    show: ReadPresentation,
    /// Revision of the last event.
    revision: u64,
    /// Maximum duration.
    pub timeout: Duration,
    /// Whether the client wants bookmarks.
    pub bookmarks: bool,
    /// Whether the columns of a table were sent.
    is_headed: bool,
    /// Lines to send at once.
    pub first: Vec<u8>,
    /// The existing objects that follow.
    initial: Option<InitialEvents>,
    /// Encodings that all watches share.
    bodies: EncodedBodies,
    /// The revision at which it was opened: earlier ends of its kind, which is served now, do not count.
    opened: u64,
    /// Whether its kind changed or is no longer served, so that no event follows.
    is_over: bool,
}

/// Stored bytes of the existing objects that are encoded at a time.
const PIECE_BYTES: usize = 128 << 10;

/// The existing objects that a watch begins with, as far as their events are not encoded yet.
struct InitialEvents {
    /// The revision of the objects; `None` for the current one, before the first piece.
    revision: Option<u64>,
    after: Option<ListPosition>,
    /// Whether a bookmark marks their end.
    is_marked: bool,
}

/// The first revision of a watch.
enum WatchStart {
    /// Begin with the existing objects of at least this revision as ADDED events; `marked`: followed by a bookmark.
    Now { not_before: u64, marked: bool },
    /// Begin after this revision.
    After(u64),
}

/// Opens a watch.
pub fn open(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult<ActiveWatch> {
    let show = ReadPresentation::from_request(request, asked)?;
    if show.form().encoding == AnswerEncoding::Yaml {
        return Err(Status::new(Reason::NotAcceptable, STREAMED));
    }
    let mut wanted = options::list_selection(request, (asked.kind, &asked.api_version))?;
    if !asked.name.is_empty() {
        let name = FieldSelector::parse(&format!("metadata.name={}", asked.name));
        wanted.fields = Some(name.map_err(|error| Status::new(Reason::BadRequest, error.to_string()))?);
    }
    wanted.check(asked.kind)?;
    let start = start(request)?;
    let timeout =
        request.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()).filter(|some| *some > 0);
    let is_local = asked.kind.resource == API_SERVICES;
    let mut watching = ActiveWatch {
        local: is_local.then(|| api.read_as_server(LocalVersions::read)).transpose()?,
        kind: asked.kind,
        namespace: asked.namespace.map(str::to_owned),
        wanted,
        show,
        revision: 0,
        timeout: Duration::from_secs(timeout.map_or_else(default_seconds, |seconds| seconds.min(MAX_WATCH_SECONDS))),
        bookmarks: request.flag("allowWatchBookmarks"),
        is_headed: false,
        first: Vec::new(),
        initial: None,
        bodies: api.encoded_bodies().clone(),
        opened: if asked.kind.custom.is_some() { api.read(|snapshot| snapshot.revision())? } else { 0 },
        is_over: false,
    };
    match start {
        WatchStart::Now { not_before, marked } => {
            check_reached(api, not_before)?;
            watching.encode_existing_objects(api, marked)?;
        }
        WatchStart::After(revision) => {
            check_reached(api, revision)?;
            watching.revision = revision;
        }
    }
    Ok(watching)
}

fn start(request: &ApiRequest) -> ServeResult<WatchStart> {
    let matching = request.parameter("resourceVersionMatch");
    let is_initial = request.parameter("sendInitialEvents").is_some();
    let refuse = |why: &str| Err(options::forbidden("ListOptions", "resourceVersionMatch", why));
    if is_initial && matching != Some("NotOlderThan") {
        return refuse("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if !is_initial && matching.is_some() {
        return refuse("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    let wants_initial = request.flag("sendInitialEvents");
    Ok(match options::revision(request)?.filter(|revision| *revision > 0) {
        Some(revision) if !wants_initial => WatchStart::After(revision),
        revision => WatchStart::Now { not_before: revision.unwrap_or(0), marked: wants_initial },
    })
}

/// The duration of a watch that sets no timeout, in seconds.
fn default_seconds() -> u64 {
    let random = getrandom::u64().unwrap_or_default();
    MIN_WATCH_SECONDS + random % MIN_WATCH_SECONDS
}

impl ActiveWatch {
    fn encode_existing_objects(&mut self, api: &mut Api, is_marked: bool) -> ServeResult<()> {
        if is_stored(self.kind.resource) && !self.show.converts() {
            self.initial = Some(InitialEvents { revision: None, after: None, is_marked });
            self.first = self.encode_initial_events(api, Vec::new())?;
            return Ok(());
        }
        let everything = ListSelection::default();
        let is_selected_late = self.show.converts() && self.wanted.reads_content();
        let existing = self.existing(None, None);
        let selection = if is_selected_late { &everything } else { existing.wanted };
        let page = page::page(api, &ListRequest { wanted: selection, ..existing })?;
        self.revision = page.revision;
        let mut objects = self.show.converted(api, page.objects)?;
        if is_selected_late {
            // Selected fields are those of the requested version.
            objects.retain(|object| self.wanted.admits(self.kind, object));
        }
        for object in objects {
            let line = self.line(EventKind::Added.word(), object);
            self.first.extend(line);
        }
        if is_marked {
            self.first.extend(self.end_mark());
        }
        Ok(())
    }

    fn existing<'a>(&'a self, at: Option<u64>, after: Option<&'a ListPosition>) -> ListRequest<'a> {
        let after = after.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let (kind, namespace, wanted) = (self.kind, self.namespace.as_deref(), &self.wanted);
        ListRequest { kind, namespace, wanted, at, after, limit: None }
    }

    /// Returns the bookmark after the existing objects, for a client that wants bookmarks.
    fn end_mark(&self) -> Vec<u8> {
        match self.bookmarks {
            true => self.bookmark_with(json!({"annotations": {"k8s.io/initial-events-end": "true"}})),
            false => Vec::new(),
        }
    }

    /// Whether events of existing objects follow.
    pub fn has_initial_events(&self) -> bool {
        self.initial.is_some()
    }

    /// Adds the events of the next existing objects to a buffer. All of them show the same revision.
    pub fn encode_initial_events(&mut self, api: &Api, mut lines: Vec<u8>) -> ServeResult<Vec<u8>> {
        let Some(initial) = self.initial.take() else { return Ok(lines) };
        let batch = page::read_rows(api, &self.existing(initial.revision, initial.after.as_ref()), PIECE_BYTES)?;
        self.revision = batch.revision;
        let word = EventKind::Added.word();
        let is_plain = self.show.is_as_stored() && self.wanted.is_everything();
        for (_, stored) in &batch.rows {
            if !self.wanted.may_admit(&stored.body) {
                continue;
            }
            if is_plain {
                self.write_stored(word, (&stored.body, stored.revision), &mut lines)?;
                continue;
            }
            let object = serde_json::from_str(&stored.body).map(Object).map_err(|error| {
                Status::new(Reason::InternalError, format!("stored body of {}: {error}", self.kind.resource))
            })?;
            if self.wanted.admits(self.kind, &object) {
                lines.extend(self.line(word, object));
            }
        }
        match batch.next {
            Some(_) => {
                let revision = Some(batch.revision);
                self.initial = Some(InitialEvents { revision, after: batch.next, ..initial });
            }
            None if initial.is_marked => lines.extend(self.end_mark()),
            None => {}
        }
        Ok(lines)
    }

    /// Adds the event of an object in its stored form, given as its text and the revision that wrote it.
    fn write_stored(&self, word: &str, stored: (&str, Option<u64>), lines: &mut Vec<u8>) -> ServeResult<()> {
        match self.is_protobuf() {
            true => lines.extend(self.frame(word, stored)?),
            false => {
                let body = stored.0;
                lines.extend_from_slice(format!("{{\"type\":\"{word}\",\"object\":{body}}}\n").as_bytes());
            }
        }
        Ok(())
    }

    /// Returns the revision up to which events were returned.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The conversion that a webhook has to make before the events are encoded.
    pub fn conversion(&self) -> Option<EntryConversion> {
        let api_version = self.show.api_version().to_owned();
        let conversion = EntryConversion { kind: self.kind, api_version, previous: !self.wanted.is_everything() };
        self.show.converts().then_some(conversion)
    }

    /// Whether its kind changed or is no longer served. The watch ends then, and the client's next request gets the new state or an
    /// error.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether an entry removes or changes the definition of its kind. As in Kubernetes, the client then lists the objects in their new
    /// form.
    fn is_ended_by(&self, entry: &LogEntry) -> bool {
        let Some(custom) = self.kind.custom else { return false };
        let key = &entry.change.stored().key;
        if entry.revision <= self.opened || key.resource != DEFINITIONS || *key.name != *custom.definition {
            return false;
        }
        let is_same = |stored: &StoredObject| {
            entry.previous.as_ref().is_none_or(|before| custom::declares_same(&stored.body, before))
        };
        !entry.change.live().is_some_and(is_same)
    }

    /// Encodes the events of the next log entries.
    pub fn encode_entries<'a>(&mut self, entries: impl IntoIterator<Item = &'a LogEntry>) -> ServeResult<Vec<u8>> {
        let mut lines = Vec::new();
        // For the most common watch, of all objects of a kind in their stored form, the stored text is forwarded.
        let is_plain = self.show.is_as_stored() && self.wanted.is_everything() && self.local.is_none();
        for entry in entries {
            if self.is_ended_by(entry) {
                self.is_over = true;
                break;
            }
            let (namespace, wanted) = (self.namespace.as_deref(), &self.wanted);
            let watched = WatchSelection { kind: self.kind, namespace, wanted, local: self.local.as_ref() };
            if is_plain {
                if watched.is_about(entry) {
                    let word = WatchSelection::change(entry).word();
                    let stored = entry.change.stored();
                    self.write_stored(word, (&stored.body, Some(stored.revision)), &mut lines)?;
                }
                self.revision = entry.revision;
                continue;
            }
            let events = events_of(&watched, entry)?;
            self.revision = entry.revision;
            for event in events {
                lines.extend(self.line(event.kind.word(), event.object));
            }
        }
        Ok(lines)
    }

    /// Reads existing objects or the next entries of the log: returns whether there were any, and their encoded events.
    pub fn read(&mut self, api: &Api) -> ServeResult<(bool, Vec<u8>)> {
        if self.has_initial_events() {
            return Ok((true, self.encode_initial_events(api, Vec::new())?));
        }
        let entries = entries(api, self.revision)?;
        Ok((!entries.is_empty(), self.encode_entries(&entries)?))
    }

    fn line(&mut self, word: &str, object: Object) -> Vec<u8> {
        let mut value = self.show.value(object);
        if value["kind"] == "Table" && std::mem::replace(&mut self.is_headed, true) {
            value["columnDefinitions"] = Value::Null;
        }
        self.encode(word, &value)
    }

    /// Whether events are frames of protobuf.
    pub fn is_protobuf(&self) -> bool {
        self.show.form().encoding == AnswerEncoding::Protobuf
    }

    /// Encodes one event: a line of JSON, or a frame of protobuf.
    fn encode(&self, word: &str, object: &Value) -> Vec<u8> {
        let document = self.is_protobuf().then(|| protobuf::encode_document(object)).flatten();
        let frame = document.and_then(|document| protobuf::encode_event(word, &document));
        frame.unwrap_or_else(|| line(word, object))
    }

    /// Encodes the event of a stored object as a frame of protobuf.
    fn frame(&self, word: &str, stored: (&str, Option<u64>)) -> ServeResult<Vec<u8>> {
        let document = self.show.encode_stored(stored, &self.bodies);
        let frame = document.and_then(|document| protobuf::encode_event(word, &document));
        let refusal = || format!("stored body of {} has no protobuf encoding", self.kind.resource);
        frame.ok_or_else(|| Status::new(Reason::InternalError, refusal()))
    }

    /// Encodes the last event of a watch that failed.
    pub fn failure(&self, status: &Status) -> Vec<u8> {
        let status = match status.reason {
            // Kubernetes' wording; the revision in parentheses is the oldest that a watch can begin after.
            Reason::Expired => {
                let floor = status.message.rsplit(' ').next().unwrap_or_default().trim_end_matches(')');
                let revision = self.revision;
                Status::new(Reason::Expired, format!("too old resource version: {revision} ({floor})"))
            }
            _ => status.clone(),
        };
        self.encode("ERROR", &status.to_value())
    }

    /// Returns a bookmark with the current revision, from which a client can resume.
    pub fn bookmark(&self) -> Vec<u8> {
        self.bookmark_with(json!({}))
    }

    fn bookmark_with(&self, mut metadata: Value) -> Vec<u8> {
        metadata["resourceVersion"] = self.revision.to_string().into();
        self.encode("BOOKMARK", &self.show.mark(metadata))
    }
}

fn line(word: &str, object: &Value) -> Vec<u8> {
    let mut line = json!({"type": word, "object": object}).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A conversion of log entries by a webhook.
pub struct EntryConversion {
    kind: &'static Kind,
    /// The version in which events are shown.
    api_version: String,
    /// Whether previous states are converted, too: a selection is judged by them.
    previous: bool,
}

impl EntryConversion {
    /// Converts the objects of the kind in log entries.
    pub fn convert(&self, api: &mut Api, mut entries: Vec<LogEntry>) -> ServeResult<Vec<LogEntry>> {
        let read = |body: &Str| serde_json::from_str(body).map(Object);
        let objects = entries.iter_mut().flat_map(|entry| self.bodies(entry)).map(|body| read(body));
        let objects = objects.collect::<Result<Vec<Object>, _>>();
        let objects = objects.map_err(|error| Status::new(Reason::InternalError, error.to_string()))?;
        let mut converted = api.converted(self.kind, objects, &self.api_version)?.into_iter();
        for body in entries.iter_mut().flat_map(|entry| self.bodies(entry)) {
            if let Some(object) = converted.next() {
                *body = object.0.to_string().into();
            }
        }
        Ok(entries)
    }

    /// The bodies of an entry that are converted.
    fn bodies<'e>(&self, entry: &'e mut LogEntry) -> impl Iterator<Item = &'e mut Str> {
        let (ChangeKind::Put(stored) | ChangeKind::Removed(stored)) = &mut entry.change;
        let is_own = stored.key.resource == self.kind.resource;
        let previous = entry.previous.as_mut().filter(|_| is_own && self.previous);
        Some(&mut stored.body).filter(|_| is_own).into_iter().chain(previous)
    }
}

/// Returns log entries after a revision, in batches.
pub fn entries(api: &Api, revision: u64) -> ServeResult<Vec<LogEntry>> {
    api.read(|snapshot| snapshot.log_after(revision, BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Key;
    use crate::serve::definitions::{DefinitionProgress, complete};
    use crate::serve::{AnswerBody, answer};

    fn ask(api: &mut Api, method: &str, target: &str, body: &Value) -> (u16, AnswerBody) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into() };
        let answer = answer(api, &ApiRequest { body, ..ApiRequest::new(method, target) });
        (answer.code, answer.body)
    }

    #[test]
    fn watch_ends_when_its_kind_changes_or_goes() {
        let mut api = Api::in_memory("test").unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let version = |name: &str, served: bool| {
            let schema = json!({"openAPIV3Schema": {"type": "object"}});
            json!({"name": name, "served": served, "storage": name == "v1", "schema": schema})
        };
        let definition = {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.dev"},
                "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                    "versions": [version("v1", true), version("v2", true)]},
            })
        };
        let one = format!("{definitions}/boats.sea.dev");
        assert_eq!(ask(&mut api, "POST", definitions, &definition).0, 201);
        let boats = |version: &str| format!("/apis/sea.dev/{version}/namespaces/default/boats");
        let open = |api: &mut Api, version: &str| {
            let (code, body) = ask(api, "GET", &format!("{}?watch=true", boats(version)), &Value::Null);
            match body {
                AnswerBody::Watch(watching) => *watching,
                _ => panic!("{code}: not a watch"),
            }
        };
        let (mut first, mut second) = (open(&mut api, "v1"), open(&mut api, "v2"));
        let boat = json!({"apiVersion": "sea.dev/v1", "kind": "Boat", "metadata": {"name": "b"}});
        assert_eq!(ask(&mut api, "POST", &boats("v1"), &boat).0, 201);
        let read_definition = |api: &Api| {
            let key = Key::new(DEFINITIONS, "", "boats.sea.dev");
            api.read_view(|txn| txn.get(&key)).unwrap().unwrap().0
        };
        let mut stored = read_definition(&api);
        stored["spec"]["versions"][1]["served"] = false.into();
        assert_eq!(ask(&mut api, "PUT", &one, &stored).0, 200);
        let words = |lines: Vec<u8>| -> Vec<String> {
            let text = String::from_utf8(lines).unwrap();
            text.lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().into())
                .collect()
        };
        for watch in [&mut first, &mut second] {
            assert_eq!(words(watch.read(&api).unwrap().1), ["ADDED"]);
            assert!(watch.is_over(), "the definition changed");
        }
        let mut first = open(&mut api, "v1");
        assert_eq!(words(std::mem::take(&mut first.first)), ["ADDED"]);
        // Neither the conditions nor the names that are accepted at first are a change.
        while complete(&mut api).unwrap() == DefinitionProgress::Wrote {}
        assert_eq!(ask(&mut api, "DELETE", &format!("{}/b", boats("v1")), &Value::Null).0, 200);
        assert_eq!(words(first.read(&api).unwrap().1), ["DELETED"]);
        assert!(!first.is_over());
        let mut stored = read_definition(&api);
        stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({"crew": {"type": "integer"}});
        assert_eq!(ask(&mut api, "PUT", &one, &stored).0, 200);
        assert_eq!(words(first.read(&api).unwrap().1), [""; 0]);
        assert!(first.is_over(), "the schema changed");
        let mut first = open(&mut api, "v1");
        assert_eq!(ask(&mut api, "DELETE", &one, &Value::Null).0, 200);
        assert_eq!(words(first.read(&api).unwrap().1), [""; 0]);
        assert!(!first.is_over(), "the objects are not deleted yet");
        let mut going = read_definition(&api);
        going["metadata"]["finalizers"] = json!([]);
        assert_eq!(ask(&mut api, "PUT", &one, &going).0, 200);
        assert_eq!(first.read(&api).unwrap().1, b"");
        assert!(first.is_over());
        // The end of an earlier definition of this name does not end the watch of its successor.
        assert_eq!(ask(&mut api, "POST", definitions, &definition).0, 201);
        let (_, body) = ask(&mut api, "GET", &format!("{}?watch=true&resourceVersion=1", boats("v1")), &Value::Null);
        let AnswerBody::Watch(mut again) = body else { panic!("not a watch") };
        assert_eq!(words(again.read(&api).unwrap().1), ["ADDED", "DELETED"]);
        assert!(!again.is_over());
    }
}
