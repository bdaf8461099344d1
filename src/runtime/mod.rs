//! The machine: the only room that touches processes.
pub mod bury;
pub mod capacity;
pub mod folder;
pub mod image;
pub mod logs;
pub mod machine;
mod probe;
pub mod process;
pub mod reference;
mod shim;
pub mod simulated;
mod spawn;
pub mod wire;

pub use machine::{Host, Machine};

use std::process::ExitCode;

/// Runs this process as the one that shims come from when it was started as that (`kloop shim`). First thing in `main`: it must stay small.
pub fn shim_main() -> Option<ExitCode> {
    (std::env::args_os().nth(1)? == "shim").then(|| match shim::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::fs::write("shim.error", format!("{error}\n"));
            ExitCode::FAILURE
        }
    })
}
