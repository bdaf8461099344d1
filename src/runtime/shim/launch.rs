//! Turns a launch request into an attempt: creates its folders, pipes and groups, prepares its process, starts it.
//!
//! [`container_process`] is the part that runs in the process itself.

use super::super::limits::group::{self, CgroupEntry};
use super::super::network::ListenerChannel;
use super::super::pid_namespace::PidNamespace;
use super::super::process::ProcessIdentity;
use super::super::spawn::waiting::PreparedChild;
use super::super::wire::{LaunchRequest, now_nanos};
use super::super::{folder, process, user, view, volumes};
use super::attach::StdinPipe;
use super::container_process::{self, LaunchContext, LaunchPlace};
use super::log::{AttemptLog, OutputStream};
use super::stdio::StdioPipes;
use super::variables;
use crate::object::io_error_text;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};

/// A started attempt.
pub struct StartedAttempt {
    /// The launch request with generated values.
    pub launch: LaunchRequest,
    /// Its main process.
    pub process: ProcessIdentity,
    /// Start of the main process.
    pub since: i64,
    /// Its outputs.
    pub streams: Vec<OutputStream>,
    /// Destination of its output.
    pub log: AttemptLog,
    /// The writing end of its standard input, when that stays open.
    pub stdin: Option<StdinPipe>,
    /// Channel for the listener that filters its connections.
    pub channel: Option<ListenerChannel>,
}

/// Why an attempt was not started.
pub struct LaunchRefusal {
    /// The reason in one word.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl From<String> for LaunchRefusal {
    fn from(message: String) -> LaunchRefusal {
        LaunchRefusal { reason: "StartError", message }
    }
}

/// An attempt with its files, pipes and groups.
pub struct PreparedAttempt {
    launch: LaunchRequest,
    stdio_pipes: StdioPipes,
    groups: CgroupEntry,
    channel: Option<ListenerChannel>,
    process: AttemptProcess,
}

/// The process of an attempt.
enum AttemptProcess {
    /// The process is forked at the start, because nothing has to be done between fork and exec.
    Unforked,
    /// The process waits to execute its program.
    Waiting(PreparedChild),
    /// The process has executed its program.
    Started(Pid, BegunAttempt),
}

impl AttemptProcess {
    /// Prepares the process; also starts its program where `exec` permits it and that is cheaper.
    fn prepare(
        context: &LaunchContext,
        place: LaunchPlace,
        channel: Option<&ListenerChannel>,
        pid_namespace: Option<&PidNamespace>,
        exec: ExecTime,
    ) -> Result<AttemptProcess, String> {
        let argv = &context.launch.argv;
        let is_here = matches!(place, LaunchPlace::Here);
        if is_here && channel.is_none() && context.is_plain() && process::has_pidfds() {
            return Ok(AttemptProcess::Unforked);
        }
        let may_share = place.permits_sharing_memory(pid_namespace) && context.permits_sharing_memory();
        if exec == ExecTime::AtLaunch || !may_share {
            return container_process::fork(argv, context, place, channel, pid_namespace).map(AttemptProcess::Waiting);
        }
        let begun = BegunAttempt::begin(context.launch);
        let pid = container_process::start(argv, context, place, channel, pid_namespace.is_some())?;
        Ok(AttemptProcess::Started(pid, begun))
    }
}

/// An attempt whose program may have run: it has a log.
struct BegunAttempt {
    /// Start of the attempt.
    since: i64,
    /// Destination of its output.
    log: AttemptLog,
}

impl BegunAttempt {
    /// Makes its log. A log without a record means that the attempt may have run.
    fn begin(launch: &LaunchRequest) -> BegunAttempt {
        remove_older_logs(launch);
        let since = now_nanos();
        let mut log = AttemptLog::new(folder::log_path(&launch.container, launch.attempt));
        log.create();
        let _ = fs::remove_file(folder::built_mark_path(&launch.container, launch.attempt));
        BegunAttempt { since, log }
    }
}

/// When the program of an attempt is executed.
#[derive(Clone, Copy, PartialEq)]
pub enum ExecTime {
    /// As soon as its process is prepared, where that is cheaper.
    MayBeNow,
    /// At [`PreparedAttempt::launch`].
    AtLaunch,
}

