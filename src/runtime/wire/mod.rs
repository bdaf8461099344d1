//! The protocol between the control plane and a shim, and the shim's record on disk.
//!
//! One JSON document a line, in both directions, over the shim's Unix socket. A connection first says [`ShimRequest::Hello`];
//! from then on it gets [`ShimAnswer::State`] once and every change after. Times are nanoseconds since 1970.

mod record;

use crate::object::Time;
use crate::world::ingress_routes::BindReport;
use crate::world::limits::Limits;
use crate::world::policy::DeniedConnection;
use crate::world::start::{DnsTarget, FileKey};
use crate::world::volume::{Volume, VolumeContent, VolumeMountPoint};
use crate::world::{ContainerUser, ProcessNamespace, ProcessRights, RestartDecision, Start};
pub use record::{ContainerRecord, RecordedEnd, RecordedState, RecordedStop, ShimRecord};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the types in this module. Shims outlive the program that started them: raise it when a shim and a control plane of
/// different versions could no longer understand each other. A shim of another version is ended with its pod's processes, which start
/// again.
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
    /// Changes the limits of a running container.
    Limit {
        /// The container.
        container: String,
        /// The attempt.
        attempt: u32,
        /// The groups of the container and its pod.
        groups: Vec<ControlGroup>,
        /// Limits that the groups do not enforce.
        #[serde(default)]
        watched: SoftBounds,
        /// The limits, returned with the answer.
        limits: Box<Limits>,
    },
    /// Runs a command in a running container.
    Exec(Box<ExecRequest>),
    /// Runs a command in a running container, for any client. Its standard input, output and error are passed as descriptors with this
    /// request, or else a socket to which the master side of its terminal is sent. It is killed when the client disconnects. Answered by
    /// [`ShimAnswer::ExecDone`].
    Session(SessionRequest),
    /// Attaches to a running container's streams, for any client. Three pipes are passed as descriptors with this request: one for the
    /// container's input, two for its outputs. Answered by [`ShimAnswer::Attached`], and in the end by [`ShimAnswer::Detached`].
    Attach(AttachRequest),
    /// Sets the size of a container's terminal; from an attached client.
    Resize(TerminalSize),
    /// Checks that the shim is alive before descriptors are sent, for any client. Answered by [`ShimAnswer::Pong`].
    Ping,
    /// Brings the content of volumes up to date.
    Refresh(Vec<Volume>),
    /// Ends the reports on this connection, so that the control plane can close it to save a descriptor. Answered by
    /// [`ShimAnswer::Parked`]. Until the next [`ShimRequest::Hello`] the shim announces each change by a datagram with its pod's uid, to
    /// the socket of this name in the state folder.
    Park {
        /// The name of the socket.
        socket: String,
    },
    /// Kills all processes, deletes the pod's folder and ends the shim.
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
    /// Whether connections to Services are directed although the pod is on the machine's network.
    pub uses_services: bool,
}

impl From<&Start> for PodName {
    fn from(start: &Start) -> PodName {
        PodName {
            uid: start.pod_uid.to_string(),
            namespace: start.namespace.to_string(),
            name: start.pod.to_string(),
            node: start.node.to_string(),
            ip: start.ip.to_string(),
            uses_services: start.uses_services,
        }
    }
}

/// A request to start one attempt.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct LaunchRequest {
    /// The container.
    pub container: String,
    /// The attempt.
    pub attempt: u32,
    /// Program and arguments; a program without a slash is searched on the PATH of `env`.
    pub argv: Vec<String>,
    /// The file that runs when a command of this container names a shell ([`LaunchRequest::program`]); `None` for the machine's `sh`.
    #[serde(default)]
    pub shell: Option<String>,
    /// The complete environment.
    pub env: Vec<(String, String)>,
    /// Variables whose values are in files of volumes.
    #[serde(default)]
    pub file_keys: Vec<FileKey>,
    /// The folder to start in; `None` for the container's own scratch folder.
    pub cwd: Option<String>,
    /// The pod's volumes, which are set up before the start.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// The container's private view of files; `None` when it sees the machine's files.
    #[serde(default)]
    pub view: Option<MountView>,
    /// Variables with the paths of volumes that are not mounted: the variable, and the volume's name.
    #[serde(default)]
    pub volume_paths: Vec<(String, String)>,
    /// User to run as, when different from the shim's.
    #[serde(default)]
    pub user: Option<ContainerUser>,
    /// The control groups of the container and its pod, parents first.
    #[serde(default)]
    pub groups: Vec<ControlGroup>,
    /// Limits that the groups do not enforce.
    #[serde(default)]
    pub watched: SoftBounds,
    /// Kernel preference for killing it when the machine runs out of memory.
    #[serde(default)]
    pub oom_score: Option<i32>,
    /// The privileges of the program.
    #[serde(default)]
    pub rights: ProcessRights,
    /// The DNS server of the container.
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
    /// Whether standard input is closed when the first attached client has disconnected.
    #[serde(default)]
    pub stdin_once: bool,
    /// Whether standard input, output and error are a terminal.
    #[serde(default)]
    pub tty: bool,
    /// The state of its Image object and of the files that this watches; empty without one.
    #[serde(default)]
    pub image: String,
    /// Whether another attempt is likely to follow this one.
    #[serde(default)]
    pub again: RestartDecision,
    /// The stop signal.
    pub stop_signal: i32,
    /// Path of the termination message in a private view.
    #[serde(default)]
    pub message_path: String,
    /// Whether the end of the log replaces an empty termination message after an error (`FallbackToLogsOnError`).
    pub message_from_logs: bool,
}

