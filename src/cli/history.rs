//! `kloop history`: prints the log of changes: time, writer, object and fields of each change.
//!
//! Never: changes the log; [`super::undo`] makes new changes. Start reading at [`run`]. [`format_entries`] defines the form of an entry.

use super::cluster::past;
use super::cluster::targets::{self, Targets};
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::BOOTSTRAP;
use crate::kinds::KindRegistry;
use crate::object::{Key, Time, time};
use crate::show::changes::{FieldChange, field_changes};
use crate::show::escape;
use crate::store::past::read_log_back;
use crate::store::{LogEntry, StoreRead, StoreResult};
use colored::Colorize;
use serde_json::{Value, json};

/// Show who changed what, and when.
///
/// Prints the changes of objects, the newest last: the revision, how long ago, the command or loop, the object, and each field that
/// was changed. With names, all changes of these objects that are kept; without, the latest changes of the cluster, or of the
/// namespace of --namespace. Changes of status are left out unless --all is given. The values of Secrets are hidden.
///
/// "kloop get --at REVISION" shows the cluster as it was, and "kloop undo REVISION" brings it back.
#[derive(clap::Args)]
#[command(
    override_usage = "[TYPE/NAME ...] [--limit NUMBER]",
    after_help = "\
# The latest changes
kloop history

# All changes of a deployment that are kept
kloop history deployment/web

# The same with changes of status
kloop history deployment/web --all

# Changes by commands, not by loops, of the last ten minutes
kloop history --by kloop --since -10m"
)]
pub struct Args {
    /// TYPE/NAME.
    #[arg(value_name = "TYPE/NAME")]
    words: Vec<String>,
    /// Show changes of status and of bookkeeping, too.
    #[arg(long)]
    all: bool,
    /// Show at most this many changes, the newest.
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    limit: usize,
    /// Show changes after a revision, a time (RFC3339), or a time ago, as in --since=-10m.
    #[arg(long, value_name = "REVISION|TIME|-DURATION", allow_hyphen_values = true)]
    since: Option<String>,
    /// Show changes of commands or loops whose name begins with this.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Print the changes as json.
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    output: Option<String>,
}

/// Entries of the log that are read at once.
const BATCH: usize = 256;

/// Kinds that loops write frequently. They are left out because they do not show a user's changes.
const FREQUENT: [&str; 3] = ["events", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io"];

/// A change of an object.
pub struct HistoryEntry {
    /// Its revision.
    pub revision: u64,
    /// The time of the change.
    pub at: Time,
    /// The command or loop that made it.
    pub by: String,
    /// The object.
    pub key: Key,
    /// `created`, `changed`, `deleted`.
    pub what: &'static str,
    /// The fields that changed.
    pub changes: Vec<FieldChange>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let keys = match &args.words[..] {
        [] => None,
        words => Some(parse_keys(context, words)?),
    };
    let after = args.since.as_deref().map(|since| past::find_revision(context, since)).transpose()?.unwrap_or(0);
    let namespace = context.globals.namespace.clone();
    let api = context.require_existing()?;
    let is_wanted = |entry: &LogEntry| {
        let key = &entry.change.stored().key;
        let fits = match &keys {
            Some(keys) => keys.contains(key),
            None => {
                namespace.as_deref().is_none_or(|namespace| *key.namespace == *namespace)
                    && (args.all || !(FREQUENT.contains(&key.resource.0) || &*entry.actor == BOOTSTRAP))
            }
        };
        fits && entry.revision > after && args.by.as_deref().is_none_or(|by| writer_name(&entry.actor).starts_with(by))
    };
    let choose = |entry: &LogEntry| if is_wanted(entry) { read_entry(entry, args.all) } else { None };
    let entries = api.read(|snapshot| match &keys {
        Some(keys) => find_entries_of(snapshot, keys, args.limit, choose),
        None => find_latest(snapshot, args.limit, after, choose),
    })?;
    if args.output.is_some() {
        let values: Vec<Value> = entries.iter().rev().map(|entry| entry_value(entry, context.kinds())).collect();
        return context.print_line(&serde_json::to_string_pretty(&values).unwrap_or_default());
    }
    if entries.is_empty() {
        context.print_notice("No changes found; --all shows changes of status, too.");
        return Ok(());
    }
    let text = format_entries(&entries, context.kinds(), Time::now());
    context.print_styled(&text)
}

/// Returns the keys that arguments name. The objects may have been deleted.
pub fn parse_keys(context: &mut CommandContext, words: &[String]) -> CliResult<Vec<Key>> {
    match targets::parse(context.kinds(), words)? {
        Targets::Named(named) => {
            let key = |(kind, name): (&'static crate::kinds::Kind, String)| {
                Key::new(kind.resource, context.namespace_of(kind), &name)
            };
            Ok(named.into_iter().map(key).collect())
        }
        Targets::Lists(_) => {
            Err(Failure::plain("name the objects, as in deployment/web; without names, all changes are shown"))
        }
    }
}

/// Returns the entries of these objects that `choose` accepts, newest first.
fn find_entries_of(
    snapshot: &dyn StoreRead,
    keys: &[Key],
    limit: usize,
    choose: impl Fn(&LogEntry) -> Option<HistoryEntry>,
) -> StoreResult<Vec<HistoryEntry>> {
    let mut chosen = Vec::new();
    for key in keys {
        chosen.extend(snapshot.history(key)?.iter().filter_map(&choose));
    }
    chosen.sort_by_key(|entry| std::cmp::Reverse(entry.revision));
    chosen.truncate(limit);
    Ok(chosen)
}

/// Returns the latest entries that `choose` accepts, newest first.
fn find_latest(
    snapshot: &dyn StoreRead,
    limit: usize,
    after: u64,
    choose: impl Fn(&LogEntry) -> Option<HistoryEntry>,
) -> StoreResult<Vec<HistoryEntry>> {
    let mut chosen = Vec::new();
    let mut from = snapshot.revision()?;
    while chosen.len() < limit {
        let entries = read_log_back(snapshot, from, BATCH)?;
        let Some(last) = entries.last().map(|entry| entry.revision) else { break };
        chosen.extend(entries.iter().filter_map(&choose).take(limit - chosen.len()));
        if last <= after.max(1) {
            break;
        }
        from = last - 1;
    }
    Ok(chosen)
}

/// Reads the change that an entry of the log made; `None` when it changed nothing that is shown.
fn read_entry(entry: &LogEntry, all: bool) -> Option<HistoryEntry> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let stored = entry.change.stored();
    let (what, changes) = match (&entry.previous, entry.change.live()) {
        (_, None) => ("deleted", Vec::new()),
        (None, Some(_)) => ("created", Vec::new()),
        (Some(before), Some(after)) => {
            let changes = field_changes(&parse(before), &parse(&after.body), all);
            if changes.is_empty() && !all {
                return None;
            }
            ("changed", changes)
        }
    };
    let by = writer_name(&entry.actor).to_owned();
    Some(HistoryEntry { revision: entry.revision, at: entry.at, by, key: stored.key.clone(), what, changes })
}

