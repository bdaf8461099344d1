//! The invariants: reads only the store's log, and fails on entries that must never occur.

use super::changes::compare;
use kloop::object::{Key, Object, Selector};
use kloop::reconcile::simulate::Simulation;
use kloop::store::{ChangeKind, LogEntry, StoreRead};
use kloop::world::{Row, World};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

/// The observations so far.
pub struct Invariants {
    /// The state computed from the log.
    pub world: World,
    /// A digest of the history: equal runs have equal ones.
    pub hash: DefaultHasher,
    /// Rows written so far.
    pub rows: usize,
    /// Pods ever made.
    pub pods_made: usize,
    gone: HashSet<String>,
    /// Pods ever seen of a Job, and whether each may count as succeeded and as failed.
    job_pods: HashMap<String, BTreeMap<String, [bool; 2]>>,
    /// The sizes of all ReplicaSets at the last check.
    sized: HashMap<String, i64>,
    /// Live pods of a Deployment's ReplicaSet at the last check.
    live: HashMap<String, i64>,
    /// Deployments that have reached their minimum of available pods.
    reached: HashSet<String>,
    deleted_by_users: BTreeSet<Key>,
    /// Scheduled times of CronJobs that have a Job: owner and time.
    started: HashSet<(String, String)>,
    /// Pods of StatefulSets ever seen, by uid.
    identities: HashMap<String, Key>,
    /// Pods of ordered StatefulSets that the log shows before those that had to be ready, and their owners' uids.
    out_of_turn: Vec<(Key, String)>,
    /// Owners, by uid, that were deleted in the foreground, and those whose dependents are to be orphaned.
    foreground: HashSet<String>,
    orphaned: HashSet<String>,
    /// Whether a node was deleted: its pods are deleted when the control plane handles that.
    node_gone: bool,
}

impl Default for Invariants {
    fn default() -> Invariants {
        Invariants {
            world: World::new(super::scene::begin()),
            hash: DefaultHasher::new(),
            rows: 0,
            pods_made: 0,
            gone: HashSet::new(),
            job_pods: HashMap::new(),
            sized: HashMap::new(),
            live: HashMap::new(),
            reached: HashSet::new(),
            deleted_by_users: BTreeSet::new(),
            started: HashSet::new(),
            identities: HashMap::new(),
            out_of_turn: Vec::new(),
            foreground: HashSet::new(),
            orphaned: HashSet::new(),
            node_gone: false,
        }
    }
}

impl Invariants {
    /// Records an event that may make pods unavailable without a fault of the control plane.
    pub fn disturbed(&mut self) {
        self.reached.clear();
    }

    /// Records a deletion by a user, whose propagation policy replaces that of an earlier one.
    pub fn user_deletes(&mut self, key: &Key, sim: &Simulation) {
        self.look(sim);
        self.disturbed();
        if let Some(row) = self.world.get(key) {
            self.foreground.remove(&*row.uid);
            self.orphaned.remove(&*row.uid);
        }
        self.node_gone |= key.resource == "nodes";
        self.deleted_by_users.insert(key.clone());
    }

    /// Reads entries since the last call, and checks everything.
    pub fn look(&mut self, sim: &Simulation) {
        let entries = sim.store().read().unwrap().log_after(self.world.revision, usize::MAX).unwrap();
        let wrote = !entries.is_empty();
        let (mut closed, mut removed) = (Vec::new(), Vec::new());
        for entry in entries {
            if matches!(entry.change, ChangeKind::Removed(_)) {
                let key = &entry.change.stored().key;
                closed.extend((key.resource == "namespaces").then(|| key.name.clone()));
                removed.extend(self.world.get(key).cloned());
            }
            self.take(entry);
        }
        // The log lists pods that one commit replaces in the order of their ends.
        for (key, owner) in std::mem::take(&mut self.out_of_turn) {
            let unready = self.unready_before(&key, &owner);
            assert!(unready.is_none(), "C10: {key} was made before {unready:?} was ready");
        }
        // Objects that were removed in one commit are compared together.
        removed.iter().for_each(|owner| self.dependents_are_seen_to(owner));
        for name in closed.iter().filter(|name| self.world.find("namespaces", "", name).is_none()) {
            let left = self.world.all_rows().find(|row| row.key.namespace == *name).map(|row| &row.key);
            assert!(left.is_none(), "C13: namespace {name} was removed before {left:?}");
        }
        self.world.now = sim.now();
        if wrote {
            self.attempts(sim);
            self.deployments();
            self.nodes();
            self.jobs();
            self.daemons();
        }
        self.processes(sim);
    }

