//! Finds the pod and the container for a command: POD or TYPE/NAME, and the default container.

use super::contexts::{ConfigFile, ServerEntries};
use super::deadline::Deadline;
use super::targets::{self, Targets};
use crate::apiserver::connect::connect;
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::rules::names::key_of;
use crate::cli::command_line::check_globals::server_config;
use crate::cli::manifests::files::{self, FileFlags};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::{ApiClient, ClientRequest};
use crate::joined_node;
use crate::kinds::{self, Kind, KindRegistry};
use crate::object::{Key, Object, Time, time};
use crate::reconcile::node::MACHINE;
use crate::runtime::session::{self, DEFAULT_DETACH_KEYS, DetachKeys, SessionStreams};
use jiff::SignedDuration;
use serde_json::Value;
use std::time::Duration;

/// Time for the first answer of the server of `kloop serve`.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// Flags of verbs that open a session in a container.
#[derive(clap::Args)]
pub struct SessionFlags {
    /// Container name. If omitted, the first container in the pod will be chosen.
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Pass stdin to the container.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Stdin is a TTY.
    #[arg(short, long)]
    tty: bool,
    /// Only print output from the remote session.
    #[arg(short, long)]
    quiet: bool,
    /// The length of time (like 5s, 2m, or 3h, higher than zero) to wait until at least one pod is running.
    #[arg(long, default_value = "1m0s", value_name = "DURATION", value_parser = time::parse_duration)]
    pod_running_timeout: SignedDuration,
}

impl SessionFlags {
    /// Finds the pod and the container; see [`container`].
    pub fn find(&self, word: &str, doing: &str, context: &mut CommandContext) -> CliResult<(Object, String)> {
        let pod = find(word, self.pod_running_timeout, context)?;
        self.with_container(pod, doing, context)
    }

    /// Like [`SessionFlags::find`], for the single object in files (`-f`).
    pub fn find_of_files(
        &self,
        files: &FileFlags,
        doing: &str,
        context: &mut CommandContext,
    ) -> CliResult<(Object, String)> {
        let (manifests, failures) = files::read_for(context, files, "exec")?;
        Failure::from_failures(failures)?;
        let [manifest] = &manifests[..] else {
            return Err(Failure::plain("cannot exec into multiple objects at a time"));
        };
        let (kind, key) = targets::named(context, manifest)?;
        let pod = pod_of(kind, &key, self.pod_running_timeout, context)?;
        self.with_container(pod, doing, context)
    }

    fn with_container(&self, pod: Object, doing: &str, context: &mut CommandContext) -> CliResult<(Object, String)> {
        let container = container(&pod, self.container.as_ref(), self.quiet, doing, context)?;
        Ok((pod, container))
    }

    /// Returns the options of the session.
    pub fn options(&self) -> SessionOptions {
        SessionOptions { stdin: self.stdin, tty: self.tty, quiet: self.quiet, detach: DetachKeys::default() }
    }
}

/// `--detach-keys`.
#[derive(clap::Args)]
pub struct DetachFlag {
    /// Override the key sequence for detaching a container.
    #[arg(long, default_value = DEFAULT_DETACH_KEYS, value_name = "KEYS")]
    detach_keys: String,
}

impl DetachFlag {
    /// Parses the keys.
    pub fn parse(&self) -> CliResult<DetachKeys> {
        if self.detach_keys.is_empty() {
            return Ok(DetachKeys::default());
        }
        DetachKeys::parse(&self.detach_keys).map_err(|why| Failure::plain(format!("could not bind detach keys: {why}")))
    }
}

/// Options of an interactive session.
#[derive(Clone, Copy)]
pub struct SessionOptions {
    /// Whether to send input.
    pub stdin: bool,
    /// Whether to use a terminal.
    pub tty: bool,
    /// Whether to print only the container's output.
    pub quiet: bool,
    /// The keys that end an attachment, in a terminal.
    pub detach: DetachKeys,
}

