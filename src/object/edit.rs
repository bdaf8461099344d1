//! Small changes of a large object, applied to the object or to its text.
//!
//! Changes a few places of an object's compact text in one pass and copies the remaining text without decoding it. The
//! result equals the serialized changed object. For a text in another form than kloop writes, it returns `None`, and
//! the caller changes the object.

use super::json_scan::{ScannedPart, next_member, value_end};
use super::{Object, condition};
use serde_json::Value;

/// A change at one path.
#[derive(Clone, Debug, PartialEq)]
pub struct TextEdit {
    path: Vec<&'static str>,
    change: ValueChange,
}

/// The kind of change.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueChange {
    /// Sets a value.
    Set(Value),
    /// Sets a value that is given as its compact text, which is not checked.
    SetText(String),
    /// Removes the value.
    Unset,
    /// Removes the value, and the map that holds it if nothing is left in that.
    UnsetLast,
    /// Replaces or adds a condition in a list of conditions.
    Condition(Value),
}

impl TextEdit {
    /// Creates a change at a path of keys.
    pub fn new(path: &[&'static str], change: ValueChange) -> TextEdit {
        TextEdit { path: path.to_vec(), change }
    }

    /// Creates a change that sets the value at a path of keys.
    pub fn set(path: &[&'static str], value: impl Into<Value>) -> TextEdit {
        TextEdit::new(path, ValueChange::Set(value.into()))
    }

    /// The key at this depth of the path.
    fn member(&self, depth: usize) -> &'static str {
        self.path.get(depth).copied().unwrap_or_default()
    }

    fn apply_edit(&self, object: &mut Object, path: &[&str]) {
        match self.change.apply_to(object.value_at(path)) {
            Some(value) => object.set(path, value),
            None => drop(object.unset(path)),
        }
        if let (ValueChange::UnsetLast, [parent @ .., _]) = (&self.change, path)
            && object.value_at(parent).and_then(Value::as_object).is_some_and(|map| map.is_empty())
        {
            object.unset(parent);
        }
    }
}

impl ValueChange {
    /// Returns the value after the change.
    fn apply_to(&self, before: Option<&Value>) -> Option<Value> {
        match self {
            ValueChange::Set(value) => Some(value.clone()),
            ValueChange::SetText(text) => serde_json::from_str(text).ok(),
            ValueChange::Unset | ValueChange::UnsetLast => None,
            ValueChange::Condition(condition) => {
                let mut conditions = before.and_then(Value::as_array).cloned().unwrap_or_default();
                condition::set(&mut conditions, condition.clone());
                Some(conditions.into())
            }
        }
    }
}

/// Changes an object.
pub fn object(object: &mut Object, edits: &[TextEdit]) {
    edits.iter().for_each(|edit| edit.apply_edit(object, &edit.path));
}

/// Applies changes to an object's compact text; `None` when this requires decoding all of it. What does not change is not checked.
pub fn text(text: &str, edits: &[TextEdit]) -> Option<String> {
    let mut edits: Vec<&TextEdit> = edits.iter().collect();
    edits.sort_by(|one, other| one.path.cmp(&other.path));
    let mut changed = String::with_capacity(text.len() + 512);
    let end = EditedMap { text, edits: &edits, depth: 0, to: &mut changed }.copy(0)?;
    (end == text.len()).then_some(changed)
}

/// A map on the path to a change, copied member by member.
struct EditedMap<'a> {
    /// The text that contains the map.
    text: &'a str,
    /// The changes in it, ordered by path.
    edits: &'a [&'a TextEdit],
    /// The length of its path.
    depth: usize,
    to: &'a mut String,
}

