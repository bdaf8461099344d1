//! Finds the objects of a command: TYPE, TYPE NAME, TYPE/NAME, lists of these, or the objects of
//! files; with kubectl's rules and errors.

use crate::apiserver::aggregation;
use crate::apiserver::authorization::check_verb;
use crate::apiserver::create::decode;
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::{Transaction, WriteOptions};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::{LabelFlag, SelectFlags};
use crate::cli::manifests::files::{self, FileFlags, Manifest};
use crate::cli::manifests::relative::record_folder;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::go::json::to_json;
use crate::kinds::view::related;
use crate::kinds::{self, Kind, KindRegistry};
use crate::object::selector::{FieldSelector, Selector};
use crate::object::yaml::DuplicateKey;
use crate::object::{Key, Object, Reason, Status};
use serde_json::Value;

/// Parsed resource arguments.
#[derive(Clone)]
pub enum Targets {
    /// Single objects, in order.
    Named(Vec<(&'static Kind, String)>),
    /// All or the selected objects of kinds.
    Lists(Vec<&'static Kind>),
}

/// Returns the kind for a name on the command line.
pub fn kind(kinds: &KindRegistry, name: &str) -> CliResult<&'static Kind> {
    kinds.by_name(name).ok_or_else(|| {
        let word = name.split('.').next().unwrap_or(name);
        Failure::UnknownType { word: word.to_owned(), hint: nearest_type(kinds, word) }
    })
}

/// Adds to the error for an unknown type that extension servers have types that are known over HTTP only.
pub fn name_extensions(context: &mut CommandContext, failure: Failure) -> CliResult<Failure> {
    let Failure::UnknownType { word, hint } = failure else { return Ok(failure) };
    let found = context.read_view(aggregation::extensions)?;
    let names: Vec<String> = found.iter().map(|one| format!("{}/{}", one.group, one.version)).collect();
    if names.is_empty() {
        return Ok(Failure::UnknownType { word, hint });
    }
    let names = names.join(", ");
    let hint = format!("{hint}\nhint: extension servers answer for {names}: use kubectl with kloop serve");
    Ok(Failure::UnknownType { word, hint })
}

/// Returns a hint at the most similar type, or at the versions of this one; empty if none is similar.
fn nearest_type(kinds: &KindRegistry, word: &str) -> String {
    if let Some(kind) = kinds.by_name(word) {
        let preferred = kind.api_version();
        let versions: Vec<&str> = [&*preferred].into_iter().chain(kind.also.iter().copied()).collect();
        let versions = versions.join(", ");
        return format!("\nhint: {word:?} is served in {versions}");
    }
    let kinds: Vec<&'static Kind> = kinds.all().collect();
    let mut known: Vec<String> = kinds.iter().map(|kind| kind.resource.plural().to_owned()).collect();
    known.extend(kinds.iter().map(|kind| kind.singular()));
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let found = kinds::catalogue::read::nearest(word, &known);
    found.map_or_else(String::new, |found| format!("\nhint: did you mean {found:?}?"))
}

/// Returns the kinds of `TYPE1,TYPE2`, including categories such as `all`.
fn kinds_of(kinds: &KindRegistry, names: &str) -> CliResult<Vec<&'static Kind>> {
    let mut found: Vec<&'static Kind> = Vec::new();
    for name in names.split(',') {
        let is_in = |kind: &&'static Kind| kind.categories.contains(&name);
        let is_category = kinds::ALL.iter().any(is_in);
        // Look up custom kinds only for names that are not built in.
        let more: Vec<&'static Kind> = match kinds.by_name(name).filter(|_| !is_category) {
            Some(kind) => vec![kind],
            None => kinds.all().filter(is_in).collect(),
        };
        if more.is_empty() {
            kind(kinds, name)?;
        }
        for kind in more {
            if !found.iter().any(|known| known.resource == kind.resource) {
                found.push(kind);
            }
        }
    }
    Ok(found)
}

