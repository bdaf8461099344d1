//! Prints values as Go prints internal structs, without JSON names or omitted fields, for the messages of Kubernetes
//! that contain them.
//!
//! Lays a JSON value out by a table of fields, on one line or indented, and computes the difference of two layouts.
//! Never: defines a kind's tables. Start reading at [`lay_out`].

use serde_json::Value;

/// One field of a Go struct.
pub type GoField = (&'static str, &'static str, GoShape);

/// Type of a field, which determines how an absent value is printed.
#[derive(Clone, Copy)]
pub enum GoShape {
    /// A string; `""` when absent.
    Text,
    /// A number; `0` when absent.
    Number,
    /// A boolean; `false` when absent.
    Bool,
    /// A pointer or a map; `null` when absent.
    Pointer,
    /// An embedded struct; printed with all fields when absent.
    Struct(&'static [GoField]),
    /// A pointer to a struct.
    Optional(&'static [GoField]),
    /// A list of structs.
    List(&'static [GoField]),
    /// A value whose Go names are its capitalized JSON names.
    Plain,
    /// A list of such values.
    Plains,
}

/// A laid out value, with fields in Go's order.
pub enum GoLayout {
    /// A scalar, as JSON.
    Leaf(String),
    /// A list.
    List(Vec<GoLayout>),
    /// A struct or map.
    Map(Vec<(String, GoLayout)>),
}

/// Lays a JSON object out by its table.
pub fn lay_out(value: &Value, fields: &[GoField]) -> GoLayout {
    GoLayout::Map(fields.iter().map(|(go, json, shape)| ((*go).to_owned(), field(&value[*json], *shape))).collect())
}

fn field(value: &Value, shape: GoShape) -> GoLayout {
    let zero = |zero: &str| GoLayout::Leaf(if value.is_null() { zero.to_owned() } else { value.to_string() });
    match (shape, value) {
        (GoShape::Text, _) => zero("\"\""),
        (GoShape::Number, _) => zero("0"),
        (GoShape::Bool, _) => zero("false"),
        (GoShape::Struct(fields), value) => lay_out(value, fields),
        (_, Value::Null) => GoLayout::Leaf("null".into()),
        (GoShape::Pointer, value) => as_is(value),
        (GoShape::Optional(fields), value) => lay_out(value, fields),
        (GoShape::List(fields), Value::Array(items)) => {
            GoLayout::List(items.iter().map(|item| lay_out(item, fields)).collect())
        }
        (GoShape::List(_) | GoShape::Plain | GoShape::Plains, value) => plain(value),
    }
}

fn as_is(value: &Value) -> GoLayout {
    match value {
        Value::Array(items) => GoLayout::List(items.iter().map(as_is).collect()),
        Value::Object(map) => GoLayout::Map(map.iter().map(|(name, value)| (name.clone(), as_is(value))).collect()),
        leaf => GoLayout::Leaf(leaf.to_string()),
    }
}

fn plain(value: &Value) -> GoLayout {
    let capital = |name: &str| {
        let mut letters = name.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    match value {
        Value::Array(items) => GoLayout::List(items.iter().map(plain).collect()),
        Value::Object(map) => GoLayout::Map(map.iter().map(|(name, value)| (capital(name), plain(value))).collect()),
        leaf => GoLayout::Leaf(leaf.to_string()),
    }
}

impl GoLayout {
    /// Prints the value on one line.
    pub fn compact(&self) -> String {
        match self {
            GoLayout::Leaf(text) => text.clone(),
            GoLayout::List(items) => {
                let items: Vec<String> = items.iter().map(GoLayout::compact).collect();
                format!("[{}]", items.join(","))
            }
            GoLayout::Map(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("\"{name}\":{}", value.compact())).collect();
                format!("{{{}}}", fields.join(","))
            }
        }
    }

    /// Prints the value on separate lines, indented by one blank per level.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.write(0, "", "", &mut lines);
        lines
    }

    fn write(&self, depth: usize, head: &str, tail: &str, lines: &mut Vec<String>) {
        let indent = " ".repeat(depth);
        let mut all = |open: &str, parts: Vec<(String, &GoLayout)>, close: &str| {
            lines.push(format!("{indent}{head}{open}"));
            let last = parts.len().saturating_sub(1);
            for (index, (head, part)) in parts.into_iter().enumerate() {
                part.write(depth + 1, &head, if index == last { "" } else { "," }, lines);
            }
            lines.push(format!("{indent}{close}{tail}"));
        };
        match self {
            GoLayout::Leaf(text) => lines.push(format!("{indent}{head}{text}{tail}")),
            GoLayout::List(items) if items.is_empty() => lines.push(format!("{indent}{head}[]{tail}")),
            GoLayout::Map(fields) if fields.is_empty() => lines.push(format!("{indent}{head}{{}}{tail}")),
            GoLayout::List(items) => all("[", items.iter().map(|item| (String::new(), item)).collect(), "]"),
            GoLayout::Map(fields) => {
                all("{", fields.iter().map(|(name, value)| (format!("\"{name}\": "), value)).collect(), "}");
            }
        }
    }
}

/// Returns a unified diff of two layouts, with three lines of context.
pub fn difference(old: &GoLayout, new: &GoLayout) -> String {
    let (old, new) = (old.lines(), new.lines());
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let before = &old[start.saturating_sub(3)..start];
    let after = &old_rest[old_rest.len() - end..];
    let after = &after[..after.len().min(3)];
    let (removed, added) = (&old_rest[..old_rest.len() - end], &new_rest[..new_rest.len() - end]);
    let count = |changed: &[String]| before.len() + changed.len() + after.len();
    let from = start - before.len() + 1;
    let mut text = format!("@@ -{from},{} +{from},{} @@\n", count(removed), count(added));
    for (mark, lines) in [(' ', before), ('-', removed), ('+', added), (' ', after)] {
        lines.iter().for_each(|line| text.push_str(&format!("{mark}{line}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIELDS: &[GoField] =
        &[("Name", "name", GoShape::Text), ("Count", "count", GoShape::Number), ("Args", "args", GoShape::Pointer)];

    #[test]
    fn absent_fields_are_printed() {
        let layout = lay_out(&json!({"name": "a"}), FIELDS);
        assert_eq!(layout.compact(), r#"{"Name":"a","Count":0,"Args":null}"#);
    }

    #[test]
    fn differences_have_context() {
        let (old, new) =
            (lay_out(&json!({"name": "a"}), FIELDS), lay_out(&json!({"name": "a", "args": ["x"]}), FIELDS));
        let expected = "@@ -1,5 +1,7 @@\n {\n  \"Name\": \"a\",\n  \"Count\": 0,\n- \"Args\": null\n+ \"Args\": [\n+  \"x\"\n+ ]\n }\n";
        assert_eq!(difference(&old, &new), expected);
    }
}
