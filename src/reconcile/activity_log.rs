//! Log lines for users about ticks and the machine: one line for each action.
//!
//! Knows: what the plans of a tick write and why, and which writes are bookkeeping (statuses, endpoints, revisions, the usual events):
//! these are details, logged on request. Lines are made after the commit, from its result: a write that the tick itself undid is not
//! logged.
//! Start reading at [`ActivityLog::lines`] and, for the machine, [`report_line`].

use super::{LogLevel, LogLine};
use crate::controllers;
use crate::kinds;
use crate::kinds::deployment::DEADLINE_EXCEEDED;
use crate::object::{Key, Time, format_count};
use crate::world::facts::{BuildStage, ProbeFacts};
use crate::world::{
    AppliedFields, AttemptEnd, ContainerState, EventType, Facts, Plan, PlannedEvent, ProbeKind, ProbeResult, Report,
    Row, World, WriteVerb,
};
use hashbrown::{HashMap, HashSet};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

/// Kinds whose objects loops create for every workload, Service or node, without a manifest.
const BOOKKEEPING_RESOURCES: [&str; 5] =
    ["controllerrevisions.apps", "endpoints", "endpointslices.discovery.k8s.io", "leases.coordination.k8s.io", "nodes"];

/// The loops that give every namespace its ServiceAccount and root certificates.
const NAMESPACE_LOOPS: [&str; 2] = [controllers::serviceaccount::LOOP.name, controllers::root_ca_publisher::LOOP.name];

/// Normal events that are logged, because no line about a write or a report contains their information.
const LOGGED_EVENTS: [&str; 9] = [
    "Completed",
    "DeadlineExceeded",
    "Killing",
    "NodeNotReady",
    "Resumed",
    "SuccessfulRescale",
    "Suspended",
    "SucceededDaemonPod",
    "TaintManagerEviction",
];

/// The reason of warnings that are not logged, because a report has been logged before.
const UNHEALTHY: &str = "Unhealthy";

/// A warning that is as new each time as the crash before it.
const BACK_OFF: &str = "BackOff";

/// Number of warnings to remember, so that none is logged twice in a row.
const MAX_REMEMBERED: usize = 10_000;

