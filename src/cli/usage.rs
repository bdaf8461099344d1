//! Errors of the command line itself, in kubectl's words.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::process::ExitCode;

/// Tells what is wrong with the command line, or gives the help that was asked for.
pub fn tell(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    eprintln!("{}", text(error, &path()));
    ExitCode::FAILURE
}

/// The verb as typed: the words before the first flag that name verbs.
fn path() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.take_while(|word| !word.starts_with('-')).collect();
    let known = ["create", "rollout", "set", "config", "auth", "top", "image", "node"];
    match &words[..] {
        [verb, next, ..] if known.contains(&verb.as_str()) => format!("{verb} {next}"),
        [verb, ..] => verb.clone(),
        [] => String::new(),
    }
}

fn text(error: &clap::Error, path: &str) -> String {
    let context = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join("\", \"")),
        _ => None,
    };
    let see = format!("See 'kloop {path} --help' for usage.");
    match error.kind() {
        ErrorKind::InvalidSubcommand if path.starts_with("create") => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("error: Unexpected args: [{word}]\nSee 'kloop create -h' for help and examples")
        }
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            let known = context(ContextKind::SuggestedSubcommand);
            let hint = known.map(|known| format!("\n\nDid you mean this?\n\t{}", known.replace("\", \"", "\n\t")));
            format!("error: unknown command {word:?} for \"kloop\"{}", hint.unwrap_or_default())
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
            let flags = context(ContextKind::InvalidArg).unwrap_or_default();
            let names: Vec<&str> = flags
                .split("\", \"")
                .map(|flag| flag.trim_start_matches("--").split(' ').next().unwrap_or(""))
                .collect();
            format!("error: required flag(s) \"{}\" not set", names.join("\", \""))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (flag, value) = (
                context(ContextKind::InvalidArg).unwrap_or_default(),
                context(ContextKind::InvalidValue).unwrap_or_default(),
            );
            let flag = flag.split(' ').next().unwrap_or_default();
            let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
            if value.is_empty() {
                return format!("error: flag needs an argument: {flag}\n{see}");
            }
            format!("error: invalid argument {value:?} for \"{flag}\" flag{source}\n{see}")
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
