//! `kloop node join`: makes this machine a node of a cluster whose API server is elsewhere.

use super::kubelet_server::KubeletServer;
use crate::cli::cluster::contexts;
use crate::cli::reconcile;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::joined_node::discovery::JoinTarget;
use crate::joined_node::{self, JoinedNode, JoiningMachine, NodeNetwork};
use crate::object::io_error_text;
use crate::reconcile::ControlSettings;
use crate::reconcile::link_certificates::LinkCertificateFeed;
use crate::reconcile::loops;
use crate::runtime::capacity::{self, MachineCapacity};
use crate::serve::http::kubelet_guard::KubeletGuard;
use crate::store;
use crate::world::policy::Cidr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

/// Make this machine a node of a cluster whose API server is elsewhere.
///
/// Runs the kubelet, the runtime and the network of kloop against the server until it is stopped. The token and the hash come from
/// `kloop node token create` (or `kubeadm token create`) at the server. The node has a state of its own on this machine; when the
/// command is run again, also without the server's address and token, it takes its pods up again. While the server is away, pods go on.
#[derive(clap::Args)]
#[command(
    override_usage = "[SERVER --token=TOKEN --discovery-token-ca-cert-hash=HASH]",
    after_help = "\
# Join, with the command that `kloop node token create` printed
kloop node join https://10.0.0.1:8001 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:...

# After a restart of the machine
kloop node join"
)]
pub struct Args {
    /// URL of the API server.
    #[arg(value_name = "SERVER")]
    api_server: Option<String>,
    /// Hash of the public key of the server's authority, sha256:HEX; may be given several times.
    #[arg(long, value_name = "HASH")]
    discovery_token_ca_cert_hash: Vec<String>,
    /// Trust any authority. Someone in between could then get the token.
    #[arg(long)]
    discovery_token_unsafe_skip_ca_verification: bool,
    /// Name of the node [default: the host's name].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Address of this machine for the server [default: the one that leads to the server].
    #[arg(long, value_name = "ADDRESS")]
    node_ip: Option<IpAddr>,
    /// Port where the node serves logs, streams and measurements to the API server; 0 for any.
    #[arg(long, default_value_t = 10250, value_name = "PORT")]
    kubelet_port: u16,
    /// Maximum number of pods on the node.
    #[arg(long, default_value_t = 110, value_name = "N")]
    max_pods: u32,
    /// Address blocks, besides localhost, where node ports are opened, such as 192.168.0.0/16; 0.0.0.0/0 for all addresses of
    /// this machine. Other machines can then reach these Services.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    nodeport_addresses: Vec<String>,
    /// Run no processes: pods are ready at once, as on a node of "kloop node add --simulated". For tests of large clusters.
    #[arg(long)]
    simulated: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let (token, authority) = (context.globals.join_token(), context.globals.authority_file());
    let target = target(&args, token, authority.as_deref())?;
    let state = find_state(&args, context)?;
    context.use_state(state.clone());
    reconcile::settings::check_descriptors()?;
    let known = joined_node::known_membership(&state).map_err(Failure::plain)?;
    let node_ports = reconcile::flags::blocks(&args.nodeport_addresses)?;
    let (capacity, listener) = measure(&args, &state, known)?;
    let is_simulated = args.simulated;
    let machine = JoiningMachine { state, capacity, is_simulated };
    let log = Box::new(|text: &str| reconcile::log::print_by("node", text));
    let node = joined_node::join(target.as_ref(), machine, log).map_err(Failure::plain)?;
    context.print_notice(&format!("node {} has joined {}", node.capacity.name, node.server()));
    let (_stop, stopped) = oneshot::channel();
    let certificates = LinkCertificateFeed::default();
    let mut server = KubeletServer {
        state: context.state(),
        start: Some((listener, stopped)),
        guard: KubeletGuard { node: node.capacity.name.clone(), clients: node.kubelet_clients() },
        certificates: certificates.clone(),
        tls: None,
    };
    node.keep_certificates(node.capacity.address.to_string(), move |own| server.use_certificates(own))?;
    let outcome = run_loops(&node, is_simulated, node_ports, certificates, context);
    node.stop();
    outcome
}

