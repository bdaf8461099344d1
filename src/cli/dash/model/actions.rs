//! Commands for the selected row, as they would be typed.
//!
//! Start reading at [`DashAction`].

use super::prompt::{DashPrompt, PromptPurpose};
use super::{DashModel, RowId};
use crate::object::Key;

/// Work that the model hands to the adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DashAction {
    /// End.
    Quit,
    /// Run a command, and show its output.
    Show {
        /// Heading of the output.
        title: String,
        /// Arguments of the command.
        arguments: Vec<String>,
        /// Whether the command continues until it is stopped, such as `logs --follow`.
        follows: bool,
    },
    /// Run a command that changes the cluster, and show its last line.
    Change(Vec<String>),
    /// Leave the screen to a command.
    Interactive(Vec<String>),
    /// End the command whose output was shown.
    StopShowing,
}

/// Kinds with a rollout.
const ROLLED_OUT: [&str; 3] = ["deployments.apps", "statefulsets.apps", "daemonsets.apps"];

/// Kinds with a number of replicas.
const SCALED: [&str; 4] = ["deployments.apps", "statefulsets.apps", "replicasets.apps", "replicationcontrollers"];

/// Kinds with pods, whose logs can be read.
const WITH_PODS: [&str; 7] = [
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
    "replicasets.apps",
    "replicationcontrollers",
    "pods",
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// `deployments.apps/web`.
fn name(key: &Key) -> String {
    format!("{}/{}", key.resource, key.name)
}

/// Adds the namespace of an object to a command about it.
fn with_namespace(mut arguments: Vec<String>, key: &Key) -> Vec<String> {
    if !key.namespace.is_empty() {
        arguments.extend(words(&["--namespace", &key.namespace]));
    }
    arguments
}

impl DashModel {
    fn selected_id(&self) -> Option<RowId> {
        self.selected_row().map(|row| self.id_of(row))
    }

    /// `pod/web`, as headings and questions name the selected row.
    fn short_name(&self) -> String {
        let Some(row) = self.selected_row() else { return String::new() };
        let node = self.node(row);
        format!("{}/{}", node.kind, node.key.name)
    }

    /// Shows the output of a verb about the selected object.
    pub(super) fn show_verb(&self, verb: &str) -> Option<DashAction> {
        let (key, _) = self.selected_id()?;
        let arguments = match verb {
            "yaml" => words(&["get", &name(&key), "--output", "yaml"]),
            verb => words(&[verb, &name(&key)]),
        };
        let title = format!("{verb} {}", self.short_name());
        Some(DashAction::Show { title, arguments: with_namespace(arguments, &key), follows: false })
    }

    /// Follows the logs of the selected row.
    pub(super) fn show_logs(&mut self) -> Option<DashAction> {
        let (key, container) = self.selected_id()?;
        if !WITH_PODS.contains(&key.resource.0) {
            self.refuse("has no logs; select a workload or a pod");
            return None;
        }
        let mut arguments = words(&["logs", &name(&key), "--follow", "--tail=200", "--ignore-errors"]);
        match &container {
            Some(container) => arguments.extend(words(&["--container", container])),
            None => arguments.extend(words(&["--all-containers", "--all-pods", "--prefix"])),
        }
        if key.resource == "pods" {
            arguments.retain(|word| word != "--all-pods");
        }
        let title = format!("logs {}", self.short_name());
        Some(DashAction::Show { title, arguments: with_namespace(arguments, &key), follows: true })
    }

    /// Opens a shell in the selected pod or container.
    pub(super) fn exec(&mut self) -> Option<DashAction> {
        let (key, container) = self.selected_id()?;
        if !WITH_PODS.contains(&key.resource.0) {
            self.refuse("runs no process; select a workload or a pod");
            return None;
        }
        let mut arguments = words(&["exec", "--stdin", "--tty", &name(&key)]);
        if let Some(container) = &container {
            arguments.extend(words(&["--container", container]));
        }
        let mut arguments = with_namespace(arguments, &key);
        arguments.extend(words(&["--", "sh"]));
        Some(DashAction::Interactive(arguments))
    }

    /// Restarts the selected workload, or replaces the selected pod.
    pub(super) fn restart(&mut self) -> Option<DashAction> {
        let (key, _) = self.selected_id()?;
        if ROLLED_OUT.contains(&key.resource.0) {
            return Some(DashAction::Change(with_namespace(words(&["rollout", "restart", &name(&key)]), &key)));
        }
        let row = self.world.get(&key)?;
        if key.resource == "pods" && row.controller().is_some() {
            return Some(DashAction::Change(delete(&key)));
        }
        self.refuse("cannot be restarted: select a deployment, a stateful set, a daemon set, or a pod of one");
        None
    }

    /// Asks for a number of replicas.
    pub(super) fn ask_for_scale(&mut self) {
        let Some((key, _)) = self.selected_id() else { return };
        if !SCALED.contains(&key.resource.0) {
            return self.refuse("has no number of replicas");
        }
        let replicas = self.world.get(&key).and_then(|row| row.body().int(&["spec", "replicas"])).unwrap_or(1);
        let label = format!("replicas of {}: ", self.short_name());
        self.prompt = Some(DashPrompt { label, text: replicas.to_string(), purpose: PromptPurpose::Scale(key) });
    }

    /// Asks whether the selected object is to be deleted.
    pub(super) fn ask_for_delete(&mut self) {
        let Some((key, _)) = self.selected_id() else { return };
        let label = format!("delete {}? Type y to confirm: ", self.short_name());
        self.prompt = Some(DashPrompt { label, text: String::new(), purpose: PromptPurpose::Delete(key) });
    }

    /// Carries out an answer of the user.
    pub(super) fn answer(&mut self, prompt: DashPrompt) -> Option<DashAction> {
        match prompt.purpose {
            PromptPurpose::Search => None,
            PromptPurpose::Scale(key) => {
                let Ok(replicas) = prompt.text.trim().parse::<u32>() else {
                    self.notify(format!("{:?} is not a number of replicas", prompt.text), true);
                    return None;
                };
                let arguments = words(&["scale", &name(&key), &format!("--replicas={replicas}")]);
                Some(DashAction::Change(with_namespace(arguments, &key)))
            }
            PromptPurpose::Delete(key) if prompt.text.trim() == "y" => Some(DashAction::Change(delete(&key))),
            PromptPurpose::Delete(_) => None,
            PromptPurpose::Plan => {
                let file = prompt.text.trim();
                let arguments = words(&["plan", "--filename", if file.is_empty() { "." } else { file }]);
                Some(DashAction::Show { title: format!("plan {file}"), arguments, follows: false })
            }
        }
    }

    /// Says why an action is not possible for the selected row.
    fn refuse(&mut self, why: &str) {
        let text = format!("{} {why}", self.short_name());
        self.notify(text, true);
    }
}

fn delete(key: &Key) -> Vec<String> {
    with_namespace(words(&["delete", &name(key), "--wait=false"]), key)
}
