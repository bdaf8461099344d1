//! kloop.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = kloop::runtime::shim_main() {
        return code;
    }
    ExitCode::SUCCESS
}
