//! Global flags: kloop's own, and those of kubectl that name a cluster, which is a state file or a server.

use crate::object::time;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Flags that every verb takes.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Globals {
    /// If present, the namespace scope for this CLI request.
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The length of time to wait before giving up on a single server request. Non-zero values should contain a corresponding time
    /// unit (e.g. 1s, 2m, 3h). A value of zero means don't timeout requests.
    #[arg(long, global = true, value_name = "DURATION", default_value = "0")]
    pub request_timeout: String,
    /// The cluster's file, whose folder contains the cluster's other files, or an address like etcd://host1,host2,host3/prefix
    /// [default: $KLOOP_STATE, else the state of the current context, else $XDG_STATE_HOME/kloop/default/state.db].
    #[arg(long, global = true, value_name = "PATH")]
    pub state: Option<PathBuf>,
    /// Number for the log level verbosity. From 6 on, commands log their requests to a server: 7 adds headers, 8 bodies.
    #[arg(short, long, global = true, value_name = "LEVEL")]
    pub(in crate::cli) v: Option<String>,
    /// The name of the kubeconfig context to use, instead of the current one ("config get-contexts" lists them).
    #[arg(long, global = true, value_name = "NAME")]
    pub(in crate::cli) context: Option<String>,
    /// The name of the kubeconfig cluster to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub(in crate::cli) cluster: Option<String>,
    /// The name of the kubeconfig user to use. Without entries for users there is only "admin".
    #[arg(long, global = true, value_name = "NAME")]
    pub(in crate::cli) user: Option<String>,
    /// Path to the file of contexts to use for CLI requests [default: $KLOOP_CONFIG, else ~/.config/kloop/config].
    #[arg(long, global = true, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(in crate::cli) kubeconfig: Option<PathBuf>,
    /// The address and port of the Kubernetes API server, or the path of the cluster's file, as --state.
    #[arg(short, long, global = true, value_name = "URL")]
    pub(in crate::cli) server: Option<String>,
    /// Bearer token for authentication to the API server. A cluster that is a file takes none.
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(in crate::cli) token: Option<String>,
    /// Username to impersonate for the operation. User could be a regular user or a service account in a namespace.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(in crate::cli) as_user: Option<String>,
    /// Group to impersonate for the operation, this flag can be repeated to specify multiple groups.
    #[arg(long, global = true, value_name = "GROUP")]
    pub(in crate::cli) as_group: Vec<String>,
    /// UID to impersonate for the operation.
    #[arg(long, global = true, value_name = "UID")]
    pub(in crate::cli) as_uid: Option<String>,
    /// User extras to impersonate for the operation, this flag can be repeated to specify multiple values for the same key.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = check_user_extra)]
    pub(in crate::cli) as_user_extra: Vec<String>,
    /// Username for basic authentication to the API server. A cluster that is a file takes none.
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub(in crate::cli) username: Option<String>,
    /// Password for basic authentication to the API server.
    #[arg(long, global = true, value_name = "PASSWORD", hide = true)]
    pub(in crate::cli) password: Option<String>,
    /// Path to the kuberc file to use for preferences. KUBERC=off or KUBECTL_KUBERC=false turns them off.
    #[arg(long, global = true, value_name = "FILE")]
    pub(in crate::cli) kuberc: Option<PathBuf>,
    /// Treat warnings received from the server as errors and exit with a non-zero exit code.
    #[arg(long, global = true)]
    pub(in crate::cli) warnings_as_errors: bool,
    #[command(flatten)]
    pub(in crate::cli) connection: ConnectionFlags,
    #[command(flatten)]
    pub(in crate::cli) debugging: DebuggingFlags,
}

impl Globals {
    /// The token with which this machine joins a cluster.
    pub fn join_token(&self) -> Option<String> {
        self.token.clone().filter(|token| !token.is_empty())
    }

    /// The file of `--kuberc`.
    pub fn kuberc(&self) -> Option<&Path> {
        self.kuberc.as_deref()
    }

    /// Returns the values of each key of `--as-user-extra`.
    pub fn user_extra(&self) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in self.as_user_extra.iter().filter_map(|word| word.split_once('=')) {
            extra.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        extra
    }

