//! Reports digests of the files that Image objects watch: once at the start, and after each burst of changes.
//!
//! One thread serves all images. A watcher on the folders of these files triggers the reads; where it cannot watch, the thread reads the
//! files every second. Only changed content is reported: writing a file again with the same content has no effect.

use super::debounced_watch::{BurstLimits, POLL_INTERVAL, create_watcher};
use crate::object::Str;
use crate::world::facts::FilePatterns;
use crate::world::{Report, SourceDigests};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use regex::Regex;
use rustix::fs::OFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// End of a burst of changes.
const BURST: BurstLimits = BurstLimits { quiet: Duration::from_millis(100), longest: Duration::from_secs(2) };
/// Maximum number of files that are read for an image.
const MAX_FILES: usize = 20_000;
/// For larger files, size and modification time stand for the content.
const LARGE_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// A command to the thread.
enum WatchCommand {
    /// Watches these files of an image; without patterns, stops watching it.
    Watch(Str, FilePatterns),
    /// Files have changed.
    Changed,
    /// Ends the thread.
    Quit,
}

/// Handle of the thread, which ends when this is dropped.
pub struct FileWatch(Sender<WatchCommand>);

impl FileWatch {
    /// Starts the thread.
    pub fn start(report: impl Fn(Report) + Send + 'static) -> std::io::Result<FileWatch> {
        let (sender, commands) = channel();
        let changes = sender.clone();
        let watcher = create_watcher(|_| true, move || drop(changes.send(WatchCommand::Changed)));
        let watcher = FileWatcher { watcher, folders: BTreeSet::new() };
        std::thread::Builder::new().name("sources".into()).spawn(move || run(&commands, watcher, report))?;
        Ok(FileWatch(sender))
    }

    /// Watches the files of an image from now on.
    pub fn watch(&self, image: &Str, files: &FilePatterns) {
        let _ = self.0.send(WatchCommand::Watch(image.clone(), files.clone()));
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let _ = self.0.send(WatchCommand::Quit);
    }
}

/// The watched folders.
struct FileWatcher {
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
}

impl FileWatcher {
    /// Watches these folders and no others.
    fn watch_only(&mut self, folders: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.folders.difference(&folders) {
            let _ = watcher.unwatch(gone);
        }
        let mut failed = false;
        for new in folders.difference(&self.folders) {
            failed |= watcher.watch(new, RecursiveMode::NonRecursive).is_err();
        }
        self.folders = folders;
        if failed {
            self.watcher = None;
        }
    }
}

/// Watched patterns and the last digest, by image.
type WatchedImages = BTreeMap<Str, (FilePatterns, Option<SourceDigests>)>;

/// Applies a command; returns false when the thread is to end.
fn apply_command(images: &mut WatchedImages, command: WatchCommand) -> bool {
    match command {
        WatchCommand::Watch(image, files) if files.globs.is_empty() => drop(images.remove(&image)),
        WatchCommand::Watch(image, files) => drop(images.insert(image, (files, None))),
        WatchCommand::Changed => {}
        WatchCommand::Quit => return false,
    }
    true
}

fn run(commands: &Receiver<WatchCommand>, mut watcher: FileWatcher, report: impl Fn(Report)) {
    let mut images = WatchedImages::new();
    loop {
        let first = match watcher.watcher {
            None if !images.is_empty() => commands.recv_timeout(POLL_INTERVAL),
            _ => commands.recv().map_err(RecvTimeoutError::from),
        };
        let goes_on = match first {
            Ok(WatchCommand::Changed) => BURST.wait_for_end(commands, |next| apply_command(&mut images, next)),
            Ok(command) => apply_command(&mut images, command),
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        };
        if !goes_on {
            return;
        }
        // Repeats until all folders were watched before the read, so that no change is missed.
        loop {
            let mut folders = BTreeSet::new();
            for (image, (files, known)) in &mut images {
                let found = digest_files(files, &mut folders);
                if known.as_ref() != Some(&found) {
                    *known = Some(found.clone());
                    report(Report::Sources { image: image.clone(), files: files.clone(), sources: found });
                }
            }
            if folders == watcher.folders || watcher.watcher.is_none() {
                break;
            }
            watcher.watch_only(folders);
        }
    }
}

