//! The HTTP proxy for Ingresses: a thread of the gateway, started with the first Ingress.
//!
//! Knows: the routes of each Ingress and each Service, as last ordered ([`IngressState`]); the rest is in [`listeners`] (listening),
//! [`tls`] (certificates), [`forward`] (one request) and [`pool`] (connections to endpoints).
//! Never: reads an object, or remembers an endpoint from one request to the next, except for session affinity. Start reading at
//! [`IngressProxy::admit`].

mod forward;
mod listeners;
mod pool;
mod tls;

pub use tls::is_key_of_another;

use super::affinity::SessionAffinity;
use super::routes::EndpointChoice;
use super::{routes, worker_pool};
use crate::network::ingress::table::{IngressTable, RouteMatch};
use crate::object::{IgnorePoison, Key, Resource};
use crate::world::Report;
use crate::world::ingress_routes::{BackendPort, IngressBackend, IngressRoute};
use crate::world::plan::{Route, RoutePort};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Maximum length of a chain of alias names.
const ALIASES: usize = 8;

/// Reports the addresses of the listeners when they change.
pub type ListenersCallback = Box<dyn Fn(Report) + Send>;

/// Handle of the proxy, which ends when this is dropped.
pub struct IngressProxy {
    shared: Arc<SharedIngress>,
    /// Wakes the thread; `None` before the first Ingress.
    changed: Option<UnboundedSender<()>>,
}

/// State shared between the thread and its callers.
struct SharedIngress {
    known: Mutex<IngressState>,
    /// Connections to endpoints: one pool per thread.
    pools: [pool::EndpointPool; worker_pool::MAX_THREADS],
}

/// The ordered configuration, and the tables derived from it.
#[derive(Default)]
struct IngressState {
    routes: HashMap<Key, ServiceTarget>,
    ingress_routes: HashMap<Key, Arc<IngressRoute>>,
    table: Arc<IngressTable>,
    certificates: tls::CertificateStore,
    affinity: SessionAffinity,
}

/// The route of a Service.
struct ServiceTarget {
    route: Route,
    /// The endpoints of each port, parsed.
    places: Vec<Vec<SocketAddrV4>>,
}

impl ServiceTarget {
    fn for_route(route: Route) -> ServiceTarget {
        let places = |port: &RoutePort| port.endpoints.iter().filter_map(|one| one.parse().ok()).collect();
        ServiceTarget { places: route.ports.iter().map(places).collect(), route }
    }
}

/// Decision about a request.
enum RequestRoute {
    /// No Ingress has a rule for it.
    NoRule,
    /// A rule matches, but there is no ready endpoint; the reason.
    NoEndpoint(String),
    /// Forward to the first of these that accepts; whether they use HTTP/2.
    Endpoints(Vec<SocketAddrV4>, bool),
    /// Forward to an external host (a Service of type ExternalName).
    ExternalHost(String, u16),
}

impl IngressProxy {
    /// Makes the proxy of the cluster with this folder; nothing runs before the first Ingress.
    pub fn new(state: &Path) -> IngressProxy {
        let pools = std::array::from_fn(|_| pool::EndpointPool::new(state));
        IngressProxy { shared: Arc::new(SharedIngress { known: Mutex::default(), pools }), changed: None }
    }

    /// Sets the route of a Service.
    pub fn route_service(&self, service: &Key, route: &Route) {
        let mut known = self.shared.lock_state();
        let before = match route.is_empty() {
            true => known.routes.remove(service),
            false => known.routes.insert(service.clone(), ServiceTarget::for_route(route.clone())),
        };
        let has = |endpoint: &str| route.ports.iter().any(|port| port.endpoints.iter().any(|one| **one == *endpoint));
        let lost = before.iter().flat_map(|led| &led.route.ports).flat_map(|port| &port.endpoints);
        for endpoint in lost.filter(|endpoint| !has(endpoint)) {
            self.shared.pools.iter().for_each(|pool| pool.drop_endpoint(endpoint));
        }
    }

