//! Tables as printed by `get`.
//!
//! [`TablePrinter`] prints one table after another: several kinds with a blank line in between, or
//! single rows of a watch in the columns of the earlier rows.

use super::{columns, escape};
use crate::kinds::Kind;
use crate::kinds::view::{Column, KindView, TableCell, generic};
use crate::object::{Object, Time};

/// Rows of one kind.
#[derive(Clone)]
pub struct Table<'a> {
    /// The columns.
    pub columns: Vec<Column>,
    /// One row for each object.
    pub rows: Vec<TableRow<'a>>,
}

/// One row.
#[derive(Clone)]
pub struct TableRow<'a> {
    /// A cell for each column.
    pub cells: Vec<TableCell>,
    /// The row's object, for its labels and namespace.
    pub object: Option<&'a Object>,
}

impl<'a> Table<'a> {
    /// The table of objects of one kind.
    pub fn for_kind(kind: &Kind, objects: &'a [Object], now: Time) -> Table<'a> {
        Table::for_version(kind, &kind.api_version(), objects, now)
    }

    /// The same, in the columns that a version declares.
    pub fn for_version(kind: &Kind, api_version: &str, objects: &'a [Object], now: Time) -> Table<'a> {
        if let Some(own) = kind.custom.and_then(|custom| custom.columns(api_version)) {
            let row = |object| TableRow { cells: own.cells(object, now), object: Some(object) };
            return Table { columns: own.columns.clone(), rows: objects.iter().map(row).collect() };
        }
        Table::from_view(kind.view, objects, now)
    }

    fn from_view(view: &KindView, objects: &'a [Object], now: Time) -> Table<'a> {
        let row = |object| TableRow { cells: (view.cells)(object, now), object: Some(object) };
        Table { columns: view.columns.to_vec(), rows: objects.iter().map(row).collect() }
    }

    /// Returns a table of Scales, the subresource of workloads.
    pub fn for_scale(objects: &'a [Object], now: Time) -> Table<'a> {
        let columns = vec![Column::text("Name"), Column::int("Desired"), Column::int("Available"), Column::text("Age")];
        let row = |scale: &'a Object| {
            let count = |part: &str| scale.int(&[part, "replicas"]).unwrap_or(0).into();
            let age = (generic::VIEW.cells)(scale, now).pop().unwrap_or(TableCell::Empty);
            TableRow { cells: vec![scale.name().into(), count("spec"), count("status"), age], object: Some(scale) }
        };
        Table { columns, rows: objects.iter().map(row).collect() }
    }

    /// Removes kloop's own columns, because the API serves tables with Kubernetes' columns.
    pub fn remove_own_columns(&mut self) {
        let is_kept: Vec<bool> = self.columns.iter().map(|column| !column.own).collect();
        for row in &mut self.rows {
            let mut kept = is_kept.iter();
            row.cells.retain(|_| kept.next().is_none_or(|kept| *kept));
        }
        self.columns.retain(|column| !column.own);
    }

    /// Returns a table with only name and age, as `--server-print=false` shows every kind.
    pub fn plain(objects: &'a [Object], now: Time) -> Table<'a> {
        Table::from_view(&generic::VIEW, objects, now)
    }
}

/// Table settings.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// Omits the line of column names.
    pub no_headers: bool,
    /// Adds the columns of `-o wide`.
    pub wide: bool,
    /// Adds all labels as the last column.
    pub show_labels: bool,
    /// Adds a column for each of these labels.
    pub label_columns: Vec<String>,
    /// Adds the namespace as the first column: `--all-namespaces`.
    pub with_namespace: bool,
}

/// Rows of one kind as text that is not aligned yet. It can be made of one page of objects after another, so that the objects of a long
/// list need not be there together.
#[derive(Debug, Default)]
pub struct TableLines {
    /// `pod` or `deployment.apps`.
    kind: String,
    header: String,
    text: String,
}

impl TableLines {
    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Prints tables one after another.
#[derive(Debug, Default)]
pub struct TablePrinter {
    options: TableOptions,
    widths: Vec<usize>,
    /// The kind of the last printed table, if any.
    last_kind: Option<String>,
}

impl TablePrinter {
    /// Creates a printer.
    pub fn new(options: TableOptions) -> TablePrinter {
        TablePrinter { options, ..TablePrinter::default() }
    }

    /// Formats the next rows. `kind` is `pod` or `deployment.apps`; a change of the kind starts a
    /// new table. With `prefix`, the kind precedes the names. A table without rows yields no text.
    pub fn print(&mut self, table: &Table<'_>, kind: &str, prefix: bool) -> String {
        self.print_rows(table, kind, prefix, None)
    }

    /// Like [`TablePrinter::print`], with the event in the first column: `--output-watch-events`.
    pub fn print_event(&mut self, event: &str, table: &Table<'_>, kind: &str, prefix: bool) -> String {
        self.print_rows(table, kind, prefix, Some(event))
    }

    fn print_rows(&mut self, table: &Table<'_>, kind: &str, prefix: bool, event: Option<&str>) -> String {
        let mut lines = TableLines::default();
        self.add_rows(&mut lines, table, kind, prefix, event);
        self.print_lines(lines)
    }

    /// Adds the rows of a table to those of the same kind.
    pub fn add_rows(&self, lines: &mut TableLines, table: &Table<'_>, kind: &str, prefix: bool, event: Option<&str>) {
        if lines.kind.is_empty() {
            kind.clone_into(&mut lines.kind);
            push_line(&mut lines.header, self.header(table, event.is_some()));
        }
        for row in &table.rows {
            push_line(&mut lines.text, self.row(table, row, prefix.then_some(kind), event));
        }
    }

    /// Formats rows like [`TablePrinter::print`].
    pub fn print_lines(&mut self, lines: TableLines) -> String {
        if lines.is_empty() {
            return String::new();
        }
        let TableLines { kind, header, mut text } = lines;
        let mut before = "";
        if self.last_kind.as_ref() != Some(&kind) {
            if self.last_kind.is_some() && !self.options.no_headers {
                before = "\n";
            }
            self.widths.clear();
            self.last_kind = Some(kind);
            if !self.options.no_headers {
                text.insert_str(0, &header);
            }
        }
        let aligned = columns::align_remembering(&text, columns::TABLE, &mut self.widths);
        if before.is_empty() { aligned } else { format!("{before}{aligned}") }
    }

    fn shows(&self, column: &Column) -> bool {
        self.options.wide || !column.is_wide()
    }

    fn header(&self, table: &Table<'_>, with_event: bool) -> Vec<String> {
        let mut names = Vec::new();
        names.extend(with_event.then(|| "EVENT".to_owned()));
        names.extend(self.options.with_namespace.then(|| "NAMESPACE".to_owned()));
        let shown = table.columns.iter().filter(|column| self.shows(column));
        names.extend(shown.map(|column| escape::cell(&column.name.to_uppercase())));
        let labels = self.options.label_columns.iter();
        names.extend(labels.map(|key| escape::cell(&key.rsplit('/').next().unwrap_or(key).to_uppercase())));
        names.extend(self.options.show_labels.then(|| "LABELS".to_owned()));
        names
    }

    fn row(&self, table: &Table<'_>, row: &TableRow<'_>, prefix: Option<&str>, event: Option<&str>) -> Vec<String> {
        let mut cells = Vec::new();
        // Wide enough for the longest event, because later rows are printed separately.
        cells.extend(event.map(|event| format!("{event:<8}")));
        cells.extend(self.options.with_namespace.then(|| escape::cell(row.object.map_or("", Object::namespace))));
        let shown = table.columns.iter().zip(&row.cells).filter(|(column, _)| self.shows(column));
        cells.extend(shown.map(|(column, cell)| match (cell, prefix) {
            (TableCell::Text(name), Some(kind)) if column.is_name() => escape::cell(&format!("{kind}/{name}")),
            (TableCell::Text(text), _) => escape::cell(text),
            (TableCell::Int(number), _) => number.to_string(),
            (TableCell::Number(number), _) => number.to_string(),
            (TableCell::Bool(truth), _) => truth.to_string(),
            (TableCell::Empty, _) => String::new(),
        }));
        let label = |key: &String| escape::cell(row.object.and_then(|object| object.label(key)).unwrap_or_default());
        cells.extend(self.options.label_columns.iter().map(label));
        cells.extend(self.options.show_labels.then(|| escape::cell(&labels(row.object))));
        cells
    }
}

fn push_line(text: &mut String, cells: Vec<String>) {
    text.push_str(&cells.join("\t"));
    text.push('\n');
}

/// Returns `a=b,c=d` or `<none>`.
fn labels(object: Option<&Object>) -> String {
    let labels: Vec<String> =
        object.into_iter().flat_map(Object::labels).map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() { "<none>".into() } else { labels.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{config_map, pod};
    use serde_json::json;

    fn map(name: &str, labels: serde_json::Value) -> Object {
        let metadata = json!({"name": name, "namespace": "default", "labels": labels, "creationTimestamp": "1970-01-01T00:00:00Z"});
        Object(json!({"kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}))
    }

    fn now() -> Time {
        Time::from_second(5).unwrap()
    }

    #[test]
    fn watch_rows_keep_their_columns() {
        let maps = [map("three", json!({})), map("b", json!({"x/k": "v", "z": "1"}))];
        let mut printer = TablePrinter::new(TableOptions { show_labels: true, ..TableOptions::default() });
        let first = Table::for_kind(&config_map::KIND, &maps[..1], now());
        let second = Table::for_kind(&config_map::KIND, &maps[1..], now());
        assert_eq!(
            printer.print_event("ADDED", &first, "configmap", false),
            "EVENT      NAME    DATA   AGE   LABELS\nADDED      three   1      5s    <none>\n"
        );
        assert_eq!(
            printer.print_event("MODIFIED", &second, "configmap", false),
            "MODIFIED   b       1      5s    x/k=v,z=1\n"
        );
    }

    #[test]
    fn table_without_rows_prints_nothing() {
        assert_eq!(
            TablePrinter::new(TableOptions::default()).print(&Table::for_kind(&pod::KIND, &[], now()), "pod", false),
            ""
        );
    }
}
