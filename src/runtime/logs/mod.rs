//! Reading of a container's log, straight from its files: no process has to run for that.
//!
//! An attempt's log is a series of files: the one being written and up to four older ones. [`LogReader`] reads them from the oldest and
//! removes the marks of the CRI format. When following, it waits for more until the attempt has ended and no other attempt follows.

mod lines;

use super::wire::{RecordedState, ShimRecord};
use super::{file_tree, folder};
use crate::object::Time;
use lines::{LogFileLine, tail_start};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, inotify};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes read at once.
const BLOCK: usize = 64 * 1024;
/// The exit code of a container that could not be started, as in container runtimes.
const REFUSED: i32 = 128;
/// Longest wait before the files are checked again, in case no notification arrives.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Selection of log lines, named as in `kubectl logs` and the API.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Continue until the attempt has ended.
    pub follow: bool,
    /// The attempt before the newest.
    pub previous: bool,
    /// The ended attempt after which the container waits, by its status: it is the previous one, too, until the next one has a log.
    pub waits_after: Option<u32>,
    /// Only lines from this time on.
    pub since: Option<Time>,
    /// Only this many lines at the end.
    pub tail: Option<usize>,
    /// Put the time before each line.
    pub timestamps: bool,
    /// End after this many bytes.
    pub limit_bytes: Option<u64>,
}

/// Reason why there is no log.
#[derive(Debug, PartialEq, Eq)]
pub enum LogMissing {
    /// This pod has no such container, or nothing of it has been started yet.
    Container,
    /// There is no attempt before the newest.
    Previous,
}

/// A log being read: an iterator over pieces of output, byte for byte as the container wrote them.
pub struct LogReader {
    pod: PathBuf,
    container: String,
    attempt: u32,
    options: LogOptions,
    /// Files still to be read, oldest first.
    files: VecDeque<File>,
    current: Option<AttemptFiles>,
    /// A line whose end has not been read yet.
    rest: Vec<u8>,
    /// Whether part of a line was returned already, which the next entry continues.
    within_line: bool,
    left: u64,
    watch: Option<OwnedFd>,
    next: Option<NextAttemptCheck>,
}

/// Returns, after an attempt has ended and before the next one begins, whether a next one will follow this exit code.
pub type NextAttemptCheck = Box<dyn Fn(i32) -> bool + Send>;

/// Continuation after an attempt.
enum AttemptSequel {
    /// The attempt that has begun.
    Attempt(u32),
    /// An attempt that has not begun.
    Another,
    /// No further attempt.
    Nothing,
}

struct AttemptFiles {
    file: File,
    inode: u64,
    /// Bytes still to be read: without `follow`, the file's length when its reading began, so that a container that writes faster than
    /// the client reads cannot keep the command going.
    unread: u64,
}

impl AttemptFiles {
    fn new(mut file: File, follow: bool) -> io::Result<AttemptFiles> {
        let unread = if follow { u64::MAX } else { file.metadata()?.len().saturating_sub(file.stream_position()?) };
        Ok(AttemptFiles { inode: inode(&file), file, unread })
    }

    /// Reads at most one block; 0 at the end.
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.unread).map_or(block.len(), |unread| unread.min(block.len()));
        let read = self.file.read(&mut block[..most])?;
        self.unread -= read as u64;
        Ok(read)
    }
}

/// Opens the log of a pod's container.
pub fn open(state: &Path, uid: &str, container: &str, options: LogOptions) -> Result<LogReader, LogMissing> {
    if !folder::is_plain_name(uid) || !folder::is_plain_name(container) {
        return Err(LogMissing::Container);
    }
    let pod = folder::pod_path(state, uid);
    let newest = newest(&pod, container).ok_or(LogMissing::Container)?;
    let attempt = match options.previous && options.waits_after != Some(newest) {
        true => newest
            .checked_sub(1)
            .filter(|attempt| path(&pod, container, *attempt).exists())
            .ok_or(LogMissing::Previous)?,
        false => newest,
    };
    // The watch begins before the first read, so that no change between the two is missed.
    let watch = options.follow.then(|| watch(&pod.join(container)).ok()).flatten();
    let files = all_files(&path(&pod, container, attempt));
    let left = options.limit_bytes.unwrap_or(u64::MAX);
    let container = container.to_owned();
    let mut logs = LogReader {
        pod,
        container,
        attempt,
        options,
        files: files.into(),
        current: None,
        rest: Vec::new(),
        within_line: false,
        left,
        watch,
        next: None,
    };
    if let Some(lines) = logs.options.tail {
        // A log in which the last lines cannot be found is read from its beginning.
        let _ = logs.skip_to_tail(lines);
    }
    Ok(logs)
}

