//! Everything that the start of a container needs, in one piece: so that whoever starts it asks nobody.

use super::limits::Limits;
use super::volume::Files;
use crate::object::Str;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Who a container runs as. What is not said is as the machine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// `runAsUser`.
    pub user: Option<u32>,
    /// `runAsGroup`.
    pub group: Option<u32>,
    /// `supplementalGroups`, and `fsGroup`.
    pub groups: Vec<u32>,
    /// `fsGroup`: the group of what is in its volumes.
    pub files: Option<u32>,
    /// Whether it has no other groups than these (`supplementalGroupsPolicy: Strict`).
    #[serde(default)]
    pub strict: bool,
}

/// What an Image object says of a start's image. Its variables and its view of files are in the start already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// The object's name.
    pub name: Str,
    /// Differs when the object does.
    pub state: String,
    /// The program and its first arguments; none when it does not say, empty when there is no program.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments for want of the container's own.
    pub command: Vec<String>,
    /// The folder of the object's manifest, which relative paths are relative to.
    pub folder: Option<String>,
    /// Who the container runs as, when it does not say itself.
    pub user: Option<String>,
    /// The content of its watched files; empty when it watches none.
    pub sources: Str,
    /// What has to be run once before the first start.
    pub build: Option<Build>,
}

impl Image {
    /// The state of the object and of its watched files, in one.
    pub fn tried(&self) -> String {
        format!("{} {}", self.state, self.sources)
    }
}

/// How the program of an image is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Build {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The folder to run it in.
    pub folder: Option<String>,
    /// Declared variables.
    pub env: Vec<(String, String)>,
    /// What it is made of: while this is the same, it need not be run again.
    pub inputs: String,
}

/// What a container may do beyond what its user may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rights {
    /// The capabilities that are left to it, one bit each by the kernel's numbers; all that kloop has when nothing is said.
    pub capabilities: Option<u64>,
    /// Whether nothing that it executes may have more rights than it (`allowPrivilegeEscalation: false`).
    pub no_more: bool,
}

/// Whom a container's programs mean when they ask a server at port 53: the cluster's resolver, unless something is said here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Names {
    /// The server itself, whichever it is (`dnsPolicy` Default and None).
    pub outside: bool,
    /// These servers themselves: the pod names them (`dnsConfig`).
    pub servers: Vec<Ipv4Addr>,
}

/// A variable whose value stands in a file of a volume when its container starts (`fileKeyRef`).
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
    /// Whether it may be missing.
    pub optional: bool,
}

impl FileKey {
    /// What stands for the value of the one with this number, wherever it goes: no variable or argument can hold it otherwise.
    pub fn mark(number: usize) -> String {
        format!("\0{number}\0")
    }
}

/// Whether a container that ends is started again, by its policy alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Again {
    /// It is not.
    #[default]
    Never,
    /// When its exit code is not 0.
    OnFailure,
    /// However it ended.
    Always,
}

impl Again {
    /// Whether it is after this exit code.
    pub fn follows(self, code: i32) -> bool {
        match self {
            Again::Never => false,
            Again::OnFailure => code != 0,
            Again::Always => true,
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
    /// Whether the pod is on the machine's own network, and so has its name.
    pub host_network: bool,
    /// The container's name.
    pub container: Str,
    /// The attempt.
    pub attempt: u32,
    /// The image as written.
    pub image: String,
    /// What an Image object says of it, if there is one.
    pub brought: Option<Image>,
    /// The folder that a relative image path is relative to, when the manifest's folder is known.
    pub manifest_dir: Option<String>,
    /// `command`, expanded; empty for the image's own.
    pub command: Vec<String>,
    /// `args`, expanded.
    pub args: Vec<String>,
    /// Declared environment, expanded, in order; the runtime puts its small base before it.
    pub env: Vec<(String, String)>,
    /// Variables whose values are read when it starts.
    pub file_keys: Vec<FileKey>,
    /// Its files and volumes.
    pub files: Files,
    /// Whom it asks for names.
    pub names: Names,
    /// Variables that tell where volumes are that are not mounted: the variable, and the volume's name.
    pub volume_paths: Vec<(String, String)>,
    /// `workingDir`.
    pub working_dir: Option<String>,
    /// `imagePullPolicy`.
    pub pull_policy: String,
    /// `terminationMessagePath`.
    pub termination_message_path: String,
    /// Whether the tail of the log stands in for an empty termination message on errors.
    pub termination_from_logs: bool,
    /// `stdin`.
    pub stdin: bool,
    /// `stdinOnce`.
    pub stdin_once: bool,
    /// `tty`.
    pub tty: bool,
    /// What it may use.
    pub limits: Limits,
    /// Who it runs as, when not as whoever runs kloop.
    pub user: Option<User>,
    /// What it may do.
    pub rights: Rights,
    /// Whose processes it sees.
    pub processes: Processes,
    /// Whether it is started again when it ends.
    pub again: Again,
    /// The signal that asks the container to end, `SIGTERM` unless `lifecycle.stopSignal` says otherwise.
    pub stop_signal: String,
    /// On a simulated node: how the pretended container behaves.
    pub script: Option<Script>,
}

/// How a container on a simulated node behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Seconds after which it ends with this code; none for a container that stays.
    pub exit: Option<(i64, i32)>,
}

/// Whose processes a container sees, besides what it starts itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processes {
    /// The machine's (`hostPID`, and wherever it sees the machine's files).
    #[default]
    Machine,
    /// Nobody's.
    Own,
    /// Those of the pod's other containers that share theirs (`shareProcessNamespace`).
    Shared,
    /// Those of another container (`targetContainerName` of an ephemeral one).
    Of(Str),
}
