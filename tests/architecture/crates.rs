//! Crates: each declared one is used, and has one version.

use super::sources::{Source, every_file, root, tests};
use std::collections::BTreeMap;
use std::fs;

/// The lines of one section of `Cargo.toml`.
fn section(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let lines = manifest.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// The names of the crates in one section of `Cargo.toml`, as sources write them.
fn dependencies(name: &str) -> Vec<String> {
    section(name).iter().filter_map(|line| Some(line.split_once(" =")?.0.replace('-', "_"))).collect()
}

#[test]
fn release_binary_has_no_symbols() {
    // A package with a section of its own does not get this setting of the profile: the binary was a third larger.
    for name in ["profile.release", "profile.release.package.kloop"] {
        assert!(section(name).contains(&"strip = \"symbols\"".to_owned()), "{name}: {:?}", section(name));
    }
}

/// Whether a file writes a path that begins with the crate's name.
fn names_crate(source: &Source, name: &str, with_tests: bool) -> bool {
    let mut written = source.parsed.written.iter().filter(|written| with_tests || !(written.is_test || source.is_test));
    written.any(|written| written.path.iter().find(|part| !part.is_empty()).is_some_and(|first| first == name))
}

#[test]
fn declared_crates_are_used() {
    let declared = dependencies("dependencies");
    assert!(declared.len() > 20, "the section was read: {declared:?}");
    let is_used = |name: &String| every_file().iter().any(|source| names_crate(source, name, false));
    let mut unused: Vec<String> = declared.into_iter().filter(|name| !is_used(name)).collect();
    // Tests of modules may use test dependencies.
    let is_tested = |name: &String| every_file().iter().chain(tests()).any(|source| names_crate(source, name, true));
    unused.extend(dependencies("dev-dependencies").into_iter().filter(|name| !is_tested(name)));
    assert!(unused.is_empty(), "crates that no source names: {unused:?}");
}

/// Crates with two versions, because dependencies require an older one.
const SEVERAL_VERSIONS: [&str; 6] = ["base64", "getrandom", "r-efi", "shlex", "syn", "windows-sys"];

#[test]
fn crates_have_at_most_two_versions_each_and_most_have_one() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for name in lock.lines().filter_map(|line| line.strip_prefix("name = ")) {
        *versions.entry(name.trim_matches('"')).or_default() += 1;
    }
    let several: Vec<&str> = versions.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name).collect();
    assert_eq!(several, SEVERAL_VERSIONS, "see `cargo tree --duplicates`");
    assert_eq!(versions["syn"], 2, "the tests use the version of syn that others bring");
}
