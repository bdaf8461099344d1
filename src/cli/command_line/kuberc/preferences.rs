//! The file of preferences (kuberc): its path, its documents, and their errors.
//!
//! Never: writes the file. Start reading at [`load`].

use crate::cli::{CliResult, Failure};
use crate::client::PluginPolicy;
use crate::client::standard_error;
use crate::kinds::catalogue::typed::{self, DecodeError};
use crate::object::{io_error_text, yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The version that is written, and an older one that is read.
pub const VERSION: &str = "kubectl.config.k8s.io/v1beta1";
const OLDER_VERSION: &str = "kubectl.config.k8s.io/v1alpha1";

/// The level of `-v` at which unused documents are reported.
const DETAILS: i64 = 5;

/// The preferences of a user.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preferences {
    /// The version of the document.
    pub api_version: String,
    /// `Preference`
    pub kind: String,
    /// Values of flags for commands.
    #[serde(alias = "overrides")]
    pub defaults: Vec<CommandDefaults>,
    /// Other names for commands.
    pub aliases: Vec<CommandAlias>,
    /// The credential plugins that may run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub credential_plugin_policy: String,
    /// The plugins that may run, with the policy `Allowlist`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_plugin_allowlist: Option<Vec<AllowedPlugin>>,
}

/// Values of flags for a command.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CommandDefaults {
    /// The command, such as `set env`.
    pub command: String,
    /// The flags.
    #[serde(alias = "flags")]
    pub options: Vec<FlagDefault>,
}

/// Another name for a command with some of its words.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommandAlias {
    /// The name.
    pub name: String,
    /// The command.
    pub command: String,
    /// Words before those of the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prepend_args: Vec<String>,
    /// Words after those of the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub append_args: Vec<String>,
    /// Values of flags.
    #[serde(alias = "flags", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<FlagDefault>,
}

/// The value of a flag that the user does not give.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct FlagDefault {
    /// The long name, without dashes.
    pub name: String,
    /// The value.
    pub default: String,
}

/// A credential plugin that may run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct AllowedPlugin {
    /// The program.
    #[serde(alias = "name")]
    pub command: String,
}

impl Preferences {
    /// Returns empty preferences.
    pub fn new() -> Preferences {
        Preferences { api_version: VERSION.to_owned(), kind: "Preference".to_owned(), ..Preferences::default() }
    }

    /// Returns which credential plugins may run.
    pub fn plugin_policy(&self) -> CliResult<PluginPolicy> {
        let policy = self.credential_plugin_policy.as_str();
        let wrong = |text: String| Err(Failure::plain(text));
        let list = self.credential_plugin_allowlist.as_deref();
        match (policy, list) {
            ("" | "AllowAll" | "DenyAll", Some(_)) => wrong(format!(
                "misconfigured credential plugin allowlist: plugin policy is {policy:?} but allowlist is non-nil"
            )),
            ("" | "AllowAll", None) => Ok(PluginPolicy::AllowAll),
            ("DenyAll", None) => Ok(PluginPolicy::DenyAll),
            ("Allowlist", None) => {
                wrong(format!("credential plugin policy set to {policy:?}, but allowlist is unspecified"))
            }
            ("Allowlist", Some([])) => wrong(format!(
                "credential plugin policy set to {policy:?}, but allowlist is empty; use \"DenyAll\" policy instead"
            )),
            ("Allowlist", Some(entries)) => match entries.iter().position(|entry| entry.command.is_empty()) {
                Some(place) => {
                    wrong(format!("misconfigured credential plugin allowlist: empty allowlist entry #{}", place + 1))
                }
                None => Ok(PluginPolicy::Allowlist(entries.iter().map(|entry| entry.command.clone()).collect())),
            },
            _ => wrong(format!("unknown plugin policy: {policy:?}")),
        }
    }

