//! Container exits with a known cause that is not in their log: too much memory, a failed hook, a program that never started.
//!
//! Knows: these causes, and a remedy for each. Never: guesses at others. Start reading at [`known_end`].

use super::ControlPlaneState;
use super::last_activity::{EventSubject, last_activity_with_reason};
use super::remedy::{handler, split_advice};
use crate::object::time;
use crate::world::{AttemptEnd, Row, World};
use serde_json::Value;

/// Explanation of a container's exit.
pub(super) struct ExitEvidence {
    /// In a few words.
    pub error: String,
    /// The remedy.
    pub next: String,
}

/// Explains the exit of a pod's container by its `terminated` state, where that is possible.
pub(super) fn known_end(
    world: &World,
    row: &Row,
    spec: &Value,
    ended: &Value,
    plane: &ControlPlaneState,
) -> Option<ExitEvidence> {
    let name = spec["name"].as_str()?;
    let correct = plane.correct_container(world, row);
    match ended["reason"].as_str() {
        Some(AttemptEnd::OOM_KILLED) => {
            let pod = row.object();
            let own = spec["resources"]["limits"]["memory"].as_str().map(|limit| (format!("container {name}"), limit));
            let of_pod = || Some(("the pod".to_owned(), pod.text(&["spec", "resources", "limits", "memory"])?));
            Some(match own.or_else(of_pod) {
                Some((whose, limit)) => ExitEvidence {
                    error: format!("OOMKilled: it used more memory than the limit of {whose}, {limit}"),
                    next: format!(
                        "raise resources.limits.memory of {whose} ({limit} now), or reduce its memory usage: {correct}"
                    ),
                },
                None => ExitEvidence {
                    error: "OOMKilled: this machine ran out of memory, and the container has no memory limit".into(),
                    next: format!("reduce its memory usage, or set resources.limits.memory: {correct}"),
                },
            })
        }
        Some(AttemptEnd::START_ERROR) => {
            let (message, advice) = split_advice(ended["message"].as_str().unwrap_or_default().trim());
            let next = advice.unwrap_or_else(|| format!("correct its command or image: {correct}"));
            Some(ExitEvidence { error: format!("it could not be started: {message}"), next })
        }
        _ => {
            let failed = last_activity_with_reason(world, &EventSubject::container(row, name), "FailedPostStartHook")?;
            // The event of an earlier attempt does not explain this exit.
            let began = time::from_json(&ended["startedAt"]);
            let hook = &spec["lifecycle"]["postStart"];
            began.is_none_or(|began| failed.at >= began).then(|| ExitEvidence {
                error: failed.message.trim().to_owned(),
                next: format!("correct lifecycle.postStart of container {name} ({}): {correct}", handler(hook)),
            })
        }
    }
}
