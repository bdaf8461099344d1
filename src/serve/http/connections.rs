//! Limits the number of connections, and chooses one to close when there are too many.
//!
//! Every user of the machine can connect, so few unauthenticated connections are allowed. A new one replaces the oldest one of the peer
//! with the most unauthenticated connections. So no user can take all descriptors, a client that authenticates immediately gets in, and a
//! peer that opens many connections loses its own.
//!
//! The other places are for authenticated connections. When all are taken, a new connection replaces one of the client with the most
//! connections, an idle one if possible. A client that itself has the most replaces its own idle connection, or is refused (429). Users
//! are compared first, and then the peers of one user.

use crate::object::{IgnorePoison, Status};
use crate::runtime::peer::Peer;
use crate::serve::answer::too_many_requests;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::task::{AbortHandle, JoinHandle};

/// Maximum number of connections of unauthenticated clients, which also is at most a quarter of all.
const MAX_UNKNOWN: usize = 128;

/// A client among which connections are shared: its user and its peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The user's name; empty before authentication.
    pub user: String,
    /// The other end of the connection.
    pub peer: Peer,
}

/// All connections of a server.
pub struct Connections {
    most_unknown: usize,
    most_authenticated: usize,
    /// Number of requests that have ended; it orders connections by how long they have been idle.
    requests_ended: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Unauthenticated connections, the oldest first.
    unauthenticated: VecDeque<UnauthenticatedConnection>,
    /// Authenticated connections by id, the oldest first.
    authenticated: BTreeMap<u64, AuthenticatedConnection>,
}

struct UnauthenticatedConnection {
    id: u64,
    peer: Peer,
    end: Option<AbortHandle>,
}

struct AuthenticatedConnection {
    client: Arc<Client>,
    activity: Arc<Activity>,
    end: Option<AbortHandle>,
}

/// The use of a connection.
#[derive(Default)]
struct Activity {
    /// Number of requests in progress.
    requests: AtomicUsize,
    /// Order among the ends of requests.
    ended: AtomicU64,
}

/// One open connection.
pub struct Connection {
    all: Arc<Connections>,
    id: u64,
    unknown: Arc<Client>,
    activity: Arc<Activity>,
    /// The client, once it has authenticated.
    client: OnceLock<Arc<Client>>,
}

/// A request in progress, which keeps its connection from being idle until this value is dropped.
pub struct ActiveRequest(Arc<Connection>);

