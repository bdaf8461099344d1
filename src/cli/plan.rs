//! `kloop plan`: shows the changes that manifests would cause.

use super::cluster::targets;
use super::command_line::flags::PrintFlags;
use super::manifests::files::{self, FileFlags};
use super::{CliResult, CommandContext, Failure, why};
use crate::apiserver::WriteOptions;
use crate::apiserver::apply::{self, ApplyOutcome};
use crate::diagnosis::preview::{Preview, PreviewResult};
use crate::diagnosis::why::{ConvergenceState, name};
use crate::object::{Key, time};
use crate::reconcile::LogLine;
use crate::runtime::capacity;
use crate::show::escape;
use colored::Colorize;
use jiff::SignedDuration;
use serde_json::{Value, json};

/// Show what would happen if manifests were applied, without applying them.
///
/// The manifests are applied to a copy of the state in memory, and the real loops run forward on a simulated machine with a simulated
/// clock. Each step is a line: the time, the loop, the object and the reason. A summary lists the objects that would be created,
/// changed and deleted. Programs are assumed to start and to pass their probes; images that this machine cannot run, pods that fit
/// no node, quotas and missing objects are found.
///
/// Exit codes: 0 when everything would converge, 1 when it would be stuck (the place is shown), and 2 when it is still converging
/// after --until.
#[derive(clap::Args)]
#[command(
    override_usage = "-f FILENAME",
    after_help = "\
# What would this do?
kloop plan -f web.yaml

# The same for a program
kloop plan -f web.yaml -o json

# Only the next ten seconds
kloop plan -f web.yaml --until 10s"
)]
pub struct Args {
    #[command(flatten)]
    files: FileFlags,
    /// Maximum simulated time. Progress deadlines are ten minutes unless the manifest sets another one.
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = time::parse_duration)]
    until: SignedDuration,
    #[command(flatten)]
    print: PrintFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    args.files.required()?;
    let mut printer = args.print.answer_printer()?;
    let (manifests, mut failures) = files::read_for(context, &args.files, "plan")?;
    targets::hint_duplicates(context, &manifests);
    let (machine, now) = (capacity::measure_capacity(None, &context.state()), context.now());
    context.copy_server_objects()?;
    let store = context.existing()?.map(|api| api.store());
    let mut preview = Preview::new(store, machine, now)?;
    let (mut applied, mut steps) = (Vec::new(), Vec::new());
    for manifest in &manifests {
        match apply_manifest(context, &mut preview, manifest) {
            Ok((key, word)) => {
                let line =
                    PlanStep { after: SignedDuration::ZERO, by: "apply", about: name(&key), what: word.to_owned() };
                applied.push((key, line));
            }
            Err(failure) => failures.push(failure),
        }
    }
    if applied.is_empty() && !failures.is_empty() {
        // No manifest could be applied, so that there is no convergence to report.
        return Failure::from_failures(failures);
    }
    let is_quiet = printer.is_some();
    let mut show = |step: PlanStep| {
        if !is_quiet {
            step.print(context)?;
        }
        steps.push(step);
        Ok::<(), Failure>(())
    };
    let (keys, first): (Vec<Key>, Vec<PlanStep>) = applied.into_iter().unzip();
    first.into_iter().try_for_each(&mut show)?;
    let mut shown = Ok(());
    let result = preview.run(&keys, args.until, &mut |after, line| {
        if shown.is_ok() {
            shown = show(PlanStep::from_line(after, line));
        }
    })?;
    shown?;
    match &mut printer {
        Some(printer) => {
            let text = printer.object(&value(&result, &steps, now))?;
            context.print(&text)?;
        }
        None => context.print_styled(&summary(&result, now))?,
    }
    Failure::from_failures(failures)?;
    match result.state() {
        ConvergenceState::Converged => Ok(()),
        ConvergenceState::Stuck => Err(Failure::Code(1)),
        ConvergenceState::Converging => Err(Failure::Code(2)),
    }
}

