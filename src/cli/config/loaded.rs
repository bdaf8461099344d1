//! The contexts as `config` shows them: the contexts of the file, and the context of the state file that is used without a file.

use crate::cli::cluster::context_settings;
use crate::cli::cluster::contexts::{ConfigFile, USER, own_state};
use crate::cli::{CliResult, CommandContext, Failure, Globals};
use crate::store;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The file of contexts, with the context that is not in it.
pub struct LoadedConfig {
    /// The contents of the file.
    pub file: ConfigFile,
    /// The state file that has a context without an entry.
    pub own: Option<OwnContext>,
    /// Whether `--state` or `$KLOOP_STATE` names that file, and wins over the current context.
    pub is_fixed: bool,
}

/// A state file without an entry, and the name of its context.
pub struct OwnContext {
    /// The name of its context and of its cluster.
    pub name: String,
    /// The state file.
    pub state: PathBuf,
}

impl LoadedConfig {
    /// Reads the file. `--kubeconfig` shows that file alone.
    pub fn load(globals: &Globals) -> CliResult<LoadedConfig> {
        let flag = globals.kubeconfig.as_deref().filter(|file| !file.as_os_str().is_empty());
        let file = ConfigFile::load(&ConfigFile::find_path(flag))?;
        let selected = own_state(globals).filter(|_| flag.is_none() || globals.state.is_some());
        let is_fixed = selected.is_some();
        let state = selected.or_else(|| flag.is_none().then(store::default_path));
        let own = state.map(|state| OwnContext { name: context_settings::context_name(&state), state });
        // An entry of this name hides the state file that is used without any.
        let own = own.filter(|own| is_fixed || !file.contexts.contains_key(&own.name));
        Ok(LoadedConfig { file, own, is_fixed })
    }

    /// The path of the file, for messages.
    pub fn path(&self) -> std::path::Display<'_> {
        self.file.path.display()
    }

    /// The name of the current context; empty if there is none.
    pub fn current(&self) -> &str {
        match &self.own {
            Some(own) if self.is_fixed || self.file.current.is_empty() => &own.name,
            _ => &self.file.current,
        }
    }

    /// Returns the context of a state file without an entry, if it has this name.
    pub fn own(&self, name: &str) -> Option<&OwnContext> {
        self.own.as_ref().filter(|own| own.name == name)
    }

    /// Whether a context has this name.
    pub fn has_context(&self, name: &str) -> bool {
        self.own(name).is_some() || self.file.contexts.contains_key(name)
    }

    /// Returns all entries, those of the context without an entry, too.
    pub fn merged(&self, context: &CommandContext) -> ConfigFile {
        let mut merged = self.file.clone();
        merged.current = self.current().to_owned();
        let Some(OwnContext { name, state }) = &self.own else { return merged };
        let path = std::path::absolute(state).unwrap_or_default();
        let entry = |value: Value| value.as_object().cloned().unwrap_or_default();
        let server = json!({ "server": format!("file://{}", path.display()) });
        merged.clusters.insert(name.clone(), entry(server));
        let namespace = context.default_namespace();
        let fields = json!({ "cluster": name, "namespace": namespace, "user": USER });
        merged.contexts.insert(name.clone(), entry(fields));
        merged.users.entry(USER.to_owned()).or_default();
        merged
    }

    /// Changes the file.
    pub fn change<T>(&self, change: impl FnOnce(&mut ConfigFile) -> CliResult<T>) -> CliResult<T> {
        ConfigFile::change(&self.file.path, change)
    }

    /// The error for a change of the context, cluster or user of a state file that has no entry.
    pub fn refuse_own(&self, doing: &str, own: &OwnContext) -> Failure {
        Failure::plain(format!(
            "cannot {doing}: it is the state file {} itself, not an entry of {}\nhint: kloop config set-context NAME --state FILE adds an entry",
            own.state.display(),
            self.path()
        ))
    }
}

/// Sets a text field of an entry; without a text, leaves it as it is.
pub fn put(entry: &mut Map<String, Value>, field: &str, text: Option<&str>) {
    match text {
        None => {}
        Some("") => drop(entry.remove(field)),
        Some(text) => drop(entry.insert(field.to_owned(), text.into())),
    }
}

/// Removes fields of an entry.
pub fn remove(entry: &mut Map<String, Value>, fields: &[&str]) {
    entry.retain(|field, _| !fields.contains(&field.as_str()));
}

/// Returns the absolute path to store for a file in a flag.
pub fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The error for a wrong number of arguments.
pub fn unexpected(words: &[String]) -> Failure {
    Failure::plain(format!("Unexpected args: [{}]", words.join(" ")))
}