impl<'a> EditedMap<'a> {
    /// Copies the map that begins here, with its changes. Returns where it ends.
    fn copy(mut self, start: usize) -> Option<usize> {
        let begin = self.to.len() + 1;
        self.to.push('{');
        let (mut at, mut last) = (start, None);
        loop {
            let (name, value) = match next_member(self.text.as_bytes(), at)? {
                ScannedPart::Begins(member) => member,
                ScannedPart::Ends(end) => {
                    self.apply_edits(self.edits, begin)?;
                    self.to.push('}');
                    return Some(end);
                }
            };
            let key = self.text.get(name)?;
            // The keys have to be in order, and each change has to find its place by them.
            if last.replace(key) >= Some(key) || key.contains('\\') {
                return None;
            }
            let missing = self.take_edits_while(|at| at < key);
            self.apply_edits(missing, begin)?;
            let edits = self.take_edits_while(|at| at == key);
            at = self.copy_member(key, value, edits, begin)?;
        }
    }

    /// Copies a member whose value begins here, with its changes. Returns the end of its value.
    fn copy_member(&mut self, key: &str, value: usize, edits: &[&TextEdit], begin: usize) -> Option<usize> {
        let text = self.text;
        match edits {
            [] => {
                self.start_entry(key, begin);
                let end = value_end(text.as_bytes(), value)?;
                self.to.push_str(text.get(value..end)?);
                Some(end)
            }
            [edit] if edit.path.len() == self.depth + 1 => {
                let end = value_end(text.as_bytes(), value)?;
                match &edit.change {
                    ValueChange::Set(value) => self.put(key, Some(value), begin)?,
                    ValueChange::SetText(text) => {
                        self.start_entry(key, begin);
                        self.to.push_str(text);
                    }
                    change => {
                        let before: Value = serde_json::from_str(text.get(value..end)?).ok()?;
                        self.put(key, change.apply_to(Some(&before)).as_ref(), begin)?;
                    }
                }
                Some(end)
            }
            // A place changes twice.
            [edit, ..] if edit.path.len() == self.depth + 1 => None,
            edits => {
                let before = self.to.len();
                self.start_entry(key, begin);
                let inside = self.to.len();
                let end = EditedMap { text, edits, depth: self.depth + 1, to: self.to }.copy(value)?;
                let removes_last =
                    |edit: &&TextEdit| edit.change == ValueChange::UnsetLast && edit.path.len() == self.depth + 2;
                if edits.iter().any(removes_last) && self.to.get(inside..) == Some("{}") {
                    self.to.truncate(before);
                }
                Some(end)
            }
        }
    }