/// Reads the files that match patterns, and adds the folders that were searched to `folders`.
fn digest_files(files: &FilePatterns, folders: &mut BTreeSet<PathBuf>) -> SourceDigests {
    let mut found = BTreeSet::new();
    for glob in &files.globs {
        let (base, glob) = match glob.strip_prefix('/') {
            Some(glob) => (PathBuf::from("/"), glob),
            None => (PathBuf::from(&files.folder), glob.as_str()),
        };
        let parts = glob.split('/').filter(|part| !part.is_empty() && *part != ".");
        let parts: Vec<NamePattern<'_>> = parts.map(NamePattern::parse).collect();
        walk(&base, &parts, &mut found, folders);
    }
    let mut hasher = DefaultHasher::new();
    for path in found.iter().take(MAX_FILES) {
        path.hash(&mut hasher);
        content(path, &mut hasher);
    }
    let message = match found.len() {
        0 => "no file matches spec.watch".to_owned(),
        count if count > MAX_FILES => format!("more than {MAX_FILES} files: only the first {MAX_FILES} are watched"),
        _ => String::new(),
    };
    SourceDigests { digest: format!("{:016x}", hasher.finish()).into(), files: found.len(), message }
}

fn content(path: &Path, hasher: &mut DefaultHasher) {
    // Nothing is waited for: a FIFO has no end, and neither has a device.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let Ok(file) = fs::File::options().read(true).custom_flags(flags).open(path) else { return };
    let Ok(meta) = file.metadata() else { return };
    if !meta.is_file() {
        return;
    }
    // Whether it may be executed is part of a program.
    (meta.mode() & 0o111).hash(hasher);
    if meta.len() > LARGE_FILE_BYTES {
        return (meta.len(), meta.mtime(), meta.mtime_nsec()).hash(hasher);
    }
    let mut bytes = Vec::new();
    if file.take(LARGE_FILE_BYTES).read_to_end(&mut bytes).is_ok() {
        bytes.hash(hasher);
    }
}

/// Collects the files below a folder that match a pattern. If the last part of the pattern names a folder, collects all files in it.
fn walk(folder: &Path, parts: &[NamePattern<'_>], found: &mut BTreeSet<PathBuf>, folders: &mut BTreeSet<PathBuf>) {
    let Some((part, rest)) = parts.split_first() else { return };
    if part.text == ".." {
        return walk(&folder.join(".."), rest, found, folders);
    }
    let Ok(entries) = fs::read_dir(folder) else {
        // The folder may be created later, which changes the nearest existing folder above it.
        folders.extend(folder.ancestors().find(|above| above.is_dir()).map(Path::to_owned));
        return;
    };
    folders.insert(folder.to_owned());
    if found.len() > MAX_FILES || folders.len() > MAX_FILES {
        return;
    }
    if part.text == "**" {
        walk(folder, rest, found, folders);
    }
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str() else { continue };
        if !part.matches(name) {
            continue;
        }
        // A link to a folder could lead in circles.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        match (part.text, is_folder) {
            ("**", true) => walk(&path, parts, found, folders),
            ("**", false) if rest.is_empty() => drop(found.insert(path)),
            ("**", false) => {}
            (_, true) if rest.is_empty() => walk(&path, &[NamePattern::parse("**")], found, folders),
            (_, true) => walk(&path, rest, found, folders),
            (_, false) if rest.is_empty() => drop(found.insert(path)),
            (_, false) => {}
        }
    }
}

/// A part of a path pattern: `**` or a name, in which `*` is any text and `?` any letter. Brackets stand for themselves, because files of
/// that kind exist (`[id].tsx`).
struct NamePattern<'a> {
    text: &'a str,
    /// None for a name that is too long to exist.
    names: Option<Regex>,
}

