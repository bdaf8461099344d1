//! `kloop get`: prints objects as tables or in other formats, once or with their changes.

use super::cluster::control_plane;
use super::cluster::past::AtFlag;
use super::cluster::targets::{self, TargetFlags, Targets};
use super::command_line::flags::PrintFlags;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::scale::scale;
use crate::apiserver::update::UpdatePart;
use crate::apiserver::{ApiResult, Transaction};
use crate::kinds::view::part_read_by_cells;
use crate::kinds::{self, Kind};
use crate::object::sparse::ReadPart;
use crate::object::{Key, Object, Status, Time};
use crate::runtime::allocator::use_mimalloc;
use crate::show::print::{ObjectPrinter, OutputFormat, kind_in_names};
use crate::show::sort::SortBy;
use crate::show::table::{Table, TableLines, TableOptions, TablePrinter};

pub mod computed;
mod raw;
mod watch;

/// Objects of a page that are enough for mimalloc to save more time than a command needs to start it.
const LONG_PAGE: usize = 100;

/// Display one or many resources.
///
/// Prints a table of the most important information about the specified resources. You can filter the list using a label
/// selector and the --selector flag. If the desired resource type is namespaced you will only see results in the current
/// namespace if you don't specify any namespace.
///
/// By specifying the output as 'template' and providing a Go template as the value of the --template flag, you can filter the
/// attributes of the fetched resources.
///
/// Use "kloop api-resources" for a complete list of supported resources.
#[derive(clap::Args)]
#[command(
    override_usage = "(TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...)",
    after_help = "\
# List all pods in ps output format
kloop get pods

# List all pods in ps output format with more information (such as node name)
kloop get pods -o wide

# List a single deployment with specified NAME in ps output format
kloop get deployment web

# List deployments in JSON output format, in the \"v1\" version of the \"apps\" API group
kloop get deployments.v1.apps -o json

# List a pod identified by type and name specified in \"pod.yaml\" in JSON output format
kloop get -f pod.yaml -o json

# Return only the phase value of the specified pod
kloop get -o template pod/web-pod-13je7 --template={{.status.phase}}

# List resource information in custom columns
kloop get pod test-pod -o custom-columns=CONTAINER:.spec.containers[0].name,IMAGE:.spec.containers[0].image

# List all replication controllers and services together in ps output format
kloop get rc,services

# List one or more resources by their type and names
kloop get rc/web service/frontend pods/web-pod-13je7

# List the 'status' subresource for a single pod
kloop get pod web-pod-13je7 --subresource status

# List all deployments in namespace 'backend'
kloop get deployments.apps --namespace backend

# List all pods existing in all namespaces
kloop get pods --all-namespaces

# The pods as they were ten minutes ago
kloop get pods --at=-10m

# Get the answer of the REST API itself
kloop get --raw /api/v1/namespaces/default/pods"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    at: AtFlag,
    #[command(flatten)]
    print: PrintFlags,
    /// If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified
    /// with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// When using the default or custom-column output format, don't print headers (default print headers).
    #[arg(long)]
    no_headers: bool,
    /// When printing, show all labels as the last column (default hide labels column).
    #[arg(long)]
    show_labels: bool,
    /// Accepts a comma separated list of labels that are going to be presented as columns. Names are case-sensitive. You can also
    /// use multiple flag options like -L label1 -L label2...
    #[arg(short = 'L', long, value_delimiter = ',', value_name = "LABEL")]
    label_columns: Vec<String>,
    /// If present, list the resource type for the requested object(s).
    #[arg(long)]
    show_kind: bool,
    /// If non-empty, sort list types using this field specification. The field specification is expressed as a JSONPath
    /// expression (e.g. '{.metadata.name}').
    #[arg(long, value_name = "PATH")]
    sort_by: Option<String>,
    /// If the requested object does not exist the command will return exit code 0.
    #[arg(long)]
    ignore_not_found: bool,
    /// After listing/getting the requested object, watch for changes.
    #[arg(short, long)]
    watch: bool,
    /// Watch for changes to the requested object(s), without listing/getting first.
    #[arg(long)]
    watch_only: bool,
    /// Output watch event objects when --watch or --watch-only is used. Existing objects are output as initial ADDED
    /// events.
    #[arg(long)]
    output_watch_events: bool,
    /// Return large lists in chunks rather than all at once. Pass 0 to disable. A state file is read at once.
    #[arg(long, default_value_t = 500, value_name = "N")]
    chunk_size: i64,
    /// If true, have the server return the appropriate table output.
    #[arg(long, default_value_t = true)]
    server_print: bool,
    /// If specified, gets the subresource of the requested object: status or scale.
    #[arg(long, default_value = "", value_name = "NAME")]
    subresource: String,
    /// Raw URI to request from the API; no server needs to run.
    #[arg(long, value_name = "PATH")]
    raw: Option<String>,
}