    /// Returns the leading changes whose member name satisfies the predicate.
    fn take_edits_while(&mut self, is_so: impl Fn(&str) -> bool) -> &'a [&'a TextEdit] {
        let (these, rest) = self.edits.split_at(self.edits.partition_point(|edit| is_so(edit.member(self.depth))));
        self.edits = rest;
        these
    }

    /// Applies changes to members that do not exist yet.
    fn apply_edits(&mut self, edits: &[&TextEdit], begin: usize) -> Option<()> {
        let depth = self.depth;
        for edits in edits.chunk_by(|one, other| one.member(depth) == other.member(depth)) {
            let mut made = Object(Value::Null);
            edits.iter().for_each(|edit| edit.apply_edit(&mut made, &edit.path[depth..]));
            let key = edits[0].member(depth);
            self.put(key, made.0.get(key), begin)?;
        }
        Some(())
    }

    fn put(&mut self, key: &str, value: Option<&Value>, begin: usize) -> Option<()> {
        if let Some(value) = value {
            self.start_entry(key, begin);
            self.to.push_str(&serde_json::to_string(value).ok()?);
        }
        Some(())
    }

    /// Writes the key of a member; the members of this map begin at `begin`. Keys need no escapes.
    fn start_entry(&mut self, key: &str, begin: usize) {
        if self.to.len() > begin {
            self.to.push(',');
        }
        self.to.extend(["\"", key, "\":"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn edits() -> Vec<TextEdit> {
        vec![
            TextEdit::set(&["spec", "nodeName"], "n\"1"),
            TextEdit::new(&["spec", "text"], ValueChange::SetText(r#"{"a":[1]}"#.to_owned())),
            TextEdit::new(&["status", "nominatedNodeName"], ValueChange::Unset),
            TextEdit::new(
                &["status", "conditions"],
                ValueChange::Condition(json!({"type": "PodScheduled", "status": "True"})),
            ),
            TextEdit::set(&["metadata", "labels", "zone"], "a"),
            TextEdit::set(&["metadata", "labels", "region"], "b"),
            TextEdit::set(&["metadata", "resourceVersion"], "17"),
        ]
    }

    #[test]
    fn condition_stays_in_its_place() {
        let conditions = json!([{"type": "PodScheduled", "status": "False"}, {"type": "Ready", "status": "False"}]);
        let mut changed = Object(json!({"status": {"conditions": conditions}}));
        object(&mut changed, &edits());
        assert_eq!(changed.0["status"]["conditions"][0], json!({"type": "PodScheduled", "status": "True"}));
        assert_eq!(changed.0["status"]["conditions"][1]["type"], "Ready");
    }

    #[test]
    fn changed_text_equals_the_text_of_the_changed_object() {
        let cases = [
            json!({}),
            json!({"metadata": {"labels": {"a": "1", "s": "\u{1f600} \"q\" \n"}, "resourceVersion": "3"}, "spec": {}}),
            json!({"metadata": {"labels": {}, "name": "n", "uid": "u"}, "spec": {"nodeName": "", "z": [1.5e300, -0.0, null]}}),
            json!({"spec": {"containers": [{"args": ["a{\"", "}]"]}]}, "status": {"phase": "Pending"}}),
            json!({"status": {"conditions": [], "nominatedNodeName": "x"}}),
            json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}, {"type": "Ready"}], "z": {}}}),
            json!({"spec": {"text": {"b": 2}}}),
            json!({"a": 1, "metadata": {"zz": true}, "status": {"nominatedNodeName": "x"}, "zz": {"metadata": 1}}),
        ];
        for before in cases {
            let changed = text(&before.to_string(), &edits()).unwrap();
            let mut whole = Object(before);
            object(&mut whole, &edits());
            assert_eq!(changed, whole.0.to_string());
        }
    }

    #[test]
    fn last_value_takes_its_map_with_it() {
        let edits = [
            TextEdit::new(&["metadata", "annotations", "b"], ValueChange::UnsetLast),
            TextEdit::set(&["metadata", "name"], "n"),
        ];
        let table = [
            (json!({"annotations": {"b": "1"}, "name": "m"}), json!({"name": "n"})),
            (json!({"annotations": {"a": "1", "b": "1"}}), json!({"annotations": {"a": "1"}, "name": "n"})),
            (json!({"annotations": {"b": "1", "c": "1"}}), json!({"annotations": {"c": "1"}, "name": "n"})),
            (json!({"annotations": {}, "x": 1}), json!({"name": "n", "x": 1})),
            (json!({"a": {}}), json!({"a": {}, "name": "n"})),
        ];
        for (before, after) in table {
            let before = json!({"kind": "Pod", "metadata": before, "spec": {}});
            let changed = text(&before.to_string(), &edits);
            let mut whole = Object(before);
            object(&mut whole, &edits);
            assert_eq!(whole.0["metadata"], after);
            assert_eq!(changed, Some(whole.0.to_string()));
        }
    }

    #[test]
    fn text_that_requires_decoding_is_not_changed() {
        let cases = [
            "",
            "[]",
            "{} {}",
            r#"{"status":null}"#,
            r#"{"metadata":{"labels":"x"}}"#,
            r#"{"b":1,"a":2}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"spec":{"a\u0062":1}}"#,
            r#"{"spec":{"a":}}"#,
        ];
        for case in cases {
            assert_eq!(text(case, &edits()), None, "{case}");
        }
        let twice = [TextEdit::set(&["a"], 1), TextEdit::set(&["a", "b"], 2)];
        assert_eq!(text(r#"{"a":{}}"#, &twice), None);
    }
}
