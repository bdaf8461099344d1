//! A container's log: writes its output as CRI lines, and rotates the files.
//!
//! `2026-01-02T03:04:05.000000006Z stdout F a line`; a line longer than 16 KiB is cut into parts marked `P`. All data
//! of one read gets one timestamp and one write, so that a container never waits for its log.

use super::super::{file_tree, folder, wire};
use rustix::buffer::spare_capacity;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Bytes of a line that go into one log line at most.
const PART: usize = 16 * 1024;
/// Size at which a new file is begun.
const FILE_BYTES: u64 = 10 * 1024 * 1024;
/// Maximum amount of earlier output to repeat.
const REPLAY: u64 = 1024 * 1024;
/// Maximum bytes of the log that the end of a container's output is taken from.
const TAIL: u64 = 80 * 1024;
/// Maximum bytes of one read: these and the lines made of them fit into the cache of a processor core.
const BATCH: usize = 128 * 1024;

/// Buffers for reading output and composing log lines; shared by all containers of a shim.
pub struct LogBuffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

impl LogBuffers {
    /// Empty buffers, which take no memory until a container prints.
    pub fn new() -> LogBuffers {
        LogBuffers { input: Vec::new(), output: Vec::new() }
    }

    /// Returns the bytes read last.
    pub fn last_output(&self) -> &[u8] {
        &self.input
    }
}

/// The files of one attempt's log.
pub struct AttemptLog {
    path: PathBuf,
    file: Option<OwnedFd>,
    size: u64,
    lost: u64,
}

impl AttemptLog {
    /// A log that is opened with its first line.
    pub fn new(path: PathBuf) -> AttemptLog {
        AttemptLog { path, file: None, size: 0, lost: 0 }
    }

    /// Makes the file, so that there is something to read even from a container that never prints.
    pub fn create(&mut self) {
        // A failure shows again, and counts, with the first write.
        let _ = self.file();
    }

