//! Credential plugins: programs that print an `ExecCredential` (client-go: plugin/pkg/client/auth/exec).
//!
//! Knows: a plugin gets the terminal's input if there is a terminal, so that it can ask for a password, and has a time limit.
//! Never: stores a plugin's output on disk. Start reading at [`ExecPlugin::run`].

use crate::object::{Time, io_error_text};
use crate::runtime::https::trust::TlsClientKey;
use crate::runtime::image::programs;
use serde_json::{Map, Value, json};
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit of a plugin.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between checks whether a plugin that has closed its output has ended; most end at once.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of bytes that a plugin may print.
const MAX_BYTES: u64 = 1 << 20;
/// The versions of `ExecCredential`.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
/// The variable with the cluster's data for a plugin.
const INFO: &str = "KUBERNETES_EXEC_INFO";

/// A program that makes credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecPlugin {
    command: OsString,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    api_version: String,
    interaction: Interaction,
    gets_cluster: bool,
    hint: String,
    policy: PluginPolicy,
    is_input_taken: bool,
}

/// The plugins that may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PluginPolicy {
    /// All.
    #[default]
    AllowAll,
    /// None.
    DenyAll,
    /// Those with these names or paths.
    Allowlist(Vec<String>),
}

impl PluginPolicy {
    /// Refuses a program that may not run.
    fn check(&self, command: &OsStr) -> Result<(), String> {
        let name = Path::new(command).display().to_string();
        match self {
            PluginPolicy::AllowAll => Ok(()),
            PluginPolicy::DenyAll => Err(format!("plugin {name:?} not allowed: policy set to \"DenyAll\"")),
            PluginPolicy::Allowlist(allowed) => {
                let path = look_path(command);
                let is_this = |entry: &String| {
                    entry.as_str() == command || path.is_some() && look_path(OsStr::new(entry)) == path
                };
                let shown = path.as_ref().map_or(name, |path| path.display().to_string());
                let problem = || format!("plugin path {shown:?} is not permitted by the credential plugin allowlist");
                if allowed.iter().any(is_this) { Ok(()) } else { Err(problem()) }
            }
        }
    }
}

/// Finds a program as a shell does.
fn look_path(program: &OsStr) -> Option<PathBuf> {
    if program.to_string_lossy().contains('/') {
        return Some(PathBuf::from(program));
    }
    programs::find(program.to_str()?, std::env::var_os("PATH")?.to_str()?)
}

/// Whether a plugin reads from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interaction {
    Never,
    IfAvailable,
    Always,
}

/// Credentials that a plugin made.
pub struct PluginCredentials {
    /// A bearer token.
    pub token: Option<String>,
    /// A certificate.
    pub key: Option<TlsClientKey>,
    /// The end of both.
    pub expires: Option<Time>,
}

impl ExecPlugin {
    /// Reads the field `exec` of a user entry. `folder`: that of the kubeconfig, below which relative paths are.
    pub fn read(entry: &Value, folder: &Path) -> Result<ExecPlugin, String> {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let command = text("command");
        if command.is_empty() {
            return Err("exec.command is missing: name the program that prints the credentials".to_owned());
        }
        let api_version = text("apiVersion");
        if !VERSIONS.contains(&api_version.as_str()) {
            return Err(format!("exec.apiVersion is {api_version:?}: it has to be {} or {}", VERSIONS[0], VERSIONS[1]));
        }
        let interaction = match entry["interactiveMode"].as_str() {
            Some("Never") => Interaction::Never,
            Some("Always") => Interaction::Always,
            Some("IfAvailable") | None => Interaction::IfAvailable,
            Some(other) => {
                return Err(format!("exec.interactiveMode is {other:?}: it has to be Never, IfAvailable or Always"));
            }
        };
        let items = |field: &str| entry[field].as_array().cloned().unwrap_or_default();
        let pair = |item: &Value| Some((item["name"].as_str()?.to_owned(), item["value"].as_str()?.to_owned()));
        // A path with a slash is below the kubeconfig's folder; a name alone is looked for in $PATH.
        let command = match command.contains('/') {
            true => folder.join(&command).into_os_string(),
            false => command.into(),
        };
        Ok(ExecPlugin {
            command,
            arguments: items("args").iter().filter_map(|item| Some(item.as_str()?.to_owned())).collect(),
            variables: items("env").iter().filter_map(pair).collect(),
            api_version,
            interaction,
            gets_cluster: entry["provideClusterInfo"] == true,
            hint: text("installHint"),
            policy: PluginPolicy::AllowAll,
            is_input_taken: false,
        })
    }