fn run_loops(
    node: &JoinedNode,
    is_simulated: bool,
    node_ports: Vec<Cidr>,
    certificates: LinkCertificateFeed,
    context: &mut CommandContext,
) -> CliResult {
    let settings = ControlSettings {
        node: (!is_simulated).then(|| node.capacity.clone()),
        link_certificates: Some(certificates),
        host_network: node.network == NodeNetwork::Host,
        loops: loops::node_loops(),
        token_source: Some(node.token_source()),
        node_ports,
        ..reconcile::settings::default_settings(context)?
    };
    reconcile::run_until_stopped(&settings, context)
}

/// Returns the server to join; `None` for that of an earlier run.
fn target(args: &Args, token: Option<String>, authority: Option<&Path>) -> CliResult<Option<JoinTarget>> {
    let (server, token) = match (&args.api_server, token) {
        (Some(server), Some(token)) => (server.clone(), token),
        (None, None) => return Ok(None),
        (Some(_), None) => {
            return Err(Failure::plain("--token is missing: `kloop node token create` at the server makes one"));
        }
        (None, Some(_)) => {
            return Err(Failure::plain(
                "the server's address is missing: kloop node join https://HOST:PORT --token ...",
            ));
        }
    };
    for hash in &args.discovery_token_ca_cert_hash {
        let hex = hash.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Failure::plain(format!(
                "invalid argument {hash:?} for \"--discovery-token-ca-cert-hash\" flag: write sha256: and 64 hexadecimal digits"
            )));
        }
    }
    let read = |path: &Path| {
        fs::read_to_string(path)
            .map_err(|error| Failure::plain(format!("cannot read {}: {}", path.display(), io_error_text(error))))
    };
    Ok(Some(JoinTarget {
        server,
        token,
        hashes: args.discovery_token_ca_cert_hash.clone(),
        authority: authority.map(read).transpose()?,
        trusts_any: args.discovery_token_unsafe_skip_ca_verification,
    }))
}

/// Returns the node's own state: that of a flag or the variable, else one per server in the default state's folder.
fn find_state(args: &Args, context: &CommandContext) -> CliResult<PathBuf> {
    if let Some(state) = contexts::own_state(&context.globals) {
        return Ok(state);
    }
    let nodes =
        store::default_path().parent().and_then(Path::parent).map(|folder| folder.join("nodes")).unwrap_or_default();
    if let Some(server) = &args.api_server {
        let name: String = server
            .split_once("://")
            .map_or(server.as_str(), |(_, rest)| rest)
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
            .collect();
        return Ok(nodes.join(name.trim_matches(['-', '.'])).join("state.db"));
    }
    let found = fs::read_dir(&nodes).into_iter().flatten().flatten().map(|entry| entry.path().join("state.db"));
    let mut found = found.filter(|state| joined_node::is_copy(state));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Failure::plain(
            "this machine has joined no cluster yet: kloop node join https://HOST:PORT --token ... (`kloop node token create` at the \
             server prints the whole command)",
        )),
        (Some(_), Some(_)) => {
            Err(Failure::plain("this machine has joined several clusters: name the server, or the state with --state"))
        }
    }
}

/// Measures this machine, and opens the socket where it serves. `known`: the node's name and server of an earlier run.
fn measure(args: &Args, state: &Path, known: Option<(String, String)>) -> CliResult<(MachineCapacity, TcpListener)> {
    let (name, server) = known.unzip();
    let mut capacity = capacity::measure_capacity(args.node_name.as_deref().or(name.as_deref()), state);
    capacity.pods = args.max_pods;
    capacity.address = match args.node_ip {
        Some(address) => address,
        None => own_address(server.as_deref().or(args.api_server.as_deref())).unwrap_or(Ipv4Addr::LOCALHOST.into()),
    };
    let place = SocketAddr::new(capacity.address, args.kubelet_port);
    // Another kubelet of this machine may have the usual port.
    let listener = TcpListener::bind(place).or_else(|_| TcpListener::bind((capacity.address, 0)));
    let listener = listener
        .map_err(|error| Failure::plain(format!("cannot listen on {}: {}", capacity.address, io_error_text(error))))?;
    capacity.kubelet_port = listener.local_addr()?.port();
    Ok((capacity, listener))
}

/// Returns the address of this machine from which packets reach a server. Sends none.
fn own_address(server: Option<&str>) -> Option<IpAddr> {
    use std::net::ToSocketAddrs;
    let address = crate::client::ServerAddress::parse(server?, true).ok()?;
    let place: SocketAddr = (address.host.as_str(), address.port).to_socket_addrs().ok()?.next()?;
    let socket =
        UdpSocket::bind((if place.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { "::".parse().ok()? }, 0))
            .ok()?;
    socket.connect(place).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
