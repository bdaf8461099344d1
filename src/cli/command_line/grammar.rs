//! The grammar of the command line: clap's, derived from the verbs, with kubectl's conventions for
//! flags.
//!
//! Every switch accepts a value (`--wait=false`, in any of Go's spellings). The last of several
//! equal flags counts.

use super::flags::boolean;
use crate::cli::Cli;
use crate::cli::cluster::change_cause::with_record_flag;
use crate::managed_fields::FieldManager;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;

/// Returns the whole grammar.
pub fn command() -> Command {
    with_kubectl_conventions(Cli::with_verbs(|_| true))
}

/// Parses the words of a command line, the program's name first. The grammar of all verbs takes longer than most commands, so only the
/// verbs that the line mentions are tried first.
pub fn parse(line: impl IntoIterator<Item = impl Into<OsString>>) -> Result<ArgMatches, clap::Error> {
    let line = with_plain_help(line.into_iter().map(Into::into));
    let is_mentioned = |verb: &str| line.iter().skip(1).any(|word| word == verb);
    let mentioned = with_kubectl_conventions(Cli::with_verbs(is_mentioned));
    let (line, _) = with_subcommands_first(line, &mentioned);
    mentioned.try_get_matches_from(&line).or_else(|_| command().try_get_matches_from(&line))
}

/// Replaces `--help=true` by `--help`, and leaves out `--help=false`. The words after `--` are those of another program.
fn with_plain_help(line: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_ours = true;
    let plain = |word: OsString| {
        is_ours &= word != "--";
        let value = word.to_str().and_then(|word| word.strip_prefix("--help=")).filter(|_| is_ours);
        match value.map(boolean) {
            Some(Ok(false)) => None,
            Some(Ok(true)) => Some("--help".into()),
            _ => Some(word),
        }
    };
    line.filter_map(plain).collect()
}

/// Moves subcommands in front of the flags that follow the verb: as in kubectl, such flags are the subcommand's. Returns the line, and
/// the place after the last subcommand.
pub fn with_subcommands_first(mut line: Vec<OsString>, root: &Command) -> (Vec<OsString>, usize) {
    let Some((mut end, verb)) = next_subcommand(&line, 1, root, root) else { return (line, 1) };
    let mut parent = verb;
    end += 1;
    while let Some((at, found)) = next_subcommand(&line, end, parent, root) {
        line[end..=at].rotate_right(1);
        parent = found;
        end += 1;
    }
    (line, end)
}

/// Returns the place of the first word that is neither a flag nor the value of one.
pub fn first_word(line: &[OsString], root: &Command) -> Option<usize> {
    next_word(line, 1, root, root)
}

/// Returns the next word if it is a subcommand of `parent`.
fn next_subcommand<'a>(
    line: &[OsString],
    from: usize,
    parent: &'a Command,
    root: &Command,
) -> Option<(usize, &'a Command)> {
    let at = next_word(line, from, parent, root)?;
    Some((at, parent.find_subcommand(&line[at])?))
}

/// Returns the place of the first word from a place on that is neither a flag nor the value of one.
fn next_word(line: &[OsString], from: usize, parent: &Command, root: &Command) -> Option<usize> {
    let mut at = from;
    loop {
        let word = line.get(at)?.to_str()?;
        match word.starts_with('-') {
            true if word == "--" => return None,
            true if takes_next_word(word, parent, root) => at += 2,
            true => at += 1,
            false => return Some(at),
        }
    }
}