/// Parses `TYPE [NAME ...]` or `TYPE/NAME ...`.
pub fn parse(kinds: &KindRegistry, words: &[String]) -> CliResult<Targets> {
    let Some(first) = words.first() else { return Ok(Targets::Lists(Vec::new())) };
    if words.iter().any(|word| word.contains('/')) {
        return parse_pairs(kinds, words);
    }
    let names = &words[1..];
    if !names.is_empty() && first.contains(',') && first.split(',').any(str::is_empty) {
        return Err(wrong_pair());
    }
    let kinds = kinds_of(kinds, first)?;
    if names.is_empty() {
        return Ok(Targets::Lists(kinds));
    }
    if names.iter().any(String::is_empty) {
        return Err(Failure::plain("resource name may not be empty"));
    }
    Ok(Targets::Named(names.iter().flat_map(|name| kinds.iter().map(move |kind| (*kind, name.clone()))).collect()))
}

fn parse_pairs(known: &KindRegistry, words: &[String]) -> CliResult<Targets> {
    let mut named = Vec::new();
    for word in words {
        let parts: Vec<&str> = word.split('/').collect();
        match parts[..] {
            [kinds, name] if !kinds.split(',').any(str::is_empty) && !name.is_empty() => {
                named.extend(kinds_of(known, kinds)?.into_iter().map(|kind| (kind, name.to_owned())));
            }
            [_, _] => return Err(wrong_pair()),
            [_] => {
                return Err(Failure::plain(
                    "there is no need to specify a resource type as a separate argument when passing arguments in \
                     resource/name form (e.g. 'kloop get resource/<resource_name>' instead of 'kloop get resource \
                     resource/<resource_name>'",
                ));
            }
            _ => return Err(Failure::plain("arguments in resource/name form may not have more than one slash")),
        }
    }
    Ok(Targets::Named(named))
}

/// The error of `TYPE/NAME` without a type or without a name.
fn wrong_pair() -> Failure {
    Failure::plain("arguments in resource/name form must have a single resource and name")
}

/// Returns the selector of a workload's or Service's pods; `None` for kinds without pods.
pub fn selector_of(kind: &Kind, owner: &Object) -> Option<Selector> {
    match kind.kind {
        "Service" | "ReplicationController" => {
            // An empty selector selects no pods here, unlike an empty label selector.
            let pairs: Vec<_> = owner.pairs(&["spec", "selector"]).collect();
            (!pairs.is_empty()).then(|| Selector::from_map(pairs))
        }
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" => {
            Some(related::selector(owner.value_at(&["spec", "selector"]).unwrap_or(&Value::Null)))
        }
        _ => None,
    }
}

/// Error for an object without pods, when `act` needs one.
pub fn no_pods_error(kind: &Kind, name: &str, act: &str) -> Failure {
    let what = format!("*{}.{}", kind.version, kind.kind);
    let why = match kind.kind {
        "Service" => format!("invalid service '{name}': Service is defined without a selector"),
        _ => format!("selector for {what} not implemented"),
    };
    Failure::plain(format!("cannot {act} {what}: {why}"))
}

/// Parses the selector flags for a kind.
pub fn list_selection(flags: &SelectFlags, kind: &Kind) -> CliResult<ListSelection> {
    let labels = flags.labels.text().unwrap_or_default();
    let fields = flags.fields().unwrap_or_default();
    let refuse = |text: String| {
        let group = kind.api_version();
        let group = if group.contains('/') { group } else { format!("/{group}") };
        let message = format!(
            "Unable to find {:?} that match label selector {labels:?}, field selector {fields:?}: {text}",
            format!("{group}, Resource={}", kind.resource.plural())
        );
        Failure::from(Status::new(Reason::BadRequest, message))
    };
    let parsed = ListSelection {
        labels: flags.labels.text().map(Selector::parse).transpose().map_err(|error| refuse(error.to_string()))?,
        fields: flags.fields().map(FieldSelector::parse).transpose().map_err(|error| refuse(error.to_string()))?,
    };
    parsed.check(kind).map_err(|status| refuse(status.message))?;
    Ok(parsed)
}