    fn take(&mut self, entry: LogEntry) {
        assert_eq!(entry.revision, self.world.revision + 1, "revisions rise one by one");
        self.world.revision = entry.revision;
        let stored = entry.change.stored();
        // An event expires an hour after its last occurrence, also in a settled cluster.
        let expires = stored.key.resource == "events" && matches!(entry.change, ChangeKind::Removed(_));
        self.rows += usize::from(!expires);
        (entry.revision, &*stored.key.name, stored.key.resource.0, &*stored.body).hash(&mut self.hash);
        let key = stored.key.clone();
        let before = self.world.get(&key).cloned();
        let now = Object(serde_json::from_str(&stored.body).expect("a body is JSON"));
        assert_eq!(now.revision(), entry.revision, "{key}: resourceVersion is the revision");
        match &entry.change {
            ChangeKind::Put(stored) => {
                assert!(!self.gone.contains(&*stored.uid), "{key}: a write to uid {} that is gone", stored.uid);
                if let Some(before) = &before {
                    compare(&key, &before.object(), &now);
                }
                if before.is_none() {
                    self.made(&key, &now);
                }
                let managers = now.owners().iter().filter(|owner| owner.controller).count();
                assert!(managers <= 1, "C7: {key} has {managers} controllers");
                if before.as_ref().is_some_and(|before| before.controller().is_none()) {
                    self.adopted(&key, &now);
                }
                for (finalizer, owners) in
                    [("foregroundDeletion", &mut self.foreground), ("orphan", &mut self.orphaned)]
                {
                    let is_asked = now.deletion().is_some() && now.finalizers().contains(&finalizer);
                    owners.extend(is_asked.then(|| now.uid().to_owned()));
                }
                self.pods_made += usize::from(before.is_none() && key.resource == "pods");
                self.world.put(key.clone(), stored.body.clone());
            }
            ChangeKind::Removed(stored) => {
                let before = before.unwrap_or_else(|| panic!("{key} was removed and was not there"));
                assert!(
                    before.finalizers.is_empty() || now.finalizers().is_empty(),
                    "{key} was removed with finalizers"
                );
                self.removed_rightly(&before);
                self.gone.insert(stored.uid.to_string());
                self.world.remove(&key);
            }
        }
        self.note_job_pod(&now, matches!(entry.change, ChangeKind::Removed(_)));
    }

    /// C9: a scheduled time of a CronJob has one Job. C10: names of StatefulSet pods are unique.
    fn made(&mut self, key: &Key, now: &Object) {
        let Some(owner) = now.controller() else { return };
        let time = now.annotation("batch.kubernetes.io/cronjob-scheduled-timestamp");
        if let Some(time) = time.filter(|_| key.resource == "jobs.batch") {
            let fresh = self.started.insert((owner.uid.clone(), time.to_owned()));
            assert!(fresh, "C9: {key} is the second Job of {time}");
            self.runs_alone(key, &owner.uid);
        }
        if owner.kind == "StatefulSet" && key.resource == "pods" {
            self.identities.insert(now.uid().to_owned(), key.clone());
            if self.unready_before(key, &owner.uid).is_some() {
                self.out_of_turn.push((key.clone(), owner.uid.clone()));
            }
        }
    }

    /// C9: Forbid and Replace: while a new Job runs, no other one does, unless it is being deleted.
    fn runs_alone(&self, key: &Key, owner: &str) {
        let Some(cron_job) = self.world.by_uid(owner).map(|row| row.object()) else { return };
        if !matches!(cron_job.text(&["spec", "concurrencyPolicy"]), Some("Forbid" | "Replace")) {
            return;
        }
        let runs = |row: &Row| {
            let conditions = row.object();
            let mut ended = conditions.items(&["status", "conditions"]).iter();
            !row.is_deleting() && !ended.any(|one| matches!(one["type"].as_str(), Some("Complete" | "Failed")))
        };
        let other = self.world.controlled("jobs.batch", owner).find(|row| runs(row)).map(|row| &row.key);
        assert!(other.is_none(), "C9: {key} was started beside {other:?}");
    }