    /// Sets the routes of an Ingress; the first one opens the listeners. `state` is the cluster's folder.
    pub fn admit(
        &mut self,
        ingress: &Key,
        ingress_route: Option<Arc<IngressRoute>>,
        state: &Path,
        tell: impl FnOnce() -> ListenersCallback,
    ) {
        {
            let mut known = self.shared.lock_state();
            known.certificates.put(ingress, ingress_route.as_deref());
            match ingress_route {
                None => known.ingress_routes.remove(ingress),
                Some(ingress_route) => known.ingress_routes.insert(ingress.clone(), ingress_route),
            };
            if known.ingress_routes.is_empty() && self.changed.is_none() {
                return;
            }
        }
        if self.changed.is_none() {
            // Without a thread there is no proxy, and no Ingress gets an address.
            self.changed = self.start(state.to_owned(), tell()).ok();
        }
        let _ = self.changed.as_ref().map(|changed| changed.send(()));
    }

    fn start(&self, state: PathBuf, tell: ListenersCallback) -> std::io::Result<UnboundedSender<()>> {
        let (changed, mut changes) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = self.shared.clone();
        let run = async move || {
            let mut open_listeners = listeners::OpenIngressListeners::new(state, tell);
            while changes.recv().await.is_some() {
                while changes.try_recv().is_ok() {}
                shared.lock_state().renew();
                open_listeners.adjust(&shared).await;
            }
        };
        let work = move || tokio::task::LocalSet::new().block_on(&runtime, run());
        std::thread::Builder::new().name("ingress".into()).spawn(work)?;
        Ok(changed)
    }
}

impl SharedIngress {
    /// Makes a proxy without a cluster.
    #[cfg(test)]
    fn for_tests() -> Arc<SharedIngress> {
        IngressProxy::new(Path::new("/nonexistent")).shared
    }

    fn lock_state(&self) -> MutexGuard<'_, IngressState> {
        self.known.lock().ignore_poison()
    }

    /// Returns this thread's connections to endpoints.
    fn pool(&self) -> &pool::EndpointPool {
        &self.pools[worker_pool::WorkerPool::number() % worker_pool::MAX_THREADS]
    }

    /// Decides the destination of a request.
    fn choose_route(&self, host: &str, path: &str, client: IpAddr) -> RequestRoute {
        let known = self.lock_state();
        let table = known.table.clone();
        match table.find(host, path) {
            RouteMatch::Nothing => RequestRoute::NoRule,
            RouteMatch::Unknown => RequestRoute::NoEndpoint("its backend is a resource, which is not supported".into()),
            RouteMatch::Service(backend) => known.choose_endpoint(backend, client, ALIASES),
        }
    }
}

impl IngressState {
    fn renew(&mut self) {
        self.table =
            Arc::new(IngressTable::new(self.ingress_routes.iter().map(|(key, ingress_route)| (key, &**ingress_route))));
    }

    fn choose_endpoint(&self, backend: &IngressBackend, client: IpAddr, aliases: usize) -> RequestRoute {
        let name = &backend.service.name;
        let Some(ServiceTarget { route, places }) = self.routes.get(&backend.service) else {
            return RequestRoute::NoEndpoint(format!("there is no Service {name:?}"));
        };
        let no_port = || match &backend.port {
            BackendPort::Number(number) => RequestRoute::NoEndpoint(format!("Service {name:?} has no port {number}")),
            BackendPort::Name(port) => RequestRoute::NoEndpoint(format!("Service {name:?} has no port {port:?}")),
        };
        let is_it = |port: &&RoutePort| match &backend.port {
            BackendPort::Number(number) => port.port == *number,
            BackendPort::Name(name) => port.name == *name,
        };
        let port = route.ports.iter().find(is_it);
        if !route.alias.is_empty() {
            // A Service of type ExternalName need not list its ports.
            let number = match &backend.port {
                BackendPort::Number(number) => Some(*number),
                BackendPort::Name(_) => port.map(|port| port.port),
            };
            return match (number, cluster_service(&route.alias)) {
                (Some(number), None) => RequestRoute::ExternalHost(route.alias.to_string(), number),
                (Some(number), Some(service)) if aliases > 0 => self.choose_endpoint(
                    &IngressBackend { service, port: BackendPort::Number(number) },
                    client,
                    aliases - 1,
                ),
                (Some(_), Some(_)) => {
                    RequestRoute::NoEndpoint(format!("Service {name:?} is an endless chain of external names"))
                }
                (None, _) => no_port(),
            };
        }
        let found = route.ports.iter().zip(places).find(|(port, _)| is_it(port));
        let Some((port, places)) = found else { return no_port() };
        let client = match client {
            IpAddr::V4(client) => client,
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
        };
        let choice = EndpointChoice::for_port(route, port, places.clone(), client).preferred(&self.affinity);
        let endpoints = choice.endpoints.clone();
        let Some(first) = endpoints.first() else {
            return RequestRoute::NoEndpoint(format!("Service {name:?} has no ready endpoint"));
        };
        choice.taken(&self.affinity, *first);
        RequestRoute::Endpoints(endpoints, port.is_h2)
    }
}