impl SessionOptions {
    /// Chooses the streams: a terminal only if requested together with input, and if standard input
    /// is one.
    pub fn streams(self, context: &mut CommandContext) -> SessionStreams {
        let wants_terminal = self.stdin && self.tty;
        let terminal = wants_terminal && session::is_terminal();
        if wants_terminal && !terminal && !self.quiet {
            context.print_notice("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
        SessionStreams { stdin: self.stdin, terminal }
    }
}

/// Asks admission for a connection to a pod, and prints its warnings.
pub fn admit_connection(context: &mut CommandContext, pod: &Object, subresource: &str, options: Value) -> CliResult {
    if context.client().is_some() {
        // The server does.
        return Ok(());
    }
    let key = key_of(&kinds::pod::KIND, pod);
    let warnings = connect(context.api()?, &key, subresource, &Object(options))?;
    context.warn(&warnings);
    Ok(())
}

/// Parses POD or TYPE/NAME.
pub fn named(kinds: &KindRegistry, word: &str) -> CliResult<(&'static Kind, String)> {
    if !word.contains('/') {
        return Ok((&kinds::pod::KIND, word.to_owned()));
    }
    match targets::parse(kinds, &[word.to_owned()])? {
        Targets::Named(named) if named.len() == 1 => Ok((named[0].0, named[0].1.clone())),
        _ => Err(Failure::plain("arguments in resource/name form must have a single resource and name")),
    }
}

/// Returns the pod, or the best pod of a workload. Waits for the first pod.
pub fn find(word: &str, timeout: SignedDuration, context: &mut CommandContext) -> CliResult<Object> {
    let (kind, name) = named(context.kinds(), word)?;
    let pod = pod_of(kind, &Key::new(kind.resource, context.namespace_of(kind), &name), timeout, context)?;
    check_is_here(&pod, context)?;
    Ok(pod)
}

/// Uses the cluster's API server from now on for a pod whose processes are on another machine. Refuses that pod when none runs here.
pub fn check_is_here(pod: &Object, context: &mut CommandContext) -> CliResult {
    if context.client().is_some() {
        return Ok(());
    }
    let node = pod.text(&["spec", "nodeName"]).unwrap_or_default();
    let key = Key::new(kinds::node::KIND.resource, "", node);
    // The user as whom the command acts need not be able to read nodes.
    let api = context.existing()?;
    let found = api.map(|api| api.read_as_server(|txn| txn.get(&key))).transpose()?.flatten();
    let is_joined = found.is_some_and(|node| node.annotation(MACHINE).is_some());
    if !is_joined || joined_node::is_copy(&context.state()) {
        return Ok(());
    }
    if connect_to_own_server(context)? {
        return Ok(());
    }
    Err(Failure::plain(format!(
        "pod {} runs on another machine, node {node}, which only the API server reaches\nhint: run kloop serve here, or the command there",
        pod.name()
    )))
}

/// Uses the server of `kloop serve` in place of the state file, with the flags of the command. Returns whether it runs.
fn connect_to_own_server(context: &mut CommandContext) -> CliResult<bool> {
    let Some(home) = context.home()? else { return Ok(false) };
    let file = ConfigFile::load(&home.join("kubeconfig"))?;
    let Some(entries) = ServerEntries::from_current_context(&file) else { return Ok(false) };
    let config = server_config(&entries, context)?;
    let client = ApiClient::new(config.clone()).map_err(|error| Failure::plain(error.to_string()))?;
    if client.send(ClientRequest::get("/version").within(SERVER_PATIENCE)).is_err() {
        return Ok(false);
    }
    // Stays the one of the state file.
    context.default_namespace();
    context.connect(config)?;
    Ok(true)
}

fn pod_of(kind: &'static Kind, key: &Key, timeout: SignedDuration, context: &mut CommandContext) -> CliResult<Object> {
    let pods = &kinds::pod::KIND;
    let object = context.read_view(|txn| read::get(txn, key))?;
    if kind.resource == pods.resource {
        return Ok(object);
    }
    let Some(selector) = targets::selector_of(kind, &object) else {
        return Err(targets::no_pods_error(kind, &key.name, "attach to"));
    };
    let deadline = Deadline::with_control_plane(context, Some(timeout.unsigned_abs()))?;
    let selection = ListSelection { labels: Some(selector), fields: None };
    loop {
        let found = context.read_view(|txn| read::list(txn, pods, Some(object.namespace()), &selection))?;
        if let Some(best) = found.into_iter().min_by_key(|pod| rank(pod, RestartRank::Few)) {
            return Ok(best);
        }
        deadline.wait_or_fail()?;
    }
}

/// Preference for restarts among otherwise equal pods.
#[derive(Clone, Copy)]
pub enum RestartRank {
    /// Fewest restarts (Kubernetes: `podutils.ActivePods`, reversed).
    Few,
    /// Most restarts, because such a log is the most useful (`podutils.ByLogging`).
    Many,
}

/// Ranks pods for a command; smallest is best. In order: assigned, running, ready, not terminating,
/// ready for longest, restarts, oldest.
pub fn rank(pod: &Object, prefer: RestartRank) -> (bool, u8, bool, bool, Option<Time>, i64, Option<Time>) {
    let phase = match pod.text(&["status", "phase"]) {
        Some("Running") => 0,
        Some("Unknown") | None => 1,
        Some("Pending") => 2,
        Some(_) => 3,
    };
    let ready = pod.true_condition("Ready");
    let since = ready.and_then(|ready| time::from_json(&ready["lastTransitionTime"]));
    let counts =
        pod.items(&["status", "containerStatuses"]).iter().filter_map(|status| status["restartCount"].as_i64());
    // Terminating pods also have logs.
    let (terminating, restarts) = match prefer {
        RestartRank::Few => (pod.deletion().is_some(), counts.max().unwrap_or(0)),
        RestartRank::Many => (false, -counts.max().unwrap_or(0)),
    };
    let unassigned = pod.text(&["spec", "nodeName"]).is_none_or(str::is_empty);
    (unassigned, phase, ready.is_none(), terminating, since, restarts, pod.created())
}

/// The names of a pod's containers.
pub struct PodContainers {
    /// Names from `containers`.
    pub main: Vec<String>,
    /// Names from `initContainers`.
    pub init: Vec<String>,
    /// Names from `ephemeralContainers`.
    pub ephemeral: Vec<String>,
}

impl PodContainers {
    /// Reads the names from a pod.
    pub fn from_pod(pod: &Object) -> PodContainers {
        let names = |list: &str| -> Vec<String> {
            let containers = pod.items(&["spec", list]).iter();
            containers.filter_map(|container| Some(container["name"].as_str()?.to_owned())).collect()
        };
        PodContainers {
            main: names("containers"),
            init: names("initContainers"),
            ephemeral: names("ephemeralContainers"),
        }
    }

    /// Whether a container has this name.
    pub fn has(&self, name: &String) -> bool {
        [&self.main, &self.init, &self.ephemeral].iter().any(|names| names.contains(name))
    }

    /// Returns all names as kubectl prints them.
    pub fn list_names(&self) -> String {
        let init = self.init.iter().map(|name| format!("{name} (init)"));
        let ephemeral = self.ephemeral.iter().map(|name| format!("{name} (ephem)"));
        self.main.iter().cloned().chain(init).chain(ephemeral).collect::<Vec<_>>().join(", ")
    }

    /// Returns the default container. Prints it if there are several and no annotation chooses.
    pub fn default(&self, pod: &Object, context: &mut CommandContext, quiet: bool) -> Option<String> {
        let annotated = pod.annotation("kubectl.kubernetes.io/default-container").map(str::to_owned);
        let annotated = annotated.filter(|name| self.has(name));
        let chosen = annotated.clone().or_else(|| self.main.first().cloned())?;
        let is_choice = self.main.len() + self.init.len() + self.ephemeral.len() > 1;
        if is_choice && annotated.is_none() && !quiet {
            context.print_notice(&format!("Defaulted container {chosen:?} out of: {}", self.list_names()));
        }
        Some(chosen)
    }
}

/// Returns the requested or the default container of a pod that has not ended. `doing` is for the
/// error, such as `exec into`.
pub fn container(
    pod: &Object,
    requested: Option<&String>,
    quiet: bool,
    doing: &str,
    context: &mut CommandContext,
) -> CliResult<String> {
    let phase = pod.text(&["status", "phase"]).unwrap_or_default();
    if ["Succeeded", "Failed"].contains(&phase) {
        let text = format!("cannot {doing} a container in a completed pod; current phase is {phase}");
        return Err(Failure::plain(text));
    }
    let containers = PodContainers::from_pod(pod);
    // As in kubectl, an empty name counts as none.
    let chosen = match requested.filter(|name| !name.is_empty()) {
        Some(requested) if !containers.has(requested) => {
            let known = containers.list_names();
            let text = format!("container {requested} is not valid for pod {} out of: {known}", pod.name());
            let prefix = if doing.starts_with("attach") { "cannot attach to the container: " } else { "" };
            return Err(Failure::plain(format!("{prefix}{text}")));
        }
        Some(requested) => requested.clone(),
        None => containers.default(pod, context, quiet).unwrap_or_default(),
    };
    if pod.text(&["spec", "nodeName"]).is_none_or(str::is_empty) {
        let why = format!("unable to upgrade connection: pod {} does not have a host assigned", pod.name());
        return Err(Failure::WithoutProcess(why));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_that_would_be_deleted_last_comes_first() {
        let pod = |name: &str, node: Option<&str>, phase: &str, restarts: i64| {
            Object(json!({"metadata": {"name": name}, "spec": {"nodeName": node},
                "status": {"phase": phase, "containerStatuses": [{"restartCount": restarts}]}}))
        };
        let mut pods = [
            pod("unassigned", None, "Pending", 0),
            pod("starting", Some("n"), "Pending", 0),
            pod("shaky", Some("n"), "Running", 4),
            pod("ended", Some("n"), "Succeeded", 0),
            pod("steady", Some("n"), "Running", 0),
        ];
        pods.sort_by_key(|pod| rank(pod, RestartRank::Few));
        assert_eq!(pods.map(|pod| pod.name().to_owned()), ["steady", "shaky", "starting", "ended", "unassigned"]);
    }

    #[test]
    fn longest_ready_pod_comes_first() {
        let pod = |name: &str, phase: &str, ready: Option<&str>| {
            let ready = ready.map(|at| json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]));
            Object(json!({"metadata": {"name": name}, "spec": {"nodeName": "n"},
                "status": {"phase": phase, "conditions": ready}}))
        };
        let mut pods = [
            pod("ended", "Succeeded", None),
            pod("young", "Running", Some("2026-01-02T00:00:00Z")),
            pod("old", "Running", Some("2026-01-01T00:00:00Z")),
            pod("unready", "Running", None),
        ];
        pods.sort_by_cached_key(|pod| rank(pod, RestartRank::Many));
        assert_eq!(pods.map(|pod| pod.name().to_owned()), ["old", "young", "unready", "ended"]);
    }

    #[test]
    fn commands_prefer_pods_that_are_not_being_deleted() {
        let pod = |going: Option<&str>, since: &str| {
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
            Object(json!({"metadata": {"deletionTimestamp": going}, "spec": {"nodeName": "n"},
                "status": {"phase": "Running", "conditions": ready}}))
        };
        let (old, new) = (pod(Some("2026-01-03T00:00:00Z"), "2026-01-01T00:00:00Z"), pod(None, "2026-01-02T00:00:00Z"));
        assert!(rank(&new, RestartRank::Few) < rank(&old, RestartRank::Few));
        assert!(rank(&old, RestartRank::Many) < rank(&new, RestartRank::Many));
    }

    #[test]
    fn restarts_count_for_a_log_and_against_a_command() {
        let pod = |restarts: i64| {
            let status = json!({"phase": "Running", "containerStatuses": [{"restartCount": restarts}]});
            Object(json!({"spec": {"nodeName": "n"}, "status": status}))
        };
        assert!(rank(&pod(0), RestartRank::Few) < rank(&pod(3), RestartRank::Few));
        assert!(rank(&pod(3), RestartRank::Many) < rank(&pod(0), RestartRank::Many));
    }
}
