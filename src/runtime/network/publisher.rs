//! Publishes network configuration in the order of the commands: to shims by the tables of routes and policies, and to the gateway.
//!
//! A thread repeats failed writes until they succeed, because each command arrives only once. Never: decides the content.

use super::gateway::{GatewayCommand, link::GatewayLink};
use super::{policies, routes};
use crate::object::{IgnorePoison, Key};
use crate::world::plan::Route;
use crate::world::policy::NetworkPolicyRules;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// Interval for retrying failed writes.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A change to publish.
pub enum PublishCommand {
    /// The route of a Service. The gateway gets it after it is written.
    Route(Key, Route),
    /// The rules of a NetworkPolicy; `None` when it is gone.
    NetworkPolicy(Key, Option<Arc<NetworkPolicyRules>>),
    /// A command for the gateway alone.
    Gateway(GatewayCommand),
    /// All configuration was sent once. Removes entries of an earlier control plane.
    Settle,
}

impl PublishCommand {
    /// Whether this command makes the other one obsolete.
    fn replaces(&self, other: &PublishCommand) -> bool {
        match (self, other) {
            (PublishCommand::Route(_, new), PublishCommand::Route(_, old)) => {
                old.addresses().any(|address| new.addresses().any(|new| new == address))
            }
            (PublishCommand::NetworkPolicy(new, _), PublishCommand::NetworkPolicy(old, _)) => new == old,
            _ => false,
        }
    }
}

/// Publishes to shims and to the gateway.
pub struct NetworkPublisher(Arc<Mutex<PublisherState>>);

struct PublisherState {
    state: PathBuf,
    gateway: Option<GatewayLink>,
    routes: routes::WrittenRoutes,
    policies: policies::WrittenPolicies,
    /// Failed writes, which a thread retries.
    failed_writes: Vec<PublishCommand>,
}

impl NetworkPublisher {
    /// Makes the publisher of the cluster with this folder.
    pub fn new(state: PathBuf, gateway: Option<GatewayLink>) -> NetworkPublisher {
        let (routes, policies) = (routes::WrittenRoutes::default(), policies::WrittenPolicies::default());
        NetworkPublisher(Arc::new(Mutex::new(PublisherState {
            state,
            gateway,
            routes,
            policies,
            failed_writes: Vec::new(),
        })))
    }

    /// Publishes a change; it is in effect when this returns, unless the write fails.
    pub fn order(&self, command: PublishCommand) {
        let mut state = locked(&self.0);
        let was_clean = state.failed_writes.is_empty();
        state.apply_command(command);
        if was_clean && !state.failed_writes.is_empty() {
            let publisher = Arc::downgrade(&self.0);
            let _ = std::thread::Builder::new().name("tables".into()).spawn(move || retry_writes(&publisher));
        }
    }
}

/// Repeats failed writes until none is left, or the publisher was dropped.
fn retry_writes(publisher: &Weak<Mutex<PublisherState>>) {
    loop {
        std::thread::sleep(RETRY_INTERVAL);
        let Some(state) = publisher.upgrade() else { return };
        let mut state = locked(&state);
        std::mem::take(&mut state.failed_writes).into_iter().for_each(|command| state.apply_command(command));
        if state.failed_writes.is_empty() {
            return;
        }
    }
}

fn locked(state: &Mutex<PublisherState>) -> MutexGuard<'_, PublisherState> {
    state.lock().ignore_poison()
}

impl PublisherState {
    fn publish(&self, command: GatewayCommand) {
        self.gateway.iter().for_each(|gateway| gateway.order(command.clone()));
    }

    fn apply_command(&mut self, command: PublishCommand) {
        self.failed_writes.retain(|failed| !command.replaces(failed));
        let written = match &command {
            PublishCommand::Gateway(command) => return self.publish(command.clone()),
            PublishCommand::Settle => {
                self.policies.sweep(&self.state);
                self.routes.sweep(&self.state);
                return self.publish(GatewayCommand::Settled);
            }
            PublishCommand::NetworkPolicy(policy, rules) => self.policies.write(&self.state, policy, rules.as_deref()),
            PublishCommand::Route(service, route) => {
                let written = self.routes.write(&self.state, route);
                self.publish(GatewayCommand::Route(service.clone(), route.clone()));
                written
            }
        };
        if written.is_err() {
            self.failed_writes.push(command);
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
        // A folder that is not empty cannot be replaced by a file.
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
            assert!(start.elapsed() < Duration::from_secs(60), "the write is repeated");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
