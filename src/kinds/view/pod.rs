//! Pods: readiness, a one-word status, and the description.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, text_or};
use super::containers::{DescribePlace, resources, tolerations, topology_spread};
use super::related::controlled_by;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events, volumes};
use crate::kinds::shared::process_ids;
use crate::object::{Object, Time, condition};
use serde_json::Value;

/// The view of pods.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

/// Paths of the fields that the cells of Kubernetes' columns read, and the column of namespaces.
pub const READ_BY_CELLS: &[&str] = &[
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.name",
    "metadata.namespace",
    "spec.containers.name",
    "spec.initContainers.name",
    "spec.initContainers.restartPolicy",
    "spec.nodeName",
    "spec.readinessGates",
    "status.conditions.reason",
    "status.conditions.status",
    "status.conditions.type",
    "status.containerStatuses",
    "status.initContainerStatuses",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.reason",
];

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Ready"),
    Column::text("Status"),
    Column::text("Restarts"),
    Column::text("Age"),
    Column::wide("IP"),
    Column::wide("Node"),
    Column::wide("Nominated Node"),
    Column::wide("Readiness Gates"),
    Column::own("PID"),
];

fn cells(pod: &Object, now: Time) -> Vec<TableCell> {
    let body = &pod.0;
    let summary = PodSummary::from_pod(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts > 0 => format!("{} ({} ago)", summary.restarts, age_since(Some(last), now)),
        _ => summary.restarts.to_string(),
    };
    vec![
        pod.name().into(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.status.into(),
        restarts.into(),
        age_since(pod.created(), now).into(),
        TableCell::or_none(body.list("status.podIPs").first().map_or(body.text("status.podIP"), |ip| ip.text("ip"))),
        TableCell::or_none(body.text("spec.nodeName")),
        TableCell::or_none(body.text("status.nominatedNodeName")),
        readiness_gates(body).into(),
        TableCell::or_none(&process_ids::list(pod)),
    ]
}

fn readiness_gates(body: &Value) -> String {
    let gates = body.list("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates.iter().filter(|gate| condition(body, gate.text("conditionType")) == "True").count();
    format!("{open}/{}", gates.len())
}

/// The status of a condition; empty when absent.
fn condition<'a>(body: &'a Value, kind: &str) -> &'a str {
    condition::find(body.list("status.conditions"), kind).map_or("", |known| known.text("status"))
}

/// Content of the READY, STATUS and RESTARTS columns, by the rules of Kubernetes' server-side printer.
pub struct PodSummary {
    /// Number of ready containers.
    pub ready: usize,
    /// Number of containers, including sidecars.
    pub total: usize,
    /// The status, such as `Running`, `Init:1/2`, `CrashLoopBackOff`.
    pub status: String,
    /// Restarts of containers and sidecars; while init containers run, those of init containers.
    pub restarts: i64,
    /// The last end of a container that was restarted.
    pub last_restart: Option<Time>,
}

impl PodSummary {
    /// Computes the summary of a pod.
    pub fn from_pod(pod: &Object) -> PodSummary {
        let body = &pod.0;
        let phase = body.text("status.phase");
        let mut summary = PodSummary {
            ready: 0,
            total: body.list("spec.containers").len() + sidecars(body).count(),
            status: text_or(body.text("status.reason"), phase).to_owned(),
            restarts: 0,
            last_restart: None,
        };
        let gated = |known: &Value| known.text("type") == "PodScheduled" && known.text("reason") == "SchedulingGated";
        if body.list("status.conditions").iter().any(gated) {
            summary.status = "SchedulingGated".into();
        }
        let initializing = summary.read_init_containers(body);
        if !initializing || condition(body, "Initialized") == "True" {
            summary.read_containers(body);
        }
        if pod.deletion().is_some() {
            if body.text("status.reason") == "NodeLost" {
                summary.status = "Unknown".into();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.status = "Terminating".into();
            }
        }
        summary
    }

    /// Counts sidecars. Returns true and sets the status when an init container is not finished.
    fn read_init_containers(&mut self, body: &Value) -> bool {
        let statuses = body.list("status.initContainerStatuses");
        let wanted = body.list("spec.initContainers").len();
        for (at, status) in statuses.iter().enumerate() {
            let sidecar = sidecars(body).any(|container| container.text("name") == status.text("name"));
            let terminated = status.value_at("state.terminated");
            let waiting = status.text("state.waiting.reason");
            if !terminated.is_null() && terminated.int("exitCode") == 0 {
                continue;
            }
            if sidecar && status.flag("started") {
                self.ready += usize::from(status.flag("ready"));
                continue;
            }
            self.status = if !terminated.is_null() {
                format!("Init:{}", end_of(terminated))
            } else if !matches!(waiting, "" | "PodInitializing") {
                format!("Init:{waiting}")
            } else {
                format!("Init:{at}/{wanted}")
            };
            // Meanwhile the restarts of all init containers so far count.
            statuses[..=at].iter().for_each(|status| self.count_restarts(status));
            return true;
        }
        false
    }

