//! The client certificate and the kubelet's serving certificate of a joined node. Each is stored in the folder of the node's state, and
//! renewed after four fifths of its lifetime.
//!
//! Knows: a request may wait for hours for an administrator's approval, because Kubernetes does not approve serving certificates itself;
//! heartbeats do not wait for it. Start reading at [`CertificateKeeper::run`].

use super::ServingIdentity;
use super::identity::{self, CLIENT_SIGNER, NodeCertificateRequest, SERVING_SIGNER, WaitForSignature};
use super::node_context::NodeContext;
use crate::object::Time;
use crate::object::time::Shift;
use crate::runtime::https::trust::TlsClientKey;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks whether a certificate is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for the approval of the certificate with which the node serves (kubelet: certificateWaitTimeout).
const SERVING_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Pause after a failure.
const RETRY: SignedDuration = SignedDuration::from_mins(1);

/// Receives the certificates: once all are issued, and after each renewal.
pub type CertificateSink = Box<dyn FnMut(ServingIdentity) + Send>;

/// Obtains and renews the certificates of a node.
pub struct CertificateKeeper {
    context: Arc<NodeContext>,
    /// The address at which the node serves.
    address: String,
    serving: Option<TlsClientKey>,
    /// Times of the next requests; `None` for at once.
    next_client: Option<Time>,
    next_serving: Option<Time>,
    sink: CertificateSink,
}

impl CertificateKeeper {
    /// Takes up the certificates that the node has.
    pub fn new(context: Arc<NodeContext>, address: String, sink: CertificateSink) -> CertificateKeeper {
        let next_client = identity::renewal_time(&context.client().config().credentials.key.certificate);
        let mut keeper = CertificateKeeper { context, address, serving: None, next_client, next_serving: None, sink };
        keeper.load_serving();
        keeper
    }

    /// Keeps the certificates until the node stops.
    pub fn run(mut self) {
        self.report();
        while !self.context.is_stopping() {
            let is_due = |next: Option<Time>| next.is_none_or(|at| at <= Time::now());
            let mut is_new = is_due(self.next_client) && self.renew_client();
            is_new |= is_due(self.next_serving) && self.renew_serving();
            if is_new {
                self.report();
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Passes the certificates on, if all are issued.
    fn report(&mut self) {
        let client = self.context.client();
        let config = client.config();
        let (Some(serving), Some(authority)) = (&self.serving, &config.authorities) else { return };
        let client = config.credentials.key.clone();
        (self.sink)(ServingIdentity { key: serving.clone(), client, authority: authority.clone() });
    }

    fn renew_client(&mut self) -> bool {
        let order = NodeCertificateRequest { node: &self.context.node, signer: CLIENT_SIGNER, addresses: &[] };
        let renewed = identity::request_certificate(&self.context.client(), &order, &WaitForSignature::default());
        let next = renewed.as_ref().ok().and_then(|key| identity::renewal_time(&key.certificate));
        let renewed = renewed.and_then(|key| self.context.renew(key));
        self.next_client = renewed.as_ref().map_or_else(|_| Some(Time::now().later(RETRY)), |()| next);
        self.log_failure("the node's certificate", renewed)
    }

    fn renew_serving(&mut self) -> bool {
        let addresses = [self.address.clone()];
        let order = NodeCertificateRequest { node: &self.context.node, signer: SERVING_SIGNER, addresses: &addresses };
        let context = self.context.clone();
        let wait = WaitForSignature {
            patience: SERVING_PATIENCE,
            tell: &|name| {
                context.log(&format!(
                    "serves logs and streams once an administrator has approved its certificate: kubectl certificate approve {name}"
                ));
            },
            is_over: &|| context.is_stopping(),
        };
        let renewed = identity::request_certificate(&self.context.client(), &order, &wait);
        if self.context.is_stopping() {
            return false;
        }
        self.next_serving = match &renewed {
            Ok(key) => identity::renewal_time(&key.certificate),
            Err(_) => Some(Time::now().later(RETRY)),
        };
        let stored = renewed.and_then(|key| {
            let stored = self.store_serving(&key);
            self.serving = Some(key);
            stored
        });
        self.log_failure("the certificate with which the node serves", stored)
    }

    /// Logs a failure. Returns whether there was none.
    fn log_failure(&self, what: &str, outcome: Result<(), String>) -> bool {
        match outcome {
            Ok(()) => true,
            Err(why) => {
                self.context.log(&format!("cannot renew {what}: {why}"));
                false
            }
        }
    }

    fn serving_path(&self) -> PathBuf {
        self.context.files.state.with_added_extension("serving")
    }

    /// Takes up the certificate of an earlier run, if it is for this address and not due.
    fn load_serving(&mut self) {
        // A file that is missing or damaged is made again.
        let text = std::fs::read_to_string(self.serving_path()).unwrap_or_default();
        let stored: Value = serde_json::from_str(&text).unwrap_or_default();
        let part = |name: &str| stored[name].as_str().unwrap_or_default();
        let next = identity::renewal_time(part("certificate"));
        if part("address") == self.address && next.is_some_and(|at| at > Time::now()) {
            self.next_serving = next;
            self.serving = Some(TlsClientKey { certificate: part("certificate").into(), key: part("key").into() });
        }
    }

    fn store_serving(&self, key: &TlsClientKey) -> Result<(), String> {
        let stored = json!({"address": self.address, "certificate": &*key.certificate, "key": &*key.key});
        identity::write_private(&self.serving_path(), &stored.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::node_context::{JoinedFacts, NodeFiles, NodeTraits};
    use super::*;
    use crate::client::{ApiClient, ServerConfig};
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(last_year: i32) -> String {
        let mut params = CertificateParams::new(vec!["10.0.0.1".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(last_year, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn certificate_of_an_earlier_run_is_taken_up_for_its_address_until_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.db");
        let keeper = |address: &str| {
            let client = ApiClient::new(ServerConfig::new("https://10.0.0.9:6443").unwrap()).unwrap();
            let facts = JoinedFacts::new("n", NodeTraits::default(), Box::new(|_| {}));
            let context = NodeContext::new(
                facts,
                NodeFiles { state: state.clone(), identity: folder.path().join("node") },
                client,
            );
            CertificateKeeper::new(Arc::new(context), address.to_owned(), Box::new(|_| {}))
        };
        let first = keeper("10.0.0.1");
        assert!(first.serving.is_none() && first.next_serving.is_none());
        let store = |last_year: i32| {
            let key = TlsClientKey { certificate: certificate(last_year).into(), key: "KEY".into() };
            first.store_serving(&key).unwrap();
        };
        store(2500);
        assert_eq!(keeper("10.0.0.1").serving.map(|key| key.key.to_string()).as_deref(), Some("KEY"));
        assert!(keeper("10.0.0.2").serving.is_none(), "another address needs another certificate");
        store(2021);
        assert!(keeper("10.0.0.1").serving.is_none(), "its time is over");
    }
}
