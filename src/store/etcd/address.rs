//! The address of a state on etcd: `etcd://HOST[:PORT],.../PREFIX`, with the files of TLS and of a password.
//!
//! Knows: its parts, the variables of etcdctl that stand for missing ones, and the folder of its replica. Never: connects; reads files of
//! keys only for [`EtcdAddress::read_password`]. Start reading at [`EtcdAddress::parse`].

use crate::object::{format_hex, host_port, io_error_text};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The scheme of an address of a state on etcd.
const SCHEME: &str = "etcd://";

/// The port of etcd's clients.
const PORT: u16 = 2379;

/// Maximum number of members, and of bytes of an address.
const MAX_MEMBERS: usize = 16;
const MAX_ADDRESS_BYTES: usize = 1024;

/// The address of a state on etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdAddress {
    /// The members: host and port.
    pub members: Vec<(String, u16)>,
    /// The prefix of its keys, which begins with a slash and does not end with one.
    pub prefix: String,
    /// The certificate of the authority of the members, in PEM; `None` for connections without TLS.
    pub cacert: Option<PathBuf>,
    /// The certificate and the key of this client, in PEM.
    pub client_key: Option<(PathBuf, PathBuf)>,
    /// The user.
    pub user: Option<String>,
    /// The file with the password of the user; `None` for `$ETCDCTL_PASSWORD`.
    pub password_file: Option<PathBuf>,
}

/// Whether a state is one on etcd, by its scheme.
pub fn is_etcd(state: &str) -> bool {
    state.starts_with(SCHEME)
}

impl EtcdAddress {
    /// Parses an address. Missing parts come from `variable`, which returns etcdctl's variables (`ETCDCTL_CACERT`, ...). The error says
    /// how to correct the address.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<EtcdAddress, String> {
        let wrong = |what: String| format!("the state {text:?} is not an etcd address: {what}");
        if text.len() > MAX_ADDRESS_BYTES || text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
            return Err(wrong(format!("it may have {MAX_ADDRESS_BYTES} bytes, without spaces")));
        }
        let form = || "write etcd://HOST[:PORT],HOST[:PORT]/PREFIX".to_owned();
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong(form()))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = hosts.rsplit_once('@').map_or((None, hosts), |(user, hosts)| (Some(user), hosts));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(
                "a password in the address of a state is shown to every user of this machine: write it into a file, \
                 and name that with ?password-file=FILE, or set ETCDCTL_PASSWORD"
                    .to_owned(),
            );
        }
        let mut address = EtcdAddress { user: user.map(str::to_owned), ..EtcdAddress::default() };
        for host in hosts.split(',') {
            address.members.push(parse_member(host).ok_or_else(|| wrong(form()))?);
        }
        if address.members.len() > MAX_MEMBERS {
            return Err(wrong(format!("it names more than {MAX_MEMBERS} members")));
        }
        address.prefix = format!("/{}", prefix.trim_matches('/'));
        if address.prefix == "/" {
            return Err(wrong(format!("the prefix is missing: name one that no other program uses: {}", form())));
        }
        address.read_query(query).map_err(wrong)?;
        address.fill_in(variable).map_err(wrong)?;
        Ok(address)
    }

    fn read_query(&mut self, query: &str) -> Result<(), String> {
        let (mut cert, mut key) = (None, None);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let target = match name {
                "cacert" => &mut self.cacert,
                "cert" => &mut cert,
                "key" => &mut key,
                "password-file" => &mut self.password_file,
                _ => return Err(format!("{name:?} is not one of cacert, cert, key and password-file")),
            };
            if value.is_empty() {
                return Err(format!("{name} names no file"));
            }
            *target = Some(absolute(value));
        }
        self.client_key = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("cert and key belong together".to_owned()),
        };
        Ok(())
    }

    /// Takes the parts that the address lacks out of etcdctl's variables.
    fn fill_in(&mut self, variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
        let variable = |name: &str| variable(name).filter(|text| !text.is_empty());
        if self.cacert.is_none() {
            self.cacert = variable("ETCDCTL_CACERT").map(|path| absolute(&path));
        }
        if self.client_key.is_none() {
            let files = variable("ETCDCTL_CERT").zip(variable("ETCDCTL_KEY"));
            self.client_key = files.map(|(cert, key)| (absolute(&cert), absolute(&key)));
        }
        if self.user.is_none() {
            self.user = variable("ETCDCTL_USER").map(|text| text.split(':').next().unwrap_or_default().to_owned());
        }
        if self.client_key.is_some() && self.cacert.is_none() {
            return Err(
                "a certificate of the client needs TLS: name the authority's certificate with cacert=FILE".to_owned()
            );
        }
        Ok(())
    }

    /// Returns the canonical text, which [`EtcdAddress::parse`] reads again without any variable.
    pub fn to_text(&self) -> String {
        let members: Vec<String> = self.members.iter().map(|(host, port)| host_port(host, *port)).collect();
        let user = self.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        let mut text = format!("{SCHEME}{user}{}{}", members.join(","), self.prefix);
        let (cert, key) = self.client_key.as_ref().map_or((None, None), |(cert, key)| (Some(cert), Some(key)));
        let files = [("cacert", self.cacert.as_ref()), ("cert", cert), ("key", key)];
        let files = files.into_iter().chain([("password-file", self.password_file.as_ref())]);
        let mut separator = '?';
        for (name, file) in files.filter_map(|(name, file)| Some((name, file?))) {
            // Writing to a text does not fail.
            let _ = write!(text, "{separator}{name}={}", file.display());
            separator = '&';
        }
        text
    }

    /// Returns the name of the folder of its replica: readable, and another one for other members or another prefix.
    pub fn folder_name(&self) -> String {
        let mut members: Vec<String> = self.members.iter().map(|(host, port)| host_port(host, *port)).collect();
        members.sort();
        let digest = ring::digest::digest(&ring::digest::SHA256, format!("{members:?}{}", self.prefix).as_bytes());
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let name: String = self.prefix.trim_matches('/').chars().take(40).map(plain).collect();
        format!("{name}-{}", format_hex(&digest.as_ref()[..6]))
    }

    /// Reads the password of the user, from its file or from `variable`.
    pub fn read_password(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
        if self.user.is_none() {
            return Ok(None);
        }
        if let Some(file) = &self.password_file {
            return match std::fs::read_to_string(file) {
                Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned())),
                Err(error) => {
                    Err(format!("cannot read the password file {}: {}", file.display(), io_error_text(error)))
                }
            };
        }
        let in_user = || variable("ETCDCTL_USER")?.split_once(':').map(|(_, password)| password.to_owned());
        Ok(variable("ETCDCTL_PASSWORD").or_else(in_user))
    }
}

