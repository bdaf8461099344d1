//! The machine: processes, their logs, their probes; and a simulated machine with the same interface.
//!
//! Knows: how an image becomes a command, how a process is started, watched, logged and ended with all that it started.
//! Six kinds of process take part: the control plane, in which [`Machine`] lives; the zygote, this same binary run as `kloop shim`, which
//! forks the shims; one shim per pod (`shim/`), which outlives the control plane; the gateway (`network/gateway/`), which does too; a pause
//! (`shim/pause.rs`) for a process namespace that a pod's containers share; and the containers' own.
//! Files and volumes are [`volumes`] on disk and a container's [`view`] of them; only [`file_tree`] opens files that pods can write.
//! The only module that touches processes of pods, and the only one that may contain `unsafe`.
//! Never: decides what should run: it receives an [`Effect`](crate::world::Effect), and returns a [`Report`](crate::world::Report).
//! Start reading at [`machine`], then `shim/mod.rs`; [`folder`] describes the files, [`wire`] the messages between the processes.

pub mod allocator;
mod build;
pub mod capacity;
pub mod certificate_authority;
pub mod connection_slot;
pub mod contain;
pub mod copy;
pub mod debounced_watch;
pub mod descriptors;
mod file_tree;
mod file_watch;
pub mod folder;
pub mod https;
pub mod image;
mod interpreter;
pub mod limits;
pub mod logs;
mod low_ports;
pub mod machine;
pub mod manifests;
mod network;
pub mod own_command;
pub mod peer;
mod pid_namespace;
pub mod ports;
pub mod pressure_stats;
mod probe;
pub mod process;
pub mod proxied_headers;
mod pty;
pub mod reap_dead_shim;
pub mod relay;
mod rights;
mod send_descriptors;
pub mod session;
mod shim;
mod signal_delivery;
pub mod signal_socket;
pub mod simulated;
mod socket_diag;
mod spawn;
#[doc(hidden)]
pub mod testing;
pub mod token_signer;
mod trial;
pub mod upgrade;
pub mod usage;
mod user;
pub mod view;
mod volumes;
pub mod wire;

pub use machine::{Host, Machine};
pub use network::{
    gateway::GATEWAY_ARGUMENT as GATEWAY, gateway::is_free as is_network_free, gateway::runs as has_gateway,
    is_key_of_another, listener_channel::is_possible as has_pod_network, own_addresses, resolver_address,
};

pub use shim::COMPARISON_HOLDS as STANDBY_COMPARISON_HOLDS;
pub use spawn::release_program_pages;

use std::process::ExitCode;

/// Makes a write beyond the limit of a file's size (`ulimit -f`) fail with `EFBIG` instead of killing this process. Programs that it
/// executes have the default action again: exec resets handlers.
fn handle_file_size_limit() {
    extern "C" fn ignore_signal(_: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, ignore_signal as *const () as libc::sighandler_t) };
}

/// The running program itself, even if the file was replaced or removed meanwhile.
pub const THIS: &str = "/proc/self/exe";

/// Runs the command line on a stack that is large enough also where `ulimit -s` allows this process's first thread little.
pub fn with_large_stack(run: fn() -> ExitCode) -> ExitCode {
    const ENOUGH: usize = 8 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    if limit.is_none_or(|limit| limit >= ENOUGH as u64) {
        return run();
    }
    match std::thread::Builder::new().stack_size(ENOUGH).spawn(run) {
        // The panic was reported already.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(_) => run(),
    }
}

/// Runs this process as the zygote, a shim or a gateway, if it was started as one of them.
/// First thing in `main`: it must stay small.
pub fn shim_main() -> Option<ExitCode> {
    handle_file_size_limit();
    let mut words = std::env::args_os().skip(1);
    let word = words.next()?;
    if word == network::gateway::GATEWAY_ARGUMENT {
        let served = words.next().map(|state| network::gateway::main(std::path::Path::new(&state)));
        return Some(if matches!(served, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    (word == "shim").then(|| match words.next() {
        Some(word) if word == view::TRY => view::attempt(),
        Some(word) if word == network::listener_channel::TRY => network::listener_channel::attempt(),
        _ if shim::main().is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
