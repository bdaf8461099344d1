//! Containers: the state of each, read from the pod's status.

use super::ended::known_end;
use super::last_activity::{EventSubject, last_event_with_reason};
use super::remedy::{handler, in_namespace, split_advice};
use super::{
    CauseLink, ContainerExit, ControlPlaneState, ConvergenceState, CpuLimitedContainer, StoppedProcess, UnreportedExit,
};
use crate::diagnosis::convergence::STARTING_REASONS;
use crate::kubelet;
use crate::object::time::Shift;
use crate::object::{Object, time};
use crate::world::{Row, World};
use jiff::SignedDuration;
use serde_json::Value;

/// A container without probes that has run for this long counts as started.
const UNPROBED_START_TIME: SignedDuration = SignedDuration::from_secs(60);

/// The annotation that keeps a simulated pod from being ready.
const UNREADY: &str = "kloop.dev/simulate-ready";

/// The containers that are not as they should be; when all are, the first one.
pub fn links(world: &World, row: &Row, plane: &ControlPlaneState) -> Vec<CauseLink> {
    let pod = row.object();
    if row.pod().is_none_or(|pod| pod.node.is_none() || pod.phase.is_terminal()) || row.is_deleting() {
        return Vec::new();
    }
    let init = pod.items(&["spec", "initContainers"]).iter().map(|spec| (spec, true));
    let main = pod.items(&["spec", "containers"]).iter().map(|spec| (spec, false));
    let link = |(spec, is_init): (&Value, bool)| {
        let link = link(world, row, &pod, spec, is_init, plane);
        let name = spec["name"].as_str().unwrap_or_default();
        match plane.lost.get(&row.uid) {
            Some(UnreportedExit::All) if status(&pod, name)["state"]["running"].is_object() => {
                explain_unreported_exit(link, row, name, "its process is gone")
            }
            Some(UnreportedExit::Some(ended)) if ended.contains_key(name) => {
                let ContainerExit { code, at } = ended[name];
                let ago = time::age(world.now.duration_since(at).as_secs().max(0));
                explain_unreported_exit(link, row, name, &format!("ended with code {code} {ago} ago"))
            }
            _ => explain_stopped_process(link, plane.halted.get(&row.uid), name),
        }
    };
    let all: Vec<CauseLink> = init.chain(main).map(link).collect();
    let stuck: Vec<CauseLink> = all.iter().filter(|link| link.state != ConvergenceState::Converged).cloned().collect();
    if !stuck.is_empty() { stuck } else { all.into_iter().rev().take(1).collect() }
}

/// The status of a container; null without one.
fn status<'a>(pod: &'a Object, name: &str) -> &'a Value {
    pod.container_status(name).unwrap_or(&Value::Null)
}

fn link(world: &World, row: &Row, pod: &Object, spec: &Value, is_init: bool, plane: &ControlPlaneState) -> CauseLink {
    let name = spec["name"].as_str().unwrap_or_default();
    let runs_once = is_init && spec["restartPolicy"] != "Always";
    let status = status(pod, name);
    let wanted = if runs_once { "done" } else { "running and ready" };
    let others = pod.containers().filter_map(|spec| spec["name"].as_str()).filter(|other| *other != name);
    let link = CauseLink {
        address: pod.text(&["status", "podIP"]).and_then(|ip| ip.parse().ok()),
        neighbours: others.map(str::to_owned).collect(),
        what: format!("container {name}"),
        wanted: wanted.into(),
        by: kubelet::LOOP.name,
        about: Some(EventSubject::container(row, name)),
        ..CauseLink::default()
    };
    let finding = ContainerFinding { world, row, spec, status, name, plane };
    let state = &status["state"];
    if state["running"].is_object() {
        return finding.explain_running(link, runs_once);
    }
    if state["terminated"].is_object() {
        return finding.explain_terminated(link, &state["terminated"], runs_once, pod);
    }
    finding.explain_waiting(link, &state["waiting"], pod)
}

/// A container whose main process a signal has stopped runs on by its status, and does nothing.
fn explain_stopped_process(link: CauseLink, stopped: Option<&StoppedProcess>, name: &str) -> CauseLink {
    let Some(StoppedProcess::Containers(stopped)) = stopped else { return link };
    let Some(pid) = stopped.get(name) else { return link };
    let seen = format!("{}, but a signal has stopped its process {pid}", link.seen);
    CauseLink { seen, limited: None, ..link }.stuck(format!("kill -CONT {pid}"))
}

