//! Input of commands: manifests, the files that they name, and data for ConfigMaps and Secrets.
//!
//! Never: writes objects. Start reading at [`files`], the flags `-f` and `-k`.

pub mod data_sources;
pub mod files;
pub mod input;
pub mod key_changes;
pub mod manifest_metadata;
pub mod portable;
pub mod relative;