    /// Refuses preferences that kubectl refuses.
    fn check(&self) -> CliResult {
        let options = self.aliases.iter().flat_map(|alias| &alias.options);
        let options = options.chain(self.defaults.iter().flat_map(|command| &command.options));
        if let Some(flag) = options.into_iter().find(|flag| flag.name.starts_with('-')) {
            let text = format!("flag name {} should be in long form without dashes", flag.name);
            return Err(Failure::plain(text));
        }
        for (place, alias) in self.aliases.iter().enumerate() {
            if alias.name.is_empty() || !alias.name.chars().all(|letter| letter.is_ascii_alphabetic()) {
                return Err(Failure::plain("invalid alias name, can only include alphabetical characters"));
            }
            if self.aliases[..place].iter().any(|other| other.name == alias.name) {
                return Err(Failure::plain(format!("duplicate alias name {}", alias.name)));
            }
        }
        self.plugin_policy().map(drop)
    }
}

/// Returns the path of the file, and whether the user names it: by the flag, else by `$KUBERC`. `None` if
/// `$KUBERC` turns preferences off.
pub fn find_file(flag: Option<&Path>) -> CliResult<Option<(PathBuf, bool)>> {
    let variable = std::env::var_os("KUBERC").filter(|text| !text.is_empty());
    if variable.as_ref().is_some_and(|text| text == "off") {
        return match flag {
            Some(_) => {
                let text = "disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive";
                Err(Failure::plain(text))
            }
            None => Ok(None),
        };
    }
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube").join("kuberc"));
    match flag.map(Path::to_owned).or(variable.map(PathBuf::from)) {
        Some(path) => Ok(Some((path, true))),
        None => Ok(home().map(|path| (path, false))),
    }
}

/// Returns the file of `--kuberc` in a command line that is not parsed yet.
fn file_in(line: &[OsString]) -> CliResult<Option<PathBuf>> {
    let missing = || Failure::plain("kuberc error: kuberc file is not found");
    let mut words = line.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "--kuberc" {
            return words.next().map(|path| Some(PathBuf::from(path))).ok_or_else(missing);
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--kuberc=")) {
            return if path.is_empty() { Err(missing()) } else { Ok(Some(PathBuf::from(path))) };
        }
    }
    Ok(None)
}

/// Returns the level of `-v` in a command line that is not parsed yet.
fn level_in(line: &[OsString]) -> i64 {
    let texts: Vec<&str> = line.iter().filter_map(|word| word.to_str()).collect();
    fn in_word(word: &str) -> Option<&str> {
        ["--v=", "-v=", "-v"].iter().find_map(|flag| word.strip_prefix(flag))
    }
    let alone = texts.windows(2).find(|pair| ["-v", "--v"].contains(&pair[0])).map(|pair| pair[1]);
    alone
        .or_else(|| texts.iter().find_map(|word| in_word(word)))
        .and_then(|level| level.parse().ok())
        .unwrap_or_default()
}

/// Reads the preferences for a command line; nothing without any.
pub fn load(line: &[OsString]) -> CliResult<Option<Preferences>> {
    let is_off =
        std::env::var("KUBECTL_KUBERC").is_ok_and(|text| ["0", "f", "F", "false", "False", "FALSE"].contains(&&*text));
    if is_off {
        return Ok(None);
    }
    let Some((path, is_explicit)) = find_file(file_in(line)?.as_deref())? else { return Ok(None) };
    let level = level_in(line);
    let read = match fs::read_to_string(&path) {
        Ok(text) => parse(&text, &path, level),
        Err(error) if error.kind() == ErrorKind::NotFound && !is_explicit => return Ok(None),
        Err(error) => Err(format!("open {}: {}", path.display(), io_error_text(error))),
    };
    match read {
        Ok(Some(preferences)) => preferences.check().map(|()| Some(preferences)),
        Ok(None) => Ok(None),
        Err(problem) if is_explicit => Err(Failure::plain(format!("kuberc error kuberc: {problem}"))),
        Err(problem) => {
            standard_error::print_line(format_args!(
                "kuberc: no preferences loaded from {}: {problem}",
                path.display()
            ));
            Ok(None)
        }
    }
}

/// Decodes a document. Also returns errors about unknown fields. As in Go, null means the same as a missing field.
pub fn decode(document: &Value) -> (Result<Preferences, DecodeError>, Vec<String>) {
    let mut unknown = Vec::new();
    let read = typed::read(document, &mut |field| unknown.push(field.complaint()));
    (read, unknown)
}

