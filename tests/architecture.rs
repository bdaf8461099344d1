//! The architecture, read from the sources: a module names only modules of lower layers, pure modules have no side effects,
//! comments and functions are worded as CONTRIBUTING asks, and each declared crate is used.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, lowest first. Modules of one layer do not name each other.
const LAYERS: [&[&str]; 11] = [
    &["go"],
    &["object"],
    &["kinds"],
    &["world"],
    &["controllers", "scheduler", "kubelet", "network", "show"],
    &["store", "runtime"],
    &["apiserver"],
    &["reconcile"],
    &["diagnosis"],
    &["serve"],
    &["cli"],
];

/// The modules that use no file, network, process, thread, environment, clock, random number or database.
const PURE: [&str; 12] = [
    "go",
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

/// Names that a pure module may not contain.
const IMPURE: [&str; 17] = [
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
    "tracing::",
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
fn modules_name_only_lower_layers() {
    let layers: BTreeMap<&str, usize> =
        LAYERS.iter().enumerate().flat_map(|(layer, modules)| modules.iter().map(move |name| (*name, layer))).collect();
    let mut wrong = Vec::new();
    for (module, own) in &layers {
        for (path, text) in sources(module).iter().filter(|(path, _)| !is_test(path)) {
            for (number, line) in code(text) {
                for (other, layer) in &layers {
                    let named =
                        line.contains(&format!("crate::{other}::")) || line.contains(&format!("crate::{other};"));
                    if named && other != module && layer >= own {
                        wrong.push(format!("{}:{number}: {module} names {other}", path.display()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "modules that name a module of the same or a higher layer:\n{}", wrong.join("\n"));
}

#[test]
fn pure_modules_have_no_side_effects() {
    let mut wrong = Vec::new();
    for module in PURE {
        for (path, text) in sources(module).iter().filter(|(path, _)| !is_test(path)) {
            for (number, line) in code(text) {
                for name in IMPURE.iter().filter(|name| line.contains(**name)) {
                    wrong.push(format!("{}:{number}: {name}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "side effects in pure modules:\n{}", wrong.join("\n"));
}

#[test]
fn spans_are_made_where_time_is_spent() {
    for module in ["apiserver", "runtime"] {
        for (path, text) in sources(module) {
            assert!(
                !text.contains("tracing::"),
                "{}: spans are made in reconcile, serve, store and cli",
                path.display()
            );
        }
    }
}

#[test]
fn unsafe_code_is_only_in_runtime() {
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
fn every_module_has_documentation() {
    let undocumented: Vec<String> = sources("")
        .iter()
        .filter(|(path, text)| !is_test(path) && !text.starts_with("//!"))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(undocumented.is_empty(), "modules without documentation:\n{}", undocumented.join("\n"));
}

#[test]
fn files_have_at_most_700_lines() {
    let long: Vec<String> = sources("")
        .iter()
        .filter(|(_, text)| text.lines().count() > 700)
        .map(|(path, text)| format!("{}: {} lines", path.display(), text.lines().count()))
        .collect();
    assert!(long.is_empty(), "files that should be folders:\n{}", long.join("\n"));
}

/// Comments do not open with one of these words, but with a verb, a noun phrase or a condition.
const OPENINGS: [&str; 10] =
    ["What ", "Who ", "Whom ", "Whose ", "Where ", "How ", "Of ", "Which ", "Whoever ", "Whatever "];

/// Prepositions, pronouns and fillers: words that do not name a function.
const NAMELESS: [&str; 32] = [
    "about", "above", "after", "along", "among", "anew", "around", "at", "before", "behind", "below", "beside",
    "between", "by", "for", "hear", "in", "into", "it", "of", "on", "one", "over", "said", "tell", "them", "through",
    "to", "told", "under", "with", "without",
];

/// Fails with the places of the wrong lines, given the line before and the line without its blanks.
#[track_caller]
fn assert_no_line(files: &[(PathBuf, String)], is_wrong: impl Fn(&str, &str) -> bool) {
    let mut wrong = Vec::new();
    for (path, text) in files {
        let lines: Vec<&str> = std::iter::once("").chain(text.lines().map(str::trim_start)).collect();
        let pairs = lines.windows(2).enumerate().filter(|(_, pair)| is_wrong(pair[0], pair[1]));
        wrong.extend(pairs.map(|(index, pair)| format!("{}:{}: {}", path.display(), index + 1, pair[1])));
    }
    assert!(wrong.is_empty(), "see CONTRIBUTING, Words:\n{}", wrong.join("\n"));
}

#[test]
fn comments_open_with_a_verb_a_noun_or_a_condition() {
    let opens = |before: &str, line: &str| {
        let text = line.strip_prefix("//").filter(|_| !before.starts_with("//"));
        text.is_some_and(|text| OPENINGS.iter().any(|word| text.trim_start_matches(['/', '!', ' ']).starts_with(word)))
    };
    assert_no_line(&sources(""), opens);
    assert_no_line(&sources("../tests"), opens);
}

#[test]
fn functions_are_not_named_by_a_preposition_or_a_pronoun() {
    assert_no_line(&sources(""), |_, line| {
        let name = line.split_once("fn ").map(|(_, rest)| rest.split(['(', '<']).next().unwrap_or_default());
        !line.starts_with("//") && name.is_some_and(|name| NAMELESS.contains(&name))
    });
}

#[test]
fn test_names_open_with_their_subject() {
    let opens = |before: &str, line: &str| {
        let name = line.split_once("fn ").map(|(_, rest)| rest).filter(|_| before == "#[test]").unwrap_or_default();
        OPENINGS.iter().any(|word| name.starts_with(&format!("{}_", word.trim_end().to_lowercase())))
    };
    assert_no_line(&sources(""), opens);
    assert_no_line(&sources("../tests"), opens);
}

/// Names that several files of a kind share on purpose: the arguments of each verb.
const SHARED_TYPE_NAMES: [&str; 1] = ["Args"];

#[test]
fn public_types_have_names_of_their_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources("").iter().filter(|(path, _)| !is_test(path)) {
        for (number, line) in code(text) {
            let words = line.strip_prefix("pub ").unwrap_or_default();
            let kinds = ["struct ", "enum ", "trait ", "type "];
            let Some(rest) = kinds.iter().find_map(|kind| words.strip_prefix(kind)) else { continue };
            let name = rest.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
            places.entry(name.to_owned()).or_default().push(format!("{}:{number}", path.display()));
        }
    }
    places.retain(|name, places| places.len() > 1 && !SHARED_TYPE_NAMES.contains(&&**name));
    assert!(places.is_empty(), "one name, one meaning: {places:#?}");
}

/// The names of the crates in one section of `Cargo.toml`, as sources write them.
fn dependencies(section: &str) -> Vec<String> {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let lines = manifest.lines().skip_while(|line| *line != format!("[{section}]")).skip(1);
    let names = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    names.filter_map(|line| Some(line.split_once(" =")?.0.replace('-', "_"))).collect()
}

#[test]
fn declared_crates_are_used() {
    let (product, tests) = (sources(""), sources("../tests"));
    let is_used = |name: &String, files: &[(PathBuf, String)]| {
        let (path, import) = (format!("{name}::"), format!("use {name}"));
        files.iter().any(|(_, text)| code(text).any(|(_, line)| line.contains(&path) || line.contains(&import)))
    };
    let declared = dependencies("dependencies");
    assert!(declared.len() > 20, "the section was read: {declared:?}");
    let mut unused: Vec<String> = declared.into_iter().filter(|name| !is_used(name, &product)).collect();
    // Crates of tests are used in the tests of modules, too.
    let whole =
        |files: &[(PathBuf, String)], name: &String| files.iter().any(|(_, text)| text.contains(&format!("{name}::")));
    unused.extend(
        dependencies("dev-dependencies").into_iter().filter(|name| !whole(&product, name) && !whole(&tests, name)),
    );
    assert!(unused.is_empty(), "crates that no source names: {unused:?}");
}

/// Crates of which two versions are needed, because others ask for an older one.
const SEVERAL_VERSIONS: [&str; 6] = ["base64", "getrandom", "r-efi", "shlex", "syn", "windows-sys"];

#[test]
fn crates_have_one_version_each() {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).unwrap();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for name in lock.lines().filter_map(|line| line.strip_prefix("name = ")) {
        *versions.entry(name.trim_matches('"')).or_default() += 1;
    }
    let several: Vec<&str> = versions.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect();
    assert_eq!(several, SEVERAL_VERSIONS, "see `cargo tree --duplicates`");
}

/// Moments and durations come from users' objects, and the operators of both panic on overflow: `Shift::later` and `Shift::earlier` do not.
#[test]
fn moments_are_moved_without_overflow() {
    const NAMES: [&str; 10] =
        ["now", "now()", "since", "asked", "finished", "started", "deadline", "created", "begun", "kill_at"];
    let is_sum = |line: &str| {
        let of_duration = ["+ SignedDuration::from_", "- SignedDuration::from_", "+ jiff::SignedDuration::from_"];
        // A constant, such as `since + UNANSWERED`.
        let of_name = |name: &&str| {
            [" + ", " - "].iter().any(|sign| {
                line.match_indices(&format!("{name}{sign}")).any(|(at, found)| {
                    let after = line[at + found.len()..].chars().take(2);
                    let before = line[..at].chars().next_back();
                    after.clone().count() == 2
                        && after.into_iter().all(|letter| letter.is_ascii_uppercase())
                        && before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
                })
            })
        };
        of_duration.iter().any(|text| line.contains(text)) || NAMES.iter().any(of_name)
    };
    // These files add constants to times of the clock.
    let by_clock = [
        "horizontalpodautoscaler/mod.rs",
        "reconcile/control_plane.rs",
        "reconcile/tick.rs",
        "kubelet/resize.rs",
        "statefulset/claims.rs",
    ];
    let mut wrong = Vec::new();
    for room in
        ["kinds", "world", "controllers", "scheduler", "kubelet", "network", "apiserver", "reconcile", "diagnosis"]
    {
        for (path, text) in sources(room).iter().filter(|(path, _)| !is_test(path)) {
            let is_exempt = by_clock.iter().any(|end| path.ends_with(end)) || path.ends_with("kubelet/machine.rs");
            for (number, line) in code(text).filter(|(_, line)| !is_exempt && is_sum(line)) {
                wrong.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "moments that can leave their range:\n{}", wrong.join("\n"));
}