/// Selects the objects of a verb.
#[derive(Default)]
pub struct Scope<'a> {
    /// The arguments.
    pub words: &'a [String],
    /// `-f`.
    pub files: Option<&'a FileFlags>,
    /// `-l`, `--field-selector`.
    pub select: Option<&'a SelectFlags>,
    /// `--all`.
    pub all: bool,
    /// `-A`.
    pub all_namespaces: bool,
    /// `--local`: uses the objects in files without reading the cluster.
    pub local: bool,
    /// Takes the objects in files as they are written. They need not exist in the cluster.
    pub as_written: bool,
    /// With `local`: accepts only built-in kinds.
    pub typed: bool,
    /// `-l` selects the objects of files by the labels in the files. Otherwise the labels in the cluster count, as in kubectl.
    pub selects_in_files: bool,
    /// The verb does not read objects first, like kubectl's delete. In a missing namespace the
    /// object is reported missing, not the namespace.
    pub blind: bool,
}

/// Flags that select the objects that a verb changes.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ScopeFlags {
    #[command(flatten)]
    pub files: FileFlags,
    #[command(flatten)]
    pub select: SelectFlags,
    /// Select all resources, in the namespace of the specified resource types.
    #[arg(long)]
    pub all: bool,
}

impl ScopeFlags {
    /// Adds the arguments that name resources.
    pub fn with_arguments<'a>(&'a self, words: &'a [String]) -> Scope<'a> {
        let (files, select) = (Some(&self.files), Some(&self.select));
        Scope { words, files, select, all: self.all, ..Scope::default() }
    }

    /// Like [`ScopeFlags::with_arguments`], for a verb with `--local`. Then kubectl takes all objects of the files, and ignores `-l`.
    pub fn with_local<'a>(&'a self, words: &'a [String], local: bool) -> Scope<'a> {
        let scope = self.with_arguments(words);
        Scope { local, select: scope.select.filter(|_| !local), ..scope }
    }
}

/// Flags of verbs for single objects.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct NamedFlags {
    /// TYPE NAME or TYPE/NAME.
    words: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
}

impl NamedFlags {
    /// Converts the flags to a scope.
    pub fn scope(&self) -> Scope<'_> {
        Scope { words: &self.words, files: Some(&self.files), ..Scope::default() }
    }
}

/// Flags of verbs for single objects, for those of a selector, or for all of a type.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct TargetFlags {
    /// TYPE, TYPE NAME, or TYPE/NAME.
    pub words: Vec<String>,
    #[command(flatten)]
    pub files: FileFlags,
    #[command(flatten)]
    pub select: SelectFlags,
}

impl TargetFlags {
    /// Whether neither arguments nor files select objects.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.files.is_empty()
    }

    /// Converts the flags to a scope in which a type selects all its objects.
    pub fn scope(&self) -> Scope<'_> {
        let (files, select) = (Some(&self.files), Some(&self.select));
        Scope { words: &self.words, files, select, all: true, ..Scope::default() }
    }
}

/// An object that a command acts on.
#[derive(Clone)]
pub struct Target {
    /// The object's kind.
    pub kind: &'static Kind,
    /// The current version of the object.
    pub object: Object,
}

/// Returns the `apiVersion` in a word like `gcars.v1beta1.golden.dev` or `events.events.k8s.io`, if the kind also has this
/// version.
pub fn requested_version(kind: &Kind, word: &str) -> Option<&'static str> {
    kind.other_version(word.split('/').next()?)
}

/// Warns of a deprecated kind, in the version that the command line asks for.
pub fn warn_of_deprecation(context: &mut CommandContext, kind: &Kind, words: &[String]) {
    match words.iter().find_map(|word| requested_version(kind, word)) {
        Some(version) => {
            let warning = kind.deprecation(version).map(str::to_owned);
            context.warn(warning.as_slice());
        }
        None => context.warn_of_deprecation(kind),
    }
}

/// Warns of a deprecated kind, in the version of a manifest: kubectl prints the warning of each answer, also of one that refuses.
pub fn warn_of_manifest(context: &mut CommandContext, kind: &Kind, manifest: &Manifest) {
    let warning = kind.deprecation(manifest.object.api_version()).map(str::to_owned);
    context.warn(warning.as_slice());
}

