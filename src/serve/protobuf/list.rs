//! Lists encoded item by item, so that the objects of a long list are never in memory together.
//!
//! Start reading at [`ListEncoder`].

use super::encode::Encoder;
use super::fields::{MessageField, MessageFields, MessageTable};
use super::wire::{WireType, write_key, write_varint};
use super::{end_envelope, start_envelope};
use serde_json::{Value, json};

/// Room for everything before the items.
const HEAD: usize = 512;
/// Maximum size in bytes that is reserved ahead for items.
const MOST_RESERVED: usize = 256 << 20;

/// A list that is being encoded.
pub struct ListEncoder<'a> {
    api_version: &'a str,
    kind: String,
    list: &'static MessageFields,
    items_field: &'static MessageField,
    /// Room for the head, and the encoded items.
    bytes: Vec<u8>,
    count: usize,
}

impl<'a> ListEncoder<'a> {
    /// Begins a list of objects of a kind; `None` where the kind has no protobuf encoding.
    pub fn new(api_version: &'a str, kind: &str) -> Option<ListEncoder<'a>> {
        let kind = format!("{kind}List");
        let list = MessageTable::built_in().find_kind(api_version, &kind)?;
        let items_field = list.fields.last().filter(|field| field.name == "items")?;
        Some(ListEncoder { api_version, kind, list, items_field, bytes: vec![0; HEAD], count: 0 })
    }

    /// Adds an item.
    pub fn push(&mut self, item: &Value) {
        Encoder::new(MessageTable::built_in()).write_item(&mut self.bytes, self.items_field, item);
        self.count += 1;
    }

    /// Reserves memory for so many items of the size of those before, so that a long list is not copied while it grows.
    pub fn reserve(&mut self, count: usize) {
        let size = (self.bytes.len() - HEAD).checked_div(self.count).unwrap_or_default();
        let wanted = size.saturating_mul(count).saturating_add(size.saturating_mul(count) / 16);
        // Without so much memory, the list grows as it comes.
        let _ = self.bytes.try_reserve_exact(wanted.min(MOST_RESERVED));
    }

    /// Returns the document with the metadata of the list.
    pub fn finish(self, metadata: &Value) -> Vec<u8> {
        let mut bytes = self.bytes;
        let mut list_head = Vec::new();
        let document = json!({"metadata": metadata});
        Encoder::new(MessageTable::built_in()).write_message(&mut list_head, self.list, &document);
        let mut head = start_envelope(self.api_version, &self.kind);
        write_key(&mut head, 2, WireType::Length);
        write_varint(&mut head, (list_head.len() + bytes.len() - HEAD) as u64);
        head.extend_from_slice(&list_head);
        match HEAD.checked_sub(head.len()) {
            Some(start) => {
                bytes[start..HEAD].copy_from_slice(&head);
                drop(bytes.drain(..start));
            }
            None => drop(bytes.splice(..HEAD, head)),
        }
        end_envelope(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::protobuf::{decode_document, encode_document};

    #[test]
    fn list_is_the_same_item_by_item_and_as_a_whole() {
        let map = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}, "data": {"a": "b"}});
        let metadata = json!({"resourceVersion": "7"});
        for names in [vec![], vec!["one", "two"]] {
            let items: Vec<Value> = names.iter().map(|name| map(name)).collect();
            let mut encoder = ListEncoder::new("v1", "ConfigMap").expect("a list");
            for (index, item) in items.iter().enumerate() {
                encoder.reserve(items.len() - index);
                encoder.push(item);
            }
            let whole = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items});
            let bytes = encoder.finish(&metadata);
            assert_eq!(Some(&bytes), encode_document(&whole).as_ref());
            assert!(decode_document(&bytes, "", "").is_ok());
        }
        assert!(ListEncoder::new("example.com/v1", "Boat").is_none());
    }
}
