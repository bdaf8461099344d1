//! Presentation: tables, descriptions, and the output formats of `-o`.
//!
//! Knows: layout ([`table`], [`describe`], both over [`columns`]), escaping for terminals ([`escape`]), and kubectl's
//! formats.
//! Never: knows a particular kind (its columns and sections come from `kinds::view`), or prints: it
//! returns text.
//! Start reading at [`table`].

pub mod changes;
pub mod columns;
pub mod custom_columns;
pub mod describe;
pub mod escape;
pub mod events;
pub mod explain;
pub mod kyaml;
pub mod print;
pub mod sort;
pub mod table;
pub mod usage;
pub mod wrap;

#[cfg(test)]
mod tests;
