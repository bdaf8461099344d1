//! `kloop apply --watch`: keeps the cluster in line with its manifests (GitOps). Changed files are
//! applied shortly after the change; manual changes are undone every `--interval`. A failure is
//! reported and tried again; nothing is pruned meanwhile.

use super::{ApplyCaller, Args, apply_once, prune};
use crate::apiserver::rules::names::key_of;
use crate::cli::command_line::flags;
use crate::cli::manifests::files::NO_MANIFESTS;
use crate::cli::{CliResult, CommandContext, Failure, kustomize};
use crate::object::{Object, time};
use crate::runtime::debounced_watch::{DebouncedWatch, WatchedFolder};
use jiff::SignedDuration;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Flags of following.
#[derive(clap::Args)]
pub struct FollowFlags {
    /// Watch the files, such as a checkout of a repository, and apply them again when they change.
    /// With --prune, objects that are removed from the files are deleted.
    #[arg(long)]
    pub watch: bool,
    /// With --watch: time between complete applies, which undo manual changes even when no file has
    /// changed; zero disables them.
    #[arg(long, default_value = "3m", value_name = "DURATION", value_parser = time::parse_duration)]
    interval: SignedDuration,
}

/// A hundred years, for an interval of zero.
const NEVER: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Maximum number of links to a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Applies the manifests again and again, until it is interrupted.
pub fn run(args: &Args, context: &mut CommandContext) -> CliResult {
    args.check(context)?;
    let interval = flags::nonzero(args.follow.interval).unwrap_or(NEVER);
    let mut following = Following::start(args)?;
    loop {
        let watch = following.watch(args);
        following.apply(args, context)?;
        watch.wait(interval);
        context.reopen()?;
    }
}

/// Manifests that are followed, and the objects that they had last.
pub struct Following {
    folders: Vec<WatchedFolder>,
    last_applied: Option<Vec<Object>>,
    last_failure: String,
}

impl Following {
    /// Finds the folders to watch; an error if the manifests cannot be watched.
    pub fn start(args: &Args) -> CliResult<Following> {
        Ok(Following { folders: watched_folders(args)?, last_applied: None, last_failure: String::new() })
    }

    /// Starts a watch of the folders. Start it before applying, so that no change is missed in between.
    pub fn watch(&mut self, args: &Args) -> DebouncedWatch {
        // A change may add folders to a kustomization or remove some.
        if let Ok(folders) = watched_folders(args) {
            self.folders = folders;
        }
        let is_kustomization = !args.files.kustomize.is_empty();
        let links: Vec<PathBuf> = named_paths(args).flat_map(find_links).collect();
        let name = |path: &Path| path.file_name().map(OsStr::to_owned);
        let named: Vec<OsString> =
            named_paths(args).filter_map(name).chain(links.iter().filter_map(|link| name(link))).collect();
        let concerns = move |path: &Path| is_kustomization || may_be_manifest(path, &named);
        let of_links =
            links.iter().filter_map(|link| Some(WatchedFolder { path: link.parent()?.to_owned(), recursive: false }));
        let folders: Vec<WatchedFolder> = self.folders.iter().cloned().chain(of_links).collect();
        DebouncedWatch::watch(&folders, concerns)
    }

    /// Applies the manifests. A refused manifest is printed once and is not an error; only an unusable state is one.
    pub fn apply(&mut self, args: &Args, context: &mut CommandContext) -> CliResult {
        match apply_once(args, context, self.last_applied.is_some()) {
            Ok(applied) => {
                self.last_failure.clear();
                let before = self.last_applied.replace(applied).unwrap_or_default();
                prune_removed(args, context, &before, self.applied())
            }
            Err(failure @ (Failure::BrokenPipe | Failure::Open(_) | Failure::Machine(..))) => Err(failure),
            Err(failure) => {
                let failure = if prunes(args) { explain_empty_folder(failure) } else { failure };
                print_once(context, &failure, &mut self.last_failure);
                self.last_applied.get_or_insert_default();
                Ok(())
            }
        }
    }

    /// Notes objects as applied, which [`apply_first`] has returned.
    pub fn note_applied(&mut self, applied: Vec<Object>) {
        self.last_applied = Some(applied);
    }

    /// The objects of the last successful apply.
    pub fn applied(&self) -> &[Object] {
        self.last_applied.as_deref().unwrap_or_default()
    }
}

/// Whether objects that are removed from the manifests are deleted.
fn prunes(args: &Args) -> bool {
    args.pruning.prune || args.caller != ApplyCaller::Apply
}

/// Explains why nothing is deleted when a folder has no manifests left: the folder may be about to be replaced.
fn explain_empty_folder(failure: Failure) -> Failure {
    match failure {
        Failure::Plain(text) if text.ends_with(NO_MANIFESTS) => Failure::Plain(format!(
            "{text}\nhint: the folder has no manifests, so nothing is pruned and its objects are kept; kloop delete deletes them"
        )),
        failure => failure,
    }
}