impl Connections {
    /// Makes a registry for at most this many connections, authenticated or not.
    pub fn new(most: usize) -> Arc<Connections> {
        let most_unknown = MAX_UNKNOWN.min(most / 4).max(1);
        let most_authenticated = most.saturating_sub(most_unknown).max(1);
        Arc::new(Connections {
            most_unknown,
            most_authenticated,
            requests_ended: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// Registers a connection of a peer, in place of another unauthenticated one when there are too many.
    pub fn open(self: &Arc<Connections>, peer: Peer) -> Connection {
        let mut state = self.lock();
        if state.unauthenticated.len() >= self.most_unknown
            && let Some(dismissed) = state.dismiss(peer)
        {
            dismissed.end.inspect(AbortHandle::abort);
        }
        state.next += 1;
        let id = state.next;
        state.unauthenticated.push_back(UnauthenticatedConnection { id, peer, end: None });
        let unknown = Arc::new(Client { user: String::new(), peer });
        Connection { all: self.clone(), id, unknown, activity: Arc::default(), client: OnceLock::new() }
    }

    /// Records the handle that ends a connection.
    pub fn set_abort_handle(&self, id: u64, handle: AbortHandle) {
        let mut state = self.lock();
        if let Some(known) = state.authenticated.get_mut(&id) {
            known.end = Some(handle);
        } else if let Some(known) = state.unauthenticated.iter_mut().rev().find(|known| known.id == id) {
            known.end = Some(handle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

impl State {
    /// Removes the oldest connection of the peer with the most unauthenticated ones, counting the new one. `None` when there are none.
    fn dismiss(&mut self, newest: Peer) -> Option<UnauthenticatedConnection> {
        let counts = count([newest].into_iter().chain(self.unauthenticated.iter().map(|known| known.peer)));
        let most = self.unauthenticated.iter().map(|known| counts[&known.peer]).max()?;
        let oldest = self.unauthenticated.iter().position(|known| counts[&known.peer] == most)?;
        self.unauthenticated.remove(oldest)
    }

    /// Ends a connection in favour of a new one of this client. Returns whether there was one to end.
    fn displace(&mut self, newest: &Client) -> bool {
        let victim = self.choose_displaced(newest).and_then(|id| self.authenticated.remove(&id));
        if let Some(end) = victim.as_ref().and_then(|victim| victim.end.as_ref()) {
            end.abort();
        }
        victim.is_some()
    }

    /// Returns the connection to close, of the client with the most connections: the idle connection whose last request ended first, else
    /// the newest one. If that client is the one that connects now, only an idle connection is closed.
    fn choose_displaced(&self, newest: &Client) -> Option<u64> {
        let clients = || self.authenticated.values().map(|known| &*known.client).chain([newest]);
        let by_user = count(clients().map(|client| client.user.as_str()));
        let user = largest(&by_user, newest.user.as_str())?;
        let by_peer = count(clients().filter(|client| client.user == user).map(|client| client.peer));
        let chosen = Client { user: user.to_owned(), peer: largest(&by_peer, newest.peer)? };
        let is_own = chosen == *newest;
        // A connection whose task has ended was taken over by streams, whose number is limited.
        let can_end = |known: &AuthenticatedConnection| known.end.as_ref().is_some_and(|end| !end.is_finished());
        let candidates = || self.authenticated.iter().filter(|(_, known)| *known.client == chosen && can_end(known));
        let idle = candidates().filter(|(_, known)| known.activity.requests.load(Ordering::Relaxed) == 0);
        let oldest = idle.min_by_key(|(_, known)| known.activity.ended.load(Ordering::Relaxed));
        oldest.or_else(|| candidates().next_back().filter(|_| !is_own)).map(|(id, _)| *id)
    }
}

fn count<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut counts = HashMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
}

/// Returns the key with the highest count: this one, if no other has more.
fn largest<K: std::hash::Hash + Eq + Copy>(counts: &HashMap<K, usize>, own: K) -> Option<K> {
    let most = counts.values().max()?;
    if counts.get(&own) == Some(most) {
        return Some(own);
    }
    counts.iter().find(|(_, count)| *count == most).map(|(key, _)| *key)
}

impl Connection {
    /// Returns its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the client, without a user while it is unauthenticated.
    pub fn client(&self) -> &Arc<Client> {
        self.client.get().unwrap_or(&self.unknown)
    }

    /// Marks the client as authenticated: as this user, with its first request. An error is the answer when it has its share of
    /// connections.
    pub fn mark_authenticated(&self, user: &str) -> Result<(), Status> {
        if self.client.get().is_some() {
            return Ok(());
        }
        let mut state = self.all.lock();
        if self.client.get().is_some() {
            return Ok(());
        }
        let client = Arc::new(Client { user: user.to_owned(), peer: self.unknown.peer });
        while state.authenticated.len() >= self.all.most_authenticated {
            if !state.displace(&client) {
                return Err(too_many_requests("too many connections of this client are open"));
            }
        }
        let own = state.unauthenticated.iter().position(|known| known.id == self.id);
        let end = own.and_then(|own| state.unauthenticated.remove(own)).and_then(|known| known.end);
        let known = AuthenticatedConnection { client: client.clone(), activity: self.activity.clone(), end };
        state.authenticated.insert(self.id, known);
        let _ = self.client.set(client);
        Ok(())
    }

    /// Whether the client is still unauthenticated.
    pub fn is_unauthenticated(&self) -> bool {
        self.client.get().is_none()
    }

    /// Begins a request.
    pub fn begin_request(self: &Arc<Connection>) -> ActiveRequest {
        self.activity.requests.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }
}

impl ActiveRequest {
    /// Starts a task that takes the connection over after a change of protocols, and that ends with it.
    pub fn hand_over(self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let connection = self.0.clone();
        let task = tokio::spawn(async move {
            work.await;
            drop(self);
        });
        connection.all.set_abort_handle(connection.id, task.abort_handle());
        task
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let order = self.0.all.requests_ended.fetch_add(1, Ordering::Relaxed);
        self.0.activity.ended.store(order, Ordering::Relaxed);
        self.0.activity.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        if self.client.get().is_some() {
            state.authenticated.remove(&self.id);
        } else {
            state.unauthenticated.retain(|known| known.id != self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Runtime;

    const NEIGHBOUR: Peer = Peer::User(1001);
    const OTHER: Peer = Peer::User(1002);

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// A connection whose task never ends by itself, and a request in progress.
    struct Opened {
        connection: Arc<Connection>,
        task: JoinHandle<()>,
        request: Option<ActiveRequest>,
    }

    fn open(runtime: &Runtime, all: &Arc<Connections>, peer: Peer) -> Opened {
        let connection = Arc::new(all.open(peer));
        let task = runtime.spawn(std::future::pending::<()>());
        all.set_abort_handle(connection.id(), task.abort_handle());
        Opened { request: Some(connection.begin_request()), connection, task }
    }

    /// Opens this number of connections of a user, or fewer if one is refused.
    fn authenticate(runtime: &Runtime, all: &Arc<Connections>, user: &str, peer: Peer, count: usize) -> Vec<Opened> {
        let open = |_| Some(open(runtime, all, peer)).filter(|one| one.connection.mark_authenticated(user).is_ok());
        (0..count).map_while(open).collect()
    }

    /// Returns the positions of connections that were ended.
    fn ended(runtime: &Runtime, connections: &[Opened]) -> Vec<usize> {
        // The runtime polls only some of many tasks between two polls of this one.
        runtime.block_on(async {
            for _ in 0..connections.len() {
                tokio::task::yield_now().await;
            }
        });
        (0..connections.len()).filter(|index| connections[*index].task.is_finished()).collect()
    }

    #[test]
    fn oldest_unknown_connection_is_closed_when_there_are_too_many() {
        let (all, runtime) = (Connections::new(1000), runtime());
        let mut kept: Vec<_> = (0..MAX_UNKNOWN).map(|_| open(&runtime, &all, NEIGHBOUR)).collect();
        kept[0].connection.mark_authenticated("ann").unwrap();
        kept.push(open(&runtime, &all, NEIGHBOUR));
        assert!(ended(&runtime, &kept).is_empty());
        kept.push(open(&runtime, &all, NEIGHBOUR));
        assert_eq!(ended(&runtime, &kept), [1]);
    }

    #[test]
    fn peer_with_many_unknown_connections_loses_its_own() {
        let (all, runtime) = (Connections::new(1000), runtime());
        let mut few = vec![open(&runtime, &all, OTHER)];
        let many: Vec<_> = (0..2 * MAX_UNKNOWN).map(|_| open(&runtime, &all, NEIGHBOUR)).collect();
        few.push(open(&runtime, &all, OTHER));
        assert!(ended(&runtime, &few).is_empty(), "the oldest connection belongs to another peer");
        assert_eq!(ended(&runtime, &many).len(), MAX_UNKNOWN + 2);
    }

    #[test]
    fn second_client_gets_in_beside_one_with_all_connections() {
        let (all, runtime) = (Connections::new(16), runtime());
        let many = authenticate(&runtime, &all, "ann", NEIGHBOUR, 100);
        assert_eq!(many.len(), 12);
        let other = authenticate(&runtime, &all, "bob", NEIGHBOUR, 100);
        assert_eq!((ended(&runtime, &many), other.len()), (vec![6, 7, 8, 9, 10, 11], 6));
        // From another address the same user gets half of the user's share.
        let distant = authenticate(&runtime, &all, "ann", OTHER, 100);
        assert_eq!((ended(&runtime, &many).len(), distant.len()), (9, 3));
        assert!(ended(&runtime, &other).is_empty());
        drop(many);
        assert_eq!(authenticate(&runtime, &all, "ann", NEIGHBOUR, 2).len(), 2, "there is room again");
    }

    #[test]
    fn idle_connection_is_replaced_before_a_busy_one() {
        let (all, runtime) = (Connections::new(16), runtime());
        let mut many = authenticate(&runtime, &all, "ann", NEIGHBOUR, 12);
        for idle in [5, 2] {
            many[idle].request = None;
        }
        let mut own = authenticate(&runtime, &all, "ann", NEIGHBOUR, 1);
        assert_eq!((ended(&runtime, &many), own.len()), (vec![5], 1), "it has been idle longest");
        let others = authenticate(&runtime, &all, "bob", NEIGHBOUR, 1);
        assert_eq!((ended(&runtime, &many), others.len()), (vec![2, 5], 1));
        let refused = open(&runtime, &all, NEIGHBOUR).connection;
        assert_eq!(refused.mark_authenticated("ann").unwrap_err().code(), 429);
        assert!(refused.is_unauthenticated());
        own[0].request = None;
        assert_eq!(refused.mark_authenticated("ann"), Ok(()));
    }

    #[test]
    fn connection_that_streams_took_over_is_not_ended() {
        let (all, runtime) = (Connections::new(4), runtime());
        let mut many = authenticate(&runtime, &all, "ann", NEIGHBOUR, 3);
        many[2].task.abort();
        assert_eq!(ended(&runtime, &many), [2]);
        let others = authenticate(&runtime, &all, "bob", NEIGHBOUR, 1);
        assert_eq!((ended(&runtime, &many), others.len()), (vec![1, 2], 1));
        let _entered = runtime.enter();
        many[2].task = many[2].request.take().unwrap().hand_over(std::future::pending());
        assert_eq!(ended(&runtime, &many), [1]);
        drop(authenticate(&runtime, &all, "eve", NEIGHBOUR, 1));
        assert_eq!(ended(&runtime, &many), [1, 2], "its new task can be ended");
    }
}
