//! `kloop down`: deletes the applied objects of a cluster, and ends its processes and its control plane.
//!
//! Never: deletes the data of a claim without `--volumes`. Start reading at [`find_targets`].

use super::cluster::deadline::Deadline;
use super::delete::deletion_message;
use super::up::planes::{self, OwnPlane};
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::{ApiResult, Transaction};
use crate::joined_node;
use crate::kinds::{Kind, KindRegistry};
use crate::object::LAST_APPLIED;
use crate::object::{Key, MIRROR, Object, Reason, Status, format_count, time};
use crate::reconcile::leader;
use crate::world::storage;
use jiff::SignedDuration;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// Stop everything that runs in the cluster.
///
/// Deletes the workloads and Services of all namespaces and everything that was applied, ends their processes, and stops the
/// control plane that "kloop up --detach" left running. Persistent volume claims and their data stay, unless --volumes is given.
/// Objects that were made by other commands, such as "kloop create configmap", stay too. "kloop up" starts the application again.
/// On a machine that has joined a cluster elsewhere, it ends the processes of the node's pods; their objects stay at the server.
#[derive(clap::Args)]
#[command(
    override_usage = "[--volumes]",
    after_help = "\
# End everything, and keep the data of volumes
kloop down

# Delete the data, too
kloop down --volumes"
)]
pub struct Args {
    /// Delete persistent volume claims and volumes with their data.
    #[arg(long)]
    volumes: bool,
    /// Maximum time until everything has ended.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
}

/// An object to delete.
type DownTarget = (&'static Kind, Object);

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let timeout = args.timeout.unsigned_abs();
    if context.existing()?.is_none() {
        let state = context.state();
        context.print_notice(&format!("nothing to end: there is no cluster at {}", state.display()));
        return Ok(());
    }
    if joined_node::is_copy(&context.state()) {
        return end_node(context);
    }
    let kinds = context.kinds().clone();
    let (mut targets, kept) = context.read_view(|txn| find_targets(txn, &kinds, args.volumes))?;
    // Namespaces are deleted last, so that a line is printed for each object in them.
    targets.sort_by_key(|(kind, _)| kind.resource == "namespaces");
    let deleted = delete_all(context, targets)?;
    let home = context.api()?.store().home().to_owned();
    let plane = match leader::read_leader(&home) {
        Some(_) => None,
        None => OwnPlane::start(context)?,
    };
    let ended = wait_until_gone(context, &deleted, timeout);
    if let Some(plane) = plane {
        plane.stop();
        plane.join()?;
    } else if let Some(detached) = planes::find_detached(&home) {
        if planes::stop_detached(&home, detached, timeout) {
            context.print_line("control plane stopped")?;
        }
    } else if let Some(pid) = leader::read_leader(&home) {
        context.print_notice(&format!("the control plane with pid {pid} continues; it was not started by kloop up"));
    }
    if kept > 0 {
        let claims = if kept == 1 {
            "1 persistent volume claim stays".to_owned()
        } else {
            format!("{kept} persistent volume claims stay")
        };
        context.print_notice(&format!("{claims} with the data; kloop down --volumes deletes them"));
    }
    ended
}

/// Ends the processes of a node that belongs to a cluster elsewhere. Its objects are the server's, and stay.
fn end_node(context: &mut CommandContext) -> CliResult {
    let home = context.api()?.store().home().to_owned();
    if let Some(pid) = leader::read_leader(&home) {
        return Err(Failure::plain(format!(
            "the node runs (pid {pid}): end kloop node join first, or move its pods elsewhere (kubectl drain, at the server)"
        )));
    }
    let (node, server) = joined_node::known_membership(&context.state()).map_err(Failure::plain)?.unwrap_or_default();
    let Some(plane) = OwnPlane::start_node(context, &node)? else { return Ok(()) };
    plane.stop();
    let pods = plane.join()?;
    context.print_notice(&format!(
        "ended the processes of {}; at {server} the node {node} stays until it is removed (kubectl delete node {node})",
        format_count(pods, "pod")
    ));
    Ok(())
}

/// Returns the objects to delete, and the number of claims that stay.
fn find_targets(txn: &dyn Transaction, kinds: &KindRegistry, volumes: bool) -> ApiResult<(Vec<DownTarget>, usize)> {
    let (mut targets, mut kept) = (Vec::new(), HashSet::new());
    let everything = ListSelection { labels: None, fields: None };
    let mut claims = 0;
    for kind in kinds.all() {
        for object in read::list(txn, kind, None, &everything)? {
            if object.controller().is_some() || object.deletion().is_some() {
                continue;
            }
            match (is_volume(kind), volumes) {
                (true, true) => targets.push((kind, object)),
                (true, false) => {
                    claims += usize::from(kind.namespaced);
                    kept.insert(object.namespace().to_owned());
                }
                _ if is_deleted(kind, &object) => targets.push((kind, object)),
                _ => {}
            }
        }
    }
    // A namespace with a claim that stays has to stay, too.
    targets.retain(|(kind, object)| kind.resource != "namespaces" || !kept.contains(object.name()));
    Ok((targets, claims))
}