    /// Lets the plugin run only if the policy allows it, and not read standard input where that is a manifest.
    pub fn restrict(&mut self, policy: PluginPolicy, is_input_taken: bool) {
        (self.policy, self.is_input_taken) = (policy, is_input_taken);
    }

    /// Runs the plugin. `cluster`: the server's entry, for plugins that ask for it.
    pub fn run(&self, cluster: &Value) -> Result<PluginCredentials, String> {
        self.policy.check(&self.command).map_err(|why| format!("getting credentials: {why}"))?;
        let unavailable = match () {
            () if self.is_input_taken => Some("is unavailable: used by stdin resource manifest reader"),
            () if !std::io::stdin().is_terminal() => Some("is not a terminal"),
            () => None,
        };
        if let Some(why) = unavailable.filter(|_| self.interaction == Interaction::Always) {
            let text = "exec plugin cannot support interactive mode: standard input";
            return Err(format!("getting credentials: {text} {why}"));
        }
        let is_interactive = self.interaction != Interaction::Never && unavailable.is_none();
        let mut command = Command::new(&self.command);
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(INFO, self.info(cluster, is_interactive).to_string());
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() }).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.start_problem(&error))?;
        let (output, status) = collect(&mut child, TIMEOUT).map_err(|why| self.problem(&why))?;
        if !status.success() {
            return Err(self.problem(&format!("it ended with {status}")));
        }
        let printed = serde_json::from_slice(&output).map_err(|error| {
            format!("getting credentials: decoding stdout: couldn't get version/kind; json parse error: {error}")
        })?;
        self.parse(&printed)
    }

    /// The object that describes the request for credentials.
    fn info(&self, cluster: &Value, is_interactive: bool) -> Value {
        let mut spec = Map::from_iter([("interactive".to_owned(), is_interactive.into())]);
        if self.gets_cluster {
            spec.insert("cluster".to_owned(), cluster.clone());
        }
        json!({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})
    }

    fn parse(&self, printed: &Value) -> Result<PluginCredentials, String> {
        let is_credential = printed["kind"].is_null() || printed["kind"] == "ExecCredential";
        if !is_credential || printed["apiVersion"] != self.api_version {
            let (kind, version) = (&printed["kind"], &printed["apiVersion"]);
            return Err(self.problem(&format!(
                "it printed kind {kind} of version {version}, not \"ExecCredential\" of {:?}",
                self.api_version
            )));
        }
        let status = &printed["status"];
        let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let key = match (text("clientCertificateData"), text("clientKeyData")) {
            (Some(certificate), Some(key)) => Some(TlsClientKey { certificate: certificate.into(), key: key.into() }),
            (None, None) => None,
            _ => return Err(self.problem("it printed a certificate without a key, or a key without a certificate")),
        };
        let token = text("token");
        if token.is_none() && key.is_none() {
            return Err(self.problem("it printed neither a token nor a certificate"));
        }
        let expires = match text("expirationTimestamp") {
            Some(time) => Some(time.parse().map_err(|_| self.problem(&format!("expirationTimestamp is {time:?}")))?),
            None => None,
        };
        Ok(PluginCredentials { token, key, expires })
    }

    fn problem(&self, why: &str) -> String {
        format!("getting credentials: exec: {}: {why}", PathBuf::from(&self.command).display())
    }

    fn start_problem(&self, error: &std::io::Error) -> String {
        let hint = if self.hint.is_empty() { String::new() } else { format!("\n{}", self.hint.trim_end()) };
        format!("{}{hint}", self.problem(&io_error_text(error)))
    }
}

