//! A fake cluster for tests: a World, a minimal API server, a kubelet that makes pods ready, and the loops. As in
//! `reconcile`, a change queues the keys that it concerns; a seed determines the order.

use super::ALL;
use crate::object::{Key, Object, Resource, Str, Time};
use crate::world::{AppliedFields, Effect, Plan, Propagation, Row, World, Write, WriteVerb};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A check of the World after every committed plan.
type Check = Box<dyn Fn(&World)>;

/// The fake cluster.
pub struct Cluster {
    pub world: World,
    /// `loop: verb key` of every write, and `event: reason message`.
    pub log: Vec<String>,
    pub check: Check,
    /// Drops all writes of a plan but the first, as if the process died; counts down to 0.
    pub crashes: u32,
    /// Whether the kubelet makes pods ready and removes ended ones.
    pub kubelet: bool,
    /// A node whose kubelet has stopped, and that gets no new pods.
    pub lost_node: Option<&'static str>,
    /// Creating more pods than this is refused, as by a quota.
    pub allowed_pods: usize,
    queue: BTreeSet<(usize, Key)>,
    wakes: Vec<(Time, usize, Key)>,
    revision: u64,
    chance: u64,
}

/// A cluster with nodes `a` and `b`, the namespace `default`, and these objects (YAML documents).
pub fn cluster(documents: &str) -> Cluster {
    let mut cluster = Cluster {
        world: World::new("2026-01-01T00:00:00Z".parse().unwrap()),
        log: Vec::new(),
        check: Box::new(|_| ()),
        crashes: 0,
        kubelet: true,
        lost_node: None,
        allowed_pods: usize::MAX,
        queue: BTreeSet::new(),
        wakes: Vec::new(),
        revision: 0,
        chance: 1,
    };
    for node in ["a", "b"] {
        cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": {"conditions":
            [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2100-01-01T00:00:00Z"}]}}));
    }
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}, "spec":
        {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}));
    cluster.add(documents);
    cluster
}

impl Cluster {
    /// Creates objects from YAML documents.
    pub fn add(&mut self, documents: &str) {
        for document in documents.split("\n---\n").filter(|document| !document.trim().is_empty()) {
            self.create(serde_yaml::from_str(document).unwrap());
        }
    }

    /// Changes the order in which keys are handled.
    pub fn seeded(mut self, seed: u64) -> Cluster {
        self.chance = seed.wrapping_mul(2654435761).wrapping_add(1);
        self
    }

    /// The key of an object in `default`.
    pub fn key(&self, resource: &'static str, name: &str) -> Key {
        let namespaced = self.world.get(&Key::new(Resource(resource), "", name)).is_none();
        Key::new(Resource(resource), if namespaced { "default" } else { "" }, name)
    }

    /// An object; panics when it does not exist.
    pub fn object(&self, resource: &'static str, name: &str) -> Object {
        let key = self.key(resource, name);
        self.world.get(&key).unwrap_or_else(|| panic!("{key} does not exist")).object()
    }

    /// The value at a JSON pointer of an object.
    pub fn value(&self, resource: &'static str, name: &str, pointer: &str) -> Value {
        self.object(resource, name).0.pointer(pointer).cloned().unwrap_or(Value::Null)
    }

    /// Changes an object as a user does: spec and metadata, by JSON merge patch.
    pub fn patch(&mut self, resource: &'static str, name: &str, patch: Value) {
        let mut object = self.object(resource, name);
        json_patch::merge(&mut object.0, &patch);
        self.update(object);
    }

    /// Deletes an object as a user does.
    pub fn delete(&mut self, resource: &'static str, name: &str, propagation: Propagation) {
        let key = self.key(resource, name);
        let uid = self.world.get(&key).unwrap().uid.clone();
        self.commit(WriteVerb::Delete { key, uid, grace: None, propagation });
    }

