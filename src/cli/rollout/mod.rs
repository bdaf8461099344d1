//! `kloop rollout`: the rollouts of Deployments, StatefulSets and DaemonSets.
//!
//! Knows: what the verbs below it share. Start reading at [`Verb`].

mod history;
mod pause;
mod restart;
mod revisions;
mod status;
mod undo;

use super::files::FileFlags;
use super::flags::SelectFlags;
use super::targets::{self, Scope, Target};
use super::{Context, Failure, Outcome};
use clap::Subcommand;

/// Manage the rollout of one or many resources.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    History(history::Args),
    /// Mark the provided resource as paused: its template may change, and no rollout starts.
    Pause(pause::Args),
    Restart(restart::Args),
    /// Resume a paused resource.
    Resume(pause::Args),
    Status(status::Args),
    Undo(undo::Args),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    match args.verb {
        Verb::History(args) => history::run(args, context),
        Verb::Pause(args) => pause::run(args, context, true),
        Verb::Restart(args) => restart::run(args, context),
        Verb::Resume(args) => pause::run(args, context, false),
        Verb::Status(args) => status::run(args, context),
        Verb::Undo(args) => undo::run(args, context),
    }
}

/// Which objects a rollout verb is about.
#[derive(clap::Args)]
struct Which {
    /// TYPE NAME, TYPE/NAME, or TYPE for all of it.
    words: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    select: SelectFlags,
}

impl Which {
    fn find(&self, context: &mut Context) -> Outcome<(Vec<Target>, Vec<Failure>)> {
        if self.words.is_empty() && self.files.is_empty() {
            return Err(Failure::plain("required resource not specified"));
        }
        let (files, select) = (Some(&self.files), Some(&self.select));
        targets::find(context, &Scope { words: &self.words, files, select, all: true, ..Scope::default() })
    }
}

/// `Service`, `Deployment.apps`.
fn group_kind(target: &Target) -> String {
    match target.kind.resource.group() {
        "" => target.kind.kind.to_owned(),
        group => format!("{}.{group}", target.kind.kind),
    }
}

/// `deployments.apps "web" why`.
fn about(target: &Target, why: &str) -> Failure {
    Failure::plain(format!("{} {:?} {why}", target.kind.resource, target.object.name()))
}