/// The last warning of each object and reason.
pub type LastWarnings = HashMap<(Key, Cow<'static, str>), String>;

/// Activity of one tick's plans, in order.
#[derive(Default)]
pub struct ActivityLog(Vec<Activity>);

struct Activity {
    by: &'static str,
    about: Key,
    what: ActivityKind,
}

enum ActivityKind {
    Created(Key, String),
    Updated(Key, String),
    /// A status, and whether it is a Deployment's, whose rollout may be over with it.
    Status(Key, String),
    Deleted(Key, String),
    Bound(String),
    Happened(PlannedEvent),
}

impl ActivityLog {
    /// Records the writes and events of a plan, once all of it is staged.
    pub fn record_plan(&mut self, by: &'static str, about: &Key, plan: &Plan) {
        let mut add = |what| self.0.push(Activity { by, about: about.clone(), what });
        for write in &plan.writes {
            let why = write.why.clone();
            match &write.verb {
                WriteVerb::Create(object) => add(ActivityKind::Created(key_of(object, about), why)),
                WriteVerb::Update(object)
                | WriteVerb::AnnotateStatus(object)
                | WriteVerb::Scale(object)
                | WriteVerb::Apply { object, fields: AppliedFields { is_status: false, .. } } => {
                    add(ActivityKind::Updated(key_of(object, about), why))
                }
                WriteVerb::Status(object) | WriteVerb::Apply { object, .. } => {
                    add(ActivityKind::Status(key_of(object, about), why))
                }
                WriteVerb::Delete { key, .. } => add(ActivityKind::Deleted(key.clone(), why)),
                WriteVerb::Bind { node, .. } => add(ActivityKind::Bound(node.to_string())),
                WriteVerb::Attempt { .. } => {}
            }
        }
        plan.events.iter().for_each(|event| add(ActivityKind::Happened(event.clone())));
    }

    /// The statuses that are wanted, each with its place.
    fn statuses(&self) -> impl Iterator<Item = (usize, &Key)> {
        self.0.iter().enumerate().filter_map(|(place, activity)| match &activity.what {
            ActivityKind::Status(key, _) => Some((place, key)),
            _ => None,
        })
    }

    /// Returns the lines of a committed tick; `undone` are the keys whose objects are as they were before the tick.
    pub fn lines(self, world: &World, undone: &HashSet<Key>, warnings: &mut LastWarnings) -> Vec<LogLine> {
        let mut logged = HashSet::new();
        let mut lines = Vec::new();
        // A rollout is over with the last of the tick's statuses, after all that led there.
        let last: HashMap<Key, usize> = self.statuses().map(|(place, key)| (key.clone(), place)).collect();
        for (place, Activity { by, about, what }) in self.0.into_iter().enumerate() {
            let line = match what {
                ActivityKind::Deleted(key, _) | ActivityKind::Updated(key, _) | ActivityKind::Status(key, _)
                    if undone.contains(&key) =>
                {
                    None
                }
                ActivityKind::Happened(event) => Some((event_level(&event, warnings), event_text(&event, world.now))),
                ActivityKind::Bound(node) => {
                    world.get(&about).map(|_| (LogLevel::Action, format!("bound to node {node}")))
                }
                ActivityKind::Created(key, why) => {
                    creation_text(world, &key, &why).map(|text| (write_level(&key, by), text))
                }
                ActivityKind::Deleted(key, why) => {
                    deletion_text(world, &key, &about, &why).map(|text| (write_level(&key, by), text))
                }
                ActivityKind::Updated(key, why) => {
                    let text = update_text(world, &key).filter(|_| logged.insert(key.clone()));
                    let text = text.map(|text| (write_level(&key, by), text));
                    let detail = || (LogLevel::Detail, format!("changed {}: {why}", qualified_name(world, &key)));
                    Some(text.unwrap_or_else(detail))
                }
                ActivityKind::Status(key, why) => world.get(&key).map(|_| {
                    let text = rollout_text(world, &key).filter(|_| last.get(&key) == Some(&place));
                    text.map_or((LogLevel::Detail, why), |text| (LogLevel::Action, text))
                }),
            };
            lines.extend(line.map(|(level, text)| LogLine { at: world.now, by, about: Some(about), text, level }));
        }
        lines
    }
}

fn key_of(object: &crate::object::Object, about: &Key) -> Key {
    let kind = kinds::by_kind(object.api_version(), object.kind());
    kind.map_or_else(|| about.clone(), |kind| Key::new(kind.resource, object.namespace(), object.name()))
}

fn rows_before_and_after<'a>(world: &'a World, key: &Key) -> (Option<&'a Arc<Row>>, Option<&'a Arc<Row>>) {
    (world.row_before_stage(key), world.get(key))
}

/// `pod/web-1`, as kubectl names objects.
fn qualified_name(world: &World, key: &Key) -> String {
    let kind = world.kinds.by_resource(key.resource).map(kinds::Kind::qualified_singular);
    format!("{}/{}", kind.as_deref().unwrap_or(key.resource.0), key.name)
}

fn write_level(key: &Key, by: &'static str) -> LogLevel {
    if NAMESPACE_LOOPS.contains(&by) || BOOKKEEPING_RESOURCES.contains(&key.resource.0) {
        LogLevel::Detail
    } else {
        LogLevel::Action
    }
}

/// Describes an update that users care about: a new size, a new owner, a claim that is bound.
fn update_text(world: &World, key: &Key) -> Option<String> {
    let (Some(before), Some(after)) = rows_before_and_after(world, key) else { return None };
    if let (Some(from), Some(to)) = (before.workload(), after.workload())
        && from.replicas != to.replicas
    {
        return Some(format!("scaled {} from {} to {}", qualified_name(world, key), from.replicas, to.replicas));
    }
    let owner = |row: &Row| row.controller().map(|owner| owner.uid.clone());
    match (owner(before), owner(after)) {
        (None, Some(_)) => return Some(format!("adopted {}", qualified_name(world, key))),
        (Some(_), None) => return Some(format!("released {}", qualified_name(world, key))),
        _ => {}
    }
    if key.resource.0 != "persistentvolumeclaims" {
        return None;
    }
    let volume = |row: &Row| row.body().text(&["spec", "volumeName"]).map(str::to_owned);
    let bound = volume(after).filter(|_| volume(before).is_none())?;
    Some(format!("bound {} to persistentvolume/{bound}", qualified_name(world, key)))
}