    /// Returns the flags that choose the server and the user, for another command with the same.
    pub fn server_arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let mut add = |flag: &str, value: Option<&OsStr>| {
            if let Some(value) = value {
                arguments.extend([OsString::from(flag), value.to_owned()]);
            }
        };
        let texts = [
            ("--context", &self.context),
            ("--cluster", &self.cluster),
            ("--user", &self.user),
            ("--server", &self.server),
            ("--token", &self.token),
            ("--username", &self.username),
            ("--password", &self.password),
            ("--as", &self.as_user),
            ("--as-uid", &self.as_uid),
            ("--tls-server-name", &self.connection.tls_server_name),
        ];
        texts.iter().for_each(|(flag, value)| add(flag, value.as_deref().map(OsStr::new)));
        let files = [
            ("--kubeconfig", &self.kubeconfig),
            ("--certificate-authority", &self.connection.certificate_authority),
            ("--client-certificate", &self.connection.client_certificate),
            ("--client-key", &self.connection.client_key),
        ];
        files.iter().for_each(|(flag, value)| add(flag, value.as_deref().map(Path::as_os_str)));
        self.as_group.iter().for_each(|group| add("--as-group", Some(OsStr::new(group))));
        self.as_user_extra.iter().for_each(|extra| add("--as-user-extra", Some(OsStr::new(extra))));
        if let Some(skips) = self.connection.insecure_skip_tls_verify {
            arguments.push(format!("--insecure-skip-tls-verify={skips}").into());
        }
        arguments
    }

    /// The file with the authority of a server.
    pub fn authority_file(&self) -> Option<PathBuf> {
        self.connection.certificate_authority.clone()
    }
}

/// Flags about the connection to a server. They have no effect where the cluster is a file.
#[derive(clap::Args, Clone, Debug, Default)]
pub(in crate::cli) struct ConnectionFlags {
    /// Default cache directory of a kubectl command. Ignored: nothing is cached.
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Path to a cert file for the certificate authority.
    #[arg(long, global = true, value_name = "FILE")]
    pub(in crate::cli) certificate_authority: Option<PathBuf>,
    /// Path to a client certificate file for TLS.
    #[arg(long, global = true, value_name = "FILE")]
    pub(in crate::cli) client_certificate: Option<PathBuf>,
    /// Path to a client key file for TLS.
    #[arg(long, global = true, value_name = "FILE")]
    pub(in crate::cli) client_key: Option<PathBuf>,
    /// If true, opt-out of response compression for all requests to the server. Ignored: no response is compressed.
    #[arg(long, global = true)]
    disable_compression: bool,
    /// If true, the server's certificate will not be checked for validity. This will make your HTTPS connections insecure.
    #[arg(long, global = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub(in crate::cli) insecure_skip_tls_verify: Option<bool>,
    /// Require server version to match client version. They always match.
    #[arg(long, global = true)]
    match_server_version: bool,
    /// Server name to use for server certificate validation. If it is not provided, the hostname used to contact the server is used.
    #[arg(long, global = true, value_name = "NAME")]
    pub(in crate::cli) tls_server_name: Option<String>,
}

/// Flags of kubectl about the files of its log and its profile. They are checked and have no effect: commands write neither.
#[derive(clap::Args, Clone, Debug, Default)]
pub(in crate::cli) struct DebuggingFlags {
    /// Maximum number of seconds between log flushes. Ignored: the log is not buffered.
    #[arg(long, global = true, value_name = "DURATION", value_parser = check_duration)]
    log_flush_frequency: Option<String>,
    /// Name of profile to capture. One of (none|cpu|heap|goroutine|threadcreate|block|mutex). Ignored: nothing is captured.
    #[arg(long, global = true, value_name = "NAME")]
    pub(in crate::cli) profile: Option<String>,
    /// Name of the file to write the profile to. Ignored: nothing is captured.
    #[arg(long, global = true, value_name = "FILE")]
    profile_output: Option<String>,
    /// Comma-separated list of pattern=N settings for file-filtered logging. Ignored: --v alone counts.
    #[arg(long, global = true, value_name = "PATTERN=N", value_parser = check_patterns)]
    vmodule: Option<String>,
}

impl DebuggingFlags {
    /// Refuses a profile that kubectl does not have.
    pub(in crate::cli) fn check(&self) -> Result<(), String> {
        let known = ["none", "cpu", "heap", "goroutine", "threadcreate", "block", "mutex"];
        match self.profile.as_deref().filter(|name| !known.contains(name)) {
            Some(unknown) => Err(format!("unknown profile '{unknown}'")),
            None => Ok(()),
        }
    }
}

fn check_duration(text: &str) -> Result<String, String> {
    time::parse_duration(text).map(|_| text.to_owned()).map_err(|_| "parse error".to_owned())
}

fn check_user_extra(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("must be KEY=VALUE, but is {text:?}")),
    }
}

fn check_patterns(text: &str) -> Result<String, String> {
    let is_setting = |part: &str| {
        let setting = part.split_once('=').filter(|(pattern, _)| !pattern.is_empty());
        part.is_empty() || setting.is_some_and(|(_, level)| level.parse::<i32>().is_ok())
    };
    match text.split(',').all(is_setting) {
        true => Ok(text.to_owned()),
        false => Err("syntax error: expect comma-separated list of filename=N".to_owned()),
    }
}

/// Whether the value of `-v` turns `--verbose` on: any level but zero.
pub fn is_verbose(text: Option<&str>) -> bool {
    text.is_some_and(|text| !matches!(text, "0" | "false"))
}
