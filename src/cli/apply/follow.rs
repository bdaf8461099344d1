//! `kloop apply --watch`: the cluster follows its manifests, as GitOps has it. What changes in the files is applied a moment later, and what
//! was changed by hand goes back with the next look. What cannot be read or applied is told, and tried again: nothing is pruned meanwhile.

use super::{Args, apply_once, prune};
use crate::apiserver::rules::names::key_of;
use crate::cli::{CliResult, CommandContext, Failure, flags, kustomize};
use crate::object::Object;
use crate::runtime::debounced_watch::DebouncedWatch;
use std::path::{Path, PathBuf};

/// Flags of following.
#[derive(clap::Args)]
pub struct FollowFlags {
    /// Watch the files, such as a checkout of a repository, and apply them again when they change. With --prune, objects that are taken
    /// out of them are deleted.
    #[arg(long)]
    pub watch: bool,
    /// With --watch: time between complete applies, which undo manual changes even when no file has changed; zero
    /// for never.
    #[arg(long, default_value = "3m", value_name = "DURATION")]
    interval: String,
}

/// As long as it would take: nobody waits for so long.
const NEVER: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Applies again and again, until it is interrupted.
pub fn run(args: &Args, context: &mut CommandContext) -> CliResult {
    args.check(context)?;
    let interval = flags::duration("interval", &args.follow.interval)?.unwrap_or(NEVER);
    let mut folders = watched(args)?;
    let mut before: Option<Vec<Object>> = None;
    let mut said = String::new();
    loop {
        // A change may add folders to a kustomization or remove some.
        folders = watched(args).unwrap_or(folders);
        // The watch comes first: what changes while it is applied is seen afterwards.
        let touched = DebouncedWatch::watch(&folders, args.files.recursive);
        match apply_once(args, context, before.is_some()) {
            Ok(applied) => {
                said.clear();
                let gone = before.replace(applied).unwrap_or_default();
                prune_rest(args, context, &gone, before.as_deref().unwrap_or_default())?;
            }
            Err(failure @ (Failure::BrokenPipe | Failure::Open(_) | Failure::Machine(..))) => return Err(failure),
            Err(failure) => {
                tell_once(context, &failure, &mut said);
                before.get_or_insert_default();
            }
        }
        touched.wait(interval);
        context.reopen()?;
    }
}

/// Deletes objects that were applied before and are in no file any more, of any kind and namespace; kubectl's pruning
/// knows only common kinds, in the namespaces that are still named.
fn prune_rest(args: &Args, context: &mut CommandContext, before: &[Object], now: &[Object]) -> CliResult {
    if !args.pruning.prune {
        return Ok(());
    }
    let dry_run = args.change.dry_run(context)?;
    let gone = before.iter().filter(|object| !now.iter().any(|kept| kept.uid() == object.uid()));
    for object in gone {
        let Some(kind) = context.kinds().by_kind(object.api_version(), object.kind()) else { continue };
        let current = context.read_view(|txn| txn.get(&key_of(kind, object)))?;
        if current.is_some_and(|current| current.uid() == object.uid() && current.deletion().is_none()) {
            prune::remove(args, context, kind, object, dry_run)?;
        }
    }
    Ok(())
}

/// Returns the folders to watch for changes of the manifests.
fn watched(args: &Args) -> CliResult<Vec<PathBuf>> {
    if args.files.kustomize.is_empty() {
        return args.files.filenames.iter().map(|name| folder(name)).collect();
    }
    let folders = kustomize::folders(&args.files.kustomize);
    // Missing parts of a kustomization may appear later; a missing kustomization is an error.
    match Path::new(&args.files.kustomize).is_dir() && !folders.is_empty() {
        true => Ok(folders),
        false => kustomize::build_folder(&args.files.kustomize).map(|_| folders),
    }
}

/// Returns the folder to watch for a file name.
fn folder(name: &str) -> CliResult<PathBuf> {
    let path = Path::new(name);
    if name == "-" || name.contains("://") {
        return Err(Failure::plain("--watch needs files or folders: standard input and addresses cannot be watched"));
    }
    if !path.exists() {
        return Err(Failure::plain(format!("the path {name:?} does not exist")));
    }
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(parent.unwrap_or(Path::new(".")).to_owned())
}

/// Reports a repeated failure only once.
fn tell_once(context: &mut CommandContext, failure: &Failure, said: &mut String) {
    let text = failure.to_string();
    if text != *said {
        context.print_notice(&text);
        *said = text;
    }
}
