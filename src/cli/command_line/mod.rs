//! The command line as kubectl reads it: its grammar, the flags that verbs share, the user's preferences, and errors of usage.
//!
//! Never: reads objects or the cluster. Start reading at [`grammar`].

pub mod access_verbs;
pub mod check_globals;
pub mod dry_run;
pub mod flags;
pub mod globals;
pub mod grammar;
pub mod kuberc;
pub mod program_name;
pub mod server_verbs;
pub mod usage;
