//! `kloop get -w`: prints the existing objects, then every change as a row.

use super::{Args, OutputFormat, check_named};
use crate::apiserver::aggregation::API_SERVICES;
use crate::apiserver::local_api_services::LocalVersions;
use crate::apiserver::read;
use crate::apiserver::watch::{EventKind, WatchSelection, events_after};
use crate::cli::cluster::deadline::Deadline;
use crate::cli::cluster::server_watch::{self, WatchBounds, WatchedObjects};
use crate::cli::cluster::targets::{self, Targets};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::object::Object;
use crate::object::selector::FieldSelector;
use crate::show::print::ObjectPrinter;
use crate::show::table::{self, Table};
use std::ops::ControlFlow;

/// Runs the verb with `--watch` or `--watch-only`.
pub fn run(args: &Args, format: &OutputFormat, context: &mut CommandContext) -> CliResult {
    let (kind, object) = match find_watched(args, context)? {
        WatchTarget::Nothing => return Ok(()),
        WatchTarget::Kind(kind) => (kind, None),
        WatchTarget::Objects(kind, mut objects) if objects.len() == 1 => (kind, objects.pop()),
        WatchTarget::Objects(kind, objects) => {
            if !args.watch_only {
                WatchPrinter::new(args, format, kind).print(context, EventKind::Added, &objects)?;
            }
            return Err(Failure::plain("you may only watch a single resource or type of resource at a time"));
        }
    };
    let mut selection = targets::list_selection(&args.which.select, kind)?;
    let name = object.as_ref().map(|object| object.name().to_owned());
    if let Some(name) = &name {
        selection.fields = FieldSelector::parse(&format!("metadata.name={name}")).ok();
    }
    let namespace = object.map_or_else(|| context.namespace().to_owned(), |object| object.namespace().to_owned());
    let namespace = Some(namespace.as_str()).filter(|_| kind.namespaced && !args.all_namespaces);
    if args.sort_by.is_some() {
        context.print_notice(unsorted_notice(args.watch_only));
    }
    let mut show = WatchPrinter::new(args, format, kind);
    if context.client().is_some() {
        let watched = WatchedObjects { kind, namespace: namespace.map(str::to_owned), selection };
        let bounds = WatchBounds { name, changes_only: args.watch_only, until: None };
        return server_watch::run(&watched, &bounds, context, &mut |context, event, objects| {
            show.print(context, event, objects).map(ControlFlow::Continue)
        });
    }
    let mut revision = context.api()?.read(|snapshot| snapshot.revision())?;
    if !args.watch_only {
        let objects = context.read_view(|txn| read::list(txn, kind, namespace, &selection))?;
        if objects.is_empty() && name.is_some() {
            return Err(crate::object::Status::not_found(kind.resource, name.as_deref().unwrap_or_default()).into());
        }
        revision = objects.iter().map(Object::revision).max().unwrap_or(revision).max(revision);
        show.print(context, EventKind::Added, &objects)?;
    }
    let timeout = context.globals.request_timeout()?;
    let patience = Deadline::new(context, timeout)?;
    let is_local = kind.resource == API_SERVICES;
    let local = if is_local { Some(context.api()?.read_as_server(LocalVersions::read)?) } else { None };
    let watched = WatchSelection { kind, namespace, wanted: &selection, local: local.as_ref() };
    loop {
        let (events, last) = {
            let snapshot = context.api()?.store().read().map_err(|error| Failure::plain(error.to_string()))?;
            events_after(&snapshot, &watched, revision)?
        };
        for event in &events {
            show.print(context, event.kind, std::slice::from_ref(&event.object))?;
        }
        if last == revision && !patience.wait() {
            return Ok(());
        }
        revision = last;
    }
}

/// kubectl's warning that a watch does not sort.
fn unsorted_notice(watch_only: bool) -> &'static str {
    match watch_only {
        true => "warning: --watch-only requested, --sort-by will be ignored",
        false => "warning: --watch requested, --sort-by will be ignored for watch events received",
    }
}

