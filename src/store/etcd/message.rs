//! The few messages of etcd's API that kloop uses, as protobuf (etcd's `rpc.proto` and `kv.proto`).
//!
//! Never: sends anything. Start reading at [`EtcdTxn`].

use crate::store::protobuf::{FieldWriter, MalformedMessage, read_fields};

/// A transaction: all comparisons hold, or nothing is done.
#[derive(Clone, Debug, Default)]
pub struct EtcdTxn {
    /// The comparisons.
    pub compares: Vec<EtcdCompare>,
    /// The operations, in their order.
    pub operations: Vec<EtcdOperation>,
    /// The operations for the case that a comparison does not hold.
    pub otherwise: Vec<EtcdOperation>,
}

/// A comparison.
#[derive(Clone, Debug)]
pub enum EtcdCompare {
    /// The key has this value.
    Value(String, Vec<u8>),
    /// The key does not exist.
    Absent(String),
}

/// An operation.
#[derive(Clone, Debug)]
pub enum EtcdOperation {
    /// Reads the keys from the first to before the second, at most a number of them.
    Range(String, String, u64),
    /// Reads the first key from one to before another, without its value.
    FirstKey(String, String),
    /// Reads one key.
    Get(String),
    /// Writes a key.
    Put(String, Vec<u8>),
    /// Deletes the keys from the first to before the second.
    DeleteRange(String, String),
    /// Deletes one key.
    Delete(String),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPair {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
}

/// The answer to a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdTxnReply {
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The pairs that each operation read; none for one that writes.
    pub pairs: Vec<Vec<EtcdPair>>,
    /// etcd's revision.
    pub revision: u64,
}

/// An answer of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchReply {
    /// Whether etcd has ended the watch.
    pub is_canceled: bool,
    /// The value of the last change, if there was one.
    pub value: Option<Vec<u8>>,
}

/// Numbers of comparisons' targets (`Compare.CompareTarget`).
const CREATE_REVISION: u64 = 1;
const VALUE: u64 = 3;

impl EtcdTxn {
    /// Encodes a `TxnRequest`.
    pub fn encode(&self) -> Vec<u8> {
        let mut request = FieldWriter::default();
        for compare in &self.compares {
            request.message(1, &compare.encode());
        }
        for operation in &self.operations {
            request.message(2, &operation.encode());
        }
        for operation in &self.otherwise {
            request.message(3, &operation.encode());
        }
        request.finish()
    }
}

impl EtcdCompare {
    fn encode(&self) -> Vec<u8> {
        let mut compare = FieldWriter::default();
        match self {
            EtcdCompare::Value(key, value) => {
                compare.number(2, VALUE).bytes(3, key.as_bytes()).message(7, value);
            }
            EtcdCompare::Absent(key) => {
                compare.number(2, CREATE_REVISION).bytes(3, key.as_bytes());
            }
        }
        compare.finish()
    }
}

impl EtcdOperation {
    fn encode(&self) -> Vec<u8> {
        let mut request = FieldWriter::default();
        let number = match self {
            EtcdOperation::Range(from, to, limit) => {
                request.bytes(1, from.as_bytes()).bytes(2, to.as_bytes()).number(3, *limit);
                1
            }
            EtcdOperation::FirstKey(from, to) => {
                // Field 8 is `keys_only`.
                request.bytes(1, from.as_bytes()).bytes(2, to.as_bytes()).number(3, 1).number(8, 1);
                1
            }
            EtcdOperation::Get(key) => {
                request.bytes(1, key.as_bytes());
                1
            }
            EtcdOperation::Put(key, value) => {
                request.bytes(1, key.as_bytes()).bytes(2, value);
                2
            }
            EtcdOperation::DeleteRange(from, to) => {
                request.bytes(1, from.as_bytes()).bytes(2, to.as_bytes());
                3
            }
            EtcdOperation::Delete(key) => {
                request.bytes(1, key.as_bytes());
                3
            }
        };
        let request = request.finish();
        let mut operation = FieldWriter::default();
        operation.message(number, &request);
        operation.finish()
    }
}

/// Reads a `TxnResponse`.
pub fn read_txn_reply(message: &[u8]) -> Result<EtcdTxnReply, MalformedMessage> {
    let mut reply = EtcdTxnReply::default();
    for field in read_fields(message) {
        match field? {
            (1, header) => reply.revision = read_revision(header.as_bytes())?,
            (2, succeeded) => reply.succeeded = succeeded.as_number() != 0,
            (3, operation) => {
                let mut pairs = Vec::new();
                for field in read_fields(operation.as_bytes()) {
                    if let (1, range) = field? {
                        pairs = read_pairs(range.as_bytes())?;
                    }
                }
                reply.pairs.push(pairs);
            }
            _ => {}
        }
    }
    Ok(reply)
}

fn read_revision(header: &[u8]) -> Result<u64, MalformedMessage> {
    for field in read_fields(header) {
        if let (3, revision) = field? {
            return Ok(revision.as_number());
        }
    }
    Ok(0)
}

