//! Rules that several kinds share: types of fields, their checks, defaults and messages, and parts of specifications.
//!
//! A rule of one kind alone is in that kind's file. Never: does I/O. Start reading at [`field`], the errors of every check, and
//! [`metadata`], the check that every object passes.

pub mod address;
pub(super) mod admission_policy;
pub mod amount;
pub mod bootstrap_token;
pub mod certificate_conditions;
pub mod certificate_request;
pub(super) mod conditions;
pub mod data_keys;
pub mod default_class;
pub mod expressions;
pub mod field;
pub(super) mod flow_control;
pub mod go;
pub(super) mod key_pair;
pub(super) mod load_balancer;
pub mod manifest_folder;
pub mod metadata;
pub mod names;
pub(super) mod node_labels;
pub mod omit;
pub mod policy_programs;
pub mod probe_handler;
pub mod process_ids;
pub mod rbac;
pub mod resource_amounts;
pub mod resource_names;
pub mod selector;
pub mod token_claims;
pub(super) mod volume_source;
pub mod webhook;
pub(super) mod webhook_rule;
pub mod workload;
