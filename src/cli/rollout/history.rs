//! `kloop rollout history`: prints the revisions of a workload, or one of them.

use super::revisions::{self, WorkloadRevision, described};
use super::{for_each_workload, group_kind};
use crate::cli::cluster::change_cause::CHANGE_CAUSE;
use crate::cli::cluster::targets::{Target, TargetFlags};
use crate::cli::command_line::flags::PrintFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Object;
use crate::show::columns;

/// View previous rollout revisions and configurations.
#[derive(clap::Args)]
#[command(
    override_usage = "(TYPE NAME | TYPE/NAME)",
    after_help = "\
# View the rollout history of a deployment
kloop rollout history deployment/abc

# View the details of daemonset revision 3
kloop rollout history daemonset/abc --revision=3"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    print: PrintFlags,
    /// See the details, including the pod template, of the revision specified.
    #[arg(long, default_value_t = 0, value_name = "REVISION", allow_negative_numbers = true)]
    revision: i64,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if args.revision < 0 {
        return Err(Failure::plain(format!("revision must be a positive integer: {}", args.revision)));
    }
    for_each_workload(context, &args.which, |context, target| print_history(&args, context, target))
}

fn print_history(args: &Args, context: &mut CommandContext, target: &Target) -> CliResult {
    let Some(revisions) = revisions::workload_revisions(context, target)? else {
        let kind = group_kind(target);
        return Err(Failure::plain(format!("no history viewer has been implemented for {kind:?}")));
    };
    let requested = revisions.iter().find(|revision| revision.number == args.revision);
    if let Some(mut printer) = args.print.printer()? {
        if args.print.output.is_none() {
            // As in kubectl, --template alone is for the workload itself.
            let text = printer.object(&target.object.0)?;
            return context.print(&text);
        }
        let shown =
            if args.revision > 0 { requested.into_iter().collect() } else { revisions.iter().collect::<Vec<_>>() };
        for revision in shown {
            let text = printer.object(&revision.object.0)?;
            context.print(&text)?;
        }
        return Ok(());
    }
    let name = context.name_of(target.kind, &target.object);
    let text = match (args.revision, requested) {
        (0, _) if revisions.is_empty() => format!("{name} \nNo rollout history found.\n"),
        (0, _) => format!("{name} \n{}\n", table(&revisions)),
        (wanted, _) if revisions.is_empty() => format!("{name} with revision #{wanted}\nNo rollout history found.\n"),
        (_, Some(revision)) => format!("{name} with revision #{}\n{}\n", args.revision, template(revision)),
        (_, None) => return Err(Failure::plain("unable to find the specified revision")),
    };
    context.print(&text)
}

fn table(revisions: &[WorkloadRevision]) -> String {
    let mut text = "REVISION\tCHANGE-CAUSE\n".to_owned();
    for revision in revisions {
        let cause = crate::show::escape::cell(revision.change_cause().unwrap_or("<none>"));
        text.push_str(&format!("{}\t{cause}\n", revision.number));
    }
    columns::align(&text, columns::DESCRIPTION)
}

/// The template, with the revision's change cause among its annotations.
fn template(revision: &WorkloadRevision) -> String {
    let mut template = Object(revision.template.clone());
    if let Some(cause) = revision.change_cause() {
        template.set(&["metadata", "annotations", CHANGE_CAUSE], cause);
    }
    described(&template.0)
}
