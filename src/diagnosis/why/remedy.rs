//! Remedies: texts with the command or the change that helps.
//!
//! Knows: which object has to be corrected for another one to change, and what the messages of refused writes require.
//! Never: finds a problem itself. Start reading at [`ControlPlaneState::correct`].

use super::relations::owners;
use super::{CauseLink, ControlPlaneState, name, row_name};
use crate::kinds::shared::probe_handler::ProbeHandler;
use crate::object::Key;
use crate::world::{Row, World};
use serde_json::Value;
use std::sync::Arc;

/// The resources that configure admission webhooks.
const WEBHOOK_CONFIGURATIONS: [&str; 2] = [
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
];

impl ControlPlaneState {
    /// Returns the command that corrects an object. A change below an owner would be reverted, so it is made in the
    /// topmost owner. A planned object has only its manifest.
    pub fn correct(&self, world: &World, row: &Row) -> String {
        let owners = owners(world, row);
        let top = owners.first().map_or(row, |top| top);
        let (me, namespace_flag) = (row_name(top), in_namespace(&top.key));
        match top.key.resource.0 {
            _ if self.is_preview => format!("change the manifest of {me}"),
            // The template of a Job is immutable.
            "jobs.batch" => format!("kloop delete {me}{namespace_flag}, and apply it again"),
            _ => format!("kloop edit {me}{namespace_flag}"),
        }
    }

    /// Returns the command that corrects a pod's containers; few fields of a pod without a controller can change while
    /// it exists.
    pub fn correct_container(&self, world: &World, row: &Row) -> String {
        if row.body().annotation("kubernetes.io/config.mirror").is_some() {
            return format!("change the manifest of {} in the folder that its node reads it from", name(&row.key));
        }
        if self.is_preview || !owners(world, row).is_empty() {
            return self.correct(world, row);
        }
        let (me, namespace_flag) = (row_name(row), in_namespace(&row.key));
        format!("change the manifest of {me}, and: kloop replace --force -f FILE{namespace_flag}")
    }
}

/// ` -n prod`, if the namespace is not the default one.
pub fn in_namespace(key: &Key) -> String {
    match &*key.namespace {
        "" | "default" => String::new(),
        namespace => format!(" -n {namespace}"),
    }
}

/// A link to an object that is not there.
pub fn link_to_missing_object(what: String, wanted: &str, by: &'static str, next: String) -> CauseLink {
    let link = CauseLink { what, wanted: wanted.into(), seen: "not found".into(), by, ..CauseLink::default() };
    link.stuck(next)
}

/// Returns the remedy for a refused write.
pub fn advice(world: &World, row: &Row, message: &str, plane: &ControlPlaneState) -> String {
    let namespace_flag = in_namespace(&row.key);
    let correct = plane.correct(world, row);
    if let Some(quota) = read_name_after(message, "exceeded quota: ") {
        return format!("reduce the request ({correct}), or raise the quota: kloop edit quota/{quota}{namespace_flag}");
    }
    if let Some(quota) = read_name_after(message, "failed quota: ") {
        return format!(
            "set the resources that the quota requires ({correct}), or correct the quota: kloop edit quota/{quota}{namespace_flag}"
        );
    }
    if let Some(webhook) = read_name_after(message, "failed calling webhook \"") {
        return start_webhook(world, webhook.trim_end_matches('"'));
    }
    if let Some(class) = read_name_after(message, "no PriorityClass with name ") {
        return format!(
            "create it: kloop create priorityclass {class} --value=1000, or name an existing one (kloop get priorityclass): {correct}"
        );
    }
    if message.contains("serviceaccount") || message.contains("service account") {
        let name = missing_account(message).unwrap_or("NAME");
        return format!("create it: kloop create serviceaccount {name}{namespace_flag}");
    }
    format!("correct the refused object: {correct}")
}

/// Returns the remedy for a webhook that cannot be called.
fn start_webhook(world: &World, webhook: &str) -> String {
    let has_it = |row: &&Arc<Row>| row.body().items(&["webhooks"]).iter().any(|one| one["name"] == webhook);
    let configurations = WEBHOOK_CONFIGURATIONS.iter().flat_map(|resource| world.list(resource));
    let configuration = configurations.into_iter().find(has_it).map(|row| name(&row.key));
    let start = format!("start the server of the webhook {webhook:?}");
    match configuration {
        Some(configuration) => format!("{start}, or remove its configuration: kloop delete {configuration}"),
        None => start,
    }
}

/// The name of the ServiceAccount that a message says is not found.
fn missing_account(message: &str) -> Option<&str> {
    Some(message.split_once("serviceaccount \"")?.1.split_once('"')?.0)
}

/// The name that follows these words in a message.
fn read_name_after<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    message.split_once(words)?.1.split([',', ':', ' ']).next()
}

/// Splits a message of the runtime at the last semicolon, behind which it names the remedy. A semicolon between quotes is part of a user's
/// command.
pub(super) fn split_advice(message: &str) -> (String, Option<String>) {
    let is_quoted = |text: &str| text.replace("\\\"", "").matches('"').count() % 2 == 1;
    match message.rsplit_once("; ").filter(|(what, _)| !is_quoted(what)) {
        Some((what, advice)) => (what.to_owned(), Some(advice.trim_end_matches(['.', '"']).to_owned())),
        None => (message.to_owned(), None),
    }
}

/// Describes a probe or hook in a few words.
pub(super) fn handler(probe: &Value) -> String {
    ProbeHandler::read(probe).map(|handler| handler.summarize()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_account_is_named() {
        let message =
            "pods \"a\" is forbidden: error looking up service account q/nosa: serviceaccount \"nosa\" not found";
        assert_eq!(missing_account(message), Some("nosa"));
        assert_eq!(missing_account("the service account is absent"), None);
    }
}
