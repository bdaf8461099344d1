//! The identity of a client: a token, a file with one, a user name with a password, a certificate, or a plugin that makes these.
//!
//! Knows: a token file is read again after a minute, and the credentials of a plugin are used until they expire.
//! Never: prints or logs credentials. Start reading at [`HeldCredentials::present`].

use super::error::{ClientError, ClientResult};
use super::exec_plugin::{ExecPlugin, PluginCredentials, PluginPolicy};
use super::tls_files::read_bounded;
use crate::object::{IgnorePoison, Time};
use crate::runtime::https::trust::TlsClientKey;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::HeaderValue;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time after which a token file is read again.
const REREAD_INTERVAL: Duration = Duration::from_secs(60);
/// Credentials of a plugin are renewed this many seconds before they expire.
const EXPIRY_MARGIN_SECONDS: i64 = 10;

/// The credentials of a user.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The certificate; empty for a client without one.
    pub key: TlsClientKey,
    /// The header that each request has.
    pub header: HeaderCredentials,
}

/// The source of the header `Authorization`.
#[derive(Clone, Default)]
pub enum HeaderCredentials {
    /// Requests have none.
    #[default]
    None,
    /// A bearer token.
    Token(String),
    /// A file with a bearer token.
    TokenFile(PathBuf),
    /// A user name with a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A program that makes credentials.
    Plugin(Arc<ExecPlugin>),
}

/// Another user, as whom the requests are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonatedUser {
    /// The user; empty for none.
    pub user: String,
    /// The uid; may be empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Other facts, each a name and a value.
    pub extra: Vec<(String, String)>,
}

impl ImpersonatedUser {
    /// The headers of each request.
    pub fn headers(&self) -> Vec<(String, &str)> {
        let mut headers = Vec::new();
        for (name, value) in [("Impersonate-User", &self.user), ("Impersonate-Uid", &self.uid)] {
            if !value.is_empty() {
                headers.push((name.to_owned(), value.as_str()));
            }
        }
        headers.extend(self.groups.iter().map(|group| ("Impersonate-Group".to_owned(), group.as_str())));
        let escape =
            |name: &str| percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string();
        headers.extend(
            self.extra.iter().map(|(name, value)| (format!("Impersonate-Extra-{}", escape(name)), value.as_str())),
        );
        headers
    }
}

/// The credentials of one request.
#[derive(Clone, Default)]
pub struct PresentedCredentials {
    /// The header `Authorization`.
    pub authorization: Option<HeaderValue>,
    /// The certificate for the connection.
    pub key: TlsClientKey,
}

/// Credentials, and the ones that were made or read last.
pub struct HeldCredentials {
    credentials: Credentials,
    /// The server's entry, for plugins.
    cluster: Value,
    last: Mutex<Option<LastCredentials>>,
    /// Held while a plugin runs, so that many requests at once run it once.
    making: tokio::sync::Mutex<()>,
}

struct LastCredentials {
    presented: PresentedCredentials,
    until: Expiry,
}

/// The end of credentials.
enum Expiry {
    Never,
    Moment(Instant),
    Time(Time),
}

impl Expiry {
    fn is_over(&self) -> bool {
        match self {
            Expiry::Never => false,
            Expiry::Moment(moment) => Instant::now() >= *moment,
            Expiry::Time(time) => Time::now().as_second() + EXPIRY_MARGIN_SECONDS >= time.as_second(),
        }
    }
}

impl HeldCredentials {
    /// Reads and runs nothing yet.
    pub fn new(credentials: Credentials, cluster: Value) -> HeldCredentials {
        HeldCredentials { credentials, cluster, last: Mutex::default(), making: tokio::sync::Mutex::default() }
    }