/// Reads the pairs of a `RangeResponse`.
fn read_pairs(range: &[u8]) -> Result<Vec<EtcdPair>, MalformedMessage> {
    let mut pairs = Vec::new();
    for field in read_fields(range) {
        let (2, pair) = field? else { continue };
        let (mut key, mut value) = (String::new(), Vec::new());
        for field in read_fields(pair.as_bytes()) {
            match field? {
                (1, text) => key = String::from_utf8_lossy(text.as_bytes()).into_owned(),
                (5, bytes) => value = bytes.as_bytes().to_vec(),
                _ => {}
            }
        }
        pairs.push(EtcdPair { key, value });
    }
    Ok(pairs)
}

/// Encodes an `AuthenticateRequest`.
pub fn encode_authenticate(user: &str, password: &str) -> Vec<u8> {
    let mut request = FieldWriter::default();
    request.bytes(1, user.as_bytes()).bytes(2, password.as_bytes());
    request.finish()
}

/// Reads the token of an `AuthenticateResponse`.
pub fn read_token(message: &[u8]) -> Result<String, MalformedMessage> {
    for field in read_fields(message) {
        if let (2, token) = field? {
            return Ok(String::from_utf8_lossy(token.as_bytes()).into_owned());
        }
    }
    Ok(String::new())
}

/// Encodes the `WatchRequest` that begins a watch of one key, with reports of its progress.
pub fn encode_watch(key: &str) -> Vec<u8> {
    let mut create = FieldWriter::default();
    create.bytes(1, key.as_bytes()).number(4, 1);
    let create = create.finish();
    let mut request = FieldWriter::default();
    request.message(1, &create);
    request.finish()
}

/// Reads a `WatchResponse`.
pub fn read_watch_reply(message: &[u8]) -> Result<WatchReply, MalformedMessage> {
    let mut reply = WatchReply::default();
    for field in read_fields(message) {
        match field? {
            (4, canceled) => reply.is_canceled = canceled.as_number() != 0,
            (11, event) => reply.value = Some(read_event(event.as_bytes())?),
            _ => {}
        }
    }
    Ok(reply)
}

/// Reads the value of an `Event`; empty for a key that was deleted.
fn read_event(event: &[u8]) -> Result<Vec<u8>, MalformedMessage> {
    let mut value = Vec::new();
    for field in read_fields(event) {
        let (2, pair) = field? else { continue };
        for field in read_fields(pair.as_bytes()) {
            if let (5, bytes) = field? {
                value = bytes.as_bytes().to_vec();
            }
        }
    }
    Ok(value)
}

/// Encodes a `CompactionRequest`.
pub fn encode_compaction(revision: u64) -> Vec<u8> {
    let mut request = FieldWriter::default();
    request.number(1, revision);
    request.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_is_encoded_as_etcd_reads_it() {
        let txn = EtcdTxn {
            compares: vec![EtcdCompare::Value("h".into(), b"7".to_vec()), EtcdCompare::Absent("n".into())],
            operations: vec![EtcdOperation::Put("k".into(), b"v".to_vec())],
            otherwise: vec![EtcdOperation::Range("a".into(), "b".into(), 5)],
        };
        let expected = [
            &[0x0a, 8, 0x10, 3, 0x1a, 1, b'h', 0x3a, 1, b'7'][..],
            &[0x0a, 5, 0x10, 1, 0x1a, 1, b'n'],
            &[0x12, 8, 0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'v'],
            &[0x1a, 10, 0x0a, 8, 0x0a, 1, b'a', 0x12, 1, b'b', 0x18, 5],
        ];
        assert_eq!(txn.encode(), expected.concat());
    }

    #[test]
    fn answers_are_read() {
        let pair = [0x0a, 1, b'k', 0x10, 3, 0x2a, 1, b'v'];
        let mut message = vec![0x0a, 2, 0x18, 9, 0x10, 1, 0x1a, 12, 0x0a, 10, 0x12, 8];
        message.extend_from_slice(&pair);
        let reply = read_txn_reply(&message).unwrap();
        let pairs = vec![vec![EtcdPair { key: "k".into(), value: b"v".to_vec() }]];
        assert_eq!(reply, EtcdTxnReply { succeeded: true, pairs, revision: 9 });
        assert_eq!(read_token(&[0x12, 2, b't', b'1']).unwrap(), "t1");
        let canceled = WatchReply { is_canceled: true, value: None };
        assert_eq!(read_watch_reply(&[0x20, 1]).unwrap(), canceled);
        let changed = WatchReply { is_canceled: false, value: Some(b"7".to_vec()) };
        assert_eq!(read_watch_reply(&[0x5a, 5, 0x12, 3, 0x2a, 1, b'7']).unwrap(), changed);
        assert!(read_txn_reply(&[0x0a, 9]).is_err());
    }
}
