//! All tests that need the built binary or several modules.

#[macro_use]
mod skips;

mod architecture;
mod bad_input;
mod campaign;
mod client_verbs;
mod cluster;
mod completion;
mod config;
mod conversations;
mod corpus;
mod diagnostics;
mod documentation;
mod envtest;
mod explain;
mod first_steps;
mod generators;
mod golden;
mod kinds;
mod licences;
mod processes;
#[cfg(feature = "schema")]
mod protobuf_fields;
mod runtime;
#[cfg(feature = "schema")]
mod schema;
mod screen;
mod selectors;
mod serving;
mod shared_folder;
mod show;
mod sim;
mod store;
mod webhooks;