    /// Names of a resource's objects, joined.
    pub fn names(&self, resource: &'static str) -> String {
        self.world.list(resource).map(|row| row.key.name.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// Number of objects of a resource.
    pub fn count(&self, resource: &'static str) -> usize {
        self.world.list(resource).count()
    }

    /// Reasons and messages of the conditions of an object: `Type=Status Reason`.
    pub fn conditions(&self, resource: &'static str, name: &str) -> String {
        let object = self.object(resource, name);
        let text = |condition: &Value| {
            let part = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
            format!("{}={} {}", part("type"), part("status"), part("reason"))
        };
        object.items(&["status", "conditions"]).iter().map(text).collect::<Vec<_>>().join(", ")
    }

    /// Whether an event or write with this text occurred.
    pub fn logged(&self, text: &str) -> bool {
        self.log.iter().any(|line| line.contains(text))
    }

    /// Advances the clock, then settles.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.world.now + jiff::SignedDuration::from_secs(seconds);
        self.settle();
        while let Some(at) = self.wakes.iter().map(|wake| wake.0).min().filter(|at| *at <= end) {
            self.world.now = self.world.now.max(at);
            let (due, later) = std::mem::take(&mut self.wakes).into_iter().partition(|wake| wake.0 <= at);
            self.wakes = later;
            let due: Vec<(Time, usize, Key)> = due;
            self.queue.extend(due.into_iter().map(|(_, index, key)| (index, key)));
            self.settle();
        }
        self.world.now = end;
    }

    /// Runs loops and kubelet until no work remains, then asserts that all plans are empty.
    pub fn settle(&mut self) {
        for _ in 0..20_000 {
            if !self.step() {
                self.check_quiet();
                return;
            }
        }
        let tail = &self.log[self.log.len().saturating_sub(12)..];
        panic!("it does not settle; the last writes:\n{}", tail.join("\n"));
    }

    /// Runs one step of one loop or of the kubelet. Returns false when no work remains.
    pub fn step(&mut self) -> bool {
        let work = self.kubelet_work();
        let options = self.queue.len() + work.len();
        if options == 0 {
            return false;
        }
        let choice = self.random(options);
        if choice < work.len() {
            self.run_kubelet(work[choice].clone());
        } else {
            let next = self.queue.iter().nth(choice - work.len()).cloned().unwrap();
            self.queue.remove(&next);
            self.run(next.0, &next.1);
        }
        true
    }

    fn random(&mut self, below: usize) -> usize {
        self.chance = self.chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.chance >> 33) as usize % below
    }

    fn run(&mut self, index: usize, key: &Key) {
        self.world.seed = self.chance;
        self.world.revision = self.revision;
        let plan = (ALL[index].plan)(&self.world, key);
        let again = (ALL[index].plan)(&self.world, key);
        assert_eq!(plan, again, "two runs of {} for {key} differ", ALL[index].name);
        let spins = plan.is_empty() && plan.wake.is_some_and(|at| at <= self.world.now);
        assert!(!spins, "{} looks at {key} again at once and does nothing: {plan:?}", ALL[index].name);
        assert_each_object_is_written_once(&plan);
        let Plan { mut writes, effects, memory, events, wake, .. } = plan;
        if self.is_refused(index, key, &writes) {
            return;
        }
        if self.crashes > 0 && !writes.is_empty() {
            self.crashes -= 1;
            writes.truncate(1);
            self.queue.insert((index, key.clone()));
        }
        memory.iter().for_each(|memory| self.world.remember(memory));
        for effect in &effects {
            self.world.note_order(effect);
            if let Effect::DeleteVolume { volume } = effect {
                self.log.push(format!("effect: delete volume {volume}"));
            }
        }
        for write in writes {
            self.log.push(format!("{}: {}", ALL[index].name, verb_text(&write.verb)));
            assert!(!write.why.is_empty());
            self.assert_unchanged_by_api_server(&write.verb);
            self.commit(write.verb);
        }
        self.log.extend(events.into_iter().map(|event| format!("event: {} {}", event.reason, event.message)));
        self.wakes.retain(|(_, other, of)| (*other, of) != (index, key));
        self.wakes.extend(wake.map(|at| (at, index, key.clone())));
        (self.check)(&self.world);
    }

    /// Whether the quota refuses a plan. A refused plan is dropped as a whole and tried again: at once with a new
    /// message, else later.
    fn is_refused(&mut self, index: usize, key: &Key, writes: &[Write]) -> bool {
        let name = ALL[index].name;
        let mut left = self.allowed_pods.saturating_sub(self.count("pods"));
        let refused = writes.iter().find_map(|write| match &write.verb {
            WriteVerb::Create(pod) if pod.kind() == "Pod" && left == 0 => Some(pod.name().to_owned()),
            WriteVerb::Create(pod) if pod.kind() == "Pod" => {
                left -= 1;
                None
            }
            _ => None,
        });
        let Some(pod) = refused else {
            self.world.forget_refusal(name, key);
            return false;
        };
        let message = format!("pods {pod:?} is forbidden: exceeded quota: q");
        if self.world.refuse(name, key, &message) {
            self.queue.insert((index, key.clone()));
        }
        self.wakes.push((self.world.now + jiff::SignedDuration::from_secs(1), index, key.clone()));
        true
    }

