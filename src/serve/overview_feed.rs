//! The overview as it changes: lines of JSON, the first with all rows, each later one with those that are new or different.
//!
//! Knows: the rows that the client has. Never: polls; it waits for hints of the store. Start reading at [`OverviewFeed::next_piece`].

use crate::apiserver::{Api, refused};
use crate::diagnosis::overview::{self, Overview, OverviewNode, kind_order};
use crate::object::{Key, Reason, Status, Time};
use crate::reconcile::metrics::PublishedMetrics;
use crate::reconcile::queue::WorkQueue;
use crate::reconcile::store_files::identity;
use crate::reconcile::{leader, store_tail};
use crate::serve::ServeResult;
use crate::store::{OpenMode, Store, StoreError, WakeHint, watch_hint};
use crate::world::World;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time without a line. Then an empty line is sent, which fails if the client is gone.
const MAX_SILENCE: Duration = Duration::from_secs(15);

/// Shortest time between two lines; longer while they take long.
const MIN_LINE_INTERVAL: Duration = Duration::from_millis(100);

/// Writing lines takes at most this fraction of the time: one part in five.
const TIME_SHARE_DIVISOR: u32 = 5;

/// Most rows that are sent.
const MAX_ROWS: usize = 50_000;

/// Most events that are sent.
const MAX_EVENTS: usize = 200;

/// The overview of one client.
pub struct OverviewFeed {
    store: Store,
    /// Device and inode of the state file.
    place: Option<(u64, u64)>,
    hint: Option<WakeHint>,
    world: World,
    overview: Overview,
    /// The rows that the client has, as text.
    sent: HashMap<String, String>,
    /// Its counts and loops.
    sent_facts: [Value; 2],
    /// The revision of its events.
    sent_revision: u64,
    is_begun: bool,
    /// When the last line was made, and how long that took.
    last: (Instant, Duration),
}

impl OverviewFeed {
    /// Opens the overview. The rows are read with the first piece.
    pub fn open(api: &Api) -> ServeResult<OverviewFeed> {
        let path = api.store().path();
        let store = Store::open(path, OpenMode::Existing)
            .map_err(|error| Status::new(Reason::InternalError, error.to_string()))?;
        let hint = watch_hint(&store);
        Ok(OverviewFeed {
            place: identity(path),
            store,
            hint,
            world: World::new(Time::now()),
            overview: Overview::default(),
            sent: HashMap::new(),
            sent_facts: Default::default(),
            sent_revision: 0,
            is_begun: false,
            last: (Instant::now(), Duration::ZERO),
        })
    }