fn path(pod: &Path, container: &str, attempt: u32) -> PathBuf {
    pod.join(folder::log_path(container, attempt))
}

/// Returns the newest attempt: by the record, or by the files when there is no record.
fn newest(pod: &Path, container: &str) -> Option<u32> {
    let recorded = folder::read_record(pod).and_then(|record| Some(record.containers.get(container)?.attempt));
    recorded.filter(|attempt| path(pod, container, *attempt).exists()).or_else(|| {
        let names = std::fs::read_dir(pod.join(container)).ok()?.flatten();
        names.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).max()
    })
}

/// Opens the files from the newest to the oldest, so that a rotation meanwhile shows a file twice and never skips it.
fn all_files(path: &Path) -> Vec<File> {
    let mut seen = Vec::new();
    let mut files = Vec::new();
    for age in 0..folder::LOG_FILES {
        let Ok(file) = file_tree::open_file(CWD, folder::rotated_log_path(path, age)) else { continue };
        let inode = inode(&file);
        if !seen.contains(&inode) {
            seen.push(inode);
            files.push(file);
        }
    }
    files.reverse();
    files
}

fn inode(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.ino())
}

fn watch(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let events = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVE;
    inotify::add_watch(&watch, folder, events | inotify::WatchFlags::DELETE_SELF)?;
    Ok(watch)
}

impl Iterator for LogReader {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        loop {
            let piece = self.piece()?;
            if !piece.as_ref().is_ok_and(Vec::is_empty) {
                return Some(piece);
            }
        }
    }
}

enum ReadStep {
    Text(Vec<u8>),
    Wait,
    End,
}

impl LogReader {
    /// Returns the next piece; an empty one after a short wait without output, so that the caller can check whether the client is still
    /// there.
    pub fn piece(&mut self) -> Option<io::Result<Vec<u8>>> {
        if self.left == 0 {
            return None;
        }
        match self.step() {
            Ok(ReadStep::Text(text)) => Some(Ok(text)),
            Ok(ReadStep::Wait) => {
                self.wait();
                Some(Ok(Vec::new()))
            }
            Ok(ReadStep::End) => None,
            Err(error) => {
                self.left = 0;
                Some(Err(error))
            }
        }
    }

    /// Makes the reader continue with later attempts as long as `next` returns true.
    pub fn follow_attempts(self, next: NextAttemptCheck) -> LogReader {
        LogReader { next: Some(next), ..self }
    }

    fn step(&mut self) -> io::Result<ReadStep> {
        // Checked before the read: once the end is recorded, the files are complete.
        let has_ended = !self.options.follow || self.has_ended();
        if self.current.is_none() {
            let Some(file) = self.files.pop_front().or_else(|| File::open(self.path()).ok()) else {
                return Ok(if has_ended { self.end() } else { ReadStep::Wait });
            };
            self.current = Some(AttemptFiles::new(file, self.options.follow)?);
        }
        let Some(source) = &mut self.current else { return Ok(ReadStep::End) };
        let mut block = vec![0; BLOCK];
        let read = source.read(&mut block)?;
        if read > 0 {
            return Ok(ReadStep::Text(self.parse_block(&block[..read])));
        }
        if !self.files.is_empty() {
            self.current = None;
            return Ok(ReadStep::Text(Vec::new()));
        }
        Ok(if self.options.follow && self.open_newer_files()? {
            ReadStep::Text(Vec::new())
        } else if has_ended {
            self.end()
        } else {
            ReadStep::Wait
        })
    }

    /// Handles the end of the attempt's log.
    fn end(&mut self) -> ReadStep {
        match self.next_attempt() {
            AttemptSequel::Attempt(next) => {
                self.attempt = next;
                self.files = all_files(&self.path()).into();
                self.current = None;
                self.rest.clear();
                ReadStep::Text(Vec::new())
            }
            AttemptSequel::Another => ReadStep::Wait,
            AttemptSequel::Nothing => ReadStep::End,
        }
    }

    fn next_attempt(&self) -> AttemptSequel {
        let Some(next) = self.next.as_ref().filter(|_| self.options.follow) else { return AttemptSequel::Nothing };
        let record = folder::read_record(&self.pod);
        let Some(known) = record.as_ref().and_then(|record| record.containers.get(&self.container)) else {
            return AttemptSequel::Nothing;
        };
        if known.attempt > self.attempt {
            // The directly following attempt may be gone already, when attempts follow each other fast.
            let following = self.attempt + 1;
            let is_there = path(&self.pod, &self.container, following).exists();
            return AttemptSequel::Attempt(if is_there { following } else { known.attempt });
        }
        match &known.state {
            RecordedState::Running { .. } => AttemptSequel::Another,
            RecordedState::Ended(end) if !next(end.code) => AttemptSequel::Nothing,
            RecordedState::Refused { .. } if !next(REFUSED) => AttemptSequel::Nothing,
            RecordedState::Ended(_) | RecordedState::Refused { .. } => AttemptSequel::Another,
        }
    }

