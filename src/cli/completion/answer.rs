//! Answers a shell's request to complete a command line.
//!
//! `KLOOP_COMPLETE=zsh kloop -- kloop get po` prints one word a line. Errors print nothing, because
//! a shell cannot show them while a line is edited. Only words without shell metacharacters are
//! offered: a role may be named `$(reboot)`.

use super::state::CompletionState;
use super::values;
use crate::cli::command_line::grammar;
use crate::cli::help;
use crate::show::print;
use clap::builder::StyledStr;
use clap::{Arg, ArgMatches, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, complete};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Answers a completion request. Returns `None` on every other run, at the cost of one look into
/// the environment.
pub fn answer() -> Option<ExitCode> {
    let shell = std::env::var_os("KLOOP_COMPLETE").filter(|shell| !shell.is_empty())?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).skip_while(|arg| arg != "--").skip(1).collect();
    let shell = shell.to_str().unwrap_or_default();
    // The reader may have closed the pipe; then it needs no answer.
    let _ = std::io::stdout().write_all(lines(shell, arguments).as_bytes());
    Some(ExitCode::SUCCESS)
}

/// Formats the possible words for the shell's completion script.
fn lines(shell: &str, mut arguments: Vec<OsString>) -> String {
    // bash passes the line, and the part of the last word that it will replace.
    let mut drop = 0;
    if shell == "bash" {
        let (Some(part), Some(line)) = (arguments.pop(), arguments.pop()) else { return String::new() };
        let line = line.to_string_lossy();
        arguments = line.split_ascii_whitespace().map(OsString::from).collect();
        if line.ends_with(|letter: char| letter.is_ascii_whitespace()) {
            arguments.push(OsString::new());
        }
        drop = arguments.last().map_or(0, |word| word.len()).saturating_sub(part.len());
    }
    let mut text = String::new();
    for (word, help) in words(arguments) {
        let help = help.filter(|help| !help.is_empty());
        text.push_str(&match (shell, help) {
            ("bash", _) => word.get(drop..).unwrap_or_default().to_owned(),
            ("zsh", None) => word.replace(':', "\\:"),
            ("zsh", Some(help)) => format!("{}:{help}", word.replace(':', "\\:")),
            ("fish", Some(help)) => format!("{word}\t{help}"),
            _ => word,
        });
        text.push('\n');
    }
    text
}

/// Returns the possible values of the last word, with their help.
fn words(line: Vec<OsString>) -> Vec<(String, Option<String>)> {
    let Some(index) = line.len().checked_sub(1).filter(|index| *index > 0) else { return Vec::new() };
    let before = &line[..index];
    let is_new = line[index].is_empty();
    let mut command = add_completers(grammar::command(), before);
    let folder = std::env::current_dir().ok();
    let found = complete(&mut command, line, index, folder.as_deref()).unwrap_or_default();
    let text = |help: &StyledStr| help.to_string().lines().next().unwrap_or_default().to_owned();
    let mut words: Vec<(String, Option<String>)> = found
        .iter()
        .filter_map(|word| Some((word.get_value().to_str()?.to_owned(), word.get_help().map(text))))
        .filter(|(word, _)| is_plain(word))
        .collect();
    // Offer flags only after a dash, as kubectl does.
    words.retain(|(word, _)| !is_new || !word.starts_with('-'));
    words
}

/// Whether every shell takes the word literally: it has no blank, quote, expansion or control
/// character.
fn is_plain(word: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@+%".contains(letter);
    !word.is_empty() && !word.starts_with(['=', '%', '+']) && word.chars().all(plain)
}

/// Adds completers to the command line's grammar. They read the state that the preceding words
/// name.
fn add_completers(command: Command, before: &[OsString]) -> Command {
    let matches = command.clone().ignore_errors(true).try_get_matches_from(before).ok();
    let (mut path, mut last) = (String::new(), matches.as_ref());
    while let Some((verb, inner)) = last.and_then(ArgMatches::subcommand) {
        path = if path.is_empty() { verb.to_owned() } else { format!("{path} {verb}") };
        last = Some(inner);
    }
    let state = Arc::new(CompletionState::from_matches(last));
    let with = |arg: Arg, state: &Arc<CompletionState>| match completer(arg.get_id().as_str(), &path, state) {
        Some(completer) => arg.add(completer),
        None => arg,
    };
    fn map_arguments(command: Command, with: &dyn Fn(Arg) -> Arg) -> Command {
        command.mut_args(with).mut_subcommands(|inner| map_arguments(inner, with))
    }
    map_arguments(remove_aliases(command, before), &|arg| with(arg, &state))
}