/// Reads a program's output until it has ended. Kills it after the time limit.
fn collect(child: &mut Child, limit: Duration) -> Result<(Vec<u8>, ExitStatus), String> {
    let deadline = Instant::now() + limit;
    let Some(output) = child.stdout.take() else { return Err("it has no output".to_owned()) };
    let (sender, read) = channel();
    let reader = move || {
        let mut bytes = Vec::new();
        let read = output.take(MAX_BYTES + 1).read_to_end(&mut bytes).map(|_| bytes);
        // This fails if the time limit has passed and no thread waits.
        let _ = sender.send(read);
    };
    let thread = std::thread::Builder::new().name("exec plugin".to_owned()).spawn(reader);
    let read = match thread {
        Ok(_) => read.recv_timeout(limit),
        Err(error) => Ok(Err(error)),
    };
    let late = || format!("it did not end within {} s", limit.as_secs());
    let problem = match read {
        Ok(Ok(bytes)) if bytes.len() as u64 <= MAX_BYTES => {
            // It may have closed its output without an end.
            match wait_until(child, deadline).map_err(io_error_text)? {
                Some(status) => return Ok((bytes, status)),
                None => late(),
            }
        }
        Ok(Ok(_)) => format!("it printed more than {MAX_BYTES} bytes"),
        Ok(Err(error)) => io_error_text(error),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => late(),
    };
    // It may have ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
    Err(problem)
}

/// Waits for the end of a program; `None` when the time is over.
fn wait_until(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, extra: Value) -> Result<PluginCredentials, String> {
        let mut entry =
            json!({"command": "sh", "args": ["-c", script], "apiVersion": VERSIONS[0], "interactiveMode": "Never"});
        entry.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
        ExecPlugin::read(&entry, Path::new("/")).and_then(|plugin| plugin.run(&json!({"server": "https://a:1"})))
    }

    #[test]
    fn plugin_makes_a_token_from_its_variables() {
        let script = r#"case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) seen=yes;; esac
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s","expirationTimestamp":"2030-01-01T00:00:00Z"}}' "$A-$seen""#;
        let extra = json!({"env": [{"name": "A", "value": "b"}]});
        let made = run(script, extra).unwrap();
        assert_eq!(made.token.as_deref(), Some("b-yes"));
        assert_eq!(made.expires.unwrap().to_string(), "2030-01-01T00:00:00Z");
    }

    #[test]
    fn policy_decides_which_plugins_run() {
        let list = |name: &str| PluginPolicy::Allowlist(vec!["other".to_owned(), name.to_owned()]);
        for (policy, refusal) in [
            (PluginPolicy::AllowAll, ""),
            (PluginPolicy::DenyAll, "plugin \"sh\" not allowed: policy set to \"DenyAll\""),
            (list("sh"), ""),
            (list("shx"), "is not permitted by the credential plugin allowlist"),
        ] {
            let refused = policy.check(OsStr::new("sh")).err().unwrap_or_default();
            assert!(refused.contains(refusal) && refused.is_empty() == refusal.is_empty(), "{refused}");
        }
    }

    #[test]
    fn plugin_that_fails_is_named() {
        for (script, extra, problem) in [
            ("exit 3", json!({}), "it ended with exit status: 3"),
            ("echo hello", json!({}), "decoding stdout: couldn't get version/kind; json parse error: "),
            ("echo '{}'", json!({}), "it printed kind null of version null"),
            ("exit 0", json!({"command": "/nonexistent/plugin", "installHint": "get it"}), "get it"),
            ("exit 0", json!({"command": ""}), "exec.command is missing"),
            ("exit 0", json!({"apiVersion": "v2"}), "exec.apiVersion is \"v2\""),
            ("exit 0", json!({"interactiveMode": "Maybe"}), "exec.interactiveMode is \"Maybe\""),
        ] {
            let error = run(script, extra).err().unwrap();
            assert!(error.contains(problem), "{script}: {error}");
        }
    }

    #[test]
    fn plugin_that_does_not_end_is_ended() {
        for script in ["exec sleep 1000", "exec sleep 1000 >&-"] {
            let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
            let error = collect(&mut child, Duration::from_millis(50)).unwrap_err();
            assert!(error.starts_with("it did not end within"), "{script}: {error}");
            assert!(child.try_wait().unwrap().is_some());
        }
    }
}
