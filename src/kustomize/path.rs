//! Field paths of replacements: `spec.containers.[name=web].image`, `metadata.annotations.a\.b`, `rules.*.host`.

use super::BuildResult;
use crate::object::scalar_text;
use serde_json::{Map, Value};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldStep {
    /// A key of a map, or the index of an element.
    Name(String),
    /// The elements of a list with this value in a field: `[name=web]`.
    Where(String, String),
    /// Every element of a list; for a source, also every entry of a map.
    Each,
}

/// Splits a path into steps at dots, except in brackets and after a backslash.
pub fn parse(path: &str) -> Vec<FieldStep> {
    let (mut names, mut name, mut is_in_brackets) = (Vec::new(), String::new(), false);
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'.') => name.extend(letters.next()),
            '.' if !is_in_brackets => names.push(std::mem::take(&mut name)),
            letter => {
                is_in_brackets = (is_in_brackets || letter == '[') && letter != ']';
                name.push(letter);
            }
        }
    }
    names.push(name);
    names.iter().filter(|name| !name.is_empty()).map(|name| step(name)).collect()
}

fn step(name: &str) -> FieldStep {
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match (name, bracketed.and_then(|bracketed| bracketed.split_once('='))) {
        ("*", _) => FieldStep::Each,
        (_, Some((key, value))) => FieldStep::Where(key.to_owned(), value.to_owned()),
        _ => FieldStep::Name(bracketed.unwrap_or(name).to_owned()),
    }
}

/// Returns the first value at a path.
pub fn first<'a>(value: &'a Value, path: &[FieldStep]) -> Option<&'a Value> {
    let Some((step, rest)) = path.split_first() else { return Some(value) };
    match (step, value) {
        (FieldStep::Name(name), Value::Object(map)) => first(map.get(name)?, rest),
        (FieldStep::Name(name), Value::Array(items)) => first(items.get(name.parse::<usize>().ok()?)?, rest),
        (FieldStep::Where(key, wanted), Value::Array(items)) => {
            items.iter().filter(|item| item_has(item, key, wanted)).find_map(|item| first(item, rest))
        }
        (FieldStep::Each, Value::Array(items)) => items.iter().find_map(|item| first(item, rest)),
        (FieldStep::Each, Value::Object(map)) => map.values().find_map(|value| first(value, rest)),
        _ => None,
    }
}

/// Calls `change` on every value at a path; `create` creates missing fields. Returns the number of
/// values.
pub fn visit_values(
    value: &mut Value,
    path: &[FieldStep],
    create: bool,
    change: &mut dyn FnMut(&mut Value) -> BuildResult,
) -> BuildResult<usize> {
    let Some((step, rest)) = path.split_first() else { return change(value).map(|()| 1) };
    if create && value.is_null() {
        *value = if matches!(step, FieldStep::Name(_)) { Value::Object(Map::new()) } else { Value::Array(Vec::new()) };
    }
    match (step, value) {
        (FieldStep::Name(name), Value::Object(map)) => {
            if create {
                map.entry(name).or_insert(Value::Null);
            }
            map.get_mut(name).map_or(Ok(0), |value| visit_values(value, rest, create, change))
        }
        (FieldStep::Name(name), Value::Array(items)) => {
            if create && name == "-" {
                items.push(Value::Null);
            }
            let at = if name == "-" { items.len().checked_sub(1) } else { name.parse().ok() };
            at.and_then(|at| items.get_mut(at)).map_or(Ok(0), |item| visit_values(item, rest, create, change))
        }
        (FieldStep::Where(key, wanted), Value::Array(items)) => {
            if create && !items.iter().any(|item| item_has(item, key, wanted)) {
                items.push(Value::Object([(key.clone(), wanted.as_str().into())].into_iter().collect()));
            }
            items
                .iter_mut()
                .filter(|item| item_has(item, key, wanted))
                .map(|item| visit_values(item, rest, create, change))
                .sum()
        }
        (FieldStep::Each, Value::Array(items)) => {
            items.iter_mut().map(|item| visit_values(item, rest, create, change)).sum()
        }
        _ => Ok(0),
    }
}

fn item_has(item: &Value, key: &str, wanted: &str) -> bool {
    item.get(key).is_some_and(|value| scalar_text(value) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_split_into_steps() {
        let name = |text: &str| FieldStep::Name(text.into());
        for (path, expected) in [
            ("metadata.name", vec![name("metadata"), name("name")]),
            ("a.b\\.c/d", vec![name("a"), name("b.c/d")]),
            ("a.[name=x.y].b", vec![name("a"), FieldStep::Where("name".into(), "x.y".into()), name("b")]),
            ("a.*.0", vec![name("a"), FieldStep::Each, name("0")]),
            ("a.[b.c/d]", vec![name("a"), name("b.c/d")]),
        ] {
            assert_eq!(parse(path), expected, "{path}");
        }
    }

    #[test]
    fn values_at_a_path_are_changed() {
        let list = json!({"a": [{"name": "x", "v": 1}, {"name": "y", "v": 2}]});
        for (value, path, create, expected) in [
            (list.clone(), "a.[name=y].v", false, json!({"a": [{"name": "x", "v": 1}, {"name": "y", "v": 0}]})),
            (list.clone(), "a.*.v", false, json!({"a": [{"name": "x", "v": 0}, {"name": "y", "v": 0}]})),
            (list.clone(), "a.0.v", false, json!({"a": [{"name": "x", "v": 0}, {"name": "y", "v": 2}]})),
            (list.clone(), "a.[name=z].v", false, list.clone()),
            (json!({}), "a.b", true, json!({"a": {"b": 0}})),
            (json!({"a": []}), "a.[name=z].v", true, json!({"a": [{"name": "z", "v": 0}]})),
            (json!({"a": 1}), "a.b", true, json!({"a": 1})),
            (json!({"a": [{}, {"v": 1}]}), "a.*.v", true, json!({"a": [{"v": 0}, {"v": 0}]})),
            (json!({"a": {"b": 1}}), "a.*", true, json!({"a": {"b": 1}})),
        ] {
            let (mut changed, mut count) = (value.clone(), 0);
            let found = visit_values(&mut changed, &parse(path), create, &mut |value| {
                count += 1;
                *value = 0.into();
                Ok(())
            });
            assert_eq!((changed, found), (expected, Ok(count)), "{path} of {value}");
        }
    }
}
