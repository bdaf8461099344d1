//! `kloop get -w`: prints the existing objects, then every change as a row.

use super::{Args, OutputFormat};
use crate::apiserver::aggregation::API_SERVICES;
use crate::apiserver::local_api_services::LocalVersions;
use crate::apiserver::read;
use crate::apiserver::watch::{EventKind, WatchSelection, events_after};
use crate::cli::deadline::Deadline;
use crate::cli::server_watch::{self, WatchedObjects};
use crate::cli::targets::{self, Targets};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::object::Object;
use crate::object::selector::FieldSelector;
use crate::show::print::ObjectPrinter;
use crate::show::table::{self, Table};

pub fn run(args: &Args, format: &OutputFormat, context: &mut CommandContext) -> CliResult {
    let (kind, name) = match targets::parse(context.kinds(), &args.which.words)? {
        Targets::Named(named) => match &named[..] {
            [(kind, name)] => (*kind, Some(name.clone())),
            _ => {
                return Err(Failure::plain("watch is only supported on individual resources and resource collections"));
            }
        },
        Targets::Lists(kinds) => match kinds[..] {
            [kind] => (kind, None),
            _ => return Err(Failure::plain("you may only specify a single resource type")),
        },
    };
    let mut selection = targets::list_selection(&args.which.select, kind)?;
    if let Some(name) = &name {
        selection.fields = FieldSelector::parse(&format!("metadata.name={name}")).ok();
    }
    let namespace = context.namespace().to_owned();
    let namespace = Some(namespace.as_str()).filter(|_| kind.namespaced && !args.all_namespaces);
    if args.sort_by.is_some() {
        context.print_notice("warning: --watch requested, --sort-by will be ignored for watch events received");
    }
    let mut show = WatchPrinter::new(args, format, kind);
    if context.client().is_some() {
        let watched = WatchedObjects { kind, namespace: namespace.map(str::to_owned), selection };
        return server_watch::run(&watched, name, args.watch_only, context, &mut |context, event, objects| {
            show.print(context, event, objects)
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
