//! `kube-apiserver`: serves the API of a cluster whose state is in etcd's folder. Clients show certificates, as envtest makes them.
//!
//! Never: runs a controller, but the one that accepts definitions. Start reading at [`run`].

use super::etcd::{DataFolder, PLACE};
use super::flags::ProgramFlags;
use crate::apiserver::{Api, admission};
use crate::cli::output::server_log::log_server;
use crate::cli::{CliResult, Failure};
use crate::client::standard_error;
use crate::controllers::customresourcedefinition;
use crate::diagnosis::convergence;
use crate::object::io_error_text;
use crate::reconcile::control_loop::{ControlLoop, ControlSettings, WakeUp};
use crate::reconcile::leader::{Election, Standby};
use crate::reconcile::run_end::RunUntil;
use crate::runtime::descriptors;
use crate::runtime::image::Environment;
use crate::serve::http::HttpServer;
use crate::serve::http::guard::AccessGuard;
use crate::serve::http::identity::{self, ServerTls};
use crate::store::{OpenMode, leave_out_syncs};
use crate::world::ingress_routes;
use crate::world::pressure::EvictionThresholds;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Flags with an effect.
const KNOWN: [&str; 10] = [
    "etcd-servers",
    "secure-port",
    "bind-address",
    "cert-dir",
    "tls-cert-file",
    "tls-private-key-file",
    "client-ca-file",
    "advertise-address",
    "disable-admission-plugins",
    "help",
];
/// Flags that are accepted and ignored: kloop always has their effect, or lacks the feature that they configure.
const ACCEPTED: [&str; 12] = [
    "allow-privileged",
    "authorization-mode",
    "enable-admission-plugins",
    "enable-priority-and-fairness",
    "insecure-port",
    "insecure-bind-address",
    "service-account-issuer",
    "service-account-key-file",
    "service-account-signing-key-file",
    "service-cluster-ip-range",
    "storage-backend",
    "v",
];

/// Runs the program until a signal ends it.
pub fn run(flags: &ProgramFlags) -> CliResult {
    if flags.get("help").is_some() || flags.get("h").is_some() {
        KNOWN.iter().chain(&ACCEPTED).for_each(|flag| println!("      --{flag}"));
        return Ok(());
    }
    if flags.get("version").is_some() {
        println!("Kubernetes v1.36.2");
        return Ok(());
    }
    for flag in flags.unknown(&[&KNOWN, &ACCEPTED]) {
        standard_error::print_line(format_args!("warning: unknown flag --{flag} is ignored"));
    }
    disable_plugins(flags.get("disable-admission-plugins").unwrap_or_default());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    descriptors::raise();
    let state = find_state(flags)?;
    let open_api = || Api::open(&state, OpenMode::Create, "kube-apiserver").map_err(Failure::Open);
    let server = open_server(flags, &state, &mut open_api()?)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serve = move || server.run(async { drop(stopped.await) });
    let server = std::thread::Builder::new().name("serve".to_owned()).spawn(serve)?;
    let mut control = start_definition_loop(open_api()?, &state)?;
    let outbox = control.outbox();
    std::thread::spawn(move || {
        // When the loop has ended already, a signal ends the process.
        for _ in signals.forever() {
            if outbox.send(WakeUp::Stop).is_err() {
                std::process::exit(130);
            }
        }
    });
    control.run(RunUntil::Stopped, &mut |_| {})?;
    drop(stop);
    match server.join() {
        Ok(served) => Ok(served?),
        Err(_) => Err(Failure::plain("the server has panicked")),
    }
}

/// Leaves out the plugins of a list of names.
fn disable_plugins(list: &str) {
    let names: Vec<String> =
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    for name in names.iter().filter(|name| !admission::is_plugin(name)) {
        standard_error::print_line(format_args!("warning: --disable-admission-plugins: kloop has no plugin {name}"));
    }
    admission::set_disabled(&names);
}

/// Returns the file of the state: in the folder of kloop's etcd, or in the folder of certificates when etcd is another program. Leaves out
/// the syncs when etcd's flags say so.
fn find_state(flags: &ProgramFlags) -> CliResult<PathBuf> {
    let server = flags.required("etcd-servers")?.split(',').next().unwrap_or_default().to_owned();
    let place = fetch_place(&server).unwrap_or_else(|why| {
        let folder = flags.get("cert-dir").unwrap_or("/var/run/kubernetes");
        standard_error::print_line(format_args!(
            "warning: --etcd-servers: {server} is not kloop's: {why}; the state is kept in {folder}"
        ));
        DataFolder { folder: PathBuf::from(folder), is_unsynced: false }
    });
    if place.is_unsynced {
        leave_out_syncs();
    }
    let folder = place.folder;
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::plain(format!("cannot create {}: {}", folder.display(), io_error_text(error))))?;
    Ok(folder.join("state.db"))
}

