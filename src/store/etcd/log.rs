//! The shared log of a cluster on etcd: keys below a prefix, changed by transactions that compare the head.
//!
//! `PREFIX/kloop` describes the cluster, `PREFIX/head` has the number of the last batch, `PREFIX/log/NUMBER` the batches,
//! `PREFIX/snapshot` describes the newest snapshot, `PREFIX/snapshot/POSITION/NUMBER` has its chunks, `PREFIX/leader` the leader's claim.
//! Never: reads a batch. Start reading at [`EtcdLog::connect`].

use super::address::EtcdAddress;
use super::client::EtcdClient;
use super::connection::EtcdError;
use super::message::{EtcdCompare, EtcdOperation, EtcdPair, EtcdTxn, EtcdTxnReply};
use crate::object::{IgnorePoison, bug_text};
use crate::store::log_batch::read_id;
use crate::store::properties::{self, encode_properties, read_property};
use crate::store::shared_log::{AppendOutcome, LogError, SharedLog, SharedTail, SnapshotManifest};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// The version of the keys and of their values. A reader refuses a prefix of a later one.
const KEYS_FORMAT: u64 = 1;

/// Time in which a member has to answer; then another one is asked.
const MEMBER_TIMEOUT: Duration = Duration::from_millis(1000);

/// Pause after an attempt that reached no member.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Time in which a member has to answer about the leader's claim, which is renewed four times a second.
const CLAIM_ATTEMPT: Duration = Duration::from_millis(400);

/// Batches that are read at once, each of at most [`MAX_BYTES`].
const AT_ONCE: u64 = 16;

/// Number of etcd's latest revisions whose history is kept at a compaction, for other programs that watch it.
const KEPT_HISTORY: u64 = 10_000;

/// Maximum length of a batch in bytes. etcd takes requests of 1.5 MiB by default.
const MAX_BYTES: usize = (3 << 19) - 4096;

/// The log of a cluster.
#[derive(Clone)]
pub struct EtcdLog {
    client: Arc<EtcdClient>,
    address: String,
    prefix: String,
    /// The description of the cluster as it was read last: a batch is only appended to that cluster.
    description: Option<Vec<u8>>,
}

