//! The cluster of the pod in which a command runs: kubectl uses it when nothing else names a cluster (client-go: `rest.InClusterConfig`).
//!
//! Only pods of kloop count: a pipeline that runs in a pod of another Kubernetes, with a service account there, means its own state.
//! Never: connects, nor reads the token; the client does, each time. Start reading at [`find_pod_cluster`].

use super::ServerEntries;
use crate::runtime::folder::TERMINATION_LOG;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The folder that the admission of service accounts mounts into each container.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Maximum number of bytes of the file with the namespace's name.
const MAX_NAMESPACE_BYTES: u64 = 253;

/// The API server of the pod's cluster.
pub struct PodCluster {
    /// Its address and the pod's credentials.
    pub server: ServerEntries,
    /// The pod's namespace.
    pub namespace: Option<String>,
}

/// Returns the cluster of the pod in which this process runs; `None` outside of kloop's pods.
pub fn find_pod_cluster() -> Option<PodCluster> {
    std::env::var_os(TERMINATION_LOG)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    read_service_account(Path::new(FOLDER), &host, &port)
}

fn read_service_account(folder: &Path, host: &str, port: &str) -> Option<PodCluster> {
    let (token, certificates) = (folder.join("token"), folder.join("ca.crt"));
    if !token.is_file() {
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let entry = |fields: Value| fields.as_object().cloned().unwrap_or_else(Map::new);
    let mut cluster = entry(json!({"server": format!("https://{host}:{port}")}));
    if certificates.is_file() {
        cluster.insert("certificate-authority".to_owned(), certificates.to_string_lossy().into());
    }
    let user = entry(json!({"tokenFile": token.to_string_lossy()}));
    let server = ServerEntries { cluster, user, folder: folder.to_owned() };
    Some(PodCluster { server, namespace: namespace(&folder.join("namespace")) })
}

fn namespace(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file).ok()?.take(MAX_NAMESPACE_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn pods_with_a_token_find_their_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(read_service_account(folder.path(), "10.0.0.1", "443").is_none(), "no token is mounted");
        fs::write(at("token"), "t").unwrap();
        let found = read_service_account(folder.path(), "10.0.0.1", "443").unwrap();
        assert_eq!(found.server.cluster, *json!({"server": "https://10.0.0.1:443"}).as_object().unwrap());
        assert_eq!(found.namespace, None);
        fs::write(at("ca.crt"), "c").unwrap();
        fs::write(at("namespace"), "team\n").unwrap();
        let found = read_service_account(folder.path(), "::1", "6443").unwrap();
        let certificates = at("ca.crt").to_string_lossy().into_owned();
        let expected = json!({"server": "https://[::1]:6443", "certificate-authority": certificates});
        assert_eq!(found.server.cluster, *expected.as_object().unwrap());
        assert_eq!(found.server.user, *json!({"tokenFile": at("token").to_string_lossy()}).as_object().unwrap());
        assert_eq!(found.namespace.as_deref(), Some("team"));
    }
}
