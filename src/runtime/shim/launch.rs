//! Turns a launch request into a process: finds the program, creates the pipes, prepares the process, starts it.

use super::super::image::programs::may_execute;
use super::super::limits::group::{self, CgroupEntry};
use super::super::limits::processes;
use super::super::network::ListenerChannel;
use super::super::pid_namespace::PidNamespace;
use super::super::process::ProcessIdentity;
use super::super::wire::{LaunchRequest, MountView, now_nanos};
use super::super::{folder, interpreter, process, pty, spawn, user, view, volumes};
use super::attach::StdinPipe;
use super::log::{AttemptLog, OutputStream};
use super::stdio::StdioPipes;
use super::variables;
use crate::object::io_error_text;
use crate::world::volume::Volume;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A started attempt.
pub struct StartedAttempt {
    /// The launch request with generated values.
    pub launch: LaunchRequest,
    /// Its main process.
    pub process: ProcessIdentity,
    /// When it was started.
    pub since: i64,
    /// Its outputs.
    pub streams: Vec<OutputStream>,
    /// Destination of its output.
    pub log: AttemptLog,
    /// The writing end of its standard input, when that stays open.
    pub stdin: Option<StdinPipe>,
    /// Channel for the listener that filters its connections.
    pub gate: Option<ListenerChannel>,
}

/// Why an attempt was not started.
pub struct LaunchRefusal {
    /// One word.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl From<String> for LaunchRefusal {
    fn from(message: String) -> LaunchRefusal {
        LaunchRefusal { reason: "StartError", message }
    }
}

/// Context of a program's start.
enum LaunchPlace<'a> {
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
    /// The control groups that it enters.
    pub groups: &'a CgroupEntry,
}

impl LaunchContext<'_> {
    fn variable(&self, name: &str) -> Option<&str> {
        variable(self.env, name)
    }

    /// Whether nothing has to be done between fork and exec. An OOM score alone does not require a fork.
    fn is_plain(&self) -> bool {
        let LaunchRequest { user, hostname, rights, .. } = self.launch;
        let is_plain = user.is_none() && hostname.is_empty() && *rights == Default::default();
        is_plain && self.terminal.is_none() && self.groups.is_empty()
    }
}

/// An attempt whose process has its files, pipes and groups, and waits to execute its program.
pub struct PreparedAttempt {
    launch: LaunchRequest,
    stdio_pipes: StdioPipes,
    groups: CgroupEntry,
    gate: Option<ListenerChannel>,
    /// `None` when nothing has to be done between fork and exec; the process is then forked at the start.
    process: Option<spawn::PreparedChild>,
}

/// Prepares an attempt in a pod's folder, which is also the working folder of this process. Its volumes exist already. With a gate, it
/// uses the pod's network.
pub fn prepare(
    pod: &Path,
    mut launch: LaunchRequest,
    base_mounts: &mut view::base_mounts::BaseMountsState,
    shm: &mut Option<view::PodShm>,
    gate: Option<ListenerChannel>,
    space: Option<&PidNamespace>,
) -> Result<PreparedAttempt, LaunchRefusal> {
    variables::fill(pod, &mut launch)
        .map_err(|message| LaunchRefusal { reason: "CreateContainerConfigError", message })?;
    add_volume_paths(pod, &mut launch);
    let own = Path::new(&launch.container);
    folder::private_folder(own).map_err(|error| format!("{error:#}"))?;
    let message = pod.join(folder::message(&launch.container, launch.attempt));
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
            // Only this process and what it starts see volumes in memory.
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
    let is_plain = matches!(place, LaunchPlace::Here) && gate.is_none() && context.is_plain() && process::has_pidfds();
    let process = if is_plain { None } else { Some(fork(&launch.argv, &context, place, gate.as_ref(), space)?) };
    // Volume contents may be secret, and large.
    launch.volumes.clear();
    Ok(PreparedAttempt { launch, stdio_pipes, groups, gate, process })
}

/// Returns the value of an environment variable.
pub fn variable<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
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
    /// Returns the pid of the waiting process, if it exists already.
    pub fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.pid().as_raw_nonzero().get())
    }

    /// Starts the program.
    pub fn launch(self) -> Result<StartedAttempt, LaunchRefusal> {
        let PreparedAttempt { launch, stdio_pipes, groups, gate, process } = self;
        remove_older_logs(&launch);
        let since = now_nanos();
        // A log without a record means that the attempt may have run.
        let mut log = AttemptLog::new(folder::log(&launch.container, launch.attempt));
        log.create();
        let _ = fs::remove_file(folder::built(&launch.container, launch.attempt));
        let pid = match process {
            Some(waiting) => waiting.start()?,
            None => spawn(&launch.argv, &launch_context(&launch, &stdio_pipes, &groups))?,
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
        Ok(StartedAttempt { launch, process, since, streams, log, stdin, gate })
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
        super::log::remove_log(&folder::log(&launch.container, older));
        let _ = fs::remove_file(folder::message(&launch.container, older));
    }
}

