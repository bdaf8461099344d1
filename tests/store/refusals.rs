//! Files that the store refuses and leaves unchanged.

use super::*;
use kloop::store::{OpenError, StoreRead, StoredObject};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Returns every file of a folder with its bytes, except SQLite's shared memory and our lock files.
fn bytes(dir: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| !["-shm", ".queue", ".write"].iter().any(|end| name.to_str().unwrap().ends_with(end)))
        .collect()
}

/// Makes a small cluster's file and closes it.
fn example(dir: &Path) -> PathBuf {
    let path = dir.join("state.db");
    let mut store = Store::open(&path, OpenMode::Create).unwrap();
    for name in ["a", "b", "c"] {
        put(&mut store, name, &"text ".repeat(300));
    }
    put(&mut store, "a", "again");
    path
}

fn foreign_database(path: &Path) {
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
}

#[test]
fn each_refusal_has_its_code_and_changes_nothing() {
    type Case = (&'static str, fn(&Path), u8, &'static str);
    let cases: &[Case] = &[
        ("nothing", |_| {}, 66, "kloop apply"),
        ("empty", |path| fs::write(path, "").unwrap(), 67, "empty"),
        ("text", |path| fs::write(path, "hello\n".repeat(1000)).unwrap(), 67, "does not begin as"),
        ("directory", |path| fs::create_dir(path).unwrap(), 67, "directory"),
        ("pipe", |path| rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap(), 67, "pipe"),
        ("another program's", foreign_database, 67, "another program"),
        ("another program's, in use", foreign_in_use, 67, "another program"),
        ("newer", newer, 65, "newer kloop"),
        ("cut short", |path| cut(path, 16384), 68, "damaged"),
        ("cut to its header", |path| cut(path, 512), 68, "damaged"),
        ("symbolic link", linked, 77, "symbolic link"),
        ("hard link", hard_linked, 77, "hard link"),
        ("rollback journal", |path| fs::write(with_journal(path), "x").unwrap(), 67, "rollback journal"),
    ];
    for (name, make, code, word) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        make(&path);
        let before = bytes(dir.path());
        // A missing file may be created; every other case is refused in both modes.
        let all = [OpenMode::Existing, OpenMode::Create];
        for access in if *name == "nothing" { &all[..1] } else { &all[..] } {
            let error = match Store::open(&path, *access).map_err(|error| (error.exit_code(), error.to_string())) {
                Err(error) => error,
                Ok(store) => store.check().map(|_| ()).map_err(|e| (e.exit_code(), e.to_string())).expect_err(name),
            };
            assert_eq!(error.0, *code, "{name}: {}", error.1);
            assert!(error.1.contains(word), "{name}: {}", error.1);
        }
        assert_eq!(bytes(dir.path()), before, "{name} was changed");
    }
}

#[test]
fn file_of_another_program_keeps_its_mode() {
    let text: fn(&Path) = |path| fs::write(path, "hello\n".repeat(1000)).unwrap();
    let short: fn(&Path) = |path| fs::write(path, "hello\n").unwrap();
    for make in [text, short, foreign_database] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        make(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Store::open(&path, OpenMode::Existing).err().unwrap();
        assert!(error.to_string().contains("it was left as it is"), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }
}

fn with_journal(path: &Path) -> PathBuf {
    example(path.parent().unwrap());
    path.with_file_name("state.db-journal")
}

fn cut(path: &Path, length: u64) {
    example(path.parent().unwrap());
    fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn newer(path: &Path) {
    example(path.parent().unwrap());
    rusqlite::Connection::open(path).unwrap().pragma_update(None, "user_version", 1000).unwrap();
}

fn linked(path: &Path) {
    let real = path.with_file_name("real");
    fs::create_dir(&real).unwrap();
    symlink(example(&real), path).unwrap();
}

fn hard_linked(path: &Path) {
    example(path.parent().unwrap());
    fs::hard_link(path, path.with_file_name("second.db")).unwrap();
}

/// Copied while its program ran: its last writes are only in the WAL.
fn foreign_in_use(path: &Path) {
    let there = tempfile::tempdir().unwrap();
    let original = there.path().join("other.db");
    let other = rusqlite::Connection::open(&original).unwrap();
    other.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    fs::copy(&original, path).unwrap();
    fs::copy(there.path().join("other.db-wal"), path.with_file_name("state.db-wal")).unwrap();
}

#[test]
fn folder_must_be_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = example(dir.path());
    for (mode, remedy) in [(0o770, "chmod go-w"), (0o707, "chmod go-w"), (0o1777, "a folder of your own")] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = Store::open(&path, OpenMode::Existing).err().unwrap();
        assert!(matches!(error, OpenError::Unsafe { .. }), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Store::open(&path, OpenMode::Existing).unwrap();
    let below_a_file = Store::open(&path.join("state.db"), OpenMode::Create).err().unwrap();
    assert!(matches!(below_a_file, OpenError::Foreign { .. }), "{below_a_file}");
}

#[test]
fn files_of_other_users_are_refused() {
    if !rustix::process::geteuid().is_root() {
        skip!("only root can give a file away");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = example(dir.path());
    std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
    let error = Store::open(&path, OpenMode::Existing).err().unwrap();
    assert!(error.to_string().contains("belongs to user 12345"), "{error}");
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
    let error = Store::open(&path, OpenMode::Create).err().unwrap();
    assert_eq!((error.exit_code(), error.to_string().contains("belongs to user 12345")), (77, true), "{error}");
}

#[test]
fn created_files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/state.db");
    let mut store = Store::open(&path, OpenMode::Create).unwrap();
    put(&mut store, "a", "one");
    let _hint = kloop::store::watch_hint(&store).unwrap();
    store.backup(&dir.path().join("a/copy.db")).unwrap();
    for folder in ["a", "a/b"] {
        assert_eq!(fs::metadata(dir.path().join(folder)).unwrap().mode() & 0o7777, 0o700, "{folder}");
    }
    let mut files: Vec<_> = fs::read_dir(store.dir()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(dir.path().join("a/copy.db"));
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600, "{}", file.display());
    }
}

/// The umask belongs to the whole process, so the test starts another process.
#[test]
fn file_modes_are_independent_of_the_umask() {
    for umask in ["0", "0777", "077"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/state.db");
        let program = std::env::current_exe().unwrap();
        let done = std::process::Command::new("sh")
            .args(["-c", &format!("umask {umask}; exec \"$0\" store::crash::child --exact"), program.to_str().unwrap()])
            .env(crash::ROLE, "umask:3")
            .env(crash::FILE, &path)
            .output()
            .unwrap();
        assert!(done.status.success(), "umask {umask}: {done:?}");
        let folder = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(folder.mode() & 0o7777, 0o700, "umask {umask}");
        for file in fs::read_dir(path.parent().unwrap()).unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600, "umask {umask}: {}", file.path().display());
        }
    }
}

