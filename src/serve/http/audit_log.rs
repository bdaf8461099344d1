//! The audit log: a file with one event a line, which a thread of its own writes, so that a slow disk stops no request.
//!
//! Knows: the file, its rotation, and a short queue of events to write. Events are counted and dropped when the queue is full.
//! Never: decides which events are recorded ([`crate::serve::audit`] does). Start reading at [`AuditLog::open`].

use crate::apiserver::outside::AuditAnnotation;
use crate::apiserver::user::User;
use crate::object::{IgnorePoison, Time, io_error_text, time};
use crate::serve::audit::policy::{AuditPolicy, AuditStage};
use crate::serve::audit::{AuditContext, AuditedRequest};
use crate::serve::{ApiRequest, HttpAnswer};
use anyhow::{Context, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of events that wait to be written.
const MAX_WAITING_EVENTS: usize = 10_000;
/// Size at which a file is rotated, and the number of older files that are kept.
const MAX_FILE_BYTES: u64 = 100 << 20;
const MAX_OLD_FILES: usize = 10;
/// Time for the last events when the server ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A log and its policy.
pub struct AuditLog {
    policy: AuditPolicy,
    queue: SyncSender<LogEntry>,
    counts: Arc<AuditCounts>,
}

/// Numbers of events since the start.
#[derive(Default)]
pub struct AuditCounts {
    /// Events that were made.
    pub events: AtomicU64,
    /// Events that were not written.
    pub lost: AtomicU64,
}

enum LogEntry {
    Line(String),
    /// Answers once every earlier line was written.
    Flush(SyncSender<()>),
}

impl AuditLog {
    /// Opens the log, which is continued, and starts its thread.
    pub fn open(path: &Path, policy: AuditPolicy) -> Result<AuditLog> {
        let counts = Arc::new(AuditCounts::default());
        let file = LogFile::open(path, MAX_FILE_BYTES, MAX_OLD_FILES)
            .map_err(|error| anyhow::anyhow!("cannot write {}: {}", path.display(), io_error_text(error)))?;
        let (queue, entries) = sync_channel(MAX_WAITING_EVENTS);
        let own = counts.clone();
        let thread = std::thread::Builder::new().name("audit".into());
        thread.spawn(move || write_entries(file, &entries, &own)).context("cannot start a thread for the audit log")?;
        Ok(AuditLog { policy, queue, counts })
    }

    /// The numbers of events.
    pub fn counts(&self) -> &AuditCounts {
        &self.counts
    }

    /// Waits until the events so far are written, but not long.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.queue.try_send(LogEntry::Flush(done)).is_ok() {
            let _ = written.recv_timeout(SHUTDOWN_TIMEOUT);
        }
    }

    fn send(&self, line: Option<String>) {
        let Some(line) = line else { return };
        self.counts.events.fetch_add(1, Relaxed);
        if self.queue.try_send(LogEntry::Line(line)).is_err() {
            self.counts.lost.fetch_add(1, Relaxed);
        }
    }
}

fn write_entries(mut file: LogFile, entries: &Receiver<LogEntry>, counts: &AuditCounts) {
    for entry in entries {
        match entry {
            LogEntry::Line(line) => {
                if file.write(&line).is_err() {
                    counts.lost.fetch_add(1, Relaxed);
                }
            }
            LogEntry::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// The file that is written, and the limits.
struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    largest: u64,
    kept: usize,
}

impl LogFile {
    fn open(path: &Path, largest: u64, kept: usize) -> io::Result<LogFile> {
        let file = open_log(path)?;
        let size = file.metadata()?.len();
        Ok(LogFile { path: path.into(), file, size, largest, kept })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.size > 0 && self.size + line.len() as u64 > self.largest {
            self.rotate()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Gives the full file the name `audit-TIME.log`, begins a new one, and removes the oldest ones.
    fn rotate(&mut self) -> io::Result<()> {
        let (stem, end) = self.name_parts();
        let time = time::micro(Time::now()).replace(':', "-");
        fs::rename(&self.path, self.path.with_file_name(format!("{stem}-{time}{end}")))?;
        self.file = open_log(&self.path)?;
        self.size = 0;
        let mut old = self.old_files()?;
        old.sort();
        for file in old.iter().rev().skip(self.kept) {
            fs::remove_file(file)?;
        }
        Ok(())
    }

    /// `audit` and `.log`.
    fn name_parts(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let end = part(self.path.extension()).map(|end| format!(".{end}"));
        (part(self.path.file_stem()).unwrap_or_default(), end.unwrap_or_default())
    }

    fn old_files(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, end) = self.name_parts();
        let folder = self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let time = name.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&end));
            if time.is_some_and(|time| time.len() == 27 && time.ends_with('Z')) {
                found.push(folder.join(name));
            }
        }
        Ok(found)
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// A request between its arrival and its answer.
pub struct AuditExchange {
    log: Arc<AuditLog>,
    context: AuditContext,
    /// `None` before the user is known, and for requests that the policy leaves out.
    audited: Mutex<Option<AuditedRequest>>,
}

impl AuditExchange {
    /// Begins with a request of an unknown user.
    pub fn new(log: Arc<AuditLog>, context: AuditContext) -> AuditExchange {
        AuditExchange { log, context, audited: Mutex::default() }
    }

    /// Records that the request was received from this user, and maybe as another one.
    pub fn begin(&self, request: &ApiRequest, user: &User, impersonated: Option<&User>) {
        let audited = AuditedRequest::begin(&self.log.policy, &self.context, request, user, impersonated);
        *self.audited.lock().ignore_poison() = audited;
        self.update(|audited| audited.format_line(AuditStage::RequestReceived, self.context.received));
    }

    /// Notes the authorizer's decision.
    pub fn set_decision(&self, is_allowed: bool, reason: &str) {
        self.update(|audited| {
            audited.set_decision(is_allowed, reason);
            None
        });
    }

    /// Notes the body of the request.
    pub fn set_request_body(&self, request: &ApiRequest) {
        self.update(|audited| {
            audited.set_request_body(request);
            None
        });
    }

    /// Records the annotations of admission for the request.
    pub fn set_annotations(&self, annotations: &[AuditAnnotation]) {
        self.update(|audited| {
            audited.set_annotations(annotations);
            None
        });
    }

    /// Notes the answer.
    pub fn set_answer(&self, answer: &HttpAnswer) {
        self.update(|audited| {
            audited.set_answer(answer);
            None
        });
    }

    /// Records a stage.
    pub fn record(&self, stage: AuditStage) {
        self.update(|audited| audited.format_line(stage, Time::now()));
    }

    fn update(&self, change: impl FnOnce(&mut AuditedRequest) -> Option<String>) {
        let mut audited = self.audited.lock().ignore_poison();
        self.log.send(audited.as_mut().and_then(change));
    }
}

/// Records the end of an answer that lasts, when the body is dropped.
pub struct EndOfAnswer(pub Option<Arc<AuditExchange>>);

impl Drop for EndOfAnswer {
    fn drop(&mut self) {
        if let Some(exchange) = &self.0 {
            exchange.record(AuditStage::ResponseComplete);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_files_are_kept_up_to_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut log = LogFile::open(&path, 10, 2).unwrap();
        for number in 0..5 {
            log.write(&format!("line {number}\n")).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 4\n");
        let mut old = log.old_files().unwrap();
        old.sort();
        let texts: Vec<String> = old.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert_eq!(texts, ["line 2\n", "line 3\n"]);
        let mut again = LogFile::open(&path, 100, 2).unwrap();
        again.write("more\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 4\nmore\n", "a log is continued");
    }
}
