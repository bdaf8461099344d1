//! The names of all settings in the table `meta`, so that no two are the same.
//!
//! Never: reads or writes one; the modules that each comment names do.

/// N of the cluster's 127.N.0.0/16 (`apiserver`).
pub const NETWORK: &str = "network";
/// The name of the node whose copy of another cluster a state is (`joined_node`).
pub const JOINED_NODE: &str = "joined-node";
/// The configuration of the scheduler's profiles, as JSON; empty for Kubernetes' own (`reconcile`).
pub const PROFILES: &str = "scheduler";
/// The names of the controllers that the control plane does not run, separated by commas (`reconcile`).
pub const LEFT_OUT: &str = "left-out";
/// The moment of the nodes' last heartbeat (`reconcile`).
pub const HEARD: &str = "heartbeat";
/// The epoch of the leading control plane (`reconcile`).
pub const EPOCH: &str = "epoch";
/// The certificate of the cluster's authority, PEM (`apiserver::tokens`).
pub const AUTHORITY: &str = "authority";
/// The key of the authority, PEM (`apiserver::tokens`).
pub const AUTHORITY_KEY: &str = "authority-key";
/// The key of tokens: PKCS #8, base64 (`apiserver::tokens`).
pub const TOKEN_KEY: &str = "token-key";
/// The administrator's token (`apiserver::tokens`).
pub const ADMIN_TOKEN: &str = "admin-token";
/// The certificate of the authority towards extension API servers, PEM (`apiserver::tokens`).
pub const FRONT_PROXY_AUTHORITY: &str = "front-proxy-authority";
/// The key of that authority, PEM (`apiserver::tokens`).
pub const FRONT_PROXY_AUTHORITY_KEY: &str = "front-proxy-authority-key";
/// The cluster of a replica, which its log does not have (`store::replica`).
pub const REPLICA_CLUSTER: &str = "replica-cluster";
/// The number of the last batch that a replica contains (`store::replica`).
pub const REPLICA_POSITION: &str = "replica-position";
/// The process that opened the file again after a commit of unknown outcome (`store`).
pub const REOPENED_BY: &str = "reopened-by";
