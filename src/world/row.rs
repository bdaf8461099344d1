//! One object in the World: its text and the fields that loops search by, read once when the row is made.

use super::autoscaler::{AUTOSCALERS, ScaleTargetRef};
use super::followed_objects;
use super::joined_names::JoinedNames;
use super::resources::{NodeFields, ResourceRequests};
use super::row_body::RowBody;
use super::row_metadata::RowMetadata;
use super::row_part::{CLUSTER_ROLES, SEEN_WITH_EACH_POD, needs_only_metadata, part_of_row};
use super::scheduling_spec;
use super::workload::{WorkloadFields, selects_pods};
use crate::kinds::pod::ports::named_ports;
use crate::object::{Key, Object, OwnerRef, Str, Time, condition, sparse, time};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// One object. Loops go by the fields here and decode the body only to write it.
pub struct Row {
    /// Its name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Str,
    /// `metadata.resourceVersion`. A staged row has a number that another row may get at the commit.
    pub revision: u64,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Time>,
    /// `metadata.deletionTimestamp`: set means it is being deleted.
    pub deletion: Option<Time>,
    /// `metadata.labels`, ordered by key.
    pub labels: Arc<[(Str, Str)]>,
    /// `metadata.ownerReferences`.
    pub owners: Arc<[OwnerRef]>,
    /// `metadata.finalizers`.
    pub finalizers: Arc<[Str]>,
    /// Index fields of the kind.
    pub fields: IndexFields,
    pub(super) body: RowBody,
}

/// Index fields by kind.
#[derive(Clone)]
pub enum IndexFields {
    /// Pods.
    Pod(Box<PodFields>),
    /// Nodes.
    Node(Box<NodeFields>),
    /// Kinds that select pods.
    Workload(Box<WorkloadFields>),
    /// HorizontalPodAutoscalers.
    Autoscaler(Box<ScaleTargetRef>),
    /// ClusterRoles with an `aggregationRule`.
    AggregatedRole,
    /// All other objects.
    None,
}

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// Accepted, not all containers started.
    #[default]
    Pending,
    /// Bound, containers running or restarting.
    Running,
    /// Ended well, for good.
    Succeeded,
    /// Ended badly, for good.
    Failed,
    /// The node does not answer (legacy).
    Unknown,
}

impl Phase {
    /// From its text in `status.phase`.
    pub fn parse(text: &str) -> Phase {
        match text {
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            "Unknown" => Phase::Unknown,
            _ => Phase::Pending,
        }
    }

