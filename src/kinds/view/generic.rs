//! Kinds without a specific view, such as custom resources: name and age, and a description field by field.

use super::age::age_since;
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::Value;

/// Columns for kinds without a view.
pub static VIEW: KindView = KindView { columns: &[Column::text("Name"), Column::text("Age")], cells, describe };

fn cells(object: &Object, now: Time) -> Vec<TableCell> {
    vec![object.name().into(), age_since(object.created(), now).into()]
}

/// Writes every field with its name in words, then the events.
pub fn describe(object: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.name_and_namespace(object);
    out.labels_and_annotations(object);
    fields(out, 0, &object.0, "");
    events::write_events(object, related, out);
}

/// Fields that are not described, or already shown.
const SKIPPED: [&str; 5] =
    [".metadata.managedFields", ".metadata.name", ".metadata.namespace", ".metadata.labels", ".metadata.annotations"];

fn fields(out: &mut Describe, level: usize, value: &Value, path: &str) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if SKIPPED.contains(&path.as_str()) {
            continue;
        }
        let label = words(name);
        match value {
            Value::Object(_) => {
                out.heading(level, &label);
                fields(out, level + 1, value, &path);
            }
            Value::Array(items) => {
                out.heading(level, &label);
                for item in items {
                    match item {
                        Value::Object(_) => fields(out, level + 1, item, &path),
                        other => out.line(level + 1, go_value(other)),
                    }
                }
            }
            other => out.field(level, &label, go_value(other)),
        }
    }
}

fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        other => other.to_string(),
    }
}

/// Converts `creationTimestamp` to `Creation Timestamp`; keeps a name with other characters than letters and dashes.
fn words(name: &str) -> String {
    if !name.chars().all(|letter| letter.is_alphabetic() || letter == '-') {
        return name.to_owned();
    }
    let parts = merge_acronyms(split_camel_case(name));
    let titled = parts.into_iter().map(|part| match part.to_uppercase() {
        acronym if matches!(acronym.as_str(), "API" | "URL" | "UID" | "GUID") => acronym,
        _ if part == part.to_lowercase() => title(&part),
        _ => part,
    });
    titled.collect::<Vec<_>>().join(" ")
}

fn title(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Splits a name into runs of capitals, capitalised words, lower-case words and other characters.
fn split_camel_case(name: &str) -> Vec<String> {
    #[derive(PartialEq, Clone, Copy)]
    enum Class {
        Lower,
        Upper,
        Other,
    }
    let class = |letter: char| match letter {
        letter if letter.is_lowercase() => Class::Lower,
        letter if letter.is_uppercase() => Class::Upper,
        _ => Class::Other,
    };
    let mut parts: Vec<(Class, String)> = Vec::new();
    for letter in name.chars() {
        match parts.last_mut() {
            Some((last, part)) if *last == class(letter) => part.push(letter),
            _ => parts.push((class(letter), letter.into())),
        }
    }
    // `PDFLoader` is `PDF` and `Loader`: the last capital of a run belongs to the word after it.
    for at in 1..parts.len() {
        if let ([.., (Class::Upper, before)], [(Class::Lower, word), ..]) = parts.split_at_mut(at)
            && let Some(capital) = before.pop()
        {
            word.insert(0, capital);
        }
    }
    parts.into_iter().map(|(_, part)| part).filter(|part| !part.is_empty()).collect()
}

/// Joins a run of capitals with a following capitalised word, as in `IPFamilies`.
fn merge_acronyms(parts: Vec<String>) -> Vec<String> {
    let mut merged: Vec<String> = Vec::new();
    let mut open = false;
    for part in parts {
        let capitalised = part.starts_with(char::is_uppercase);
        match merged.last_mut() {
            Some(last) if open && capitalised => {
                last.push_str(&part);
                open = false;
            }
            _ => {
                open = part.chars().count() >= 2 && part.chars().all(|letter| !letter.is_lowercase());
                merged.push(part);
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    #[test]
    fn field_names_are_converted_to_words() {
        let cases = [
            ("creationTimestamp", "Creation Timestamp"),
            ("uid", "UID"),
            ("apiVersion", "API Version"),
            // kubectl splits the run of capitals before its last letter here.
            ("podIPs", "Pod I Ps"),
            ("a-b", "A - B"),
            ("x1", "x1"),
            ("kg", "Kg"),
            ("leaseDurationSeconds", "Lease Duration Seconds"),
            ("clusterIP", "Cluster IP"),
        ];
        for (name, expected) in cases {
            assert_eq!(super::words(name), expected, "{name}");
        }
    }
}