    /// Asserts that the API server returns a loop's write unchanged; otherwise the loop would repeat it forever.
    fn assert_unchanged_by_api_server(&self, verb: &WriteVerb) {
        let (WriteVerb::Create(object) | WriteVerb::Update(object) | WriteVerb::Status(object)) = verb else { return };
        let kind = crate::kinds::by_kind(object.api_version(), object.kind()).unwrap();
        let mut unknown = Vec::new();
        let normal = (kind.normalize)(&object.0, &mut |path| unknown.push(path)).unwrap();
        assert!(unknown.is_empty(), "{} has no fields {unknown:?}", object.kind());
        let old = self.world.get(&key_of(object)).map(|row| row.object().0).unwrap_or_default();
        for part in
            ["endpoints", "ports", "subsets", "data"].into_iter().filter(|_| matches!(verb, WriteVerb::Update(_)))
        {
            assert_eq!(normal.get(part), object.0.get(part), "{} {part}", object.kind());
        }
        for (field, value) in object.value_at(&["status"]).and_then(Value::as_object).into_iter().flatten() {
            let is_new = old["status"][field] != *value;
            assert!(!is_new || normal["status"].get(field) == Some(value), "{} status {field}: {value}", object.kind());
        }
    }

    /// Asserts that every loop has an empty plan for every key that any row concerns.
    fn check_quiet(&self) {
        if self.allowed_pods < usize::MAX {
            return;
        }
        for spec in ALL {
            let rows: Vec<Arc<Row>> = self.world.all_rows().cloned().collect();
            for key in rows.iter().flat_map(|row| (spec.concerns)(&self.world, row)).collect::<BTreeSet<Key>>() {
                let plan = (spec.plan)(&self.world, &key);
                assert!(plan.is_empty(), "{} is not quiet about {key}: {:?}", spec.name, plan.writes);
            }
        }
    }

    /// Pods with work for the scheduler or the kubelet.
    fn kubelet_work(&self) -> Vec<Arc<Row>> {
        let wants = |row: &&Arc<Row>| {
            let Some(pod) = row.pod() else { return false };
            if pod.node.is_some() && pod.node.as_deref() == self.lost_node {
                return false;
            }
            let held = !row.finalizers.is_empty();
            match row.is_deleting() {
                true => !(pod.phase.is_terminal() && held),
                false => !pod.phase.is_terminal() && (pod.node.is_none() || pod.phase == crate::world::Phase::Pending),
            }
        };
        if self.kubelet { self.world.list("pods").filter(wants).cloned().collect() } else { Vec::new() }
    }

    fn run_kubelet(&mut self, row: Arc<Row>) {
        let mut pod = row.object();
        if row.is_deleting() && row.finalizers.is_empty() {
            return self.replace(&row.key, None);
        }
        if pod.text(&["spec", "nodeName"]).is_none() {
            let tied = pod.0.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0");
            if let Some(node) = tied.and_then(Value::as_str).map(str::to_owned) {
                pod.set(&["spec", "nodeName"], node);
                return self.store(pod);
            }
            let node = if self.random(2) == 0 && self.lost_node != Some("a") { "a" } else { "b" };
            pod.set(&["spec", "nodeName"], node);
            return self.store(pod);
        }
        let exit = pod.annotation("fake/exit").map(|code| code.parse::<i64>().unwrap());
        let ends = exit.or((pod.text(&["spec", "restartPolicy"]) == Some("Never")).then_some(0));
        let ends = ends.filter(|_| pod.annotation("fake/stay").is_none());
        let (phase, ready) = match ends {
            _ if row.is_deleting() => ("Failed", false),
            Some(0) => ("Succeeded", false),
            Some(_) => ("Failed", false),
            None => ("Running", pod.annotation("fake/ready") != Some("false")),
        };
        let now = self.world.now.to_string();
        pod.set(&["status", "phase"], phase);
        pod.set(&["status", "podIP"], format!("127.77.1.{}", self.revision % 200));
        let state = match phase {
            "Running" => json!({"running": {"startedAt": now}}),
            _ => json!({"terminated": {"exitCode": ends.unwrap_or(137), "finishedAt": now}}),
        };
        pod.set(
            &["status", "containerStatuses"],
            json!([{"name": "c", "restartCount": 0, "ready": ready, "state": state}]),
        );
        let ready = if ready { "True" } else { "False" };
        pod.set(
            &["status", "conditions"],
            json!([{"type": "Ready", "status": ready, "lastProbeTime": null, "lastTransitionTime": now}]),
        );
        self.store(pod);
    }

