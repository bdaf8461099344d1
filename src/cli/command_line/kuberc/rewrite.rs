//! Applies preferences to a command line: aliases become their commands, and flags that the user does not give get their values.
//!
//! Start reading at [`rewrite`].

use super::preferences::{CommandAlias, FlagDefault, Preferences};
use crate::cli::command_line::grammar;
use crate::cli::{CliResult, Failure};
use crate::client::standard_error;
use clap::{Arg, Command};
use std::ffi::OsString;

/// Returns the command line with the preferences applied.
pub fn rewrite(line: Vec<OsString>, preferences: &Preferences, root: &Command) -> CliResult<Vec<OsString>> {
    let Some(at) = grammar::first_word(&line, root) else { return Ok(line) };
    if root.find_subcommand(&line[at]).is_some() {
        return apply_defaults(line, preferences, root);
    }
    match preferences.aliases.iter().find(|alias| line[at] == *alias.name) {
        Some(alias) => apply_alias(line, at, alias, root),
        None => Ok(line),
    }
}

/// Puts the command of an alias in its place.
fn apply_alias(mut line: Vec<OsString>, at: usize, alias: &CommandAlias, root: &Command) -> CliResult<Vec<OsString>> {
    let path: Vec<&str> = alias.command.split_whitespace().collect();
    let Some(command) = find_command(root, &path) else {
        let (command, name) = (&alias.command, &alias.name);
        return Err(Failure::plain(format!("command {command:?} not found to set alias {name:?}: []")));
    };
    let mut words: Vec<OsString> = path.iter().map(OsString::from).collect();
    for flag in &alias.options {
        let Some(arg) = find_flag(command, root, &flag.name) else {
            let text = format!("invalid alias flag {} in alias {}", flag.name, alias.name);
            return Err(Failure::plain(text));
        };
        words.extend(word_for(flag, arg, (command, root), &line));
    }
    words.extend(alias.prepend_args.iter().map(OsString::from));
    line.splice(at..=at, words);
    line.extend(alias.append_args.iter().map(OsString::from));
    Ok(line)
}

/// Adds the flags of the command that the preferences set.
fn apply_defaults(line: Vec<OsString>, preferences: &Preferences, root: &Command) -> CliResult<Vec<OsString>> {
    let (mut line, end) = grammar::with_subcommands_first(line, root);
    let Some(start) = grammar::first_word(&line, root) else { return Ok(line) };
    let path: Vec<String> = line[start..end].iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let Some(command) = find_command(root, &path) else { return Ok(line) };
    let mut added = Vec::new();
    for defaults in &preferences.defaults {
        let words: Vec<&str> = defaults.command.split_whitespace().collect();
        match find_command(root, &words) {
            None => standard_error::print_line(format_args!(
                "Warning: command {:?} not found to set kuberc override",
                defaults.command
            )),
            Some(meant) if std::ptr::eq(meant, command) => {
                for flag in &defaults.options {
                    let Some(arg) = find_flag(command, root, &flag.name) else {
                        let text = format!("invalid flag {} for command {}", flag.name, defaults.command);
                        return Err(Failure::plain(text));
                    };
                    added.extend(word_for(flag, arg, (command, root), &line));
                }
            }
            Some(_) => {}
        }
    }
    line.splice(end..end, added);
    Ok(line)
}

fn find_command<'a>(root: &'a Command, path: &[&str]) -> Option<&'a Command> {
    path.iter().try_fold(root, |command, word| command.find_subcommand(word)).filter(|_| !path.is_empty())
}

fn find_flag<'a>(command: &'a Command, root: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().chain(root.get_arguments()).find(|arg| arg.get_long() == Some(name))
}

/// Returns the word for a flag; nothing where the user gives it.
fn word_for(
    flag: &FlagDefault,
    arg: &Arg,
    (command, root): (&Command, &Command),
    line: &[OsString],
) -> Option<OsString> {
    let letters: String = command.get_arguments().chain(root.get_arguments()).filter_map(Arg::get_short).collect();
    let is_meant = |word: &str| {
        let long = word.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name));
        let group = word.strip_prefix('-').filter(|group| !group.starts_with('-'));
        let has_letter = |group: &str| {
            let is_group = group.chars().all(|letter| letters.contains(letter));
            arg.get_short().is_some_and(|letter| group.starts_with(letter) || is_group && group.contains(letter))
        };
        long == Some(flag.name.as_str()) || group.is_some_and(has_letter)
    };
    let is_given = line.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()).any(is_meant);
    (!is_given).then(|| format!("--{}={}", flag.name, flag.default).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn aliases_and_defaults_change_the_line() {
        let preferences: Preferences = serde_json::from_value(json!({
            "defaults": [
                {"command": "get", "options": [{"name": "output", "default": "json"}, {"name": "namespace", "default": "b"}]},
                {"command": "config view", "options": [{"name": "raw", "default": "true"}]},
                {"command": "create role", "options": [{"name": "verb", "default": "get"}]},
            ],
            "aliases": [
                {"name": "getn", "command": "get", "prependArgs": ["nodes"], "options": [{"name": "output", "default": "wide"}]},
                {"name": "runx", "command": "run", "options": [{"name": "image", "default": "i"}], "appendArgs": ["p", "--", "c"]},
                {"name": "odd", "command": "gte"},
            ],
        }))
        .unwrap();
        let root = grammar::command();
        let rewritten = |line: &str| {
            let words = std::iter::once("kloop").chain(line.split(' ')).map(OsString::from).collect();
            let words = rewrite(words, &preferences, &root).map_err(|failure| failure.to_string())?;
            Ok::<_, String>(words[1..].join(" ".as_ref()).into_string().unwrap())
        };
        for (line, expected) in [
            ("get pods", "get --output=json --namespace=b pods"),
            ("get pods -oyaml -n a", "get pods -oyaml -n a"),
            ("-n a get pods", "-n a get --output=json pods"),
            ("create -n a role r", "create role --verb=get -n a r"),
            ("getn a", "get --output=wide nodes a"),
            ("getn a -o yaml", "get nodes a -o yaml"),
            ("-s https://a runx --kuberc f", "-s https://a run --image=i --kuberc f p -- c"),
            ("describe pods", "describe pods"),
            ("kuberc view", "kuberc view"),
            ("nothing pods", "nothing pods"),
        ] {
            assert_eq!(rewritten(line).as_deref(), Ok(expected), "{line}");
        }
        assert!(rewritten("odd a").unwrap_err().contains("command \"gte\" not found to set alias \"odd\""));
    }
}
