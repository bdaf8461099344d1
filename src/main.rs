//! The binary. It checks first for the shim, which has to stay small; everything else is the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = kloop::runtime::shim_main() {
        return code;
    }
    kloop::runtime::with_large_stack(kloop::cli::main)
}
