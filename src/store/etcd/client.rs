//! A client of etcd: calls to whichever member answers, and watches, on a thread of its own.
//!
//! Knows: the members, the token of the user. Never: repeats a call whose outcome is unknown; callers do, who know whether that is safe.
//! Start reading at [`EtcdClient::call_txn`].

use super::address::EtcdAddress;
use super::connection::{EtcdConnection, EtcdError, read_tls};
use super::message::{self, EtcdTxn, EtcdTxnReply};
use crate::object::host_port;
use rustls::ClientConfig;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

const TXN: &str = "/etcdserverpb.KV/Txn";
const COMPACT: &str = "/etcdserverpb.KV/Compact";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// Time in which a member must accept a connection.
const CONNECTING: Duration = Duration::from_millis(500);

/// Pause before a watch that ended begins again.
const WATCH_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A client. Its thread ends with it.
pub struct EtcdClient {
    jobs: UnboundedSender<ClientJob>,
}

/// A watch of a key, until it is dropped.
pub struct EtcdWatch {
    _stop: oneshot::Sender<()>,
}

/// Receives the new value of a watched key, and `None` when changes may have been missed.
pub type ChangeHandler = Box<dyn Fn(Option<&[u8]>) + Send>;

type CallReply = SyncSender<Result<Vec<u8>, EtcdError>>;

/// Work for the thread.
enum ClientJob {
    Call(&'static str, Vec<u8>, Duration, CallReply),
    Watch(String, ChangeHandler, oneshot::Receiver<()>),
}

impl EtcdClient {
    /// Starts a client. Reads the files of the address, and connects at the first call.
    pub fn start(address: &EtcdAddress) -> Result<EtcdClient, EtcdError> {
        let tls = read_tls(address)?;
        let variable = |name: &str| std::env::var(name).ok();
        let password = address.read_password(variable).map_err(EtcdError::Refused)?;
        let credentials = match (&address.user, password) {
            (None, _) => None,
            (Some(user), Some(password)) => Some((user.clone(), password)),
            (Some(user), None) => {
                return Err(EtcdError::Refused(format!(
                    "the user {user} has no password: set ETCDCTL_PASSWORD, or name a file with ?password-file=FILE"
                )));
            }
        };
        let failed = |error: std::io::Error| EtcdError::Unreachable(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build();
        let runtime = runtime.map_err(failed)?;
        let (jobs, queue) = unbounded_channel();
        let members = address.members.clone();
        let thread = std::thread::Builder::new().name("etcd".to_owned()).stack_size(512 << 10);
        let work = move || {
            let link = Rc::new(MemberLink::new(members, tls, credentials));
            LocalSet::new().block_on(&runtime, run(link, queue));
        };
        thread.spawn(work).map_err(failed)?;
        Ok(EtcdClient { jobs })
    }

    /// Makes a transaction: one attempt at one member, within a time.
    pub fn call_txn(&self, txn: &EtcdTxn, timeout: Duration) -> Result<EtcdTxnReply, EtcdError> {
        let message = self.call(TXN, txn.encode(), timeout)?;
        let malformed = |_| EtcdError::Unanswered("etcd's answer is malformed".to_owned());
        message::read_txn_reply(&message).map_err(malformed)
    }

    /// Makes etcd forget the history of all keys before a revision: one attempt, within a time.
    pub fn compact(&self, revision: u64, timeout: Duration) -> Result<(), EtcdError> {
        self.call(COMPACT, message::encode_compaction(revision), timeout).map(drop)
    }

    fn call(&self, path: &'static str, message: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, EtcdError> {
        let (reply, answer) = sync_channel(1);
        let ended = || EtcdError::Unanswered("the thread of the client has ended".to_owned());
        self.jobs.send(ClientJob::Call(path, message, timeout, reply)).map_err(|_| ended())?;
        // The thread answers in time; the longer wait is for a machine that is busy.
        match answer.recv_timeout(timeout + Duration::from_secs(5)) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(EtcdError::Unanswered("no answer in time".to_owned())),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }

    /// Calls a function on the client's thread at each change of a key, and whenever changes may have been missed.
    pub fn watch(&self, key: &str, changed: ChangeHandler) -> EtcdWatch {
        let (stop, stopped) = oneshot::channel();
        // Without the thread there is no watch; callers also check periodically.
        let _ = self.jobs.send(ClientJob::Watch(key.to_owned(), changed, stopped));
        EtcdWatch { _stop: stop }
    }
}

/// Works until the client is dropped.
async fn run(link: Rc<MemberLink>, mut queue: UnboundedReceiver<ClientJob>) {
    while let Some(job) = queue.recv().await {
        let link = link.clone();
        match job {
            ClientJob::Call(path, message, timeout, reply) => drop(tokio::task::spawn_local(async move {
                // A caller that has gone needs no answer.
                let _ = reply.send(link.call(path, &message, timeout).await);
            })),
            ClientJob::Watch(key, changed, stopped) => drop(tokio::task::spawn_local(async move {
                tokio::select! {
                    _ = link.watch(&key, &changed) => {}
                    _ = stopped => {}
                }
            })),
        }
    }
}

/// The connection to the present member.
struct MemberLink {
    members: Vec<(String, u16)>,
    tls: Option<Arc<ClientConfig>>,
    credentials: Option<(String, String)>,
    /// The index of the present member.
    place: Cell<usize>,
    /// The number of the present connection.
    number: Cell<u64>,
    connection: RefCell<Option<EtcdConnection>>,
    token: RefCell<Option<Arc<str>>>,
    /// Held while one call connects for all.
    opening: tokio::sync::Mutex<()>,
}

impl MemberLink {
    fn new(
        members: Vec<(String, u16)>,
        tls: Option<Arc<ClientConfig>>,
        credentials: Option<(String, String)>,
    ) -> MemberLink {
        MemberLink {
            members,
            tls,
            credentials,
            place: Cell::new(0),
            number: Cell::new(0),
            connection: RefCell::new(None),
            token: RefCell::new(None),
            opening: tokio::sync::Mutex::new(()),
        }
    }