/// Runs the verb.
pub fn run(mut args: Args, context: &mut CommandContext) -> CliResult {
    args.sort_by = args.sort_by.filter(|path| !path.is_empty());
    args.at.travel(context)?;
    context.set_chunk_size(args.chunk_size);
    if let Some(path) = &args.raw {
        return raw::run(path, &args, context);
    }
    let format = args.print.format(args.no_headers, true)?.unwrap_or(OutputFormat::Table { wide: false });
    let sort = args.sort_by.as_deref().map(SortBy::parse).transpose()?;
    let is_table = matches!(format, OutputFormat::Table { .. });
    if args.show_labels && !is_table {
        let printer = args.print.output.as_deref().unwrap_or_default();
        return Err(Failure::plain(format!("--show-labels option cannot be used with {printer} printer")));
    }
    if args.which.is_empty() && !args.watch && !args.watch_only {
        context.print_notice("You must specify the type of resource to get. Use \"kloop api-resources\" for a complete list of supported resources.\n");
        return Err(Failure::plain(
            "Required resource not specified.\nUse \"kloop explain <resource>\" for a detailed description of that resource \
             (e.g. kloop explain pods).\nSee 'kloop get -h' for help and examples",
        ));
    }
    if let Some(target) = computed::parse(context.kinds(), &args.which.words) {
        return computed::run(&target, &args, format, context);
    }
    if args.output_watch_events && !args.watch && !args.watch_only {
        let text = "--output-watch-events option can only be used with --watch or --watch-only";
        return Err(Failure::plain(text));
    }
    if args.watch || args.watch_only {
        if args.at.is_set() {
            return Err(Failure::plain("--at and --watch exclude each other: the past does not change"));
        }
        return watch::run(&args, &format, context);
    }
    let need = ListNeed::from_output(&args, &format);
    let (found, failures) = fetch(&args, &need, context)?;
    match format {
        OutputFormat::Table { wide } => print_tables(&args, context, found, wide, sort, failures),
        OutputFormat::Name if matches!(need, ListNeed::Names) && !found.named => {
            context.print(&name_lines(&args, &found))?;
            Failure::from_failures(failures)
        }
        format => {
            let mut objects = objects_in_version(&args, found.groups);
            if let Some(sort) = &sort {
                sort.sort(&mut objects)?;
            }
            let mut printer = ObjectPrinter::new(format, args.print.show_managed_fields);
            let printed = match &objects[..] {
                [object] if found.single => printer.object(&object.0),
                [] if found.single => Ok(String::new()),
                _ => printer.list(objects.into_iter().map(|object| object.0).collect()),
            };
            context.print(printed.as_deref().unwrap_or(printer.failure_details()))?;
            printed?;
            Failure::from_failures(failures)
        }
    }
}

/// Formats the names of lists like [`ObjectPrinter`], but without making an object of each.
fn name_lines(args: &Args, found: &GetResult) -> String {
    let mut text = String::new();
    for KindGroup { kind, content } in &found.groups {
        let version = requested_version(args, kind).map_or_else(|| kind.api_version(), str::to_owned);
        let prefix = kind_in_names(&version, kind.kind);
        let GroupContent::Names(names) = content else { continue };
        names.iter().for_each(|name| text.extend([&prefix, "/", name, "\n"]));
    }
    text
}