    /// Succeeded or Failed: no container of it runs or will run.
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

/// Index fields of pods.
#[derive(Clone, Debug, Default)]
pub struct PodFields {
    /// `status.phase`.
    pub phase: Phase,
    /// `spec.nodeName`, when bound.
    pub node: Option<Str>,
    /// Condition Ready is True.
    pub ready: bool,
    /// Whether its status shows a container that runs.
    pub shows_running: bool,
    /// Since when condition Ready has its value.
    pub ready_since: Option<Time>,
    /// `status.podIP`.
    pub ip: Option<Str>,
    /// `spec.priority`.
    pub priority: i32,
    /// `status.nominatedNodeName`: the node that pods of lower priority leave for it.
    pub nominated: Option<Str>,
    /// `status.startTime`.
    pub started: Option<Time>,
    /// `spec.schedulerName`.
    pub scheduler: Str,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`: the lower, the sooner a ReplicaSet gives it up.
    pub deletion_cost: i64,
    /// Highest restart count of its containers.
    pub restarts: i64,
    /// Effective requests.
    pub requests: ResourceRequests,
    /// Ports of the node that the pod uses: address, protocol, number.
    pub host_ports: Vec<(Str, Str, i64)>,
    /// Its named ports, each as name, protocol and number with spaces between them.
    pub named_ports: JoinedNames,
    /// Names of the claims that the pod uses, including those of ephemeral volumes.
    pub claims: JoinedNames,
    /// Names of the ConfigMaps and Secrets that the pod follows while it runs.
    pub followed_objects: JoinedNames,
    /// Whether it names device claims, or one was made for its extended resources.
    pub has_devices: bool,
    /// Whether any container has a `hostPort`.
    pub has_host_ports: bool,
    /// Scheduling part of the spec, while the pod has no node.
    pub pod_spec: Option<Str>,
    /// The terms by which it requires that some pods are not near it, as written.
    pub anti_affinity: Option<Str>,
    /// The terms by which it requires or prefers that some pods are near it, or prefers that they are not, as written.
    pub scored_affinity: Option<Str>,
}

impl PodFields {
    /// Whether both pods use the same port of a node.
    pub fn shares_host_port(&self, other: &PodFields) -> bool {
        let is_any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        self.host_ports.iter().any(|(ip, protocol, port)| {
            other.host_ports.iter().any(|(other_ip, other_protocol, other_port)| {
                let is_same_ip = is_any(ip) || is_any(other_ip) || ip == other_ip;
                port == other_port && protocol == other_protocol && is_same_ip
            })
        })
    }

    /// The address that the pod holds; `None` once it has ended for good.
    pub fn address(&self) -> Option<&Str> {
        self.ip.as_ref().filter(|_| !self.phase.is_terminal())
    }

    /// Its named ports: name, protocol and number. The first one of a name and protocol counts.
    pub fn ports_by_name(&self) -> impl Iterator<Item = (&str, &str, i64)> {
        self.named_ports.iter().filter_map(|port| {
            let mut parts = port.split(' ');
            Some((parts.next()?, parts.next()?, parts.next()?.parse().ok()?))
        })
    }

    /// Takes over the fields of a status.
    pub(super) fn set_status(&mut self, status: &Value) {
        let text = |name: &str| status[name].as_str().filter(|text| !text.is_empty());
        let items = |name: &str| status[name].as_array().map_or(&[][..], Vec::as_slice);
        let ready = condition::find(items("conditions"), "Ready");
        self.phase = Phase::parse(text("phase").unwrap_or_default());
        self.ready = ready.is_some_and(|condition| condition["status"] == "True");
        self.ready_since = ready.and_then(|condition| time::from_json(&condition["lastTransitionTime"]));
        self.ip = text("podIP").map(Str::from);
        self.nominated = text("nominatedNodeName").map(Str::from);
        self.started = text("startTime").and_then(|text| text.parse().ok());
        let restarts = items("containerStatuses").iter().filter_map(|one| one["restartCount"].as_i64());
        self.restarts = restarts.max().unwrap_or(0);
        let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
        self.shows_running = lists.iter().any(|list| items(list).iter().any(|one| one["state"]["running"].is_object()));
        self.has_devices |= status["extendedResourceClaimStatus"].is_object();
    }
}

impl Row {
    /// The row of an object.
    pub fn new(key: Key, object: impl Into<Arc<Object>>) -> Row {
        let object = object.into();
        let fields = match key.resource.0 {
            "pods" => IndexFields::Pod(Box::new(pod_fields(&key.name, &object))),
            "nodes" => IndexFields::Node(Box::new(NodeFields::from_node(&object))),
            _ if selects_pods(key.resource) => {
                IndexFields::Workload(Box::new(WorkloadFields::from_object(key.resource, &object)))
            }
            AUTOSCALERS => IndexFields::Autoscaler(Box::new(ScaleTargetRef::from_autoscaler(&object))),
            CLUSTER_ROLES if !object.items(&["aggregationRule", "clusterRoleSelectors"]).is_empty() => {
                IndexFields::AggregatedRole
            }
            _ => IndexFields::None,
        };
        Row::from_metadata(key, RowMetadata::from_object(&object), fields, RowBody::Parsed(object))
    }

    fn from_metadata(key: Key, metadata: RowMetadata, fields: IndexFields, body: RowBody) -> Row {
        let RowMetadata { uid, revision, generation, created, deletion, labels, owners, finalizers } = metadata;
        Row { key, uid, revision, generation, created, deletion, labels, owners, finalizers, fields, body }
    }

    /// Makes the row of a stored body, which stays text until it is decoded.
    pub fn from_text(key: Key, text: Str) -> Row {
        if needs_only_metadata(key.resource)
            && let Some(metadata) = RowMetadata::from_text(&text)
        {
            return Row::from_metadata(key, metadata, IndexFields::None, RowBody::Text(text));
        }
        let object = Object(part_of_row(key.resource).read(&text).unwrap_or(Value::Null));
        let row = Row::new(key, object);
        if row.is_kept_parsed() { row } else { Row { body: RowBody::Text(text), ..row } }
    }

    fn is_kept_parsed(&self) -> bool {
        SEEN_WITH_EACH_POD.contains(&self.key.resource.0)
    }

    /// The row of a staged object after its commit: the same but for its text and revision. The text can be kept as a difference to
    /// another.
    pub(super) fn committed(&self, text: Str, revision: u64, base: Option<&Str>) -> Row {
        match self.is_kept_parsed() {
            true => Row::from_text(self.key.clone(), text),
            false => self.with_body(RowBody::at_rest(text, base), revision),
        }
    }

    /// Whether the pod has started, so that its text rarely changes and resembles the texts of its siblings.
    pub(super) fn is_at_rest(&self) -> bool {
        self.pod().is_some_and(|pod| pod.phase != Phase::Pending)
    }

    /// Returns the text to which those of siblings at rest can be differences.
    pub(super) fn base(&self) -> Option<&Str> {
        self.body.base().filter(|_| self.is_at_rest())
    }

    /// Keeps its text as a difference to another one if that is much smaller.
    pub(super) fn pack(&mut self, base: &Str) {
        if let RowBody::Text(text) = &self.body {
            self.body = RowBody::at_rest(text.clone(), Some(base));
        }
    }

    /// Shares equal labels and owners with another row: those of a controller's pods are the same.
    pub(super) fn share(&mut self, other: &Row) {
        if self.labels == other.labels {
            self.labels = other.labels.clone();
        }
        if self.owners == other.owners {
            self.owners = other.owners.clone();
        }
        if let (IndexFields::Pod(own), IndexFields::Pod(other)) = (&mut self.fields, &other.fields) {
            if own.scheduler == other.scheduler {
                own.scheduler = other.scheduler.clone();
            }
            if own.followed_objects == other.followed_objects {
                own.followed_objects = other.followed_objects.clone();
            }
        }
    }

    pub(super) fn with_body(&self, body: RowBody, revision: u64) -> Row {
        Row {
            key: self.key.clone(),
            uid: self.uid.clone(),
            revision,
            generation: self.generation,
            created: self.created,
            deletion: self.deletion,
            labels: self.labels.clone(),
            owners: self.owners.clone(),
            finalizers: self.finalizers.clone(),
            fields: self.fields.clone(),
            body,
        }
    }

    /// Returns the compact JSON text with this revision, as the store keeps it.
    pub fn text_at(&self, revision: u64) -> Str {
        self.body.text_at(revision, self.revision == revision)
    }

    /// Settles the row in place when nothing else refers to it.
    pub(super) fn set_text(&mut self, text: Str, revision: u64, base: Option<&Str>) {
        if self.is_kept_parsed() {
            *self = Row::from_text(self.key.clone(), text);
        } else {
            self.revision = revision;
            self.body = RowBody::at_rest(text, base);
        }
    }

    /// The whole object, to be read. Costs a parse for rows at rest.
    pub fn body(&self) -> Cow<'_, Object> {
        self.body.object()
    }

    /// The whole object, to be read and kept. Costs a parse for rows at rest.
    pub fn shared(&self) -> Arc<Object> {
        match &self.body {
            RowBody::Parsed(object) => object.clone(),
            RowBody::Text(_) | RowBody::Packed(_) => Arc::new(self.object()),
        }
    }

    /// Whether the body is decoded.
    pub fn is_open(&self) -> bool {
        matches!(self.body, RowBody::Parsed(_))
    }

    /// The whole object, to be changed and written. Costs a parse or a copy.
    pub fn object(&self) -> Object {
        self.body().into_owned()
    }

    /// Its text as it is stored; `None` for a row whose body is decoded.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        self.body.text()
    }

    /// One field of the object, such as `spec`, to be read. Nothing else of a text is decoded.
    pub fn field(&self, name: &str) -> Value {
        let Some(text) = self.body.text() else { return self.body().0[name].clone() };
        let field = sparse::read_field(&text, name).ok().flatten();
        field.and_then(|field| serde_json::from_str(field).ok()).unwrap_or_default()
    }

    /// Whether the body's text contains these bytes: a fast negative answer without decoding. A packed text is unpacked for it, which takes
    /// one or two microseconds.
    pub fn mentions(&self, text: &str) -> bool {
        self.body.text().is_none_or(|body| memchr::memmem::find(body.as_bytes(), text.as_bytes()).is_some())
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// The managing controller.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Whether the object has a finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|known| **known == *finalizer)
    }

    /// Whether the object has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    /// A pod's fields.
    pub fn pod(&self) -> Option<&PodFields> {
        match &self.fields {
            IndexFields::Pod(fields) => Some(fields),
            _ => None,
        }
    }

    /// The fields of a kind that selects pods.
    pub fn workload(&self) -> Option<&WorkloadFields> {
        match &self.fields {
            IndexFields::Workload(fields) => Some(fields),
            _ => None,
        }
    }

    /// The object that an autoscaler names.
    pub fn scale_target(&self) -> Option<&ScaleTargetRef> {
        match &self.fields {
            IndexFields::Autoscaler(target) => Some(target),
            _ => None,
        }
    }

    /// Whether its selector matches a row's labels in the same namespace. Only kinds that select pods have one.
    pub fn selects(&self, row: &Row) -> bool {
        let selected = |fields: &WorkloadFields| fields.selector.matches(|key| row.label(key));
        self.key.namespace == row.key.namespace && self.workload().is_some_and(selected)
    }

    /// A node's fields.
    pub fn node(&self) -> Option<&NodeFields> {
        match &self.fields {
            IndexFields::Node(fields) => Some(fields),
            _ => None,
        }
    }

    /// Whether the row is an aggregated ClusterRole.
    pub fn is_aggregated_role(&self) -> bool {
        matches!(self.fields, IndexFields::AggregatedRole)
    }

    /// A pod that counts as running or about to run: neither ended nor being deleted (Kubernetes: IsPodActive).
    pub fn is_active_pod(&self) -> bool {
        self.pod().is_some_and(|pod| !pod.phase.is_terminal()) && !self.is_deleting()
    }

    /// A pod that has been Ready for at least `min_ready_seconds`.
    pub fn is_available_pod(&self, min_ready_seconds: i64, now: Time) -> bool {
        let Some(pod) = self.pod() else { return false };
        let long_enough = |since: Time| now.as_second() - since.as_second() >= min_ready_seconds;
        pod.ready && (min_ready_seconds == 0 || pod.ready_since.is_some_and(long_enough))
    }
}

/// Computes the index fields of a pod. Of a stored body, only the fields that `row_part` lists are there.
fn pod_fields(name: &str, pod: &Object) -> PodFields {
    let node = pod.text(&["spec", "nodeName"]).filter(|node| !node.is_empty()).map(Str::from);
    let mut fields = PodFields {
        pod_spec: node.is_none().then(|| scheduling_spec::text(pod)),
        node,
        priority: pod.int(&["spec", "priority"]).unwrap_or(0) as i32,
        scheduler: pod.text(&["spec", "schedulerName"]).unwrap_or("default-scheduler").into(),
        deletion_cost: pod.annotation("controller.kubernetes.io/pod-deletion-cost").map_or(0, cost),
        requests: ResourceRequests::for_pod(pod),
        host_ports: scheduling_spec::host_ports(pod),
        named_ports: JoinedNames::new(
            named_ports(pod).map(|(name, protocol, number)| format!("{name} {protocol} {number}")),
        ),
        claims: JoinedNames::new(scheduling_spec::claims_of(name, pod.items(&["spec", "volumes"]))),
        followed_objects: JoinedNames::new(followed_objects::list_followed_names(pod)),
        has_devices: !pod.items(&["spec", "resourceClaims"]).is_empty(),
        has_host_ports: ["initContainers", "containers"]
            .iter()
            .any(|list| scheduling_spec::ports(pod, list).next().is_some()),
        anti_affinity: AffinityKind::AntiAffinity.text_of_pod(pod),
        scored_affinity: AffinityKind::Scored.text_of_pod(pod),
        ..PodFields::default()
    };
    fields.set_status(&pod.0["status"]);
    fields
}

/// Kubernetes ignores costs that are not 32-bit integers in plain decimal form.
fn cost(text: &str) -> i64 {
    text.parse::<i32>().ok().filter(|cost| cost.to_string() == text).unwrap_or(0).into()
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Kind of affinity term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityKind {
    /// Required anti-affinity: it also excludes other pods from nodes.
    AntiAffinity,
    /// Required affinity and all preferred terms: they also count when other pods are scored.
    Scored,
}

impl AffinityKind {
    /// Returns a pod's terms of this kind as text.
    pub(super) fn text_of_pod(self, pod: &Object) -> Option<Str> {
        let terms = |field: &str, strength: &str| pod.items(&["spec", "affinity", field, strength]);
        let terms_by_strength = match self {
            AffinityKind::AntiAffinity => [terms("podAntiAffinity", REQUIRED), &[], &[]],
            AffinityKind::Scored => {
                [terms("podAffinity", REQUIRED), terms("podAffinity", PREFERRED), terms("podAntiAffinity", PREFERRED)]
            }
        };
        terms_by_strength.iter().any(|terms| !terms.is_empty()).then(|| json!(terms_by_strength).to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use serde_json::json;

    /// A row's fields, without its body.
    fn index_of(row: &Row) -> String {
        let Row { key, uid, revision, generation, created, deletion, labels, owners, finalizers, fields, .. } = row;
        let metadata = (key, uid, revision, generation, created, deletion, labels, owners, finalizers);
        let fields = match fields {
            IndexFields::None => String::new(),
            IndexFields::AggregatedRole => "aggregated".to_owned(),
            IndexFields::Pod(pod) => format!("{:?}", (&pod.node, pod.phase, &pod.ip)),
            IndexFields::Node(node) => format!("{node:?}"),
            IndexFields::Workload(workload) => format!("{workload:?}"),
            IndexFields::Autoscaler(target) => format!("{target:?}"),
        };
        format!("{metadata:?} {fields}")
    }

    #[test]
    fn row_from_text_is_the_row_of_the_object() {
        let metadata = json!({
            "name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"x": "1"}, "finalizers": ["example.com/x"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "v", "controller": true}],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
        });
        let object = json!({
            "metadata": metadata, "data": {"metadata": "mine"}, "aggregationRule": {"clusterRoleSelectors": [{}]},
            "spec": {"nodeName": "n", "replicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "taints": [{"key": "t", "effect": "NoSchedule"}],
                "selector": {"matchLabels": {"x": "1"}, "x": "1"}, "template": {"metadata": {"labels": {"x": "1"}}}},
            "status": {"phase": "Running", "podIP": "127.0.0.9", "allocatable": {"cpu": "4"}},
        });
        for kind in crate::kinds::ALL {
            let key = Key::new(kind.resource, "default", "a");
            let text = Str::from(object.to_string());
            let (row, whole) = (Row::from_text(key.clone(), text), Row::new(key, Object(object.clone())));
            assert_eq!(index_of(&row), index_of(&whole), "{}", kind.resource);
            assert_eq!(row.object().0, object, "{}", kind.resource);
        }
    }

    /// Each field that the row of a pod depends on is set here, to a value that is not its default.
    #[test]
    fn pods_row_from_text_has_each_field() {
        let container = |name: &str| {
            json!({
                "name": name, "image": format!("image-{name}"), "restartPolicy": "Always", "env": [{"name": "UNREAD"}],
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1", "protocol": "UDP"}],
                "resources": {"requests": {"cpu": "2", "memory": "3", "example.com/x": "4"}, "limits": {"cpu": "9"}},
            })
        };
        let term = json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"x": "1"}}}]);
        let weighted = json!([{"weight": 3, "podAffinityTerm": term[0]}]);
        let pod = json!({
            "metadata": {
                "name": "a", "namespace": "elsewhere", "uid": "u", "labels": {"x": "1"},
                "annotations": {"controller.kubernetes.io/pod-deletion-cost": "7"},
            },
            "spec": {
                "affinity": {"podAntiAffinity": {REQUIRED: term}, "podAffinity": {PREFERRED: weighted}},
                "containers": [container("c")], "initContainers": [container("i")], "nodeName": "", "nodeSelector": {"x": "1"},
                "overhead": {"cpu": "1"}, "preemptionPolicy": "Never", "priority": 5, "resourceClaims": [{"name": "r"}],
                "resources": {"requests": {"memory": "99"}}, "schedulerName": "mine", "schedulingGates": [{"name": "g"}],
                "tolerations": [{"operator": "Exists"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "volumes": [{"name": "claimed", "persistentVolumeClaim": {"claimName": "p"}},
                    {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
                    {"name": "followed", "configMap": {"name": "m"}}, {"name": "kept", "secret": {"secretName": "s"}},
                    {"name": "many", "projected": {"sources": [{"configMap": {"name": "n"}}, {"secret": {"name": "t"}}]}}],
                "ephemeralContainers": [{
                    "name": "debug", "envFrom": [{"configMapRef": {"name": "from-m"}}, {"secretRef": {"name": "from-s"}}],
                    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "key-m"}}},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key-s"}}}],
                }],
            },
            "status": {
                "phase": "Running", "podIP": "127.0.0.9", "nominatedNodeName": "n", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}],
                "containerStatuses": [{"name": "c", "restartCount": 3}], "extendedResourceClaimStatus": {"x": 1},
            },
        });
        for node in ["", "n"] {
            let mut pod = pod.clone();
            pod["spec"]["nodeName"] = node.into();
            let key = Key::new(Resource("pods"), "elsewhere", "a");
            let whole = Row::new(key.clone(), Object(pod.clone()));
            let row = Row::from_text(key, pod.to_string().into());
            assert_eq!(format!("{:?}", row.pod()), format!("{:?}", whole.pod()));
            assert_eq!(index_of(&row), index_of(&whole));
            let fields = row.pod().unwrap();
            let followed: Vec<_> = fields.followed_objects.iter().collect();
            assert_eq!(followed, ["from-m", "from-s", "key-m", "key-s", "m", "n", "s", "t"]);
            assert_eq!(fields.claims.iter().collect::<Vec<_>>(), ["p", "a-own"]);
        }
    }
}