/// Returns the Service that a cluster-internal name refers to; the machine's resolver does not know such names.
fn cluster_service(name: &str) -> Option<Key> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let name = name.strip_suffix(".cluster.local").unwrap_or(&name);
    let (service, namespace) = name.strip_suffix(".svc")?.split_once('.')?;
    (!namespace.contains('.')).then(|| Key::new(Resource("services"), namespace, service))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Str;

    fn choose_route(known: &IngressState, service: &str) -> String {
        let service = Key::new(Resource("services"), "shop", service);
        let backend = IngressBackend { service, port: BackendPort::Number(80) };
        match known.choose_endpoint(&backend, IpAddr::V4(Ipv4Addr::LOCALHOST), ALIASES) {
            RequestRoute::NoRule => "nowhere".into(),
            RequestRoute::NoEndpoint(why) => why,
            RequestRoute::Endpoints(places, _) => format!("{places:?}"),
            RequestRoute::ExternalHost(name, port) => format!("{name}:{port}"),
        }
    }

    #[test]
    fn external_names_resolve_to_hosts_or_services() {
        let mut known = IngressState::default();
        let mut route_service = |name: &str, route: Route| {
            known.routes.insert(Key::new(Resource("services"), "shop", name), ServiceTarget::for_route(route))
        };
        let alias = |name: &str| Route { alias: name.into(), ..Route::default() };
        let route = |port: u16, endpoints: Vec<Str>| {
            let (name, protocol) = ("".into(), "TCP".into());
            let port = RoutePort {
                name,
                protocol,
                port,
                node_port: None,
                is_open: false,
                sticky: None,
                is_h2: false,
                endpoints,
            };
            Route { address: "127.9.128.1".into(), ports: vec![port], ..Route::default() }
        };
        route_service("web", route(80, vec!["127.9.1.4:8080".into()]));
        route_service("empty", route(80, Vec::new()));
        route_service("other", route(81, vec!["127.9.1.4:8080".into()]));
        route_service("outside", alias("example.org"));
        route_service("inside", alias("web.shop.svc.cluster.local."));
        route_service("short", alias("Inside.shop.svc"));
        route_service("nobody", alias("none.shop.svc.cluster.local"));
        route_service("circle", alias("circle.shop.svc"));
        let table = [
            ("web", "[127.9.1.4:8080]"),
            ("outside", "example.org:80"),
            ("inside", "[127.9.1.4:8080]"),
            ("short", "[127.9.1.4:8080]"),
            ("empty", r#"Service "empty" has no ready endpoint"#),
            ("other", r#"Service "other" has no port 80"#),
            ("none", r#"there is no Service "none""#),
            ("nobody", r#"there is no Service "none""#),
            ("circle", r#"Service "circle" is an endless chain of external names"#),
        ];
        for (service, expected) in table {
            assert_eq!(choose_route(&known, service), expected, "{service}");
        }
    }
}
