//! The overview of a cluster: workloads as a tree from owners to pods, failing ones first; and events.
//!
//! Knows: which objects are rows, the owner above each row, and their order. Summaries of pods are kept by revision, so that
//! only changed pods are decoded.
//! Never: explains anything ([`super::why`] does), and never reads a store, a machine or a clock. Start reading at [`Overview::update`].

use super::convergence::{self, reachability};
use super::progress::{self, PodTally, Stage};
use crate::kinds::view::body::BodyRead;
use crate::kinds::view::events as event_view;
use crate::kinds::view::pod::PodSummary;
use crate::object::{Key, Object, Resource, Str, Time};
use crate::world::{Row, World};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Resources of workloads, in the order of their rows.
const WORKLOADS: [&str; 8] = [
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "cronjobs.batch",
    "jobs.batch",
    "replicasets.apps",
    "replicationcontrollers",
    "pods",
];

/// Other resources with rows, below the workloads.
const OTHER_RESOURCES: [&str; 6] =
    ["services", "ingresses.networking.k8s.io", HTTP_ROUTES, GRPC_ROUTES, "persistentvolumeclaims", "nodes"];

/// Routes of the Gateway API, in clusters that define it.
const HTTP_ROUTES: &str = "httproutes.gateway.networking.k8s.io";

/// Routes of the Gateway API for gRPC, in clusters that define them.
const GRPC_ROUTES: &str = "grpcroutes.gateway.networking.k8s.io";

/// Maximum number of owners above a row.
const DEPTH: usize = 6;

/// Most objects that one leads to.
const MAX_LINKS: usize = 50;

/// A row of the overview.
#[derive(Clone, Debug)]
pub struct OverviewNode {
    /// The object.
    pub key: Key,
    /// Its kind in lower case: `deployment`.
    pub kind: String,
    /// Its stage.
    pub stage: Stage,
    /// Ready pods or containers, of all: `1/2`; may be empty.
    pub ready: String,
    /// The status in a word, or the reason of a failure.
    pub status: String,
    /// Restarts of its containers.
    pub restarts: i64,
    /// The time of its creation.
    pub created: Option<Time>,
    /// The places of the rows that it owns.
    pub children: Vec<usize>,
    /// Pods below it.
    pub pods: i64,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerLine {
    /// Its name.
    pub name: String,
    /// `Running`, or the reason of its waiting or its end.
    pub state: String,
    /// Whether it is an init container.
    pub is_init: bool,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Number of its restarts.
    pub restarts: i64,
    /// The start of its process.
    pub started: Option<Time>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// The time since it was seen last, with its count: `5s (x3 over 1m)`.
    pub seen: String,
    /// Whether it is a warning.
    pub is_warning: bool,
    /// Its reason.
    pub reason: String,
    /// Its object: `pod/web`.
    pub about: String,
    /// The namespace of its object.
    pub namespace: String,
    /// Its message.
    pub message: String,
}

/// A pod as its row shows it.
#[derive(Clone)]
struct PodLine {
    revision: u64,
    stage: (Stage, String),
    ready: String,
    status: String,
    restarts: i64,
}

/// The objects of a cluster at a glance.
#[derive(Default)]
pub struct Overview {
    /// The rows.
    pub nodes: Vec<OverviewNode>,
    /// Places of the rows without owners, in their order.
    pub roots: Vec<usize>,
    /// Pods as they were shown last.
    pods: HashMap<Key, PodLine>,
}

/// Rows that an update works on.
struct Family<'w> {
    world: &'w World,
    /// Rows by the uid of the owner that they stand below.
    below: HashMap<Str, Vec<&'w Arc<Row>>>,
}

impl Overview {
    /// Rebuilds the rows of a namespace, or those of all namespaces.
    pub fn update(&mut self, world: &World, namespace: Option<&str>) {
        self.nodes.clear();
        self.roots.clear();
        let mut family = Family { world, below: HashMap::new() };
        let (mut tops, mut seen) = (Vec::new(), HashSet::new());
        for row in WORKLOADS.iter().flat_map(|resource| rows(world, resource, namespace)) {
            family.place(row, &mut tops, &mut seen);
        }
        for row in tops {
            let (place, _) = self.add(&family, row, 0);
            self.roots.push(place);
        }
        for row in OTHER_RESOURCES.iter().flat_map(|resource| rows(world, resource, namespace)) {
            if let Some(node) = other_node(world, row) {
                self.roots.push(self.nodes.len());
                self.nodes.push(node);
            }
        }
        self.pods.retain(|key, _| world.get(key).is_some());
        let mut roots = std::mem::take(&mut self.roots);
        roots.sort_by(|one, other| self.order(*one).cmp(&self.order(*other)));
        self.roots = roots;
    }

