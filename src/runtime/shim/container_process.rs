//! The process that becomes a container, or a command in one: its steps between fork and exec, and the search for its program.
//!
//! Never: makes the folders and pipes of an attempt ([`launch`](super::launch) does).

use super::super::limits::group::CgroupEntry;
use super::super::limits::processes;
use super::super::network::ListenerChannel;
use super::super::pid_namespace::PidNamespace;
use super::super::spawn::waiting::PreparedChild;
use super::super::spawn::{sharing_memory, waiting};
use super::super::wire::{LaunchRequest, MountView};
use super::super::{interpreter, pty, spawn, user, view};
use super::program_search;
use crate::object::io_error_text;
use crate::world::volume::Volume;
use rustix::process::{Pid, geteuid};
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Context of a program's start.
pub enum LaunchPlace<'a> {
    /// The machine's files.
    Here,
    /// A new private view.
    Own {
        /// Namespaces to start from.
        base_mounts: Option<&'a view::BaseMounts>,
        /// Shared memory of its pod.
        shm: Option<&'a view::PodShm>,
        /// The pod's folder.
        pod: &'a Path,
        /// The file of its termination message, and its path in the view.
        message: (&'a Path, &'a str),
        /// Its view of files.
        view: &'a MountView,
        /// The pod's volumes.
        volumes: &'a [Volume],
    },
    /// The namespaces of a running container.
    Of(view::ForeignNamespaces),
}

impl LaunchPlace<'_> {
    /// Whether a process may start there while it shares the shim's memory. Not if it enters a user namespace, which is untested; nor in
    /// the PID namespace of a container, whose processes could then read the shim's memory.
    pub fn permits_sharing_memory(&self, pid_namespace: Option<&PidNamespace>) -> bool {
        let has_namespaces = match self {
            LaunchPlace::Here => true,
            LaunchPlace::Own { base_mounts, .. } => base_mounts.is_some_and(view::BaseMounts::needs_no_user_namespace),
            LaunchPlace::Of(_) => false,
        };
        has_namespaces && geteuid().is_root() && pid_namespace.is_none_or(PidNamespace::is_new)
    }
}

/// Context of a process that starts in a container.
pub struct LaunchContext<'a> {
    /// The container's launch: user and privileges.
    pub launch: &'a LaunchRequest,
    /// Its environment.
    pub env: &'a [(String, String)],
    /// Its folder.
    pub cwd: &'a Path,
    /// Standard input, output and error.
    pub stdio: [&'a OwnedFd; 3],
    /// The terminal to open, which replaces all three.
    pub terminal: Option<pty::PtyRequest<'a>>,
    /// The control groups to enter.
    pub groups: &'a CgroupEntry,
}

impl LaunchContext<'_> {
    fn variable(&self, name: &str) -> Option<&str> {
        variable(self.env, name)
    }

    /// Whether nothing has to be done between fork and exec. An OOM score alone does not require a fork.
    pub fn is_plain(&self) -> bool {
        let LaunchRequest { user, hostname, rights, .. } = self.launch;
        let is_plain = user.is_none() && hostname.is_empty() && *rights == Default::default();
        is_plain && self.terminal.is_none() && self.groups.is_empty()
    }

    /// Whether the process may share the shim's memory. Not if it has a memory limit: the kernel's OOM killer also kills every process that
    /// shares its memory. Nor if a process can be traced after a change of its user (proc_sys_fs(5), `suid_dumpable`).
    pub fn permits_sharing_memory(&self) -> bool {
        let is_traceable = || fs::read_to_string("/proc/sys/fs/suid_dumpable").is_ok_and(|mode| mode.trim() == "1");
        !self.launch.may_be_killed_for_memory() && (self.launch.user.is_none() || !is_traceable())
    }
}

/// Returns the value of an environment variable.
pub fn variable<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Runs a command in the namespaces of a process; errors have the wording of a container runtime. With the channel of a filter listener, it
/// uses the pod's network.
pub fn run(
    argv: &[String],
    context: &LaunchContext,
    process: i32,
    channel: Option<&ListenerChannel>,
    pid_namespace: Option<&PidNamespace>,
) -> Result<i32, String> {
    let place = LaunchPlace::Of(view::ForeignNamespaces::open(process)?);
    let pid = fork(argv, context, place, channel, pid_namespace)?.start()?;
    Ok(pid.as_raw_nonzero().get())
}

/// Starts a command for which [`LaunchContext::is_plain`] holds.
pub fn spawn(argv: &[String], context: &LaunchContext) -> Result<Pid, String> {
    let program = program(argv, context, context.variable("PATH").unwrap_or_default())?;
    spawn::spawn(&program).map_err(|error| not_executed(&program, &error))
}

/// Forks a process that prepares itself and waits for its start.
pub fn fork(
    argv: &[String],
    context: &LaunchContext,
    place: LaunchPlace,
    channel: Option<&ListenerChannel>,
    pid_namespace: Option<&PidNamespace>,
) -> Result<PreparedChild, String> {
    let prepare = || {
        let program = enter(argv, context, place, channel, pid_namespace.is_some())?;
        // Looks up the interpreter now, so that exec finds it in the kernel's caches.
        let file = Path::new(OsStr::from_bytes(program.path.to_bytes()));
        let _ = interpreter::interpreter_of_program(file).map(fs::File::open);
        Ok(program)
    };
    waiting::fork(pid_namespace, prepare, not_executed)
}