    /// C10: a pod of an ordered StatefulSet is created when all before it are ready. Returns one that is not.
    fn unready_before(&self, key: &Key, owner: &str) -> Option<String> {
        let set = self.world.by_uid(owner)?.object();
        if set.text(&["spec", "podManagementPolicy"]) == Some("Parallel") {
            return None;
        }
        let ordinal = key.name.rsplit('-').next().and_then(|text| text.parse::<i64>().ok()).expect("an ordinal");
        let first = set.int(&["spec", "ordinals", "start"]).unwrap_or(0);
        let mut names = (first..ordinal).map(|before| format!("{}-{before}", set.name()));
        names.find(|name| {
            let pod = self.world.find("pods", &key.namespace, name).and_then(|row| row.pod());
            pod.is_none_or(|pod| !pod.ready)
        })
    }

    /// C7: an object is only adopted by an existing owner in its namespace that selects it.
    fn adopted(&self, key: &Key, now: &Object) {
        let Some(owner) = now.controller() else { return };
        let row = self.world.by_uid(&owner.uid);
        let row = row.unwrap_or_else(|| panic!("C7: {key} was adopted by {} that is not there", owner.name));
        assert!(!row.is_deleting(), "C7: {key} was adopted by {}, which is being deleted", row.key);
        assert_eq!(row.key.namespace, key.namespace, "C7: {key} was adopted by {}", row.key);
        let selector = row.object().value_at(&["spec", "selector"]).map(Selector::from_label_selector);
        let selects = selector.is_some_and(|selector| selector.is_ok_and(|one| one.matches(|label| now.label(label))));
        assert!(selects || key.resource != "pods", "C7: {key} was adopted by {}, which does not select it", row.key);
    }

    /// C12: an object deleted in the foreground is removed after its dependents; one deleted with orphaning when no object names it as
    /// owner.
    fn dependents_are_seen_to(&self, owner: &Row) {
        let holds = |row: &Arc<Row>, only_blocking: bool| {
            let object = row.object();
            let mut references = object.items(&["metadata", "ownerReferences"]).iter();
            references.any(|one| one["uid"] == *owner.uid && (!only_blocking || one["blockOwnerDeletion"] == true))
        };
        // A terminating namespace removes all its objects.
        let namespace = self.world.find("namespaces", "", &owner.key.namespace);
        if !owner.key.namespace.is_empty() && namespace.is_none_or(|namespace| namespace.is_deleting()) {
            return;
        }
        for (owners, only_blocking) in [(&self.foreground, true), (&self.orphaned, false)] {
            if owners.contains(&*owner.uid) {
                let left = self.world.dependents(&owner.uid).find(|row| holds(row, only_blocking));
                assert!(left.is_none(), "C12: {} was removed before {:?}", owner.key, left.map(|row| &row.key));
            }
        }
    }

    /// C12: in a settled cluster no object is left whose owners are all deleted. C6: a Deployment has one active ReplicaSet, and at most as
    /// many old ones as its history limit.
    pub fn tidy(&self) {
        for row in self.world.all_rows().filter(|row| !row.owners.is_empty() && row.key.resource != "events") {
            let lives = row.owners.iter().any(|owner| self.world.by_uid(&owner.uid).is_some());
            assert!(lives, "C12: {} still exists, but its owners are deleted", row.key);
        }
        for row in self.world.list("deployments.apps") {
            let sets: Vec<&Arc<Row>> = self.world.controlled("replicasets.apps", &row.uid).collect();
            let size = |set: &&&Arc<Row>| set.workload().is_some_and(|fields| fields.replicas > 0);
            let used = sets.iter().filter(size).count();
            assert!(used <= 1, "C6: {}: {used} ReplicaSets are in use", row.key);
            let limit = row.object().int(&["spec", "revisionHistoryLimit"]).unwrap_or(10);
            let old = sets.len() as i64 - 1;
            assert!(old <= limit.max(0), "C6: {}: {old} old ReplicaSets are kept, {limit} asked for", row.key);
        }
    }

    /// Records how a pod of a Job may count. One that is deleted before it ends counts as failed, even if its status changes later.
    fn note_job_pod(&mut self, object: &Object, removed: bool) {
        let Some(owner) = object.controller().filter(|owner| owner.kind == "Job" && object.kind() == "Pod") else {
            return;
        };
        let phase = object.text(&["status", "phase"]).unwrap_or_default();
        let pods = self.job_pods.entry(owner.uid.clone()).or_default();
        let may = pods.entry(object.uid().to_owned()).or_default();
        may[0] |= phase == "Succeeded";
        may[1] |= phase == "Failed" || phase != "Succeeded" && (removed || object.deletion().is_some());
    }