    fn read_containers(&mut self, body: &Value) {
        let inits = body.list("status.initContainerStatuses").iter();
        let of_sidecars: Vec<&Value> =
            inits.filter(|status| sidecars(body).any(|known| known.text("name") == status.text("name"))).collect();
        (self.restarts, self.last_restart) = (0, None);
        of_sidecars.into_iter().for_each(|status| self.count_restarts(status));
        let mut one_runs = false;
        for status in body.list("status.containerStatuses").iter().rev() {
            self.count_restarts(status);
            let terminated = status.value_at("state.terminated");
            if !status.text("state.waiting.reason").is_empty() {
                self.status = status.text("state.waiting.reason").to_owned();
            } else if !terminated.is_null() {
                self.status = end_of(terminated);
            } else if status.flag("ready") && status.has("state.running") {
                one_runs = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && one_runs {
            self.status = if condition(body, "Ready") == "True" { "Running".into() } else { "NotReady".into() };
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += status.int("restartCount");
        self.last_restart = self.last_restart.max(status.time("lastState.terminated.finishedAt"));
    }
}

/// Sidecars: init containers that keep running.
fn sidecars(body: &Value) -> impl Iterator<Item = &Value> {
    body.list("spec.initContainers").iter().filter(|container| container.text("restartPolicy") == "Always")
}

/// The reason of a container's end in one word.
fn end_of(terminated: &Value) -> String {
    match (terminated.text("reason"), terminated.int("signal")) {
        ("", 0) => format!("ExitCode:{}", terminated.int("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn describe(pod: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &pod.0;
    identity(pod, out);
    status(pod, related, out);
    if body.has("spec.resources") {
        out.heading(0, "Resources");
        resources(out, body.value_at("spec.resources"), 1);
    }
    containers(pod, related, out);
    conditions(body, out);
    volumes::volumes(out, body.list("spec.volumes"), "");
    out.field(0, "QoS Class", body.text("status.qosClass"));
    out.pairs(0, "Node-Selectors", &body.pairs("spec.nodeSelector"));
    tolerations(out, 0, body.list("spec.tolerations"));
    topology_spread(out, 0, body.list("spec.topologySpreadConstraints"));
    events::write_events(pod, related, out);
}

fn identity(pod: &Object, out: &mut Describe) {
    let body = &pod.0;
    out.name_and_namespace(pod);
    if body.has("spec.priority") {
        out.field(0, "Priority", body.int("spec.priority"));
    }
    let fields = [
        ("Priority Class Name", "spec.priorityClassName"),
        ("Runtime Class Name", "spec.runtimeClassName"),
        ("Service Account", "spec.serviceAccountName"),
    ];
    present(body, &fields, out);
    match body.text("spec.nodeName") {
        "" => out.field(0, "Node", "<none>"),
        node => out.field(0, "Node", format_args!("{node}/{}", body.text("status.hostIP"))),
    }
    if body.has("status.startTime") {
        out.field(0, "Start Time", rfc1123(body.time("status.startTime")));
    }
    out.labels_and_annotations(pod);
}

/// Writes the fields that are set.
fn present(body: &Value, fields: &[(&str, &str)], out: &mut Describe) {
    for (label, path) in fields {
        if !body.text(path).is_empty() {
            out.field(0, label, body.text(path));
        }
    }
}

fn status(pod: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &pod.0;
    let phase = body.text("status.phase");
    if pod.deletion().is_some() && !matches!(phase, "Succeeded" | "Failed") {
        out.field(0, "Status", format_args!("Terminating (lasts {})", age_since(pod.deletion(), related.now())));
        out.field(0, "Termination Grace Period", format_args!("{}s", body.int("metadata.deletionGracePeriodSeconds")));
    } else {
        out.field(0, "Status", phase);
    }
    present(body, &[("Reason", "status.reason"), ("Message", "status.message")], out);
    let profile = [
        ("SeccompProfile", "spec.securityContext.seccompProfile.type"),
        ("LocalhostProfile", "spec.securityContext.seccompProfile.localhostProfile"),
    ];
    present(body, &profile, out);
    out.field(0, "IP", body.text("status.podIP"));
    match body.list("status.podIPs") {
        [] => out.field(0, "IPs", "<none>"),
        addresses => {
            out.heading(0, "IPs");
            addresses.iter().for_each(|address| out.field(1, "IP", address.text("ip")));
        }
    }
    if let Some(owner) = controlled_by(pod) {
        out.field(0, "Controlled By", owner);
    }
    present(body, &[("NominatedNodeName", "status.nominatedNodeName")], out);
}

fn containers(pod: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &pod.0;
    let throttled = |container: &str| related.throttled(pod, container);
    let process_id = |container: &str| related.process_id(pod, container);
    let place = DescribePlace { indent: "", pod: Some(body), throttled: &throttled, process_id: &process_id };
    let groups = [
        ("Init Containers", "spec.initContainers", "status.initContainerStatuses"),
        ("Containers", "spec.containers", "status.containerStatuses"),
        ("Ephemeral Containers", "spec.ephemeralContainers", "status.ephemeralContainerStatuses"),
    ];
    for (heading, containers, statuses) in groups {
        if heading == "Containers" || !body.list(containers).is_empty() {
            place.containers(out, heading, body.list(containers), body.list(statuses));
        }
    }
}

fn conditions(body: &Value, out: &mut Describe) {
    let gates = body.list("spec.readinessGates");
    if !gates.is_empty() {
        out.heading(0, "Readiness Gates");
        out.line(1, "Type\tStatus");
        for gate in gates {
            let kind = gate.text("conditionType");
            out.line(1, format_args!("{kind} \t{} ", text_or(condition(body, kind), "<none>")));
        }
    }
    let conditions = body.list("status.conditions");
    if !conditions.is_empty() {
        out.heading(0, "Conditions");
        out.line(1, "Type\tStatus");
        for known in conditions {
            out.line(1, format_args!("{} \t{} ", known.text("type"), known.text("status")));
        }
    }
}
