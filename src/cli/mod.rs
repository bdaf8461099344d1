//! The command line: kubectl's words, flags, messages and exit codes over one file.
//!
//! Knows: the verbs (one file each, one line each in [`Verb`]), what the flags that many share mean, and how errors are told.
//! Never: decides anything about objects (the API server does), never touches the store but through it.
//! Start reading at [`main`]; a verb is a file with an `Args` struct, whose doc comment is its help, and `run`.

mod api_resources;
mod api_versions;
mod apply;
mod attach;
mod autoscale;
mod backup;
mod change;
mod completion;
mod config;
mod context;
mod context_settings;
mod control_plane;
mod cp;
mod create;
mod deadline;
mod debug;
mod delete;
mod describe;
mod diagnostics;
mod diff;
mod dns;
mod edit;
mod events;
mod exec;
mod explain;
mod expose;
mod failure;
mod files;
mod flags;
mod get;
mod globals;
mod grammar;
mod help;
mod image;
mod input;
mod key_changes;
mod kustomize;
mod log_writer;
mod logs;
mod mark;
mod node;
mod one_pod;
mod patch;
mod plan;
mod port_forward;
mod reconcile;
mod relative;
mod replace;
mod rollout;
mod run;
mod scale;
mod serve;
mod set;
mod targets;
mod top;
mod usage;
mod version;
mod wait;
mod why;

pub use context::CommandContext;
pub use failure::{CliResult, Failure};
pub use globals::Globals;

use clap::{FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Kubernetes' control plane as one binary over one SQLite file, running your manifests as local processes.
#[derive(Parser)]
#[command(name = "kloop", disable_version_flag = true, disable_help_subcommand = true, infer_long_args = false)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs, in the order of the help page.
#[derive(Subcommand)]
enum Verb {
    Apply(apply::Args),
    Create(create::Args),
    Get(get::Args),
    Describe(describe::Args),
    Delete(delete::Args),
    Edit(edit::Args),
    Diff(diff::Args),
    Patch(patch::Args),
    Replace(replace::Args),
    Set(set::Args),
    Rollout(rollout::Args),
    Scale(scale::Args),
    Autoscale(autoscale::Args),
    Run(run::Args),
    Expose(expose::Args),
    Logs(logs::Args),
    Attach(attach::Args),
    Exec(exec::Args),
    Cp(cp::Args),
    PortForward(port_forward::Args),
    Debug(Box<debug::Args>),
    Events(events::Args),
    Label(mark::label::Args),
    Annotate(mark::annotate::Args),
    Explain(explain::Args),
    /// Mark node as unschedulable.
    #[command(
        override_usage = "NODE",
        after_help = "\
# Mark node \"foo\" as unschedulable
kloop cordon foo"
    )]
    Cordon(node::cordon::Args),
    /// Mark node as schedulable.
    #[command(
        override_usage = "NODE",
        after_help = "\
# Mark node \"foo\" as schedulable
kloop uncordon foo"
    )]
    Uncordon(node::cordon::Args),
    Top(top::Args),
    Taint(node::taint::Args),
    Drain(node::drain::Args),
    Node(node::Args),
    Image(image::Args),
    ApiResources(api_resources::Args),
    ApiVersions(api_versions::Args),
    Wait(wait::Args),
    Kustomize(kustomize::Args),
    Config(config::Args),
    Completion(completion::Args),
    Reconcile(reconcile::Args),
    Serve(serve::Args),
    Why(why::Args),
    Dns(dns::Args),
    Backup(backup::Args),
    Plan(plan::Args),
    Version(version::Args),
    Help(help::Args),
    /// Print the list of flags inherited by all commands.
    #[command(
        override_usage = "",
        after_help = "\
# Print flags inherited by all commands
kloop options"
    )]
    Options,
}

impl Verb {
    fn run(self, context: &mut CommandContext) -> CliResult {
        match self {
            Verb::Apply(args) => apply::run(args, context),
            Verb::Create(args) => create::run(args, context),
            Verb::Get(args) => get::run(args, context),
            Verb::Describe(args) => describe::run(args, context),
            Verb::Delete(args) => delete::run(args, context),
            Verb::Edit(args) => edit::run(args, context),
            Verb::Diff(args) => diff::run(args, context),
            Verb::Patch(args) => patch::run(args, context),
            Verb::Replace(args) => replace::run(args, context),
            Verb::Set(args) => set::run(args, context),
            Verb::Rollout(args) => rollout::run(args, context),
            Verb::Scale(args) => scale::run(args, context),
            Verb::Autoscale(args) => autoscale::run(args, context),
            Verb::Run(args) => run::run(args, context),
            Verb::Expose(args) => expose::run(args, context),
            Verb::Logs(args) => logs::run(args, context),
            Verb::Attach(args) => attach::run(args, context),
            Verb::Exec(args) => exec::run(args, context),
            Verb::Cp(args) => cp::run(args, context),
            Verb::PortForward(args) => port_forward::run(args, context),
            Verb::Debug(args) => debug::run(*args, context),
            Verb::Events(args) => events::run(args, context),
            Verb::Label(args) => mark::label::run(args, context),
            Verb::Annotate(args) => mark::annotate::run(args, context),
            Verb::Explain(args) => explain::run(args, context),
            Verb::Cordon(args) => node::cordon::run(args, context, true),
            Verb::Uncordon(args) => node::cordon::run(args, context, false),
            Verb::Top(args) => top::run(args, context),
            Verb::Taint(args) => node::taint::run(args, context),
            Verb::Drain(args) => node::drain::run(args, context),
            Verb::Node(args) => node::run(args, context),
            Verb::Image(args) => image::run(args, context),
            Verb::ApiResources(args) => api_resources::run(args, context),
            Verb::ApiVersions(args) => api_versions::run(args, context),
            Verb::Wait(args) => wait::run(args, context),
            Verb::Kustomize(args) => kustomize::run(args, context),
            Verb::Config(args) => config::run(args, context),
            Verb::Completion(args) => completion::run(args, context),
            Verb::Reconcile(args) => reconcile::run(args, context),
            Verb::Serve(args) => serve::run(args, context),
            Verb::Why(args) => why::run(args, context),
            Verb::Dns(args) => dns::run(args, context),
            Verb::Backup(args) => backup::run(args, context),
            Verb::Plan(args) => plan::run(args, context),
            Verb::Version(args) => version::run(args, context),
            Verb::Help(args) => help::run(args, context),
            Verb::Options => context.print(&help::options(&grammar::command())),
        }
    }
}

/// The whole program but for the shim, which is handled before.
pub fn main() -> ExitCode {
    if let Some(code) = completion::answer() {
        return code;
    }
    let matches = match grammar::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage::print_usage_error(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage::print_usage_error(&error),
    };
    let mut context = CommandContext::new(cli.globals);
    context.manager = grammar::manager(&matches);
    if let Err(failure) = diagnostics::start() {
        return context.finish(Err(failure));
    }
    if let Err(failure) = globals::check(&mut context, matches.subcommand_name().unwrap_or_default()) {
        return context.finish(Err(failure));
    }
    // A state that cannot be used is the first thing to say, before a word that names no kind in it. The verb reports it.
    let _ = context.existing();
    let outcome = cli.verb.run(&mut context);
    let is_missing = outcome.as_ref().is_err_and(Failure::is_not_found);
    let code = context.finish(outcome);
    if is_missing {
        // A state that cannot be opened was told of before.
        let _ = control_plane::tell_missing_cluster(&mut context);
    }
    context.tidy();
    code
}