/// Asks kloop's etcd for the place of the state.
fn fetch_place(server: &str) -> Result<DataFolder, String> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).proxy(None).build();
    let url = format!("{}{PLACE}", server.trim_end_matches('/'));
    let mut answer = ureq::Agent::from(agent).get(&url).call().map_err(|error| error.to_string())?;
    let place = answer.body_mut().with_config().limit(8192).read_to_string().map_err(|error| error.to_string())?;
    serde_json::from_str(&place).map_err(|error| error.to_string())
}

/// Opens the socket, with the certificates of the flags.
fn open_server(flags: &ProgramFlags, state: &Path, api: &mut Api) -> CliResult<HttpServer> {
    let wrong = |flag: &str, value: &str| Failure::plain(format!("invalid argument {value:?} for \"--{flag}\" flag"));
    let address = flags.get("bind-address").unwrap_or("0.0.0.0");
    let address: IpAddr = match address {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        address => address.parse().map_err(|_| wrong("bind-address", address))?,
    };
    let port = flags.get("secure-port").unwrap_or("6443");
    let port: u16 = port.parse().map_err(|_| wrong("secure-port", port))?;
    let listener = TcpListener::bind((address, port))
        .map_err(|error| Failure::plain(format!("cannot listen on {address}:{port}: {}", io_error_text(error))))?;
    let tls = load_identity(flags, api, address)?;
    let guard = AccessGuard::Token(api.admin_token()?);
    Ok(HttpServer {
        state: state.to_owned(),
        listener,
        entry: None,
        kubelet: None,
        guard,
        tls: Some(tls),
        audit: None,
        keeps_up: false,
        control_plane: None,
        log: log_server,
    })
}

/// Loads the server's certificate, and the authority of its clients.
fn load_identity(flags: &ProgramFlags, api: &mut Api, address: IpAddr) -> CliResult<ServerTls> {
    let folder = PathBuf::from(flags.get("cert-dir").unwrap_or("/var/run/kubernetes"));
    let path = |flag: &str, name: &str| flags.get(flag).map_or_else(|| folder.join(name), PathBuf::from);
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|error| Failure::plain(format!("cannot read {}: {}", path.display(), io_error_text(error))))
    };
    let keys = api.keys()?;
    let clients = match flags.get("client-ca-file") {
        Some(file) => read(Path::new(file))?,
        None => keys.authority.as_bytes().to_vec(),
    };
    let (chain, key) = (path("tls-cert-file", "apiserver.crt"), path("tls-private-key-file", "apiserver.key"));
    if chain.exists() {
        return Ok(identity::read_certificate(&read(&chain)?, &read(&key)?, &clients)?);
    }
    let service = api.read_view(|txn| Ok(ingress_routes::api_server(txn.network())))?.into();
    Ok(identity::new_certificate(&keys, address, &[service])?.tls)
}

/// Starts the loop that accepts the names of CustomResourceDefinitions, which Kubernetes' API server does by itself.
fn start_definition_loop(mut api: Api, state: &Path) -> CliResult<ControlLoop> {
    let leadership = match Standby::default().try_lead(api.store_mut())? {
        Election::Leads(leadership) => leadership,
        Election::Waits(leader) => {
            return Err(Failure::plain(format!("the process {} serves this state already", leader.pid)));
        }
    };
    let settings = ControlSettings {
        state: state.to_owned(),
        node: None,
        shim: None,
        loops: vec![&customresourcedefinition::LOOP],
        backoff_seconds: 10,
        backoff_cap_seconds: 300,
        environment: Environment::inherited(),
        pids_per_pod: None,
        scheduler: String::new(),
        manifests: None,
        node_ports: Vec::new(),
        eviction: EvictionThresholds::default(),
        convergence: convergence::check,
        metrics: Arc::default(),
        on_idle: None,
        pod_api: None,
        token_source: None,
        link_certificates: None,
        host_network: false,
    };
    Ok(ControlLoop::start(api, leadership, settings)?)
}
