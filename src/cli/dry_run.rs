//! `--dry-run`: whether a write is made, only printed, or tried without being kept.

/// `--dry-run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DryRun {
    /// The write is made.
    #[default]
    None,
    /// It is only printed.
    Client,
    /// Everything is done but the keeping.
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
