//! The file of contexts: clusters, contexts, users and the name of the current context, in the form of a kubeconfig.
//!
//! Fields that kloop does not know stay as they are. Never: decides which context is used.

use crate::cli::{CliResult, Failure};
use crate::object::{io_error_text, yaml};
use crate::runtime::folder;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The entries of a list of the file, by name.
pub type Entries = BTreeMap<String, Map<String, Value>>;

/// The lists of the file, and the key of the entry in each item.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("contexts", "context"), ("users", "user")];

/// The contents of the file.
#[derive(Clone, Debug, Default)]
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// The name of the current context; may be empty.
    pub current: String,
    /// The clusters by name.
    pub clusters: Entries,
    /// The contexts by name.
    pub contexts: Entries,
    /// The users by name.
    pub users: Entries,
    /// The other fields of the file.
    others: Map<String, Value>,
    /// The comment at the beginning of the file.
    comment: String,
}

impl ConfigFile {
    /// Returns the path: that of `--kubeconfig`, else `$KLOOP_CONFIG`, else `$XDG_CONFIG_HOME/kloop/config`.
    pub fn find_path(flag: Option<&Path>) -> PathBuf {
        let variable = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let named = flag.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned);
        named.or_else(|| variable("KLOOP_CONFIG")).unwrap_or_else(|| {
            let home = || std::env::home_dir().map(|home| home.join(".config"));
            let folder = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute()).or_else(home);
            folder.unwrap_or_else(|| PathBuf::from("/etc")).join("kloop/config")
        })
    }

    /// Reads the file. A missing file has no entries.
    pub fn load(path: &Path) -> CliResult<ConfigFile> {
        let problem =
            |problem: String| Failure::plain(format!("error loading config file \"{}\": {problem}", path.display()));
        let text = match fs::metadata(path) {
            Ok(meta) if meta.len() > yaml::MAX_BYTES as u64 => {
                return Err(problem(format!("it has more than {} bytes", yaml::MAX_BYTES)));
            }
            Ok(_) => fs::read_to_string(path).map_err(|error| problem(io_error_text(error)))?,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(problem(io_error_text(error))),
        };
        let mut file = ConfigFile::parse(&text).map_err(problem)?;
        file.path = path.to_owned();
        Ok(file)
    }

    fn parse(text: &str) -> Result<ConfigFile, String> {
        let mut documents = yaml::documents(text).map_err(|error| error.to_string())?;
        let document = match documents.len() {
            0 => json!({}),
            1 => documents.remove(0).value,
            count => return Err(format!("it has {count} documents")),
        };
        let Value::Object(mut others) = document else { return Err("it is not a map".to_owned()) };
        let kind = others.remove("kind").unwrap_or_default();
        if !kind.is_null() && kind != "Config" {
            return Err(format!("its kind is {kind}, not \"Config\""));
        }
        let version = others.remove("apiVersion").unwrap_or_default();
        if !version.is_null() && version != "v1" {
            return Err(format!(
                "no kind \"Config\" is registered for version {version} in scheme \"k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50\""
            ));
        }
        let current = others.remove("current-context").and_then(|name| Some(name.as_str()?.to_owned()));
        let [clusters, contexts, users] = LISTS.map(|(list, key)| entries(others.remove(list), list, key));
        let comment = text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        Ok(ConfigFile {
            current: current.unwrap_or_default(),
            clusters: clusters?,
            contexts: contexts?,
            users: users?,
            others,
            comment,
            path: PathBuf::new(),
        })
    }

    /// Returns the contents as kubectl writes them.
    pub fn to_value(&self) -> Value {
        let list = |key: &str, entries: &Entries| match entries.is_empty() {
            true => Value::Null,
            false => entries.iter().map(|(name, entry)| json!({ "name": name, key: entry })).collect(),
        };
        let mut value = self.others.clone();
        value.entry("preferences").or_insert_with(|| json!({}));
        value.insert("apiVersion".into(), "v1".into());
        value.insert("kind".into(), "Config".into());
        value.insert("current-context".into(), self.current.as_str().into());
        for ((name, key), entries) in LISTS.iter().zip([&self.clusters, &self.contexts, &self.users]) {
            value.insert((*name).to_owned(), list(key, entries));
        }
        Value::Object(value)
    }

    /// Reads the file, changes it, and writes it again. Other kloop commands that change it wait.
    pub fn change<T>(path: &Path, change: impl FnOnce(&mut ConfigFile) -> CliResult<T>) -> CliResult<T> {
        let problem = |error: std::io::Error| {
            Failure::plain(format!("cannot write {}: {}", path.display(), io_error_text(error)))
        };
        // A symbolic link stays: its target is replaced.
        let real = fs::canonicalize(path).or_else(|_| std::path::absolute(path)).map_err(problem)?;
        let folder = real.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(problem)?;
        let lock = File::open(folder).map_err(problem)?;
        lock.lock().map_err(problem)?;
        let mut file = ConfigFile::load(path)?;
        let result = change(&mut file)?;
        let text = format!("{}{}\n", file.comment, yaml::to_yaml(&file.to_value()).trim_end());
        folder::replace(&real, text.as_bytes()).map_err(problem)?;
        Ok(result)
    }

    /// Returns a text field of an entry.
    pub fn text<'a>(entry: &'a Map<String, Value>, field: &str) -> &'a str {
        entry.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The folder of the file, below which its relative paths are.
    pub fn folder(&self) -> PathBuf {
        let path = std::path::absolute(&self.path).unwrap_or_default();
        path.parent().map(Path::to_owned).unwrap_or_default()
    }
}

/// Returns the items of a list by name.
fn entries(list: Option<Value>, name: &str, key: &str) -> Result<Entries, String> {
    let items = match list {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(format!("{name} is not a list")),
    };
    let mut entries = Entries::new();
    for mut item in items {
        let Some(named) = item["name"].as_str().map(str::to_owned) else {
            return Err(format!("an item of {name} has no name"));
        };
        match item.get_mut(key).map(Value::take) {
            Some(Value::Object(entry)) => entries.entry(named).or_insert(entry),
            None | Some(Value::Null) => entries.entry(named).or_default(),
            Some(_) => return Err(format!("{key} of the item {named:?} of {name} is not a map")),
        };
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn changed_file_keeps_unknown_fields_and_its_comment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/config");
        ConfigFile::change(&path, |file| {
            file.current = "a".into();
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = "# mine\npreferences: {colors: true}\nextensions: [{name: x, extension: {a: 1}}]\n\
                    contexts: [{name: a, context: {cluster: c, extra: 2}}]\ncurrent-context: a\n";
        fs::write(&path, text).unwrap();
        ConfigFile::change(&path, |file| {
            file.contexts.get_mut("a").unwrap().insert("namespace".into(), "blue".into());
            Ok(())
        })
        .unwrap();
        let expected = "\
# mine
apiVersion: v1
clusters: null
contexts:
- context:
    cluster: c
    extra: 2
    namespace: blue
  name: a
current-context: a
extensions:
- extension:
    a: 1
  name: x
kind: Config
preferences:
  colors: true
users: null
";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn malformed_file_is_refused() {
        for (text, problem) in [
            ("a: [", "yaml"),
            ("- a", "it is not a map"),
            ("kind: Pod", "its kind is \"Pod\", not \"Config\""),
            ("contexts: {a: b}", "contexts is not a list"),
            ("users: [{user: {}}]", "an item of users has no name"),
            ("clusters: [{name: a, cluster: b}]", "cluster of the item \"a\" of clusters is not a map"),
            ("a: b\n---\nc: d", "it has 2 documents"),
        ] {
            let error = ConfigFile::parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
