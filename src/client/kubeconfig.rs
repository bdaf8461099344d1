//! The configuration of a client: a server with the authorities that it is trusted by, and a user.
//!
//! Knows: the cluster and user entries of a kubeconfig. Never: reads a kubeconfig file, or chooses a context; the caller does.
//! Start reading at [`ServerConfig::from_entries`].

use super::address::ServerAddress;
use super::credentials::{Credentials, HeaderCredentials, ImpersonatedUser};
use super::exec_plugin::ExecPlugin;
use super::request_log::RequestLog;
use super::tls_files::read_bounded;
use crate::runtime::https::trust::{TlsClientKey, Trust};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// A server and the identity of its client.
#[derive(Clone)]
pub struct ServerConfig {
    /// The address.
    pub address: ServerAddress,
    /// Authorities in PEM format; `None` for those of the system.
    pub authorities: Option<Arc<[u8]>>,
    /// Whether the server's certificate is verified.
    pub is_verified: bool,
    /// The name that its certificate has to have; `None` for the host of the address.
    pub tls_name: Option<String>,
    /// The credentials of the user.
    pub credentials: Credentials,
    /// Another user, as whom the requests are made.
    pub impersonation: ImpersonatedUser,
    /// The log of the requests.
    pub log: RequestLog,
}

impl ServerConfig {
    /// A server without credentials, trusted by the system's authorities.
    pub fn new(server: &str) -> Result<ServerConfig, String> {
        Ok(ServerConfig {
            address: ServerAddress::parse(server, true)?,
            authorities: None,
            is_verified: true,
            tls_name: None,
            credentials: Credentials::default(),
            impersonation: ImpersonatedUser::default(),
            log: RequestLog::default(),
        })
    }

    /// Reads the entries of a kubeconfig. `folder`: that of the file, below which relative paths are.
    pub fn from_entries(
        cluster: &Map<String, Value>,
        user: &Map<String, Value>,
        folder: &Path,
    ) -> Result<ServerConfig, String> {
        let (cluster, user) = (Entry { fields: cluster, folder }, Entry { fields: user, folder });
        if cluster.text("proxy-url").is_some() {
            return Err("proxy-url is not supported: kloop connects to the server itself".to_owned());
        }
        let authorities = cluster.file_or_data("certificate-authority")?;
        let is_verified = cluster.fields.get("insecure-skip-tls-verify") != Some(&Value::Bool(true));
        if !is_verified && authorities.is_some() {
            return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
        }
        let server =
            cluster.text("server").ok_or("the cluster has no server: set one, such as https://10.0.0.1:6443")?;
        let is_tls = authorities.is_some() || !is_verified || user.has_certificate();
        Ok(ServerConfig {
            address: ServerAddress::parse(server, is_tls)?,
            authorities: authorities.map(|text| Arc::from(text.into_bytes())),
            is_verified,
            tls_name: cluster.text("tls-server-name").map(str::to_owned),
            credentials: user.credentials()?,
            impersonation: user.impersonation(),
            log: RequestLog::default(),
        })
    }

    /// The entry of the server, as credential plugins get it.
    pub(super) fn cluster_entry(&self) -> Value {
        let mut cluster = json!({"server": self.address.to_string()});
        if let Some(authorities) = &self.authorities {
            cluster["certificate-authority-data"] = BASE64_STANDARD.encode(authorities).into();
        }
        if !self.is_verified {
            cluster["insecure-skip-tls-verify"] = true.into();
        }
        if let Some(name) = &self.tls_name {
            cluster["tls-server-name"] = name.as_str().into();
        }
        cluster
    }

    /// Makes TLS connections with a certificate of the client.
    pub(super) fn connector(&self, key: &TlsClientKey, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
        let trust = match self.is_verified {
            true => Trust::new(self.authorities.as_deref())?,
            false => Trust::unverified(),
        };
        trust.connector_as(key.clone(), protocols)
    }
}

/// An entry of a kubeconfig.
struct Entry<'a> {
    fields: &'a Map<String, Value>,
    folder: &'a Path,
}