    /// Returns the credentials for the next request.
    pub async fn present(&self) -> ClientResult<PresentedCredentials> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let _making = self.making.lock().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let (credentials, cluster) = (self.credentials.clone(), self.cluster.clone());
        let made = tokio::task::spawn_blocking(move || credentials.make(&cluster)).await;
        let last = made.map_err(|error| ClientError::Local(error.to_string()))?.map_err(ClientError::Config)?;
        let presented = last.presented.clone();
        *self.lock() = Some(last);
        Ok(presented)
    }

    /// Drops cached credentials. Returns whether the next request may get other ones.
    pub fn forget(&self) -> bool {
        let is_made = matches!(self.credentials.header, HeaderCredentials::TokenFile(_) | HeaderCredentials::Plugin(_));
        is_made && self.lock().take().is_some()
    }

    fn known(&self) -> Option<PresentedCredentials> {
        let last = self.lock();
        last.as_ref().filter(|last| !last.until.is_over()).map(|last| last.presented.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<LastCredentials>> {
        self.last.lock().ignore_poison()
    }
}

impl Credentials {
    /// Lets a plugin run only if the policy allows it, and not read standard input where that is a manifest.
    pub fn restrict_plugin(&mut self, policy: &PluginPolicy, is_input_taken: bool) {
        if let HeaderCredentials::Plugin(plugin) = &mut self.header {
            Arc::make_mut(plugin).restrict(policy.clone(), is_input_taken);
        }
    }

    /// Reads the file or runs the plugin.
    fn make(&self, cluster: &Value) -> Result<LastCredentials, String> {
        let (text, until) = match &self.header {
            HeaderCredentials::None => (None, Expiry::Never),
            HeaderCredentials::Token(token) => (Some(format!("Bearer {token}")), Expiry::Never),
            HeaderCredentials::TokenFile(path) => {
                let token = read_bounded(path)?;
                (Some(format!("Bearer {}", token.trim())), Expiry::Moment(Instant::now() + REREAD_INTERVAL))
            }
            HeaderCredentials::Basic { user, password } => {
                (Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))), Expiry::Never)
            }
            HeaderCredentials::Plugin(plugin) => {
                let PluginCredentials { token, key, expires } = plugin.run(cluster)?;
                let authorization = token.map(|token| header(&format!("Bearer {token}"))).transpose()?;
                let presented = PresentedCredentials { authorization, key: key.unwrap_or_else(|| self.key.clone()) };
                return Ok(LastCredentials { presented, until: expires.map_or(Expiry::Never, Expiry::Time) });
            }
        };
        let authorization = text.as_deref().map(header).transpose()?;
        Ok(LastCredentials { presented: PresentedCredentials { authorization, key: self.key.clone() }, until })
    }
}

fn header(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "the token has characters that a header cannot have, such as a line break".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_is_read_again_after_it_was_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        let header = HeaderCredentials::TokenFile(path.clone());
        let held = HeldCredentials::new(Credentials { header, ..Credentials::default() }, Value::Null);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let present = || runtime.block_on(held.present()).map(|presented| presented.authorization.unwrap());
        assert_eq!(present().unwrap(), "Bearer one");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(present().unwrap(), "Bearer one", "it is kept for a minute");
        assert!(held.forget());
        assert_eq!(present().unwrap(), "Bearer two");
        std::fs::write(&path, "a\nb").unwrap();
        held.forget();
        assert!(present().unwrap_err().to_string().contains("a line break"));
        std::fs::remove_file(&path).unwrap();
        assert!(present().unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn impersonated_user_becomes_headers() {
        let impersonation = ImpersonatedUser {
            user: "ann".into(),
            groups: vec!["a".into(), "b".into()],
            extra: vec![("example.com/x".into(), "1".into())],
            ..ImpersonatedUser::default()
        };
        let headers: Vec<String> =
            impersonation.headers().iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "Impersonate-User: ann",
            "Impersonate-Group: a",
            "Impersonate-Group: b",
            "Impersonate-Extra-example%2Ecom%2Fx: 1",
        ];
        assert_eq!(headers, expected);
    }
}
