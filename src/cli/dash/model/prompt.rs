//! A line that the user types, and its use.

use crate::object::Key;

/// A line that the user types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashPrompt {
    /// The text before it.
    pub label: String,
    /// The text so far.
    pub text: String,
    /// Its use.
    pub purpose: PromptPurpose,
}

/// Use of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPurpose {
    /// Shows only rows that contain the text.
    Search,
    /// The number of replicas.
    Scale(Key),
    /// Confirms a deletion.
    Delete(Key),
    /// The manifests of a plan.
    Plan,
}
