//! The kinds as a catalogue: finding one by name, decoding and encoding its objects, its schema, selectable fields and merge rules.
//!
//! The functions work for each kind and know none of them. Never: does I/O. Start reading at [`registry`].

pub mod merge_rules;
pub mod read;
pub mod registry;
pub mod schemas;
pub mod selectable;
pub mod shapes;
pub mod typed;
pub mod unknown;
pub mod version_priority;
