//! The grammar of the command line: what clap derives from the verbs, with the habits of kubectl's flags.
//!
//! Every switch may be given a value (`--wait=false`, in any of Go's spellings), and of two equal flags the last counts.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};

/// The whole grammar.
pub fn command() -> Command {
    as_kubectl(Cli::command())
}

fn as_kubectl(command: Command) -> Command {
    command.args_override_self(true).mut_args(switch).mut_subcommands(as_kubectl)
}

/// A switch that also takes a value after `=`; other flags stay as they are.
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

/// Go's spellings of a boolean.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_flags_are_the_same() {
        command().debug_assert();
    }

    #[test]
    fn switches_take_values() {
        let wait = |flag: &str| {
            let matches = command().try_get_matches_from(["kloop", "delete", "pod", "web", flag]).ok()?;
            matches.subcommand()?.1.get_one::<bool>("wait").copied()
        };
        assert_eq!(wait("--now"), Some(true));
        for (flag, expected) in [("--wait", true), ("--wait=true", true), ("--wait=0", false), ("--wait=F", false)] {
            assert_eq!(wait(flag), Some(expected), "{flag}");
        }
        assert_eq!(wait("--wait=no"), None);
    }
}
