//! Settings of a cluster's context, which kubectl keeps in a kubeconfig: its name and its default namespace.
//!
//! Each is one line in a file in the state's folder. Never: opens the state; settings can be read without a cluster.

use crate::kinds;
use crate::runtime::folder;
use anyhow::Context as _;
use std::fs::{self};
use std::path::{Path, PathBuf};

/// The longest name of a context, in bytes.
pub const MAX_NAME_LENGTH: usize = 253;

/// The namespace that commands use without `--namespace`, as set by `config set-context`.
pub fn default_namespace(state: &Path) -> String {
    let kept = read(&namespace_path(state)).filter(|kept| kinds::shared::names::label(kept).is_empty());
    kept.unwrap_or_else(|| "default".to_owned())
}

/// Stores the default namespace; an empty one means `default`.
pub fn set_default_namespace(state: &Path, namespace: &str) -> anyhow::Result<()> {
    write(&namespace_path(state), namespace)
}

/// The context's name: the one set by `config rename-context`, else [`usual_name`].
pub fn context_name(state: &Path) -> String {
    read(&name_path(state)).filter(|name| is_name(name)).unwrap_or_else(|| usual_name(state))
}

/// Stores the context's name.
pub fn set_context_name(state: &Path, name: &str) -> anyhow::Result<()> {
    write(&name_path(state), name)
}

/// Whether a context can have this name: one short line.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_LENGTH && name.trim() == name && !name.contains(char::is_control)
}

/// The name of a context that was not renamed: the stem of the state file, or the name of its
/// folder if the stem is `state`.
pub fn usual_name(state: &Path) -> String {
    let path = std::path::absolute(state).unwrap_or_default();
    let named = path.file_stem().filter(|stem| *stem != "state");
    let folder = path.parent().and_then(|folder| folder.file_name());
    named.or(folder).map_or_else(|| "default".to_owned(), |folder| folder.to_string_lossy().into_owned())
}

fn namespace_path(state: &Path) -> PathBuf {
    state.with_added_extension("namespace")
}

fn name_path(state: &Path) -> PathBuf {
    state.with_added_extension("context")
}

fn read(path: &Path) -> Option<String> {
    let kept = fs::read_to_string(path).ok()?;
    Some(kept.trim().to_owned()).filter(|kept| !kept.is_empty())
}

/// Replaces a file atomically: a reader sees the old line or the new one.
fn write(path: &Path, line: &str) -> anyhow::Result<()> {
    let written = folder::replace(path, format!("{line}\n").as_bytes());
    written.with_context(|| format!("cannot write {}", path.display()))
}