/// Describes the creation of an object; `None` when it was there before or is gone again.
fn creation_text(world: &World, key: &Key, why: &str) -> Option<String> {
    match rows_before_and_after(world, key) {
        (None, Some(_)) => Some(format!("created {}: {why}", qualified_name(world, key))),
        _ => None,
    }
}

/// Describes the deletion of an object that existed before the tick. Omits the object's name if the line is about the object itself.
fn deletion_text(world: &World, key: &Key, about: &Key, why: &str) -> Option<String> {
    world.row_before_stage(key)?;
    let word = if world.get(key).is_some() { "deleted" } else { "gone" };
    let title = if key == about { String::new() } else { format!(" {}", qualified_name(world, key)) };
    Some(format!("{word}{title}: {why}"))
}

/// Describes the rollout of a Deployment after a status change.
fn rollout_text(world: &World, key: &Key) -> Option<String> {
    if key.resource.0 != "deployments.apps" {
        return None;
    }
    let progress = |row: &Arc<Row>| {
        let object = row.body();
        let progress = object.condition("Progressing")?;
        Some((progress["reason"].as_str()?.to_owned(), progress["message"].as_str()?.to_owned()))
    };
    let (before, after) = rows_before_and_after(world, key);
    let (reason, message) = progress(after?)?;
    let known = before.and_then(progress);
    // The message names the ReplicaSet: within one tick a rollout begins and ends under the same reason.
    let is_news = known.is_none_or(|known| known != (reason.clone(), message.clone()));
    match reason.as_str() {
        "NewReplicaSetAvailable" if is_news => Some(format!("rolled out: {message}")),
        DEADLINE_EXCEEDED if is_news => Some(format!("the rollout is stuck: {message}")),
        _ => None,
    }
}

fn event_level(event: &PlannedEvent, warnings: &mut LastWarnings) -> LogLevel {
    if event.kind == EventType::Normal {
        return if LOGGED_EVENTS.contains(&&*event.reason) { LogLevel::Action } else { LogLevel::Detail };
    }
    if event.reason == UNHEALTHY {
        return LogLevel::Detail;
    }
    if event.reason == BACK_OFF {
        return LogLevel::Problem;
    }
    if warnings.len() >= MAX_REMEMBERED {
        warnings.clear();
    }
    let last = warnings.insert((event.about.clone(), event.reason.clone()), event.message.clone());
    if last.as_ref() == Some(&event.message) { LogLevel::Detail } else { LogLevel::Problem }
}

/// A line about a link to another machine.
pub fn link_line(node: &str, problem: Option<&str>) -> String {
    match (node, problem) {
        ("", None) => "accepts links of other machines".to_owned(),
        ("", Some(why)) => {
            format!("links of other machines cannot be accepted, pods there do not reach pods here: {why}")
        }
        (node, None) => format!("the link to node {node} is up"),
        (node, Some(why)) => format!("the link to node {node} is down, its pods cannot be reached: {why}"),
    }
}

/// The level of a report's line. A container that ends by the signal of a usual stop is not a problem.
pub fn report_level(report: &Report) -> LogLevel {
    const TERMINATED: i32 = 128 + 15;
    const KILLED: i32 = 128 + 9;
    let is_problem = match report {
        Report::NotRemoved { .. } | Report::NotRefreshed { .. } => true,
        Report::Container { state: ContainerState::Ended(ended), .. } => {
            !matches!(ended.code, 0 | TERMINATED | KILLED) || ended.reason.is_some()
        }
        Report::Container { state: ContainerState::Refused { .. }, .. } => true,
        Report::Probe { verdict, .. } => *verdict == ProbeResult::Failure,
        _ => false,
    };
    if is_problem { LogLevel::Problem } else { LogLevel::Action }
}

fn event_text(event: &PlannedEvent, now: Time) -> String {
    let container = event.field_path.split_once('{').and_then(|(_, name)| name.strip_suffix('}'));
    match (&*event.reason, event.kind, container, event.until) {
        (BACK_OFF, EventType::Warning, Some(container), Some(until)) => {
            let seconds = (until.duration_since(now).as_millis().max(0) + 999) / 1000;
            format!("{container} keeps failing; it is started again in {seconds}s")
        }
        _ => event.message.clone(),
    }
}

