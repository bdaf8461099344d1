//! State that outlives a call: every mutable static is listed here with its reason.
//!
//! Knows: types with interior mutability. Start reading at [`CHANGING`].

use super::assert_none;
use super::purity::is_pure;
use super::sources::product;
use super::syntax::{Static, StaticKind};

/// The mutable statics by file and name, each with the reason why it is not a function argument.
const CHANGING: [(&str, &str, &str); 26] = [
    (
        "src/apiserver/admission/policies/definitions.rs",
        "KNOWN",
        "a cache: a policy at one revision has the same programs",
    ),
    (
        "src/apiserver/admission/server_flags.rs",
        "DISABLED",
        "the flags of a process named kube-apiserver, set once before it serves",
    ),
    (
        "src/apiserver/admission/webhooks/hook.rs",
        "KEPT",
        "a cache: a configuration at one revision has the same webhooks",
    ),
    ("src/apiserver/env.rs", "STORE", "random numbers of the system, fetched in batches"),
    ("src/cel/cache.rs", "COMPILED", "a cache: an expression with its declarations gives the same program at any time"),
    ("src/cli/output/log_writer.rs", "SINK", "the one thread that writes to standard output"),
    ("src/kinds/custom/pattern.rs", "COMPILED", "a cache: a pattern's text gives the same program at any time"),
    ("src/kinds/custom/rules/definition.rs", "CHECKED", "a cache: a schema's text has the same errors at any time"),
    ("src/object/key.rs", "KNOWN", "an interner: a name gives the same `Resource` at any time"),
    ("src/serve/http/proxy/connect.rs", "TLS", "the TLS configuration for other servers, which is made once"),
    ("src/runtime/allocator.rs", "USES_MIMALLOC", "whether any thread has changed its allocator"),
    ("src/runtime/allocator.rs", "HAS_SWITCHED", "the allocator that a thread uses, changed once"),
    ("src/runtime/contain.rs", "CONTAINING", "the panic hook belongs to the process and has no argument"),
    ("src/runtime/contain.rs", "LAST", "as above: the message on its way from the hook to the caller"),
    ("src/runtime/contain.rs", "INSTALL", "the panic hook is set once per process"),
    ("src/runtime/descriptors.rs", "ORIGINAL", "the limit of the process before it was raised"),
    ("src/runtime/network/random.rs", "CHANCE", "a random number generator for each thread"),
    ("src/runtime/network/worker_pool.rs", "NUMBER", "the index of a worker thread"),
    ("src/runtime/process.rs", "BOOT", "the id of the boot, which is read once and inherited by forked processes"),
    ("src/runtime/relay.rs", "CARRIED", "the number of connections of a thread"),
    ("src/runtime/relay.rs", "BYTES", "a buffer for each thread, empty between uses"),
    (
        "src/runtime/view/services.rs",
        "KNOWN",
        "a cache that forked processes inherit, checked against the folders' times",
    ),
    (
        "src/store/durable.rs",
        "LEFT_OUT",
        "the flag of a process named kube-apiserver, set once before it opens the state",
    ),
    ("src/store/etcd/log.rs", "CLIENTS", "the connections to etcd, which the stores of a process share"),
    ("src/store/follower.rs", "FOLLOWERS", "the threads that follow a log, which the waiters of a process share"),
    ("src/serve/protobuf/fields.rs", "TABLE", "a constant that is unpacked when it is first used"),
];

/// Types whose value changes or is set later. A `LazyLock` alone is a constant that is computed on first use.
const HOLDERS: [&str; 9] =
    ["Cell", "LazyCell", "Mutex", "Once", "OnceCell", "OnceLock", "RefCell", "RwLock", "UnsafeCell"];

fn is_changing(item: &Static, is_pure: bool) -> bool {
    let is_holder = |word: &String| HOLDERS.contains(&&**word) || word.starts_with("Atomic");
    // In a pure module, the function that fills a `LazyLock` has no input: its value is a constant.
    let is_lazy = !is_pure && item.words.contains("LazyLock");
    item.kind == StaticKind::ThreadLocal || is_lazy || item.words.iter().any(is_holder)
}

#[test]
fn statics_that_change_are_listed_with_their_reason() {
    let mut found = Vec::new();
    for source in product() {
        let statics = source.parsed.statics.iter().filter(|item| !item.is_test);
        found.extend(statics.filter(|item| is_changing(item, is_pure(source))).map(|item| (source, item)));
    }
    let is_listed = |path: &str, item: &str| CHANGING.iter().any(|(file, name, _)| *file == path && *name == item);
    let unlisted = found.iter().filter(|(source, item)| !is_listed(&source.path, &item.name));
    let unlisted: Vec<String> = unlisted.map(|(source, item)| source.locate(item.line, &item.name)).collect();
    assert_none(&unlisted, "statics that change: pass the value as an argument, or list the reason here");
    let is_found = |file: &str, name: &str| found.iter().any(|(source, item)| source.path == file && item.name == name);
    let gone = CHANGING.iter().filter(|(file, name, _)| !is_found(file, name));
    let gone: Vec<String> = gone.map(|(file, name, _)| format!("{file}: {name}")).collect();
    assert_none(&gone, "listed statics that are gone");
}

#[test]
fn statics_are_never_mutable() {
    let mut wrong = Vec::new();
    for source in product() {
        let statics = source.parsed.statics.iter().filter(|item| item.kind == StaticKind::Mutable);
        wrong.extend(statics.map(|item| source.locate(item.line, &item.name)));
    }
    assert_none(&wrong, "static mut");
}