/// Returns the objects, each in the version that the command line names.
fn objects_in_version(args: &Args, groups: Vec<KindGroup>) -> Vec<Object> {
    let convert = |group: KindGroup| {
        let version = requested_version(args, group.kind);
        let objects = group.content.objects().into_iter();
        objects.map(move |object| version.iter().fold(object, |object, to| group.kind.to_version(object, to)))
    };
    groups.into_iter().flat_map(convert).collect()
}

/// Returns the version that the command line names for a kind, if it is not the stored one.
fn requested_version(args: &Args, kind: &Kind) -> Option<&'static str> {
    let types = args.which.words.iter().flat_map(|word| word.split('/').next()).flat_map(|types| types.split(','));
    let is_kind = |name: &&str| kinds::by_name(name).is_some_and(|known| known.resource == kind.resource);
    types.filter(is_kind).find_map(|name| targets::requested_version(kind, name))
}

/// Objects of one kind, printed as one table.
struct KindGroup {
    kind: &'static Kind,
    content: GroupContent,
}

/// The objects of one kind, as far as they are printed.
enum GroupContent {
    Objects(Vec<Object>),
    /// Rows of the objects, where nothing else of them is printed.
    Lines(TableLines),
    /// Names of the objects, for `-o name`.
    Names(Vec<String>),
}

impl GroupContent {
    fn is_empty(&self) -> bool {
        match self {
            GroupContent::Objects(objects) => objects.is_empty(),
            GroupContent::Lines(lines) => lines.is_empty(),
            GroupContent::Names(names) => names.is_empty(),
        }
    }

    fn objects(self) -> Vec<Object> {
        match self {
            GroupContent::Objects(objects) => objects,
            GroupContent::Lines(_) | GroupContent::Names(_) => Vec::new(),
        }
    }
}

/// Requested objects.
struct GetResult {
    groups: Vec<KindGroup>,
    /// A single object by name, printed without a List.
    single: bool,
    /// Objects by name: no message if there are none.
    named: bool,
}

/// The content of a list that an output shows.
enum ListNeed {
    /// Names only.
    Names,
    /// Rows of a table.
    Rows {
        /// Whether columns are shown that Kubernetes has only in `-o wide`, or not at all.
        wide: bool,
    },
    /// All but the managed fields.
    Unmanaged,
    /// The complete objects.
    Whole,
}

impl ListNeed {
    fn from_output(args: &Args, format: &OutputFormat) -> ListNeed {
        let selects = args.which.select.is_set();
        let reads_more = args.sort_by.is_some() || args.show_labels || !args.label_columns.is_empty();
        match format {
            OutputFormat::Name if !selects && args.sort_by.is_none() => ListNeed::Names,
            OutputFormat::Table { wide } if !selects && !reads_more => ListNeed::Rows { wide: *wide },
            OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Kyaml
                if !args.print.show_managed_fields && args.sort_by.is_none() =>
            {
                ListNeed::Unmanaged
            }
            _ => ListNeed::Whole,
        }
    }

    fn part(&self, kind: &Kind) -> ReadPart {
        match self {
            ListNeed::Rows { wide } => part_read_by_cells(kind, *wide),
            ListNeed::Unmanaged if kind.custom.is_none() => ReadPart::Unmanaged,
            ListNeed::Names | ListNeed::Unmanaged | ListNeed::Whole => ReadPart::Whole,
        }
    }
}

/// A list of the objects of one kind.
struct ListRequest<'a> {
    args: &'a Args,
    need: &'a ListNeed,
    kind: &'static Kind,
    namespace: Option<&'a str>,
    selection: ListSelection,
    /// Whether kinds precede names.
    prefix: bool,
    /// Whether any kind of the request has namespaces.
    namespaced: bool,
    clock: &'a dyn Fn() -> Time,
}

