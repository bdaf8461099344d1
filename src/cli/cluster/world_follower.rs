//! The World of a cluster as it changes, for commands that stay on the screen.
//!
//! Knows: a state file has a log of its changes; of a server the objects are copied, and watches keep the copy up to date.
//! Never: writes to the cluster. Start reading at [`WorldFollower::start`].

use crate::apiserver::remote::collection_path;
use crate::cli::{CliResult, CommandContext};
use crate::client::{ReflectedChange, ReflectedContent, Reflectors};
use crate::kinds::Kind;
use crate::object::Time;
use crate::reconcile::queue::WorkQueue;
use crate::reconcile::store_tail;
use crate::store::{HintWatch, StoreError, WakeHint};
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Maximum number of changes in one message, and of messages that wait.
const BATCH: usize = 256;
const MAX_WAITING: usize = 64;
/// Maximum time of one wait for changes.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Kinds that only clutter: the heartbeats of nodes and leaders.
const UNWATCHED: [&str; 1] = ["leases.coordination.k8s.io"];

/// Follows the changes of a cluster.
pub struct WorldFollower {
    source: ChangeSource,
}

enum ChangeSource {
    /// The hint that wakes at each change; `None` where there can be none.
    State {
        _hint: Option<HintWatch>,
    },
    Server(ServerChanges),
}

/// Changes that watches at a server have brought.
struct ServerChanges {
    kinds: BTreeMap<&'static str, &'static Kind>,
    batches: Receiver<Vec<ReflectedChange>>,
    /// The last failure of a watch, which is shown once.
    failure: Option<String>,
}

impl WorldFollower {
    /// Starts to follow the changes; `wake` is called at each. Copies the objects of a server first.
    pub fn start(context: &mut CommandContext, wake: impl Fn() + Send + 'static) -> CliResult<WorldFollower> {
        if context.client().is_none() {
            let hint = WakeHint::spawn(context.api()?.store().path(), wake);
            return Ok(WorldFollower { source: ChangeSource::State { _hint: hint } });
        }
        let listed = context.copy_server_objects()?;
        let kinds = listed.iter().map(|(kind, _)| (kind.resource.0, *kind)).collect();
        let (sender, batches) = sync_channel(MAX_WAITING);
        let reflectors = start_watches(context, &listed);
        let carry = move || {
            if let Some(reflectors) = reflectors {
                carry_changes(std::iter::repeat_with(|| reflectors.next(MAX_WAIT, BATCH)), &sender, wake);
            }
        };
        thread::Builder::new().name("watches".into()).spawn(carry)?;
        Ok(WorldFollower { source: ChangeSource::Server(ServerChanges { kinds, batches, failure: None }) })
    }

    /// Returns the World as it is now.
    pub fn load(&self, context: &mut CommandContext) -> CliResult<World> {
        let mut world = World::new(Time::now());
        let snapshot = context.api()?.store().read().map_err(anyhow::Error::from)?;
        store_tail::load(&snapshot, &mut world).map_err(anyhow::Error::from)?;
        Ok(world)
    }

    /// Brings the World up to date.
    pub fn catch_up(&mut self, context: &mut CommandContext, world: &mut World) -> CliResult {
        if let ChangeSource::Server(changes) = &mut self.source {
            changes.store(context)?;
        }
        world.now = Time::now();
        let snapshot = context.api()?.store().read().map_err(anyhow::Error::from)?;
        let now = world.now;
        match store_tail::catch_up(&snapshot, world, &[], &mut WorkQueue::default(), now) {
            Err(StoreError::Expired { .. }) => {
                drop(snapshot);
                *world = self.load(context)?;
                Ok(())
            }
            done => Ok(done.map(drop).map_err(anyhow::Error::from)?),
        }
    }

    /// Takes the last failure of a watch, such as that of a server that does not answer.
    pub fn take_failure(&mut self) -> Option<String> {
        match &mut self.source {
            ChangeSource::Server(changes) => changes.failure.take(),
            ChangeSource::State { .. } => None,
        }
    }
}

/// Sends batches of changes on until the receiver is gone, and wakes it for each. Empty ones are left out: a receiver that sleeps until
/// there is a change would not make room for them.
fn carry_changes(
    batches: impl Iterator<Item = Vec<ReflectedChange>>,
    sender: &SyncSender<Vec<ReflectedChange>>,
    wake: impl Fn(),
) {
    for batch in batches.filter(|batch| !batch.is_empty()) {
        if sender.send(batch).is_err() {
            return;
        }
        wake();
    }
}

/// Watches the collections of a copy from the revisions of their lists on.
fn start_watches(context: &CommandContext, listed: &[(&'static Kind, String)]) -> Option<Reflectors> {
    let mut reflectors = context.client()?.reflectors();
    for (kind, revision) in listed.iter().filter(|(kind, _)| !UNWATCHED.contains(&kind.resource.0)) {
        let path = collection_path(kind, &kind.api_version(), "");
        reflectors.start_from(kind.resource.0, &path, Some(revision.clone()));
    }
    Some(reflectors)
}

impl ServerChanges {
    /// Writes the received changes to the copy.
    fn store(&mut self, context: &mut CommandContext) -> CliResult {
        let mut changes: BTreeMap<Arc<str>, Vec<ReflectedContent>> = BTreeMap::new();
        for change in self.batches.try_iter().take(MAX_WAITING).flatten() {
            if let ReflectedContent::Failed(error) = &change.content {
                self.failure = Some(error.to_string());
            }
            changes.entry(change.source).or_default().push(change.content);
        }
        for (source, contents) in changes {
            let Some(kind) = self.kinds.get(&*source) else { continue };
            context.api()?.update_copy(kind, contents)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn quiet_watches_do_not_fill_the_channel() {
        let change = ReflectedChange { source: "pods".into(), content: ReflectedContent::Replaced(Vec::new()) };
        let quiet = std::iter::repeat_with(Vec::new).take(3 * MAX_WAITING);
        let (sender, inbox) = sync_channel(1);
        let woken = Cell::new(0);
        // Nobody receives before it has ended: an empty batch in the channel would block it.
        carry_changes(quiet.chain([vec![change]]), &sender, || woken.set(woken.get() + 1));
        assert_eq!((inbox.try_iter().count(), woken.get()), (1, 1));
    }
}
