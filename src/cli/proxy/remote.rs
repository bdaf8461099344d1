//! `kloop proxy` for the API server of a context: forwards requests with the credentials of the user.
//!
//! Start reading at [`serve`].

use super::{Args, listen, warn_without_filter};
use crate::cli::serve::{interrupt, wait_for_interrupt};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::{ApiClient, ForwardListener};
use crate::object::{Reason, Status, io_error_text, strip_port};
use crate::serve::http::proxy_filter::ProxyFilter;
use hyper::Method;
use rustix::fs::Mode;
use rustix::process::umask;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

/// Serves until a signal.
pub fn serve(args: &Args, filter: ProxyFilter, client: &ApiClient, context: &mut CommandContext) -> CliResult {
    let interrupt = interrupt()?;
    let (listener, place) = if args.unix_socket.is_empty() {
        let listener = listen(args)?;
        let place = listener.local_addr()?.to_string();
        (ForwardListener::Port(listener), place)
    } else {
        (ForwardListener::Socket(listen_at_socket(&args.unix_socket)?), args.unix_socket.clone())
    };
    warn_without_filter(args, context);
    context.print_line(&format!("Starting to serve on {place}"))?;
    let rule = move |host: &str, method: &Method, path: &str| -> Result<String, Status> {
        let missing = || Status::new(Reason::NotFound, "404 page not found");
        let path = filter.strip_prefix(path).ok_or_else(missing)?;
        filter.check(strip_port(host), method.as_str(), path)?;
        Ok(path.to_owned())
    };
    let served = client.serve_proxy(listener, Arc::new(rule), wait_for_interrupt(interrupt));
    if !args.unix_socket.is_empty() {
        // A socket that stays is replaced by the next proxy.
        let _ = fs::remove_file(&args.unix_socket);
    }
    served.map_err(|error| Failure::plain(error.to_string()))
}

/// Makes a socket that only this user can use. Replaces one that an earlier proxy has left, and no other file.
fn listen_at_socket(path: &str) -> CliResult<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let before = umask(Mode::from_raw_mode(0o077));
    let listener = UnixListener::bind(path);
    umask(before);
    listener.map_err(|error| Failure::plain(format!("listen unix {path}: bind: {}", io_error_text(error))))
}