#[test]
fn public_file_is_made_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = example(dir.path());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    Store::open(&path, OpenMode::Existing).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn special_names_of_sqlite_are_plain_file_names() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["file:x?mode=memory", ":memory:", "with space", "ünï"] {
        let path = dir.path().join(name);
        put(&mut Store::open(&path, OpenMode::Create).unwrap(), "a", "one");
        assert!(path.is_file(), "{name}");
        let again = Store::open(&path, OpenMode::Existing).unwrap();
        assert_eq!(again.read().unwrap().revision().unwrap(), 1);
    }
    let long = dir.path().join("x".repeat(250)).join("y".repeat(250)).join("z".repeat(250));
    assert_eq!(Store::open(&long, OpenMode::Create).err().unwrap().exit_code(), 74);
}

#[test]
fn leftovers_of_a_killed_creator_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    for left in ["state.db.new", "state.db.new-journal", "state.db.new-wal"] {
        fs::write(dir.path().join(left), "half a database").unwrap();
    }
    put(&mut Store::open(&path, OpenMode::Create).unwrap(), "a", "one");
    let names: Vec<_> = bytes(dir.path()).into_keys().collect();
    assert_eq!(names, ["state.db"]);
}

#[test]
fn flipped_bit_is_detected_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(example(dir.path())).unwrap();
    let right = everything(&dir.path().join("state.db")).unwrap();
    let path = dir.path().join("flipped.db");
    let mut noticed = 0;
    // Every byte of the header, then one in four hundred; the step is prime, so that all positions in a page are tested.
    for at in (0..100).chain((100..whole.len()).step_by(397)) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&path, &flipped).unwrap();
        match everything(&path) {
            Ok(found) => assert!(found == right, "byte {at}: wrong data without an error"),
            Err(_) => noticed += 1,
        }
    }
    assert!(noticed > 10, "{noticed}");
}

#[test]
fn truncated_file_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(example(dir.path())).unwrap();
    let right = everything(&dir.path().join("state.db")).unwrap();
    let path = dir.path().join("cut.db");
    for length in (0..whole.len()).step_by(9 * 512) {
        fs::write(&path, &whole[..length]).unwrap();
        // Within the last page, of a table that is not read here, no data is lost.
        let last = length > whole.len() - 16384;
        match everything(&path) {
            Ok(found) => assert!(last && found == right, "cut to {length} bytes, without an error"),
            Err(code) => assert!([67, 68].contains(&code), "{code}"),
        }
    }
}

/// Returns everything that a control plane reads when it starts; or the exit code.
fn everything(path: &Path) -> Result<(Vec<StoredObject>, Vec<kloop::store::LogEntry>), u8> {
    let store = Store::open(path, OpenMode::Existing).map_err(|error| error.exit_code())?;
    let snapshot = store.read().map_err(|error| error.exit_code())?;
    let live = snapshot.list_all().map_err(|error| error.exit_code())?;
    let log = snapshot.log_after(0, usize::MAX).map_err(|error| error.exit_code())?;
    Ok((live, log))
}