    /// Sends one call to the current member. After a failure the next call uses another member.
    async fn call(&self, path: &str, message: &[u8], timeout: Duration) -> Result<Vec<u8>, EtcdError> {
        let deadline = tokio::time::Instant::now() + timeout;
        let opened = tokio::time::timeout_at(deadline, self.open()).await;
        let (number, connection) = match opened {
            Ok(opened) => opened?,
            Err(_) => return Err(EtcdError::Unreachable("no member accepts a connection".to_owned())),
        };
        let calling = async {
            let called = connection.call(path, self.token().as_deref(), message).await;
            let Err(EtcdError::Unauthenticated(_)) = called else { return called };
            // The token has expired: nothing was done.
            self.token.replace(None);
            self.authenticate(&connection).await?;
            connection.call(path, self.token().as_deref(), message).await
        };
        let called = tokio::time::timeout_at(deadline, calling).await;
        let called = called.unwrap_or_else(|_| {
            let text = format!("no answer within {} ms", timeout.as_millis());
            Err(EtcdError::Unanswered(text))
        });
        if let Err(EtcdError::Unreachable(_) | EtcdError::Unanswered(_)) = called {
            self.leave(number);
        }
        called.map_err(|error| match error {
            EtcdError::Unauthenticated(text) => EtcdError::Refused(text),
            other => other,
        })
    }

    fn token(&self) -> Option<Arc<str>> {
        self.token.borrow().clone()
    }

    /// Leaves the present member for the next one, unless another call has done so since.
    fn leave(&self, number: u64) {
        if self.number.get() == number {
            self.connection.replace(None);
            self.place.set((self.place.get() + 1) % self.members.len());
            self.number.set(number + 1);
        }
    }

    /// Returns the present connection; opens one to the next member that accepts it.
    async fn open(&self) -> Result<(u64, EtcdConnection), EtcdError> {
        let _opening = self.opening.lock().await;
        if let Some(connection) = &*self.connection.borrow() {
            return Ok((self.number.get(), connection.clone()));
        }
        let mut problems = Vec::new();
        for step in 0..self.members.len() {
            let place = (self.place.get() + step) % self.members.len();
            let member = &self.members[place];
            let opening = tokio::time::timeout(CONNECTING, EtcdConnection::open(member, self.tls.clone())).await;
            let silent = || EtcdError::Unreachable(format!("{}: no answer", host_port(&member.0, member.1)));
            match opening.unwrap_or_else(|_| Err(silent())) {
                Ok(connection) => {
                    self.authenticate(&connection).await?;
                    self.place.set(place);
                    self.number.set(self.number.get() + 1);
                    self.connection.replace(Some(connection.clone()));
                    return Ok((self.number.get(), connection));
                }
                Err(EtcdError::Refused(text)) => return Err(EtcdError::Refused(text)),
                Err(error) => problems.push(error.text().to_owned()),
            }
        }
        Err(EtcdError::Unreachable(problems.join("; ")))
    }

    /// Gets a token for the user, if there is one.
    async fn authenticate(&self, connection: &EtcdConnection) -> Result<(), EtcdError> {
        let Some((user, password)) = &self.credentials else { return Ok(()) };
        if self.token.borrow().is_some() {
            return Ok(());
        }
        let message = message::encode_authenticate(user, password);
        let answer = connection.call(AUTHENTICATE, None, &message).await.map_err(EtcdError::into_read_failure)?;
        let malformed = |_| EtcdError::Refused("etcd's token is malformed".to_owned());
        self.token.replace(Some(message::read_token(&answer).map_err(malformed)?.into()));
        Ok(())
    }

    /// Watches a key for as long as the future is polled.
    async fn watch(&self, key: &str, changed: &ChangeHandler) {
        loop {
            if let Ok((number, connection)) = self.open().await {
                if let Err(EtcdError::Unauthenticated(_)) = self.watch_at(&connection, key, changed).await {
                    // The token has expired, and the next connection gets another one.
                    self.token.replace(None);
                }
                self.leave(number);
            }
            changed(None);
            tokio::time::sleep(WATCH_RETRY_PAUSE).await;
        }
    }

    async fn watch_at(&self, connection: &EtcdConnection, key: &str, changed: &ChangeHandler) -> Result<(), EtcdError> {
        let request = message::encode_watch(key);
        let mut stream = connection.start(WATCH, self.token().as_deref(), &request, false).await?;
        // Changes before the watch began were not reported.
        changed(None);
        while let Some(message) = stream.next().await? {
            match message::read_watch_reply(&message) {
                Ok(reply) if reply.is_canceled => return Ok(()),
                Ok(reply) if reply.value.is_some() => changed(reply.value.as_deref()),
                _ => {}
            }
        }
        Ok(())
    }
}