    fn path(&self) -> PathBuf {
        path(&self.pod, &self.container, self.attempt)
    }

    /// Called at the end of the newest known file: if it was rotated meanwhile, continues with the files after it. Returns true when there
    /// is more to read.
    fn open_newer_files(&mut self) -> io::Result<bool> {
        let Some(source) = &mut self.current else { return Ok(false) };
        let files = all_files(&self.pod.join(folder::log_path(&self.container, self.attempt)));
        let Some(at) = files.iter().position(|file| inode(file) == source.inode) else {
            // The file was removed: all existing files are newer.
            self.files = files.into();
            self.current = None;
            return Ok(!self.files.is_empty());
        };
        if at + 1 == files.len() {
            return Ok(false);
        }
        // The container may have written more lines between the read that found the end and the rotation.
        let position = source.file.stream_position()?;
        if source.file.metadata()?.len() > position {
            return Ok(true);
        }
        self.files = files.into_iter().skip(at + 1).collect();
        self.current = None;
        Ok(true)
    }

    /// Whether the log is complete: the attempt has ended, another one has begun, or the pod is gone.
    fn has_ended(&self) -> bool {
        let Some(record) = folder::read_record(&self.pod) else { return !self.pod.exists() };
        has_ended(&record, &self.container, self.attempt)
    }

    fn wait(&self) {
        match &self.watch {
            Some(watch) => {
                let _ = poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&CHECK_INTERVAL));
                let mut block = [0; 4096];
                let _ = rustix::io::read(watch, &mut block[..]);
            }
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }

    fn parse_block(&mut self, block: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(block.len());
        let mut from = 0;
        while let Some(end) = memchr::memchr(b'\n', &block[from..]).map(|at| from + at) {
            if self.rest.is_empty() {
                self.line(&block[from..end], &mut text);
            } else {
                self.rest.extend_from_slice(&block[from..end]);
                let line = std::mem::take(&mut self.rest);
                self.line(&line, &mut text);
            }
            from = end + 1;
        }
        self.rest.extend_from_slice(&block[from..]);
        self.within_limit(text)
    }

    fn line(&mut self, line: &[u8], text: &mut Vec<u8>) {
        let Some(entry) = LogFileLine::parse(line) else { return };
        if let Some(since) = self.options.since
            && entry.time().is_none_or(|time| time < since)
        {
            return;
        }
        if self.options.timestamps && !self.within_line {
            text.extend_from_slice(entry.stamp);
            text.push(b' ');
        }
        text.extend_from_slice(entry.content);
        self.within_line = entry.is_part;
        if !entry.is_part {
            text.push(b'\n');
        }
    }

    fn within_limit(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        if text.len() as u64 > self.left {
            text.truncate(self.left as usize);
        }
        self.left -= text.len() as u64;
        text
    }

    /// Skips files and bytes so that only the last lines remain.
    fn skip_to_tail(&mut self, mut wanted: usize) -> io::Result<()> {
        let mut kept = VecDeque::new();
        while let Some(mut file) = self.files.pop_back() {
            let found = tail_start(&mut file, wanted)?;
            file.seek(SeekFrom::Start(found.at))?;
            kept.push_front(file);
            wanted -= found.lines.min(wanted);
            if wanted == 0 {
                break;
            }
        }
        self.files = kept;
        Ok(())
    }
}