/// Returns the line about control groups with processes of an earlier cluster, if there are any.
pub fn unknown_processes(groups: &[PathBuf]) -> Option<String> {
    let folder = groups.first()?.parent()?;
    Some(format!(
        "{} of a cluster that was at this path before still run, although its folder was removed; they are not touched (their \
         processes are in the control groups below {})",
        format_count(groups.len(), "pod"),
        folder.display()
    ))
}

/// Describes the machine's first report: how many pods keep running, and which containers ended while no control plane
/// ran.
pub fn inventory_lines(world: &World) -> Vec<LogLine> {
    let line =
        |about, text| LogLine { at: world.now, by: crate::kubelet::LOOP.name, about, text, level: LogLevel::Action };
    let running = world.facts.pods.iter().filter(|(_, pod)| pod.runs()).count();
    let mut lines: Vec<LogLine> = world
        .facts
        .pods
        .iter()
        .flat_map(|(uid, pod)| {
            let row = world.get(&pod.key()).filter(|row| row.uid == *uid);
            let ended = pod.containers.iter().filter_map(|(name, one)| Some((name, one.attempt, one.ended()?)));
            let news = ended.filter(|(name, attempt, _)| row.is_some_and(|row| was_running(row, name, *attempt)));
            news.map(|(name, _, ended)| {
                line(Some(pod.key()), format!("{name} {} while no control plane ran", end(ended)))
            })
            .collect::<Vec<_>>()
        })
        .collect();
    lines.sort_by(|one, other| (&one.about, &one.text).cmp(&(&other.about, &other.text)));
    if running > 0 {
        let keep = if running == 1 { "keeps" } else { "keep" };
        lines.insert(0, line(None, format!("{} {keep} running", format_count(running, "pod"))));
    }
    lines
}

/// Whether the status says that this attempt runs.
fn was_running(row: &Row, container: &str, attempt: u32) -> bool {
    let object = row.body();
    let status = object.container_status(container);
    status.is_some_and(|status| status["restartCount"] == attempt && status["state"]["running"].is_object())
}

/// Describes a report, compared with the facts before it. `None` when it contains nothing new for users.
pub fn report_line(facts: &Facts, report: &Report) -> Option<String> {
    match report {
        Report::NotRemoved { pod_uid, why } => {
            let is_known = facts.pods.get(pod_uid)?.not_removed.as_ref() == Some(why);
            (!is_known).then(|| format!("has ended, but its folder stays for now: {why}"))
        }
        Report::NotRefreshed { why, .. } => Some(why.clone()),
        Report::Removed { .. }
        | Report::NotDiscarded { .. }
        | Report::Sources { .. }
        | Report::IngressListeners(_)
        | Report::LinkState { .. }
        | Report::SharedNetwork(_)
        | Report::Denied { .. }
        | Report::Bind { .. }
        | Report::Findable { .. }
        | Report::Blocked { .. } => None,
        Report::Build { built, .. } => match &built.stage {
            // Failures are logged by their events.
            BuildStage::Ordered | BuildStage::Ended { since: None, .. } | BuildStage::Ended { error: Some(_), .. } => {
                None
            }
            BuildStage::Running { .. } => Some("is being built".into()),
            BuildStage::Ended { error: None, .. } => Some("is built".into()),
        },
        Report::Usage { .. } | Report::Over { .. } | Report::Resized { .. } => None,
        Report::Container { container, attempt, state, .. } => container_line(container, *attempt, state),
        Report::Probe { pod_uid, container, kind, verdict, message, at, .. } => {
            let before = facts.pods.get(pod_uid)?.containers.get(container)?.probes.get(kind);
            probe_line(before, container, *kind, (*verdict, *at), message)
        }
    }
}

fn container_line(container: &str, attempt: u32, state: &ContainerState) -> Option<String> {
    match state {
        ContainerState::Starting { .. } => None,
        ContainerState::Running { pid, .. } if attempt == 0 => Some(format!("started {container} (pid {pid})")),
        ContainerState::Running { pid, .. } => {
            Some(format!("started {container} again (pid {pid}, restart {attempt})"))
        }
        ContainerState::Ended(ended) => Some(format!("{container} {}", end(ended))),
        // Other refusals are about the image, and logged by their events.
        ContainerState::Refused { reason, message, .. } => {
            (reason == "StartError").then(|| format!("{container} cannot be started: {message}"))
        }
    }
}