/// Warns that a short name on the command line also belongs to other kinds.
pub fn warn_of_short_names(context: &mut CommandContext, words: &[String]) {
    let types = words.first().map(|word| word.split('/').next().unwrap_or(word)).unwrap_or_default();
    for name in types.split(',') {
        for kind in context.kinds().hidden_by_short_name(name) {
            let resource = kind.resource;
            context.warn(&[format!("short name {name:?} could also match lower priority resource {resource}")]);
        }
    }
}

/// Reads the selected objects. Missing ones are returned as failures.
pub fn find(context: &mut CommandContext, scope: &Scope<'_>) -> CliResult<(Vec<Target>, Vec<Failure>)> {
    let selects = scope.select.is_some_and(SelectFlags::is_set);
    if let Some(files) = scope.files
        && files.names_objects_instead_of(scope.words)?
    {
        return find_in_files(context, files, scope);
    }
    if scope.local {
        return Err(Failure::plain(
            "you must specify resources by --filename when --local is set.\n\
             Example resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'",
        ));
    }
    warn_of_short_names(context, scope.words);
    match parse(context.kinds(), scope.words)? {
        Targets::Named(_) if selects => Err(Failure::plain("name cannot be provided when a selector is specified")),
        Targets::Named(named) => Ok(find_named(context, named, scope.blind)),
        Targets::Lists(kinds) if kinds.is_empty() => Err(no_resources()),
        Targets::Lists(_) if !selects && !scope.all => {
            Err(Failure::plain("resource(s) were provided, but no name was specified"))
        }
        Targets::Lists(kinds) => Ok((find_listed(context, kinds, scope)?, Vec::new())),
    }
}