/// Describes a container that ended after its status was written. The control plane, which is not running, will decide about a restart.
fn explain_unreported_exit(link: CauseLink, row: &Row, name: &str, how: &str) -> CauseLink {
    let seen = format!("{how}; its status is older and says {}", link.seen);
    let log = Some((row.uid.clone(), name.to_owned()));
    CauseLink { seen, state: ConvergenceState::Converging, log, limited: None, ..link }
}

/// A container and where it belongs.
struct ContainerFinding<'a> {
    world: &'a World,
    row: &'a Row,
    spec: &'a Value,
    status: &'a Value,
    name: &'a str,
    plane: &'a ControlPlaneState,
}

impl ContainerFinding<'_> {
    fn explain_running(&self, link: CauseLink, runs_once: bool) -> CauseLink {
        let since = time::from_json(&self.status["state"]["running"]["startedAt"]);
        let for_how_long = since.map_or(SignedDuration::ZERO, |since| self.world.now.duration_since(since));
        let ago = time::age(for_how_long.as_secs().max(0));
        let restarts = match self.status["restartCount"].as_i64().unwrap_or(0) {
            0 => String::new(),
            count => format!(", restarted {}", format_times(count)),
        };
        let limited = self.spec["resources"]["limits"]["cpu"].as_str().map(|cpu| CpuLimitedContainer {
            pod_uid: self.row.body().local_uid().into(),
            container: self.name.to_owned(),
            cpu: cpu.to_owned(),
        });
        let link = CauseLink { seen: format!("running for {ago}{restarts}"), limited, ..link };
        if runs_once {
            return CauseLink { state: ConvergenceState::Converging, ..link };
        }
        if self.status["ready"] == true {
            return link;
        }
        let link = CauseLink { seen: format!("{}, not ready", link.seen), state: ConvergenceState::Converging, ..link };
        self.explain_probes(link, for_how_long)
    }

    /// Reports a failing probe as the cause once it has failed as often as its threshold.
    fn explain_probes(&self, link: CauseLink, ran: SignedDuration) -> CauseLink {
        let kind = if self.status["started"] == false { "startupProbe" } else { "readinessProbe" };
        let probe = &self.spec[kind];
        if !probe.is_object() {
            // It has no readiness probe: it is ready with the next plan.
            return link.stuck_if(ran > UNPROBED_START_TIME, || {
                let namespace_flag = in_namespace(&self.row.key);
                match self.row.body().annotation(UNREADY) {
                    Some(told) => {
                        let correct = self.plane.correct(self.world, self.row);
                        format!("its annotation {UNREADY}: {told:?} keeps it unready: {correct}")
                    }
                    None => {
                        format!("see why it is not ready: kloop describe pod/{}{namespace_flag}", self.row.key.name)
                    }
                }
            });
        }
        let number = |field: &str, default: i64| probe[field].as_i64().unwrap_or(default);
        let tries = number("initialDelaySeconds", 0) + number("periodSeconds", 10) * number("failureThreshold", 3);
        let word = if kind == "startupProbe" { "Startup probe" } else { "Readiness probe" };
        let unhealthy = last_event_with_reason(self.world, self.row, "Unhealthy")
            .filter(|activity| activity.message.starts_with(word));
        let Some(unhealthy) = unhealthy else { return link };
        let link = CauseLink { error: Some(unhealthy.message), ..link };
        let next = format!("make {} answer its {kind} ({}), or correct the probe", self.name, handler(probe));
        link.stuck_if(ran.as_secs() >= tries, || next)
    }

    fn explain_terminated(&self, link: CauseLink, state: &Value, runs_once: bool, pod: &Object) -> CauseLink {
        let code = state["exitCode"].as_i64().unwrap_or(0);
        let seen = format!("{} (exit code {code})", state["reason"].as_str().unwrap_or("ended"));
        let link = CauseLink { seen, ..link };
        if code == 0 && (runs_once || pod.text(&["spec", "restartPolicy"]) != Some("Always")) {
            return link;
        }
        if code != 0 {
            return self.explain_crash(link, state, pod);
        }
        CauseLink { state: ConvergenceState::Converging, ..link }
    }

    fn explain_waiting(&self, link: CauseLink, state: &Value, pod: &Object) -> CauseLink {
        let reason = state["reason"].as_str().unwrap_or_default();
        let message = state["message"].as_str().unwrap_or_default();
        let link = CauseLink { seen: if reason.is_empty() { "not started".into() } else { reason.into() }, ..link };
        match reason {
            reason if reason.is_empty() || STARTING_REASONS.contains(&reason) => {
                let failed =
                    last_event_with_reason(self.world, self.row, "FailedMount").map(|activity| activity.message);
                let next = failed.as_deref().and_then(suggest_volume);
                let link = CauseLink { state: ConvergenceState::Converging, error: failed, ..link };
                match next {
                    Some(next) => link.stuck(next),
                    None => self.explain_post_start_hook(link),
                }
            }
            "CrashLoopBackOff" | "RunContainerError" => {
                self.explain_crash(link, &self.status["lastState"]["terminated"], pod)
            }
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                let (message, next) = split_advice(message);
                let link = CauseLink { error: Some(message), ..link };
                link.stuck(next.unwrap_or_else(|| {
                    let correct = self.plane.correct_container(self.world, self.row);
                    format!("correct the image, or name a program in command: {correct}")
                }))
            }
            _ => {
                let (message, next) = split_advice(message);
                let link = CauseLink { error: Some(message).filter(|text| !text.is_empty()), ..link };
                link.stuck(
                    next.unwrap_or_else(|| {
                        format!("correct it: {}", self.plane.correct_container(self.world, self.row))
                    }),
                )
            }
        }
    }

    /// A container with a postStart hook counts as being created until the hook has ended; no earlier state is reported.
    fn explain_post_start_hook(&self, link: CauseLink) -> CauseLink {
        let hook = &self.spec["lifecycle"]["postStart"];
        if !hook.is_object() {
            return link;
        }
        let what = handler(hook);
        let seen = format!("{}, until its postStart hook has ended ({what})", link.seen);
        let correct = self.plane.correct_container(self.world, self.row);
        let next = format!(
            "wait for the postStart hook of container {} to end ({what}); if it does not, correct it: {correct}",
            self.name
        );
        CauseLink { seen, next: Some(next), ..link }
    }

    /// Returns the remedy when the container wants a port reserved for root.
    fn suggest_unreserved_port(&self) -> Option<String> {
        let activity = last_event_with_reason(self.world, self.row, "PortReserved")?;
        let message = &activity.message;
        let is_meant =
            message.starts_with(&format!("Container {} declares ", self.name)) || message.starts_with("A program ");
        let cause = message.rfind("ports below ").filter(|_| is_meant)?;
        Some(message[cause..].to_owned())
    }

    /// It ended badly, and will again: how, when it is tried again, and where its log is.
    fn explain_crash(&self, link: CauseLink, ended: &Value, pod: &Object) -> CauseLink {
        let code = ended["exitCode"].as_i64().unwrap_or(0);
        let by = ended["signal"].as_i64().map(|signal| format!(" by signal {signal}")).unwrap_or_default();
        let detail = ended["message"].as_str().map(str::trim).filter(|text| !text.is_empty());
        let detail = detail.and_then(|text| text.lines().last()).map(|text| format!(": {text}")).unwrap_or_default();
        let restarts = self.status["restartCount"].as_i64().unwrap_or(0);
        let known = known_end(self.world, self.row, self.spec, ended, self.plane);
        let error = match (&known, restarts) {
            (Some(known), 0) => known.error.clone(),
            (Some(known), _) => format!("{}; restarted {}", known.error, format_times(restarts)),
            (None, 0) => format!("it ended with code {code}{by}{detail}"),
            (None, _) => format!("it ended with code {code}{by} and was restarted {}{detail}", format_times(restarts)),
        };
        let unhealthy = last_event_with_reason(self.world, self.row, "Unhealthy").map(|activity| activity.message);
        let killed = unhealthy.filter(|message| message.starts_with("Liveness") || message.starts_with("Startup"));
        let error = killed.as_ref().map_or(error.clone(), |message| format!("{error}; {message}"));
        let pause = self.status["state"]["waiting"]["message"].as_str().and_then(parse_backoff);
        let wake = time::from_json(&ended["finishedAt"]).zip(pause).map(|(ended, pause)| ended.later(pause));
        let namespace_flag = in_namespace(&self.row.key);
        let logs = match self.plane.is_preview {
            // A planned container has no log.
            true => self.plane.correct_container(self.world, self.row),
            false => {
                // For a container that is not restarted, or never was, the current log is the relevant one.
                let is_over = self.status["state"]["terminated"].is_object() || restarts == 0;
                let previous = if is_over { "" } else { " --previous" };
                format!("kloop logs {} -c {}{previous}{namespace_flag}", self.row.key.name, self.name)
            }
        };
        let probe =
            killed.map(|message| if message.starts_with("Liveness") { "livenessProbe" } else { "startupProbe" });
        let its_log = if self.plane.is_preview { "" } else { "its log: " };
        let next = match probe {
            _ if known.is_some() => known.map(|known| known.next).unwrap_or_default(),
            Some(kind) => format!(
                "make {} answer its {kind} ({}), or correct the probe; {its_log}{logs}",
                self.name,
                handler(&self.spec[kind])
            ),
            None => match self.suggest_unreserved_port() {
                Some(advice) => format!("{advice}; if it ends for another reason, see its log: {logs}"),
                None => format!("see why it ends ({logs}), and correct it"),
            },
        };
        let log = Some((self.row.uid.clone(), self.name.to_owned()));
        let ports = self.spec["ports"].as_array().into_iter().flatten();
        let ports = ports.filter_map(|port| u16::try_from(port["containerPort"].as_u64()?).ok()).collect();
        let is_on_machine = pod.value_at(&["spec", "hostNetwork"]) == Some(&Value::Bool(true));
        let node_ports = is_on_machine.then(|| node_ports(self.world));
        let words = ["command", "args"].into_iter().flat_map(|list| self.spec[list].as_array().into_iter().flatten());
        let numbers = words.filter_map(Value::as_str).flat_map(numbers).collect();
        CauseLink { error: Some(error), wake, log, ports, numbers, node_ports, ..link }.stuck(next)
    }
}

