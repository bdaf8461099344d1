//! The output of `get` and `describe`, compared with the cases in `tests/cases/show`.

use super::describe::describe;
use super::print::{ObjectPrinter, OutputFlags, OutputFormat};
use super::table::{Table, TableOptions, TablePrinter};
use crate::kinds::view::{RelatedObjects, part_read_by_cells, paths_read_by_cells};
use crate::kinds::{self, Kind};
use crate::object::sparse::FieldMask;
use crate::object::{Object, Time, sparse};
use crate::test_cases::{self, now, words};
use serde_json::Value;

/// The objects of a case.
struct CaseObjects(Vec<Object>);

impl RelatedObjects for CaseObjects {
    fn list(&self, resource: &str, _namespace: &str) -> Vec<Object> {
        kinds::by_name(resource).map(|kind| self.all(kind).cloned().collect()).unwrap_or_default()
    }

    fn get(&self, resource: &str, _namespace: &str, name: &str) -> Option<Object> {
        self.all(kinds::by_name(resource)?).find(|object| object.name() == name).cloned()
    }

    fn now(&self) -> Time {
        now()
    }
}

impl CaseObjects {
    fn all(&self, kind: &Kind) -> impl Iterator<Item = &Object> {
        self.0.iter().filter(move |object| object.kind() == kind.kind)
    }

    /// Answers a command: `describe KIND/NAME`, `get KIND,KIND` or `get KIND/NAME`, with flags and `-o FORMAT` at the end.
    fn answer(&self, command: &str) -> Result<String, String> {
        let (command, format) = command.split_once(" -o ").unwrap_or((command, ""));
        let mut words = command.split(' ');
        let (verb, about) = (words.next().unwrap_or_default(), words.next().expect("case: missing KIND or KIND/NAME"));
        let (kinds, name) = about.split_once('/').map_or((about, None), |(kind, name)| (kind, Some(name)));
        let kinds: Vec<&Kind> =
            kinds.split(',').map(|kind| kinds::by_name(kind).expect("case: unknown kind")).collect();
        let flags: Vec<&str> = words.collect();
        let found = |kind: &&Kind| -> Vec<Object> {
            self.all(kind).filter(|object| name.is_none_or(|name| object.name() == name)).cloned().collect()
        };
        if verb == "describe" {
            let texts = found(&kinds[0]).into_iter().map(|object| describe(kinds[0], &object, self));
            return Ok(texts.collect::<Vec<_>>().join("\n\n"));
        }
        let output = OutputFlags { tables: true, ..OutputFlags::default() };
        let format =
            OutputFormat::parse(format, output, &mut |path| Err(format!("open {path}: no such file or directory")))?;
        if let OutputFormat::Table { wide } = format {
            let label_columns = flags.iter().filter_map(|flag| flag.strip_prefix("--label-columns="));
            let options = TableOptions {
                wide,
                no_headers: flags.contains(&"--no-headers"),
                show_labels: flags.contains(&"--show-labels"),
                with_namespace: flags.contains(&"--all-namespaces"),
                label_columns: label_columns.map(str::to_owned).collect(),
            };
            let mut printer = TablePrinter::new(options.clone());
            let shows_kind = kinds.len() > 1 || flags.contains(&"--show-kind");
            let tables = kinds.iter().map(|kind| {
                let objects = found(kind);
                let table = Table::for_kind(kind, &objects, now());
                let cells = |table: Table<'_>| -> Vec<_> { table.rows.into_iter().map(|row| row.cells).collect() };
                if let Some(paths) = paths_read_by_cells(kind) {
                    let mask = FieldMask::from_paths(paths);
                    let read = |object: &Object| sparse::read_fields(&object.0.to_string(), &mask).map(Object);
                    let sparse: Vec<Object> = objects.iter().map(|object| read(object).expect("a body")).collect();
                    let (mut whole, mut read) = (table.clone(), Table::for_kind(kind, &sparse, now()));
                    whole.remove_own_columns();
                    read.remove_own_columns();
                    if !wide && !flags.iter().any(|flag| flag.contains("label")) {
                        let print = |table| TablePrinter::new(options.clone()).print(table, "x", shows_kind);
                        assert_eq!(print(&read), print(&whole), "{}", kind.resource);
                    }
                    assert_eq!(cells(read), cells(whole), "{}", kind.resource);
                }
                printer.print(&table, &kind.qualified_singular(), shows_kind)
            });
            return Ok(tables.collect());
        }
        let mut values: Vec<Value> = found(&kinds[0]).into_iter().map(|object| object.0).collect();
        let mut printer = ObjectPrinter::new(format, flags.contains(&"--show-managed-fields"));
        if name.is_some() { printer.object(&values.remove(0)) } else { printer.list(values) }
    }
}

#[test]
fn keys_of_users_are_read_for_cells_whatever_their_names() {
    let map = r#"{"metadata": {"name": "a", "managedFields": []}, "data": {"env": "x", "managedFields": "y"}}"#;
    let read = part_read_by_cells(&crate::kinds::config_map::KIND, false).read(map).unwrap();
    assert_eq!(read["data"].as_object().map(serde_json::Map::len), Some(2), "{read}");
}

#[test]
fn output_is_that_of_the_cases() {
    test_cases::check("show", |case| {
        let objects = CaseObjects(test_cases::objects(case));
        let answers = words(case, "commands").map(|command| {
            let text = objects.answer(command).unwrap_or_else(|error| format!("error: {error}\n"));
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { " (no newline)\n" };
            format!("$ {command}\n{text}{end}")
        });
        answers.collect::<Vec<_>>().join("\n")
    });
}