fn probe_line(
    before: Option<&ProbeFacts>,
    container: &str,
    kind: ProbeKind,
    (result, at): (ProbeResult, Time),
    message: &str,
) -> Option<String> {
    let (successes, failures) = before.map_or((0, 0), |before| (before.successes, before.failures));
    let is_new = before.is_none_or(|before| before.message != message);
    let name = match kind {
        ProbeKind::Startup => "startup probe",
        ProbeKind::Liveness => "liveness probe",
        ProbeKind::Readiness => "readiness probe",
        ProbeKind::PostStart => "postStart hook",
        ProbeKind::PreStop => "preStop hook",
    };
    let is_early = before.is_some_and(|before| before.is_early_at(at));
    match result {
        ProbeResult::Unknown | ProbeResult::Failure if is_early => None,
        ProbeResult::Unknown if is_new => Some(format!("{name} of {container} cannot be made: {message}")),
        ProbeResult::Failure if failures == 0 => match message.lines().next() {
            None => Some(format!("{name} of {container} fails")),
            Some(line) => Some(format!("{name} of {container} fails: {line}")),
        },
        // A first successful liveness probe is not logged.
        ProbeResult::Success | ProbeResult::Warning
            if failures > 0 || (successes == 0 && kind != ProbeKind::Liveness) =>
        {
            Some(format!("{name} of {container} succeeds"))
        }
        _ => None,
    }
}

