//! Lists encoded item by item, so that the objects of a long list are never in memory together.
//!
//! Knows: the length of a list precedes its items, so [`ListEncoder::head`] is called when all of them are encoded.
//! Start reading at [`ListEncoder`].

use super::encode::Encoder;
use super::fields::{MessageIndex, MessageTable, ValueType};
use super::wire::{WireType, write_key, write_varint};
use super::{RAW, end_envelope, start_envelope};
use serde_json::{Value, json};

/// A list that is being encoded.
pub struct ListEncoder {
    api_version: String,
    kind: String,
    list: MessageIndex,
    /// The message of the items.
    item: MessageIndex,
    encoder: Encoder<'static>,
    /// Bytes of the items that were passed on.
    passed: usize,
}

impl ListEncoder {
    /// Begins a list of objects of a kind; `None` where the kind has no protobuf encoding.
    pub fn new(api_version: &str, kind: &str) -> Option<ListEncoder> {
        let kind = format!("{kind}List");
        let table = MessageTable::built_in();
        let list = table.find_kind(api_version, &kind)?;
        let field = table.message(list).fields.last().filter(|field| (&*field.name, field.number) == ("items", RAW))?;
        let ValueType::Message(item) = field.of else { return None };
        let encoder = Encoder::new(table, Vec::new());
        Some(ListEncoder { api_version: api_version.to_owned(), kind, list, item, encoder, passed: 0 })
    }

    /// Adds the JSON text of an item. Returns the encoded item, as [`encode_content`](super::encode_content) does.
    pub fn push(&mut self, item: &str) -> serde_json::Result<&[u8]> {
        let start = self.encoder.bytes.len();
        self.encoder.write_text(RAW, self.item, item)?;
        Ok(&self.encoder.bytes[start..])
    }

    /// Adds an encoded item.
    pub fn push_encoded(&mut self, item: &[u8]) {
        self.encoder.bytes.extend_from_slice(item);
    }

    /// Passes on the items that were encoded since the last call.
    pub fn drain_items<T>(&mut self, within: impl FnOnce(&[u8]) -> T) -> T {
        let result = within(&self.encoder.bytes);
        self.passed += self.encoder.bytes.len();
        self.encoder.bytes.clear();
        result
    }

    /// Returns everything before the items that were passed on: the metadata of the list and the lengths.
    pub fn head(&self, metadata: &Value) -> serde_json::Result<Vec<u8>> {
        let mut head = Vec::new();
        start_envelope(&mut head, &self.api_version, &self.kind);
        let mut encoder = Encoder::new(MessageTable::built_in(), Vec::new());
        encoder.write_fields(self.list, &json!({"metadata": metadata}).to_string())?;
        write_key(&mut head, RAW, WireType::Length);
        write_varint(&mut head, (encoder.bytes.len() + self.passed) as u64);
        head.extend_from_slice(&encoder.bytes);
        Ok(head)
    }

    /// Writes everything after the items.
    pub fn write_tail(bytes: &mut Vec<u8>) {
        end_envelope(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::protobuf::{decode_document, encode_content, encode_document};

    #[test]
    fn list_is_the_same_item_by_item_and_as_a_whole() {
        let map = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}, "data": {"a": "b"}});
        let metadata = json!({"resourceVersion": "7"});
        for names in [vec![], vec!["one", "two"]] {
            let items: Vec<Value> = names.iter().map(|name| map(name)).collect();
            let mut encoder = ListEncoder::new("v1", "ConfigMap").expect("a list");
            let mut parts = Vec::new();
            for item in &items {
                let encoded = encoder.push(&item.to_string()).expect("JSON").to_owned();
                assert_eq!(Some(&encoded), encode_content("v1", "ConfigMap", &item.to_string()).as_ref());
                encoder.drain_items(|_| ());
                encoder.passed -= encoded.len();
                encoder.push_encoded(&encoded);
                encoder.drain_items(|items| parts.extend_from_slice(items));
            }
            let whole = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items});
            let mut bytes = [encoder.head(&metadata).expect("a head"), parts].concat();
            ListEncoder::write_tail(&mut bytes);
            assert_eq!(Some(&bytes), encode_document(&whole).as_ref());
            assert!(decode_document(&bytes, "", "").is_ok());
        }
        assert!(ListEncoder::new("example.com/v1", "Boat").is_none());
    }
}