    /// The order of rows: failing ones first; then by kind, namespace and name.
    fn order(&self, place: usize) -> (Stage, usize, &str, &str, &str) {
        let node = &self.nodes[place];
        let stage = if node.stage == Stage::Done { Stage::Ready } else { node.stage };
        (stage, kind_order(node.key.resource), node.key.resource.0, &node.key.namespace, &node.key.name)
    }

    /// Adds a row with all rows below it; returns its place, and the pods below it.
    fn add(&mut self, family: &Family<'_>, row: &Arc<Row>, depth: usize) -> (usize, PodTally) {
        let (mut tally, mut children) = (PodTally::default(), Vec::new());
        let below = family.below.get(&row.uid).filter(|_| depth < DEPTH).map(Vec::as_slice).unwrap_or_default();
        for child in below {
            if is_former_revision(child, family) {
                continue;
            }
            let (place, own) = self.add(family, child, depth + 1);
            tally.merge(&own);
            children.push(place);
        }
        children.sort_by(|one, other| self.order(*one).cmp(&self.order(*other)));
        let node = match row.pod() {
            Some(_) => {
                let line = self.pod_line(row);
                tally.add(&line.stage, row);
                let (stage, restarts) = (line.stage.0, line.restarts);
                OverviewNode { stage, restarts, ready: line.ready, status: line.status, ..blank(row, "pod") }
            }
            None => workload_node(family.world, row, &tally),
        };
        let node =
            OverviewNode { restarts: node.restarts.max(tally.restarts()), pods: tally.counts().1, children, ..node };
        self.nodes.push(node);
        (self.nodes.len() - 1, tally)
    }

    /// Returns the line of a pod; decodes it if it has changed.
    fn pod_line(&mut self, row: &Row) -> PodLine {
        if let Some(line) = self.pods.get(&row.key).filter(|line| line.revision == row.revision) {
            return line.clone();
        }
        let summary = PodSummary::from_pod(&row.body());
        let (mut stage, reason) = progress::pod_stage(row);
        if row.is_deleting() && stage.is_settled() && stage != Stage::Done {
            stage = Stage::Started;
        }
        let line = PodLine {
            revision: row.revision,
            stage: (stage, reason),
            ready: format!("{}/{}", summary.ready, summary.total),
            status: summary.status,
            restarts: summary.restarts,
        };
        self.pods.insert(row.key.clone(), line.clone());
        line
    }

    /// The number of ready pods and of all, and the number of rows without owners that are not right.
    pub fn counts(&self) -> (usize, usize, usize) {
        let pods = || self.nodes.iter().filter(|node| node.key.resource == "pods");
        let ready = pods().filter(|node| node.stage == Stage::Ready).count();
        let troubled = self.roots.iter().filter(|place| !self.nodes[**place].stage.is_settled()).count();
        (ready, pods().filter(|node| node.stage != Stage::Done).count(), troubled)
    }
}

/// The place of a kind in the order of rows.
pub fn kind_order(resource: Resource) -> usize {
    let mut kinds = WORKLOADS.iter().chain(&OTHER_RESOURCES);
    kinds.position(|kind| resource == *kind).unwrap_or(WORKLOADS.len() + OTHER_RESOURCES.len())
}

impl<'w> Family<'w> {
    /// Places a row below its owner, and this one below its own; or among the rows without owners.
    fn place(&mut self, row: &'w Arc<Row>, tops: &mut Vec<&'w Arc<Row>>, seen: &mut HashSet<&'w Key>) {
        let mut row = row;
        for _ in 0..DEPTH {
            if !seen.insert(&row.key) {
                return;
            }
            let owner = row.controller().and_then(|owner| self.world.by_uid(&owner.uid));
            // Mirror pods belong to their node.
            match owner.filter(|owner| owner.key.resource != "nodes") {
                Some(owner) => {
                    self.below.entry(owner.uid.clone()).or_default().push(row);
                    row = owner;
                }
                None => return tops.push(row),
            }
        }
    }
}