impl<'a> Entry<'a> {
    fn text(&self, field: &str) -> Option<&'a str> {
        self.fields.get(field)?.as_str().filter(|text| !text.is_empty())
    }

    fn has_certificate(&self) -> bool {
        ["client-certificate", "client-certificate-data"].iter().any(|field| self.text(field).is_some())
    }

    /// Returns the PEM of `FIELD-data`, else that of the file that `FIELD` names.
    fn file_or_data(&self, field: &str) -> Result<Option<String>, String> {
        let data = format!("{field}-data");
        if let Some(text) = self.text(&data) {
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| format!("{data} is not base64: {error}"))?;
            return String::from_utf8(bytes).map(Some).map_err(|_| format!("{data} is not PEM"));
        }
        let Some(path) = self.text(field) else { return Ok(None) };
        read_bounded(&self.folder.join(path)).map(Some).map_err(|why| format!("unable to read {field}: {why}"))
    }

    fn credentials(&self) -> Result<Credentials, String> {
        if self.fields.contains_key("auth-provider") {
            return Err("auth-provider was removed from Kubernetes: use a credential plugin (exec)".to_owned());
        }
        let key = match (self.file_or_data("client-certificate")?, self.file_or_data("client-key")?) {
            (Some(certificate), Some(key)) => TlsClientKey { certificate: certificate.into(), key: key.into() },
            (None, None) => TlsClientKey::default(),
            (Some(_), None) => return Err("client-certificate is set without client-key".to_owned()),
            (None, Some(_)) => return Err("client-key is set without client-certificate".to_owned()),
        };
        let basic = || {
            let user = self.text("username")?.to_owned();
            Some(HeaderCredentials::Basic { user, password: self.text("password").unwrap_or_default().to_owned() })
        };
        let header = match (self.text("tokenFile"), self.text("token"), self.fields.get("exec")) {
            (Some(path), _, _) => HeaderCredentials::TokenFile(self.folder.join(path)),
            (None, Some(token), _) => HeaderCredentials::Token(token.to_owned()),
            // As in client-go, a certificate wins over a plugin.
            (None, None, Some(exec)) if exec.is_object() && !self.has_certificate() => {
                HeaderCredentials::Plugin(Arc::new(ExecPlugin::read(exec, self.folder)?))
            }
            _ => basic().unwrap_or_default(),
        };
        Ok(Credentials { key, header })
    }

    fn impersonation(&self) -> ImpersonatedUser {
        let own = |field: &str| self.text(field).unwrap_or_default().to_owned();
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|item| Some(item.as_str()?.to_owned())).collect()
        };
        let extra = self.fields.get("as-user-extra").and_then(Value::as_object);
        let extra = extra.into_iter().flatten();
        ImpersonatedUser {
            user: own("as"),
            uid: own("as-uid"),
            groups: self.fields.get("as-groups").map(texts).unwrap_or_default(),
            extra: extra
                .flat_map(|(name, values)| texts(values).into_iter().map(|value| (name.clone(), value)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cluster: Value, user: Value) -> Result<ServerConfig, String> {
        let (Value::Object(cluster), Value::Object(user)) = (cluster, user) else { panic!("no maps") };
        ServerConfig::from_entries(&cluster, &user, Path::new("/nonexistent"))
    }

    #[test]
    fn entries_of_a_kubeconfig_are_read() {
        let cluster = json!({"server": "https://a:1/b", "tls-server-name": "c", "insecure-skip-tls-verify": true});
        let config = read(cluster, json!({"token": "t", "as": "ann", "as-groups": ["g"]})).unwrap();
        assert_eq!((config.address.to_string().as_str(), config.tls_name.as_deref()), ("https://a:1/b", Some("c")));
        assert!(!config.is_verified && config.impersonation.user == "ann" && config.impersonation.groups == ["g"]);
        assert!(matches!(config.credentials.header, HeaderCredentials::Token(token) if token == "t"));
        // kubectl takes a host without a scheme for plain HTTP, unless there is something of TLS.
        assert!(!read(json!({"server": "localhost:8080"}), json!({})).unwrap().address.is_tls);
    }

    #[test]
    fn wrong_entries_are_refused_with_their_field() {
        let server = json!({"server": "https://a"});
        let with = |field: &str, value: Value| {
            let mut cluster = server.clone();
            cluster[field] = value;
            cluster
        };
        for (cluster, user, problem) in [
            (json!({}), json!({}), "the cluster has no server"),
            (with("proxy-url", "http://p".into()), json!({}), "proxy-url is not supported"),
            (with("certificate-authority-data", "%".into()), json!({}), "certificate-authority-data is not base64"),
            (with("certificate-authority", "ca.crt".into()), json!({}), "cannot read /nonexistent/ca.crt"),
            (
                server.clone(),
                json!({"client-certificate-data": "YQ=="}),
                "client-certificate is set without client-key",
            ),
            (server.clone(), json!({"auth-provider": {}}), "auth-provider was removed"),
            (server.clone(), json!({"exec": {"command": "a"}}), "exec.apiVersion is"),
        ] {
            let error = read(cluster, user).err().unwrap();
            assert!(error.contains(problem), "{error}");
        }
    }
}
