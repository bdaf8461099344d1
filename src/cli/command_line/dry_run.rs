//! `--dry-run`: whether a write is made, only printed, or checked by the API server without being
//! stored.

/// `--dry-run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DryRun {
    /// The write is made.
    #[default]
    None,
    /// The object is only printed.
    Client,
    /// The API server makes the write, except for storing it.
    Server,
}

impl DryRun {
    /// Returns kubectl's suffix for messages.
    pub fn suffix(self) -> &'static str {
        match self {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }
}