/// Runs a command in the namespaces of a process; errors have the wording of a container runtime. With a gate, it uses the pod's network.
pub fn run(
    argv: &[String],
    context: &LaunchContext,
    process: i32,
    gate: Option<&ListenerChannel>,
    space: Option<&PidNamespace>,
) -> Result<i32, String> {
    let pid = fork(argv, context, LaunchPlace::Of(view::ForeignNamespaces::open(process)?), gate, space)?.start()?;
    Ok(pid.as_raw_nonzero().get())
}

fn spawn(argv: &[String], context: &LaunchContext) -> Result<Pid, String> {
    let program = program(argv, context)?;
    spawn::spawn(&program).map_err(|error| not_executed(&program, &error))
}

fn fork(
    argv: &[String],
    context: &LaunchContext,
    place: LaunchPlace,
    gate: Option<&ListenerChannel>,
    space: Option<&PidNamespace>,
) -> Result<spawn::PreparedChild, String> {
    let enter = || {
        // Before the view is entered, because it may hide the cgroup file system.
        context.groups.enter()?;
        if let Some(score) = context.launch.oom_score {
            // Only root may lower the score, so errors are ignored.
            let _ = fs::write("/proc/self/oom_score_adj", score.to_string());
        }
        match place {
            LaunchPlace::Here => view::set_host_name(&context.launch.hostname),
            LaunchPlace::Own { base_mounts, shm, pod, message, view, volumes } => {
                let is_counted = context.launch.watched.pids.is_some();
                let started = view::start_view(base_mounts, is_counted, space.is_some(), shm)?;
                let lives = [context.cwd, Path::new(context.variable("HOME").unwrap_or("/"))];
                view::enter(started, pod, message, lives, view, volumes)?;
                view::set_host_name(&context.launch.hostname);
            }
            LaunchPlace::Of(other) => view::join(&other)?,
        }
        if context.launch.view.is_some() {
            processes::bound(context.launch.watched.pids)?;
        }
        let program = program(argv, context)?;
        // Looks up the interpreter now, so that exec finds it in the kernel's caches.
        let file = Path::new(OsStr::from_bytes(program.path.to_bytes()));
        let _ = interpreter::interpreter_of_program(file).map(fs::File::open);
        gate.map_or(Ok(()), ListenerChannel::enter)?;
        Ok(program)
    };
    spawn::fork(space, enter, not_executed)
}

fn not_executed(program: &spawn::SpawnProgram, error: &io::Error) -> String {
    format!("exec {}: {}", program.path.to_string_lossy(), reason(error))
}

fn program<'a>(argv: &[String], context: &LaunchContext<'a>) -> Result<spawn::SpawnProgram<'a>, String> {
    let LaunchContext { launch, env, cwd, stdio, terminal, .. } = *context;
    let name = argv.first().ok_or("no command specified")?;
    // A volume that is mounted above the cluster's folder hides the default working folder.
    let is_hidden = cwd.ends_with(Path::new(&launch.container).join("scratch")) && !cwd.is_dir();
    let cwd = if is_hidden { Path::new("/") } else { cwd };
    check_cwd(cwd)?;
    let path = context.variable("PATH").unwrap_or_default();
    let file = find(name, path, cwd)?;
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

/// Returns the file that exec would run: a name with a slash is a path, any other is searched on the container's PATH.
pub fn find(name: &str, path: &str, cwd: &Path) -> Result<PathBuf, String> {
    if name.contains('/') {
        let file = cwd.join(name);
        let found = fs::metadata(&file).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => format!("exec: {name:?}: permission denied"),
            _ => format!("exec: {name:?}: stat {name}: no such file or directory"),
        })?;
        if found.is_dir() {
            return Err(format!("exec: {name:?}: is a directory"));
        }
        return if may_execute(&file) { Ok(file) } else { Err(format!("exec: {name:?}: permission denied")) };
    }
    let folders = path.split(':').filter(|folder| !folder.is_empty() && !name.is_empty());
    let mut candidates = folders.map(|folder| cwd.join(folder).join(name));
    let found = candidates.find(|file| file.is_file() && may_execute(file));
    found.ok_or_else(|| format!("exec: {name:?}: executable file not found in $PATH"))
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

    #[test]
    fn missing_program_error_reads_like_a_container_runtimes() {
        let cwd = Path::new("/");
        let table = [
            ("nosuchprogram", "exec: \"nosuchprogram\": executable file not found in $PATH"),
            ("", "exec: \"\": executable file not found in $PATH"),
            ("/no/such", "exec: \"/no/such\": stat /no/such: no such file or directory"),
            ("/etc/passwd", "exec: \"/etc/passwd\": permission denied"),
            ("/etc", "exec: \"/etc\": is a directory"),
        ];
        for (name, message) in table {
            assert_eq!(find(name, "/usr/bin:/bin", cwd).expect_err(name), message);
        }
        assert!(find("sh", "/usr/bin:/bin", cwd).is_ok());
        assert!(find("sh", "", cwd).is_err(), "an empty PATH finds nothing, not even here");
    }
}
