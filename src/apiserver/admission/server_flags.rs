//! The plugins that this process leaves out: those that the flags of `kube-apiserver` name, as envtest starts it.
//!
//! Knows: such a process serves one state. Never: knows which plugins there are.

use std::sync::OnceLock;

/// The names of the disabled plugins.
static DISABLED: OnceLock<Vec<String>> = OnceLock::new();

/// Takes the value of `--disable-admission-plugins`, before the first request. Only the first call counts.
pub fn set_disabled(names: &[String]) {
    // A second call finds the flags of the same process.
    let _ = DISABLED.set(names.to_vec());
}

/// Whether the flags disable a plugin.
pub fn is_disabled(name: &str) -> bool {
    DISABLED.get().is_some_and(|names| names.iter().any(|disabled| disabled == name))
}
