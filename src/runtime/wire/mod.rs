//! The protocol between the control plane and a shim, and the shim's record on disk.
//!
//! One JSON document a line, in both directions, over the shim's Unix socket. A connection first says [`ShimRequest::Hello`];
//! from then on it gets [`ShimAnswer::State`] once and every change after. Times are nanoseconds since 1970.

mod record;

use crate::object::Time;
use crate::world::ingress_routes::UnboundPort;
use crate::world::limits::Limits;
use crate::world::policy::DeniedConnection;
use crate::world::start::{DnsTarget, FileKey};
use crate::world::volume::{Volume, VolumeContent, VolumeMountPoint};
use crate::world::{ContainerUser, ProcessNamespace, ProcessRights, RestartDecision};
pub use record::{ContainerRecord, RecordedEnd, RecordedState, RecordedStop, ShimRecord};
use serde::{Deserialize, Serialize};

/// The version of what stands on this page. Shims outlive the program that started them: raise it when a shim or a control plane of
/// before could no longer make sense of the other. A shim of another version is ended with its pod's processes, which start again.
pub const VERSION: u32 = 1;

/// A request and the epoch of the leader that makes it. A shim refuses an epoch below the highest it has seen.
#[derive(Serialize, Deserialize)]
pub struct RequestEnvelope {
    /// The leader's epoch.
    pub epoch: u64,
    /// The request.
    pub request: ShimRequest,
}

/// Requests to a shim.
#[derive(Serialize, Deserialize)]
pub enum ShimRequest {
    /// Opens a connection, with the pod's name as far as the caller knows it; answered by the state, and by every
    /// change from then on.
    Hello(Option<PodName>),
    /// Starts an attempt.
    Start(Box<LaunchRequest>),
    /// Sends the stop signal now and SIGKILL after the grace. A later stop only shortens.
    Stop {
        /// The container.
        container: String,
        /// The attempt.
        attempt: u32,
        /// Milliseconds until SIGKILL.
        grace: u64,
    },
    /// Changes what a running container may use.
    Limit {
        /// The container.
        container: String,
        /// The attempt.
        attempt: u32,
        /// The groups that it and its pod are to be in.
        groups: Vec<ControlGroup>,
        /// Limits that the groups do not enforce.
        #[serde(default)]
        watched: SoftBounds,
        /// The limits, returned with the answer.
        limits: Box<Limits>,
    },
    /// Runs a command beside a running container, in its environment.
    Exec(Box<ExecRequest>),
    /// Runs a command beside a running container for whoever asks, a leader or not. Its standard input, output and error come as
    /// descriptors with this request, or else a socket to which the other side of its terminal is sent; it is killed when the asker
    /// goes. Answered by [`ShimAnswer::ExecDone`].
    Session(SessionRequest),
    /// Joins what a running container reads and writes, for whoever asks. Three pipes come as descriptors with this request: one to
    /// read its input from, two to write its outputs to. Answered by [`ShimAnswer::Attached`], and in the end by [`ShimAnswer::Detached`].
    Attach(AttachRequest),
    /// The size of a container's terminal, from one who is attached to it.
    Resize(TerminalSize),
    /// Asks for a sign of life before descriptors are sent, for whoever asks. Answered by [`ShimAnswer::Pong`].
    Ping,
    /// Brings the content of volumes up to date.
    Refresh(Vec<Volume>),
    /// Ends the reports on this connection, so that the control plane can close it and save a descriptor. Answered by
    /// [`ShimAnswer::Parked`]. From then on, until the next [`ShimRequest::Hello`], the shim announces each change by a datagram with
    /// its pod's uid to the socket of this name in the state folder.
    Park {
        /// The name of the socket.
        socket: String,
    },
    /// Kills everything, deletes the pod's folder and ends the shim.
    Remove,
}

/// The pod of a shim.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub struct PodName {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.nodeName`.
    pub node: String,
    /// The pod's address.
    pub ip: String,
}

