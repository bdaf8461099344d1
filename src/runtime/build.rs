//! Builds: a command that makes an image's program. It runs once before the first start, and again when its inputs have changed.
//!
//! ```text
//! <state>/builds/<image>/lock   locked while any process of the build runs, even if the control plane exits meanwhile
//!                        log    output of the last build
//!                        done   inputs of the last successful build
//! ```
//! Each image has at most one running build; every container that waits for it gets its result. Start reading at [`Builds::order`].

use super::image::{Environment, ImageRefusal};
use super::{file_tree, folder, spawn, wire};
use crate::object::{IgnorePoison, Str, Time, io_error_text};
use crate::world::Report;
use crate::world::facts::{BuildStage, LastBuild};
use crate::world::start::{BuildCommand, Start, StartImage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Maximum lines and bytes of a failed build's output in the error message.
const REPORTED_OUTPUT: (usize, usize) = (10, 2000);
/// Maximum length of a part of a log line, as in any container's log.
const MAX_LINE_PART_BYTES: usize = 16 * 1024;
/// Maximum bytes of output that are read at once.
const MAX_READ_BYTES: u64 = 1 << 20;

/// Interval for copying the output of a running build.
const PROGRESS_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Receives the result of a build.
pub type BuildWaiter = Box<dyn FnOnce(Result<(), ImageRefusal>) + Send>;

/// A container that waits for a build: destination of the output while it runs, and callback for the result.
pub struct BuildWait {
    /// Log of the waiting container, which gets the build's output.
    pub telling: Option<SharedLogWriter>,
    /// Callback for the result.
    pub done: BuildWaiter,
}

/// The waiting containers of each image that is being built.
#[derive(Clone, Default)]
pub struct Builds(Arc<Mutex<HashMap<Str, Vec<BuildWait>>>>);

impl Builds {
    /// Runs the build of an image, or waits for the running one. `report` receives each stage.
    pub fn order(
        &self,
        state: &Path,
        environment: &Environment,
        image: &StartImage,
        waiting: BuildWait,
        report: impl Fn(Report) + Send + 'static,
    ) {
        let Some(build) = image.build.clone() else { return };
        let mut known = self.0.lock().ignore_poison();
        if let Some(waiters) = known.get_mut(&image.name) {
            return waiters.push(waiting);
        }
        known.insert(image.name.clone(), vec![waiting]);
        drop(known);
        let (builds, name) = (self.clone(), image.name.clone());
        let (folder_path, environment) = (build_folder(state, &image.name), environment.clone());
        let work = move || {
            let tell = |stage| {
                let built = LastBuild { inputs: build.inputs.clone(), stage };
                report(Report::Build { image: name.clone(), built });
            };
            let mut since = None;
            let result = run(&folder_path, &name, &build, &environment, |progress| match progress {
                BuildProgress::Begun => {
                    let now = wire::moment(wire::now_nanos());
                    since = Some(now);
                    tell(BuildStage::Running { since: now });
                }
                BuildProgress::Running => builds.copy_output_to_logs(&name),
            });
            let output = if since.is_some() { last_output(&folder_path) } else { String::new() };
            let (at, error) = (wire::moment(wire::now_nanos()), result.as_ref().err().cloned());
            tell(BuildStage::Ended { since, at, output, error });
            for waiting in builds.take_waiting(&name) {
                // Copying the output to the logs is best effort: it fails when the disk is full.
                let _ = waiting.telling.map(|telling| copy_output(&telling, true));
                (waiting.done)(result.clone().map_err(|message| ImageRefusal { reason: "ErrImageBuild", message }));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("build".into()).spawn(work) {
            for waiting in self.take_waiting(&image.name) {
                let message = format!("cannot start a thread: {error}", error = io_error_text(&error));
                (waiting.done)(Err(ImageRefusal { reason: "ErrImageBuild", message }));
            }
        }
    }

    fn take_waiting(&self, name: &str) -> Vec<BuildWait> {
        self.0.lock().ignore_poison().remove(name).unwrap_or_default()
    }

    /// Copies new output to the logs of all waiting containers.
    fn copy_output_to_logs(&self, name: &str) {
        let known = self.0.lock().ignore_poison();
        let telling = known.get(name).into_iter().flatten().filter_map(|waiting| waiting.telling.clone());
        let telling: Vec<SharedLogWriter> = telling.collect();
        // Other images can be ordered while files are read and written.
        drop(known);
        for telling in telling {
            let _ = copy_output(&telling, false);
        }
    }
}

/// The log of a waiting container, which the thread of the build writes to without the lock of [`Builds`].
pub type SharedLogWriter = Arc<Mutex<BuildLogWriter>>;

fn copy_output(telling: &SharedLogWriter, is_over: bool) -> io::Result<()> {
    telling.lock().ignore_poison().copy_output(is_over)
}

/// Progress of a build.
enum BuildProgress {
    /// Its command is about to run.
    Begun,
    /// Its command is running.
    Running,
}

/// Whether the last successful build used the same inputs.
pub fn is_done(state: &Path, image: &str, build: &BuildCommand) -> bool {
    fs::read_to_string(build_folder(state, image).join("done")).is_ok_and(|done| done == build.inputs)
}

fn build_folder(state: &Path, image: &str) -> PathBuf {
    state.join("builds").join(image)
}

fn run(
    folder_path: &Path,
    name: &str,
    build: &BuildCommand,
    environment: &Environment,
    mut tell: impl FnMut(BuildProgress),
) -> Result<(), String> {
    let failed = |error: io::Error| {
        format!("cannot build image {name}: {}: {error}", folder_path.display(), error = io_error_text(error))
    };
    for folder in [folder_path.parent().unwrap_or(folder_path), folder_path] {
        folder::private_folder(folder).map_err(|error| format!("{error:#}"))?;
    }
    let open = |file: &str, truncate: bool| {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(truncate)
            .mode(0o600)
            .open(folder_path.join(file))
    };
    // The lock is also the build's standard input, so that it stays locked until the last process of the build has ended.
    let lock = open("lock", true).map_err(failed)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    if fs::read_to_string(folder_path.join("done")).is_ok_and(|done| done == build.inputs) {
        return Ok(());
    }
    let log = open("log", true).map_err(failed)?;
    let _ = fs::remove_file(folder_path.join("done"));
    tell(BuildProgress::Begun);
    let program = program(build, environment, [&lock, &log])?;
    let failure = |what: String| format!("build of image {name}: {what}");
    let pid = spawn::spawn(&program)
        .map_err(|error| failure(format!("exec {:?}: {error}", build.command[0], error = io_error_text(error))))?;
    while wait_for_progress(pid) {
        tell(BuildProgress::Running);
    }
    let status = loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Ok(status) => break status.map(|(_, status)| status),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    };
    let how = match status.map(|status| (status.exit_status(), status.terminating_signal())) {
        Some((Some(0), _)) => {
            return folder::replace(&folder_path.join("done"), build.inputs.as_bytes()).map_err(failed);
        }
        Some((Some(code), _)) => format!("exited with code {code}"),
        Some((_, Some(signal))) => format!("was ended by signal {signal}"),
        _ => "ended, and its exit status is unknown".to_owned(),
    };
    let last = last_output(folder_path);
    Err(failure(format!("{:?} {how}{}{last}", build.command.join(" "), if last.is_empty() { "" } else { ":\n" })))
}

/// Waits up to [`PROGRESS_INTERVAL`] for a process to end. Returns true when it still runs.
fn wait_for_progress(pid: Pid) -> bool {
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    matches!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&PROGRESS_INTERVAL)), Ok(0) | Err(Errno::INTR))
}