/// Whether the value of a flag is the next word. As in kubectl, it is for flags that the command does not know.
fn takes_next_word(word: &str, parent: &Command, root: &Command) -> bool {
    let known = |is_meant: &dyn Fn(&Arg) -> bool| {
        let mut args = parent.get_arguments().chain(root.get_arguments());
        args.find(|arg| is_meant(arg)).map(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
    };
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    match letters {
        _ if word.contains('=') => false,
        None => {
            let name = &word[2..];
            known(&|arg| arg.get_long() == Some(name)).unwrap_or(name != "help")
        }
        Some(letters) => {
            let mut letters = letters.chars();
            let (Some(letter), None) = (letters.next(), letters.next()) else { return false };
            known(&|arg| arg.get_short() == Some(letter)).unwrap_or(letter != 'h')
        }
    }
}

/// Returns the field manager with kubectl's names: from the verb, or `--field-manager`.
pub fn manager(matches: &ArgMatches) -> FieldManager {
    let verb = matches.subcommand_name().unwrap_or_default();
    let default_name = default_manager(verb);
    let mut requested = None;
    let mut at = matches;
    while let Some((_, inner)) = at.subcommand() {
        requested = inner.try_get_one::<String>("field_manager").ok().flatten().or(requested);
        at = inner;
    }
    let name = requested.filter(|name| !name.is_empty()).cloned().unwrap_or(default_name);
    FieldManager { name, subresource: if verb == "scale" { "scale" } else { "" } }
}

/// The field manager of a verb without `--field-manager`.
pub fn default_manager(verb: &str) -> String {
    match verb {
        "apply" | "diff" | "up" => "kubectl-client-side-apply".to_owned(),
        "annotate" | "autoscale" | "create" | "edit" | "expose" | "label" | "patch" | "replace" | "rollout" | "run"
        | "set" | "taint" => format!("kubectl-{verb}"),
        _ => "kubectl".to_owned(),
    }
}

fn with_kubectl_conventions(command: Command) -> Command {
    with_switches(with_record_flag(command))
}

fn with_switches(command: Command) -> Command {
    command.args_override_self(true).mut_args(switch).mut_subcommands(with_switches)
}

/// Makes a switch accept a value after `=`; leaves other flags unchanged.
fn switch(arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    let default = if arg.get_default_values().is_empty() { "false" } else { "true" };
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_value(default)
        .default_missing_value("true")
        .value_parser(boolean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_unique() {
        command().debug_assert();
    }

    #[test]
    fn writers_are_named_by_their_verb() {
        let cases = [
            ("label cm a b=c", "kubectl-label", ""),
            ("create cm a --field-manager me", "me", ""),
            ("set image deploy/a a=b", "kubectl-set", ""),
            ("set image deploy/a a=b --field-manager=me", "me", ""),
            ("scale deploy/a --replicas=1", "kubectl", "scale"),
            ("apply -f a.yaml", "kubectl-client-side-apply", ""),
            ("cordon a", "kubectl", ""),
        ];
        for (words, name, subresource) in cases {
            let words = std::iter::once("kloop").chain(words.split(' '));
            let found = manager(&parse(words).unwrap());
            assert_eq!((found.name.as_str(), found.subresource), (name, subresource));
        }
    }

    #[test]
    fn kubectl_global_flags_are_accepted_anywhere() {
        let lines = [
            "get pods -v=6",
            "get pods -v 6",
            "get pods --v=4",
            "get pods -v6",
            "--v 4 get pods",
            "delete pod a --context kloop",
            "get pods --kubeconfig f --cluster c --user u --request-timeout=5s",
            "get pods -s https://a",
            "apply -f a --server=b",
            "reconcile -v",
            "reconcile --verbose=false",
            "why -v",
            "why -v deployment/a",
            "reconcile -v=6",
            "why --v=2",
        ];
        for line in lines {
            let parsed = command().try_get_matches_from(std::iter::once("kloop").chain(line.split(' ')));
            let parsed =
                parsed.map(|matches| <super::Cli as clap::FromArgMatches>::from_arg_matches(&matches).map(drop));
            assert!(matches!(parsed, Ok(Ok(()))), "{line}: {parsed:?}");
            let by_mentioned = parse(std::iter::once("kloop").chain(line.split(' '))).expect(line);
            let by_all = command().try_get_matches_from(std::iter::once("kloop").chain(line.split(' '))).expect(line);
            assert_eq!(by_mentioned.subcommand(), by_all.subcommand(), "{line}");
        }
    }

    #[test]
    fn errors_are_those_of_the_whole_grammar() {
        let lines =
            ["gett pods logs", "pods", "get pods --no-such-flag", "-n get", "logs -f a --help", "rollout statu"];
        for line in lines {
            let words = || std::iter::once("kloop").chain(line.split(' '));
            let whole = command().try_get_matches_from(words()).expect_err(line).to_string();
            assert_eq!(parse(words()).expect_err(line).to_string(), whole, "{line}");
        }
    }

    #[test]
    fn flags_before_a_subcommand_are_those_of_the_subcommand() {
        let cases = [
            ("create -s https://a clusterrole a --verb get", "create clusterrole -s https://a a --verb get"),
            ("create --dry-run=client -n b secret generic a", "create secret generic --dry-run=client -n b a"),
            ("-n b create --dry-run=client -o name cm a", "-n b create cm --dry-run=client -o name a"),
            ("rollout --timeout 5s status deploy/a", "rollout status --timeout 5s deploy/a"),
            ("create -f cm", "create -f cm"),
            ("create -- cm a", "create -- cm a"),
            ("get -n cm pods", "get -n cm pods"),
        ];
        let root = command();
        for (words, expected) in cases {
            let words = std::iter::once("kloop").chain(words.split(' ')).map(OsString::from).collect();
            let moved = with_subcommands_first(words, &root).0.join(" ".as_ref());
            assert_eq!(moved.to_str().unwrap(), format!("kloop {expected}"));
        }
        assert!(parse("kloop create -s https://a --dry-run=client cm a".split(' ')).is_ok());
    }

    #[test]
    fn help_takes_a_value() {
        use clap::error::ErrorKind;
        let parse = |line: &str| super::parse(line.split(' '));
        assert!(parse("kloop get pods --help=false").is_ok());
        assert!(parse("kloop run a --image=b -- tool --help=false").is_ok());
        let shown = parse("kloop get pods --help=true").map_err(|error| error.kind());
        assert_eq!(shown.err(), Some(ErrorKind::DisplayHelp));
        let words = ["kloop", "exec", "a", "--", "tool", "--help=true"].map(OsString::from);
        assert_eq!(with_plain_help(words.clone().into_iter()), words);
    }

    #[test]
    fn switches_take_values() {
        let wait = |flag: &str| {
            let matches = parse(["kloop", "delete", "pod", "web", flag]).ok()?;
            matches.subcommand()?.1.get_one::<bool>("wait").copied()
        };
        assert_eq!(wait("--now"), Some(true));
        for (flag, expected) in [("--wait", true), ("--wait=true", true), ("--wait=0", false), ("--wait=F", false)] {
            assert_eq!(wait(flag), Some(expected), "{flag}");
        }
        assert_eq!(wait("--wait=no"), None);
    }
}
