//! Containers and pod templates in the descriptions of pods and workloads.

use super::age::rfc1123;
use super::body::{BodyRead, text_or};
use super::related::selector;
use super::{Describe, volumes};
use crate::kinds::shared::probe_handler::ProbeHandler;
use crate::object::quantity::Quantity;
use serde_json::Value;

/// The names and images of a template's containers, each joined by commas, for the wide columns of workloads.
pub fn names_and_images(pod_spec: &Value) -> (String, String) {
    let join = |field: &str| {
        let texts: Vec<&str> = pod_spec.list("containers").iter().map(|container| container.text(field)).collect();
        texts.join(",")
    };
    (join("name"), join("image"))
}

/// Writes `Pod Template:` and its content.
pub fn template(out: &mut Describe, template: &Value) {
    out.heading(0, "Pod Template");
    if template.is_null() {
        return out.line(1, "<unset>");
    }
    let spec = template.value_at("spec");
    out.pairs(1, "Labels", &template.pairs("metadata.labels"));
    let annotations = template.pairs("metadata.annotations");
    if !annotations.is_empty() {
        out.annotations(1, "Annotations", &annotations);
    }
    if !spec.text("serviceAccountName").is_empty() {
        out.field(1, "Service Account", spec.text("serviceAccountName"));
    }
    let within = DescribePlace { indent: "  ", pod: None, throttled: &|_| None, process_id: &|_| None };
    if !spec.list("initContainers").is_empty() {
        within.containers(out, "Init Containers", spec.list("initContainers"), &[]);
    }
    within.containers(out, "Containers", spec.list("containers"), &[]);
    volumes::volumes(out, spec.list("volumes"), "  ");
    topology_spread(out, 1, spec.list("topologySpreadConstraints"));
    if !spec.text("priorityClassName").is_empty() {
        out.field(1, "Priority Class Name", spec.text("priorityClassName"));
    }
    out.pairs(1, "Node-Selectors", &spec.pairs("nodeSelector"));
    tolerations(out, 1, spec.list("tolerations"));
}

/// Context of a container's description: a pod, or a template, which indents more and has no status.
pub struct DescribePlace<'a> {
    /// Blanks before the headings.
    pub indent: &'a str,
    /// The pod, for environment variables that refer to its fields.
    pub pod: Option<&'a Value>,
    /// Describes how the CPU limit throttles a container, if it does.
    pub throttled: &'a dyn Fn(&str) -> Option<String>,
    /// The process id on this machine, if the container runs here.
    pub process_id: &'a dyn Fn(&str) -> Option<i32>,
}

impl DescribePlace<'_> {
    /// Writes a heading and each container with its state.
    pub fn containers(&self, out: &mut Describe, heading: &str, containers: &[Value], statuses: &[Value]) {
        let none = if containers.is_empty() { " <none>" } else { "" };
        out.line(0, format_args!("{}{heading}:{none}", self.indent));
        for container in containers {
            let status = statuses.iter().find(|status| status.text("name") == container.text("name"));
            self.basics(out, container, status);
            command(out, container);
            if let Some(status) = status {
                state(out, status);
            }
            if status.is_some_and(|status| status.has("state.running"))
                && let Some(words) = (self.throttled)(container.text("name"))
            {
                out.field(2, "Throttled", words);
            }
            resources(out, container.value_at("resources"), 2);
            probes(out, container);
            environment_from(out, container);
            self.environment(out, container);
            mounts(out, container);
        }
    }

    fn basics(&self, out: &mut Describe, container: &Value, status: Option<&Value>) {
        let extra = if self.indent.is_empty() { "" } else { " " };
        out.line(1, format_args!("{extra}{}:", container.text("name")));
        if let Some(status) = status {
            out.field(2, "Container ID", status.text("containerID"));
            if let Some(pid) = status.has("state.running").then(|| (self.process_id)(container.text("name"))).flatten()
            {
                out.field(2, "Process ID", pid);
            }
        }
        out.field(2, "Image", container.text("image"));
        if let Some(status) = status {
            out.field(2, "Image ID", status.text("imageID"));
        }
        for (name, field) in [("Port", "containerPort"), ("Host Port", "hostPort")] {
            let ports: Vec<String> = container.list("ports").iter().map(|port| port_text(port, field)).collect();
            let plural = if ports.len() > 1 { "s" } else { "" };
            out.field(2, &format!("{name}{plural}"), text_or(&ports.join(", "), "<none>"));
        }
        let profile = container.value_at("securityContext.seccompProfile");
        if !profile.is_null() {
            out.field(2, "SeccompProfile", profile.text("type"));
            if profile.text("type") == "Localhost" {
                out.field(3, "LocalhostProfile", profile.text("localhostProfile"));
            }
        }
    }

    fn environment(&self, out: &mut Describe, container: &Value) {
        let variables = container.list("env");
        out.line(2, if variables.is_empty() { "Environment:\t<none>" } else { "Environment:" });
        for variable in variables {
            let name = variable.text("name");
            let from = variable.value_at("valueFrom");
            if from.is_null() {
                for (at, line) in variable.text("value").split('\n').enumerate() {
                    out.line(3, if at == 0 { format!("{name}:\t{line}") } else { format!("\t{line}") });
                }
            } else if let Some(text) = self.source(from, container) {
                out.field(3, name, text);
            }
        }
    }

    fn source(&self, from: &Value, container: &Value) -> Option<String> {
        let optional = |reference: &Value| reference.flag("optional");
        if let Some(field) = from.get("fieldRef") {
            let value = self.pod.and_then(|pod| pod_field(pod, field.text("fieldPath"))).unwrap_or_default();
            return Some(format!("{value} ({}:{})", field.text("apiVersion"), field.text("fieldPath")));
        }
        if let Some(field) = from.get("resourceFieldRef") {
            let resource = field.text("resource");
            let value = match resource_field(field, container) {
                Some(0) if matches!(resource, "limits.cpu" | "limits.memory") => "node allocatable".into(),
                Some(value) => value.to_string(),
                None => String::new(),
            };
            return Some(format!("{value} ({resource})"));
        }
        let of = |reference: &Value, words: &str| {
            let (key, name) = (reference.text("key"), reference.text("name"));
            format!("<set to the key '{key}' {words} '{name}'>\tOptional: {}", optional(reference))
        };
        let secret = from.get("secretKeyRef").map(|reference| of(reference, "in secret"));
        secret.or_else(|| from.get("configMapKeyRef").map(|reference| of(reference, "of config map")))
    }
}

