//! The kubeconfig with the server's address and the clients' token.

use crate::object::io_error_text;
use crate::runtime::folder;
use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The first line, and its beginning, which identifies a file of kloop.
const FIRST_LINE: &str = "# Written by `kloop serve`; the token is the administrator's.\n";
const MARK: &str = "# Written by `kloop serve`;";
/// Maximum number of bytes that are read to identify a file.
const MAX_BYTES: u64 = 1 << 20;

/// The name of the cluster, the context and the user in it.
pub const NAME: &str = "kloop";

/// Access data for clients.
pub struct ServerAccess<'a> {
    /// The server's address.
    pub address: SocketAddr,
    /// Its authority's certificate, PEM; `None` for plain HTTP.
    pub authority: Option<&'a str>,
    /// The token; `None` when none is required.
    pub token: Option<&'a str>,
    /// The default namespace of clients.
    pub namespace: &'a str,
}

/// Whether a text is that of [`write`](fn@write). `kubectl config` rewrites the file without its first line; then
/// its only cluster and user are recognized by their names.
fn is_text_of_ours(text: &str) -> bool {
    let names_only_ours = |config: &Value| {
        ["clusters", "users"].iter().all(|list| {
            let entries = config[list].as_array().map(Vec::as_slice).unwrap_or_default();
            entries.len() == 1 && entries[0]["name"] == NAME
        })
    };
    text.starts_with(MARK) || serde_yaml::from_str(text).is_ok_and(|config| names_only_ours(&config))
}

/// Access data for a client with a certificate.
pub struct CertifiedAccess<'a> {
    /// The server's address, with its scheme.
    pub server: &'a str,
    /// Its authority's certificate, PEM.
    pub authority: &'a str,
    /// The name of the user.
    pub user: &'a str,
    /// The user's certificate, PEM.
    pub certificate: &'a str,
    /// The user's private key, PEM.
    pub key: &'a str,
    /// The default namespace.
    pub namespace: &'a str,
}

/// Returns the address in a file that [`write`](fn@write) wrote.
pub fn find_server(path: &Path) -> Option<String> {
    let start = File::open(path).and_then(|file| std::io::read_to_string(file.take(MAX_BYTES)));
    let text = start.ok().filter(|text| is_text_of_ours(text))?;
    let config: Value = serde_yaml::from_str(&text).ok()?;
    Some(config.pointer("/clusters/0/cluster/server")?.as_str()?.to_owned())
}

/// Returns the kubeconfig of a client with a certificate.
pub fn text_of_certified(access: &CertifiedAccess<'_>) -> anyhow::Result<String> {
    let cluster = json!({"server": access.server, "certificate-authority-data": STANDARD.encode(access.authority)});
    let user = json!({
        "client-certificate-data": STANDARD.encode(access.certificate), "client-key-data": STANDARD.encode(access.key),
    });
    Ok(serde_yaml::to_string(&config(&cluster, access.user, &user, access.namespace))?)
}

fn config(cluster: &Value, user_name: &str, user: &Value, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "namespace": namespace, "user": user_name}}],
        "current-context": NAME,
        "users": [{"name": user_name, "user": user}],
    })
}

/// Writes the file, readable by its owner only. Replaces the file of a server that has ended, and refuses any other. The file belongs to
/// this server while the returned handle is open.
pub fn write(path: &Path, access: &ServerAccess<'_>) -> anyhow::Result<File> {
    let old = File::open(path).and_then(|file| Ok((fs::read_to_string(path)?, file)));
    let stays = match &old {
        Ok((text, _)) if !is_text_of_ours(text) => "was not written by kloop serve, and is left as it is",
        Ok((_, file)) if file.try_lock().is_err() => "is that of another kloop serve, which still runs",
        Err(error) if error.kind() != ErrorKind::NotFound => {
            bail!("cannot read {}: {error}", path.display(), error = io_error_text(error));
        }
        _ => "",
    };
    if !stays.is_empty() {
        bail!("{} {stays}: name another file with --kubeconfig", path.display());
    }
    let new = path.with_added_extension("new");
    let written = write_new(&new, access).and_then(|file| fs::rename(&new, path).map(|()| file));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn write_new(path: &Path, access: &ServerAccess<'_>) -> std::io::Result<File> {
    // Removes the file of a server that was killed.
    folder::remove_if_exists(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.try_lock()?;
    file.write_all(format!("{FIRST_LINE}{}", text(access)?).as_bytes())?;
    Ok(file)
}

fn text(access: &ServerAccess<'_>) -> std::io::Result<String> {
    let scheme = if access.authority.is_some() { "https" } else { "http" };
    let mut address = access.address;
    if address.ip().is_unspecified() {
        // A server that listens on every address is reachable at localhost.
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let mut cluster = json!({"server": format!("{scheme}://{address}")});
    if let Some(authority) = access.authority {
        cluster["certificate-authority-data"] = STANDARD.encode(authority).into();
    }
    let user = access.token.map_or(json!({}), |token| json!({"token": token}));
    let config = config(&cluster, NAME, &user, access.namespace);
    serde_yaml::to_string(&config).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_file_of_kloop_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let address = "127.0.0.1:8001".parse().unwrap();
        for token in ["one", "two"] {
            let access = ServerAccess { address, authority: Some("PEM"), token: Some(token), namespace: "default" };
            let held = write(&path, &access).unwrap();
            let refused = write(&path, &access).unwrap_err().to_string();
            assert!(refused.contains("which still runs"), "{refused}");
            drop(held);
            let text = fs::read_to_string(&path).unwrap();
            assert!(
                text.contains(&format!("token: {token}")) && text.contains("server: https://127.0.0.1:8001"),
                "{text}"
            );
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // `kubectl config set-context --current` drops comments.
        let text = fs::read_to_string(&path).unwrap().replace(FIRST_LINE, "").replace("default", "other");
        fs::write(&path, &text).unwrap();
        assert_eq!(find_server(&path).as_deref(), Some("https://127.0.0.1:8001"));
        let access = ServerAccess { address, authority: None, token: Some("three"), namespace: "default" };
        drop(write(&path, &access).unwrap());
        fs::write(&path, text.replacen("- cluster:", "- name: mine\n- cluster:", 1)).unwrap();
        assert!(find_server(&path).is_none() && write(&path, &access).is_err(), "another cluster was added to it");
        fs::write(&path, "clusters: []\n").unwrap();
        let access = ServerAccess { address, authority: None, token: None, namespace: "default" };
        assert!(write(&path, &access).unwrap_err().to_string().contains("not written by kloop serve"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "clusters: []\n");
    }
}
