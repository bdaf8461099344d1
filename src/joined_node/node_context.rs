//! The things that the threads of a joined node share: its client, the pods at the server, tokens, and the end.
//!
//! Start reading at [`NodeContext`].

use super::identity;
use super::server_pods::ServerPods;
use super::tokens::IssuedTokens;
use crate::client::{ApiClient, ClientResult, Reflectors, ServerConfig};
use crate::object::{IgnorePoison, Object};
use crate::runtime::https::trust::TlsClientKey;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Receives a line for the log.
pub type NodeLog = Box<dyn Fn(&str) + Send + Sync>;

/// Facts about a joined node, which copying and reporting share.
pub struct JoinedFacts {
    /// The node's name.
    pub node: String,
    /// Its traits.
    pub traits: NodeTraits,
    /// The pods of the node as the server has them.
    pub pods: ServerPods,
    log: NodeLog,
}

/// Traits of a joined node. By default it is a real one without links.
#[derive(Clone, Copy, Default)]
pub struct NodeTraits {
    /// Whether the machine is linked with others.
    pub is_linked: bool,
    /// Whether the node runs no processes.
    pub is_simulated: bool,
}

/// Files of a joined node.
pub struct NodeFiles {
    /// The node's own state file.
    pub state: PathBuf,
    /// The file with the node's certificate.
    pub identity: PathBuf,
}

impl JoinedFacts {
    /// Knows no pod yet.
    pub fn new(node: &str, traits: NodeTraits, log: NodeLog) -> JoinedFacts {
        JoinedFacts { node: node.to_owned(), traits, pods: ServerPods::default(), log }
    }

    /// Logs a line for users.
    pub fn log(&self, text: &str) {
        (self.log)(text);
    }
}

/// Maximum number of problems that are remembered, so that each is logged once.
const MAX_LOGGED: usize = 100;

/// Shared state of the threads of a joined node.
pub struct NodeContext {
    /// Facts about the node.
    pub facts: Arc<JoinedFacts>,
    /// The node's name.
    pub node: String,
    /// Its files.
    pub files: NodeFiles,
    /// Tokens for pods.
    pub tokens: IssuedTokens,
    /// The problems that were logged last.
    logged: Mutex<VecDeque<String>>,
    /// Grows with each renewal of the certificate, which needs new connections.
    pub client_number: AtomicU64,
    client: Mutex<ApiClient>,
    is_stopping: AtomicBool,
}

impl NodeContext {
    /// Makes the shared state.
    pub fn new(facts: JoinedFacts, files: NodeFiles, client: ApiClient) -> NodeContext {
        NodeContext {
            node: facts.node.clone(),
            facts: Arc::new(facts),
            files,
            tokens: IssuedTokens::default(),
            logged: Mutex::default(),
            client_number: AtomicU64::new(0),
            client: Mutex::new(client),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// The client with the present certificate.
    pub fn client(&self) -> ApiClient {
        self.lock().clone()
    }

    /// Uses another certificate from now on.
    pub fn renew(&self, key: TlsClientKey) -> Result<(), String> {
        let config: ServerConfig = identity::with_key(self.client().config(), key);
        identity::store(&self.files.identity, &config, &self.node)?;
        let client: ClientResult<ApiClient> = ApiClient::new(config);
        *self.lock() = client.map_err(|error| error.to_string())?;
        self.client_number.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns new reflectors, and the number of the client that they use.
    pub fn reflectors(&self) -> (Reflectors, u64) {
        let number = self.client_number.load(Ordering::Relaxed);
        (self.client().reflectors(), number)
    }

    /// Fetches the tokens that a pod needs.
    pub fn fetch_tokens(&self, pod: &Object) {
        if let Err(problem) = self.tokens.fetch(&self.client(), pod) {
            self.log_once(problem);
        }
    }

    /// Returns the token for claims of a pod.
    pub fn issue_token(&self, claims: &Value) -> Option<String> {
        match self.tokens.issue(&self.client(), claims)? {
            Ok(token) => Some(token),
            Err(problem) => {
                self.log_once(problem);
                None
            }
        }
    }

    /// Logs a problem, unless it is one of those that were logged last.
    fn log_once(&self, problem: String) {
        let mut logged = self.logged.lock().ignore_poison();
        if logged.contains(&problem) {
            return;
        }
        if logged.len() >= MAX_LOGGED {
            logged.pop_front();
        }
        self.log(&problem);
        logged.push_back(problem);
    }

    /// Logs a line for users.
    pub fn log(&self, text: &str) {
        self.facts.log(text);
    }

    /// Lets the threads end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the threads are to end.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, ApiClient> {
        self.client.lock().ignore_poison()
    }
}