fn port_text(port: &Value, field: &str) -> String {
    let text = format!("{}/{}", port.int(field), port.text("protocol"));
    match port.text("name") {
        "" => text,
        name => format!("{text} ({name})"),
    }
}

fn command(out: &mut Describe, container: &Value) {
    for (name, field) in [("Command", "command"), ("Args", "args")] {
        let words = container.texts(field);
        if !words.is_empty() {
            out.heading(2, name);
        }
        for line in words.iter().flat_map(|word| word.split('\n')) {
            out.line(3, line);
        }
    }
}

fn state(out: &mut Describe, status: &Value) {
    describe_state(out, "State", status.value_at("state"));
    if status.has("lastState.terminated") {
        describe_state(out, "Last State", status.value_at("lastState"));
    }
    out.field(2, "Ready", if status.flag("ready") { "True" } else { "False" });
    out.field(2, "Restart Count", status.int("restartCount"));
}

fn describe_state(out: &mut Describe, name: &str, state: &Value) {
    if let Some(running) = state.get("running") {
        out.field(2, name, "Running");
        out.field(3, "Started", rfc1123(running.time("startedAt")));
    } else if let (None, Some(terminated)) = (state.get("waiting"), state.get("terminated")) {
        out.field(2, name, "Terminated");
        for (label, field) in [("Reason", "reason"), ("Message", "message")] {
            if !terminated.text(field).is_empty() {
                out.field(3, label, terminated.text(field));
            }
        }
        out.field(3, "Exit Code", terminated.int("exitCode"));
        if terminated.int("signal") > 0 {
            out.field(3, "Signal", terminated.int("signal"));
        }
        out.field(3, "Started", rfc1123(terminated.time("startedAt")));
        out.field(3, "Finished", rfc1123(terminated.time("finishedAt")));
    } else {
        out.field(2, name, "Waiting");
        if !state.text("waiting.reason").is_empty() {
            out.field(3, "Reason", state.text("waiting.reason"));
        }
    }
}

/// Limits and requests.
pub fn resources(out: &mut Describe, resources: &Value, level: usize) {
    for (name, field) in [("Limits", "limits"), ("Requests", "requests")] {
        let pairs = resources.pairs(field);
        if !pairs.is_empty() {
            out.heading(level, name);
        }
        for (resource, amount) in pairs {
            out.field(level + 1, resource, amount);
        }
    }
}

fn probes(out: &mut Describe, container: &Value) {
    for (name, field) in [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")] {
        if container.has(field) {
            out.field(2, name, probe(container.value_at(field)));
        }
    }
}

fn probe(probe: &Value) -> String {
    let attributes = format!(
        "delay={}s timeout={}s period={}s #success={} #failure={}",
        probe.int("initialDelaySeconds"),
        probe.int("timeoutSeconds"),
        probe.int("periodSeconds"),
        probe.int("successThreshold"),
        probe.int("failureThreshold"),
    );
    let action = ProbeHandler::read(probe).map_or_else(|| "unknown".into(), |handler| handler.describe());
    format!("{action} {attributes}")
}

fn environment_from(out: &mut Describe, container: &Value) {
    let sources = container.list("envFrom");
    if !sources.is_empty() {
        out.heading(2, "Environment Variables from");
    }
    for source in sources {
        let (kind, reference) = match (source.get("configMapRef"), source.get("secretRef")) {
            (Some(reference), _) => ("ConfigMap", reference),
            (None, Some(reference)) => ("Secret", reference),
            (None, None) => continue,
        };
        let prefix = match source.text("prefix") {
            "" => String::new(),
            prefix => format!(" with prefix '{prefix}'"),
        };
        out.line(
            3,
            format_args!("{}\t{kind}{prefix}\tOptional: {}", reference.text("name"), reference.flag("optional")),
        );
    }
}