/// Names under which commands ask for the shell of BusyBox.
const SHELLS: [&str; 4] = ["sh", "/bin/sh", "ash", "/bin/ash"];
/// File name of BusyBox, which runs the applet under whose name it is started.
const BUSYBOX: &str = "busybox";
/// Applets of BusyBox that containers run as their command, and that machines often lack as programs of their own.
const APPLETS: [&str; 28] = [
    "arping",
    "bc",
    "brctl",
    "crond",
    "crontab",
    "dc",
    "dos2unix",
    "ftpget",
    "ftpput",
    "httpd",
    "ipcalc",
    "killall",
    "nc",
    "netstat",
    "nslookup",
    "ping",
    "ping6",
    "sysctl",
    "telnet",
    "telnetd",
    "tftp",
    "traceroute",
    "traceroute6",
    "unix2dos",
    "unzip",
    "usleep",
    "vi",
    "wget",
];
/// Folders in which the image of BusyBox has its applets.
const APPLET_FOLDERS: [&str; 4] = ["/bin", "/sbin", "/usr/bin", "/usr/sbin"];

impl LaunchRequest {
    /// Returns the name or path of the program that a command in this container runs: its first word, or the container's own shell.
    pub fn program<'a>(&'a self, argv: &'a [String]) -> Option<&'a str> {
        let name = argv.first()?.as_str();
        self.shell.as_deref().filter(|_| SHELLS.contains(&name)).or(Some(name))
    }

    /// Returns BusyBox when it is the shell of this container and the name or path of a program is one of its applets.
    pub fn busybox_for_applet(&self, name: &str) -> Option<&str> {
        let busybox = self.shell.as_deref().filter(|file| Path::new(file).ends_with(BUSYBOX))?;
        let (folder, applet) = name.rsplit_once('/').map_or((None, name), |(folder, applet)| (Some(folder), applet));
        let is_applet = APPLETS.contains(&applet) && folder.is_none_or(|folder| APPLET_FOLDERS.contains(&folder));
        is_applet.then_some(busybox)
    }

    /// Whether a volume of its pod is in memory.
    pub fn has_memory(&self) -> bool {
        self.volumes.iter().any(|volume| matches!(volume.source, VolumeContent::Memory { .. }))
    }

    /// Whether its memory is limited.
    pub fn has_memory_bound(&self) -> bool {
        self.watched.memory.is_some() || self.groups.iter().any(|group| group.oom.is_some())
    }

    /// Whether the kernel may kill its processes for a memory limit, its own or its pod's.
    pub fn may_be_killed_for_memory(&self) -> bool {
        let mut files = self.groups.iter().flat_map(|group| &group.files);
        self.has_memory_bound() || files.any(|file| file.name.starts_with("memory."))
    }
}

/// Limits that no control group enforces: the shim measures usage and kills a container that exceeds them.
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

/// A control group: a folder of the cgroup file system, and the files to write in it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ControlGroup {
    /// Its folder.
    pub folder: String,
    /// Its files. Keeps its earlier name in messages to running shims.
    #[serde(rename = "knobs")]
    pub files: Vec<ControlGroupFile>,
    /// The file for adding processes; `None` when the group only has child groups.
    #[serde(rename = "ingress_route")]
    pub procs_file: Option<String>,
    /// The file that counts processes killed for lack of memory.
    pub oom: Option<String>,
}

/// A file of a control group and its content.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ControlGroupFile {
    /// The name of the file.
    #[serde(rename = "file")]
    pub name: String,
    /// Its content.
    pub value: String,
    /// Whether the kernel may refuse it.
    pub optional: bool,
}

impl ControlGroupFile {
    /// Makes a required setting.
    pub fn required(name: &str, value: &str) -> ControlGroupFile {
        ControlGroupFile { name: name.into(), value: value.into(), optional: false }
    }

    /// Makes a setting that not every kernel has.
    pub fn optional(name: &str, value: &str) -> ControlGroupFile {
        ControlGroupFile { optional: true, ..ControlGroupFile::required(name, value) }
    }
}

/// View of files, when different from the machine's.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct MountView {
    /// Mounts of the pod's volumes.
    pub mounts: Vec<VolumeMountPoint>,
    /// Folders of the machine that the container sees, and changes, as they are.
    pub own: Vec<String>,
    /// New folders, empty at first.
    #[serde(default, rename = "fresh")]
    pub new_folders: Vec<String>,
    /// User and group that own the new folders, when not the shim's.
    #[serde(default, rename = "fresh_owner")]
    pub new_folders_owner: Option<(u32, u32)>,
    /// Paths of the machine's `/tmp` and `/dev/shm` that are visible in the container's own.
    #[serde(default)]
    pub shown: Vec<String>,
    /// Whether only the container's volumes are writable.
    #[serde(default)]
    pub read_only: bool,
}

