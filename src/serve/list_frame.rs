//! The text of a list around its items, as JSON or YAML.
//!
//! Knows: the layout of both. The metadata follows the items, because it is known when they are written.
//! Start reading at [`ListFrame::new`].

use super::form::{AnswerEncoding, AnswerForm};
use super::indent::indent;
use crate::object::yaml;
use serde_json::{Map, Value};

/// The fields of a list other than its items.
pub struct ListFrame {
    before: Map<String, Value>,
    field: &'static str,
    after: Map<String, Value>,
    is_yaml: bool,
    is_pretty: bool,
}

impl ListFrame {
    /// Makes the frame of a list without items, which are in this field, for an answer of this form: JSON or YAML.
    pub fn new(list: Map<String, Value>, field: &'static str, form: &AnswerForm) -> ListFrame {
        let others = list.into_iter().filter(|(name, _)| name != field);
        let (before, after) = others.partition(|(name, _)| name.as_str() < field && name != METADATA);
        ListFrame { before, field, after, is_yaml: form.encoding == AnswerEncoding::Yaml, is_pretty: form.is_pretty }
    }

    /// Returns the text before the items.
    pub fn head(&self) -> String {
        let field = self.field;
        if self.is_yaml {
            return format!("{}{field}:", yaml::to_yaml(&self.before.clone().into()));
        }
        let text = self.json(&self.before);
        let end = if self.is_pretty { "\n}" } else { "}" };
        let start = text.strip_suffix(end).unwrap_or_default();
        match self.is_pretty {
            true => format!("{start},\n  \"{field}\": ["),
            false => format!("{start},\"{field}\":["),
        }
    }

    /// Adds an item, given as JSON text.
    pub fn write_item(&self, item: &str, is_first: bool, into: &mut Vec<u8>) {
        if self.is_yaml {
            into.extend_from_slice(if is_first { b"\n" } else { b"" });
            let item: Value = serde_json::from_str(item).unwrap_or_default();
            return into.extend_from_slice(yaml::to_yaml(&Value::Array(vec![item])).as_bytes());
        }
        if !is_first {
            into.push(b',');
        }
        match self.is_pretty {
            true => {
                into.extend_from_slice(b"\n    ");
                indent(item, 2, into);
            }
            false => into.extend_from_slice(item.as_bytes()),
        }
    }

    /// Returns the text after the items.
    pub fn tail(&self, metadata: Value, has_items: bool) -> String {
        let mut fields = self.after.clone();
        fields.insert(METADATA.into(), metadata);
        if self.is_yaml {
            let none = if has_items { "" } else { " []\n" };
            return format!("{none}{}", yaml::to_yaml(&fields.into()));
        }
        let text = self.json(&fields);
        let rest = text.strip_prefix('{').unwrap_or_default();
        match self.is_pretty {
            true if has_items => format!("\n  ],{rest}\n"),
            _ => format!("],{rest}\n"),
        }
    }

    fn json(&self, fields: &Map<String, Value>) -> String {
        let text = if self.is_pretty { serde_json::to_string_pretty(fields) } else { serde_json::to_string(fields) };
        text.unwrap_or_default()
    }
}

const METADATA: &str = "metadata";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(list: &Value, field: &'static str, form: &AnswerForm) -> String {
        let mut empty = list.as_object().unwrap().clone();
        empty[field] = json!([]);
        let frame = ListFrame::new(empty, field, form);
        let items = list[field].as_array().unwrap();
        let mut text = frame.head().into_bytes();
        for (index, item) in items.iter().enumerate() {
            frame.write_item(&item.to_string(), index == 0, &mut text);
        }
        text.extend(frame.tail(list[METADATA].clone(), !items.is_empty()).bytes());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn list_in_pieces_is_the_list_as_a_whole() {
        let items = json!([{"metadata": {"name": "a"}, "spec": {"list": [1, [2]], "empty": {}}}, {"kind": "x\ny"}]);
        for items in [json!([]), items] {
            let list = json!({"apiVersion": "v1", "items": items, "kind": "PodList", "metadata": {"continue": "x"}});
            let (compact, pretty) = (AnswerForm::default(), AnswerForm { is_pretty: true, ..AnswerForm::default() });
            let yaml = AnswerForm { encoding: AnswerEncoding::Yaml, ..AnswerForm::default() };
            assert_eq!(written(&list, "items", &compact), format!("{list}\n"));
            let expected = serde_json::to_string_pretty(&list).unwrap();
            assert_eq!(written(&list, "items", &pretty), format!("{expected}\n"));
            assert_eq!(written(&list, "items", &yaml), yaml::to_yaml(&list));
            let table =
                json!({"apiVersion": "v1", "columnDefinitions": [{}], "kind": "Table", "metadata": {}, "rows": items});
            for form in [&compact, &pretty] {
                assert_eq!(serde_json::from_str::<Value>(&written(&table, "rows", form)).unwrap(), table);
            }
        }
    }
}