    /// Creates an object from its JSON.
    pub fn create(&mut self, body: Value) {
        self.commit(WriteVerb::Create(Object(body)));
    }

    fn commit(&mut self, verb: WriteVerb) {
        match verb {
            WriteVerb::Create(object) => self.insert(object),
            WriteVerb::Update(object)
            | WriteVerb::AnnotateStatus(object)
            | WriteVerb::Scale(object)
            | WriteVerb::Apply { object, fields: AppliedFields { is_status: false, .. } } => self.update(object),
            WriteVerb::Status(object) | WriteVerb::Apply { object, .. } => {
                let mut kept = self.current_row(&object).object();
                kept.set(&["status"], object.0["status"].clone());
                self.store(kept);
            }
            WriteVerb::Delete { key, uid, grace, propagation } => self.begin_deletion(&key, &uid, grace, propagation),
            WriteVerb::Bind { pod, node, .. } => {
                let mut object = self.world.get(&pod).unwrap().object();
                object.set(&["spec", "nodeName"], &*node);
                self.store(object);
            }
            WriteVerb::Attempt { .. } => (),
        }
    }

    fn insert(&mut self, mut object: Object) {
        let key = key_of(&object);
        assert!(!key.name.is_empty(), "a name is missing: {:?}", object.0);
        assert!(self.world.get(&key).is_none(), "{key} exists");
        self.revision += 1;
        object.set(&["metadata", "uid"], format!("u{}", self.revision));
        object.set(&["metadata", "generation"], 1);
        object.set(&["metadata", "creationTimestamp"], self.world.now.to_string());
        if object.kind() == "Job" {
            default_job(&mut object);
        }
        self.store(object);
    }

    /// Replaces the status.
    pub fn write_status(&mut self, object: Object) {
        self.commit(WriteVerb::Status(object));
    }

    /// Replaces spec and metadata.
    pub fn update(&mut self, mut object: Object) {
        let old = self.current_row(&object).object();
        match old.value_at(&["status"]) {
            Some(status) => object.set(&["status"], status.clone()),
            None => {
                object.unset(&["status"]);
            }
        }
        if old.0["spec"] != object.0["spec"] {
            object.set(&["metadata", "generation"], old.generation() + 1);
        }
        self.store(object);
    }

    fn current_row(&self, object: &Object) -> Arc<Row> {
        let row = self.world.get(&key_of(object)).unwrap_or_else(|| panic!("{} is gone", key_of(object))).clone();
        assert_eq!(row.revision, object.revision(), "{} was written with an old revision", row.key);
        row
    }

    fn begin_deletion(&mut self, key: &Key, uid: &Str, grace: Option<i64>, propagation: Propagation) {
        let row = self.world.get(key).unwrap_or_else(|| panic!("{key} is gone already")).clone();
        assert_eq!(row.uid, *uid);
        let mut object = row.object();
        match propagation {
            Propagation::Foreground => object.add_finalizer("foregroundDeletion"),
            Propagation::Orphan => object.add_finalizer("orphan"),
            Propagation::Background => (),
        }
        if !row.is_deleting() {
            object.set(&["metadata", "deletionTimestamp"], self.world.now.to_string());
        }
        if let Some(grace) = grace {
            object.set(&["metadata", "deletionGracePeriodSeconds"], grace);
        }
        let graceful = row.pod().is_some_and(|pod| pod.node.is_some() && !pod.phase.is_terminal());
        match (graceful, grace) {
            (true, Some(0)) if object.finalizers().is_empty() => self.replace(key, None),
            (true, _) => self.put(object),
            _ => self.store(object),
        }
    }

    /// Stores an object, or removes it when it is being deleted and has no finalizers or grace period.
    fn store(&mut self, object: Object) {
        let held = !object.finalizers().is_empty() || !object.items(&["spec", "finalizers"]).is_empty();
        let graceful = object.kind() == "Pod" && object.text(&["spec", "nodeName"]).is_some();
        let graceful = graceful && !matches!(object.text(&["status", "phase"]), Some("Succeeded" | "Failed"));
        if object.deletion().is_some() && !held && !graceful {
            return self.replace(&key_of(&object), None);
        }
        self.put(object);
    }

    fn put(&mut self, mut object: Object) {
        self.revision += 1;
        object.set(&["metadata", "resourceVersion"], self.revision.to_string());
        self.replace(&key_of(&object), Some(object));
    }

