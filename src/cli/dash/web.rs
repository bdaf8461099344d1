//! `kloop dash --web`: the dashboard as a page, served to this machine until it is interrupted.
//!
//! The token is in the fragment of the address, which browsers do not send. The browser gets it by a file that only the user can read,
//! because the arguments of programs can be read by everyone. Start reading at [`serve_page`].

use crate::cli::address::has_opened;
use crate::cli::output::server_log::log_server;
use crate::cli::serve::{interrupt, wait_for_interrupt};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::io_error_text;
use crate::runtime::{descriptors, folder};
use crate::serve::http::HttpServer;
use crate::serve::http::guard::AccessGuard;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

/// Name of the file that leads the browser to the page.
const FILE: &str = "dash.html";

/// Serves the page at a port of this machine; 0 for any free one.
pub fn serve_page(port: u16, context: &mut CommandContext) -> CliResult {
    let interrupt = interrupt()?;
    descriptors::raise();
    let place = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(place).map_err(|error| {
        let text = format!("cannot listen on {place}: {}\nhint: choose another port with --port", io_error_text(error));
        Failure::plain(text)
    })?;
    let token = context.api()?.admin_token()?;
    let home = folder::prepare(context.api()?.store().home())?;
    let address = format!("http://{}/ui#token={token}", listener.local_addr()?);
    let state = context.state();
    let guard = AccessGuard::Token(token);
    let server = HttpServer {
        state,
        listener,
        entry: None,
        kubelet: None,
        guard,
        tls: None,
        audit: None,
        keeps_up: false,
        control_plane: None,
        log: log_server,
    };
    context.print_line(&address)?;
    let file = home.join(FILE);
    if std::io::stdout().is_terminal() && open_browser(&file, &address) {
        context.print_notice("hint: the browser shows it; Ctrl-C ends it");
    }
    let served = server.run(wait_for_interrupt(interrupt));
    drop(std::fs::remove_file(&file));
    Ok(served?)
}

/// Opens the address by a file that leads to it; false when that cannot be done.
fn open_browser(file: &Path, address: &str) -> bool {
    // The token is of letters that need no escaping.
    let page =
        format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={address}\"><title>kloop</title>\n");
    folder::replace(file, page.as_bytes()).is_ok() && has_opened(&format!("file://{}", file.display()))
}
