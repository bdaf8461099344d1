//! Checks `Never:` claims in the headers of modules that a path or macro would contradict.
//!
//! Knows: the claims and the paths that contradict them. Start reading at [`CLAIMS`].

use super::assert_none;
use super::sources::{is_defined, product};

/// A claim: the module, words of its header, and the paths that it must not name.
type Claim = (&'static str, &'static str, &'static [&'static str]);

const FILES: &str = "std::fs";
const STORE: &str = "crate::store";
const KINDS: &str = "crate::kinds";
const OBJECTS: &str = "crate::object::meta::Object";
const API: &str = "crate::apiserver";
const RUNTIME: &str = "crate::runtime";
const WRITES: &str = "crate::store::txn";
/// Functions that look a path up, and follow links on the way.
const LOOK_UPS_BY_PATH: [&str; 7] = [
    "std::fs::canonicalize",
    "std::fs::metadata",
    "std::fs::OpenOptions",
    "std::fs::read",
    "std::fs::read_dir",
    "std::fs::remove_dir_all",
    "std::fs::write",
];

/// The claims of a module apply to its submodules too.
const CLAIMS: &[Claim] = &[
    (
        "apiserver",
        "never starts anything, never prints",
        &[
            "std::process",
            "std::thread",
            "crate::runtime::machine",
            "crate::runtime::spawn",
            "print!",
            "println!",
            "eprint!",
            "eprintln!",
        ],
    ),
    (
        "managed_fields",
        "reads or writes a store",
        &[STORE, "crate::apiserver::store_transaction", "crate::apiserver::transaction"],
    ),
    (
        "managed_fields/entries",
        "changes the ownership of fields",
        &["crate::managed_fields::apply", "crate::managed_fields::update"],
    ),
    ("managed_fields/fields", "interprets fields", &[KINDS, OBJECTS]),
    ("managed_fields/typed", "depends on managers", &["crate::managed_fields::entries"]),
    ("cli", "never writes to the store but through it", &["crate::store::txn", "rusqlite"]),
    ("cli", "never prints errors with a macro", &["eprint!", "eprintln!"]),
    ("cli/cluster/context_settings", "opens the state", &[STORE, API]),
    ("cli/completion/state", "Never creates the file", &["crate::store::open::OpenMode::Create", WRITES]),
    ("cli/top", "Never: stores a sample", &[WRITES, "crate::apiserver::create", "crate::apiserver::update"]),
    ("kustomize", "opens a file itself", &[FILES]),
    ("kustomize", "sends an object anywhere", &[API, "std::net"]),
    ("cli/port_forward/ports", "listens, or reads objects", &["std::net::TcpListener", API]),
    ("diagnosis", "changes a cluster or a machine", &["crate::runtime::machine", WRITES]),
    ("diagnosis/why/relations", "decides whether an object is right", &["crate::diagnosis::why::ConvergenceState"]),
    ("controllers", "writes, reads a clock", &[STORE, API, "jiff::Timestamp::now", "std::time"]),
    ("controllers/deployment", "writes pods", &["crate::world::plan::Effect"]),
    ("kinds", "does I/O", &[FILES, STORE, "std::net::TcpStream", "std::io"]),
    ("kinds/custom", "reads a store", &[STORE, "rusqlite"]),
    ("kinds/shared/go", "defines a kind's tables", &["crate::kinds::ALL", "crate::kinds::Kind", "crate::kinds::view"]),
    (
        "kinds/shared/names",
        "knows the field of a text",
        &["crate::kinds::shared::field::FieldErrors", "crate::kinds::shared::field::FieldPath"],
    ),
    ("kinds/shared/token_claims", "signs anything", &["ring", "jsonwebtoken"]),
    ("kinds/image", "looks for a program", &[FILES, RUNTIME]),
    ("kinds/catalogue/read", "depends on a kind", &["crate::kinds::ALL", "crate::kinds::Kind", "crate::kinds::pod"]),
    ("kinds/catalogue/registry", "opens a store", &[STORE, "rusqlite"]),
    ("kinds/view", "lays out, aligns or escapes text", &["crate::show"]),
    ("kinds/view", "Never: decodes a typed form", &["crate::kinds::catalogue::typed", "crate::kinds::catalogue::read"]),
    ("kubelet", "starts a process, reads a clock", &["std::process", "jiff::Timestamp::now", "std::time"]),
    ("kubelet/actions", "carries out any of them", &["crate::world::plan::Effect"]),
    ("kubelet/volumes", "writes a file", &[FILES]),
    ("kubelet/volumes/dns", "reads the machine's file", &[FILES]),
    ("network", "transfers data", &["std::net::TcpStream", "std::net::TcpListener", "std::net::UdpSocket", "std::io"]),
    ("network/host_ports", "binds a port", &["std::net::TcpListener", "std::net::UdpSocket"]),
    ("network/ingress", "selects endpoints", &["crate::kinds::endpoint_slice", "crate::kinds::endpoints"]),
    (
        "object",
        "uses a file, a socket, a clock or a database",
        &[FILES, "std::net::TcpStream", "jiff::Timestamp::now", "rusqlite"],
    ),
    ("object", "depends on a particular kind", &[KINDS]),
    ("object/label", "depends on the field of the text", &[KINDS]),
    ("object/merge", "depends on a kind", &[KINDS, OBJECTS]),
    ("object/merge/schema", "depends on a kind", &[KINDS]),
    ("object/patch", "Never: depends on a kind", &[KINDS]),
    ("object/selector", "depends on an object or kind", &[KINDS, OBJECTS]),
    ("object/struct_shape", "depends on a kind", &[KINDS]),
    ("object/yaml", "interprets a document", &[OBJECTS]),
    ("object/time", "Never: reads the clock", &["jiff::Timestamp::now", "std::time::SystemTime"]),
    ("reconcile", "never prints", &["print!", "println!", "eprint!", "eprintln!"]),
    ("reconcile/store_files", "opens a file", &["std::fs::File", "std::fs::OpenOptions", "std::fs::read"]),
    (
        "diagnosis/why",
        "writes, reads a file, or asks a machine",
        &[FILES, STORE, "crate::runtime::machine", "crate::apiserver::api"],
    ),
    ("runtime", "decides what should run", &["crate::controllers", "crate::scheduler"]),
    (
        "runtime/machine",
        "never decides that something should run",
        &["crate::controllers", "crate::scheduler", "crate::kubelet"],
    ),
    ("runtime/file_tree", "Never: follows a link", &LOOK_UPS_BY_PATH),
    (
        "runtime/interpreter",
        "decides whether a file can be executed",
        &["std::os::unix::fs::PermissionsExt", "rustix::fs::access"],
    ),
    (
        "runtime/limits",
        "enforces memory or CPU limits with rlimits",
        &["rustix::process::Resource::As", "rustix::process::Resource::Data", "rustix::process::Resource::Cpu"],
    ),
    ("runtime/token_signer", "decides what a token claims", &["crate::kinds::shared::token_claims", API]),
    ("runtime/network", "sends a request to the control plane", &[API, "crate::runtime::machine"]),
    ("runtime/network/affinity", "decides which endpoints are ready", &[KINDS, "crate::world"]),
    ("runtime/network/gateway", "reads an object", &[KINDS, OBJECTS]),
    ("runtime/network/ingress", "reads an object", &[KINDS, OBJECTS]),
    ("runtime/network/publisher", "decides the content", &[KINDS, OBJECTS, "crate::network"]),
    (
        "runtime/network/resolver/message",
        "touches a socket",
        &["std::net::UdpSocket", "std::net::TcpStream", "tokio::net", "rustix::net"],
    ),
    ("runtime/probe", "decides what a failure means", &["crate::kubelet"]),
    (
        "runtime/shim",
        "starts an attempt that no leader ordered",
        &["crate::controllers", "crate::scheduler", "crate::kubelet"],
    ),
    ("runtime/shim/start_inputs", "looks into a folder", &["std::fs::read_dir", "rustix::fs::Dir"]),
    ("scheduler", "orders anything of the machine", &["crate::world::plan::Effect"]),
    ("serve", "writes to the store except through the API server", &["crate::store::txn", "rusqlite"]),
    ("serve/access", "checks credentials", &["crate::apiserver::tokens", "crate::serve::http::guard::AccessGuard"]),
    ("serve/continue_token", "reads a list", &[API, "crate::serve::list_body"]),
    ("serve/health", "Never: writes", &[WRITES, "crate::apiserver::create", "crate::apiserver::update"]),
    ("serve/protobuf", "reads a request", &["crate::serve::body", "crate::serve::form"]),
    ("serve/protobuf/wire", "knows a message or a field", &["crate::serve::protobuf::fields"]),
    ("serve/watch", "waits for changes", &["std::thread", "std::sync::mpsc", "std::sync::Condvar", "tokio"]),
    ("show", "or prints", &["print!", "println!", "eprint!", "eprintln!"]),
    ("show", "knows a particular kind", &["crate::kinds::pod", "crate::kinds::deployment", "crate::kinds::service"]),
    ("store", "decodes a body, depends on a kind", &[KINDS, "serde_json"]),
    ("world", "never reads a clock", &["jiff::Timestamp::now", "std::time"]),
];

