//! Complete input for starting a container, so that the runtime needs no further lookups.

use super::limits::Limits;
use super::volume::ContainerFiles;
use crate::object::Str;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// The user that a container runs as. Absent values are those of the machine's user database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUser {
    /// `runAsUser`.
    pub user: Option<u32>,
    /// `runAsGroup`.
    pub group: Option<u32>,
    /// `supplementalGroups`, and `fsGroup`.
    pub groups: Vec<u32>,
    /// `fsGroup`: the group of the files in its volumes.
    pub files: Option<u32>,
    /// Whether the container has only these groups (`supplementalGroupsPolicy: Strict`).
    #[serde(default)]
    pub strict: bool,
}

/// Settings from the Image object or the recipe. Its variables and its view of files are already part of the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartImage {
    /// The object's name.
    pub name: Str,
    /// Whether it is a recipe that is compiled in, and no object.
    pub is_recipe: bool,
    /// Names of the program. The first name that is found replaces the first word of a command if that word is another of these names.
    pub programs: Vec<String>,
    /// Folders in which programs are looked for before those of PATH; with `*` for any text within a name.
    pub path: Vec<String>,
    /// The Debian package that the program is in; empty when it is not said.
    pub package: String,
    /// Folders that the container has for itself, empty at first.
    pub volumes: Vec<String>,
    /// Differs when the object does.
    pub state: String,
    /// The program and its first arguments; none when it does not say, empty when there is no program.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments for want of the container's own.
    pub command: Vec<String>,
    /// The folder of the object's manifest, which relative paths are relative to.
    pub folder: Option<String>,
    /// User of the container, unless the pod sets one.
    pub user: Option<String>,
    /// The content of its watched files; empty when it watches none.
    pub sources: Str,
    /// Command to run once before the first start.
    pub build: Option<BuildCommand>,
}

impl StartImage {
    /// The state of the object and of its watched files, in one.
    pub fn tried(&self) -> String {
        format!("{} {}", self.state, self.sources)
    }
}

/// Build of an image's program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildCommand {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The folder to run it in.
    pub folder: Option<String>,
    /// Declared variables.
    pub env: Vec<(String, String)>,
    /// Digest of the build's inputs: while it is unchanged, the build is not repeated.
    pub inputs: String,
}

/// Privileges of a container's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessRights {
    /// Remaining capabilities, one bit per kernel capability number; `None` keeps all that kloop has.
    pub capabilities: Option<u64>,
    /// Whether executed programs are denied additional privileges (`allowPrivilegeEscalation: false`).
    pub no_more: bool,
}

/// DNS server for the container's queries to port 53; the cluster's resolver by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DnsTarget {
    /// The server that the program asks, without redirection (`dnsPolicy` Default and None).
    pub outside: bool,
    /// These servers themselves: the pod names them (`dnsConfig`).
    pub servers: Vec<Ipv4Addr>,
}

/// A variable whose value is read from a file of a volume when its container starts (`fileKeyRef`, KEP-3721).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileKey {
    /// The variable.
    pub variable: String,
    /// The volume.
    pub volume: Str,
    /// The file in it.
    pub path: String,
    /// Its name there.
    pub key: String,
    /// Whether the file or key may be missing.
    pub optional: bool,
}

impl FileKey {
    /// Placeholder for the value of the variable with this number; no variable or argument can contain it otherwise.
    pub fn mark(number: usize) -> String {
        format!("\0{number}\0")
    }
}

/// Restart decision for an ended container, by its restart policy alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartDecision {
    /// The container is not restarted.
    #[default]
    Never,
    /// The container is restarted when its exit code is not 0.
    OnFailure,
    /// The container is restarted after any exit.
    Always,
}

impl RestartDecision {
    /// Whether the container restarts after this exit code.
    pub fn follows(self, code: i32) -> bool {
        match self {
            RestartDecision::Never => false,
            RestartDecision::OnFailure => code != 0,
            RestartDecision::Always => true,
        }
    }
}

/// Everything that a start needs; resolved by kubelet as far as it can without looking at the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Start {
    /// The pod's uid.
    pub pod_uid: Str,
    /// The pod's namespace.
    pub namespace: Str,
    /// The pod's name.
    pub pod: Str,
    /// The node.
    pub node: Str,
    /// The pod's address.
    pub ip: Str,
    /// `spec.hostname`, or the pod's name.
    pub hostname: Str,
    /// Whether the pod uses the machine's network, and so the machine's host name.
    pub host_network: bool,
    /// Whether connections to Services and to pods of other machines are directed although the pod is on the machine's network.
    pub uses_services: bool,
    /// The container's name.
    pub container: Str,
    /// The attempt.
    pub attempt: u32,
    /// The image as written.
    pub image: String,
    /// Settings of the matching Image object, if any.
    pub requested_image: Option<StartImage>,
    /// The folder that a relative image path is relative to, when the manifest's folder is known.
    pub manifest_dir: Option<String>,
    /// `command`, expanded; empty for the image's own.
    pub command: Vec<String>,
    /// `args`, expanded.
    pub args: Vec<String>,
    /// Declared environment, expanded, in order; the runtime puts its small base before it.
    pub env: Vec<(String, String)>,
    /// Variables whose values are read from files at the start.
    pub file_keys: Vec<FileKey>,
    /// Its files and volumes.
    pub files: ContainerFiles,
    /// DNS server to ask.
    pub names: DnsTarget,
    /// Variables with the paths of volumes that are not mounted: the variable, and the volume's name.
    pub volume_paths: Vec<(String, String)>,
    /// `workingDir`.
    pub working_dir: Option<String>,
    /// `imagePullPolicy`.
    pub pull_policy: String,
    /// `terminationMessagePath`.
    pub termination_message_path: String,
    /// Whether the end of the log replaces an empty termination message after an error.
    pub termination_from_logs: bool,
    /// `stdin`.
    pub stdin: bool,
    /// `stdinOnce`.
    pub stdin_once: bool,
    /// `tty`.
    pub tty: bool,
    /// Resource limits.
    pub limits: Limits,
    /// User to run as, when different from the user that runs kloop.
    pub user: Option<ContainerUser>,
    /// Privileges.
    pub rights: ProcessRights,
    /// Visible processes.
    pub processes: ProcessNamespace,
    /// Restart decision when it ends.
    pub again: RestartDecision,
    /// The signal that asks the container to end, `SIGTERM` unless `lifecycle.stopSignal` says otherwise.
    pub stop_signal: String,
    /// The behaviour of a container on a simulated node.
    pub script: Option<SimulatedScript>,
}

/// Behaviour of a container on a simulated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedScript {
    /// Seconds after which it ends with this code; none for a container that stays.
    pub exit: Option<(i64, i32)>,
}

/// Processes that a container can see besides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessNamespace {
    /// The machine's (`hostPID`, and wherever it sees the machine's files).
    #[default]
    Machine,
    /// Only the container's own processes: it has its own PID namespace.
    Own,
    /// The processes of all containers of the pod that share them (`shareProcessNamespace`).
    Shared,
    /// The processes of this other container (`targetContainerName` of an ephemeral container).
    Of(Str),
}