/// A command to run in a container.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct ExecRequest {
    /// A number that the client chooses, returned with the answer.
    pub id: u64,
    /// The container.
    pub container: String,
    /// The attempt.
    pub attempt: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Milliseconds after which the command is killed.
    pub timeout: u64,
    /// Whether processes that the command has started may continue after it has exited: a postStart hook may start a server that the
    /// container needs.
    #[serde(default)]
    pub keeps_leftovers: bool,
}

/// A command that a client runs in a container.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct SessionRequest {
    /// The container.
    pub container: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Whether the command gets a controlling terminal.
    pub terminal: bool,
    /// The size of that terminal.
    #[serde(default)]
    pub size: TerminalSize,
}

/// An attachment to a container.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct AttachRequest {
    /// The container.
    pub container: String,
    /// Whether the container reads the client's input.
    pub stdin: bool,
    /// Whether the client gets earlier output first.
    pub replay: bool,
}

/// The size of a terminal; all zero when it is unknown.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Answers and reports of a shim.
#[derive(Serialize, Deserialize, Clone)]
pub enum ShimAnswer {
    /// The complete record.
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
        /// The client's number; 0 for a session.
        id: u64,
        /// End of the command.
        outcome: ExecOutcome,
        /// Output of the command, at most 10 KiB.
        output: String,
    },
    /// Answers [`ShimRequest::Ping`].
    Pong,
    /// From now on the container's output is passed on.
    Attached,
    /// The container has ended, or passing on ended for another reason. All output until then was passed on.
    Detached,
    /// The limits of a container have changed, or could not be changed.
    Limited {
        /// The container.
        container: String,
        /// The attempt.
        attempt: u32,
        /// The requested limits.
        limits: Box<Limits>,
        /// Error, if the limits could not be changed.
        error: Option<String>,
    },
    /// The content of some volumes could not be updated; the others have theirs.
    NotRefreshed {
        /// The first volume that failed, and why.
        error: String,
    },
    /// Policies denied a connection of the pod; the same one is reported again only after a while.
    Denied(DeniedConnection),
    /// A program of the pod could not bind a port, or bound another one instead; the shim repeats an equal report only after a while. The
    /// name in JSON is older than the moved ports: an older control plane reads a moved port as one that could not be bound.
    #[serde(rename = "Unbound")]
    Bind(BindReport),
    /// The request was not carried out.
    Refused {
        /// Reason of the refusal.
        why: String,
        /// The container and the attempt of a refused start.
        start: Option<(String, u32)>,
    },
    /// Answers [`ShimRequest::Park`]: every earlier request was answered, and no report follows on this connection.
    Parked,
    /// No process runs and no request has arrived for a while: the shim exits, its record stays.
    Leaving,
    /// The pod and its folder are completely removed.
    Removed,
}

/// End of a command in a container.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum ExecOutcome {
    /// Exit code.
    Exited(i32),
    /// The command was killed at its deadline.
    TimedOut,
    /// Error of a command that could not be started.
    Failed(String),
}

/// Converts nanoseconds since 1970.
pub fn moment(nanoseconds: i64) -> Time {
    Time::from_nanosecond(nanoseconds.into()).unwrap_or(Time::UNIX_EPOCH)
}

/// Returns the current time in nanoseconds since 1970.
pub fn now_nanos() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Serializes one message as a line.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // Serialization of these types cannot fail: every map has text keys.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_name_a_shell_run_the_shell_of_the_container() {
        let program = |shell: Option<&str>, word: &str| {
            let launch = LaunchRequest { shell: shell.map(str::to_owned), ..LaunchRequest::default() };
            launch.program(&[word.to_owned()]).map(str::to_owned)
        };
        for (word, run) in [("sh", "/bin/busybox"), ("/bin/ash", "/bin/busybox"), ("./sh", "./sh"), ("bash", "bash")] {
            assert_eq!(program(Some("/bin/busybox"), word).as_deref(), Some(run));
            assert_eq!(program(None, word).as_deref(), Some(word));
        }
        assert_eq!(LaunchRequest::default().program(&[]), None);
    }

    #[test]
    fn applets_are_those_of_a_container_with_busybox() {
        let busybox = |shell: &str, name: &str| {
            let launch = LaunchRequest { shell: Some(shell.to_owned()), ..LaunchRequest::default() };
            launch.busybox_for_applet(name).is_some()
        };
        let table = [
            ("httpd", true),
            ("/bin/httpd", true),
            ("/usr/sbin/httpd", true),
            ("/app/httpd", false),
            ("bin/httpd", false),
            ("server", false),
            ("", false),
        ];
        for (name, is_applet) in table {
            assert_eq!(busybox("/usr/bin/busybox", name), is_applet, "{name}");
            assert!(!busybox("/usr/bin/bash", name), "{name}");
        }
        assert_eq!(LaunchRequest::default().busybox_for_applet("httpd"), None);
    }
}
