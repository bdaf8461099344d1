//! `kloop serve`: serves the REST API to clients of Kubernetes.

use super::output::server_log::log_server;
use super::{CliResult, CommandContext, Failure};
use crate::object::io_error_text;
use crate::runtime::signal_socket;
use crate::runtime::{descriptors, folder};
use crate::serve::audit::policy::AuditPolicy;
use crate::serve::http::audit_log::AuditLog;
use crate::serve::http::guard::AccessGuard;
use crate::serve::http::{HttpServer, identity};
use crate::serve::kubeconfig::{self, ServerAccess};
use crate::world::ingress_routes;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

/// Serve the Kubernetes REST API.
///
/// The address of the server and the token for clients are written to a kubeconfig file in the state's folder. This does not run the
/// control plane: run `kloop reconcile --watch` as well.
#[derive(clap::Args)]
#[command(
    override_usage = "[--port=PORT] [--address=ADDRESS]",
    after_help = "\
# Serve the API at port 8001 of this machine
kloop serve

# At any free port; the kubeconfig says which
kloop serve --port=0

# As kubectl proxy does: plain HTTP for everybody on this machine
kloop serve --no-token"
)]
pub struct Args {
    /// The port on which to serve. Set to 0 to pick a random port.
    #[arg(short, long, default_value_t = 8001, value_name = "PORT")]
    port: u16,
    /// The IP address on which to serve on.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    address: IpAddr,
    /// File to write the server's address and token to [default: `kubeconfig` in the state's folder].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Require no token: every user of this machine gets full access, over plain HTTP to localhost.
    #[arg(long)]
    no_token: bool,
    #[command(flatten)]
    audit: AuditFlags,
}

/// Flags of the audit log.
#[derive(clap::Args, Clone, Default)]
pub struct AuditFlags {
    /// File to which an event is written for each request that the policy records; needs --audit-policy-file.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// The audit policy, of apiVersion audit.k8s.io/v1.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
}

impl AuditFlags {
    /// Opens the log.
    fn open(&self) -> CliResult<Option<Arc<AuditLog>>> {
        let (log, policy) = match (&self.audit_log, &self.audit_policy_file) {
            (Some(log), Some(policy)) => (log, policy),
            (None, None) => return Ok(None),
            _ => return Err(Failure::plain("--audit-log and --audit-policy-file need each other")),
        };
        let shown = policy.display();
        let text = std::fs::read_to_string(policy)
            .map_err(|error| Failure::plain(format!("cannot read {shown}: {}", io_error_text(error))))?;
        let policy = AuditPolicy::parse(&text).map_err(|error| Failure::plain(format!("{shown}: {error:#}")))?;
        Ok(Some(Arc::new(AuditLog::open(log, policy)?)))
    }
}

impl Args {
    /// Serves on localhost at a port, with a token.
    pub fn for_port(port: u16, audit: AuditFlags) -> Args {
        Args { port, address: Ipv4Addr::LOCALHOST.into(), kubeconfig: None, no_token: false, audit }
    }
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let interrupt = interrupt()?;
    descriptors::raise();
    Ok(open(args, None, context)?.run(wait_for_interrupt(interrupt))?)
}

/// Opens the socket, writes the kubeconfig, and prints both. `node`: the address at which the server answers as a kubelet, too.
pub fn open(args: Args, node: Option<IpAddr>, context: &mut CommandContext) -> CliResult<HttpServer> {
    if args.no_token && !args.address.is_loopback() {
        let text = "--no-token gives full access to everyone who can reach the address: use it only with a loopback address such as 127.0.0.1";
        return Err(Failure::plain(text));
    }
    let audit = args.audit.open()?;
    let home = folder::prepare(context.api()?.store().home())?;
    let place = SocketAddr::new(args.address, args.port);
    let listener = TcpListener::bind(place).map_err(|error| {
        let hint = "hint: choose another port with --port, or any free port with --port=0";
        Failure::plain(format!("cannot listen on {place}: {}\n{hint}", io_error_text(error)))
    })?;
    let address = listener.local_addr()?;
    let token = if args.no_token { None } else { Some(context.api()?.admin_token()?) };
    let service: IpAddr = context.read_view(|txn| Ok(ingress_routes::api_server(txn.network())))?.into();
    let keys = context.api()?.keys()?;
    let identity = token.as_ref().map(|_| {
        let others: Vec<IpAddr> = node.into_iter().chain([service]).collect();
        identity::new_certificate(&keys, args.address, &others)
    });
    let identity = identity.transpose()?;
    let file = args.kubeconfig.clone().unwrap_or_else(|| home.join("kubeconfig"));
    let access = ServerAccess {
        address,
        authority: identity.as_ref().map(|identity| identity.authority.as_str()),
        token: token.as_deref(),
        namespace: context.default_namespace(),
    };
    let entry = kubeconfig::write(&file, &access)?;
    context.print_line(&format!("Starting to serve on {address}"))?;
    context.print_notice(&format!("hint: export KUBECONFIG={}", file.display()));
    let guard = token.map_or(AccessGuard::Names, AccessGuard::Token);
    let tls = identity.map(|identity| identity.tls);
    Ok(HttpServer {
        state: context.state(),
        listener,
        entry: Some(entry),
        kubelet: None,
        guard,
        tls,
        audit,
        keeps_up: true,
        control_plane: None,
        log: log_server,
    })
}

/// Port of an API server for pods; any other when it is taken.
const POD_PORT: u16 = 6443;

/// Opens an API server for pods, at an address of the pod network: with TLS, and without a kubeconfig. `node`: the address at which it
/// answers as a kubelet, too.
pub fn open_for_pods(audit: &AuditFlags, node: IpAddr, context: &mut CommandContext) -> CliResult<HttpServer> {
    let audit = audit.open()?;
    // Makes a new cluster first: it chooses its network.
    let network = context.api()?.read_view(|txn| Ok(txn.network()))?;
    let place = ingress_routes::pod_api(network);
    let listener = TcpListener::bind((place, POD_PORT)).or_else(|_| TcpListener::bind((place, 0)))?;
    let api = context.api()?;
    let (token, keys) = (api.admin_token()?, api.keys()?);
    let identity = identity::new_certificate(&keys, place.into(), &[ingress_routes::api_server(network).into(), node])?;
    Ok(HttpServer {
        state: context.state(),
        listener,
        entry: None,
        kubelet: None,
        guard: AccessGuard::Token(token),
        tls: Some(identity.tls),
        audit,
        keeps_up: false,
        control_plane: None,
        log: log_server,
    })
}

/// Returns a socket that becomes readable on a signal to stop.
pub fn interrupt() -> io::Result<UnixStream> {
    signal_socket::readable_on(&[SIGINT, SIGTERM, SIGHUP])
}

/// Waits until the socket of [`interrupt`] is readable.
pub async fn wait_for_interrupt(interrupt: UnixStream) {
    // Without the socket, a signal ends the process with its default action.
    let Ok(interrupt) = tokio::net::UnixStream::from_std(interrupt) else { return std::future::pending().await };
    let _ = interrupt.readable().await;
}
