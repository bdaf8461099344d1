//! Sources of data for config maps and secrets: literals, files, folders, env files.

use crate::cli::manifests::input;
use crate::cli::{CliResult, Failure};
use crate::kinds::shared::data_keys::check_keys;
use crate::object::{io_error_text, names};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Flags that name the sources.
#[derive(clap::Args)]
pub struct DataSourceFlags {
    /// Specify a key and literal value to insert (i.e. mykey=somevalue).
    #[arg(long, value_name = "KEY=VALUE")]
    from_literal: Vec<String>,
    /// Key file or folder; optionally KEY=PATH.
    #[arg(long, value_delimiter = ',', value_name = "[KEY=]PATH")]
    from_file: Vec<String>,
    /// Specify the path to a file to read lines of key=val pairs from.
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    from_env_file: Vec<String>,
}

/// Keys with their values, in order.
pub type DataEntries = Vec<(String, Vec<u8>)>;

impl DataSourceFlags {
    /// Reads all entries. `kind` and `name` identify the object in errors.
    pub fn read(&self, kind: &str, name: &str) -> CliResult<DataEntries> {
        if !self.from_env_file.is_empty() && (!self.from_file.is_empty() || !self.from_literal.is_empty()) {
            return Err(Failure::plain("from-env-file cannot be combined with from-file or from-literal"));
        }
        let mut data = DataEntries::new();
        for source in &self.from_file {
            from_file(source, &mut data)?;
        }
        for source in &self.from_literal {
            let pair = source.split_once('=').filter(|(key, _)| !key.is_empty());
            let (key, value) =
                pair.ok_or_else(|| Failure::plain(format!("invalid literal source {source}, expected key=value")))?;
            data.push((key.into(), value.into()));
        }
        for path in &self.from_env_file {
            from_env_file(path, &mut data)?;
        }
        check_keys(&data, kind, name).map_err(Failure::plain)?;
        Ok(data)
    }
}

fn reading<'a>(path: &'a str) -> impl Fn(std::io::Error) -> Failure + 'a {
    move |error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::plain(format!("error reading {path}: no such file or directory")),
        _ => Failure::plain(format!("error reading {path}: {error}", error = io_error_text(error))),
    }
}

fn from_file(source: &str, data: &mut DataEntries) -> CliResult {
    let (key, path) = match source.split_once('=') {
        Some((_, path)) if path.contains('=') => {
            return Err(Failure::plain("key names or file paths cannot contain '='"));
        }
        Some(("", _)) => return Err(Failure::plain(format!("key name for file path {} missing", &source[1..]))),
        Some((key, "")) => return Err(Failure::plain(format!("file path for key name {key} missing"))),
        Some((key, path)) => (Some(key), path),
        None => (None, source),
    };
    let meta = std::fs::metadata(path).map_err(reading(path))?;
    if !meta.is_dir() {
        let file_name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        data.push((key.unwrap_or(file_name).into(), input::read(path).map_err(reading(path))?));
        return Ok(());
    }
    if key.is_some() {
        return Err(Failure::plain("cannot give a key name for a directory path"));
    }
    let entries = std::fs::read_dir(path).map_err(reading(path))?;
    let mut files: Vec<_> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(reading(path))?;
    files.sort();
    for file in files.iter().filter(|file| file.symlink_metadata().is_ok_and(|meta| meta.is_file())) {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        data.push((name.into(), input::read(file).map_err(reading(path))?));
    }
    Ok(())
}

/// Refuses a key that is not a valid name of an environment variable.
pub fn check_variable(key: &str) -> CliResult {
    match &names::env_identifier(key)[..] {
        [] => Ok(()),
        problems => Err(Failure::plain(format!("{key:?} is not a valid key name: {}", problems.join(";")))),
    }
}

/// Parses `KEY=VALUE` lines. `KEY` alone takes the value from kloop's own environment, where a missing variable is empty.
fn from_env_file(path: &str, data: &mut DataEntries) -> CliResult {
    let text = input::read_to_string(path).map_err(reading(path))?;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value)));
        check_variable(key)?;
        let value = value.map_or_else(|| std::env::var_os(key).unwrap_or_default().into_vec(), |value| value.into());
        data.push((key.into(), value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_with_several_equals_signs_are_refused() {
        for source in ["a=b=c", "=b=c", "a=="] {
            let refused = from_file(source, &mut DataEntries::new()).map_err(|failure| failure.to_string());
            assert_eq!(refused.unwrap_err(), "error: key names or file paths cannot contain '='", "{source}");
        }
    }

    fn read_env_file(text: &str) -> Result<DataEntries, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("foo.env");
        std::fs::write(&path, text).expect("written");
        let mut data = DataEntries::new();
        from_env_file(path.to_str().expect("UTF-8"), &mut data).map_err(|failure| failure.to_string())?;
        Ok(data)
    }

    #[test]
    fn literal_values_keep_their_quotes() {
        let from_literal = ["a=\"b\"", "b='", "c=d=e"].map(str::to_owned).to_vec();
        let flags = DataSourceFlags { from_literal, from_file: Vec::new(), from_env_file: Vec::new() };
        let expected = [("a", "\"b\""), ("b", "'"), ("c", "d=e")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(flags.read("ConfigMap", "x").ok().as_deref(), Some(&expected[..]));
    }

    #[test]
    fn env_file_key_without_a_value_takes_that_of_the_environment() {
        let path = std::env::var("PATH").expect("a PATH").into_bytes();
        let expected =
            [("A", b"1=2 ".to_vec()), ("EMPTY", Vec::new()), ("PATH", path), ("KLOOP_TEST_UNSET", Vec::new())];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        let text = "\u{feff}# a comment\n\n  A=1=2 \nEMPTY=\nPATH\nKLOOP_TEST_UNSET\n";
        assert_eq!(read_env_file(text).as_deref(), Ok(&expected[..]));
    }

    #[test]
    fn env_file_key_that_is_no_name_of_a_variable_is_refused() {
        for (line, key) in [("SP =x", "SP "), ("1A=x", "1A"), ("=x", ""), ("A B", "A B")] {
            let rule = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not \
                        start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is \
                        '[-._a-zA-Z][-._a-zA-Z0-9]*')";
            assert_eq!(read_env_file(line), Err(format!("error: {key:?} is not a valid key name: {rule}")), "{line}");
        }
    }
}
