//! Publishes network configuration in the order of the commands: to shims by the tables of routes and policies, and to the gateway.
//!
//! A thread repeats a write that the disk refuses until it succeeds: nobody orders it a second time. Never: decides what is said.

use super::gateway::{GatewayCommand as Telling, link::GatewayLink};
use super::{policies, routes};
use crate::object::Key;
use crate::world::plan::Route;
use crate::world::policy::NetworkPolicyRules;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Interval for retrying failed writes.
const AGAIN: Duration = Duration::from_secs(1);

/// Something that is to be made known.
pub enum PublishCommand {
    /// The route of a Service; the gateway gets it once it is written.
    Route(Key, Route),
    /// The rules of a NetworkPolicy; `None` when it is gone.
    Police(Key, Option<Arc<NetworkPolicyRules>>),
    /// Something for the gateway alone.
    Tell(Telling),
    /// Everything was ordered once: what an earlier control plane left beside it goes.
    Settle,
}

impl PublishCommand {
    /// Whether what the one says makes what the other says old.
    fn replaces(&self, other: &PublishCommand) -> bool {
        match (self, other) {
            (PublishCommand::Route(_, new), PublishCommand::Route(_, old)) => {
                old.addresses().any(|at| new.addresses().any(|one| one == at))
            }
            (PublishCommand::Police(new, _), PublishCommand::Police(old, _)) => new == old,
            _ => false,
        }
    }
}

/// The way to shims and to the gateway.
pub struct NetworkPublisher(Arc<Mutex<PublisherState>>);

struct PublisherState {
    state: PathBuf,
    gateway: Option<GatewayLink>,
    routes: routes::WrittenRoutes,
    policies: policies::WrittenPolicies,
    /// Failed writes, which a thread retries.
    owed: Vec<PublishCommand>,
}

impl NetworkPublisher {
    /// One for the cluster with this folder.
    pub fn new(state: PathBuf, gateway: Option<GatewayLink>) -> NetworkPublisher {
        let (routes, policies) = (routes::WrittenRoutes::default(), policies::WrittenPolicies::default());
        NetworkPublisher(Arc::new(Mutex::new(PublisherState { state, gateway, routes, policies, owed: Vec::new() })))
    }

    /// Makes something known; it is so when this returns, unless the disk refuses.
    pub fn order(&self, order: PublishCommand) {
        let mut log_buffers = locked(&self.0);
        let was_clean = log_buffers.owed.is_empty();
        log_buffers.apply_command(order);
        if was_clean && !log_buffers.owed.is_empty() {
            let owing = Arc::downgrade(&self.0);
            let _ = std::thread::Builder::new().name("tables".into()).spawn(move || try_again(&owing));
        }
    }
}

/// Until nothing is owed, or nobody orders any more.
fn try_again(owing: &Weak<Mutex<PublisherState>>) {
    loop {
        std::thread::sleep(AGAIN);
        let Some(log_buffers) = owing.upgrade() else { return };
        let mut log_buffers = locked(&log_buffers);
        std::mem::take(&mut log_buffers.owed).into_iter().for_each(|order| log_buffers.apply_command(order));
        if log_buffers.owed.is_empty() {
            return;
        }
    }
}

fn locked(log_buffers: &Mutex<PublisherState>) -> MutexGuard<'_, PublisherState> {
    log_buffers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PublisherState {
    fn publish(&self, order: Telling) {
        self.gateway.iter().for_each(|gateway| gateway.order(order.clone()));
    }

    fn apply_command(&mut self, order: PublishCommand) {
        self.owed.retain(|owed| !order.replaces(owed));
        let written = match &order {
            PublishCommand::Tell(telling) => return self.publish(telling.clone()),
            PublishCommand::Settle => {
                self.policies.sweep(&self.state);
                self.routes.sweep(&self.state);
                return self.publish(Telling::Settled);
            }
            PublishCommand::Police(policy, rules) => self.policies.write(&self.state, policy, rules.as_deref()),
            PublishCommand::Route(service, route) => {
                let written = self.routes.write(&self.state, route);
                self.publish(Telling::Route(service.clone(), route.clone()));
                written
            }
        };
        if written.is_err() {
            self.owed.push(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;
    use crate::world::plan::RoutePort;
    use std::time::Instant;

    #[test]
    fn failed_write_is_repeated_later() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(routes::FOLDER).join("127.9.128.7");
        // Nothing can be put in place of a folder with something in it.
        std::fs::create_dir_all(file.join("in-the-way")).unwrap();
        let network_publisher = NetworkPublisher::new(state.path().to_owned(), None);
        let port = RoutePort {
            name: "".into(),
            protocol: "TCP".into(),
            port: 80,
            node_port: None,
            is_open: false,
            sticky: None,
            is_h2: false,
            endpoints: vec!["127.9.1.4:8080".into()],
        };
        let route = Route { address: "127.9.128.7".into(), ports: vec![port], ..Route::default() };
        network_publisher.order(PublishCommand::Route(Key::new(Resource("services"), "default", "web"), route));
        assert!(file.is_dir());
        std::fs::remove_dir_all(&file).unwrap();
        let start = Instant::now();
        while !file.is_file() {
            assert!(start.elapsed() < Duration::from_secs(60), "it was tried again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
