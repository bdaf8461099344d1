//! A node on this machine that belongs to a cluster whose API server is elsewhere.
//!
//! Knows: the node has its own state file, with copies of the objects that it needs ([`mirror`]). The loops of a node run over this state
//! as they do in a cluster of one machine, and [`upstream`] sends their results to the server. So the node continues while the server is
//! away, and finds its pods after a restart. Never: runs a controller or the scheduler, plans anything itself. Start reading at [`join`].

mod certificates;
mod client_reviews;
mod collection_changes;
pub mod discovery;
mod identity;
mod merge;
mod mirror;
mod node_context;
mod node_copy;
mod node_reports;
mod pod_network;
mod references;
mod registration;
mod server_pods;
pub mod simulate;
mod stored_copy;
#[cfg(test)]
mod testing;
mod tokens;
mod upstream;

pub use node_context::NodeLog;

use crate::apiserver::Api;
use crate::apiserver::kubelet_clients::KubeletClients;
use crate::apiserver::rules::names::key_of;
use crate::client::{ApiClient, ClientRequest, ServerAddress, ServerConfig};
use crate::object::{Key, Object, Resource, Time, format_hex};
use crate::reconcile::node;
use crate::runtime::capacity::MachineCapacity;
use crate::runtime::https::trust::TlsClientKey;
use crate::runtime::token_signer::TokenSource;
use crate::store::OpenMode;
use certificates::CertificateKeeper;
use client_reviews::ClientReviews;
use discovery::JoinTarget;
use identity::{CLIENT_SIGNER, NodeCertificateRequest, WaitForSignature};
use node_context::{JoinedFacts, NodeContext, NodeFiles, NodeTraits};
pub use pod_network::NodeNetwork;
use registration::Heartbeat;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Oldest Kubernetes, as a minor version of 1, whose API the node understands.
const OLDEST: u32 = 30;
/// Time limit for the first answer of the server, and for the node's own state.
const SERVER_TIMEOUT: Duration = Duration::from_secs(15);

/// A machine that joins.
pub struct JoiningMachine {
    /// The node's own state file.
    pub state: PathBuf,
    /// Its name, address and capacity.
    pub capacity: MachineCapacity,
    /// Whether its pods run no processes, and are ready at once.
    pub is_simulated: bool,
}

/// The certificates of a node.
pub struct ServingIdentity {
    /// The certificate with which it serves, and its key.
    pub key: TlsClientKey,
    /// The certificate that it shows as a client.
    pub client: TlsClientKey,
    /// The authority of its clients, PEM.
    pub authority: Arc<[u8]>,
}

/// A node that has joined.
pub struct JoinedNode {
    /// Its machine.
    pub capacity: MachineCapacity,
    /// The network of its pods.
    pub network: NodeNetwork,
    context: Arc<NodeContext>,
    threads: Vec<JoinHandle<()>>,
}

/// Returns the file with the identity of a node whose state this is.
pub fn identity_path(state: &Path) -> PathBuf {
    state.with_added_extension("node")
}

/// Whether a state is the copy of a joined node, which nothing but the node may change.
pub fn is_copy(state: &Path) -> bool {
    identity_path(state).exists()
}

/// Returns the node whose copy a state is, and the URL of its server; `None` for any other state.
pub fn known_membership(state: &Path) -> Result<Option<(String, String)>, String> {
    let known = identity::load(&identity_path(state))?;
    Ok(known.map(|(node, config)| (node, config.address.to_string())))
}

/// Joins a cluster, or takes up the membership of an earlier run. `target`: the server and the token; `None` for the server of the
/// earlier run. Nothing is left on this machine when it fails before the server has accepted the node.
pub fn join(target: Option<&JoinTarget>, mut machine: JoiningMachine, log: NodeLog) -> Result<JoinedNode, String> {
    let config = find_config(target, &machine)?;
    let client = ApiClient::new(config.clone()).map_err(|error| error.to_string())?;
    let known_uid = stored_uid(&machine).filter(|_| is_away(&client));
    let server = Some(&client).filter(|_| known_uid.is_none());
    if let Some(client) = server {
        check_version(client, false)?;
    }
    let network = pod_network::choose_network(server, &mut machine.capacity, &machine.state, &log)?;
    let identity = identity_path(&machine.state);
    let uid = match known_uid {
        // The node registers itself later.
        Some(uid) => uid,
        None => {
            let node = node::registration(&machine.capacity, Time::now());
            let mut registered = registration::register(&client, &node, &machine_id(&machine))?;
            if let NodeNetwork::Linked(_) = network {
                registered = pod_network::wait_for_block(&client, registered, &log)?;
            }
            open_state(&machine, &registered, network)?;
            identity::store(&identity, &config, &machine.capacity.name)?;
            registered.uid().to_owned()
        }
    };
    let traits = NodeTraits { is_linked: machine.capacity.link_address.is_some(), is_simulated: machine.is_simulated };
    let facts = JoinedFacts::new(&machine.capacity.name, traits, log);
    let context = NodeContext::new(facts, NodeFiles { state: machine.state.clone(), identity }, client);
    JoinedNode::start(Arc::new(context), &uid, (machine.capacity, network))
}