/// Returns the last lines of a build's output.
fn last_output(folder_path: &Path) -> String {
    last_lines(&file_tree::read_end(&folder_path.join("log"), MAX_READ_BYTES).unwrap_or_default())
}

fn program<'a>(
    build: &BuildCommand,
    environment: &Environment,
    [lock, log]: [&'a fs::File; 2],
) -> Result<spawn::SpawnProgram<'a>, String> {
    let folder = build.folder.as_deref().ok_or(
        "the Image was not applied from a file, so its folder is unknown: write an absolute spec.build.workingDir",
    )?;
    if !Path::new(folder).is_dir() {
        return Err(format!(
            "the folder {folder} to build in does not exist: create it, or name another one in spec.build.workingDir"
        ));
    }
    let mut env = environment.0.clone();
    for (name, value) in &build.env {
        env.retain(|(known, _)| known != name);
        env.push((name.clone(), value.clone()));
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value.as_str());
    let name = build.command.first().map_or("", String::as_str);
    let file = match name.contains('/') {
        true => Some(Path::new(folder).join(name)),
        false => path.split(':').map(|folder| Path::new(folder).join(name)).find(|file| file.is_file()),
    };
    let file = file
        .filter(|file| file.is_file())
        .ok_or_else(|| format!("there is no {name:?} to build with: install it, or correct spec.build.command"))?;
    let text = |text: &str| CString::new(text).map_err(|_| "an argument of the build contains a zero byte".to_owned());
    Ok(spawn::SpawnProgram {
        path: text(&file.to_string_lossy())?,
        argv: build.command.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
        env: env.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect::<Result<_, _>>()?,
        cwd: text(folder)?,
        stdio: [lock.as_fd(), log.as_fd(), log.as_fd()],
        terminal: None,
        rights: Default::default(),
        identity: None,
    })
}

fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(REPORTED_OUTPUT.0)..].join("\n");
    let cut = last.char_indices().map(|(at, _)| at).find(|at| last.len() - at <= REPORTED_OUTPUT.1).unwrap_or(0);
    last[cut..].to_owned()
}

/// Whether this attempt is the first with a program that was built while the previous attempt ran; its log then begins with the build's
/// output.
pub fn is_news(state: &Path, image: &str, start: &Start) -> bool {
    let pod = folder::pod_path(state, &start.pod_uid);
    let known = folder::read_record(&pod).and_then(|mut record| record.containers.remove(&*start.container));
    let Some(before) = known.filter(|known| known.attempt.checked_add(1) == Some(start.attempt)) else { return false };
    let began = match before.state {
        wire::RecordedState::Running { since, .. } => Some(since),
        wire::RecordedState::Ended(end) => end.started,
        wire::RecordedState::Refused { .. } => None,
    };
    let built = fs::metadata(build_folder(state, image).join("done")).and_then(|done| done.modified());
    let built = built.ok().and_then(|built| Time::try_from(built).ok());
    let is_later = began.zip(built).is_some_and(|(began, built)| wire::moment(began) < built);
    is_later && !pod.join(folder::log_path(&start.container, start.attempt)).exists()
}

/// Writes the build's output to the log of a container that waited for it.
pub fn write_build_log(state: &Path, epoch: u64, start: &Start) -> anyhow::Result<()> {
    Ok(BuildLogWriter::create(state, epoch, start)?.copy_output(true)?)
}

/// The log of a container that waits for a build; it gets the build's output.
pub struct BuildLogWriter {
    from: PathBuf,
    to: fs::File,
    /// Bytes of the output that were read so far.
    read: u64,
    /// Bytes read after the last complete line.
    rest: Vec<u8>,
}

impl BuildLogWriter {
    /// Creates the log. For a pod without a folder, also creates the folder and a record that identifies the pod.
    pub fn create(state: &Path, epoch: u64, start: &Start) -> anyhow::Result<BuildLogWriter> {
        let image = start.requested_image.as_ref().map(|image| &*image.name).unwrap_or_default();
        let pod = folder::pod_path(state, &start.pod_uid);
        folder::private_folder(&pod)?;
        if folder::read_record(&pod).is_none() {
            let boot = super::process::boot_id().to_string();
            folder::write_record(
                &pod,
                &wire::ShimRecord { boot, epoch, left: true, pod: start.into(), ..wire::ShimRecord::empty() },
            )?;
        }
        folder::private_folder(&pod.join(&*start.container))?;
        folder::make_file(&pod.join(folder::built_mark_path(&start.container, start.attempt)), 0o600)?;
        let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
        let path = pod.join(folder::log_path(&start.container, start.attempt));
        // Replaces output that an earlier try of this attempt has written.
        let mut options = fs::OpenOptions::new();
        let to = options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(path)?;
        Ok(BuildLogWriter { from: build_folder(state, image).join("log"), to, read: 0, rest: Vec::new() })
    }