fn is_volume(kind: &Kind) -> bool {
    [storage::CLAIMS, "persistentvolumes"].contains(&kind.resource.0)
}

/// Whether an object is deleted: it was applied, or it makes processes or leads to them.
fn is_deleted(kind: &Kind, object: &Object) -> bool {
    let is_of_system = object.namespace() == "default" && object.name() == "kubernetes" && kind.resource == "services";
    let is_mirror = object.annotation(MIRROR).is_some();
    let runs = kind.categories.contains(&"all") || kind.resource == "ingresses.networking.k8s.io";
    !is_of_system && !is_mirror && (runs || object.annotation(LAST_APPLIED).is_some())
}

/// Deletes objects, prints a line for each, and returns those that were deleted.
fn delete_all(context: &mut CommandContext, targets: Vec<DownTarget>) -> CliResult<Vec<(Key, String)>> {
    let (mut deleted, mut failures) = (Vec::new(), Vec::new());
    let write = |txn: &mut dyn Transaction, (kind, object): &DownTarget| {
        let options = DeleteOptions { uid: Some(object.uid().to_owned()), ..DeleteOptions::default() };
        delete(txn, kind, &key_of(kind, object), &options).map(|_| ())
    };
    let written = context.write_each(false, targets, write, |context, (kind, object), done: Result<(), Status>| {
        let key = key_of(kind, &object);
        match done {
            // It was deleted together with its owner or its namespace.
            Err(status) if status.reason == Reason::NotFound => {}
            Err(status) => failures.push(status.into()),
            Ok(()) => {
                failures.extend(context.print_line(&deletion_message(kind, &key, "deleted")).err());
                deleted.push((key, object.uid().to_owned()));
            }
        }
    });
    failures.extend(written.err());
    Failure::from_failures(failures).map(|()| deleted)
}

/// Waits until the objects and all pods are gone.
fn wait_until_gone(context: &mut CommandContext, deleted: &[(Key, String)], timeout: Duration) -> CliResult {
    let deadline = Deadline::new(context, Some(timeout))?;
    let everything = ListSelection { labels: None, fields: None };
    loop {
        let remaining = context.read_view(|txn| {
            let mut remaining = Vec::new();
            for (key, uid) in deleted {
                if txn.get(key)?.is_some_and(|object| object.uid() == uid) {
                    remaining.push(key.clone());
                }
            }
            let pods = read::list(txn, &crate::kinds::pod::KIND, None, &everything)?;
            let pods = pods.iter().filter(|pod| pod.annotation(MIRROR).is_none());
            remaining.extend(pods.map(|pod| key_of(&crate::kinds::pod::KIND, pod)));
            Ok(remaining)
        })?;
        let Some(text) = describe_remaining(remaining) else { return Ok(()) };
        if !deadline.wait() {
            return Err(Failure::plain(text));
        }
    }
}

/// Describes the objects that are left; `None` if there are none. A deleted pod is also among all pods.
fn describe_remaining(remaining: Vec<Key>) -> Option<String> {
    let remaining = BTreeSet::from_iter(remaining);
    let first = remaining.first()?;
    let first = format!("{}/{}", first.resource.plural(), first.name);
    Some(format!("{} objects are left, among them {first}; run: kloop why {first}", remaining.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_are_left_are_counted_once() {
        let key =
            |resource: &'static str, namespace: &str| Key::new(crate::object::Resource(resource), namespace, "web");
        let (pod, service, other) = (key("pods", "default"), key("services", "default"), key("pods", "shop"));
        let text = describe_remaining(vec![pod.clone(), service, pod, other]).unwrap_or_default();
        assert_eq!(text, "3 objects are left, among them pods/web; run: kloop why pods/web");
        assert_eq!(describe_remaining(Vec::new()), None);
    }
    use crate::kinds;
    use serde_json::json;

    #[test]
    fn system_objects_and_objects_of_other_commands_stay() {
        let object = |name: &str, annotations: serde_json::Value| {
            Object(json!({"metadata": {"name": name, "namespace": "default", "annotations": annotations}}))
        };
        let by_name = |name: &str| kinds::by_name(name).unwrap();
        let applied = json!({LAST_APPLIED: "{}"});
        for (kind, object, expected) in [
            ("services", object("kubernetes", json!({})), false),
            ("services", object("web", json!({})), true),
            ("pods", object("static", json!({MIRROR: "x"})), false),
            ("configmaps", object("made", json!({})), false),
            ("configmaps", object("applied", applied), true),
        ] {
            assert_eq!(is_deleted(by_name(kind), &object), expected, "{kind} {}", object.name());
        }
    }
}