    /// C12: without a deletion an object is only removed with its owner. C10: claims are only removed on request.
    fn removed_rightly(&self, row: &Row) {
        let asked = self.deleted_by_users.contains(&row.key);
        assert!(
            row.key.resource != "persistentvolumeclaims" || asked,
            "C10: {} was removed without a request",
            row.key
        );
        if row.key.resource != "configmaps" || row.owners.is_empty() || self.deleted_by_users.contains(&row.key) {
            return;
        }
        let lives =
            row.owners.iter().any(|owner| self.world.by_uid(&owner.uid).is_some_and(|owner| !owner.is_deleting()));
        let namespace = self.world.find("namespaces", "", &row.key.namespace);
        assert!(
            !lives || namespace.is_none_or(|row| row.is_deleting()),
            "{} was removed although its owner exists",
            row.key
        );
    }

    fn attempts(&self, sim: &Simulation) {
        let attempts = sim.store().read().unwrap().attempts().unwrap();
        for attempt in attempts {
            let Some(row) = self.world.by_uid(&attempt.pod_uid) else { continue };
            let pod = row.object();
            let statuses = ["initContainerStatuses", "containerStatuses"];
            let mut statuses = statuses.iter().flat_map(|list| pod.items(&["status", list]));
            if let Some(status) = statuses.find(|status| status["name"] == *attempt.container) {
                let told = status["restartCount"].as_i64().unwrap();
                let committed = i64::from(attempt.attempt);
                assert_eq!(told, committed, "{}: restartCount and attempts of {}", row.key, attempt.container);
            }
        }
    }

    fn pods_of<'a>(&'a self, set: &'a Row) -> impl Iterator<Item = &'a Arc<Row>> {
        self.world.controlled("pods", &set.uid)
    }

    fn deployments(&mut self) {
        let rows: Vec<Arc<Row>> = self.world.list("deployments.apps").cloned().collect();
        for row in &rows {
            let object = row.object();
            let sets: Vec<Arc<Row>> = self.world.controlled("replicasets.apps", &row.uid).cloned().collect();
            let mut templates = HashSet::new();
            for set in &sets {
                let fresh = templates.insert(set.workload().unwrap().template);
                assert!(fresh, "C6: {}: two ReplicaSets of one template", row.key);
            }
            let mut revisions = HashSet::new();
            for set in &sets {
                let object = set.object();
                let Some(revision) = object.annotation("deployment.kubernetes.io/revision") else { continue };
                let fresh = revisions.insert(revision.to_owned());
                assert!(fresh, "C6: {}: two ReplicaSets are revision {revision}", row.key);
            }
            self.at_most(row, &object, &sets);
            self.recreates(row, &object, &sets);
            self.enough(row, &object, &sets);
        }
        let sets = self.world.list("replicasets.apps");
        self.sized = sets.filter_map(|set| Some((set.uid.to_string(), set.workload()?.replicas))).collect();
    }

    /// C5: ReplicaSets for at most replicas + maxSurge pods, except those that existed before the number was reduced. A ReplicaSet
    /// keeps to its own size; one may create a pod while another has yet to delete one.
    fn at_most(&mut self, row: &Row, object: &Object, sets: &[Arc<Row>]) {
        let key = &row.key;
        for set in sets {
            let size = set.workload().map_or(0, |set| set.replicas);
            let live = self.pods_of(set).filter(|pod| pod.is_active_pod()).count() as i64;
            let before = self.live.insert(set.uid.to_string(), live).unwrap_or(0);
            assert!(live <= size.max(before), "{}: {live} live pods, {before} before, {size} wanted", set.key);
        }
        let sized: i64 = sets.iter().filter_map(|set| Some(set.workload()?.replicas)).sum();
        let (replicas, surge, _) = steps(object);
        // An orphan is adopted with its size.
        let sized_before: i64 = sets.iter().filter_map(|set| self.sized.get(&*set.uid)).sum();
        let most = replicas + surge;
        assert!(
            sized <= most || sized <= sized_before,
            "{key}: sets are sized {sized}, {sized_before} before, {most} allowed"
        );
    }

