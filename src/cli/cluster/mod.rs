//! The cluster that a command works with: a state file or a server, its objects, and waiting for their changes.
//!
//! Never: decides anything about objects; the API server does. Start reading at [`context`], the environment of a verb, and
//! [`targets`], which finds the objects that a command line names.

pub mod change;
pub mod change_cause;
pub mod context;
pub mod context_settings;
pub mod contexts;
pub mod control_plane;
pub mod deadline;
pub mod one_pod;
pub mod past;
pub mod raw_request;
pub mod rest;
pub mod server_session;
pub mod server_watch;
pub mod targets;
pub mod world_follower;
