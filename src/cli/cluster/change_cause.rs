//! `--record`: writes the command line into the annotation `kubernetes.io/change-cause` of the objects that the command changes.
//!
//! Start reading at [`change_cause`].

use crate::object::Object;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::Path;

/// The annotation with the reason for a change. `rollout history` shows it.
pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// The verbs that take `--record`, as in kubectl.
const VERBS: [&str; 11] =
    ["annotate", "apply", "autoscale", "create", "edit", "expose", "label", "patch", "replace", "run", "scale"];

/// The subcommands of `set` that take `--record`.
const SET: [&str; 4] = ["image", "resources", "selector", "serviceaccount"];

/// Adds `--record` to the verbs that take it.
pub fn with_record_flag(root: Command) -> Command {
    let add = |verb: Command| verb.arg(Arg::new("record").long("record").hide(true).action(ArgAction::SetTrue));
    root.mut_subcommands(|verb| match verb.get_name() {
        name if VERBS.contains(&name) => add(verb),
        "set" => verb.mut_subcommands(|part| if SET.contains(&part.get_name()) { add(part) } else { part }),
        _ => verb,
    })
}

/// Whether the command line has `--record`, with any value.
pub fn has_record_flag(matches: &ArgMatches) -> bool {
    let is_written = |at: &ArgMatches| at.ids().any(|id| id == "record") && is_on_command_line(at, "record");
    is_written(matches) || matches.subcommand().is_some_and(|(_, inner)| has_record_flag(inner))
}

/// Flags whose values are not recorded (kubectl: `sanitizedFlags`).
const CREDENTIALS: [&str; 3] = ["password", "token", "username"];

/// The recorded value of a credential.
const CLASSIFIED: &str = "CLASSIFIED";

/// Returns the command line as kubectl records it: words first, then each flag as `--name=value`; nothing without `--record`.
pub fn change_cause(matches: &ArgMatches, grammar: &Command, program: &str) -> Option<String> {
    let mut words = Vec::new();
    let (mut at, mut command) = (matches, grammar);
    while let Some((name, inner)) = at.subcommand() {
        words.push(name.to_owned());
        (at, command) = (inner, command.find_subcommand(name)?);
    }
    let is_set = at.try_get_one::<bool>("record").ok().flatten().copied().unwrap_or_default();
    if !is_set {
        return None;
    }
    let mut flags: Vec<(usize, String)> = Vec::new();
    for arg in command.get_arguments().chain(grammar.get_arguments()) {
        let id = arg.get_id().as_str();
        if !is_on_command_line(at, id) {
            continue;
        }
        let texts = at.get_raw(id).into_iter().flatten().map(|text| text.to_string_lossy().into_owned());
        match arg.get_long() {
            None => words.extend(texts),
            Some(name) => {
                let places = at.indices_of(id).into_iter().flatten();
                let shown = |text: String| if CREDENTIALS.contains(&name) { CLASSIFIED.to_owned() } else { text };
                flags.extend(places.zip(texts).map(|(place, text)| (place, format!("--{name}={}", shown(text)))));
            }
        }
    }
    flags.sort();
    words.extend(flags.into_iter().map(|(_, flag)| flag));
    let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    Some(format!("{program} {}", words.join(" ")))
}

/// Writes a recorded command line into the annotation of an object.
pub fn record(cause: Option<&str>, object: &mut Object) {
    if let Some(cause) = cause {
        object.set(&["metadata", "annotations", CHANGE_CAUSE], cause);
    }
}

fn is_on_command_line(matches: &ArgMatches, id: &str) -> bool {
    matches.try_contains_id(id).unwrap_or(false) && matches.value_source(id) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line::grammar;

    #[test]
    fn credentials_are_not_recorded() {
        let words = ["kloop", "annotate", "configmap", "c", "a=b", "--record", "--token", "secret"];
        let grammar = grammar::command();
        let matches = grammar.clone().try_get_matches_from(words).unwrap();
        let cause = change_cause(&matches, &grammar, "/bin/kloop").unwrap();
        assert_eq!(cause, "kloop annotate configmap c a=b --record=true --token=CLASSIFIED");
    }
}