/// The objects that a command line asks to watch.
enum WatchTarget {
    /// No object: those that are named do not exist, which `--ignore-not-found` allows.
    Nothing,
    /// The objects of a kind.
    Kind(&'static Kind),
    /// Objects of a kind by name.
    Objects(&'static Kind, Vec<Object>),
}

/// Finds the objects to watch. Refuses several types.
fn find_watched(args: &Args, context: &mut CommandContext) -> CliResult<WatchTarget> {
    let single_type = || Failure::plain("you may only specify a single resource type");
    if !args.which.files.names_objects_instead_of(&args.which.words)? {
        match targets::parse(context.kinds(), &args.which.words)? {
            Targets::Lists(kinds) => {
                return match kinds[..] {
                    [] => Err(targets::no_resources()),
                    [kind] => Ok(WatchTarget::Kind(kind)),
                    _ => Err(single_type()),
                };
            }
            Targets::Named(named) if has_several_types(named.iter().map(|(kind, _)| *kind)) => {
                return Err(single_type());
            }
            Targets::Named(_) => check_named(args)?,
        }
    }
    let (found, failures) = targets::find(context, &args.which.scope())?;
    let is_ignored = |failure: &Failure| args.ignore_not_found && failure.is_not_found();
    if let Some(failure) = failures.into_iter().find(|failure| !is_ignored(failure)) {
        return Err(failure);
    }
    if has_several_types(found.iter().map(|target| target.kind)) {
        let text =
            "watch is only supported on individual resources and resource collections - more than 1 resource was found";
        return Err(Failure::plain(text));
    }
    if args.which.words.is_empty() && found.len() > 1 {
        return Err(Failure::plain(format!(
            "watch is only supported on individual resources and resource collections - {} resources were found",
            found.len()
        )));
    }
    Ok(match found.first() {
        None => WatchTarget::Nothing,
        Some(first) => WatchTarget::Objects(first.kind, found.into_iter().map(|target| target.object).collect()),
    })
}

fn has_several_types(mut kinds: impl Iterator<Item = &'static Kind>) -> bool {
    let first = kinds.next();
    kinds.any(|kind| Some(kind.resource) != first.map(|first| first.resource))
}

/// Prints the watched objects as rows or in another format.
struct WatchPrinter {
    kind: &'static Kind,
    tables: table::TablePrinter,
    objects: Option<ObjectPrinter>,
    events: bool,
    prefix: bool,
}

impl WatchPrinter {
    fn new(args: &Args, format: &OutputFormat, kind: &'static Kind) -> WatchPrinter {
        let wide = matches!(format, OutputFormat::Table { wide: true });
        let objects = (!matches!(format, OutputFormat::Table { .. }))
            .then(|| ObjectPrinter::new(format.clone(), args.print.show_managed_fields));
        let tables = table::TablePrinter::new(args.table_options(wide, kind.namespaced));
        WatchPrinter { kind, tables, objects, events: args.output_watch_events, prefix: args.show_kind }
    }

    fn print(&mut self, context: &mut CommandContext, event: EventKind, objects: &[Object]) -> CliResult {
        let singular = self.kind.qualified_singular();
        let mut text = String::new();
        match &mut self.objects {
            Some(printer) => {
                for object in objects {
                    let text_of_object = if self.events {
                        printer.event(event.word(), &object.0)?
                    } else {
                        printer.object(&object.0)?
                    };
                    text.push_str(&text_of_object);
                }
            }
            None if objects.is_empty() => {}
            None => {
                let table = Table::for_kind(self.kind, objects, context.now());
                text = match self.events {
                    true => self.tables.print_event(event.word(), &table, &singular, self.prefix),
                    false => self.tables.print(&table, &singular, self.prefix),
                };
            }
        }
        context.print(&text)
    }
}