/// Applies one manifest to the preview.
fn apply_manifest(
    context: &mut CommandContext,
    preview: &mut Preview,
    manifest: &files::Manifest,
) -> CliResult<(Key, &'static str)> {
    targets::check_type(manifest)?;
    let (kind, key) = targets::locate(context, manifest)?;
    let object = targets::prepare_object(manifest, kind, &key);
    let options = WriteOptions::default();
    let done = preview
        .write(|txn| apply::apply(txn, kind, &object, true, &options))
        .map_err(|status| manifest.refusal("applying", status))?;
    context.warn(&done.warnings);
    let word = match done.outcome {
        ApplyOutcome::Created => "created",
        ApplyOutcome::Configured => "configured",
        ApplyOutcome::Unchanged => "unchanged",
    };
    Ok((key, word))
}

/// One step of the simulation.
struct PlanStep {
    after: SignedDuration,
    by: &'static str,
    about: String,
    what: String,
}

impl PlanStep {
    fn from_line(after: SignedDuration, line: &LogLine) -> PlanStep {
        let about = line.about.as_ref().map(name).unwrap_or_default();
        PlanStep { after, by: line.by, about, what: line.text.clone() }
    }

    fn print(&self, context: &mut CommandContext) -> CliResult {
        let text = format!("{}: {}", self.about, self.what);
        let (clock, text) = (clock(self.after), escape::text(&text));
        context.print_styled(&format!("{} {} {text}\n", clock.dimmed(), self.by.cyan()))
    }
}

/// Formats a time as `+12.5s` or `+10m30s`.
fn clock(after: SignedDuration) -> String {
    let seconds = after.as_millis() as f64 / 1000.0;
    match after.as_secs() {
        0..120 => format!("{:>7}", format!("+{seconds:.1}s")),
        long => format!("{:>7}", format!("+{}", time::age(long))),
    }
}

/// Summarizes changed objects and their convergence.
fn summary(result: &PreviewResult, now: crate::object::Time) -> String {
    let mut text = String::from("\n");
    for (mark, keys) in [("+", &result.created), ("~", &result.changed), ("-", &result.deleted)] {
        keys.iter().for_each(|key| text.push_str(&format!("{mark} {key}\n")));
    }
    if result.besides > 0 {
        text.push_str(&format!("left out: {} scheduled actions of other CronJobs\n", result.besides));
    }
    let counts = [&result.created, &result.changed, &result.deleted].map(Vec::len);
    let duration = |after: SignedDuration| clock(after).trim().trim_start_matches('+').to_owned();
    let after = duration(result.took);
    let [created, changed, deleted] = counts;
    let ends = match result.state() {
        ConvergenceState::Converged => format!("converges after {after}"),
        ConvergenceState::Converging => format!("is still converging after {after}"),
        ConvergenceState::Stuck => match result.stuck.map(duration).filter(|since| *since != after) {
            Some(since) => format!("is stuck after {since} (simulated {after})"),
            None => format!("is stuck after {after}"),
        },
    };
    text.push_str(&format!("{ends}: {created} created, {changed} changed, {deleted} deleted\n"));
    let mut text = escape::text(&text);
    let troubled = result.answers.iter().filter(|answer| answer.state() != ConvergenceState::Converged);
    troubled.for_each(|answer| text.push_str(&format!("\n{}", why::page(answer, now + result.took))));
    text
}

/// Returns the result for `--output`.
fn value(result: &PreviewResult, steps: &[PlanStep], now: crate::object::Time) -> Value {
    let names = |keys: &[Key]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    let seconds = |after: SignedDuration| after.as_millis() as f64 / 1000.0;
    let steps = steps
        .iter()
        .map(|step| json!({"after": seconds(step.after), "loop": step.by, "about": step.about, "what": step.what}));
    json!({
        "state": result.state().word(), "after": seconds(result.stuck.unwrap_or(result.took)),
        "until": seconds(result.took), "steps": steps.collect::<Vec<_>>(),
        "created": names(&result.created), "changed": names(&result.changed), "deleted": names(&result.deleted),
        "besides": result.besides,
        "why": result.answers.iter().map(|answer| why::answer_value(answer, now + result.took)).collect::<Vec<_>>(),
    })
}
