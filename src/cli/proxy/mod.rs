//! `kloop proxy`: the REST API over plain HTTP for everybody on this machine, within kubectl's rules.

mod remote;

use super::output::server_log::log_server;
use super::serve::{interrupt, wait_for_interrupt};
use super::{CliResult, CommandContext, Failure};
use crate::object::{io_error_text, time};
use crate::runtime::descriptors;
use crate::serve::http::HttpServer;
use crate::serve::http::guard::AccessGuard;
use crate::serve::http::proxy_filter::ProxyFilter;
use crate::serve::impersonation::Impersonation;
use jiff::SignedDuration;
use regex::Regex;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Run a proxy to the Kubernetes API server.
///
/// With a state file it serves the API itself: no other server needs to run. With a server it forwards requests with your credentials. No
/// token is needed. Files are not served (kubectl's --www).
#[derive(clap::Args)]
#[command(
    override_usage = "[--port=PORT] [--api-prefix=prefix]",
    after_help = "\
# To proxy all of the Kubernetes API and nothing else
kloop proxy --api-prefix=/

# To proxy the entire Kubernetes API at a different root
# You can get pods info with 'curl localhost:8001/custom/api/v1/pods'
kloop proxy --api-prefix=/custom/

# Run a proxy to the Kubernetes API server on an arbitrary local port
# The chosen port for the server will be output to stdout
kloop proxy --port=0"
)]
pub struct Args {
    /// The port on which to run the proxy. Set to 0 to pick a random port.
    #[arg(short, long, default_value_t = 8001, value_name = "PORT")]
    port: u16,
    /// The IP address on which to serve on.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    address: IpAddr,
    /// Prefix to serve the proxied API under.
    #[arg(long, default_value = "/", value_name = "PREFIX")]
    api_prefix: String,
    /// Regular expression for hosts that the proxy should accept.
    #[arg(long, default_value = r"^localhost$,^127\.0\.0\.1$,^\[::1\]$", value_name = "LIST")]
    accept_hosts: String,
    /// Regular expression for paths that the proxy should accept.
    #[arg(long, default_value = "^.*", value_name = "LIST")]
    accept_paths: String,
    /// Regular expression for paths that the proxy should reject. Paths specified here will be rejected even accepted by --accept-paths.
    #[arg(long, default_value = "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach", value_name = "LIST")]
    reject_paths: String,
    /// Regular expression for HTTP methods that the proxy should reject (example --reject-methods='POST,PUT,PATCH').
    #[arg(long, default_value = "^$", value_name = "LIST")]
    reject_methods: String,
    /// If true, disable request filtering in the proxy. This is dangerous, and can leave you vulnerable to XSRF attacks, when used with
    /// an accessible port.
    #[arg(long)]
    disable_filter: bool,
    /// Refused: no files are served.
    #[arg(short, long, default_value = "", value_name = "DIR")]
    www: String,
    /// Accepted for compatibility with kubectl; no files are served.
    #[arg(short = 'P', long, default_value = "/static/", value_name = "PREFIX")]
    www_prefix: String,
    /// Unix socket on which to run the proxy, for the proxy of a server.
    #[arg(short, long, default_value = "", value_name = "PATH")]
    unix_socket: String,
    /// Accepted for compatibility with kubectl, without effect.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    keepalive: SignedDuration,
    /// Accepted for compatibility with kubectl; the path of a server's address is always appended.
    #[arg(long)]
    append_server_path: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if !args.www.is_empty() {
        return Err(Failure::plain("--www is not supported: the proxy serves the API, and no files"));
    }
    let filter = filter(&args, impersonation(context))?;
    if let Some(client) = context.client().cloned() {
        return remote::serve(&args, filter, &client, context);
    }
    if !args.unix_socket.is_empty() {
        return Err(Failure::plain("--unix-socket is not supported with a state file: use --port"));
    }
    context.api()?;
    let interrupt = interrupt()?;
    descriptors::raise();
    let listener = listen(&args)?;
    warn_without_filter(&args, context);
    context.print_line(&format!("Starting to serve on {}", listener.local_addr()?))?;
    let guard = AccessGuard::Filter(Box::new(filter));
    let server = HttpServer {
        state: context.state(),
        listener,
        entry: None,
        kubelet: None,
        guard,
        tls: None,
        audit: None,
        keeps_up: true,
        control_plane: None,
        log: log_server,
    };
    Ok(server.run(wait_for_interrupt(interrupt))?)
}

fn listen(args: &Args) -> CliResult<TcpListener> {
    let place = SocketAddr::new(args.address, args.port);
    TcpListener::bind(place)
        .map_err(|error| Failure::plain(format!("listen tcp {place}: bind: {}", io_error_text(error))))
}

fn warn_without_filter(args: &Args, context: &mut CommandContext) {
    if args.disable_filter && args.unix_socket.is_empty() {
        context.print_notice("Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious");
    }
}

/// The user of `--as`.
fn impersonation(context: &CommandContext) -> Option<Impersonation> {
    let globals = &context.globals;
    let user = globals.as_user.clone().filter(|user| !user.is_empty())?;
    let uid = globals.as_uid.clone().unwrap_or_default();
    Some(Impersonation { user, groups: globals.as_group.clone(), uid, extra: globals.user_extra() })
}

fn filter(args: &Args, acts_as: Option<Impersonation>) -> CliResult<ProxyFilter> {
    let list = |text: &str| -> CliResult<Vec<Regex>> {
        let rule =
            |text: &str| Regex::new(text).map_err(|error| Failure::plain(format!("error parsing regexp: {error}")));
        text.split(',').map(rule).collect()
    };
    let any = || Regex::new("").into_iter().collect::<Vec<_>>();
    let (accepted_hosts, accepted_paths) = (list(&args.accept_hosts)?, list(&args.accept_paths)?);
    let (rejected_paths, rejected_methods) = (list(&args.reject_paths)?, list(&args.reject_methods)?);
    let prefix = format!("/{}/", args.api_prefix.trim_matches('/')).replace("//", "/");
    Ok(match args.disable_filter {
        true => ProxyFilter {
            accepted_hosts: any(),
            accepted_paths: any(),
            rejected_paths: Vec::new(),
            rejected_methods: Vec::new(),
            prefix,
            acts_as,
        },
        false => ProxyFilter { accepted_hosts, accepted_paths, rejected_paths, rejected_methods, prefix, acts_as },
    })
}