/// Returns the configuration of the node's client: that of an earlier run, or a new one.
fn find_config(target: Option<&JoinTarget>, machine: &JoiningMachine) -> Result<ServerConfig, String> {
    let identity = identity_path(&machine.state);
    match (identity::load(&identity)?, target) {
        (Some((name, config)), target) if name == machine.capacity.name && is_same_server(&config, target) => {
            Ok(config)
        }
        (Some((name, config)), _) => Err(format!(
            "{} is the state of the node {name} in the cluster of {}: to join another cluster or to use another node name, name \
                 another file with --state",
            machine.state.display(),
            config.address,
        )),
        (None, _) if machine.state.exists() => {
            Err(format!("{} is the state of another cluster: name another file with --state", machine.state.display()))
        }
        (None, Some(target)) => obtain_identity(target, &machine.capacity.name),
        (None, None) => Err("this machine has joined no cluster yet: give the server and a --token".to_owned()),
    }
}

/// Returns the uid of the Node in the state of an earlier run.
fn stored_uid(machine: &JoiningMachine) -> Option<String> {
    let api = Api::open(&machine.state, OpenMode::Existing, stored_copy::ACTOR).ok()?;
    let key = Key::new(Resource("nodes"), "", &machine.capacity.name);
    let node = api.read(|snapshot| snapshot.get(&key)).ok()??;
    Some(node.uid.to_string())
}

/// Whether the server does not answer at the moment.
fn is_away(client: &ApiClient) -> bool {
    let asked = client.send(ClientRequest::get("/version").within(SERVER_TIMEOUT));
    asked.is_err_and(|error| error.is_temporary())
}

/// Whether a target is the server of an earlier run.
fn is_same_server(config: &ServerConfig, target: Option<&JoinTarget>) -> bool {
    let address = target.map(|target| ServerAddress::parse(&target.server, true));
    address.is_none_or(|address| address.as_ref() == Ok(&config.address))
}

/// Returns the configuration of a client with the node's new certificate.
fn obtain_identity(target: &JoinTarget, node: &str) -> Result<ServerConfig, String> {
    let config = discovery::discover(target)?;
    let bootstrap = ApiClient::new(config.clone()).map_err(|error| error.to_string())?;
    check_version(&bootstrap, true)?;
    let order = NodeCertificateRequest { node, signer: CLIENT_SIGNER, addresses: &[] };
    let key = identity::request_certificate(&bootstrap, &order, &WaitForSignature::default())?;
    Ok(identity::with_key(&config, key))
}

/// Refuses a server that speaks an older Kubernetes, or none.
fn check_version(client: &ApiClient, has_token: bool) -> Result<(), String> {
    let version = client.send(ClientRequest::get("/version").within(SERVER_TIMEOUT)).and_then(|reply| reply.json());
    let version = version.map_err(|error| match has_token {
        true => identity::explain(&error),
        false => error.to_string(),
    })?;
    let number = |field: &str| {
        let text = version[field].as_str()?;
        text.trim_end_matches(|last: char| !last.is_ascii_digit()).parse::<u32>().ok()
    };
    match (number("major"), number("minor")) {
        (Some(1), Some(OLDEST..)) => Ok(()),
        (Some(major), Some(minor)) => Err(format!(
            "{} speaks Kubernetes {major}.{minor}, and a node of kloop needs 1.{OLDEST} or newer",
            client.config().address
        )),
        _ => Err(format!("{} is not a Kubernetes API server: it returns no version", client.config().address)),
    }
}

/// Identifies this machine and state, so that another machine does not take the node's name.
fn machine_id(machine: &JoiningMachine) -> String {
    let state = std::path::absolute(&machine.state).unwrap_or_default();
    let text = format!("{}\n{}", machine.capacity.machine_id, state.display());
    format_hex(&digest(&SHA256, text.as_bytes()).as_ref()[..16])
}

/// Opens the node's own state, and puts the Node there with the uid that it has at the server.
fn open_state(machine: &JoiningMachine, node: &Object, network: NodeNetwork) -> Result<(), String> {
    let mut api = Api::open(&machine.state, OpenMode::Create, stored_copy::ACTOR).map_err(|error| error.to_string())?;
    let txn = api.store_mut().write(SERVER_TIMEOUT).map_err(|error| error.to_string())?;
    let mut copy = stored_copy::begin(txn);
    let kind = &crate::kinds::node::KIND;
    let key = key_of(kind, node);
    let local = copy.get(&key).map_err(|error| error.to_string())?;
    let merged = merge::merge_node(node.clone(), local.as_ref(), machine.is_simulated);
    copy.put_over(kind, &key, merged, local.as_ref()).map_err(|error| error.to_string())?;
    stored_copy::mark(&mut copy, node.name()).map_err(|error| error.to_string())?;
    if let NodeNetwork::Linked(network) = network {
        stored_copy::set_network(&mut copy, network).map_err(|error| error.to_string())?;
    }
    copy.commit().map_err(|error| error.to_string())
}