    /// Recreate never mixes two templates.
    fn recreates(&self, row: &Row, object: &Object, sets: &[Arc<Row>]) {
        if object.text(&["spec", "strategy", "type"]) != Some("Recreate") {
            return;
        }
        let lives =
            |set: &&Arc<Row>| self.pods_of(set).any(|pod| pod.pod().is_some_and(|pod| !pod.phase.is_terminal()));
        let mixed = sets.iter().filter(lives).count();
        assert!(mixed <= 1, "{}: pods of {mixed} templates live together", row.key);
    }

    /// C5: available pods stay available.
    fn enough(&mut self, row: &Row, object: &Object, sets: &[Arc<Row>]) {
        let crashes =
            |set: &Arc<Row>| set.object().0["spec"]["template"].to_string().contains(super::workloads::CRASHING);
        let (replicas, _, unavailable) = steps(object);
        let recreate = object.text(&["spec", "strategy", "type"]) == Some("Recreate");
        if recreate || self.node_gone || row.is_deleting() || sets.iter().any(crashes) {
            self.reached.remove(&*row.uid);
            return;
        }
        let active = sets.iter().flat_map(|set| self.pods_of(set)).filter(|pod| pod.is_active_pod());
        let ready = active.filter(|pod| pod.pod().is_some_and(|pod| pod.ready)).count() as i64;
        if ready >= replicas - unavailable {
            // Only states that were seen while idle count: see `quiet`.
            return;
        }
        let reached = self.reached.contains(&*row.uid);
        assert!(!reached, "{}: {ready} ready pods of {replicas}, {unavailable} may be missing", row.key);
    }

    /// The cluster is idle: from now on Deployments must keep their minimum of available pods.
    pub fn quiet(&mut self) {
        let rows: Vec<Arc<Row>> = self.world.list("deployments.apps").cloned().collect();
        for row in rows {
            let (replicas, _, unavailable) = steps(&row.object());
            let sets = self.world.controlled("replicasets.apps", &row.uid);
            let active = sets.flat_map(|set| self.world.controlled("pods", &set.uid)).filter(|pod| pod.is_active_pod());
            let ready = active.filter(|pod| pod.pod().is_some_and(|pod| pod.ready)).count() as i64;
            if ready >= replicas - unavailable {
                self.reached.insert(row.uid.to_string());
            }
        }
    }

    /// C14: no node is overcommitted.
    fn nodes(&self) {
        for node in self.world.list("nodes") {
            let has = &node.node().unwrap().allocatable;
            let pods = self.world.pods_on(&node.key.name).filter_map(|row| row.pod());
            let lives: Vec<_> = pods.filter(|pod| !pod.phase.is_terminal()).collect();
            let cpu: i64 = lives.iter().map(|pod| pod.requests.cpu_milli).sum();
            let memory: i64 = lives.iter().map(|pod| pod.requests.memory).sum();
            assert!(cpu <= has.cpu_milli && memory <= has.memory, "{}: {cpu}m cpu, {memory} bytes", node.key);
        }
    }

    fn jobs(&self) {
        for row in self.world.list("jobs.batch") {
            let status = row.object();
            let count = |field: &str| status.int(&["status", field]).unwrap_or(0);
            let pods = self.job_pods.get(&*row.uid);
            let ended = |as_what: usize| pods.map_or(0, |pods| pods.values().filter(|may| may[as_what]).count()) as i64;
            let all = pods.map_or(0, BTreeMap::len) as i64;
            let (key, succeeded, failed) = (&row.key, count("succeeded"), count("failed"));
            assert!(succeeded <= ended(0), "{key}: {succeeded} succeeded, {} did", ended(0));
            assert!(failed <= ended(1), "{key}: {failed} failed, {} did", ended(1));
            assert!(succeeded + failed <= all, "{key}: {succeeded} succeeded and {failed} failed of {all} pods");
            let holds = |kind: &str| {
                let mut all = status.items(&["status", "conditions"]).iter();
                all.any(|one| one["type"] == kind && one["status"] == "True")
            };
            assert!(!(holds("Complete") && holds("Failed")), "C8: {key} is complete and failed");
            let mut indexes = HashSet::new();
            for pod in self.pods_of(row).filter(|pod| pod.is_active_pod()) {
                let object = pod.object();
                let Some(index) = object.annotation("batch.kubernetes.io/job-completion-index") else { continue };
                assert!(indexes.insert(index.to_owned()), "C8: {key}: two pods have index {index}");
            }
        }
    }