impl NamePattern<'_> {
    fn parse(text: &str) -> NamePattern<'_> {
        let names = regex::escape(text).replace(r"\*", ".*").replace(r"\?", ".");
        NamePattern { text, names: Regex::new(&format!("(?s)^{names}$")).ok() }
    }

    /// Whether the pattern matches a name. A name that begins with a dot matches only a pattern that begins with one.
    fn matches(&self, name: &str) -> bool {
        let is_visible = !name.starts_with('.') || self.text.starts_with('.');
        is_visible && self.names.as_ref().is_some_and(|names| names.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, expected) in [
            ("*.py", "a.py", true),
            ("*.py", ".a.py", false),
            (".*", ".env", true),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("[id].*", "[id].tsx", true),
            ("[id].*", "i.tsx", false),
            ("{a,b}.c", "a.c", false),
            ("a.c", "abc", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("**", "x", true),
            ("x", "y", false),
        ] {
            assert_eq!(NamePattern::parse(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_found_and_their_content_counts() {
        let home = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        for path in ["a.py", "src/b.py", "src/deep/c.py", "src/deep/d.txt", ".git/e.py"] {
            write(path, path);
        }
        let folder = home.path().to_string_lossy().into_owned();
        let look = |globs: &[&str]| {
            let globs =
                FilePatterns { folder: folder.clone(), globs: globs.iter().map(|glob| glob.to_string()).collect() };
            super::digest_files(&globs, &mut BTreeSet::new())
        };
        for (globs, files) in [
            (&["*.py"][..], 1),
            (&["./src/*.py"], 1),
            (&["**/*.py"], 3),
            (&["src"], 3),
            (&["src/**"], 3),
            (&["*.py", "a.py"], 1),
            (&["none/*"], 0),
        ] {
            assert_eq!(look(globs).files, files, "{globs:?}");
        }
        assert!(look(&["none/*"]).message.starts_with("no file matches"));
        let before = look(&["**/*.py"]).digest;
        write("src/b.py", "src/b.py");
        assert_eq!(look(&["**/*.py"]).digest, before, "the same content is not a change");
        // Nothing is read from a FIFO, which has no end, or is waited for.
        rustix::fs::mknodat(CWD, home.path().join("f.py"), FileType::Fifo, Mode::RWXU, 0).expect("made");
        assert_eq!(look(&["*.py"]).files, 2);
        write("src/b.py", "other");
        assert_ne!(look(&["**/*.py"]).digest, before);
    }

    #[test]
    fn burst_is_reported_once() {
        let home = tempfile::tempdir().expect("a folder");
        let (send, reports) = channel();
        let watching = FileWatch::start(move |report| drop(send.send(report))).expect("started");
        let files = FilePatterns { folder: home.path().to_string_lossy().into_owned(), globs: vec!["sub/*".into()] };
        watching.watch(&"web".into(), &files);
        let next = || match reports.recv_timeout(Duration::from_secs(20)).expect("a report") {
            Report::Sources { sources, .. } => sources.files,
            other => panic!("{other:?}"),
        };
        assert_eq!(next(), 0);
        let build = home.path().join("build");
        fs::create_dir(&build).expect("made");
        for number in 0..5 {
            fs::write(build.join(number.to_string()), "x").expect("written");
        }
        fs::rename(&build, home.path().join("sub")).expect("renamed");
        assert_eq!(next(), 5);
        // At once with its content: between the two it would be another file.
        fs::write(home.path().join("5"), "x").expect("written");
        fs::rename(home.path().join("5"), home.path().join("sub/5")).expect("renamed");
        assert_eq!(next(), 6);
        watching.watch(&"web".into(), &FilePatterns::default());
        drop(watching);
        let rest = reports.recv_timeout(Duration::from_secs(20));
        assert_eq!(rest, Err(RecvTimeoutError::Disconnected), "the thread ended without another report");
    }
}
