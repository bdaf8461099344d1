//! Errors of the command line itself, in kubectl's words.

use super::grammar;
use super::program_name::in_own_words;
use crate::cli::verbs::GROUPS;
use crate::cli::{help, up};
use crate::client::standard_error;
use crate::object::format_count;
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::io::Write;
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;
use std::process::ExitCode;

/// Prints a usage error, or the requested help.
pub fn print_usage_error(error: &clap::Error) -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let mut grammar = grammar::command();
    grammar.build();
    let (path, verb) = help::lookup(&grammar, words);
    match error.kind() {
        ErrorKind::DisplayHelp => print_page(&help::page(&path, verb, GROUPS, help::output_width())),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand if path.is_empty() => {
            print_page(&format!(
                "{}{}",
                help::page(&path, verb, GROUPS, help::output_width()),
                describe_folder(Path::new("."))
            ))
        }
        // kubectl has an answer for these two only.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
            if path == ["certificate"] =>
        {
            print_page(&help::page(&path, verb, GROUPS, help::output_width()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            standard_error::print(format_args!(
                "{}",
                in_own_words(&help::page(&path, verb, GROUPS, help::output_width()))
            ));
            ExitCode::FAILURE
        }
        _ => {
            standard_error::print_line(format_args!("{}", in_own_words(&text(error, &path.join(" "), verb))));
            ExitCode::FAILURE
        }
    }
}

/// Lists the commands for the files of a folder; empty if there are none.
fn describe_folder(folder: &Path) -> String {
    let mut lines = Vec::new();
    if let Some(files) = up::find_manifests(folder) {
        let what = match files.filenames.len() {
            0 => "a kustomization".to_owned(),
            count => format_count(count, "manifest"),
        };
        let flag = if files.filenames.is_empty() { "-k ." } else { "-f ." };
        lines.push(format!("{what}: kloop up runs it all and follows the logs"));
        lines.push(format!("kloop plan {flag} shows what would happen"));
    }
    if let Some(file) = up::find_compose_file(folder) {
        lines.push(format!("{file}: kloop import {file} writes manifests for it"));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!("\nIn this folder:\n{}", lines.iter().map(|line| format!("  {line}\n")).collect::<String>())
}

/// Prints a page. A closed pipe is not an error.
fn print_page(page: &str) -> ExitCode {
    match std::io::stdout().write_all(in_own_words(page).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn text(error: &clap::Error, path: &str, verb: &Command) -> String {
    let context = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join("\", \"")),
        _ => None,
    };
    let see = format!("See '{} --help' for usage.", format!("kloop {path}").trim_end());
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            unknown_command(path, &context(ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        ErrorKind::UnknownArgument => {
            let flag = context(ContextKind::InvalidArg).unwrap_or_default();
            match flag.strip_prefix("--") {
                Some(_) => format!("error: unknown flag: {}\n{see}", flag.split('=').next().unwrap_or(&flag)),
                None if flag.starts_with('-') => {
                    let letter: String = flag.chars().skip(1).take(1).collect();
                    format!("error: unknown shorthand flag: '{letter}' in {flag}\n{see}")
                }
                None => format!("error: unexpected argument: {flag}\n{see}"),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            missing_arguments(&context(ContextKind::InvalidArg).unwrap_or_default(), &see)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (flag, value) = (
                context(ContextKind::InvalidArg).unwrap_or_default(),
                context(ContextKind::InvalidValue).unwrap_or_default(),
            );
            let flag = flag.split([' ', '[', '=']).next().unwrap_or_default();
            if value.is_empty() && error.kind() == ErrorKind::InvalidValue {
                return format!("error: flag needs an argument: {}\n{see}", without_argument(verb, flag));
            }
            let cause = invalid_value_cause(error, &value);
            format!("error: invalid argument {value:?} for \"{}\" flag{cause}\n{see}", with_letter(verb, flag))
        }
        ErrorKind::ArgumentConflict if !misplaced_word(error).is_empty() => {
            format!("error: Unexpected args: [{}]\nSee 'kloop {path} -h' for help and examples", misplaced_word(error))
        }
        ErrorKind::InvalidUtf8 => format!("error: an argument is not valid UTF-8\n{see}"),
        _ => {
            let rendered = error.to_string();
            rendered
                .lines()
                .take_while(|line| !line.starts_with("Usage:"))
                .collect::<Vec<_>>()
                .join("\n")
                .trim_end()
                .to_owned()
        }
    }
}

/// Words the refusal of a command without required flags or arguments, as kubectl does.
fn missing_arguments(flags: &str, see: &str) -> String {
    let name = |flag: &str| flag.trim_start_matches("--").split([' ', '[', '=']).next().unwrap_or_default().to_owned();
    let names: Vec<String> = flags.split("\", \"").map(name).collect();
    match names.first() {
        Some(argument) if argument.starts_with('<') => format!("error: {argument} is required\n{see}"),
        _ => format!("error: required flag(s) \"{}\" not set", names.join("\", \"")),
    }
}

/// Words the refusal of a command or subcommand that does not exist, as kubectl does.
fn unknown_command(path: &str, word: &str) -> String {
    if ["apply", "create"].contains(&path) {
        return format!("error: Unexpected args: [{word}]\nSee 'kloop {path} -h' for help and examples");
    }
    if !path.is_empty() {
        return format!("error: unknown command {word:?}\nSee 'kloop {path} -h' for help and examples");
    }
    let near: String = similar_verbs(word).map(|verb| format!("\n\t{verb}")).collect();
    let hint = if near.is_empty() { near } else { format!("\n\nDid you mean this?{near}") };
    format!("error: unknown command {word:?} for \"kloop\"{hint}")
}

/// Maximum number of letters that differ between a word and the verb that is suggested for it, as in kubectl.
const MAX_DISTANCE: usize = 2;

/// Words of other programs with the verbs that do the same, as in kubectl.
const SYNONYMS: [(&str, &str); 6] =
    [("inspect", "describe"), ("list", "get"), ("ls", "get"), ("remove", "delete"), ("rm", "delete"), ("stats", "top")];

/// Returns the verbs that resemble a word, begin with it or mean it, in the order of the help.
fn similar_verbs(word: &str) -> impl Iterator<Item = &'static str> {
    let lower = word.to_lowercase();
    let synonym = SYNONYMS.iter().find(|(known, _)| *known == lower).map(|(_, verb)| *verb);
    let verbs = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied());
    verbs.filter(move |verb| {
        verb.starts_with(&lower) || synonym == Some(verb) || strsim::levenshtein(&lower, verb) <= MAX_DISTANCE
    })
}

/// Returns a flag whose value is missing as pflag names it: `'f' in -f` where the user wrote the letter.
fn without_argument(verb: &Command, flag: &str) -> String {
    let known = verb.get_arguments().find(|known| known.get_long() == flag.strip_prefix("--"));
    let last = std::env::args().next_back().unwrap_or_default();
    match known.and_then(|known| known.get_short()).filter(|letter| is_cluster_with(&last, *letter)) {
        Some(letter) => format!("{letter:?} in {last}"),
        None => flag.to_owned(),
    }
}

/// Whether a word is a group of short flags that ends with this letter.
fn is_cluster_with(word: &str, letter: char) -> bool {
    word.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.ends_with(letter))
}

/// Returns the word that is not a subcommand, where a verb has flags or subcommands; empty for another conflict.
fn misplaced_word(error: &clap::Error) -> String {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => String::new(),
    }
}

/// Returns the cause of an invalid value, in Go's words if the text is not a number.
fn invalid_value_cause(error: &clap::Error, value: &str) -> String {
    let Some(source) = std::error::Error::source(error) else { return String::new() };
    let Some(error) = source.downcast_ref::<ParseIntError>() else {
        // clap names the range of a type that is narrower than Go's.
        let is_range = source.to_string().contains(" is not in ");
        return match is_range {
            true => format!(": strconv.ParseInt: parsing {value:?}: value out of range"),
            false => format!(": {source}"),
        };
    };
    let cause = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!(": strconv.ParseInt: parsing {value:?}: {cause}")
}

/// Returns a flag as pflag names it: `-A, --all-namespaces`.
fn with_letter(verb: &Command, flag: &str) -> String {
    let known = verb.get_arguments().find(|known| known.get_long() == flag.strip_prefix("--"));
    match known.and_then(|known| known.get_short()) {
        Some(letter) => format!("-{letter}, {flag}"),
        None => flag.to_owned(),
    }
}