/// Starts a command where [`LaunchPlace::permits_sharing_memory`]; `in_pid_namespace`: in a PID namespace of its own.
pub fn start(
    argv: &[String],
    context: &LaunchContext,
    place: LaunchPlace,
    channel: Option<&ListenerChannel>,
    in_pid_namespace: bool,
) -> Result<Pid, String> {
    sharing_memory::start(in_pid_namespace, || enter(argv, context, place, channel, in_pid_namespace), not_executed)
}

/// Turns this forked process into a process of the container, and returns the program to execute. `in_pid_namespace`: the process is in
/// another PID namespace than the shim.
fn enter<'a>(
    argv: &[String],
    context: &LaunchContext<'a>,
    place: LaunchPlace,
    channel: Option<&ListenerChannel>,
    in_pid_namespace: bool,
) -> Result<spawn::SpawnProgram<'a>, String> {
    // Before the view is entered, because it may hide the cgroup file system.
    context.groups.enter()?;
    if let Some(score) = context.launch.oom_score {
        // Only root may lower the score, so errors are ignored.
        let _ = fs::write("/proc/self/oom_score_adj", score.to_string());
    }
    let mut path = context.variable("PATH").unwrap_or_default();
    match place {
        LaunchPlace::Here => view::set_host_name(&context.launch.hostname),
        LaunchPlace::Own { base_mounts, shm, pod, message, view, volumes } => {
            let is_counted = context.launch.watched.pids.is_some();
            let processes = match in_pid_namespace {
                true => view::ViewProcesses::Own(view::count_machine_procs(view, volumes)),
                false => view::ViewProcesses::Machine,
            };
            let started = view::start_view(base_mounts, is_counted, processes, shm)?;
            let lives = [context.cwd, Path::new(context.variable("HOME").unwrap_or("/"))];
            let composed = view::compose_view(started, pod, message, lives, view, volumes)?;
            let name = context.launch.program(argv).unwrap_or_default();
            path = program_search::skip_absent(name, path, |folder| composed.may_differ(folder));
            composed.enter()?;
            view::set_host_name(&context.launch.hostname);
        }
        LaunchPlace::Of(other) => view::join(&other)?,
    }
    if context.launch.view.is_some() {
        processes::bound(context.launch.watched.pids)?;
    }
    let program = program(argv, context, path)?;
    channel.map_or(Ok(()), ListenerChannel::enter)?;
    Ok(program)
}

fn not_executed(program: &spawn::SpawnProgram, error: &io::Error) -> String {
    format!("exec {}: {}", program.path.to_string_lossy(), reason(error))
}

fn program<'a>(argv: &[String], context: &LaunchContext<'a>, path: &str) -> Result<spawn::SpawnProgram<'a>, String> {
    let LaunchContext { launch, env, cwd, stdio, terminal, .. } = *context;
    let name = launch.program(argv).ok_or("no command specified")?;
    // A volume that is mounted above the cluster's folder hides the default working folder.
    let is_hidden = cwd.ends_with(Path::new(&launch.container).join("scratch")) && !cwd.is_dir();
    let cwd = if is_hidden { Path::new("/") } else { cwd };
    check_cwd(cwd)?;
    // A volume may hide the shell that was found on the machine; then the name in the command is searched again.
    let written = argv.first().map_or(name, String::as_str);
    let found = program_search::find(name, path, cwd).or_else(|_| program_search::find(written, path, cwd));
    // A program that the machine lacks can be an applet of BusyBox.
    let file = found.or_else(|missing| {
        let busybox = launch.busybox_for_applet(written).ok_or_else(|| missing.clone())?;
        program_search::find(busybox, path, cwd).map_err(|_| missing)
    })?;
    let terminal = terminal.map(|request| pty::open(request, launch.user.as_ref())).transpose()?;
    let text = |text: &str| CString::new(text).map_err(|_| format!("exec: {name:?}: an argument holds a zero byte"));
    Ok(spawn::SpawnProgram {
        path: text(&file.to_string_lossy())?,
        argv: argv.iter().map(|part| text(part)).collect::<Result<_, _>>()?,
        env: env.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect::<Result<_, _>>()?,
        cwd: text(&cwd.to_string_lossy())?,
        stdio: stdio.map(|fd| fd.as_fd()),
        terminal,
        identity: launch.user.as_ref().map(user::identity),
        rights: launch.rights.clone(),
    })
}

/// Whether a program may be started in a folder at all.
fn check_cwd(cwd: &Path) -> Result<(), String> {
    let why = match fs::metadata(cwd) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "not a directory",
        Err(error) => match error.kind() {
            io::ErrorKind::NotADirectory => "not a directory",
            io::ErrorKind::PermissionDenied => "permission denied",
            _ => "no such file or directory",
        },
    };
    Err(format!("chdir to cwd ({:?}) failed: {why}", cwd.display()))
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOEXEC) => "exec format error".into(),
        Some(libc::ENOENT) => "no such file or directory (the interpreter that it names is missing)".into(),
        Some(libc::EACCES) => "permission denied".into(),
        Some(libc::E2BIG) => "argument list too long".into(),
        Some(libc::ETXTBSY) => "text file busy".into(),
        Some(libc::EAGAIN) => "resource temporarily unavailable".into(),
        _ => io_error_text(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_folder_that_is_none_is_told_from_one_that_is_not_there() {
        let table = [
            ("/", None),
            ("/no/such", Some("chdir to cwd (\"/no/such\") failed: no such file or directory")),
            ("/etc/passwd", Some("chdir to cwd (\"/etc/passwd\") failed: not a directory")),
            ("/etc/passwd/x", Some("chdir to cwd (\"/etc/passwd/x\") failed: not a directory")),
        ];
        for (cwd, error) in table {
            assert_eq!(check_cwd(Path::new(cwd)).err().as_deref(), error, "{cwd}");
        }
    }
}
