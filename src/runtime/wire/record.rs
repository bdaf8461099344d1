//! Record of a shim on disk: the state of each container's newest attempt.
//!
//! Never: loses a reported state. Start reading at [`ShimRecord`].

use super::super::process::ProcessIdentity;
use super::{PodName, VERSION, now_nanos};
use crate::world::AttemptEnd;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Content of `record.json`, written completely and renamed into place at every change.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub struct ShimRecord {
    /// The shim's protocol [`VERSION`]; 0 for old ones without it.
    pub version: u32,
    /// The boot that the processes belong to.
    pub boot: String,
    /// The highest epoch seen until this was written.
    pub epoch: u64,
    /// The shim that wrote this.
    pub shim: Option<ProcessIdentity>,
    /// Whether the last shim exited in order, when no process of the pod ran.
    pub left: bool,
    /// The pod.
    pub pod: PodName,
    /// The containers by name.
    pub containers: BTreeMap<String, ContainerRecord>,
}

/// A container's newest attempt.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct ContainerRecord {
    /// Number of the attempt, from 0.
    pub attempt: u32,
    /// State of the attempt.
    pub state: RecordedState,
    /// The requested stop, if there was one.
    pub stopping: Option<RecordedStop>,
    /// End of the previous attempt.
    pub last: Option<RecordedEnd>,
}

/// A requested stop.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub struct RecordedStop {
    /// Time of the first request.
    pub since: i64,
    /// Time at which SIGKILL is sent, by the wall clock, for display; the shim itself uses the monotonic clock.
    pub kill_at: i64,
}

/// State of an attempt.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum RecordedState {
    /// The main process of the attempt runs.
    Running {
        /// The main process.
        process: ProcessIdentity,
        /// Start of the process.
        since: i64,
    },
    /// The program of the attempt could not be executed.
    Refused {
        /// Reason in one word.
        reason: String,
        /// Message.
        message: String,
        /// Time of the refusal.
        at: i64,
    },
    /// The attempt has ended with all its processes.
    Ended(RecordedEnd),
}

/// End of an attempt.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub struct RecordedEnd {
    /// Exit code; 128 + signal.
    pub code: i32,
    /// The signal that ended the main process.
    pub signal: Option<i32>,
    /// Reason in one word, when the exit code does not say enough.
    pub reason: Option<String>,
    /// The termination message.
    pub message: String,
    /// Start of the main process.
    pub started: Option<i64>,
    /// End of the main process.
    pub finished: i64,
}

impl RecordedEnd {
    /// Makes an end, now, that nothing observed.
    pub fn unknown(message: &str, started: Option<i64>) -> RecordedEnd {
        RecordedEnd {
            code: AttemptEnd::UNKNOWN_CODE,
            signal: None,
            reason: Some(AttemptEnd::UNKNOWN.into()),
            message: message.into(),
            started,
            finished: now_nanos(),
        }
    }
}

impl ShimRecord {
    /// Returns an empty record of this version.
    pub fn empty() -> ShimRecord {
        ShimRecord { version: VERSION, ..ShimRecord::default() }
    }

    /// Reads the usable parts of a record of another version. A container that cannot be read is left out: for the control plane it is
    /// lost.
    pub fn salvage(text: &[u8]) -> Option<ShimRecord> {
        let found: Map<String, Value> = serde_json::from_slice(text).ok()?;
        let containers = found.get("containers").and_then(Value::as_object).into_iter().flatten();
        Some(ShimRecord {
            version: part(&found, "version"),
            boot: part(&found, "boot"),
            epoch: part(&found, "epoch"),
            shim: part(&found, "shim"),
            left: part(&found, "left"),
            pod: part(&found, "pod"),
            containers: containers
                .filter_map(|(name, known)| Some((name.clone(), ContainerRecord::deserialize(known).ok()?)))
                .collect(),
        })
    }
}

fn part<T: DeserializeOwned + Default>(found: &Map<String, Value>, name: &str) -> T {
    found.get(name).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

impl ContainerRecord {
    /// Returns the end of the newest attempt, if it has ended.
    pub fn ended(&self) -> Option<&RecordedEnd> {
        match &self.state {
            RecordedState::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the main process, while it runs.
    pub fn process(&self) -> Option<ProcessIdentity> {
        match &self.state {
            RecordedState::Running { process, .. } => Some(*process),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn record_of_another_version_is_salvaged() {
        let end = json!({"Ended": {"code": 3, "finished": 7}});
        let record = json!({
            "version": 9, "boot": "b", "epoch": "seven", "shim": {"pid": 5, "start": 6}, "pod": {"uid": "u", "name": 4},
            "containers": {
                "plain": {"attempt": 2, "state": end, "mood": "fine"},
                "odd": {"attempt": 1, "state": {"Dreaming": {}}},
            },
        });
        assert!(serde_json::from_value::<ShimRecord>(record.clone()).is_err());
        let found = ShimRecord::salvage(record.to_string().as_bytes()).expect("an object");
        assert_eq!((found.version, &*found.boot, found.epoch, found.left), (9, "b", 0, false));
        assert_eq!(found.shim, Some(ProcessIdentity { pid: 5, start: 6 }));
        assert_eq!(found.containers.keys().collect::<Vec<_>>(), ["plain"]);
        assert_eq!(found.containers["plain"].ended().map(|end| end.code), Some(3));
        assert_eq!(ShimRecord::salvage(b"rubbish"), None);
    }
}