    /// Puts a row, and queues the keys that the change concerns.
    fn replace(&mut self, key: &Key, object: Option<Object>) {
        let before = self.world.get(key).cloned();
        match object {
            Some(object) => self.world.put(key.clone(), object.0.to_string().into()),
            None => self.world.remove(key),
        }
        let after = self.world.get(key).cloned();
        for row in before.iter().chain(after.iter()) {
            for (index, spec) in ALL.iter().enumerate() {
                self.queue.extend((spec.concerns)(&self.world, row).into_iter().map(|key| (index, key)));
            }
        }
    }
}

/// Applies the API server's defaults for Jobs.
fn default_job(job: &mut Object) {
    let uid = job.uid().to_owned();
    let labels = json!({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": job.name()});
    job.set(&["spec", "selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    job.set(&["spec", "template", "metadata", "labels"], labels);
}

fn verb_text(verb: &WriteVerb) -> String {
    match verb {
        WriteVerb::Create(object) => format!("create {}", key_of(object)),
        WriteVerb::Update(object)
        | WriteVerb::AnnotateStatus(object)
        | WriteVerb::Scale(object)
        | WriteVerb::Apply { object, fields: AppliedFields { is_status: false, .. } } => {
            format!("update {}", key_of(object))
        }
        WriteVerb::Status(object) | WriteVerb::Apply { object, .. } => format!("status {}", key_of(object)),
        WriteVerb::Delete { key, .. } => format!("delete {key}"),
        WriteVerb::Bind { pod, .. } => format!("bind {pod}"),
        WriteVerb::Attempt { .. } => "attempt".into(),
    }
}

/// Asserts that no write of a plan conflicts with an earlier one: both name the same revision, so the plan would always fail.
fn assert_each_object_is_written_once(plan: &Plan) {
    let mut written = BTreeSet::new();
    for write in &plan.writes {
        if let WriteVerb::Update(object)
        | WriteVerb::AnnotateStatus(object)
        | WriteVerb::Scale(object)
        | WriteVerb::Status(object)
        | WriteVerb::Apply { object, .. } = &write.verb
        {
            assert!(written.insert(key_of(object)), "two writes of {}: {plan:?}", key_of(object));
        }
    }
}

/// The key of an object of a kind that controllers handle.
pub fn key_of(object: &Object) -> Key {
    let resource = match object.kind() {
        "CertificateSigningRequest" => "certificatesigningrequests.certificates.k8s.io",
        "ClusterRoleBinding" => "clusterrolebindings.rbac.authorization.k8s.io",
        "ConfigMap" => "configmaps",
        "ClusterRole" => "clusterroles.rbac.authorization.k8s.io",
        "ControllerRevision" => "controllerrevisions.apps",
        "CronJob" => "cronjobs.batch",
        "CustomResourceDefinition" => "customresourcedefinitions.apiextensions.k8s.io",
        "DaemonSet" => "daemonsets.apps",
        "Deployment" => "deployments.apps",
        "EndpointSlice" => "endpointslices.discovery.k8s.io",
        "Endpoints" => "endpoints",
        "FlowSchema" => "flowschemas.flowcontrol.apiserver.k8s.io",
        "HorizontalPodAutoscaler" => "horizontalpodautoscalers.autoscaling",
        "Job" => "jobs.batch",
        "Namespace" => "namespaces",
        "Node" => "nodes",
        "PersistentVolume" => "persistentvolumes",
        "PersistentVolumeClaim" => "persistentvolumeclaims",
        "Pod" => "pods",
        "PodDisruptionBudget" => "poddisruptionbudgets.policy",
        "PriorityLevelConfiguration" => "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "ReplicaSet" => "replicasets.apps",
        "ReplicationController" => "replicationcontrollers",
        "ResourceClaim" => "resourceclaims.resource.k8s.io",
        "ResourceClaimTemplate" => "resourceclaimtemplates.resource.k8s.io",
        "ResourceQuota" => "resourcequotas",
        "ResourceSlice" => "resourceslices.resource.k8s.io",
        "Secret" => "secrets",
        "Service" => "services",
        "ServiceCIDR" => "servicecidrs.networking.k8s.io",
        "ServiceAccount" => "serviceaccounts",
        "StatefulSet" => "statefulsets.apps",
        "StorageClass" => "storageclasses.storage.k8s.io",
        "VolumeAttributesClass" => "volumeattributesclasses.storage.k8s.io",
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies.admissionregistration.k8s.io",
        other => panic!("tests do not know the kind {other:?}"),
    };
    let cluster = !crate::kinds::by_resource(Resource(resource)).is_some_and(|kind| kind.namespaced);
    let namespace = object.text(&["metadata", "namespace"]).unwrap_or("default");
    Key::new(Resource(resource), if cluster { "" } else { namespace }, object.name())
}
