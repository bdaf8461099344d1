//! The log of a container, or the reason why there is none.

use super::api::Api;
use super::{ApiResult, read};
use crate::kubelet::restart_decision_from_object;
use crate::object::{Key, Object, Reason, Resource, Status};
use crate::runtime::logs::{self, LogMissing, LogOptions, LogReader, NextAttemptCheck};
use crate::store::OpenMode;
use std::path::{Path, PathBuf};

/// Location of a cluster's logs; can be sent to another thread.
#[derive(Clone)]
pub struct LogSource {
    /// The cluster's file.
    pub state: PathBuf,
    /// The cluster's folder.
    pub home: PathBuf,
}

impl LogSource {
    /// Returns the location of the logs of an open cluster.
    pub fn from_api(api: &Api) -> LogSource {
        LogSource { state: api.store().path().to_owned(), home: api.store().home().to_owned() }
    }
}

/// Opens a log; one of a container that has not been started is none, or refused with the reason why it waits.
pub fn open(place: &LogSource, pod: &Object, container: &str, options: &LogOptions) -> ApiResult<Option<LogReader>> {
    let options = &LogOptions { waits_after: waits_after(pod, container), ..options.clone() };
    match logs::open(&place.home, pod.local_uid(), container, options.clone()) {
        Ok(logs) if options.follow && !options.previous => {
            Ok(Some(logs.follow_attempts(restarts(&place.state, pod, container))))
        }
        Ok(logs) => Ok(Some(logs)),
        Err(LogMissing::Previous) => Err(previous_missing(pod, container)),
        Err(LogMissing::Container) if options.previous => Err(previous_missing(pod, container)),
        Err(LogMissing::Container) => match waiting_reason(pod, container) {
            Some(why) => {
                let text = format!("container {container:?} in pod {:?} is waiting to start: {why}", pod.name());
                Err(Status::new(Reason::BadRequest, text))
            }
            None if was_rejected(pod) => {
                let text = format!("container {container:?} in pod {:?} is not available", pod.name());
                Err(Status::new(Reason::BadRequest, text))
            }
            None => Ok(None),
        },
    }
}

/// Whether containers of this pod may log more, now or later.
pub fn may_begin(pod: &Object) -> bool {
    pod.deletion().is_none() && !matches!(pod.text(&["status", "phase"]), Some("Succeeded" | "Failed"))
}

/// Returns a check whether another attempt follows an ended one: its restart policy restarts the container, and the pod has neither ended
/// nor been deleted.
fn restarts(state: &Path, pod: &Object, container: &str) -> NextAttemptCheck {
    let again = restart_decision_from_object(pod, container);
    let (state, uid) = (state.to_owned(), pod.uid().to_owned());
    let key = Key::new(Resource("pods"), pod.namespace(), pod.name());
    let is_alive = move || {
        let api = Api::open(&state, OpenMode::Existing, "logs").ok()?;
        let pod = api.read_view(|txn| read::get(txn, &key)).ok()?;
        Some(pod.uid() == uid && may_begin(&pod))
    };
    Box::new(move |code| again.follows(code) && is_alive().unwrap_or(false))
}

/// Whether it has failed on a node without any container status: it has no container, and never will.
fn was_rejected(pod: &Object) -> bool {
    let failed = pod.text(&["status", "phase"]) == Some("Failed");
    let bound = pod.text(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    failed && bound && pod.items(&["status", "containerStatuses"]).is_empty()
}

fn previous_missing(pod: &Object, container: &str) -> Status {
    let text = format!("previous terminated container {container:?} in pod {:?} not found", pod.name());
    Status::new(Reason::BadRequest, text)
}

fn waiting_reason(pod: &Object, container: &str) -> Option<String> {
    let reason = pod.container_status(container)?["state"]["waiting"]["reason"].as_str()?;
    Some(match reason {
        "ErrImagePull" => "image can't be pulled".into(),
        "ImagePullBackOff" => "trying and failing to pull image".into(),
        other => other.to_owned(),
    })
}

/// Returns the number of the ended attempt after which a container waits for its restart.
fn waits_after(pod: &Object, container: &str) -> Option<u32> {
    let status = pod.container_status(container).filter(|status| status["state"]["waiting"].is_object())?;
    status["lastState"]["terminated"]["containerID"].as_str()?.rsplit('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn waiting_container_follows_the_attempt_of_its_last_state() {
        let last = json!({"terminated": {"containerID": "kloop://u/c/3"}});
        for (state, last, expected) in [
            (json!({"waiting": {"reason": "CrashLoopBackOff"}}), &last, Some(3)),
            (json!({"running": {}}), &last, None),
            (json!({"waiting": {"reason": "ContainerCreating"}}), &json!({}), None),
        ] {
            let pod =
                Object(json!({"status": {"containerStatuses": [{"name": "c", "state": state, "lastState": last}]}}));
            assert_eq!(waits_after(&pod, "c"), expected, "{state}");
        }
    }
}