#[test]
fn headers_claim_nothing_that_the_sources_contradict() {
    let mut wrong = Vec::new();
    for (module, words, contrary) in CLAIMS {
        let own = module.split('/');
        let Some(header) = product().find(|source| own.clone().eq(source.module.iter())) else {
            wrong.push(format!("{module}: there is no such module"));
            continue;
        };
        if !header.header().contains(words) {
            wrong.push(format!("{}: the header does not say `{words}`", header.path));
        }
        let unknown = contrary.iter().filter(|path| path.starts_with("crate::") && !is_defined(path));
        wrong.extend(unknown.map(|path| format!("{module}: `{path}` is not defined, or elsewhere")));
        for source in product().filter(|source| source.is_in(module)) {
            let names = source.names.iter().filter(|name| contrary.iter().any(|prefix| name.is_below(prefix)));
            wrong.extend(names.map(|name| source.locate(name.line, format!("`{words}`, but {}", name.text()))));
        }
    }
    assert_none(&wrong, "headers contradict the code");
}

#[test]
fn only_the_store_touches_its_file() {
    let header = product().find(|source| source.module == ["store"]).map(|source| source.header());
    assert!(header.is_some_and(|header| header.contains("which only this module accesses")));
    let mut wrong = Vec::new();
    for source in product().filter(|source| !source.is_in("store")) {
        let names = source.names.iter().filter(|name| name.is_below("rusqlite"));
        wrong.extend(names.map(|name| source.locate(name.line, name.text())));
    }
    assert_none(&wrong, "SQLite is used by the store alone");
}