fn parse_member(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_:".contains(letter);
    if host.is_empty() || !host.chars().all(is_plain) {
        return None;
    }
    let port = port.map_or(Some(PORT), |port| port.parse().ok().filter(|port| *port != 0))?;
    Some((host.to_owned(), port))
}

fn absolute(path: &str) -> PathBuf {
    std::path::absolute(Path::new(path)).unwrap_or_else(|_| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<EtcdAddress, String> {
        EtcdAddress::parse(text, |_| None)
    }

    #[test]
    fn address_is_read_and_written() {
        let text =
            "etcd://shop@a,b:7,[::1]/clusters/shop?cacert=/c/ca.pem&cert=/c/a.pem&key=/c/a.key&password-file=/c/pw";
        let address = parse(text).unwrap();
        assert_eq!(address.members, [("a".into(), 2379), ("b".into(), 7), ("::1".into(), 2379)]);
        assert_eq!((address.prefix.as_str(), address.user.as_deref()), ("/clusters/shop", Some("shop")));
        assert_eq!(address.cacert, Some("/c/ca.pem".into()));
        assert_eq!(parse(&address.to_text()), Ok(address.clone()));
        assert!(address.folder_name().starts_with("clusters-shop-"), "{}", address.folder_name());
        assert_eq!(parse("etcd://b,a/x").unwrap().folder_name(), parse("etcd://a:2379,b/x/").unwrap().folder_name());
        assert_ne!(parse("etcd://a/x-y").unwrap().folder_name(), parse("etcd://a/x/y").unwrap().folder_name());
    }

    #[test]
    fn missing_parts_come_from_the_variables_of_etcdctl() {
        let variable = |name: &str| {
            let value = match name {
                "ETCDCTL_CACERT" => "/e/ca",
                "ETCDCTL_CERT" => "/e/cert",
                "ETCDCTL_KEY" => "/e/key",
                "ETCDCTL_USER" => "joe:secret",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let address = EtcdAddress::parse("etcd://a/x?cacert=/own", variable).unwrap();
        assert_eq!(address.cacert, Some("/own".into()));
        assert_eq!(address.client_key, Some(("/e/cert".into(), "/e/key".into())));
        assert_eq!(address.user.as_deref(), Some("joe"));
        assert_eq!(address.read_password(variable), Ok(Some("secret".into())));
        assert!(!address.to_text().contains("secret"));
    }

    #[test]
    fn bad_addresses_are_refused_with_a_remedy() {
        for (text, expected) in [
            ("etcd://", "write etcd://HOST"),
            ("etcd://a", "the prefix is missing"),
            ("etcd://a/", "the prefix is missing"),
            ("etcd://a:x/p", "write etcd://HOST"),
            ("etcd://a,,b/p", "write etcd://HOST"),
            ("etcd://a b/p", "without spaces"),
            ("etcd://joe:pw@a/p", "shown to every user"),
            ("etcd://a/p?ca=x", "\"ca\" is not one of cacert"),
            ("etcd://a/p?cacert=", "cacert names no file"),
            ("etcd://a/p?cacert=/a&cert=/x", "cert and key belong together"),
            ("etcd://a/p?cert=/x&key=/y", "needs TLS"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