/// Returns the first document that has preferences.
fn parse(text: &str, path: &Path, level: i64) -> Result<Option<Preferences>, String> {
    let documents = yaml::documents(text).map_err(|error| error.to_string())?;
    let place = path.display();
    for document in documents.iter().map(|document| &document.value).filter(|value| !value.is_null()) {
        let is_known = [VERSION, OLDER_VERSION].iter().any(|version| document["apiVersion"] == *version);
        let (read, unknown) = decode(document);
        match read {
            Ok(preferences) if is_known && preferences.kind == "Preference" => {
                if !unknown.is_empty() {
                    let unknown = unknown.join(", ");
                    standard_error::print_line(format_args!(
                        "kuberc: ignoring strict decoding error in {place}: strict decoding error: {unknown}"
                    ));
                }
                return Ok(Some(preferences));
            }
            Err(error) if is_known && level >= DETAILS => {
                standard_error::print_line(format_args!(
                    "kuberc: strict decoding error for an entry in {place}: {}",
                    error.message
                ));
            }
            _ => {}
        }
    }
    if documents.iter().any(|document| !document.value.is_null()) {
        return Err(format!("no valid preferences found in {place}, use --v=5 to see details"));
    }
    if level >= DETAILS {
        standard_error::print_line(format_args!("kuberc: no preferences found in {place}"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn first_document_with_preferences_is_read() {
        let text = "---\napiVersion: example.com/v1\nkind: Preference\n---\napiVersion: kubectl.config.k8s.io/v1alpha1\n\
                    kind: Preference\noverrides: [{command: get, flags: [{name: output, default: json}]}]\n";
        let read = parse(text, Path::new("f"), 0).unwrap().unwrap();
        assert_eq!(read.defaults[0].options[0].default, "json");
        assert_eq!(parse("", Path::new("f"), 0), Ok(None));
        assert!(parse("a: b", Path::new("f"), 0).unwrap_err().starts_with("no valid preferences found in f"));
        let (read, unknown) = decode(&json!({"x": 1, "aliases": [{"name": "a", "y": 2}]}));
        assert_eq!(read.unwrap().aliases[0].name, "a");
        assert_eq!(unknown, ["unknown field \"aliases[0].y\"", "unknown field \"x\""]);
        let nothing = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n\
                       aliases: [{name: a, command: get, options: [{name: namespace, default: }]}]\n";
        let read = parse(nothing, Path::new("f"), 0).unwrap().unwrap();
        assert_eq!(read.aliases[0].options[0], FlagDefault { name: "namespace".into(), default: String::new() });
    }

    #[test]
    fn wrong_preferences_are_refused() {
        let check = |change: Value| {
            let mut body = json!({"apiVersion": VERSION, "kind": "Preference"});
            body.as_object_mut().unwrap().extend(change.as_object().cloned().unwrap());
            let preferences: Preferences = serde_json::from_value(body).unwrap();
            preferences.check().map_err(|failure| failure.to_string())
        };
        assert_eq!(check(json!({"credentialPluginPolicy": "DenyAll"})), Ok(()));
        for (change, problem) in [
            (json!({"aliases": [{"name": "a1"}]}), "can only include alphabetical characters"),
            (json!({"aliases": [{"name": "a"}, {"name": "a"}]}), "duplicate alias name a"),
            (json!({"defaults": [{"options": [{"name": "-o"}]}]}), "flag name -o should be in long form"),
            (json!({"credentialPluginPolicy": "Some"}), "unknown plugin policy: \"Some\""),
            (json!({"credentialPluginAllowlist": []}), "misconfigured credential plugin allowlist"),
            (json!({"credentialPluginPolicy": "Allowlist"}), "allowlist is unspecified"),
        ] {
            let refused = check(change).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn flags_are_found_before_the_line_is_parsed() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let file = |line: &str| file_in(&words(line)).map_err(|failure| failure.to_string());
        assert_eq!(file("k get --kuberc f pods"), Ok(Some("f".into())));
        assert_eq!((file("k get --kuberc=f"), file("k run a -- --kuberc f")), (Ok(Some("f".into())), Ok(None)));
        assert!(file("k get --kuberc").is_err());
        assert_eq!(
            ["k -v5", "k -v 5", "k --v=5", "k --v 5", "k get"].map(|line| level_in(&words(line))),
            [5, 5, 5, 5, 0]
        );
    }
}
