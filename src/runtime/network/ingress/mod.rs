//! The proxy that lets HTTP in by the rules of Ingresses: a thread of the gateway, from the first Ingress on.
//!
//! Knows: what each Ingress lets in and where each Service leads, as they were last ordered ([`Known`]); the rest is the matter of
//! [`doors`] (listening), [`tls`] (certificates), [`forward`] (one request) and [`pool`] (connections to endpoints).
//! Never: reads an object, or remembers an endpoint from one request to the next. Start reading at [`Proxy::admit`].

mod doors;
mod forward;
mod pool;
mod tls;

use super::routes;
use crate::network::ingress::table::{Found, Table};
use crate::object::Key;
use crate::world::Report;
use crate::world::entrance::{Backend, BackendPort, Entrance};
use crate::world::plan::Route;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Tells where the proxy listens, whenever that has changed.
pub type Tell = Box<dyn Fn(Report) + Send>;

/// The proxy, as the machine holds it. It ends when this is dropped.
#[derive(Default)]
pub struct Proxy {
    shared: Arc<Shared>,
    /// Wakes the thread; none before the first Ingress.
    changed: Option<UnboundedSender<()>>,
}

/// What the thread and whoever feeds it share.
#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    pool: pool::Pool,
}

/// What was ordered, and what it comes to.
#[derive(Default)]
struct Known {
    routes: HashMap<Key, Route>,
    entrances: HashMap<Key, Arc<Entrance>>,
    table: Arc<Table>,
    certificates: tls::Certificates,
}

/// What becomes of a request.
enum Way {
    /// No Ingress has a rule for it.
    Nowhere,
    /// There is a rule, and at this moment nobody behind it.
    Nobody,
    /// To the first of these that takes it.
    Endpoints(Vec<SocketAddr>),
    /// To a host outside (a Service of type ExternalName).
    Outside(String, u16),
}

impl Proxy {
    /// Takes in where a Service leads.
    pub fn lead(&self, service: &Key, route: &Route) {
        let mut known = self.shared.known();
        let before = match route.leads_nowhere() {
            true => known.routes.remove(service),
            false => known.routes.insert(service.clone(), route.clone()),
        };
        let has = |endpoint: &str| route.ports.iter().any(|port| port.endpoints.iter().any(|one| **one == *endpoint));
        let lost = before.iter().flat_map(|route| &route.ports).flat_map(|port| &port.endpoints);
        lost.filter(|endpoint| !has(endpoint)).for_each(|endpoint| self.shared.pool.forget(endpoint));
    }

    /// Takes in what an Ingress lets in; the first one opens the doors. `state` is the cluster's folder.
    pub fn admit(&mut self, ingress: &Key, entrance: Option<Arc<Entrance>>, state: &Path, tell: impl FnOnce() -> Tell) {
        {
            let mut known = self.shared.known();
            known.certificates.put(ingress, entrance.as_deref());
            match entrance {
                None => known.entrances.remove(ingress),
                Some(entrance) => known.entrances.insert(ingress.clone(), entrance),
            };
            if known.entrances.is_empty() && self.changed.is_none() {
                return;
            }
        }
        if self.changed.is_none() {
            // Without a thread there is no proxy, and no Ingress says that it answers.
            self.changed = self.start(state.to_owned(), tell()).ok();
        }
        let _ = self.changed.as_ref().map(|changed| changed.send(()));
    }

    fn start(&self, state: PathBuf, tell: Tell) -> std::io::Result<UnboundedSender<()>> {
        let (changed, mut changes) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = self.shared.clone();
        let run = async move {
            let mut doors = doors::Doors::new(state, tell);
            while changes.recv().await.is_some() {
                while changes.try_recv().is_ok() {}
                shared.known().renew();
                doors.adjust(&shared).await;
            }
        };
        std::thread::Builder::new().name("ingress".into()).spawn(move || runtime.block_on(run))?;
        Ok(changed)
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a request goes, at this moment.
    fn way(&self, host: &str, path: &str, client: IpAddr) -> Way {
        let known = self.known();
        let table = known.table.clone();
        match table.find(host, path) {
            Found::Nothing => Way::Nowhere,
            Found::Unknown => Way::Nobody,
            Found::Service(backend) => known.behind(backend, client),
        }
    }
}

impl Known {
    fn renew(&mut self) {
        self.table = Arc::new(Table::new(self.entrances.iter().map(|(key, entrance)| (key, &**entrance))));
    }

    fn behind(&self, backend: &Backend, client: IpAddr) -> Way {
        let Some(route) = self.routes.get(&backend.service) else { return Way::Nobody };
        let port = route.ports.iter().find(|port| match &backend.port {
            BackendPort::Number(number) => port.port == *number,
            BackendPort::Name(name) => port.name == *name,
        });
        if !route.alias.is_empty() {
            // Such a Service need not list its ports.
            let number = match &backend.port {
                BackendPort::Number(number) => Some(*number),
                BackendPort::Name(_) => port.map(|port| port.port),
            };
            return number.map_or(Way::Nobody, |number| Way::Outside(route.alias.to_string(), number));
        }
        let Some(port) = port else { return Way::Nobody };
        let endpoints: Vec<SocketAddrV4> = port.endpoints.iter().filter_map(|one| one.parse().ok()).collect();
        let client = match client {
            IpAddr::V4(client) => client,
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
        };
        let endpoints = routes::in_order(endpoints, port.sticky, client, routes::chance());
        if endpoints.is_empty() {
            Way::Nobody
        } else {
            Way::Endpoints(endpoints.into_iter().map(SocketAddr::V4).collect())
        }
    }
}