/// Returns the name of a command or loop, without the number of the process.
pub fn writer_name(actor: &str) -> &str {
    actor.split('#').next().unwrap_or_default()
}

/// Formats the name of an object: `deployment.apps/web`, and the namespace when it is not the default one.
fn format_name(key: &Key, kinds: &KindRegistry) -> String {
    let kind = kinds
        .by_resource(key.resource)
        .map_or_else(|| key.resource.0.to_owned(), crate::kinds::Kind::qualified_singular);
    let place = match &*key.namespace {
        "" | "default" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    format!("{kind}/{}{place}", key.name)
}

/// Formats entries, which are sorted newest first, with the newest last: a line for each, and one below it for each field.
fn format_entries(entries: &[HistoryEntry], kinds: &KindRegistry, now: Time) -> String {
    let revisions = entries.iter().map(|entry| entry.revision.to_string().len()).max().unwrap_or(0);
    let writers = entries.iter().map(|entry| entry.by.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for entry in entries.iter().rev() {
        let ago = format!("{} ago", time::age(now.duration_since(entry.at).as_secs().max(0)));
        let what = match entry.what {
            "created" => entry.what.green(),
            "deleted" => entry.what.red(),
            _ => entry.what.yellow(),
        };
        text.push_str(&format!(
            "{:>revisions$} {ago:>9}  {:writers$}  {} {what}\n",
            entry.revision,
            escape::cell(&entry.by),
            escape::cell(&format_name(&entry.key, kinds)),
        ));
        for change in &entry.changes {
            text.push_str(&format!("{:revisions$}    {}\n", "", format_change(change)));
        }
    }
    text
}

/// Formats the change of one field.
pub fn format_change(change: &FieldChange) -> String {
    let path = escape::cell(&change.path);
    let value = |text: &String| escape::cell(text);
    match (&change.before, &change.after) {
        (None, Some(after)) => format!("+ {path}: {}", value(after)).green().to_string(),
        (Some(before), None) => format!("- {path}: {}", value(before)).red().to_string(),
        (before, after) => {
            let text = |side: &Option<String>| side.as_ref().map(value).unwrap_or_default();
            format!("{path}: {} -> {}", text(before).red(), text(after).green())
        }
    }
}

fn entry_value(entry: &HistoryEntry, kinds: &KindRegistry) -> Value {
    let changes: Vec<Value> = entry
        .changes
        .iter()
        .map(|change| json!({"path": change.path, "before": change.before, "after": change.after}))
        .collect();
    json!({
        "revision": entry.revision, "at": time::rfc3339(entry.at), "by": entry.by, "namespace": &*entry.key.namespace,
        "object": format_name(&entry.key, kinds).split(' ').next(), "change": entry.what, "fields": changes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Resource;

    #[test]
    fn entries_are_printed_newest_last_with_their_fields() {
        colored::control::set_override(false);
        let entry = |revision, by: &str, what, changes| HistoryEntry {
            revision,
            at: Time::UNIX_EPOCH,
            by: by.to_owned(),
            key: Key::new(Resource("deployments.apps"), "shop", "web"),
            what,
            changes,
        };
        let change = |before: Option<&str>, after: Option<&str>| FieldChange {
            path: "spec.replicas".to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let entries = [
            entry(112, "kloop scale", "changed", vec![change(Some("1"), Some("3")), change(None, Some("a\u{1b}b"))]),
            entry(9, "kloop apply", "created", Vec::new()),
        ];
        let now = Time::UNIX_EPOCH + jiff::SignedDuration::from_secs(90);
        let expected = "  9   90s ago  kloop apply  deployment.apps/web -n shop created
112   90s ago  kloop scale  deployment.apps/web -n shop changed
       spec.replicas: 1 -> 3
       + spec.replicas: a^[b
";
        assert_eq!(format_entries(&entries, &KindRegistry::default(), now), expected);
    }

    #[test]
    fn writer_is_shown_without_its_process() {
        assert_eq!((writer_name("kloop apply#77"), writer_name("reconcile")), ("kloop apply", "reconcile"));
    }
}