    /// C11: one live pod of a DaemonSet on each node, except for its surge.
    fn daemons(&self) {
        for row in self.world.list("daemonsets.apps") {
            let surges = row.object().int(&["spec", "updateStrategy", "rollingUpdate", "maxSurge"]).unwrap_or(0) > 0;
            let mut nodes: HashMap<String, i64> = HashMap::new();
            for pod in self.pods_of(row).filter(|pod| pod.is_active_pod()) {
                *nodes.entry(meant_for(&pod.object())).or_default() += 1;
            }
            for (node, count) in nodes {
                assert!(count <= 1 + i64::from(surges), "C11: {}: {count} live pods for {node}", row.key);
            }
        }
    }

    /// C15: in a settled cluster the endpoints of a Service are its ready pods.
    pub fn endpoints(&self) {
        // Nobody updates the slice that a Service has left behind as an orphan.
        for slice in self.world.list("endpointslices.discovery.k8s.io").filter(|slice| !slice.owners.is_empty()) {
            let is_ready = |one: &&Value| one["conditions"]["ready"] == true;
            for endpoint in slice.object().items(&["endpoints"]).iter().filter(is_ready) {
                let pod = endpoint["targetRef"]["uid"].as_str().and_then(|uid| self.world.by_uid(uid));
                let ready = pod.is_some_and(|pod| pod.pod().is_some_and(|pod| pod.ready));
                assert!(ready, "C15: {} leads to {}, which is not ready", slice.key, endpoint["targetRef"]["name"]);
            }
        }
    }

    /// Never two processes of one container; C10: nor for one name of a StatefulSet.
    fn processes(&self, sim: &Simulation) {
        assert!(sim.machine.clashes.is_empty(), "started while it ran: {:?}", sim.machine.clashes);
        let mut names: HashMap<&Key, &str> = HashMap::new();
        for (uid, _, _) in sim.machine.running() {
            let Some(name) = self.identities.get(&**uid) else { continue };
            let other = names.insert(name, uid);
            assert!(other.is_none_or(|other| other == &**uid), "C10: two processes are {name}");
        }
    }

    /// The store equals its log, and the control plane's cache equals both.
    pub fn fold(&self, sim: &Simulation) {
        let stored = sim.store().read().unwrap().list_all().unwrap();
        assert_eq!(stored.len(), self.world.all_rows().count(), "the fold of the log has as many objects as the store");
        for one in stored {
            let row = self.world.get(&one.key).unwrap_or_else(|| panic!("{} is not in the fold", one.key));
            assert_eq!(row.object().0.to_string(), *one.body, "{}", one.key);
        }
        if sim.world().revision == self.world.revision {
            for row in sim.world().all_rows() {
                let known = self.world.get(&row.key).unwrap_or_else(|| panic!("{} is only in the cache", row.key));
                assert_eq!(known.object(), row.object(), "the cached {}", row.key);
            }
            assert_eq!(sim.world().all_rows().count(), self.world.all_rows().count(), "the cache is complete");
        }
    }
}

/// Returns the node that a pod of a DaemonSet is on, or is bound for.
fn meant_for(pod: &Object) -> String {
    let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let named = pod.0.pointer(&format!("{terms}/0/matchFields/0/values/0")).and_then(Value::as_str);
    pod.text(&["spec", "nodeName"]).or(named).unwrap_or_default().to_owned()
}

/// Returns replicas, maxSurge and maxUnavailable.
fn steps(deployment: &Object) -> (i64, i64, i64) {
    let replicas = deployment.int(&["spec", "replicas"]).unwrap_or(1);
    if deployment.text(&["spec", "strategy", "type"]) == Some("Recreate") {
        return (replicas, 0, replicas);
    }
    let resolve = |name: &str, up: bool| {
        let value =
            deployment.value_at(&["spec", "strategy", "rollingUpdate", name]).cloned().unwrap_or(Value::from("25%"));
        match value.as_i64() {
            Some(number) => number,
            None => {
                let percent: i64 = value.as_str().unwrap().trim_end_matches('%').parse().unwrap();
                let hundredths = replicas * percent;
                if up { (hundredths + 99) / 100 } else { hundredths / 100 }
            }
        }
    };
    match (resolve("maxSurge", true), resolve("maxUnavailable", false)) {
        (0, 0) => (replicas, 0, 1),
        (surge, unavailable) => (replicas, surge, unavailable.min(replicas)),
    }
}