/// One attempt to start, ready to be executed.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct LaunchRequest {
    /// The container.
    pub container: String,
    /// The attempt.
    pub attempt: u32,
    /// Program and arguments; a program without a slash is looked for on the PATH of `env`.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Variables whose values are in files of volumes.
    #[serde(default)]
    pub file_keys: Vec<FileKey>,
    /// The folder to start in; the container's own scratch folder when there is none.
    pub cwd: Option<String>,
    /// The pod's volumes, laid out before the start.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// Its own view of files; none when it sees the machine's as they are.
    #[serde(default)]
    pub view: Option<MountView>,
    /// Variables that tell where volumes are that are not mounted: the variable, and the volume's name.
    #[serde(default)]
    pub volume_paths: Vec<(String, String)>,
    /// User to run as, when different from the shim's.
    #[serde(default)]
    pub user: Option<ContainerUser>,
    /// The control groups that it and its pod are in, those above before those below.
    #[serde(default)]
    pub groups: Vec<ControlGroup>,
    /// Limits that the groups do not enforce.
    #[serde(default)]
    pub watched: SoftBounds,
    /// Kernel preference for killing it when the machine runs out of memory.
    #[serde(default)]
    pub oom_score: Option<i32>,
    /// Its privileges.
    #[serde(default)]
    pub rights: ProcessRights,
    /// Its DNS server.
    #[serde(default)]
    pub names: DnsTarget,
    /// Visible processes.
    #[serde(default)]
    pub processes: ProcessNamespace,
    /// Host name; empty for the machine's own.
    #[serde(default)]
    pub hostname: String,
    /// Whether standard input stays open.
    pub stdin: bool,
    /// Whether it is closed when the first one who was attached to it has gone.
    #[serde(default)]
    pub stdin_once: bool,
    /// Whether standard input, output and error are a terminal.
    #[serde(default)]
    pub tty: bool,
    /// The state of its Image object and of the files that this watches; empty when there is none.
    #[serde(default)]
    pub image: String,
    /// Whether another attempt is likely to follow this one.
    #[serde(default)]
    pub again: RestartDecision,
    /// The signal that asks it to end.
    pub stop_signal: i32,
    /// Path of the termination message in a private view.
    #[serde(default)]
    pub message_path: String,
    /// Whether the tail of the log stands in for an empty termination message on errors.
    pub message_from_logs: bool,
}

impl LaunchRequest {
    /// Whether a volume of its pod is in memory.
    pub fn has_memory(&self) -> bool {
        self.volumes.iter().any(|volume| matches!(volume.source, VolumeContent::Memory { .. }))
    }

    /// Whether the memory that it uses is bounded.
    pub fn has_memory_bound(&self) -> bool {
        self.watched.memory.is_some() || self.groups.iter().any(|group| group.oom.is_some())
    }
}

/// Bounds that no control group enforces: the shim looks, and ends who is over.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
#[serde(default)]
pub struct SoftBounds {
    /// Most memory of the container, in bytes.
    pub memory: Option<i64>,
    /// Most memory of its pod.
    pub pod_memory: Option<i64>,
    /// Most processes of its pod.
    pub pids: Option<i64>,
}

/// A control group: a folder of the kernel's, and what is written there.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ControlGroup {
    /// Its folder.
    pub folder: String,
    /// Its settings.
    pub knobs: Vec<ControlGroupFile>,
    /// The file that takes processes in; none when it only has other groups below.
    pub ingress_route: Option<String>,
    /// The file that counts processes ended for want of memory.
    pub oom: Option<String>,
}

/// A file of a control group and what it is to hold.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ControlGroupFile {
    /// The file.
    pub file: String,
    /// Its content.
    pub value: String,
    /// Whether it does no harm when the kernel does not take it.
    pub optional: bool,
}

impl ControlGroupFile {
    /// One that has to be set.
    pub fn must(file: &str, value: &str) -> ControlGroupFile {
        ControlGroupFile { file: file.into(), value: value.into(), optional: false }
    }

    /// One that not every kernel has.
    pub fn may(file: &str, value: &str) -> ControlGroupFile {
        ControlGroupFile { optional: true, ..ControlGroupFile::must(file, value) }
    }
}