impl EtcdLog {
    /// Makes the log of an address. Logs of one address share a client, which connects at the first call.
    pub fn connect(address: &EtcdAddress) -> Result<EtcdLog, LogError> {
        static CLIENTS: LazyLock<Mutex<BTreeMap<String, Arc<EtcdClient>>>> = LazyLock::new(Mutex::default);
        let text = address.to_text();
        let mut clients = CLIENTS.lock().ignore_poison();
        let client = match clients.get(&text) {
            Some(client) => client.clone(),
            None => {
                let client = Arc::new(EtcdClient::start(address).map_err(log_error)?);
                clients.insert(text.clone(), client.clone());
                client
            }
        };
        Ok(EtcdLog { client, address: text, prefix: address.prefix.clone(), description: None })
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    fn batch_key(&self, number: u64) -> String {
        format!("{}/log/{number:020}", self.prefix)
    }

    fn chunk_key(&self, position: u64, number: u64) -> String {
        format!("{}/snapshot/{position:020}/{number:08}", self.prefix)
    }

    fn put_manifest(&self, snapshot: SnapshotManifest) -> EtcdOperation {
        EtcdOperation::Put(self.key("snapshot"), encode_manifest(snapshot))
    }

    fn get(&self, key: &str, patience: Duration) -> Result<Option<Vec<u8>>, LogError> {
        let txn = EtcdTxn { operations: vec![EtcdOperation::Get(key.to_owned())], ..EtcdTxn::default() };
        let reply = self.call(&txn, patience).map_err(|error| log_error(error.into_read_failure()))?;
        Ok(reply.pairs.into_iter().flatten().next().map(|pair| pair.value))
    }

    /// Makes a transaction that may be repeated, until it is answered or the time is over.
    fn call(&self, txn: &EtcdTxn, patience: Duration) -> Result<EtcdTxnReply, EtcdError> {
        self.call_within(txn, patience, MEMBER_TIMEOUT)
    }

    /// Like [`EtcdLog::call`]; `attempt` is the time in which a member has to answer.
    fn call_within(&self, txn: &EtcdTxn, patience: Duration, attempt: Duration) -> Result<EtcdTxnReply, EtcdError> {
        let start = Instant::now();
        let mut is_unanswered = false;
        loop {
            let left = patience.saturating_sub(start.elapsed());
            let error = match self.client.call_txn(txn, attempt.min(left.max(RETRY_PAUSE))) {
                Ok(reply) => return Ok(reply),
                Err(error @ EtcdError::Refused(_)) if !is_unanswered => return Err(error),
                Err(error) => error,
            };
            is_unanswered |= !matches!(error, EtcdError::Unreachable(_));
            if start.elapsed() + RETRY_PAUSE >= patience {
                let text = error.text().to_owned();
                return Err(match is_unanswered {
                    true => EtcdError::Unanswered(text),
                    false => EtcdError::Unreachable(text),
                });
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }
}

impl SharedLog for EtcdLog {
    fn create(
        &mut self,
        cluster: &str,
        snapshot: Option<SnapshotManifest>,
        patience: Duration,
    ) -> Result<(), LogError> {
        let head = snapshot.map_or(0, |snapshot| snapshot.position).to_string();
        let manifest = snapshot.map(|snapshot| self.put_manifest(snapshot));
        let format = KEYS_FORMAT.to_string();
        let description = encode_properties(&[("format", &format), ("cluster", cluster)]);
        let txn = EtcdTxn {
            compares: vec![EtcdCompare::Absent(self.key("kloop"))],
            operations: [
                EtcdOperation::Put(self.key("kloop"), description),
                EtcdOperation::Put(self.key("head"), head.into_bytes()),
            ]
            .into_iter()
            .chain(manifest)
            .collect(),
            otherwise: Vec::new(),
        };
        // When an answer is lost, the next reader finds whichever description is there.
        self.call(&txn, patience).map(drop).map_err(|error| log_error(error.into_read_failure()))
    }

    fn read_tail(&mut self, after: u64, patience: Duration) -> Result<SharedTail, LogError> {
        let end = format!("{}/log/~", self.prefix);
        let txn = EtcdTxn {
            operations: vec![
                EtcdOperation::Get(self.key("kloop")),
                EtcdOperation::Get(self.key("head")),
                EtcdOperation::Range(self.batch_key(after + 1), end.clone(), AT_ONCE),
                EtcdOperation::FirstKey(self.batch_key(0), end),
            ],
            ..EtcdTxn::default()
        };
        let reply = self.call(&txn, patience).map_err(|error| log_error(error.into_read_failure()))?;
        let [description, head, batches, oldest] = &reply.pairs[..] else {
            return Err(LogError::Unreachable("etcd's answer has not as many parts as the question".to_owned()));
        };
        self.description = description.first().map(|pair| pair.value.clone());
        let Some(description) = &self.description else { return Ok(SharedTail::default()) };
        let foreign = || foreign_keys(&self.prefix);
        let cluster = read_description(description)?.ok_or_else(foreign)?;
        let head = head.first().and_then(|pair| read_head(&pair.value)).ok_or_else(foreign)?;
        let number = |pair: &EtcdPair| pair.key.rsplit('/').next()?.parse().ok();
        let numbered = |pair: &EtcdPair| Some((number(pair)?, pair.value.clone()));
        let batches = batches.iter().map(numbered).collect::<Option<Vec<_>>>().ok_or_else(foreign)?;
        let oldest = oldest.first().and_then(number).unwrap_or(head + 1);
        Ok(SharedTail { cluster: Some(cluster), head, oldest, batches })
    }

    fn append(&mut self, after: u64, id: u64, batch: &[u8], patience: Duration) -> Result<AppendOutcome, LogError> {
        if batch.len() > MAX_BYTES {
            return Err(LogError::Refused(format!(
                "a change of {} bytes is more than etcd takes at once ({MAX_BYTES} bytes): make it in smaller parts",
                batch.len()
            )));
        }
        let Some(description) = self.description.clone() else {
            return Err(LogError::Refused(bug_text("the log was not read before it was written")));
        };
        let next = self.batch_key(after + 1);
        let txn = EtcdTxn {
            compares: vec![
                EtcdCompare::Value(self.key("head"), after.to_string().into_bytes()),
                EtcdCompare::Value(self.key("kloop"), description),
            ],
            operations: vec![
                EtcdOperation::Put(next.clone(), batch.to_vec()),
                EtcdOperation::Put(self.key("head"), (after + 1).to_string().into_bytes()),
            ],
            otherwise: vec![EtcdOperation::Get(next)],
        };
        let reply = self.call(&txn, patience).map_err(log_error)?;
        // An attempt whose answer was lost may have appended it.
        let is_own = || reply.pairs.iter().flatten().any(|pair| read_id(&pair.value) == id);
        Ok(if reply.succeeded || is_own() { AppendOutcome::Appended } else { AppendOutcome::Overtaken })
    }

    fn watch(&self, moved: Box<dyn Fn(Option<u64>) + Send>) -> Box<dyn Any + Send> {
        let changed = Box::new(move |value: Option<&[u8]>| moved(value.and_then(read_head)));
        // The client lives as long as the watch.
        Box::new((self.client.watch(&self.key("head"), changed), self.client.clone()))
    }

    fn put_chunk(&mut self, position: u64, number: u64, chunk: &[u8], patience: Duration) -> Result<(), LogError> {
        let operations = vec![EtcdOperation::Put(self.chunk_key(position, number), chunk.to_vec())];
        self.call(&EtcdTxn { operations, ..EtcdTxn::default() }, patience).map(drop).map_err(log_error)
    }

    fn publish(
        &mut self,
        snapshot: SnapshotManifest,
        seen: Option<SnapshotManifest>,
        keep: u64,
        patience: Duration,
    ) -> Result<bool, LogError> {
        let key = self.key("snapshot");
        let compares = vec![match seen {
            None => EtcdCompare::Absent(key.clone()),
            Some(seen) => EtcdCompare::Value(key.clone(), encode_manifest(seen)),
        }];
        let operations = vec![
            self.put_manifest(snapshot),
            EtcdOperation::DeleteRange(self.chunk_key(0, 0), self.chunk_key(snapshot.position, 0)),
            EtcdOperation::DeleteRange(self.batch_key(0), self.batch_key(keep)),
        ];
        let otherwise = vec![EtcdOperation::Get(key)];
        let reply = self.call(&EtcdTxn { compares, operations, otherwise }, patience).map_err(log_error)?;
        // An attempt whose answer was lost may have published it.
        let own = encode_manifest(snapshot);
        if !reply.succeeded && !reply.pairs.iter().flatten().any(|pair| pair.value == own) {
            return Ok(false);
        }
        // etcd keeps earlier values of each key until they are compacted. Another machine may have done it already.
        let _ = self.client.compact(reply.revision.saturating_sub(KEPT_HISTORY), MEMBER_TIMEOUT);
        Ok(true)
    }

    fn read_manifest(&mut self, patience: Duration) -> Result<Option<SnapshotManifest>, LogError> {
        let value = self.get(&self.key("snapshot"), patience)?;
        value.map(|value| read_manifest(&value).ok_or_else(|| foreign_keys(&self.prefix))).transpose()
    }

    fn read_chunk(&mut self, position: u64, number: u64, patience: Duration) -> Result<Option<Vec<u8>>, LogError> {
        self.get(&self.chunk_key(position, number), patience)
    }

    fn discard_chunks(&mut self, position: u64, patience: Duration) -> Result<(), LogError> {
        let operations = vec![EtcdOperation::DeleteRange(self.chunk_key(position, 0), self.chunk_key(position + 1, 0))];
        self.call(&EtcdTxn { operations, ..EtcdTxn::default() }, patience).map(drop).map_err(log_error)
    }

    fn read_claim(&mut self, patience: Duration) -> Result<Vec<u8>, LogError> {
        let operations = vec![EtcdOperation::Get(self.key("leader"))];
        let txn = EtcdTxn { operations, ..EtcdTxn::default() };
        let reply =
            self.call_within(&txn, patience, CLAIM_ATTEMPT).map_err(|error| log_error(error.into_read_failure()))?;
        Ok(reply.pairs.into_iter().flatten().next().map(|pair| pair.value).unwrap_or_default())
    }

    fn replace_claim(&mut self, seen: &[u8], claim: &[u8], patience: Duration) -> Result<bool, LogError> {
        let key = self.key("leader");
        let txn = EtcdTxn {
            compares: vec![match seen.is_empty() {
                true => EtcdCompare::Absent(key.clone()),
                false => EtcdCompare::Value(key.clone(), seen.to_vec()),
            }],
            operations: vec![match claim.is_empty() {
                true => EtcdOperation::Delete(key.clone()),
                false => EtcdOperation::Put(key.clone(), claim.to_vec()),
            }],
            otherwise: vec![EtcdOperation::Get(key)],
        };
        let reply = self.call_within(&txn, patience, CLAIM_ATTEMPT).map_err(log_error)?;
        // An attempt whose answer was lost may have replaced it.
        let is_own = || reply.pairs.iter().flatten().any(|pair| pair.value == claim);
        Ok(reply.succeeded || is_own())
    }

    fn handle(&self) -> Box<dyn SharedLog> {
        Box::new(self.clone())
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

fn log_error(error: EtcdError) -> LogError {
    match error {
        EtcdError::Unreachable(text) => LogError::Unreachable(text),
        EtcdError::Unanswered(text) => LogError::Unknown(text),
        EtcdError::Refused(text) | EtcdError::Unauthenticated(text) => LogError::Refused(text),
    }
}

/// Returns the cluster of a description; `None` for another program's value.
fn read_description(text: &[u8]) -> Result<Option<String>, LogError> {
    match properties::read_number(text, "format") {
        Some(format) if format > KEYS_FORMAT => Err(LogError::Newer(format)),
        Some(_) => Ok(read_property(text, "cluster").map(str::to_owned)),
        None => Ok(None),
    }
}

fn foreign_keys(prefix: &str) -> LogError {
    LogError::Refused(format!("the keys below {prefix} are not those of a kloop cluster"))
}

fn encode_manifest(snapshot: SnapshotManifest) -> Vec<u8> {
    let [position, revision, chunks] =
        [snapshot.position, snapshot.revision, snapshot.chunks].map(|number| number.to_string());
    encode_properties(&[("position", &position), ("revision", &revision), ("chunks", &chunks)])
}

fn read_manifest(text: &[u8]) -> Option<SnapshotManifest> {
    let number = |name: &str| properties::read_number(text, name);
    Some(SnapshotManifest { position: number("position")?, revision: number("revision")?, chunks: number("chunks")? })
}

fn read_head(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_a_newer_kloop_and_other_programs_are_refused() {
        assert_eq!(read_description(b"format=1\ncluster=c\n"), Ok(Some("c".into())));
        assert_eq!(read_description(b"format=2\n"), Err(LogError::Newer(2)));
        for foreign in ["", "x", "{}", "format=x\ncluster=c", "format=1"] {
            assert_eq!(read_description(foreign.as_bytes()), Ok(None), "{foreign}");
        }
    }
}
