//! `kloop apply --prune`: deletes objects that an earlier apply created and the manifests no longer
//! contain.

use super::Args;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::rules::names::key_of;
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::LabelFlag;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::{Kind, KindRegistry};
use crate::object::LAST_APPLIED;
use crate::object::{Key, Object, Selector};

/// Flags of pruning.
#[derive(clap::Args)]
pub struct PruneFlags {
    /// Automatically delete resource objects, that do not appear in the configs and are created by either apply or create
    /// --save-config. Should be used with either -l or --all.
    #[arg(long)]
    pub prune: bool,
    /// Overwrite the default allowlist with <group/version/kind> for --prune.
    #[arg(long, value_name = "GROUP/VERSION/KIND", value_delimiter = ',')]
    prune_allowlist: Vec<String>,
    /// Select all resources in the namespace of the specified resource types.
    #[arg(long)]
    all: bool,
    /// Selects manifests and pruned objects.
    #[command(flatten)]
    pub labels: LabelFlag,
}

/// Kinds that are pruned without `--prune-allowlist`. kubectl: `GetRESTMappings`.
const DEFAULT: [&str; 16] = [
    "core/v1/ConfigMap",
    "core/v1/Endpoints",
    "core/v1/PersistentVolumeClaim",
    "core/v1/Pod",
    "core/v1/ReplicationController",
    "core/v1/Secret",
    "core/v1/Service",
    "batch/v1/Job",
    "batch/v1/CronJob",
    "networking.k8s.io/v1/Ingress",
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "apps/v1/ReplicaSet",
    "apps/v1/StatefulSet",
    "core/v1/Namespace",
    "core/v1/PersistentVolume",
];

impl PruneFlags {
    /// Requires `--all` or a selector for `--prune`, and not both.
    pub fn check(&self, kinds: &KindRegistry) -> CliResult {
        if self.prune && !self.all && self.labels.text().is_none() {
            return Err(Failure::plain(
                "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all \
                 flag. If you did not mean to prune all resources, specify a label selector",
            ));
        }
        if self.all && self.labels.text().is_some() {
            return Err(Failure::plain("cannot set --all and --selector at the same time"));
        }
        self.kinds(kinds).map(drop)
    }

    fn kinds(&self, known: &KindRegistry) -> CliResult<Vec<&'static Kind>> {
        allowed_kinds(&self.prune_allowlist, known)
    }
}

/// The kinds that an allowlist names; the usual ones without names.
fn allowed_kinds(allowlist: &[String], known: &KindRegistry) -> CliResult<Vec<&'static Kind>> {
    let default = DEFAULT.map(str::to_owned);
    let names = if allowlist.is_empty() { &default[..] } else { allowlist };
    names.iter().map(|name| kind(known, name)).collect()
}

/// Returns the kind of `GROUP/VERSION/KIND`.
fn kind(kinds: &KindRegistry, name: &str) -> CliResult<&'static Kind> {
    let parts: Vec<&str> = name.split('/').collect();
    let [group, version, word] = parts[..] else {
        let text = format!("invalid GroupVersionKind format: {name}, please follow <group/version/kind>");
        return Err(Failure::plain(text));
    };
    let api_version = if matches!(group, "core" | "") { version.to_owned() } else { format!("{group}/{version}") };
    kinds
        .by_kind(&api_version, word)
        .ok_or_else(|| Failure::plain(format!("no matches for kind {word:?} in version {api_version:?}")))
}

/// Deletes objects with a last-applied annotation that are not in `applied`, in the namespaces of
/// the applied objects.
pub fn run(args: &Args, context: &mut CommandContext, applied: &[Object], dry_run: DryRun) -> CliResult {
    let kept = |object: &Object| Some(key_of(context.kinds().by_kind(object.api_version(), object.kind())?, object));
    let kept: Vec<Key> = applied.iter().filter_map(kept).collect();
    let pruned = find_pruned(context, &kept, &args.pruning.prune_allowlist, args.pruning.labels.parse()?)?;
    pruned.iter().try_for_each(|(kind, object)| remove(args, context, kind, object, dry_run))
}

/// Returns the objects that pruning deletes: those with a last-applied annotation that are not kept, of the allowed kinds, in the
/// namespaces of the kept ones.
pub fn find_pruned(
    context: &mut CommandContext,
    kept: &[Key],
    allowlist: &[String],
    labels: Option<Selector>,
) -> CliResult<Vec<(&'static Kind, Object)>> {
    let wanted = ListSelection { labels, fields: None };
    let mut namespaces: Vec<&str> = kept.iter().map(|key| &*key.namespace).filter(|name| !name.is_empty()).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    let (namespaced, others): (Vec<_>, Vec<_>) =
        allowed_kinds(allowlist, context.kinds())?.into_iter().partition(|kind| kind.namespaced);
    let places = namespaces.iter().flat_map(|namespace| namespaced.iter().map(|kind| (*kind, Some(*namespace))));
    let mut pruned = Vec::new();
    for (kind, namespace) in places.chain(others.into_iter().map(|kind| (kind, None))) {
        let mut found = context.read_view(|txn| read::list(txn, kind, namespace, &wanted))?;
        found.retain(|object| object.annotation(LAST_APPLIED).is_some() && !kept.contains(&key_of(kind, object)));
        pruned.extend(found.into_iter().map(|object| (kind, object)));
    }
    Ok(pruned)
}

/// Deletes one object and prints that.
pub fn remove(
    args: &Args,
    context: &mut CommandContext,
    kind: &'static Kind,
    object: &Object,
    dry_run: DryRun,
) -> CliResult {
    if dry_run != DryRun::Client {
        let (uid, is_dry) = (Some(object.uid().to_owned()), dry_run == DryRun::Server);
        let grace = Some(args.grace_period).filter(|seconds| *seconds >= 0);
        let propagation = args.deletion.propagation()?;
        let options =
            DeleteOptions { uid, grace, propagation: Some(propagation), dry_run: is_dry, ..DeleteOptions::default() };
        let key = key_of(kind, object);
        context.api()?.write(is_dry, |txn| delete(txn, kind, &key, &options))?;
    }
    if args.change.prints_lines() {
        context.print_line(&format!("{} pruned{}", context.name_of(kind, object), dry_run.suffix()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_kinds_exist() {
        for name in DEFAULT {
            assert_eq!(
                kind(&KindRegistry::default(), name).map(|kind| kind.kind).ok(),
                name.rsplit('/').next(),
                "{name}"
            );
        }
        for name in ["ConfigMap", "v1/ConfigMap", "core/v1/Nothing", ""] {
            assert!(kind(&KindRegistry::default(), name).is_err(), "{name}");
        }
    }
}
