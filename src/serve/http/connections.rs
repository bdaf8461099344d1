//! Limits of connections, and the choice of one to close when there are too many.
//!
//! Every user of the machine can connect, so unauthenticated connections are few, and a new one replaces another: the oldest of the peer
//! that has most of them. So no user can take all descriptors, a client that authenticates at once gets in, and a peer that opens many
//! connections loses its own.

use crate::runtime::peer::Peer;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;

/// Maximum number of connections of unauthenticated clients.
const MOST_UNKNOWN: usize = 128;

/// All connections of a server.
pub struct Connections {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    open: usize,
    /// Unauthenticated connections, the oldest first.
    unauthenticated: VecDeque<UnauthenticatedConnection>,
}

struct UnauthenticatedConnection {
    id: u64,
    peer: Peer,
    end: Option<AbortHandle>,
}

/// One open connection.
pub struct Connection {
    all: Arc<Connections>,
    id: u64,
    is_authenticated: AtomicBool,
}

impl Connections {
    /// Makes a registry for at most this many connections, authenticated or not.
    pub fn new(most: usize) -> Arc<Connections> {
        Arc::new(Connections { most, state: Mutex::default() })
    }

    /// Registers a connection of a peer; `None` when authenticated clients have taken all places.
    pub fn open(self: &Arc<Connections>, peer: Peer) -> Option<Connection> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.unauthenticated.len() >= MOST_UNKNOWN || state.open >= self.most {
            state.dismiss(peer)?.end.inspect(AbortHandle::abort);
        }
        state.open += 1;
        state.next += 1;
        let id = state.next;
        state.unauthenticated.push_back(UnauthenticatedConnection { id, peer, end: None });
        Some(Connection { all: self.clone(), id, is_authenticated: AtomicBool::new(false) })
    }

    /// Records the handle that ends a connection while it is unauthenticated.
    pub fn set_abort_handle(&self, id: u64, handle: AbortHandle) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = state.unauthenticated.iter_mut().find(|known| known.id == id) {
            entry.end = Some(handle);
        }
    }
}

impl State {
    /// Removes the oldest connection of the peer with the most unauthenticated ones, counting the new one. `None` when there are none.
    fn dismiss(&mut self, newest: Peer) -> Option<UnauthenticatedConnection> {
        let mut counts = HashMap::from([(newest, 1_usize)]);
        self.unauthenticated.iter().for_each(|known| *counts.entry(known.peer).or_default() += 1);
        let most = self.unauthenticated.iter().map(|known| counts[&known.peer]).max()?;
        let oldest = self.unauthenticated.iter().position(|known| counts[&known.peer] == most)?;
        self.unauthenticated.remove(oldest)
    }
}

impl Connection {
    /// Returns its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Marks the client as authenticated.
    pub fn mark_authenticated(&self) {
        // Each request says so; the first one counts.
        if self.is_authenticated.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.all.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unauthenticated.retain(|known| known.id != self.id);
    }

    /// Whether the client is still unauthenticated.
    pub fn is_unauthenticated(&self) -> bool {
        let state = self.all.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unauthenticated.iter().any(|known| known.id == self.id)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.mark_authenticated();
        self.all.state.lock().unwrap_or_else(PoisonError::into_inner).open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEIGHBOUR: Peer = Peer::User(1001);

    #[test]
    fn oldest_unknown_connection_is_closed_when_there_are_too_many() {
        let all = Connections::new(1000);
        let mut kept: Vec<Connection> = (0..MOST_UNKNOWN).filter_map(|_| all.open(NEIGHBOUR)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let waiting = |id: u64| {
            let task = runtime.spawn(std::future::pending::<()>());
            all.set_abort_handle(id, task.abort_handle());
            task
        };
        kept[0].mark_authenticated();
        let (known, first, second) = (waiting(kept[0].id()), waiting(kept[1].id()), waiting(kept[2].id()));
        kept.extend(all.open(NEIGHBOUR));
        kept.extend(all.open(NEIGHBOUR));
        assert!(runtime.block_on(first).is_err_and(|error| error.is_cancelled()));
        assert!(!known.is_finished() && !second.is_finished());
        assert_eq!(kept.len(), MOST_UNKNOWN + 2);
    }

    #[test]
    fn peer_with_many_connections_loses_its_own() {
        let all = Connections::new(1000);
        let first = all.open(Peer::User(1002)).unwrap();
        let mut many: Vec<Connection> = (0..2 * MOST_UNKNOWN).filter_map(|_| all.open(NEIGHBOUR)).collect();
        assert!(first.is_unauthenticated(), "the oldest connection belongs to another peer");
        assert!(!many[0].is_unauthenticated() && many.pop().unwrap().is_unauthenticated());
        let second = all.open(Peer::User(1002)).unwrap();
        many.extend(all.open(NEIGHBOUR));
        assert!(first.is_unauthenticated() && second.is_unauthenticated());
    }

    #[test]
    fn authenticated_clients_stay_connected() {
        let all = Connections::new(2);
        let (one, two) = (all.open(NEIGHBOUR).unwrap(), all.open(NEIGHBOUR).unwrap());
        one.mark_authenticated();
        two.mark_authenticated();
        assert!(all.open(NEIGHBOUR).is_none());
        drop(one);
        assert!(all.open(NEIGHBOUR).is_some());
    }
}
