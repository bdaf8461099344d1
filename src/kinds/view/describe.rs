//! Builder of a description: lines of tab-separated cells, which `show` aligns and escapes.

use super::body::joined_pairs;
use crate::object::LAST_APPLIED;
use crate::object::Object;
use std::fmt::Display;

/// Maximum length of an annotation with its key on one line; a longer one gets separate lines, cut at this length
/// (kubectl: `maxAnnotationLen`).
const LONG_ANNOTATION: usize = 140;

/// The lines written so far. A level is two blanks.
#[derive(Default)]
pub struct Describe {
    text: String,
}

impl Describe {
    /// An empty description.
    pub fn new() -> Describe {
        Describe::default()
    }

    /// The text so far: cells end with tabs, lines with newlines, nothing is escaped.
    pub fn raw(&self) -> &str {
        &self.text
    }

    /// Writes `Name:` and its value.
    pub fn field(&mut self, level: usize, name: &str, value: impl Display) {
        self.line(level, format_args!("{name}:\t{value}"));
    }

    /// Writes `Name:` alone; its content follows one level deeper.
    pub fn heading(&mut self, level: usize, name: &str) {
        self.line(level, format_args!("{name}:"));
    }

    /// Writes a line unchanged.
    pub fn line(&mut self, level: usize, text: impl Display) {
        use std::fmt::Write;
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:indent$}{text}", "", indent = level * 2);
    }

    /// Writes an empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Writes a row of a table.
    pub fn row(&mut self, level: usize, cells: &[&dyn Display]) {
        let cells: Vec<String> = cells.iter().map(|cell| cell.to_string()).collect();
        self.line(level, cells.join("\t"));
    }

    /// Writes the header of a table with dashes below.
    pub fn header(&mut self, level: usize, names: &[&str]) {
        self.line(level, names.join("\t"));
        self.line(level, names.iter().map(|name| "-".repeat(name.len())).collect::<Vec<_>>().join("\t"));
    }

    /// Writes `Name:` and one value per line; `<none>` without values.
    pub fn values<T: Display>(&mut self, level: usize, name: &str, values: impl IntoIterator<Item = T>) {
        let mut values = values.into_iter();
        match values.next() {
            Some(first) => self.field(level, name, first),
            None => self.field(level, name, "<none>"),
        }
        for value in values {
            // As in kubectl, without indent: alignment hides the difference, except in `rollout history`.
            self.line(0, format_args!("\t{value}"));
        }
    }

    /// Writes a map, one `key=value` per line.
    pub fn pairs(&mut self, level: usize, name: &str, pairs: &[(&str, String)]) {
        self.values(level, name, pairs.iter().map(|(key, value)| format!("{key}={value}")));
    }

    /// Writes a map in one line.
    pub fn inline_pairs(&mut self, level: usize, name: &str, pairs: &[(&str, String)]) {
        self.field(level, name, joined_pairs(pairs));
    }

    /// Writes annotations, one per line; long and multi-line ones below their key.
    pub fn annotations(&mut self, level: usize, name: &str, pairs: &[(&str, String)]) {
        self.values(level, name, annotation_lines(pairs));
    }

    /// Writes labels and annotations of an object.
    pub fn labels_and_annotations(&mut self, object: &Object) {
        use super::body::BodyRead;
        self.pairs(0, "Labels", &object.0.pairs("metadata.labels"));
        self.annotations(0, "Annotations", &object.0.pairs("metadata.annotations"));
    }

    /// Writes name and namespace of an object.
    pub fn name_and_namespace(&mut self, object: &Object) {
        self.field(0, "Name", object.name());
        self.field(0, "Namespace", object.namespace());
    }
}

/// Returns the lines of annotations: one each; long and multi-line ones below their key.
pub fn annotation_lines(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().filter(|(key, _)| *key != LAST_APPLIED).flat_map(|(key, value)| annotation(key, value)).collect()
}

fn annotation(key: &str, value: &str) -> Vec<String> {
    let value = value.strip_suffix('\n').unwrap_or(value);
    if key.len() + value.len() + 2 <= LONG_ANNOTATION && !value.contains('\n') {
        return vec![format!("{key}: {value}")];
    }
    let mut lines = vec![format!("{key}:")];
    lines.extend(value.split('\n').map(|line| format!("  {}", shorten(line, LONG_ANNOTATION - 2))));
    lines
}

fn shorten(text: &str, length: usize) -> String {
    if text.len() <= length {
        return text.to_owned();
    }
    let cut = (0..=length).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_annotations_get_separate_lines() {
        let mut out = Describe::new();
        let long = "x".repeat(200);
        out.annotations(
            0,
            "Annotations",
            &[("a", "1".into()), ("b", "p\nq\n".into()), ("c", long), (LAST_APPLIED, "{}".into())],
        );
        let cut = "x".repeat(138);
        assert_eq!(out.raw(), format!("Annotations:\ta: 1\n\tb:\n\t  p\n\t  q\n\tc:\n\t  {cut}...\n"));
    }
}