fn has_ended(record: &ShimRecord, container: &str, attempt: u32) -> bool {
    record.containers.get(container).is_some_and(|known| match known.state {
        RecordedState::Running { .. } => known.attempt > attempt,
        _ => known.attempt >= attempt,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Makes a pod folder with these log files of attempt 1 (oldest first), and a log of attempt 0.
    fn pod(files: &[&str]) -> tempfile::TempDir {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("pods/u/c");
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("0.log"), "2026-01-01T00:00:00.000000000Z stdout F before\n").expect("written");
        for (age, content) in files.iter().rev().enumerate() {
            fs::write(folder::rotated_log_path(&folder.join("1.log"), age as u32), content).expect("written");
        }
        state
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("text")
    }

    fn read(state: &tempfile::TempDir, options: LogOptions) -> String {
        let logs = open(state.path(), "u", "c", options).expect("a log");
        text(logs.flat_map(|piece| piece.expect("readable")).collect())
    }

    const OLD: &str = "2026-01-01T00:00:01.000000000Z stdout F one\n2026-01-01T00:00:02.000000000Z stderr F two\n";
    const NEW: &str = "2026-01-01T00:00:03.000000000Z stdout P thr\n2026-01-01T00:00:03.500000000Z stdout F ee\n\
                       2026-01-01T00:00:04.000000000Z stdout F \n";

    #[test]
    fn options_choose_what_is_read() {
        let state = pod(&[OLD, NEW]);
        let all = LogOptions::default;
        let since = |text: &str| Some(text.parse().expect("a time"));
        let table = [
            (all(), "one\ntwo\nthree\n\n"),
            (LogOptions { previous: true, ..all() }, "before\n"),
            // The container waits after attempt 1; the next attempt has begun before its status was written.
            (LogOptions { previous: true, waits_after: Some(1), ..all() }, "one\ntwo\nthree\n\n"),
            (LogOptions { previous: true, waits_after: Some(0), ..all() }, "before\n"),
            (LogOptions { tail: Some(0), ..all() }, ""),
            (LogOptions { tail: Some(1), ..all() }, "\n"),
            (LogOptions { tail: Some(4), ..all() }, "two\nthree\n\n"),
            (LogOptions { tail: Some(99), ..all() }, "one\ntwo\nthree\n\n"),
            (LogOptions { since: since("2026-01-01T00:00:03Z"), ..all() }, "three\n\n"),
            (LogOptions { limit_bytes: Some(5), ..all() }, "one\nt"),
            (
                LogOptions { timestamps: true, tail: Some(3), ..all() },
                "2026-01-01T00:00:03.000000000Z three\n2026-01-01T00:00:04.000000000Z \n",
            ),
        ];
        for (options, expected) in table {
            assert_eq!(read(&state, options.clone()), expected, "{options:?}");
        }
    }

    #[test]
    fn reading_without_follow_ends_while_the_container_writes() {
        let state = pod(&[OLD]);
        let file = state.path().join("pods/u/c/1.log");
        let mut logs = open(state.path(), "u", "c", LogOptions::default()).expect("a log");
        let mut writer = fs::OpenOptions::new().append(true).open(&file).expect("opened");
        let pieces = std::iter::from_fn(|| {
            let piece = logs.next()?.expect("readable");
            io::Write::write_all(&mut writer, OLD.as_bytes()).expect("written");
            Some(text(piece))
        });
        assert_eq!(pieces.take(10).collect::<Vec<_>>(), ["one\ntwo\n"]);
    }

    #[test]
    fn missing_log_is_an_error_with_the_reason() {
        let state = pod(&[]);
        let open = |uid, container, previous| {
            open(state.path(), uid, container, LogOptions { previous, ..LogOptions::default() }).err()
        };
        assert_eq!(open("u", "c", false), None);
        assert_eq!(open("u", "c", true), Some(LogMissing::Previous));
        assert_eq!(open("u", "d", false), Some(LogMissing::Container));
        assert_eq!(open("v", "c", false), Some(LogMissing::Container));
        assert_eq!(open("../pods/u", "c", false), Some(LogMissing::Container));
    }

    #[test]
    fn following_continues_across_rotations_until_the_end() {
        let state = pod(&[OLD]);
        let file = state.path().join("pods/u/c/1.log");
        let write_record = |state: &str| {
            let containers = serde_json::json!({"c": {"attempt": 1, "state": serde_json::from_str::<serde_json::Value>(state).expect("JSON"),
                "stopping": null, "last": null}});
            let pod_name = serde_json::json!({"uid": "u", "namespace": "", "name": "", "node": "", "ip": ""});
            serde_json::json!({"boot": "", "epoch": 1, "pod": pod_name, "containers": containers}).to_string()
        };
        let record = state.path().join("pods/u/record.json");
        fs::write(&record, write_record(r#"{"Running": {"process": {"pid": 1, "start": 1}, "since": 0}}"#))
            .expect("written");
        let mut logs =
            open(state.path(), "u", "c", LogOptions { follow: true, ..LogOptions::default() }).expect("a log");
        let mut seen = logs.next().expect("more").expect("readable");
        // Two rotations between two reads.
        fs::rename(&file, folder::rotated_log_path(&file, 2)).expect("renamed");
        fs::write(folder::rotated_log_path(&file, 1), NEW).expect("written");
        fs::write(&file, "2026-01-01T00:00:09.000000000Z stdout F last\n").expect("written");
        fs::write(&record, write_record(r#"{"Refused": {"reason": "", "message": "", "at": 0}}"#)).expect("written");
        seen.extend(logs.flat_map(|piece| piece.expect("readable")));
        assert_eq!(text(seen), "one\ntwo\nthree\n\nlast\n");
    }
}