    /// Appends whole lines. What cannot be written is dropped and counted: the container must not stand still because a disk is full.
    fn append(&mut self, lines: &[u8]) {
        if self.size > 0 && self.size + lines.len() as u64 > FILE_BYTES {
            self.rotate();
        }
        if self.lost > 0 {
            let notice = format!("{} stderr F kloop: {} bytes of log could not be written\n", stamp(), self.lost);
            if self.put(notice.as_bytes()).is_ok() {
                self.lost = 0;
            }
        }
        if self.put(lines).is_err() {
            self.lost += lines.len() as u64;
        }
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(self.file()?, bytes) {
                Ok(written) => {
                    self.size += written as u64;
                    bytes = &bytes[written..];
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Never follows a link and never writes into a file that has a second name or is not a file: the folder may have been tampered with.
    fn file(&mut self) -> io::Result<&OwnedFd> {
        if self.file.is_none() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW;
            let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = openat(CWD, &self.path, flags, Mode::RUSR | Mode::WUSR)?;
            let found = fstat(&file)?;
            let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
            if !is_file || found.st_nlink != 1 {
                return Err(io::Error::other("the log is not a file of its own"));
            }
            self.size = found.st_size as u64;
            self.file = Some(file);
        }
        self.file.as_ref().ok_or_else(|| io::Error::other("no log file"))
    }

    /// Renames each file to the next number, and removes the oldest.
    fn rotate(&mut self) {
        self.file = None;
        self.size = 0;
        for age in (1..folder::LOG_FILES).rev() {
            let [from, to] = [age - 1, age].map(|age| folder::rotated_log_path(&self.path, age));
            let _ = fs::rename(from, to);
        }
    }

    /// Passes on the logged output, with the stream of each part, from the newest file; from a large file only its end.
    pub fn replay(&self, mut tell: impl FnMut(&str, &[u8])) {
        let recent = file_tree::read_end(&self.path, REPLAY + 1).unwrap_or_default();
        let is_cut = recent.len() as u64 > REPLAY;
        let from = if is_cut { memchr::memchr(b'\n', &recent).map_or(recent.len(), |at| at + 1) } else { 0 };
        for line in recent[from..].split_inclusive(|byte| *byte == b'\n') {
            let mut parts = line.splitn(4, |byte| *byte == b' ');
            let (Some(_), Some(tag), Some(kind), Some(text)) = (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let text = if kind == b"P" { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
            tell(if tag == b"stderr" { "stderr" } else { "stdout" }, text);
        }
    }

    /// The end of the log without timestamps and tags: at most 80 lines and 2,048 bytes.
    pub fn tail(&self) -> String {
        let recent = file_tree::read_end(&self.path, TAIL).unwrap_or_default();
        let lines: Vec<&[u8]> = recent.split_inclusive(|byte| *byte == b'\n').collect();
        let last = lines[lines.len().saturating_sub(80)..].iter().map(|line| {
            let mut fields = line.splitn(4, |byte| *byte == b' ').skip(2);
            let (kind, text) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            String::from_utf8_lossy(if kind == b"P" { text.strip_suffix(b"\n").unwrap_or(text) } else { text })
        });
        let text: String = last.collect();
        let mut from = text.len().saturating_sub(2048);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].to_owned()
    }
}

/// Removes every file of an attempt.
pub fn remove_log(path: &Path) {
    for age in 0..folder::LOG_FILES {
        let _ = fs::remove_file(folder::rotated_log_path(path, age));
    }
}

/// One of the two outputs of a container.
pub struct OutputStream {
    /// The reading end of the pipe.
    pub fd: OwnedFd,
    tag: &'static str,
    /// The beginning of a line whose end has not arrived yet.
    held: Vec<u8>,
    /// Number of consecutive reads that found the pipe full.
    pressed: u32,
}

/// Whether more output may follow.
#[derive(PartialEq)]
pub enum ReadMore {
    /// Bytes were read.
    More,
    /// The pipe is empty.
    Dry,
    /// No process has the pipe open for writing.
    Closed,
}

impl OutputStream {
    /// `tag` is `stdout` or `stderr`.
    pub fn new(fd: OwnedFd, tag: &'static str) -> OutputStream {
        OutputStream { fd, tag, held: Vec::new(), pressed: 0 }
    }

    /// Returns `stdout` or `stderr`.
    pub fn tag(&self) -> &'static str {
        self.tag
    }

    /// Returns the beginning of an incomplete line.
    pub fn unfinished_line(&self) -> &[u8] {
        &self.held
    }

    /// Reads once, and logs the bytes.
    pub fn pump(&mut self, log_buffers: &mut LogBuffers, log: &mut AttemptLog) -> ReadMore {
        log_buffers.input.clear();
        log_buffers.input.reserve(BATCH);
        let read = match rustix::io::read(&self.fd, spare_capacity(&mut log_buffers.input)) {
            Ok(0) => return ReadMore::Closed,
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return ReadMore::Dry,
            Err(_) => return ReadMore::Closed,
        };
        self.widen(read);
        log_buffers.output.clear();
        frame(self.tag, &stamp(), &log_buffers.input, &mut self.held, &mut log_buffers.output);
        if !log_buffers.output.is_empty() {
            log.append(&log_buffers.output);
        }
        // Many short lines need much memory for their timestamps and tags. It is released after the burst.
        if read < BATCH / 16 {
            log_buffers.output.shrink_to(BATCH);
        }
        ReadMore::More
    }

    /// Logs the last line even though no newline ends it: as a part, so that readers add none.
    pub fn finish(&mut self, log: &mut AttemptLog) {
        if !self.held.is_empty() {
            let mut line = Vec::new();
            put_line(&line_start(self.tag, &stamp(), b'P'), [&self.held, b""], &mut line);
            self.held.clear();
            log.append(&line);
        }
    }

    /// A pipe that is found full again and again gets twice its size: 64 KiB is a few thousand switches per 100 MB.
    fn widen(&mut self, read: usize) {
        self.pressed = if read >= 60 * 1024 { self.pressed + 1 } else { 0 };
        if self.pressed == 16 {
            let _ = rustix::pipe::fcntl_setpipe_size(&self.fd, BATCH);
        }
    }
}

fn stamp() -> String {
    format!("{:.9}", wire::moment(wire::now_nanos()))
}

/// Cuts input into log lines; the beginning of an unfinished line is held back for the next time.
fn frame(tag: &str, stamp: &str, mut input: &[u8], held: &mut Vec<u8>, out: &mut Vec<u8>) {
    let [part, full] = [b'P', b'F'].map(|kind| line_start(tag, stamp, kind));
    while !input.is_empty() {
        let end = memchr::memchr(b'\n', input);
        let mut line = &input[..end.unwrap_or(input.len())];
        while held.len() + line.len() > PART {
            let (now, later) = line.split_at(PART - held.len());
            put_line(&part, [held, now], out);
            held.clear();
            line = later;
        }
        let Some(end) = end else {
            held.extend_from_slice(line);
            return;
        };
        put_line(&full, [held, line], out);
        held.clear();
        input = &input[end + 1..];
    }
}

/// Returns the part of a line before its content; it is the same for all lines of one read.
fn line_start(tag: &str, stamp: &str, kind: u8) -> Vec<u8> {
    format!("{stamp} {tag} {} ", char::from(kind)).into_bytes()
}

fn put_line(start: &[u8], [held, line]: [&[u8]; 2], out: &mut Vec<u8>) {
    out.reserve(start.len() + held.len() + line.len() + 1);
    for bytes in [start, held, line, b"\n"] {
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(chunks: &[&[u8]]) -> (String, Vec<u8>) {
        let (mut held, mut out) = (Vec::new(), Vec::new());
        for chunk in chunks {
            frame("stdout", "T", chunk, &mut held, &mut out);
        }
        (String::from_utf8_lossy(&out).into_owned(), held)
    }

    #[test]
    fn lines_are_put_together_across_reads() {
        let (out, held) = framed(&[b"one\ntw", b"o\n", b"\n", b"rest"]);
        assert_eq!(out, "T stdout F one\nT stdout F two\nT stdout F \n");
        assert_eq!(held, b"rest");
    }

    #[test]
    fn long_lines_are_cut_into_parts() {
        let long = vec![b'x'; 2 * PART + 1];
        let (out, held) = framed(&[&long[..PART + 5], &long[PART + 5..], b"\n"]);
        let kinds: Vec<(&str, usize)> = out.lines().map(|line| (&line[..11], line.len() - 11)).collect();
        assert_eq!(kinds, [("T stdout P ", PART), ("T stdout P ", PART), ("T stdout F ", 1)]);
        assert!(held.is_empty());
    }

    #[test]
    fn end_of_a_log_has_no_newline_that_the_program_did_not_print() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = AttemptLog::new(folder.path().join("0.log"));
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let mut stream = OutputStream::new(read, "stdout");
        rustix::io::write(&write, b"one\nDONE").expect("written");
        assert!(stream.pump(&mut LogBuffers::new(), &mut log) == ReadMore::More);
        assert_eq!(log.tail(), "one\n");
        stream.finish(&mut log);
        assert_eq!(log.tail(), "one\nDONE");
    }

    #[test]
    fn files_are_rotated_and_the_oldest_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        let mut log = AttemptLog::new(path.clone());
        let block = vec![b'a'; (FILE_BYTES / 2) as usize];
        for _ in 0..2 * (folder::LOG_FILES + 2) {
            log.append(&block);
        }
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(names, ["0.log", "0.log.1", "0.log.2", "0.log.3", "0.log.4"]);
        assert!(fs::metadata(&path).expect("there").len() <= FILE_BYTES);
        remove_log(&path);
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn log_that_is_a_link_is_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        for (name, hard) in [("soft.log", false), ("hard.log", true)] {
            let path = folder.path().join(name);
            if hard {
                fs::hard_link(&victim, &path).expect("linked");
            } else {
                std::os::unix::fs::symlink(&victim, &path).expect("linked");
            }
            let mut log = AttemptLog::new(path);
            log.append(b"line\n");
            assert_eq!(log.lost, 5);
        }
        let log = AttemptLog::new(folder.path().join("soft.log"));
        assert_eq!(log.tail(), "", "a link is not read");
        log.replay(|_, text| panic!("{text:?} is read through a link"));
        assert_eq!(fs::read(&victim).expect("there"), b"precious");
    }

    #[test]
    fn end_of_a_long_log_is_repeated_from_the_beginning_of_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = AttemptLog::new(folder.path().join("0.log"));
        let line = [b"T stdout F ".as_slice(), &[b'x'; 1000], b"\n"].concat();
        (0..2000).for_each(|_| log.append(&line));
        let mut lines = 0;
        log.replay(|_, text| {
            assert_eq!(text.len(), 1001);
            lines += 1;
        });
        assert_eq!(lines, REPLAY / line.len() as u64);
    }

    #[test]
    fn tail_is_text_without_marks() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = AttemptLog::new(folder.path().join("0.log"));
        log.append(b"T stdout F one\nT stderr F two words\n");
        assert_eq!(log.tail(), "one\ntwo words\n");
    }
}
