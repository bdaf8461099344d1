//! Search for the program of a container on its PATH.
//!
//! In a private view each miss makes the kernel look into two layers and remember the answer until the view ends, so folders that the view
//! shows unchanged are searched among the machine's files, before the view is entered. Never: executes anything.

use super::super::image::programs::may_execute;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

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

/// Returns PATH without its first folders, as long as the program is in none of them: neither among the machine's files, which this process
/// still sees, nor in the view, unless `may_differ` says that the view may show something else there. Folders behind a symbolic link are
/// kept.
pub fn skip_absent<'a>(name: &str, path: &'a str, may_differ: impl Fn(&Path) -> bool) -> &'a str {
    let mut rest = path;
    while !name.contains('/')
        && let Some((folder, behind)) = rest.split_once(':')
        && is_plain(folder)
        && is_absent(&Path::new(folder).join(name))
        && !may_differ(Path::new(folder))
    {
        rest = behind;
    }
    rest
}

/// Whether a path is absolute and without `..`.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && Path::new(path).components().all(|part| part != Component::ParentDir)
}

/// Whether a file does not exist, and no symbolic link is on the way.
fn is_absent(file: &Path) -> bool {
    openat2(CWD, file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS).err()
        == Some(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn folders_without_the_program_are_skipped_unless_the_view_may_differ() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let at = |path: &str| root.join(path).to_string_lossy().into_owned();
        for made in ["one", "two", "mounted"] {
            fs::create_dir(at(made)).unwrap();
        }
        std::os::unix::fs::symlink("one", at("link")).unwrap();
        fs::write(at("two/run"), "").unwrap();
        let table = [
            (&["one", "gone", "two", "one"][..], 2),
            (&["two", "one"], 0),
            (&["one", "link", "two"], 1),
            (&["one", "mounted", "two"], 1),
            (&["one", "two/../one", "two"], 1),
            (&["one", "gone"], 1),
        ];
        for (folders, skipped) in table {
            let folders: Vec<String> = folders.iter().map(|folder| at(folder)).collect();
            let path = folders.join(":");
            let rest = skip_absent("run", &path, |folder| folder == Path::new(&at("mounted")));
            assert_eq!(rest, folders[skipped..].join(":"), "{path}");
        }
        assert_eq!(skip_absent("./run", "/one:/two", |_| false), "/one:/two", "a path is not searched");
        assert_eq!(
            skip_absent("run", "one:/two", |_| false),
            "one:/two",
            "a relative folder depends on the working folder"
        );
    }
}