/// Applies the manifests for the first time, and returns the objects as stored.
pub fn apply_first(args: &Args, context: &mut CommandContext) -> CliResult<Vec<Object>> {
    args.check(context)?;
    apply_once(args, context, false)
}

/// Deletes objects that the previous apply had and this one has not, of any kind and in any
/// namespace. kubectl's pruning covers only common kinds, in the namespaces that the manifests
/// still name.
fn prune_removed(args: &Args, context: &mut CommandContext, before: &[Object], now: &[Object]) -> CliResult {
    if !prunes(args) {
        return Ok(());
    }
    let dry_run = args.change.dry_run(context)?;
    let removed = before.iter().filter(|object| !now.iter().any(|kept| kept.uid() == object.uid()));
    for object in removed {
        let Some(kind) = context.kinds().by_kind(object.api_version(), object.kind()) else { continue };
        let current = context.read_view(|txn| txn.get(&key_of(kind, object)))?;
        if current.is_some_and(|current| current.uid() == object.uid() && current.deletion().is_none()) {
            prune::remove(args, context, kind, object, dry_run)?;
        }
    }
    Ok(())
}

/// Returns the paths of the flags.
fn named_paths(args: &Args) -> impl Iterator<Item = &Path> {
    let names = args.files.filenames.iter().chain(Some(&args.files.kustomize).filter(|name| !name.is_empty()));
    names.map(Path::new)
}

/// Returns the links that lead to a path. A checkout may be replaced as a whole, by another link of the same name.
fn find_links(path: &Path) -> Vec<PathBuf> {
    let mut links: Vec<PathBuf> = Vec::new();
    let mut paths = vec![std::path::absolute(path).unwrap_or_else(|_| path.to_owned())];
    while let Some(path) = paths.pop() {
        for part in path.ancestors() {
            let Ok(target) = part.read_link() else { continue };
            if links.len() < MAX_LINKS && !links.iter().any(|link| link == part) {
                links.push(part.to_owned());
                paths.push(part.parent().unwrap_or(Path::new("/")).join(target));
            }
        }
    }
    links
}

/// Returns the folders to watch for changes of the manifests.
fn watched_folders(args: &Args) -> CliResult<Vec<WatchedFolder>> {
    let watched = |path| WatchedFolder { path, recursive: args.files.recursive };
    if args.files.kustomize.is_empty() {
        return args.files.filenames.iter().map(|name| folder(name).map(watched)).collect();
    }
    // The build that is applied prints the warnings.
    let build = kustomize::build_folder(&args.files.kustomize);
    let folders: Vec<WatchedFolder> = build.folders.into_iter().map(watched).collect();
    // Missing parts of a kustomization may appear later; a missing kustomization is an error.
    match Path::new(&args.files.kustomize).is_dir() && !folders.is_empty() {
        true => Ok(folders),
        false => build.resources.map(|_| folders),
    }
}

/// Returns the folder to watch for a manifest path.
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

/// Whether a changed path may be a manifest, a folder of some or a link to one. Programs write logs and data to the folders of their
/// manifests.
fn may_be_manifest(path: &Path, named: &[OsString]) -> bool {
    let Some(name) = path.file_name() else { return true };
    let has_end = path.extension().is_none_or(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known));
    has_end || named.iter().any(|known| known == name) || name.as_encoded_bytes().starts_with(b"..")
}

/// Prints a failure, unless it is the same as the last one.
fn print_once(context: &mut CommandContext, failure: &Failure, last_failure: &mut String) {
    let text = failure.to_string();
    if text != *last_failure {
        context.print_notice(&text);
        *last_failure = text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_a_path_are_found_over_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, at.join(name)).unwrap();
        std::fs::create_dir_all(at.join("r1/below")).unwrap();
        link("r1", "current");
        link("current/below", "app");
        link("loop", "loop");
        let found = |name: &str| find_links(&at.join(name));
        assert_eq!(found("app/web.yaml"), [at.join("app"), at.join("current")]);
        assert_eq!(found("current"), [at.join("current")]);
        assert_eq!(found("loop"), [at.join("loop")]);
        assert!(found("r1/below").is_empty());
    }

    #[test]
    fn folder_without_manifests_is_explained() {
        let explained = |text: String| explain_empty_folder(Failure::plain(text)).to_string();
        let told = explained(format!("error reading [./deploy]: {NO_MANIFESTS}"));
        assert!(told.contains("nothing is pruned and its objects are kept"), "{told}");
        assert!(!explained("the path \"a\" does not exist".into()).contains("hint"));
    }

    #[test]
    fn logs_and_data_beside_manifests_are_no_manifests() {
        let named = [OsString::from("app.txt")];
        for name in ["a/web.yaml", "web.yml", "web.json", "app.txt", "below", "..data"] {
            assert!(may_be_manifest(Path::new(name), &named), "{name}");
        }
        for name in ["a/app.log", "state.db-wal", "b.txt", ".web.yaml.swp"] {
            assert!(!may_be_manifest(Path::new(name), &named), "{name}");
        }
    }
}
