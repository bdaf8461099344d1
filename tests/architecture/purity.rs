//! Pure modules: their plans and texts depend on their arguments alone.
//!
//! Knows: the pure modules, and the paths and methods with side effects or hidden inputs. Start reading at [`PURE`].

use super::sources::{Named, Source, product};
use super::{assert_none, target};

/// The pure modules: without file, network, process, thread, environment, clock, random number or database.
pub const PURE: [&str; 17] = [
    "go",
    "object",
    "cel",
    "kinds",
    "world",
    "controllers",
    "scheduler",
    "kubelet",
    "network",
    "show",
    "apiserver/rules",
    "apiserver/admission/matching",
    "managed_fields",
    "kustomize",
    "diagnosis/overview",
    "cli/dash/model",
    "cli/dash/view",
];

/// Paths with side effects, or whose results depend on more than their arguments.
const IMPURE: [&str; 35] = [
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
    "std::os",
    "std::process",
    "std::thread",
    "std::env",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::time::SystemTime",
    "std::time::Instant",
    "std::hash::RandomState",
    "std::collections::hash_map::RandomState",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "jiff::tz::TimeZone::system",
    "crate::object::Time::now",
    "getrandom",
    "rusqlite",
    "rustix",
    "libc",
    "procfs",
    "notify",
    "tokio",
    "ureq",
    "tracing",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "thread_local!",
];

/// Methods of paths, addresses and times that read the machine's state; `metadata` is also one of kloop's own.
const IMPURE_METHODS: [&str; 11] = [
    "canonicalize",
    "elapsed",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "read_dir",
    "read_link",
    "symlink_metadata",
    "to_socket_addrs",
    "try_exists",
];

pub fn is_pure(source: &Source) -> bool {
    PURE.iter().any(|module| source.is_in(module))
}

fn is_impure(name: &Named) -> bool {
    IMPURE.iter().any(|prefix| name.is_below(prefix))
}

#[test]
fn pure_modules_have_no_side_effects() {
    let mut wrong = Vec::new();
    for source in product().filter(|source| is_pure(source)) {
        let names = source.names.iter().filter(|name| is_impure(name));
        wrong.extend(names.map(|name| source.locate(name.line, name.text())));
        let methods = source.parsed.methods.iter().filter(|(_, name)| IMPURE_METHODS.contains(&&**name));
        wrong.extend(methods.map(|(line, name)| source.locate(*line, format!(".{name}()"))));
    }
    assert_none(&wrong, "side effects in pure modules");
}

#[test]
fn pure_modules_name_pure_modules_or_their_own() {
    // A pure module of a layer that is not pure as a whole may be named, too. `progress` computes from a World alone.
    let is_in_pure_module = |name: &Named| {
        let path = name.path[1..].join("/");
        PURE.iter()
            .chain(&["diagnosis/progress"])
            .any(|module| path == *module || path.starts_with(&format!("{module}/")))
    };
    let mut wrong = Vec::new();
    for source in product().filter(|source| is_pure(source)) {
        let others = source.names.iter().filter(|name| target(name).is_some_and(|module| *module != source.module[0]));
        let impure = others.filter(|name| !is_in_pure_module(name));
        wrong.extend(impure.map(|name| source.locate(name.line, name.text())));
    }
    assert_none(&wrong, "pure modules that name impure ones");
}

#[test]
fn impure_paths_are_seen_in_the_modules_that_do_the_work() {
    let seen = |prefix: &str| product().any(|source| source.names.iter().any(|name| name.is_below(prefix)));
    let unseen: Vec<&str> = ["std::fs", "std::env", "std::process", "rusqlite", "rustix", "libc", "thread_local!"]
        .into_iter()
        .filter(|prefix| !seen(prefix))
        .collect();
    assert!(unseen.is_empty(), "the names of the sources were not resolved: {unseen:?}");
}