fn rows<'w>(world: &'w World, resource: &'static str, namespace: Option<&str>) -> Vec<&'w Arc<Row>> {
    let is_shown =
        |row: &&Arc<Row>| namespace.is_none_or(|wanted| row.key.namespace.is_empty() || *row.key.namespace == *wanted);
    world.list(resource).filter(is_shown).collect()
}

/// Whether a row is a ReplicaSet of an earlier revision, without pods.
fn is_former_revision(row: &Row, family: &Family<'_>) -> bool {
    row.key.resource == "replicasets.apps"
        && !family.below.contains_key(&row.uid)
        && row.body().int(&["spec", "replicas"]) == Some(0)
}

fn blank(row: &Row, kind: &str) -> OverviewNode {
    OverviewNode {
        key: row.key.clone(),
        kind: kind.to_owned(),
        stage: Stage::Ready,
        ready: String::new(),
        status: String::new(),
        restarts: 0,
        created: row.created,
        children: Vec::new(),
        pods: 0,
    }
}

fn workload_node(world: &World, row: &Row, tally: &PodTally) -> OverviewNode {
    let object = row.body();
    let kind = object.kind().to_lowercase();
    let known = world.kinds.by_kind(object.api_version(), object.kind());
    let judged = known.and_then(|known| progress::measure_progress(row, &object, known, tally));
    let (stage, reason, ready) = match judged {
        Some(found) => {
            let ready = if found.wanted > 0 { format!("{}/{}", found.ready, found.wanted) } else { String::new() };
            (found.stage, found.reason, ready)
        }
        None => {
            let ((stage, reason), (ready, count)) = (tally.slowest(), tally.counts());
            (stage, reason.to_owned(), format!("{ready}/{count}"))
        }
    };
    let (stage, reason) = match row.is_deleting() {
        true => (Stage::Started, "Terminating".to_owned()),
        false => (stage, reason),
    };
    let status = if reason.is_empty() { stage.word().to_owned() } else { reason };
    OverviewNode { stage, ready, status, ..blank(row, &kind) }
}

/// Returns the row of an object that runs no pods.
fn other_node(world: &World, row: &Row) -> Option<OverviewNode> {
    let object = row.body();
    let kind = object.kind().to_lowercase();
    let (stage, status) = match row.key.resource.0 {
        "nodes" if row.node().is_some_and(|node| node.ready == Some(true)) => (Stage::Ready, "Ready".to_owned()),
        "nodes" => (Stage::Failing, "NotReady".to_owned()),
        "persistentvolumeclaims" => match object.text(&["status", "phase"]).unwrap_or("Pending") {
            "Bound" => (Stage::Ready, "Bound".to_owned()),
            phase => (Stage::Pending, phase.to_owned()),
        },
        _ => match convergence::missing(world, row) {
            Some(missing) => (Stage::Failing, missing),
            None => (Stage::Ready, "ready".to_owned()),
        },
    };
    Some(OverviewNode { stage, status, ..blank(row, &kind) })
}

/// Returns the containers of a pod, init containers first.
pub fn containers(pod: &Object) -> Vec<ContainerLine> {
    let mut lines = Vec::new();
    for (list, is_init) in [("initContainers", true), ("containers", false)] {
        for container in pod.items(&["spec", list]) {
            let name = container.text("name");
            let status = pod.container_status(name);
            let text = |path: &str| status.map(|status| status.text(path)).unwrap_or_default().to_owned();
            let started = status.and_then(|status| status.time("state.running.startedAt"));
            let reasons = [text("state.waiting.reason"), text("state.terminated.reason")];
            let reason = reasons.into_iter().find(|reason| !reason.is_empty());
            let state = match started {
                Some(_) => "Running".to_owned(),
                None => reason.unwrap_or_else(|| "Waiting".to_owned()),
            };
            lines.push(ContainerLine {
                name: name.to_owned(),
                state,
                is_init,
                is_ready: status.is_some_and(|status| status.flag("ready")),
                restarts: status.map_or(0, |status| status.int("restartCount")),
                started,
            });
        }
    }
    lines
}