    /// Waits for the next piece: a line of JSON, or an empty line after a while. None when the state is gone.
    pub fn next_piece(&mut self) -> Option<Vec<u8>> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return self.load().ok().map(|()| self.line(true));
        }
        let until = Instant::now() + MAX_SILENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(b"\n".to_vec());
            }
            match &self.hint {
                Some(hint) => drop(hint.wait(left)),
                None => thread::sleep(MIN_LINE_INTERVAL.min(left)),
            }
            let (at, took) = self.last;
            thread::sleep(MIN_LINE_INTERVAL.max(took * TIME_SHARE_DIVISOR).saturating_sub(at.elapsed()));
            if identity(self.store.path()) != self.place {
                return None;
            }
            let before = self.world.revision;
            let is_new = self.catch_up().ok()?;
            if is_new || self.world.revision != before || self.facts() != self.sent_facts {
                return Some(self.line(is_new));
            }
        }
    }

    fn load(&mut self) -> ServeResult<()> {
        self.world = World::new(Time::now());
        let snapshot = self.store.read().map_err(|error| refused(&error))?;
        store_tail::load(&snapshot, &mut self.world).map(drop).map_err(|error| refused(&error))
    }

    /// Reads the changes. Returns true when it had to reload everything.
    fn catch_up(&mut self) -> ServeResult<bool> {
        self.world.now = Time::now();
        let now = self.world.now;
        let caught = {
            let snapshot = self.store.read().map_err(|error| refused(&error))?;
            store_tail::catch_up(&snapshot, &mut self.world, &[], &mut WorkQueue::default(), now)
        };
        match caught {
            Err(StoreError::Expired { .. }) => self.load().map(|()| true),
            other => other.map(|_| false).map_err(|error| refused(&error)),
        }
    }

    /// Makes a line with the rows that the client does not have yet.
    fn line(&mut self, is_reset: bool) -> Vec<u8> {
        let started = Instant::now();
        self.overview.update(&self.world, None);
        let fresh = self.rows();
        if is_reset {
            self.sent.clear();
        }
        let removed: Vec<&String> = self.sent.keys().filter(|id| !fresh.contains_key(*id)).collect();
        let removed = Value::from(removed.into_iter().cloned().collect::<Vec<String>>());
        let is_fresh = |(id, text): &(&String, &String)| self.sent.get(*id) != Some(text);
        let rows: Vec<&str> = fresh.iter().filter(is_fresh).map(|(_, text)| text.as_str()).collect();
        let mut text = format!("{{\"reset\":{is_reset},\"removed\":{removed},\"rows\":[{}]", rows.join(","));
        let facts = self.facts();
        for (name, (value, known)) in ["header", "loops"].iter().zip(facts.iter().zip(&self.sent_facts)) {
            if is_reset || value != known {
                text.push_str(&format!(",\"{name}\":{value}"));
            }
        }
        if is_reset || self.sent_revision != self.world.revision {
            text.push_str(&format!(",\"events\":{}", self.events()));
        }
        text.push_str("}\n");
        (self.sent, self.sent_facts, self.sent_revision) = (fresh, facts, self.world.revision);
        self.last = (Instant::now(), started.elapsed());
        text.into_bytes()
    }

    /// The rows as text, by their identity.
    fn rows(&self) -> HashMap<String, String> {
        let mut owners = HashMap::new();
        for node in &self.overview.nodes {
            owners.extend(node.children.iter().map(|child| (*child, &node.key)));
        }
        let nodes = self.overview.nodes.iter().enumerate().take(MAX_ROWS);
        nodes.map(|(place, node)| (id(&node.key), self.row(node, owners.get(&place).copied()).to_string())).collect()
    }

    fn row(&self, node: &OverviewNode, owner: Option<&Key>) -> Value {
        let key = &node.key;
        let links: Vec<String> = overview::links(&self.world, key).iter().map(id).collect();
        json!({
            "id": id(key), "owner": owner.map(id), "kind": node.kind, "name": &*key.name, "namespace": &*key.namespace,
            "stage": node.stage.word(), "ready": node.ready, "status": node.status, "restarts": node.restarts, "pods": node.pods,
            "created": node.created.map(Time::as_second), "order": kind_order(key.resource), "path": self.path(key),
            "object": format!("{}/{}", key.resource, key.name), "links": links,
        })
    }

    /// The path of an object in the API.
    fn path(&self, key: &Key) -> String {
        let version = self.world.kinds.by_resource(key.resource).map_or("v1", |kind| kind.version);
        let (group, plural, name) = (key.resource.group(), key.resource.plural(), &key.name);
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let namespace = if key.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", key.namespace) };
        format!("{root}{namespace}/{plural}/{name}")
    }

    /// The counts, and the loops.
    fn facts(&self) -> [Value; 2] {
        let (ready, pods, troubled) = self.overview.counts();
        let leader = leader::read_leader(self.store.home());
        let header = json!({"ready": ready, "pods": pods, "troubled": troubled, "leader": leader});
        let loops = PublishedMetrics::read(self.store.home()).and_then(|loops| serde_json::to_value(loops).ok());
        [header, loops.unwrap_or_default()]
    }

    /// The newest events.
    fn events(&self) -> Value {
        let events = overview::events(&self.world, None, None, MAX_EVENTS);
        let event = |event: &overview::EventLine| {
            json!({"seen": event.seen, "warning": event.is_warning, "reason": event.reason, "about": event.about,
                "namespace": event.namespace, "message": event.message})
        };
        events.iter().map(event).collect()
    }
}

fn id(key: &Key) -> String {
    format!("{}/{}/{}", key.resource, key.namespace, key.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{ApiRequest, answer};

    fn write(api: &mut Api, method: &str, path: &str, body: &Value) -> u16 {
        let body = body.to_string().into_bytes();
        answer(api, &ApiRequest { body, ..ApiRequest::new(method, path) }).code
    }

    fn next(feed: &mut OverviewFeed) -> Value {
        loop {
            let piece = feed.next_piece().expect("a line");
            if piece != b"\n" {
                return serde_json::from_slice(&piece).expect("JSON");
            }
        }
    }

    #[test]
    fn feed_begins_with_all_rows_and_goes_on_with_changes() {
        let folder = tempfile::tempdir().unwrap();
        let mut api = Api::open(&folder.path().join("state.db"), OpenMode::Create, "test").unwrap();
        api.read_view(|txn| Ok(txn.network())).unwrap();
        let service = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}});
        let services = "/api/v1/namespaces/default/services";
        assert_eq!(write(&mut api, "POST", services, &service("web")), 201);
        let mut feed = OverviewFeed::open(&api).unwrap();
        let first = next(&mut feed);
        let find =
            |line: &Value, name: &str| line["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned();
        assert_eq!(first["reset"], true);
        let row = find(&first, "web").unwrap();
        assert_eq!(row["path"], "/api/v1/namespaces/default/services/web");
        assert_eq!((&row["stage"], &row["object"]), (&json!("failing"), &json!("services/web")));
        assert_eq!(write(&mut api, "POST", services, &service("other")), 201);
        let second = next(&mut feed);
        assert!(find(&second, "web").is_none() && find(&second, "other").is_some(), "{second}");
        assert_eq!(write(&mut api, "DELETE", &format!("{services}/web"), &json!({})), 200);
        let third = next(&mut feed);
        assert_eq!(third["removed"], json!(["services/default/web"]), "{third}");
    }
}