impl ListRequest<'_> {
    fn read(&self, txn: &dyn Transaction) -> ApiResult<GroupContent> {
        match self.need {
            ListNeed::Names => read::list_names(txn, self.kind, self.namespace).map(GroupContent::Names),
            ListNeed::Rows { wide } => self.read_lines(txn, *wide).map(GroupContent::Lines),
            ListNeed::Unmanaged | ListNeed::Whole => {
                let mut objects = Vec::new();
                self.read_pages(txn, &mut |page| objects.extend(page))?;
                Ok(GroupContent::Objects(objects))
            }
        }
    }

    fn read_lines(&self, txn: &dyn Transaction, wide: bool) -> ApiResult<TableLines> {
        let printer = TablePrinter::new(self.args.table_options(wide, self.namespaced));
        let (name, mut lines) = (self.kind.qualified_singular(), TableLines::default());
        self.read_pages(txn, &mut |page| {
            printer.add_rows(&mut lines, &self.args.table(self.kind, &page, (self.clock)()), &name, self.prefix, None);
        })?;
        Ok(lines)
    }

    fn read_pages(&self, txn: &dyn Transaction, reader: &mut dyn FnMut(Vec<Object>)) -> ApiResult<()> {
        let mut read = |page: Vec<Object>| -> ApiResult<()> {
            let is_long = page.len() >= LONG_PAGE;
            reader(page);
            if is_long {
                use_mimalloc();
            }
            Ok(())
        };
        read::read_pages(txn, self.kind, self.namespace, &self.selection, &self.need.part(self.kind), &mut read)
    }
}

fn fetch(args: &Args, need: &ListNeed, context: &mut CommandContext) -> CliResult<(GetResult, Vec<Failure>)> {
    if args.which.files.names_objects_instead_of(&args.which.words)? {
        let (targets, failures) = targets::find(context, &args.which.scope())?;
        let all = targets.len() + failures.len();
        let groups = by_kind(targets.into_iter().map(|target| (target.kind, target.object)));
        return Ok((GetResult { groups, single: all == 1, named: all > 0 }, failures));
    }
    targets::warn_of_short_names(context, &args.which.words);
    let parsed = targets::parse(context.kinds(), &args.which.words);
    match parsed.or_else(|failure| Err(targets::name_extensions(context, failure)?))? {
        Targets::Named(named) => {
            check_named(args)?;
            named.iter().for_each(|(kind, _)| targets::warn_of_deprecation(context, kind, &args.which.words));
            fetch_named(args, context, named)
        }
        Targets::Lists(_) if !args.subresource.is_empty() => {
            Err(Failure::plain("subresource cannot be used when bulk resources are specified"))
        }
        Targets::Lists(kinds) => {
            let (mut groups, clock) = (Vec::new(), context.clock());
            let (prefix, namespaced) = (kinds.len() > 1 || args.show_kind, kinds.iter().any(|kind| kind.namespaced));
            for kind in kinds {
                targets::warn_of_deprecation(context, kind, &args.which.words);
                let selection = targets::list_selection(&args.which.select, kind)?;
                let namespace = context.namespace().to_owned();
                let namespace = Some(namespace.as_str()).filter(|_| !args.all_namespaces);
                let list = ListRequest { args, need, kind, namespace, selection, prefix, namespaced, clock: &clock };
                groups.push(KindGroup { kind, content: context.read_view(|txn| list.read(txn))? });
            }
            Ok((GetResult { groups, single: false, named: false }, Vec::new()))
        }
    }
}

/// Refuses flags that exclude the names of objects.
fn check_named(args: &Args) -> CliResult {
    if args.which.select.labels.text().is_some() {
        return Err(Failure::plain("name cannot be provided when a selector is specified"));
    }
    if args.all_namespaces {
        return Err(Failure::plain("a resource cannot be retrieved by name across all namespaces"));
    }
    Ok(())
}