/// Returns the newest events first, at most `most`: those of an object, or of a namespace, or all.
pub fn events(world: &World, namespace: Option<&str>, about: Option<&Key>, most: usize) -> Vec<EventLine> {
    let rows: Vec<&Arc<Row>> = match about {
        // Events of objects without a namespace are in `default`.
        Some(key) => {
            let namespace = if key.namespace.is_empty() { "default" } else { &key.namespace };
            world.list_in("events", namespace).filter(|row| row.mentions(&key.name)).collect()
        }
        None => rows(world, "events", namespace),
    };
    let kind = about.and_then(|key| world.get(key)).map(|row| row.body().kind().to_owned());
    let is_about = |event: &Object| match (about, &kind) {
        (Some(key), Some(kind)) => {
            let involved = event.0.value_at("involvedObject");
            involved.text("name") == &*key.name && involved.text("kind") == kind
        }
        _ => true,
    };
    let mut rows = rows;
    rows.sort_by_key(|row| Reverse(row.revision));
    let found = rows.into_iter().map(|row| row.object()).filter(is_about).take(most);
    found.map(|event| event_line(&event, world.now)).collect()
}

fn event_line(event: &Object, now: Time) -> EventLine {
    let body = &event.0;
    let about = body.value_at("involvedObject");
    EventLine {
        seen: event_view::last_seen(event, now),
        is_warning: body.text("type") == "Warning",
        reason: body.text("reason").to_owned(),
        about: format!("{}/{}", about.text("kind").to_lowercase(), about.text("name")),
        namespace: about.text("namespace").to_owned(),
        message: body.text("message").trim().to_owned(),
    }
}

/// Returns the objects that a Service, an Ingress or a route leads to: workloads without owners, or Services. At most [`MAX_LINKS`].
pub fn links(world: &World, key: &Key) -> Vec<Key> {
    let Some(row) = world.get(key) else { return Vec::new() };
    let mut found: Vec<Key> = match key.resource.0 {
        "services" => reachability::pods(world, row).into_iter().map(|pod| top_owner(world, pod)).collect(),
        "ingresses.networking.k8s.io" => {
            let ingress = row.body();
            let paths = ingress.items(&["spec", "rules"]).iter().flat_map(|rule| rule.list("http.paths"));
            let names = paths.map(|path| path.text("backend.service.name"));
            let names = names.chain([ingress.0.text("spec.defaultBackend.service.name")]);
            let names = names.filter(|name| !name.is_empty());
            names.map(|name| Key::new(Resource("services"), &key.namespace, name)).collect()
        }
        HTTP_ROUTES | GRPC_ROUTES => services_of_route(&row.body(), &key.namespace),
        _ => Vec::new(),
    };
    found.sort();
    found.dedup();
    found.truncate(MAX_LINKS);
    found
}

/// Returns the Services among the backends of a route. Backends without a kind are Services of the route's namespace.
fn services_of_route(route: &Object, namespace: &str) -> Vec<Key> {
    let backends = route.items(&["spec", "rules"]).iter().flat_map(|rule| rule.list("backendRefs"));
    let services = backends.filter(|backend| matches!(backend.text("kind"), "" | "Service"));
    let services = services.filter(|backend| !backend.text("name").is_empty());
    let key = |backend: &Value| {
        let own = Some(backend.text("namespace")).filter(|own| !own.is_empty());
        Key::new(Resource("services"), own.unwrap_or(namespace), backend.text("name"))
    };
    services.map(key).collect()
}

fn top_owner(world: &World, row: &Arc<Row>) -> Key {
    let mut row = row;
    for _ in 0..DEPTH {
        let owner = row.controller().and_then(|owner| world.by_uid(&owner.uid));
        match owner.filter(|owner| owner.key.resource != "nodes") {
            Some(owner) => row = owner,
            None => break,
        }
    }
    row.key.clone()
}

/// Returns the missing state of an object, as a sentence.
pub fn trouble(world: &World, key: &Key) -> Option<String> {
    let row = world.get(key)?;
    convergence::missing(world, row).or_else(|| convergence::missing_of(key.resource, &row.body()))
}

#[cfg(test)]
mod tests {
    use super::services_of_route;
    use crate::object::Object;
    use serde_json::json;

    #[test]
    fn routes_lead_to_the_services_of_their_rules() {
        let rules = json!([
            {"backendRefs": [{"name": "web", "port": 80}, {"kind": "Service", "name": "api", "namespace": "back"}]},
            {"backendRefs": [{"kind": "Bucket", "group": "x.dev", "name": "files"}, {"port": 1}]},
            {"filters": []},
        ]);
        let route = Object(json!({"kind": "HTTPRoute", "spec": {"rules": rules}}));
        let services: Vec<String> =
            services_of_route(&route, "front").iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect();
        assert_eq!(services, ["front/web", "back/api"]);
        assert!(services_of_route(&Object(json!({"spec": {"rules": "none"}})), "front").is_empty());
    }
}
