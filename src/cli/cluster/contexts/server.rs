//! The API server that a command uses in place of a state file, with the flags that change its entries.
//!
//! Never: connects. Start reading at [`ServerEntries`].

use super::config_file::Entries;
use super::{ConfigFile, Location};
use crate::cli::{CliResult, Failure, Globals};
use crate::client::ServerConfig;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Fields of a user entry that a token in a flag replaces.
const OTHER_CREDENTIALS: [&str; 5] = ["auth-provider", "exec", "password", "tokenFile", "username"];

/// The entries of a kubeconfig for one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerEntries {
    /// The entry of the cluster.
    pub cluster: Map<String, Value>,
    /// The entry of the user.
    pub user: Map<String, Value>,
    /// The folder below which relative paths in them are.
    pub folder: PathBuf,
}

impl ServerEntries {
    /// Returns the entries of the current context of a file; `None` without one.
    pub fn from_current_context(file: &ConfigFile) -> Option<ServerEntries> {
        let context = file.contexts.get(&file.current)?;
        let entry = |entries: &Entries, field: &str| entries.get(ConfigFile::text(context, field)).cloned();
        let user = entry(&file.users, "user").unwrap_or_default();
        Some(ServerEntries { cluster: entry(&file.clusters, "cluster")?, user, folder: file.folder() })
    }

    /// Returns the configuration of a client, with the flags of the command.
    pub fn config(&self, globals: &Globals) -> CliResult<ServerConfig> {
        let (mut cluster, mut user) = (self.cluster.clone(), self.user.clone());
        let flags = &globals.connection;
        let text = |flag: &Option<String>| flag.clone().filter(|text| !text.is_empty());
        set(&mut cluster, "server", text(&globals.server).filter(|server| is_address(server)));
        set(&mut cluster, "tls-server-name", text(&flags.tls_server_name));
        if let Some(is_skipped) = flags.insecure_skip_tls_verify {
            cluster.insert("insecure-skip-tls-verify".to_owned(), is_skipped.into());
            if is_skipped {
                cluster.remove("certificate-authority");
                cluster.remove("certificate-authority-data");
            }
        }
        set_file(&mut cluster, "certificate-authority", flags.certificate_authority.as_deref())?;
        set_file(&mut user, "client-certificate", flags.client_certificate.as_deref())?;
        set_file(&mut user, "client-key", flags.client_key.as_deref())?;
        if let Some(token) = text(&globals.token) {
            OTHER_CREDENTIALS.iter().for_each(|field| drop(user.remove(*field)));
            user.insert("token".to_owned(), token.into());
        }
        if let Some(name) = text(&globals.username) {
            ["auth-provider", "exec", "token", "tokenFile"].iter().for_each(|field| drop(user.remove(*field)));
            user.insert("username".to_owned(), name.into());
            set(&mut user, "password", globals.password.clone());
        }
        if let Some(name) = text(&globals.as_user) {
            ["as-uid", "as-groups", "as-user-extra"].iter().for_each(|field| drop(user.remove(*field)));
            user.insert("as".to_owned(), name.into());
            user.insert("as-groups".to_owned(), globals.as_group.clone().into());
            set(&mut user, "as-uid", text(&globals.as_uid));
            user.insert("as-user-extra".to_owned(), json!(globals.user_extra()));
        }
        ServerConfig::from_entries(&cluster, &user, &self.folder).map_err(Failure::plain)
    }
}

/// Whether the value of `--server` is the address of a server, and no state.
fn is_address(server: &str) -> bool {
    matches!(Location::parse(server, Path::new("")), Location::Server(_) | Location::Unknown(_))
}

fn set(entry: &mut Map<String, Value>, field: &str, value: Option<String>) {
    if let Some(value) = value {
        entry.insert(field.to_owned(), value.into());
    }
}

/// Sets the path of a file, which a flag gives relative to the current folder.
fn set_file(entry: &mut Map<String, Value>, field: &str, path: Option<&Path>) -> CliResult {
    let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else { return Ok(()) };
    let path = std::path::absolute(path)?;
    let path = path.to_str().ok_or_else(|| Failure::plain(format!("--{field}: the path is not UTF-8")))?;
    entry.remove(&format!("{field}-data"));
    entry.insert(field.to_owned(), path.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::HeaderCredentials;

    fn entries(cluster: Value, user: Value) -> ServerEntries {
        let map = |value: Value| value.as_object().cloned().unwrap();
        ServerEntries { cluster: map(cluster), user: map(user), folder: PathBuf::from("/nowhere") }
    }

    #[test]
    fn flags_win_over_entries() {
        let entries = entries(
            json!({"server": "https://a", "certificate-authority-data": "YQ=="}),
            json!({"exec": {}, "as": "x"}),
        );
        let mut globals = Globals { server: Some("https://b:1".into()), ..Globals::default() };
        globals.token = Some("t".into());
        globals.connection.insecure_skip_tls_verify = Some(true);
        globals.as_user = Some("ann".into());
        let config = entries.config(&globals).unwrap();
        assert_eq!((config.address.to_string().as_str(), config.is_verified), ("https://b:1", false));
        assert!(matches!(config.credentials.header, HeaderCredentials::Token(token) if token == "t"));
        assert_eq!(config.impersonation.user, "ann");
        let globals = Globals { connection: Default::default(), ..Globals::default() };
        assert!(entries.config(&globals).is_err_and(|failure| failure.to_string().contains("exec")));
    }

    #[test]
    fn missing_files_are_named() {
        let mut globals = Globals::default();
        globals.connection.certificate_authority = Some("/nowhere/ca.crt".into());
        let error = entries(json!({"server": "https://a"}), json!({})).config(&globals).err().unwrap().to_string();
        assert!(error.contains("certificate-authority") && error.contains("/nowhere/ca.crt"), "{error}");
    }
}