impl JoinedNode {
    fn start(
        context: Arc<NodeContext>,
        uid: &str,
        (capacity, network): (MachineCapacity, NodeNetwork),
    ) -> Result<JoinedNode, String> {
        let mirror = mirror::Mirror::open(context.clone())?;
        let upstream = upstream::Upstream::open(context.clone())?;
        let heartbeat = Heartbeat::new(context.clone(), uid, node_status(&context)?);
        let mut node = JoinedNode { capacity, network, context, threads: Vec::new() };
        node.spawn("mirror", move || mirror.run())?;
        node.spawn("upstream", move || upstream.run())?;
        node.spawn("heartbeat", move || heartbeat.run())?;
        Ok(node)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|error| format!("cannot start a thread: {error}"))?);
        Ok(())
    }

    /// Returns the source of tokens for the pods: the server.
    pub fn token_source(&self) -> TokenSource {
        let context = self.context.clone();
        Arc::new(move |claims| context.issue_token(claims))
    }

    /// Obtains the certificate with which the node serves at this address, and renews all certificates. Gives them to `sink` once all are
    /// there, and after each renewal.
    pub fn keep_certificates(
        &self,
        address: String,
        sink: impl FnMut(ServingIdentity) + Send + 'static,
    ) -> std::io::Result<()> {
        let keeper = CertificateKeeper::new(self.context.clone(), address, Box::new(sink));
        // It may wait for an administrator: the node does not end it.
        std::thread::Builder::new().name("certificates".into()).spawn(move || keeper.run()).map(drop)
    }

    /// Returns the server's reviews of the clients of the kubelet.
    pub fn kubelet_clients(&self) -> Arc<dyn KubeletClients> {
        Arc::new(ClientReviews::new(self.context.clone()))
    }

    /// The URL of the server.
    pub fn server(&self) -> String {
        self.context.client().config().address.to_string()
    }

    /// Stops the exchange with the server. Pods keep running.
    pub fn stop(self) {
        self.context.stop();
        for thread in self.threads {
            // A panic was printed.
            let _ = thread.join();
        }
    }
}

/// Returns a reader of the Node's status in the node's own state.
fn node_status(context: &NodeContext) -> Result<Box<dyn FnMut() -> Option<Value> + Send>, String> {
    let api = Api::open(&context.files.state, OpenMode::Existing, "heartbeat").map_err(|error| error.to_string())?;
    let key = Key::new(Resource("nodes"), "", &context.node);
    Ok(Box::new(move || {
        let stored = api.read(|snapshot| snapshot.get(&key)).ok()??;
        let node: Value = serde_json::from_str(&stored.body).ok()?;
        Some(node["status"].clone()).filter(Value::is_object)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::capacity;

    fn machine(state: PathBuf) -> JoiningMachine {
        JoiningMachine { capacity: capacity::measure_capacity(Some("a"), &state), state, is_simulated: false }
    }

    #[test]
    fn state_of_a_cluster_joins_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.db");
        drop(Api::open(&state, OpenMode::Create, "test").unwrap());
        let error = join(None, machine(state.clone()), Box::new(|_| {})).err().unwrap();
        assert!(error.contains("is the state of another cluster"), "{error}");
        assert!(!is_copy(&state));
    }

    #[test]
    fn failed_join_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let target = JoinTarget {
            server: "https://127.0.0.1:1".into(),
            token: "abcdef.0123456789abcdef".into(),
            hashes: vec!["sha256:00".into()],
            authority: None,
            trusts_any: false,
        };
        let machine = || self::machine(folder.path().join("node/state.db"));
        let error = join(Some(&target), machine(), Box::new(|_| {})).err().unwrap();
        assert!(error.contains("was refused"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = join(None, machine(), Box::new(|_| {})).err().unwrap();
        assert!(error.contains("has joined no cluster yet"), "{error}");
    }

    #[test]
    fn membership_is_that_of_one_server() {
        let config = ServerConfig::new("https://10.0.0.1:8001").unwrap();
        let target = |server: &str| JoinTarget {
            server: server.to_owned(),
            token: String::new(),
            hashes: Vec::new(),
            authority: None,
            trusts_any: false,
        };
        assert!(is_same_server(&config, None) && is_same_server(&config, Some(&target("https://10.0.0.1:8001/"))));
        assert!(!is_same_server(&config, Some(&target("https://10.0.0.2:8001"))));
    }

    #[test]
    fn machines_differ_by_their_state() {
        let id = |path: &str| machine_id(&machine(path.into()));
        assert_eq!(id("/a/state.db"), id("/a/state.db"));
        assert_ne!(id("/a/state.db"), id("/b/state.db"));
    }
}
