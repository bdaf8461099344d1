//! Contexts: names for state files and servers, with a namespace and a user, in a file of kubeconfig form.
//!
//! kubectl's own file (`$KUBECONFIG`, `~/.kube/config`) is used only if `--kubeconfig` names it, so that no command changes a server by
//! accident: kloop keeps its contexts in `$KLOOP_CONFIG`, else `~/.config/kloop/config`. A cluster entry names a state file or a server.
//! A state file that is used without a context is a context itself, whose settings are in the file's folder (`context_settings`).
//! Never: opens a state, sends anything to a server. Start reading at [`choose`].

mod choice;
mod config_file;
mod in_cluster;
mod location;
mod server;

pub use choice::{ClusterChoice, choose, is_found_without_flags, own_state};
pub use config_file::{ConfigFile, Entries};
pub use location::{Location, absolute_server};
pub use server::ServerEntries;

/// The name of the user who opens a state file without an entry for a user.
pub const USER: &str = "admin";