fn fetch_named(
    args: &Args,
    context: &mut CommandContext,
    named: Vec<(&'static Kind, String)>,
) -> CliResult<(GetResult, Vec<Failure>)> {
    let single = named.len() == 1;
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for (kind, name) in named {
        let key = Key::new(kind.resource, context.namespace_of(kind), &name);
        match context.read_view(|txn| subresource(kind, read::get(txn, &key)?, &args.subresource)) {
            Ok(object) => found.push((kind, object)),
            Err(failure) if args.ignore_not_found && failure.is_not_found() => {}
            Err(failure) => failures.push(failure),
        }
    }
    Ok((GetResult { groups: by_kind(found.into_iter()), single, named: true }, failures))
}

/// Groups adjacent objects of one kind into one table.
fn by_kind(objects: impl Iterator<Item = (&'static Kind, Object)>) -> Vec<KindGroup> {
    let mut groups: Vec<(&'static Kind, Vec<Object>)> = Vec::new();
    for (kind, object) in objects {
        match groups.last_mut().filter(|(last, _)| last.resource == kind.resource) {
            Some((_, objects)) => objects.push(object),
            None => groups.push((kind, vec![object])),
        }
    }
    groups.into_iter().map(|(kind, objects)| KindGroup { kind, content: GroupContent::Objects(objects) }).collect()
}

impl Args {
    fn table<'a>(&self, kind: &Kind, objects: &'a [Object], now: Time) -> Table<'a> {
        match self.subresource.as_str() {
            "scale" => Table::for_scale(objects, now),
            _ if !self.server_print => Table::plain(objects, now),
            _ => Table::for_kind(kind, objects, now),
        }
    }

    fn table_options(&self, wide: bool, namespaced: bool) -> TableOptions {
        TableOptions {
            no_headers: self.no_headers,
            wide,
            show_labels: self.show_labels,
            label_columns: self.label_columns.clone(),
            with_namespace: self.all_namespaces && namespaced,
        }
    }
}

/// Kinds whose objects the control plane creates, in addition to those of workloads.
const MADE_BY_LOOPS: [&str; 3] = ["nodes", "endpoints", "endpointslices.discovery.k8s.io"];

fn print_tables(
    args: &Args,
    context: &mut CommandContext,
    found: GetResult,
    wide: bool,
    sort: Option<SortBy>,
    failures: Vec<Failure>,
) -> CliResult {
    let now = context.now();
    let several = found.groups.len() > 1 || args.show_kind;
    let mut shown = 0;
    let namespaced = found.groups.is_empty() || found.groups.iter().any(|group| group.kind.namespaced);
    let has_cluster_kinds = found.groups.iter().any(|group| !group.kind.namespaced);
    let is_made_by_loops = |kind: &Kind| control_plane::is_needed_for(kind) || MADE_BY_LOOPS.contains(&kind.resource.0);
    let needs_plane = found.groups.iter().any(|group| is_made_by_loops(group.kind));
    let runs = found.groups.iter().any(|group| !group.content.is_empty() && control_plane::is_needed_for(group.kind));
    let mut printer = TablePrinter::new(args.table_options(wide, namespaced));
    let mut text = String::new();
    for KindGroup { kind, content } in found.groups {
        let printed = match content {
            GroupContent::Lines(lines) => printer.print_lines(lines),
            // Names are read for another format.
            GroupContent::Names(_) => continue,
            GroupContent::Objects(mut objects) => {
                if sort.as_ref().is_some_and(|sort| sort.sort(&mut objects).is_err()) {
                    continue;
                }
                printer.print(&args.table(kind, &objects, now), &kind.qualified_singular(), several)
            }
        };
        shown += usize::from(!printed.is_empty());
        text.push_str(&printed);
    }
    context.print(&text)?;
    if shown == 0 && failures.is_empty() && !args.ignore_not_found && !found.named {
        let place = if args.all_namespaces || has_cluster_kinds {
            String::new()
        } else {
            format!(" in {} namespace.", context.namespace())
        };
        context.print_notice(&format!("No resources found{place}"));
    }
    if needs_plane || (shown == 0 && failures.is_empty() && context.existing()?.is_none()) {
        control_plane::print_hint(context)?;
    }
    if runs {
        control_plane::print_age(context)?;
    }
    Failure::from_failures(failures)
}

/// Returns the subresource of an object that a command can show: its Scale, or the object itself.
fn subresource(kind: &Kind, object: Object, name: &str) -> ApiResult<Object> {
    match name {
        "scale" if kind.scale => Ok(scale(kind, &object)),
        name if UpdatePart::find(kind, name).is_some() => Ok(object),
        _ => Err(Status::unknown_resource()),
    }
}