#[test]
fn controllers_do_not_call_each_other() {
    let mut wrong = Vec::new();
    for source in product().filter(|source| source.is_in("controllers") && source.module.len() > 1) {
        let calls = source.names.iter().filter(|name| match &name.path[..] {
            [root, module, other, item, ..] => {
                root == "crate"
                    && module == "controllers"
                    && *other != source.module[1]
                    && (item == "plan" || item == "LOOP")
            }
            _ => false,
        });
        wrong.extend(calls.map(|name| source.locate(name.line, name.text())));
    }
    assert_none(&wrong, "controllers meet only in the objects");
}

#[test]
fn programs_are_started_by_spawn_by_commands_and_by_trials() {
    let mut wrong = Vec::new();
    for source in product().filter(|source| !source.is_in("runtime/spawn")) {
        // A command starts programs of the user, such as an editor; a trial, and requests of the page, execute kloop itself.
        let itself = ["runtime/trial", "runtime/own_command"];
        // The program that makes a user's credentials is named in the user's kubeconfig.
        let is_plugin = source.is_in("client/exec_plugin");
        let may_execute = source.is_in("cli") || is_plugin || itself.iter().any(|module| source.is_in(module));
        let starts = source.names.iter().filter(|name| {
            name.is_below("std::process::Command") && !may_execute || name.text().starts_with("libc::posix_spawn")
        });
        wrong.extend(starts.map(|name| source.locate(name.line, name.text())));
    }
    assert_none(&wrong, "programs that start elsewhere");
}
