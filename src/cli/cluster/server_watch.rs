//! Watches of a server: reports the existing objects, then each change, across the end of one watch and the start of the next.
//!
//! Knows: a server ends watches after minutes, and forgets old revisions; then the objects are listed again, and those that have changed
//! are reported. Start reading at [`run`].

use crate::apiserver::read::ListSelection;
use crate::apiserver::remote;
use crate::apiserver::watch::EventKind;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::{ClientError, WatchLine};
use crate::kinds::Kind;
use crate::object::{Object, Reason, Status};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The longest wait for one event.
const MAX_EVENT_WAIT: Duration = Duration::from_secs(3600);
/// The wait before a list after a watch that failed.
const RELIST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of objects whose revisions are remembered, so that a list after a watch reports only changed objects.
const MAX_REMEMBERED: usize = 1_000_000;

/// The objects of a watch.
pub struct WatchedObjects {
    /// The kind of the objects.
    pub kind: &'static Kind,
    /// The namespace of the objects; `None` for all.
    pub namespace: Option<String>,
    /// The label and field selectors.
    pub selection: ListSelection,
}

/// The beginning and the end of a watch.
#[derive(Default)]
pub struct WatchBounds {
    /// The name of a single object, which has to exist.
    pub name: Option<String>,
    /// Whether the initial objects are left out.
    pub changes_only: bool,
    /// The end; `None` for that of `--request-timeout`.
    pub until: Option<Instant>,
}

/// Called with a change and its objects. Returns whether the watch continues.
pub type WatchReport<'r> = dyn FnMut(&mut CommandContext, EventKind, &[Object]) -> CliResult<ControlFlow<()>> + 'r;

/// Reports the objects and their changes until the report ends the watch, or the time is over.
pub fn run(
    watched: &WatchedObjects,
    bounds: &WatchBounds,
    context: &mut CommandContext,
    report: &mut WatchReport<'_>,
) -> CliResult {
    let timeout = context.globals.request_timeout()?;
    let until = bounds.until.or_else(|| Instant::now().checked_add(timeout?));
    let mut known: BTreeMap<String, Object> = BTreeMap::new();
    let mut is_first = true;
    loop {
        let (objects, revision) = list(watched, context)?;
        if is_first
            && objects.is_empty()
            && !bounds.changes_only
            && let Some(name) = &bounds.name
        {
            return Err(Status::not_found(watched.kind.resource, name).into());
        }
        if (!is_first || !bounds.changes_only)
            && report_difference(&known, &objects, is_first, context, report)?.is_break()
        {
            return Ok(());
        }
        known = objects.into_iter().take(MAX_REMEMBERED).map(|object| (object.uid().to_owned(), object)).collect();
        is_first = false;
        if follow(watched, revision, until, &mut known, context, report)?.is_break() {
            return Ok(());
        }
        std::thread::sleep(RELIST_PAUSE);
    }
}

fn list(watched: &WatchedObjects, context: &mut CommandContext) -> CliResult<(Vec<Object>, String)> {
    let remote = context.require_remote()?;
    Ok(remote.list_at_revision(watched.kind, watched.namespace.as_deref(), &watched.selection.query())?)
}

/// Reports the difference between a new list and the known objects.
fn report_difference(
    known: &BTreeMap<String, Object>,
    objects: &[Object],
    is_first: bool,
    context: &mut CommandContext,
    report: &mut WatchReport<'_>,
) -> CliResult<ControlFlow<()>> {
    if is_first {
        return report(context, EventKind::Added, objects);
    }
    let changed = objects.iter().filter_map(|object| match known.get(object.uid()) {
        None => Some((EventKind::Added, object)),
        Some(old) => (old != object).then_some((EventKind::Modified, object)),
    });
    let is_gone = |old: &&Object| objects.iter().all(|object| object.uid() != old.uid());
    for (event, object) in changed.chain(known.values().filter(is_gone).map(|old| (EventKind::Deleted, old))) {
        if report(context, event, std::slice::from_ref(object))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Reports changes until the watch ends. Breaks when the time is over, or the report ends the watch.
fn follow(
    watched: &WatchedObjects,
    mut revision: String,
    until: Option<Instant>,
    known: &mut BTreeMap<String, Object>,
    context: &mut CommandContext,
    report: &mut WatchReport<'_>,
) -> CliResult<ControlFlow<()>> {
    loop {
        let remote = context.require_remote()?;
        let query = watched.selection.query();
        let watch = match remote.watch(watched.kind, watched.namespace.as_deref(), &query, &revision) {
            // Listed again.
            Err(status) if status.reason == Reason::Expired => return Ok(ControlFlow::Continue(())),
            watch => watch?,
        };
        loop {
            let left = until.map_or(MAX_EVENT_WAIT, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(ControlFlow::Break(()));
            }
            match watch.next(left.min(MAX_EVENT_WAIT)) {
                Ok(None) => {}
                Ok(Some(line)) => {
                    let (next, flow) = report_line(line, known, context, report)?;
                    if flow.is_break() {
                        return Ok(flow);
                    }
                    revision = next;
                }
                // Servers end a watch after minutes: the next watch continues.
                Err(None) => break,
                Err(Some(error)) if error.code() == 410 || error.is_temporary() => {
                    return Ok(ControlFlow::Continue(()));
                }
                Err(Some(error)) => return Err(ended(context, error)),
            }
        }
    }
}

fn ended(context: &CommandContext, error: ClientError) -> Failure {
    match context.client() {
        Some(client) => remote::refusal(client, error).into(),
        None => Failure::plain(error.to_string()),
    }
}

/// Reports an event. Returns the revision at which the next watch continues, and whether this one continues.
fn report_line(
    line: WatchLine,
    known: &mut BTreeMap<String, Object>,
    context: &mut CommandContext,
    report: &mut WatchReport<'_>,
) -> CliResult<(String, ControlFlow<()>)> {
    let object = Object(line.object);
    let revision = object.text(&["metadata", "resourceVersion"]).unwrap_or_default().to_owned();
    let event = match line.event.as_str() {
        "ADDED" => EventKind::Added,
        "MODIFIED" => EventKind::Modified,
        "DELETED" => EventKind::Deleted,
        _ => return Ok((revision, ControlFlow::Continue(()))),
    };
    let flow = report(context, event, std::slice::from_ref(&object))?;
    match event {
        EventKind::Deleted => drop(known.remove(object.uid())),
        _ if known.len() < MAX_REMEMBERED => drop(known.insert(object.uid().to_owned(), object)),
        _ => {}
    }
    Ok((revision, flow))
}