/// Reads objects by name. `is_blind`: also those that the user may delete and not read.
fn find_named(
    context: &mut CommandContext,
    named: Vec<(&'static Kind, String)>,
    is_blind: bool,
) -> (Vec<Target>, Vec<Failure>) {
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for (kind, name) in named {
        let key = Key::new(kind.resource, context.namespace_of(kind), &name);
        let look = if is_blind { read::exact } else { read::get };
        let look = |txn: &dyn Transaction| {
            if is_blind {
                check_verb(txn, "delete", "", &key)?;
            }
            look(txn, &key)
        };
        match context.read_view(look) {
            Ok(object) => found.push(Target { kind, object }),
            Err(failure) => failures.push(failure),
        }
    }
    (found, failures)
}

/// Reads the objects of kinds, all or those that the flags select.
fn find_listed(context: &mut CommandContext, kinds: Vec<&'static Kind>, scope: &Scope<'_>) -> CliResult<Vec<Target>> {
    let (mut found, no_flags) = (Vec::new(), SelectFlags::default());
    for kind in kinds {
        let wanted = list_selection(scope.select.unwrap_or(&no_flags), kind)?;
        let namespace = context.namespace().to_owned();
        let namespace = Some(namespace.as_str()).filter(|_| !scope.all_namespaces);
        let objects = context.read_view(|txn| read::list(txn, kind, namespace, &wanted))?;
        found.extend(objects.into_iter().map(|object| Target { kind, object }));
    }
    Ok(found)
}

/// Runs an action on each selected object, and reports failures after all of them.
pub fn for_each_target(
    context: &mut CommandContext,
    scope: &Scope<'_>,
    mut one: impl FnMut(&mut CommandContext, &Target) -> CliResult,
) -> CliResult {
    let (found, mut failures) = find(context, scope)?;
    failures.extend(found.iter().filter_map(|target| one(context, target).err()));
    Failure::from_failures(failures)
}

fn find_in_files(
    context: &mut CommandContext,
    flags: &FileFlags,
    scope: &Scope<'_>,
) -> CliResult<(Vec<Target>, Vec<Failure>)> {
    let (is_written, labels) = (scope.local || scope.selects_in_files, scope.select.map(|select| &select.labels));
    let (manifests, mut failures) = match labels.filter(|_| is_written) {
        Some(labels) => files::read_selected(context, flags, labels)?,
        None => files::read(context, flags)?,
    };
    let labels = labels.filter(|_| !is_written).map(LabelFlag::parse).transpose()?.flatten();
    let mut found = Vec::new();
    for manifest in manifests {
        let located = match scope.local {
            true => target_from_manifest(context.kinds(), &manifest, scope.typed),
            false if scope.as_written => named(context, &manifest)
                .map(|(kind, key)| Target { kind, object: prepare_object(&manifest, kind, &key) }),
            false => named(context, &manifest).and_then(|(kind, key)| {
                let object = context.read_view(|txn| read::get(txn, &key))?;
                Ok(Target { kind, object })
            }),
        };
        match located {
            Ok(target) => found.push(target),
            Err(failure) => failures.push(failure),
        }
    }
    found.retain(|target: &Target| labels.as_ref().is_none_or(|labels| labels.matches(|key| target.object.label(key))));
    Ok((found, failures))
}

/// Returns a manifest's object as written. Its kind may be unknown to the cluster.
fn target_from_manifest(kinds: &KindRegistry, manifest: &Manifest, typed: bool) -> CliResult<Target> {
    let object = manifest.object.clone();
    let is_named = !object.api_version().is_empty() && !object.kind().is_empty();
    let kind = match kinds.by_kind(object.api_version(), object.kind()) {
        found if typed && is_named && found.is_none_or(|kind| kind.custom.is_some()) => {
            return Err(Failure::plain(format!(
                "unable to decode {:?}: no kind {:?} is registered for version {:?} in scheme \"pkg/scheme/scheme.go:28\"",
                manifest.source,
                object.kind(),
                object.api_version(),
            )));
        }
        None if is_named => kinds::catalogue::unknown::kind(object.api_version(), object.kind()),
        _ => kind_of(kinds, manifest)?,
    };
    if object.name().is_empty() {
        Err(Failure::plain(missing_name_error(kind, manifest)))
    } else {
        Ok(Target { kind, object })
    }
}

/// Like [`locate`], but requires a name.
pub fn named(context: &CommandContext, manifest: &Manifest) -> CliResult<(&'static Kind, Key)> {
    let (kind, key) = locate(context, manifest)?;
    if key.name.is_empty() { Err(Failure::plain(missing_name_error(kind, manifest))) } else { Ok((kind, key)) }
}

/// Returns the kind and key of a manifest's object, with its namespace filled in.
pub fn locate(context: &CommandContext, manifest: &Manifest) -> CliResult<(&'static Kind, Key)> {
    let object = &manifest.object;
    let kind = kind_of(context.kinds(), manifest)?;
    // Otherwise the object would end up in the default namespace.
    if kind.namespaced
        && let Some(status) = type_error(kind, manifest, "namespace")
    {
        return Err(manifest.refusal("reading", status));
    }
    let namespace = if kind.namespaced { namespace_of(context, object)? } else { String::new() };
    Ok((kind, Key::new(kind.resource, &namespace, object.name())))
}

/// Like [`locate`], for verbs that validate manifests; with `--dry-run=client`, also accepts custom kinds that the cluster does not
/// define.
pub fn locate_for(context: &CommandContext, manifest: &Manifest, dry_run: DryRun) -> CliResult<(&'static Kind, Key)> {
    check_type(manifest)?;
    let object = &manifest.object;
    let is_known = context.kinds().by_kind(object.api_version(), object.kind()).is_some();
    if dry_run != DryRun::Client || is_known || !kinds::catalogue::unknown::is_custom(object.api_version()) {
        return locate(context, manifest);
    }
    let kind = kinds::catalogue::unknown::kind(object.api_version(), object.kind());
    Ok((kind, Key::new(kind.resource, object.namespace(), object.name())))
}

/// Returns the API server's error for a name or namespace that is not a string: in YAML, `12` and
/// `on` are not.
fn type_error(kind: &Kind, manifest: &Manifest, field: &str) -> Option<Status> {
    let value = &manifest.object.0["metadata"][field];
    if value.is_null() || value.is_string() {
        return None;
    }
    decode(kind, &manifest.object, &WriteOptions::default(), &mut Vec::new()).err()
}

/// Returns kubectl's error for a missing name, with a hint at the line.
pub fn missing_name_error(kind: &Kind, manifest: &Manifest) -> String {
    let hints = match type_error(kind, manifest, "name") {
        Some(status) => manifest.hints(&status),
        None => vec![format!("hint: {}:{}: the {} has no metadata.name", manifest.source, manifest.line, kind.kind)],
    };
    format!("resource name may not be empty\n{}", hints.join("\n"))
}

/// Returns a manifest's object with its namespace, and with the folder for relative paths.
pub fn prepare_object(manifest: &Manifest, kind: &Kind, key: &Key) -> Object {
    let mut object = manifest.object.clone();
    if kind.namespaced {
        object.set(&["metadata", "namespace"], &*key.namespace);
    }
    record_folder(&mut object, manifest);
    object
}

/// Prints a hint for each repeated key. As in kubectl, the last value counts, for every mode of validation.
pub fn hint_duplicates(context: &mut CommandContext, manifests: &[Manifest]) {
    let hints = manifests.iter().flat_map(|manifest| {
        let hint = |DuplicateKey { path, line, .. }: &DuplicateKey| {
            format!("hint: {}:{line}: the field {path:?} is repeated; its last value counts", manifest.source)
        };
        manifest.duplicates().iter().map(hint)
    });
    // The items of a list share their document.
    let mut hints: Vec<String> = hints.collect();
    hints.dedup();
    hints.iter().for_each(|hint| context.print_notice(hint));
}

/// Refuses a manifest without a kind, for verbs that validate manifests before they decode them.
pub fn check_type(manifest: &Manifest) -> CliResult {
    let (object, source) = (&manifest.object, &manifest.source);
    if !object.0.is_object() {
        return Err(Failure::plain(format!(
            "error validating {source:?}: error validating data: invalid object to validate; if you choose to ignore these \
             errors, turn validation off with --validate=false"
        )));
    }
    let fields = [("apiVersion", object.api_version()), ("kind", object.kind())];
    let missing: Vec<String> =
        fields.iter().filter(|(_, value)| value.is_empty()).map(|(field, _)| format!("{field} not set")).collect();
    let missing = match &missing[..] {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Err(Failure::plain(format!(
        "error validating {source:?}: error validating data: {missing}; if you choose to ignore these errors, turn validation off \
         with --validate=false"
    )))
}

/// Returns the kind of a manifest's object.
pub fn kind_of(kinds: &KindRegistry, manifest: &Manifest) -> CliResult<&'static Kind> {
    let (object, source) = (&manifest.object, &manifest.source);
    if object.kind().is_empty() {
        let text = to_json(&object.0);
        return Err(Failure::plain(format!("unable to decode {source:?}: Object 'Kind' is missing in '{text}'")));
    }
    kinds.by_kind(object.api_version(), object.kind()).ok_or_else(|| {
        Failure::plain(format!(
            "resource mapping not found for name: {:?} namespace: {:?} from {source:?}: no matches for kind {:?} in version {:?}\n\
             ensure CRDs are installed first",
            object.name(),
            object.namespace(),
            object.kind(),
            object.api_version(),
        ))
    })
}

/// Returns the namespace of a manifest's object: its own or the command's. It is an error if they
/// differ.
fn namespace_of(context: &CommandContext, object: &Object) -> CliResult<String> {
    let own = object.namespace();
    let requested = context.globals.namespace.as_deref().filter(|name| !name.is_empty());
    match requested {
        Some(requested) if !own.is_empty() && own != requested => Err(Failure::plain(format!(
            "the namespace from the provided object {own:?} does not match the namespace {requested:?}. You must pass \
             '--namespace={own}' to perform this operation."
        ))),
        _ if own.is_empty() => Ok(context.namespace().to_owned()),
        _ => Ok(own.to_owned()),
    }
}

/// The error of a command without resources.
pub fn no_resources() -> Failure {
    Failure::plain(
        "You must provide one or more resources by argument or filename.\n\
         Example resource specifications include:\n   \
         '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'",
    )
}