fn end(ended: &AttemptEnd) -> String {
    match (ended.reason.as_deref(), ended.signal) {
        (Some(AttemptEnd::UNKNOWN), _) => format!("ended unseen (code {}): {}", ended.code, ended.message),
        (Some(reason), _) => format!("ended with code {}: {reason}", ended.code),
        (None, Some(signal)) => format!("was ended by signal {signal} (code {})", ended.code),
        (None, None) => format!("exited with code {}", ended.code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Object, Resource};
    use crate::world::{ContainerFacts, PodFacts};
    use serde_json::{Value, json};

    const PODS: Resource = Resource("pods");

    fn set(replicas: i64, status: Value) -> Object {
        Object(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {"replicas": replicas}, "status": status,
        }))
    }

    fn pod() -> Object {
        Object(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "default", "uid": "p"}}),
        )
    }

    /// Returns the log lines, details marked with a dot.
    fn plan_lines(world: &World, plan: &Plan, undone: &[Key]) -> Vec<String> {
        let about = Key::new(Resource("replicasets.apps"), "default", "web");
        let mut log = ActivityLog::default();
        log.record_plan("loop", &about, plan);
        let lines = log.lines(world, &undone.iter().cloned().collect(), &mut LastWarnings::new());
        lines
            .iter()
            .map(|line| format!("{}{}", if line.level == LogLevel::Detail { "." } else { "" }, line.text))
            .collect()
    }

    #[test]
    fn problems_are_failed_containers_and_not_stopped_ones() {
        let level = |code: i32, reason: Option<&str>| {
            let reason = reason.map(str::to_owned);
            let (message, finished) = (String::new(), Time::UNIX_EPOCH);
            let ended = AttemptEnd { code, signal: None, reason, message, started: None, finished };
            let state = ContainerState::Ended(ended);
            report_level(&Report::Container { pod_uid: "u".into(), container: "c".into(), attempt: 0, state })
        };
        assert_eq!((level(0, None), level(143, None)), (LogLevel::Action, LogLevel::Action));
        assert_eq!((level(3, None), level(137, Some("OOMKilled"))), (LogLevel::Problem, LogLevel::Problem));
    }

    #[test]
    fn deeds_are_logged_and_bookkeeping_on_request() {
        let mut world = World::new(Time::UNIX_EPOCH);
        let key = Key::new(Resource("replicasets.apps"), "default", "web");
        world.put(key.clone(), set(3, json!({"replicas": 0})).0.to_string().into());
        let mut plan = Plan::default();
        let one = Key::new(PODS, "default", "web-1");
        plan.write(WriteVerb::Create(pod()), "0 pods are active, 3 are wanted");
        plan.write(WriteVerb::Status(set(3, json!({"replicas": 1}))), "the counts of pods changed");
        plan.write(WriteVerb::Update(set(5, json!({}))), "because");
        world.stage(one.clone(), Some(pod()));
        world.stage(key.clone(), Some(set(5, json!({"replicas": 1}))));
        let expected = [
            "created pod/web-1: 0 pods are active, 3 are wanted",
            ".the counts of pods changed",
            "scaled replicaset.apps/web from 3 to 5",
        ];
        assert_eq!(plan_lines(&world, &plan, &[]), expected);
        // The tick removes the pod again and the ReplicaSet is unchanged, so it logs nothing.
        world.stage(one, None::<Object>);
        assert_eq!(plan_lines(&world, &plan, &[key]), [""; 0]);
    }

    #[test]
    fn events_are_told_when_nothing_else_tells_it_and_not_twice_in_a_row() {
        let world = World::new(Time::UNIX_EPOCH);
        let event = |kind, reason: &'static str, message: &str| PlannedEvent {
            about: Key::new(PODS, "default", "web-1"),
            uid: "p".into(),
            field_path: "spec.containers{main}".into(),
            kind,
            reason: reason.into(),
            message: message.into(),
            until: Some(Time::from_millisecond(9_500).unwrap()),
        };
        let mut plan = Plan::default();
        plan.events.push(event(EventType::Normal, "Pulled", "Container image already present on machine"));
        plan.events.push(event(EventType::Normal, "Killing", "Stopping container main"));
        plan.events.push(event(EventType::Warning, "Unhealthy", "Readiness probe failed: no"));
        plan.events.push(event(EventType::Warning, "FailedScheduling", "no nodes"));
        plan.events.push(event(EventType::Warning, "FailedScheduling", "no nodes"));
        plan.events.push(event(EventType::Warning, BACK_OFF, "Back-off restarting failed container"));
        plan.wake_at(Time::from_millisecond(1_500).unwrap());
        let expected = [
            ".Container image already present on machine",
            "Stopping container main",
            ".Readiness probe failed: no",
            "no nodes",
            ".no nodes",
            "main keeps failing; it is started again in 10s",
        ];
        assert_eq!(plan_lines(&world, &plan, &[]), expected);
    }

    #[test]
    fn exit_without_a_control_plane_is_logged_once() {
        let status = |state: Value| {
            let mut pod = pod();
            pod.set(&["status", "containerStatuses"], json!([{"name": "main", "restartCount": 2, "state": state}]));
            pod.0.to_string()
        };
        let ended = AttemptEnd {
            code: 9,
            signal: None,
            reason: None,
            message: String::new(),
            started: None,
            finished: Time::UNIX_EPOCH,
        };
        for (state, attempt, expected) in [
            (json!({"running": {}}), 2, vec!["main exited with code 9 while no control plane ran"]),
            (json!({"running": {}}), 1, vec![]),
            (json!({"terminated": {"exitCode": 9}}), 2, vec![]),
        ] {
            let mut world = World::new(Time::UNIX_EPOCH);
            world.put(Key::new(PODS, "default", "web-1"), status(state).into());
            let container = ContainerFacts::new(attempt, ContainerState::Ended(ended.clone()));
            let containers = [("main".into(), container)].into();
            let facts =
                PodFacts { namespace: "default".into(), name: "web-1".into(), containers, ..PodFacts::default() };
            world.facts.pods.insert("p".into(), facts);
            let lines: Vec<String> = inventory_lines(&world).into_iter().map(|line| line.text).collect();
            assert_eq!(lines, expected);
        }
    }

    #[test]
    fn exit_is_logged_with_its_code_or_signal() {
        let ended = |code, signal, reason: Option<&str>| AttemptEnd {
            code,
            signal,
            reason: reason.map(str::to_owned),
            message: "why".into(),
            started: None,
            finished: Time::UNIX_EPOCH,
        };
        let table = [
            (ended(3, None, None), "exited with code 3"),
            (ended(143, Some(15), None), "was ended by signal 15 (code 143)"),
            (ended(137, Some(9), Some("OOMKilled")), "ended with code 137: OOMKilled"),
            (ended(137, None, Some(AttemptEnd::UNKNOWN)), "ended unseen (code 137): why"),
        ];
        for (ended, expected) in table {
            assert_eq!(end(&ended), expected);
        }
    }
}
