//! The verbs that work with a cluster behind an API server; the others need a state file.
//!
//! Start reading at [`check`].

use crate::cli::{CliResult, Failure};
use crate::client::ServerConfig;

/// The verbs that read and change a cluster behind an API server.
const SERVER_VERBS: [&str; 42] = [
    "annotate",
    "api-resources",
    "api-versions",
    "apply",
    "attach",
    "auth",
    "autoscale",
    "certificate",
    "cluster-info",
    "cordon",
    "cp",
    "create",
    "dash",
    "debug",
    "delete",
    "describe",
    "diff",
    "drain",
    "edit",
    "events",
    "exec",
    "explain",
    "expose",
    "get",
    "label",
    "logs",
    "patch",
    "plan",
    "port-forward",
    "proxy",
    "replace",
    "rollout",
    "run",
    "scale",
    "set",
    "taint",
    "top",
    "uncordon",
    "up",
    "version",
    "wait",
    "why",
];

/// Refuses a verb that needs a state file.
pub fn check(verb: &str, config: &ServerConfig) -> CliResult {
    if SERVER_VERBS.contains(&verb) {
        return Ok(());
    }
    Err(Failure::plain(format!(
        "\"kloop {verb}\" needs a state file, and the cluster is the server {}\nhint: leave out the flag or the context that chooses the \
         server (kloop config get-contexts lists contexts), or name a file with --state",
        config.address
    )))
}