/// Prepares an attempt in a pod's folder, which is also the working folder of this process. Its volumes exist already. With the channel of
/// a filter listener, it uses the pod's network.
pub fn prepare(
    pod: &Path,
    mut launch: LaunchRequest,
    base_mounts: &mut view::base_mounts::BaseMountsState,
    shm: &mut Option<view::PodShm>,
    channel: Option<ListenerChannel>,
    pid_namespace: Option<&PidNamespace>,
    exec: ExecTime,
) -> Result<PreparedAttempt, LaunchRefusal> {
    variables::fill(pod, &mut launch)
        .map_err(|message| LaunchRefusal { reason: "CreateContainerConfigError", message })?;
    add_volume_paths(pod, &mut launch);
    let own = Path::new(&launch.container);
    folder::private_folder(own).map_err(|error| format!("{error:#}"))?;
    let message = pod.join(folder::message_path(&launch.container, launch.attempt));
    launch.env.push((folder::TERMINATION_LOG.into(), message.to_string_lossy().into_owned()));
    let is_scratch = launch.cwd.is_none();
    let cwd = match &launch.cwd {
        Some(cwd) => PathBuf::from(cwd),
        None => {
            make_scratch(&own.join("scratch"))?;
            pod.join(own).join("scratch")
        }
    };
    launch.cwd = Some(cwd.to_string_lossy().into_owned());
    if launch.tty {
        add_term(&mut launch.env);
    }
    let stdio_pipes = StdioPipes::create(launch.tty, launch.stdin)
        .map_err(|error| format!("cannot make a pipe: {error}", error = io_error_text(error)))?;
    let place = match &launch.view {
        Some(view) => {
            view::check_mounts(pod, view, &launch.volumes)
                .map_err(|message| LaunchRefusal { reason: "CreateContainerConfigError", message })?;
            folder::make_file(&message, 0o644)
                .map_err(|error| format!("cannot make {}: {error}", message.display(), error = io_error_text(error)))?;
            let message = (&*message, &*launch.message_path);
            let has_volume = view.mounts.iter().any(|mount| mount.path.trim_end_matches('/') == view::SHM);
            let shm = if has_volume { None } else { view::PodShm::find_or_create(shm, pod, base_mounts) };
            // Volumes in memory are visible only to this process and its children.
            let base_mounts = if launch.has_memory() { None } else { base_mounts.current() };
            LaunchPlace::Own { base_mounts, shm, pod, message, view, volumes: &launch.volumes }
        }
        None => LaunchPlace::Here,
    };
    if let Some(user) = &launch.user {
        user::hand_over_folders(user, &message, is_scratch.then_some(&*cwd), pod, &launch.volumes)?;
        stdio_pipes.change_owner(&user::identity(user));
    }
    let groups = group::create_groups(&launch.groups)?;
    let context = launch_context(&launch, &stdio_pipes, &groups);
    let process = AttemptProcess::prepare(&context, place, channel.as_ref(), pid_namespace, exec)?;
    // Volume contents may be secret, and large.
    launch.volumes.clear();
    Ok(PreparedAttempt { launch, stdio_pipes, groups, channel, process })
}

fn launch_context<'a>(
    launch: &'a LaunchRequest,
    stdio_pipes: &'a StdioPipes,
    groups: &'a CgroupEntry,
) -> LaunchContext<'a> {
    let (stdio, terminal) = (stdio_pipes.container_ends(), stdio_pipes.terminal());
    LaunchContext { launch, env: &launch.env, cwd: folder_of(launch), stdio, terminal, groups }
}

/// Returns the folder in which processes of a container start.
pub fn folder_of(launch: &LaunchRequest) -> &Path {
    Path::new(launch.cwd.as_deref().unwrap_or("/"))
}

impl PreparedAttempt {
    /// Returns the pid of its process, if it exists already.
    pub fn pid(&self) -> Option<i32> {
        let pid = match &self.process {
            AttemptProcess::Unforked => return None,
            AttemptProcess::Waiting(process) => process.pid(),
            AttemptProcess::Started(pid, _) => *pid,
        };
        Some(pid.as_raw_nonzero().get())
    }

    /// Starts the program, unless it runs already.
    pub fn launch(self) -> Result<StartedAttempt, LaunchRefusal> {
        let PreparedAttempt { launch, stdio_pipes, groups, channel, process } = self;
        let (pid, BegunAttempt { since, log }) = match process {
            AttemptProcess::Unforked => {
                let begun = BegunAttempt::begin(&launch);
                (container_process::spawn(&launch.argv, &launch_context(&launch, &stdio_pipes, &groups))?, begun)
            }
            AttemptProcess::Waiting(waiting) => {
                let begun = BegunAttempt::begin(&launch);
                (waiting.start()?, begun)
            }
            AttemptProcess::Started(pid, begun) => (pid, begun),
        };
        let connect = || -> Result<_, String> {
            let process =
                ProcessIdentity::from_pid(pid.as_raw_nonzero().get()).ok_or("the process cannot be seen in /proc")?;
            let (streams, stdin) = stdio_pipes
                .into_own_ends(launch.stdin)
                .map_err(|error| format!("cannot use its pipes: {error}", error = io_error_text(error)))?;
            Ok((process, streams, stdin))
        };
        // On an error the process is killed, because it has no record.
        let (process, streams, stdin) =
            connect().inspect_err(|_| kill_process(pid, Signal::KILL).unwrap_or_default())?;
        Ok(StartedAttempt { launch, process, since, streams, log, stdin, channel })
    }
}

/// Default `TERM` of container runtimes.
pub fn add_term(env: &mut Vec<(String, String)>) {
    if env.iter().all(|(name, _)| name != "TERM") {
        env.push(("TERM".into(), "xterm".into()));
    }
}

/// Makes the default working folder of a container. An earlier attempt may have changed its owner to the container's user.
fn make_scratch(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() && rustix::process::geteuid().is_root() => Ok(()),
        _ => folder::private_folder(path).map_err(|error| format!("{error:#}")),
    }
}

/// Adds variables with the paths of volumes that are not mounted, unless the container declares them itself.
fn add_volume_paths(pod: &Path, launch: &mut LaunchRequest) {
    for (variable, name) in std::mem::take(&mut launch.volume_paths) {
        if launch.env.iter().all(|(known, _)| *known != variable) {
            let path = volumes::root_of(pod, &name, &launch.volumes);
            launch.env.push((variable, path.to_string_lossy().into_owned()));
        }
    }
}

/// Removes logs and messages of all attempts before the previous one, which `logs --previous` shows.
fn remove_older_logs(launch: &LaunchRequest) {
    if let Some(older) = launch.attempt.checked_sub(2) {
        super::log::remove_log(&folder::log_path(&launch.container, older));
        let _ = fs::remove_file(folder::message_path(&launch.container, older));
    }
}
