//! Variables whose values stand in a file of a volume when their container starts (`fileKeyRef`, KEP-3721): lines of `NAME='value'`.
//!
//! The start request has a placeholder for each value, also in other variables and in the command. Never: reads anything but a file of
//! an emptyDir of the pod.

use super::super::wire::LaunchRequest;
use super::super::{file_tree, volumes};
use crate::object::io_error_text;
use crate::world::start::FileKey;
use crate::world::volume::VolumeContent;
use rustix::fs::CWD;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// The longest file, in bytes (Kubernetes).
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Puts the values in the places of their marks. A variable that is optional and not there is left out.
pub fn fill(pod: &Path, launch: &mut LaunchRequest) -> Result<(), String> {
    for (number, wanted) in std::mem::take(&mut launch.file_keys).iter().enumerate() {
        let mark = FileKey::mark(number);
        let value = value(pod, launch, wanted)?;
        if value.is_none() {
            launch.env.retain(|(_, known)| *known != mark);
        }
        // A reference to an unknown variable stays as written.
        let value = value.unwrap_or_else(|| format!("$({})", wanted.variable));
        let texts = launch.env.iter_mut().map(|(_, known)| known).chain(&mut launch.argv);
        texts.filter(|text| text.contains(&mark)).for_each(|text| *text = text.replace(&mark, &value));
    }
    Ok(())
}

fn value(pod: &Path, launch: &LaunchRequest, wanted: &FileKey) -> Result<Option<String>, String> {
    let FileKey { volume, path, key, .. } = wanted;
    let source = launch.volumes.iter().find(|one| one.name == *volume).map(|one| &one.source);
    if !matches!(source, Some(VolumeContent::Empty | VolumeContent::Memory { .. })) {
        return Err(format!(
            "environment variable {}: volume {volume:?} is not an emptyDir of the pod",
            wanted.variable
        ));
    }
    let failed =
        |why: String| format!("environment variable {}: file {path:?} of volume {volume:?}: {why}", wanted.variable);
    let text = match read(&volumes::root_of(pod, volume, &launch.volumes), path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && wanted.optional => return Ok(None),
        read => read.map_err(|error| failed(io_error_text(error)))?,
    };
    match parse(&text).map_err(failed)?.remove(key.as_str()) {
        None if !wanted.optional => Err(failed(format!("key {key:?} not found"))),
        found => Ok(found),
    }
}

fn read(volume: &Path, path: &str) -> std::io::Result<String> {
    let root = file_tree::open_folder(CWD, volume)?;
    let file = file_tree::open_inside(&root, path)?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(std::io::Error::other(format!("it is longer than {} KiB", MAX_FILE_BYTES >> 10))),
        false => Ok(text),
    }
}

/// Skips blank lines and those that begin with `#`. A value in single quotes may have several lines.
fn parse(text: &str) -> Result<HashMap<&str, String>, String> {
    let (mut found, mut rest) = (HashMap::new(), text);
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(found);
        }
        let line = 1 + text[..text.len() - rest.len()].matches('\n').count();
        if rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            continue;
        }
        let wrong = |why: &str| format!("line {line}: {why}: write NAME='value'");
        let (name, value) = rest.split_once('=').ok_or_else(|| wrong("there is no ="))?;
        let (name, value) = (name.trim_end(), value.trim_start_matches([' ', '\t']));
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(wrong("this is not a valid variable name"));
        }
        let quoted = value.strip_prefix('\'').ok_or_else(|| wrong("the value is not in single quotes"))?;
        let (value, after) = quoted.split_once('\'').ok_or_else(|| wrong("the quote does not end"))?;
        let (left, next) = after.split_once('\n').unwrap_or((after, ""));
        if !left.trim().is_empty() {
            return Err(wrong("something follows the value"));
        }
        found.insert(name, value.to_owned());
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::volume::Volume;

    #[test]
    fn lines_and_what_is_wrong_with_them() {
        let text = "# a comment\n\n  A='1'\nB = 'two words # and more'  \nC='several\n lines'\nA='last'\nD=''";
        let found = parse(text).unwrap();
        let expected = [("A", "last"), ("B", "two words # and more"), ("C", "several\n lines"), ("D", "")];
        assert_eq!(found, expected.map(|(name, value)| (name, value.to_owned())).into());
        let table = [
            ("A=1", "line 1: the value is not in single quotes: write NAME='value'"),
            ("A='1'\nB", "line 2: there is no =: write NAME='value'"),
            ("\nA='1", "line 2: the quote does not end: write NAME='value'"),
            ("A='1' 2", "line 1: something follows the value: write NAME='value'"),
            ("export A='1'", "line 1: this is not a valid variable name: write NAME='value'"),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text).unwrap_err(), expected, "{text:?}");
        }
    }

    #[test]
    fn values_stand_where_their_marks_stood() {
        let pod = tempfile::tempdir().unwrap();
        let volumes = vec![Volume { name: "v".into(), source: VolumeContent::Empty }];
        volumes::lay_out(pod.path(), &volumes).unwrap();
        std::fs::write(volumes::root_of(pod.path(), "v", &volumes).join("x"), "A='1'\n").unwrap();
        let key = |key: &str, path: &str, optional| FileKey {
            variable: key.into(),
            volume: "v".into(),
            path: path.into(),
            key: key.into(),
            optional,
        };
        let (one, other) = (FileKey::mark(0), FileKey::mark(1));
        let launch = |file_keys| LaunchRequest {
            argv: vec![format!("{one}{other}")],
            env: vec![("A".into(), one.clone()), ("B".into(), other.clone()), ("C".into(), format!("<{one}>"))],
            volumes: volumes.clone(),
            file_keys,
            ..LaunchRequest::default()
        };
        let mut filled = launch(vec![key("A", "x", false), key("B", "x", true)]);
        fill(pod.path(), &mut filled).unwrap();
        assert_eq!(filled.argv, ["1$(B)"]);
        assert_eq!(filled.env, [("A", "1"), ("C", "<1>")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        let why = |wanted| fill(pod.path(), &mut launch(vec![wanted])).unwrap_err();
        let begin = "environment variable B: file";
        assert_eq!(why(key("B", "x", false)), format!("{begin} \"x\" of volume \"v\": key \"B\" not found"));
        assert_eq!(why(key("B", "y", false)), format!("{begin} \"y\" of volume \"v\": no such file or directory"));
        assert!(why(key("B", "../x", true)).starts_with(begin), "nothing leads out of the volume");
        let elsewhere = FileKey { volume: "w".into(), ..key("B", "x", true) };
        assert_eq!(why(elsewhere), "environment variable B: volume \"w\" is not an emptyDir of the pod");
    }
}
