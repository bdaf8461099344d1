//! `kloop events`: lists events, oldest first.

use super::cluster::control_plane;
use super::cluster::deadline::Deadline;
use super::cluster::server_watch::{self, WatchBounds, WatchedObjects};
use super::cluster::targets::{self, Targets};
use super::command_line::flags::PrintFlags;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::watch::{EventKind, WatchSelection, events_after};
use crate::kinds::{self, Kind, KindRegistry};
use crate::object::Object;
use crate::object::selector::FieldSelector;
use crate::show::{events, table};
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// Display events.
///
/// Prints a table of the most important information about events. You can request events for a namespace, for all namespace, or
/// filtered to only those pertaining to a specified resource.
#[derive(clap::Args)]
#[command(
    override_usage = "[-o FORMAT] [--for TYPE/NAME] [--watch] [--types=Normal,Warning]",
    after_help = "\
# List recent events in the default namespace
kloop events

# List recent events in all namespaces
kloop events --all-namespaces

# List recent events for the specified pod, then wait for more events and list them as they arrive
kloop events --for pod/web-pod-13je7 --watch

# List recent events in YAML format
kloop events -o yaml

# List recent only events of type 'Warning' or 'Normal'
kloop events --types=Warning,Normal"
)]
pub struct Args {
    #[command(flatten)]
    print: PrintFlags,
    /// If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified
    /// with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Filter events to only those pertaining to the specified resource: TYPE/NAME.
    #[arg(long = "for", value_name = "TYPE/NAME")]
    about: Option<String>,
    /// Output only events of given types: Normal, Warning.
    #[arg(long, value_delimiter = ',', value_name = "TYPE")]
    types: Vec<String>,
    /// After listing the requested events, watch for more events.
    #[arg(short, long)]
    watch: bool,
    /// When using the default output format, don't print headers.
    #[arg(long)]
    no_headers: bool,
    /// Return large lists in chunks rather than all at once. Pass 0 to disable. A state file is read at once.
    #[arg(long, default_value_t = 500, value_name = "N")]
    chunk_size: i64,
    /// Ignored, as kubectl does.
    #[arg(hide = true)]
    _surplus: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    context.set_chunk_size(args.chunk_size);
    let known = |word: &String| ["normal", "warning"].contains(&word.to_lowercase().as_str());
    if !args.types.iter().all(known) {
        return Err(Failure::plain("valid --types are Normal or Warning"));
    }
    let Some(kind) = kinds::by_name("events") else { return Ok(()) };
    let selection = ListSelection { labels: None, fields: for_selector(context.kinds(), &args)? };
    let namespace = context.namespace().to_owned();
    let namespace = Some(namespace.as_str()).filter(|_| !args.all_namespaces);
    let revision = context.existing()?.map_or(Ok(0), |api| api.read(|snapshot| snapshot.revision()))?;
    let mut found = context.read_view(|txn| read::list(txn, kind, namespace, &selection))?;
    found.retain(|event| is_of_type(&args, event));
    let printer = args.print.printer()?;
    if found.is_empty() && !args.watch {
        let place = namespace.map(|name| format!(" in {name} namespace")).unwrap_or_default();
        return control_plane::print_nothing_found(context, &format!("No events found{place}."));
    }
    if let Some(mut printer) = printer {
        events::sort(&mut found);
        let items: Vec<Value> = found.into_iter().map(|event| event.0).collect();
        let frame = |items| json!({"apiVersion": "v1", "items": items, "kind": "EventList", "metadata": {}});
        return context.print(&printer.list_in(items, frame)?);
    }
    let options = table::TableOptions {
        no_headers: args.no_headers,
        with_namespace: args.all_namespaces,
        ..table::TableOptions::default()
    };
    let mut printer = table::TablePrinter::new(options);
    let text = printer.print(&events::table(&mut found, context.now()), "event", false);
    context.print(&text)?;
    if args.watch { watch(&args, context, &mut printer, kind, namespace, &selection, revision) } else { Ok(()) }
}

/// The field selector for `--for`.
fn for_selector(kinds: &KindRegistry, args: &Args) -> CliResult<Option<FieldSelector>> {
    let Some(text) = &args.about else { return Ok(None) };
    let form = "--for must be in resource/name form";
    if !text.contains('/') {
        return Err(Failure::plain(form));
    }
    let Targets::Named(named) =
        targets::parse(kinds, std::slice::from_ref(text)).and_then(|targets| match targets {
            Targets::Lists(_) => Err(Failure::plain(form)),
            named => Ok(named),
        })?
    else {
        return Err(Failure::plain(form));
    };
    let Some((kind, name)) = named.first() else { return Err(Failure::plain(form)) };
    let selector = format!("involvedObject.kind={},involvedObject.name={name}", kind.kind);
    Ok(Some(FieldSelector::parse(&selector).map_err(|error| Failure::plain(error.to_string()))?))
}

fn is_of_type(args: &Args, event: &Object) -> bool {
    let actual = event.text(&["type"]).unwrap_or_default();
    args.types.is_empty() || args.types.iter().any(|name| name.eq_ignore_ascii_case(actual))
}

/// Prints each further event as a row, until it is interrupted.
fn watch(
    args: &Args,
    context: &mut CommandContext,
    printer: &mut table::TablePrinter,
    kind: &'static Kind,
    namespace: Option<&str>,
    selection: &ListSelection,
    mut revision: u64,
) -> CliResult {
    if context.client().is_some() {
        let watched = WatchedObjects { kind, namespace: namespace.map(str::to_owned), selection: selection.clone() };
        let bounds = WatchBounds { changes_only: true, ..WatchBounds::default() };
        return server_watch::run(&watched, &bounds, context, &mut |context, change, objects| {
            print_news(args, context, printer, change, objects).map(ControlFlow::Continue)
        });
    }
    let timeout = context.globals.request_timeout()?;
    let patience = Deadline::new(context, timeout)?;
    let watched = WatchSelection { kind, namespace, wanted: selection, local: None };
    loop {
        let (news, last) = {
            let snapshot = context.api()?.store().read().map_err(|error| Failure::plain(error.to_string()))?;
            events_after(&snapshot, &watched, revision)?
        };
        for event in news {
            print_news(args, context, printer, event.kind, &[event.object])?;
        }
        if last == revision && !patience.wait() {
            return Ok(());
        }
        revision = last;
    }
}

/// Prints events that are new or have changed, each as a row.
fn print_news(
    args: &Args,
    context: &mut CommandContext,
    printer: &mut table::TablePrinter,
    change: EventKind,
    found: &[Object],
) -> CliResult {
    if change == EventKind::Deleted {
        return Ok(());
    }
    for event in found.iter().filter(|event| is_of_type(args, event)) {
        let text = printer.print(&events::table(&mut [event.clone()], context.now()), "event", false);
        context.print(&text)?;
    }
    Ok(())
}
