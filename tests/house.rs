//! The floor plan, read from the sources: a room names only rooms on lower floors, and the pure rooms are pure.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Floors from the ground up. Rooms of one floor do not name each other.
const FLOORS: [&[&str]; 9] = [
    &["object"],
    &["kinds"],
    &["world"],
    &["controllers", "scheduler", "kubelet", "network", "show"],
    &["store", "runtime"],
    &["apiserver"],
    &["reconcile"],
    &["serve"],
    &["cli"],
];

/// Rooms that neither see nor touch the world outside.
const PURE: [&str; 11] = [
    "object",
    "kinds",
    "world",
    "controllers",
    "scheduler",
    "kubelet",
    "network",
    "show",
    "apiserver/rules",
    "apiserver/managed",
    "cli/kustomize/build",
];

/// What a pure room may not name.
const OUTSIDE: [&str; 16] = [
    "std::fs",
    "std::net::T",
    "std::net::U",
    "std::net::ToSocketAddrs",
    "std::process",
    "std::thread",
    "std::env",
    "std::io::std",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Time::now",
    "getrandom",
    "rusqlite",
    "println!",
    "eprintln!",
];

fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(below);
    let (mut folders, mut found) = (vec![root], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "no sources in src/{below}");
    found
}

/// The code of a file without its tests and comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let lines = text[..end].lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("test") || path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn rooms_name_only_lower_floors() {
    let floor: BTreeMap<&str, usize> =
        FLOORS.iter().enumerate().flat_map(|(number, rooms)| rooms.iter().map(move |room| (*room, number))).collect();
    let mut wrong = Vec::new();
    for (room, own) in &floor {
        for (path, text) in sources(room).iter().filter(|(path, _)| !is_test(path)) {
            for (number, line) in code(text) {
                for (other, theirs) in &floor {
                    let named =
                        line.contains(&format!("crate::{other}::")) || line.contains(&format!("crate::{other};"));
                    if named && other != room && theirs >= own {
                        wrong.push(format!("{}:{number}: {room} names {other}", path.display()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point upwards or sideways:\n{}", wrong.join("\n"));
}

#[test]
fn pure_rooms_are_pure() {
    let mut wrong = Vec::new();
    for room in PURE {
        for (path, text) in sources(room).iter().filter(|(path, _)| !is_test(path)) {
            for (number, line) in code(text) {
                for outside in OUTSIDE.iter().filter(|outside| line.contains(**outside)) {
                    wrong.push(format!("{}:{number}: {outside}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "pure rooms that look outside:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_stands_only_in_runtime() {
    let wrong: Vec<String> = sources("")
        .iter()
        .filter(|(path, _)| !path.components().any(|part| part.as_os_str() == "runtime"))
        .flat_map(|(path, text)| {
            let unsafe_lines = code(text).filter(|(_, line)| line.contains("unsafe {") || line.contains("unsafe fn"));
            unsafe_lines.map(|(number, _)| format!("{}:{number}", path.display())).collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "unsafe outside runtime:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_says_what_it_is() {
    let silent: Vec<String> = sources("")
        .iter()
        .filter(|(path, text)| !is_test(path) && !text.starts_with("//!"))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(silent.is_empty(), "modules that open without a word:\n{}", silent.join("\n"));
}

#[test]
fn files_stay_readable() {
    let long: Vec<String> = sources("")
        .iter()
        .filter(|(_, text)| text.lines().count() > 700)
        .map(|(path, text)| format!("{}: {} lines", path.display(), text.lines().count()))
        .collect();
    assert!(long.is_empty(), "files that should be folders:\n{}", long.join("\n"));
}
