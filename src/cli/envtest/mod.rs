//! The programs that controller-runtime's envtest starts: `kube-apiserver` and `etcd`.
//!
//! Knows: a link with one of these names makes kloop take the flags of that program, as far as envtest writes them. `etcd` serves its
//! health check and holds the folder of the state; `kube-apiserver` serves the API of a cluster in that folder, without controllers.
//! Start reading at [`run_as`].

mod api_server;
mod etcd;
mod flags;

use crate::cli::Failure;
use crate::client::standard_error;
use flags::ProgramFlags;
use std::path::Path;
use std::process::ExitCode;

/// Runs as the program whose name the process was started under; `None` for kloop itself.
pub fn run_as() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    let run = match Path::new(&name).file_name()?.to_str()? {
        "kube-apiserver" => api_server::run,
        "etcd" => etcd::run,
        _ => return None,
    };
    let words: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    let done = run(&ProgramFlags::parse(&words));
    Some(done.map_or_else(
        |failure: Failure| {
            standard_error::print_line(format_args!("{failure}"));
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}