fn format_times(count: i64) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

/// The numbers in a text that may be ports.
fn numbers(text: &str) -> impl Iterator<Item = u16> + '_ {
    let numbers = text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    numbers.filter(|number| *number > 0)
}

/// The node ports of all Services, and whose each is.
fn node_ports(world: &World) -> Vec<(u16, String)> {
    let of = |row: &Row| {
        let whose = super::name(&row.key);
        let body = row.body();
        let ports = body.items(&["spec", "ports"]).iter().filter_map(|port| port["nodePort"].as_u64());
        let ports = ports.filter_map(|port| u16::try_from(port).ok().filter(|port| *port > 0));
        ports.map(|port| (port, whose.clone())).collect::<Vec<_>>()
    };
    world.list("services").filter(|row| row.mentions("nodePort")).flat_map(|row| of(row)).collect()
}

/// `back-off 40s restarting failed container=...`.
fn parse_backoff(message: &str) -> Option<SignedDuration> {
    let word = message.strip_prefix("back-off ")?.split(' ').next()?;
    time::parse_duration(word).ok()
}

/// Returns the remedy for a volume that cannot appear by waiting. (Missing objects are explained by their own links.)
fn suggest_volume(failed: &str) -> Option<String> {
    let (_, why) = failed.split_once(" : ")?;
    if why.ends_with("not supported by this node") {
        return Some(
            "use a volume of another kind: emptyDir, configMap, secret, projected, downwardAPI, hostPath or \
             persistentVolumeClaim"
                .into(),
        );
    }
    if why.starts_with("no Image object names the files of ") {
        return why.split_once(": run: ").map(|(_, command)| command.to_owned());
    }
    if let Some(what) = why.strip_prefix("hostPath type check failed: ") {
        let (path, kind) = what.split_once(" is not a ")?;
        return Some(format!("make {path} a {kind} on this machine, or correct path and type of the hostPath"));
    }
    let (path, _) = why.strip_prefix("cannot make ")?.split_once(": ")?;
    Some(format!("make {path} on this machine, or correct the hostPath"))
}