fn mounts(out: &mut Describe, container: &Value) {
    let mut mounts: Vec<&Value> = container.list("volumeMounts").iter().collect();
    mounts.sort_by_key(|mount| mount.text("mountPath"));
    out.line(2, if mounts.is_empty() { "Mounts:\t<none>" } else { "Mounts:" });
    for mount in mounts {
        let mode = if mount.flag("readOnly") { "ro" } else { "rw" };
        let path = match mount.text("subPath") {
            "" => String::new(),
            path => format!(",path={path:?}"),
        };
        out.line(3, format_args!("{} from {} ({mode}{path})", mount.text("mountPath"), mount.text("name")));
    }
    let mut devices: Vec<&Value> = container.list("volumeDevices").iter().collect();
    devices.sort_by_key(|device| device.text("devicePath"));
    if !devices.is_empty() {
        out.heading(2, "Devices");
    }
    for device in devices {
        out.line(3, format_args!("{} from {}", device.text("devicePath"), device.text("name")));
    }
}

/// The value of a pod's field in the downward API.
fn pod_field(pod: &Value, path: &str) -> Option<String> {
    let entry =
        |map: &str| Some(pod.value_at(map).get(path.split_once("['")?.1.strip_suffix("']")?)?.as_str()?.to_owned());
    let lines = |map: &str| {
        let lines: Vec<String> = pod.pairs(map).iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        lines.join("\n")
    };
    match path {
        "metadata.labels" | "metadata.annotations" => Some(lines(path)),
        "metadata.name"
        | "metadata.namespace"
        | "metadata.uid"
        | "spec.nodeName"
        | "spec.serviceAccountName"
        | "status.hostIP"
        | "status.podIP" => Some(pod.plain(path)),
        "status.podIPs" | "status.hostIPs" => {
            Some(pod.list(path).iter().map(|ip| ip.text("ip")).collect::<Vec<_>>().join(","))
        }
        _ if path.starts_with("metadata.labels[") => entry("metadata.labels"),
        _ if path.starts_with("metadata.annotations[") => entry("metadata.annotations"),
        _ => None,
    }
}

/// The amount of a container's resource in units of the divisor, rounded up.
fn resource_field(field: &Value, container: &Value) -> Option<i64> {
    let (kind, resource) = field.text("resource").split_once('.')?;
    let amount = container.value_at("resources").get(kind).and_then(|amounts| amounts.get(resource));
    let amount = match amount.and_then(Value::as_str) {
        Some(text) => Quantity::parse(text).ok()?,
        None => Quantity::from_int(0),
    };
    let divisor = field.plain("divisor");
    let divisor = Quantity::parse(&divisor).ok().filter(|divisor| !divisor.is_zero()).unwrap_or(Quantity::from_int(1));
    let (amount, divisor) =
        if resource == "cpu" { (amount.milli(), divisor.milli()) } else { (amount.value(), divisor.value()) };
    let divisor = divisor.max(1);
    Some(amount / divisor + i64::from(amount % divisor > 0))
}

/// Writes `Tolerations:`, sorted by key.
pub fn tolerations(out: &mut Describe, level: usize, tolerations: &[Value]) {
    let mut sorted: Vec<&Value> = tolerations.iter().collect();
    sorted.sort_by_key(|toleration| toleration.text("key"));
    out.values(level, "Tolerations", sorted.into_iter().map(toleration));
}

fn toleration(toleration: &Value) -> String {
    let mut text = toleration.text("key").to_owned();
    for (mark, field) in [("=", "value"), (":", "effect")] {
        if !toleration.text(field).is_empty() {
            text.push_str(mark);
            text.push_str(toleration.text(field));
        }
    }
    if toleration.text("operator") == "Exists" && toleration.text("value").is_empty() {
        text.push_str(if text.is_empty() { "op=Exists" } else { " op=Exists" });
    }
    if let Some(seconds) = toleration.value_at("tolerationSeconds").as_i64() {
        text.push_str(&format!(" for {seconds}s"));
    }
    text
}

/// Writes `Topology Spread Constraints:`, if there are any.
pub fn topology_spread(out: &mut Describe, level: usize, constraints: &[Value]) {
    if constraints.is_empty() {
        return;
    }
    let mut sorted: Vec<&Value> = constraints.iter().collect();
    sorted.sort_by_key(|constraint| constraint.text("topologyKey"));
    let lines = sorted.into_iter().map(|constraint| {
        let selected = match constraint.get("labelSelector") {
            Some(labels) => format!(" for selector {}", selector(labels)),
            None => String::new(),
        };
        let (key, otherwise) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        format!("{key}:{otherwise} when max skew {} is exceeded{selected}", constraint.int("maxSkew"))
    });
    out.values(level, "Topology Spread Constraints", lines);
}
