//! The command line: kubectl's verbs, flags, messages and exit codes over one state file.
//!
//! Knows: the verbs (one file each, one line each in [`verbs`]), and what they share: the [`command_line`], their [`manifests`], the
//! [`cluster`] that they work with, and the form of their [`output`].
//! Never: decides anything about objects (the API server does), never writes to the store but
//! through it, never prints errors with a macro, which panics when nobody reads
//! ([`crate::client::standard_error`]).
//! Start reading at [`main`]; a verb is a file with an `Args` struct, whose doc comment is its help, and `run`.

mod address;
mod api_resources;
mod api_versions;
mod apply;
mod attach;
mod auth;
mod autoscale;
mod backup;
mod certificate;
mod cluster;
mod cluster_info;
mod command_line;
mod completion;
mod config;
mod cp;
mod create;
mod dash;
mod debug;
mod delete;
mod describe;
mod diff;
mod dns;
mod down;
mod edit;
mod envtest;
mod events;
mod exec;
mod explain;
mod expose;
mod get;
mod help;
mod history;
mod image;
mod import;
mod kubeconfig;
mod kustomize;
mod logs;
mod manifests;
mod mark;
mod node;
mod output;
mod patch;
mod plan;
mod plugin;
mod port_forward;
mod proxy;
mod ps;
mod reconcile;
mod replace;
mod rollout;
mod run;
mod scale;
mod serve;
mod set;
mod state;
mod top;
mod tour;
mod undo;
mod up;
mod verbs;
mod version;
mod wait;
mod why;

pub use cluster::context::CommandContext;
pub use command_line::globals::Globals;
pub use output::failure::{CliResult, Failure};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches, Parser};
use cluster::{change_cause, control_plane};
use command_line::{check_globals, grammar, kuberc, usage};
use output::diagnostics;
use std::process::ExitCode;
use verbs::Verb;

/// Kubernetes' control plane as one binary over one SQLite file, running your manifests as local processes.
#[derive(Parser)]
#[command(name = "kloop", disable_version_flag = true, disable_help_subcommand = true, infer_long_args = false)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
}

impl Cli {
    /// Returns the grammar of the global flags, and of the verbs for which the function returns true.
    fn with_verbs(is_wanted: impl Fn(&str) -> bool) -> Command {
        verbs::add_verbs(Cli::command(), is_wanted)
    }
}

/// Runs the plugin that answers an unknown command, if there is one.
fn answer_with_plugin(error: &clap::Error) -> Option<ExitCode> {
    let words = plugin::command_words();
    // A word that is not a verb may stand below one that is. As in kubectl, plugins add subcommands to create only.
    let is_verb = words.first().is_some_and(|word| verbs::is_verb(&word.to_string_lossy()));
    let is_extensible = plugin::extends_create(&words);
    if is_verb && !is_extensible || !matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument) {
        return None;
    }
    let failure = plugin::replace_with_plugin(&words)?;
    Some(CommandContext::new(Globals::default(), "").finish(&Err(failure)))
}

/// Runs the program, except for the shim, which `src/main.rs` starts.
pub fn main() -> ExitCode {
    if let Some(code) = envtest::run_as() {
        return code;
    }
    if let Some(code) = completion::answer() {
        return code;
    }
    let (line, plugin_policy) = match kuberc::apply(std::env::args_os().collect()) {
        Ok(applied) => applied,
        Err(failure) => return CommandContext::new(Globals::default(), "").finish(&Err(failure)),
    };
    let matches = match grammar::parse(line) {
        Ok(matches) => matches,
        Err(error) => return answer_with_plugin(&error).unwrap_or_else(|| usage::print_usage_error(&error)),
    };
    let (cli, verb) = match Cli::from_arg_matches(&matches).and_then(|cli| Ok((cli, Verb::from_arg_matches(&matches)?)))
    {
        Ok(parsed) => parsed,
        Err(error) => return usage::print_usage_error(&error),
    };
    let name = matches.subcommand_name().unwrap_or_default();
    let mut context = CommandContext::new(cli.globals, name);
    context.manager = grammar::manager(&matches);
    context.plugin_policy = plugin_policy;
    if change_cause::has_record_flag(&matches) {
        context.print_notice("Flag --record has been deprecated, --record will be removed in the future");
        let program = std::env::args_os().next().unwrap_or_default();
        context.change_cause = change_cause::change_cause(&matches, &grammar::command(), &program.to_string_lossy());
    }
    context.name_writer(name);
    if let Err(failure) = diagnostics::start() {
        return context.finish(&Err(failure));
    }
    if let Err(failure) = check_globals::check(&mut context, name) {
        return context.finish(&Err(failure));
    }
    // Open the state first, so that an unusable state is reported before an unknown kind. The verb
    // reports the error.
    let _ = context.existing();
    let outcome = verb.run(&mut context).and_then(|()| context.check_warnings());
    let code = context.finish(&outcome);
    if let Err(failure) = &outcome {
        // An error was reported when the state was opened.
        let _ = print_remedy(&mut context, failure);
    }
    context.tidy();
    code
}

/// Prints the command that helps after a failure, where that depends on the cluster.
fn print_remedy(context: &mut CommandContext, failure: &Failure) -> CliResult {
    match failure {
        failure if failure.is_not_found() => control_plane::print_remedy_of_missing(context, failure),
        Failure::WithoutProcess(_) => control_plane::print_remedy(context),
        _ => Ok(()),
    }
}
