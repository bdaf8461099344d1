//! Lists encoded item by item, so that the objects of a long list are never in memory together.
//!
//! Start reading at [`ListEncoder`].

use super::encode::Encoder;
use super::fields::{MessageField, MessageFields, MessageTable};
use super::wire::write_bytes;
use super::{end_envelope, start_envelope};
use serde_json::{Value, json};

/// A list that is being encoded.
pub struct ListEncoder<'a> {
    api_version: &'a str,
    kind: String,
    list: &'static MessageFields,
    items_field: &'static MessageField,
    items: Vec<u8>,
}

impl<'a> ListEncoder<'a> {
    /// Begins a list of objects of a kind; `None` where the kind has no protobuf encoding.
    pub fn new(api_version: &'a str, kind: &str) -> Option<ListEncoder<'a>> {
        let kind = format!("{kind}List");
        let list = MessageTable::built_in().find_kind(api_version, &kind)?;
        let items_field = list.fields.last().filter(|field| field.name == "items")?;
        Some(ListEncoder { api_version, kind, list, items_field, items: Vec::new() })
    }

    /// Adds an item.
    pub fn push(&mut self, item: &Value) {
        Encoder::new(MessageTable::built_in()).write_item(&mut self.items, self.items_field, item);
    }

    /// Returns the document with the metadata of the list.
    pub fn finish(self, metadata: &Value) -> Vec<u8> {
        let mut raw = Vec::new();
        let document = json!({"metadata": metadata});
        Encoder::new(MessageTable::built_in()).write_message(&mut raw, self.list, &document);
        raw.extend_from_slice(&self.items);
        let mut bytes = start_envelope(self.api_version, &self.kind);
        write_bytes(&mut bytes, 2, &raw);
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
            items.iter().for_each(|item| encoder.push(item));
            let whole = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items});
            let bytes = encoder.finish(&metadata);
            assert_eq!(Some(&bytes), encode_document(&whole).as_ref());
            assert!(decode_document(&bytes, "", "").is_ok());
        }
        assert!(ListEncoder::new("example.com/v1", "Boat").is_none());
    }
}