/// Removes the aliases that the line does not use, so that the full names are offered.
fn remove_aliases(command: Command, before: &[OsString]) -> Command {
    command.mut_subcommands(|inner| {
        let is_used = inner.get_visible_aliases().any(|alias| before.iter().any(|word| word == alias));
        let inner = if is_used { inner } else { inner.visible_alias(None) };
        remove_aliases(inner, before)
    })
}

type Ask = fn(&CompletionState, &str) -> Vec<String>;

/// Returns the completer for an argument of a verb; `None` for free text.
fn completer(argument: &str, path: &str, state: &Arc<CompletionState>) -> Option<ArgValueCompleter> {
    let listed = |list: Vec<String>| {
        Some(ArgValueCompleter::new(move |word: &OsStr| matching_candidates(word, list.iter().cloned())))
    };
    let texts = |list: &[&str]| listed(list.iter().map(|text| (*text).to_owned()).collect());
    if let Some(values) = values::flag_values(argument, path) {
        return texts(values);
    }
    if let Some(kinds) = values::kinds_of_verb(path).filter(|_| argument == "words") {
        let state = Arc::clone(state);
        return Some(ArgValueCompleter::new(move |word: &OsStr| {
            matching_candidates(word, state.targets_of(kinds, word.to_str().unwrap_or_default()).into_iter())
        }));
    }
    match (argument, path.split(' ').next().unwrap_or_default()) {
        ("filenames" | "state" | "kubeconfig" | "kustomize", _)
        | ("server" | "certificate_authority" | "client_certificate" | "client_key", _)
        | ("file", "backup")
        | ("from_file" | "from_env_file" | "patch_file" | "cert" | "key" | "manifests" | "scheduler_config", _)
        | ("folder" | "output", "kustomize")
        | ("file", "state")
        | ("file" | "output", "import")
        | ("words" | "junit", "up") => return Some(ArgValueCompleter::new(PathCompleter::any())),
        ("output", verb) => return listed(print::formats(verb == "get")),
        ("words", "help") => return listed(help_words()),
        _ => {}
    }
    let (ask, state) = (cluster_words(argument, path)?, Arc::clone(state));
    Some(ArgValueCompleter::new(move |word: &OsStr| {
        matching_candidates(word, ask(&state, word.to_str().unwrap_or_default()).into_iter())
    }))
}

/// Returns the function that reads the words for an argument from the cluster.
fn cluster_words(argument: &str, path: &str) -> Option<Ask> {
    const CONTEXTS: [&str; 5] = ["delete-context", "get-contexts", "rename-context", "set-context", "use-context"];
    let is_about_contexts = path.strip_prefix("config ").is_some_and(|verb| CONTEXTS.contains(&verb));
    Some(match (argument, path) {
        ("namespace", _) => |state, _| state.namespaces(),
        ("container", _) => |state, _| state.containers(),
        ("context", _) => |state, _| state.contexts(),
        ("contexts" | "names", _) if is_about_contexts => |state, _| state.contexts(),
        ("cluster", _) | ("names", "config delete-cluster" | "config set-cluster") => |state, _| state.clusters(),
        ("user", "config set-context") | ("names", "config delete-user" | "config set-credentials") => {
            |state, _| state.users()
        }
        ("resource", "create role" | "create clusterrole") => |state, _| state.types(),
        ("clusterrole", _) => |state, _| state.names("clusterroles"),
        ("role", _) => |state, _| state.names("roles"),
        ("class", "create ingress") => |state, _| state.names("ingressclasses"),
        ("from", "create job") => |state, _| state.named_with_type("cronjob"),
        ("names", "create token") => |state, _| state.names("serviceaccounts"),
        ("names", "top pod") => |state, _| state.names("pods"),
        ("names", "top node" | "node remove" | "node stop" | "node start" | "cordon" | "uncordon" | "drain") => {
            |state, _| state.names("nodes")
        }
        ("names", "certificate approve" | "certificate deny") => |state, _| state.names("certificatesigningrequests"),
        ("about", "events") => CompletionState::targets_with_type,
        ("api_group", _) => |state, _| state.groups(),
        ("words", "auth can-i") => CompletionState::access,
        ("words", "set image" | "set env" | "set resources") => CompletionState::template_targets,
        ("object", "url" | "open") => CompletionState::addressed,
        ("condition", "wait") => CompletionState::conditions,
        ("words", "explain") => CompletionState::fields,
        ("words", "logs" | "exec" | "attach" | "port-forward" | "cp" | "debug") => CompletionState::pods,
        ("image", "image resolve" | "image set") => |state, _| state.images(),
        ("words", path) if path.starts_with("config ") => return None,
        ("words", _) => CompletionState::targets,
        _ => return None,
    })
}