    /// Copies new output: complete lines, and when the build is over also an incomplete last one.
    fn copy_output(&mut self, is_over: bool) -> io::Result<()> {
        let mut from = fs::File::open(&self.from)?;
        from.seek(SeekFrom::Start(self.read))?;
        loop {
            let read = Read::by_ref(&mut from).take(MAX_READ_BYTES).read_to_end(&mut self.rest)? as u64;
            self.read += read;
            let end = match memchr::memrchr(b'\n', &self.rest) {
                _ if is_over && read == 0 => self.rest.len(),
                Some(last) => last + 1,
                // A line of this size is not waited for.
                None if self.rest.len() as u64 >= MAX_READ_BYTES => self.rest.len(),
                None => 0,
            };
            let whole: Vec<u8> = self.rest.drain(..end).collect();
            self.to.write_all(&lines(&whole))?;
            if read == 0 {
                return Ok(());
            }
        }
    }
}

/// Formats output as lines of a container's log.
fn lines(output: &[u8]) -> Vec<u8> {
    let stamp = format!("{:.9}", wire::moment(wire::now_nanos()));
    let mut lines = Vec::with_capacity(output.len() * 2);
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let parts: Vec<&[u8]> = if line.is_empty() { vec![line] } else { line.chunks(MAX_LINE_PART_BYTES).collect() };
        for (at, part) in parts.iter().enumerate() {
            let mark = if at + 1 < parts.len() { "P" } else { "F" };
            lines.extend_from_slice(format!("{stamp} stdout {mark} ").as_bytes());
            lines.extend_from_slice(part);
            lines.push(b'\n');
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn build(home: &Path, script: &str, inputs: &str) -> Result<(), String> {
        let build = BuildCommand {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            folder: Some(home.to_string_lossy().into_owned()),
            env: vec![("TARGET".into(), "me".into())],
            inputs: inputs.into(),
        };
        let environment = Environment(vec![("PATH".into(), "/usr/bin:/bin".into())]);
        let image = StartImage { name: "web".into(), build: Some(build.clone()), ..StartImage::default() };
        let (send, ended) = channel();
        let builds = Builds::default();
        let done: BuildWaiter = Box::new(move |result| drop(send.send(result)));
        builds.order(home, &environment, &image, BuildWait { telling: None, done }, |_| {});
        let result = ended.recv().expect("it ends").map_err(|refusal| refusal.message);
        assert_eq!(result.is_ok(), is_done(home, "web", &build));
        result
    }

    #[test]
    fn build_runs_once_for_the_same_inputs() {
        let home = tempfile::tempdir().expect("a folder");
        let script = "echo $TARGET >> built";
        let count = || fs::read_to_string(home.path().join("built")).expect("built").lines().count();
        for (inputs, times) in [("1", 1), ("1", 1), ("2", 2)] {
            build(home.path(), script, inputs).expect("it goes well");
            assert_eq!(count(), times);
        }
        let failure = build(home.path(), "echo one; echo two >&2; exit 3", "3").expect_err("it fails");
        assert!(failure.ends_with("exited with code 3:\none\ntwo"), "{failure}");
        // The result of the previous build is gone.
        build(home.path(), script, "2").expect("it goes well");
        assert_eq!(count(), 3);
    }

    #[test]
    fn endless_line_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let [from, to] = ["log", "0.log"].map(|name| folder.path().join(name));
        let output = [vec![b'x'; 3 * MAX_READ_BYTES as usize], b"\ny".to_vec()].concat();
        fs::write(&from, &output).expect("written");
        let file = fs::File::create(&to).expect("made");
        let mut writer = BuildLogWriter { from, to: file, read: 0, rest: Vec::new() };
        for (is_over, held) in [(false, 1), (true, 0)] {
            writer.copy_output(is_over).expect("copied");
            assert_eq!(writer.rest.len(), held);
            assert!(writer.rest.capacity() as u64 <= 2 * MAX_READ_BYTES);
        }
        let copied = fs::read(&to).expect("there").iter().filter(|byte| **byte == b'x').count();
        assert_eq!(copied, 3 * MAX_READ_BYTES as usize);
    }

    #[test]
    fn last_lines_of_the_output_are_bounded() {
        let many: String = (0..50).map(|number| format!("line {number}\n")).collect();
        assert!(last_lines(many.as_bytes()).starts_with("line 40\n"));
        assert!(last_lines("é".repeat(5000).as_bytes()).len() <= 2000);
        assert_eq!(last_lines(b""), "");
    }
}