/// View of files, when different from the machine's.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct MountView {
    /// Mounts of the pod's volumes.
    pub mounts: Vec<VolumeMountPoint>,
    /// Folders of the machine that it sees, and changes, as they are.
    pub own: Vec<String>,
    /// Folders of its own, empty at first.
    #[serde(default)]
    pub fresh: Vec<String>,
    /// User and group that own those, when not the shim's.
    #[serde(default)]
    pub fresh_owner: Option<(u32, u32)>,
    /// Paths that it finds in its own `/tmp` and `/dev/shm` when they are in the machine's.
    #[serde(default)]
    pub shown: Vec<String>,
    /// Whether it can write in its volumes only.
    #[serde(default)]
    pub read_only: bool,
}

/// A command to run beside a container.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct ExecRequest {
    /// Chosen by the asker, given back with the answer.
    pub id: u64,
    /// The container.
    pub container: String,
    /// The attempt.
    pub attempt: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Milliseconds after which it is killed.
    pub timeout: u64,
    /// Whether what it has started may go on when it has ended by itself: a postStart hook may start what the container needs.
    #[serde(default)]
    pub keeps_leftovers: bool,
}

/// A command that somebody runs beside a container.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct SessionRequest {
    /// The container.
    pub container: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Whether it gets a terminal, which is to be its controlling one.
    pub terminal: bool,
    /// The size of that terminal.
    #[serde(default)]
    pub size: TerminalSize,
}

/// Joining a container.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct AttachRequest {
    /// The container.
    pub container: String,
    /// Whether it reads what comes.
    pub stdin: bool,
    /// Whether what it has written before is told first.
    pub replay: bool,
}

/// The size of a terminal; all zero when nobody knows it.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Letters in a line.
    pub columns: u16,
}

/// Answers and reports of a shim.
#[derive(Serialize, Deserialize, Clone)]
pub enum ShimAnswer {
    /// Everything it knows.
    State(ShimRecord),
    /// New state of a container.
    Container {
        /// The container.
        name: String,
        /// Its newest attempt.
        container: ContainerRecord,
    },
    /// A command has ended.
    ExecDone {
        /// The asker's number; 0 for a session.
        id: u64,
        /// The result.
        outcome: ExecOutcome,
        /// Its output, at most 10 KiB.
        output: String,
    },
    /// Answers [`ShimRequest::Ping`].
    Pong,
    /// From now on whatever the container writes is passed on.
    Attached,
    /// The container has ended, or nothing more is passed on for another reason. Everything until then was.
    Detached,
    /// The limits of a container have changed, or could not be changed.
    Limited {
        /// The container.
        container: String,
        /// The attempt.
        attempt: u32,
        /// The requested limits.
        limits: Box<Limits>,
        /// Why it could not be done.
        error: Option<String>,
    },
    /// Policies denied a connection to the pod; the same one is told again after a while only.
    Denied(DeniedConnection),
    /// A program of the pod could not bind a port; the same one is told again after a while only.
    Unbound(UnboundPort),
    /// The request was not carried out.
    Refused {
        /// Why.
        why: String,
        /// The container and the attempt, when it was a start.
        start: Option<(String, u32)>,
    },
    /// Answers [`ShimRequest::Park`]: every earlier request was answered, and no report follows on this connection.
    Parked,
    /// Nothing runs any more and nothing was asked for a while: the shim ends, its record stays.
    Leaving,
    /// Nothing is left of the pod, its folder included.
    Removed,
}

/// End of a command beside a container.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum ExecOutcome {
    /// With this code.
    Exited(i32),
    /// It was killed at its deadline.
    TimedOut,
    /// It could not be started.
    Failed(String),
}

/// A moment from nanoseconds.
pub fn moment(nanoseconds: i64) -> Time {
    Time::from_nanosecond(nanoseconds.into()).unwrap_or(Time::UNIX_EPOCH)
}

/// Now, in nanoseconds.
pub fn now_nanos() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// One message as it goes over the socket.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // Nothing in these types can fail to serialize: every map has text keys.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}