/// The arguments of `kloop help`: commands and topics.
fn help_words() -> Vec<String> {
    let verbs: Vec<String> = grammar::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    verbs.into_iter().chain(help::topics::ALL.iter().map(|topic| topic.name.to_owned())).collect()
}

fn matching_candidates(word: &OsStr, all: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    all.filter(|candidate| candidate.starts_with(word)).map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(shell: &str, arguments: &[&str]) -> String {
        let lines = lines(shell, arguments.iter().map(OsString::from).collect());
        lines.lines().map(|line| format!("{} ", line.split('\t').next().unwrap_or_default())).collect()
    }

    #[test]
    fn words_are_those_that_may_stand_there() {
        for (arguments, expected) in [
            (&["kloop", "appl"][..], "apply "),
            (&["kloop", "get", "deploy"], "deployments "),
            (&["kloop", "get", "pods,job"], "pods,jobs "),
            (&["kloop", "get", "-o", "y"], "yaml "),
            (&["kloop", "get", "-oy"], "-oyaml "),
            (&["kloop", "apply", "--dry-run=s"], "--dry-run=server "),
            (&["kloop", "apply", "--dry-"], "--dry-run "),
            (&["kloop", "completion", "z"], "zsh "),
            (&["kloop", "help", "ima"], "image images "),
            (&["kloop", "help", "polic"], "policies "),
            (&["kloop", "rollout", "res"], "restart resume "),
            (&["kloop", "wait", "--for", "condition=Com"], "condition=Complete "),
            (&["kubectl", "wait", "--for=d"], "--for=delete "),
            (
                &["kloop", "wait", "job/seed", "--for", "condition=S"],
                "condition=SuccessCriteriaMet condition=Suspended ",
            ),
            (&["kloop", "wait", "deploy", "--for=condition=P"], "--for=condition=Progressing "),
            (&["kloop", "wait", "svc/web", "--for=condition=R"], ""),
            (&["kloop", "wait", "pod/web", "--for=jsonpath=.status.ph"], "--for=jsonpath=.status.phase "),
            (&["kloop", "run", "x", "--restart=O"], "--restart=OnFailure "),
            (&["kloop", "patch", "deploy", "web", "--type", ""], "strategic merge json "),
            (&["kloop", "expose", "deploy", "web", "--type=N"], "--type=NodePort "),
            (&["kloop", "delete", "--cascade=o"], "--cascade=orphan "),
            (&["kloop", "top", "pod", "--sort-by", ""], "cpu memory "),
            (&["kloop", "top", ""], "pod node "),
            (&["kloop", "rollout", "undo", "d"], "daemonsets deployments "),
            (&["kloop", "set", "image", "dep"], "deployments/ "),
            (&["kloop", "auth", "can-i", "de"], "delete deletecollection "),
            (&["kloop", "auth", "can-i", "get", "deploy"], "deployments "),
            (&["kloop", "get", "deployments."], "deployments.apps "),
            (&["kubectl", "get", "pods,deployments."], "pods,deployments.apps "),
            (&["kloop", "explain", "deploy.spec.strat"], "deploy.spec.strategy "),
            (&["kloop", "explain", "pod.spec.containers.liveness"], "pod.spec.containers.livenessProbe "),
            (&["kloop", "explain", "pod.spec.nothing."], ""),
            (&["kloop"], ""),
            (&[], ""),
        ] {
            assert_eq!(offered("fish", arguments), expected, "{arguments:?}");
        }
    }

    #[test]
    fn bash_replaces_only_a_part_of_a_word() {
        for (line, part, expected) in [
            ("kloop get deploy", "deploy", "deployments "),
            ("kloop apply --dry-run=s", "s", "server "),
            ("kloop apply --dry-run=", "", "none server client "),
            ("kloop   completion ", "", "bash zsh fish man "),
            ("kloop \"", "\"", ""),
            ("", "", ""),
        ] {
            assert_eq!(offered("bash", &[line, part]), expected, "{line}");
        }
    }

    #[test]
    fn only_plain_words_are_offered() {
        for word in ["web-0", "pod/web", "--dry-run=client", "system:node", "a@b", "1"] {
            assert!(is_plain(word), "{word}");
        }
        for word in [
            "",
            "$(reboot)",
            "a b",
            "a;b",
            "`a`",
            "a\nb",
            "~",
            "*",
            "a\\",
            "é",
            "=ls",
            "'",
            "\u{1b}[1m",
            "a|b",
            "{a,b}",
        ] {
            assert!(!is_plain(word), "{word}");
        }
    }
}
