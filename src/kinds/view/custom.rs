//! Custom resources: the columns that their definition declares.

use super::age::since;
use super::body::Body;
use super::{Cell, Column, generic};
use crate::object::jsonpath::Template;
use crate::object::{Object, Time};
use serde_json::Value;
use std::borrow::Cow;

/// The columns of one version of a custom resource.
pub struct CustomColumns {
    /// Name first, then those declared.
    pub columns: Vec<Column>,
    sources: Vec<(String, Option<Template>)>,
}

impl CustomColumns {
    /// Reads `additionalPrinterColumns` of a version; without any, name and age are shown.
    pub fn of(declared: &[Value]) -> CustomColumns {
        if declared.is_empty() {
            let age = ("date".to_owned(), Template::parse_relaxed(".metadata.creationTimestamp").ok());
            return CustomColumns { columns: generic::VIEW.columns.to_vec(), sources: vec![age] };
        }
        let column = |column: &Value| Column {
            name: Cow::Owned(column.text("name").to_owned()),
            kind: match column.text("type") {
                "integer" => "integer",
                "number" => "number",
                "boolean" => "boolean",
                "date" => "date",
                _ => "string",
            },
            wide: column.int("priority") > 0,
        };
        let mut columns = vec![Column::text("Name")];
        columns.extend(declared.iter().map(column));
        let source =
            |column: &Value| (column.text("type").to_owned(), Template::parse_relaxed(column.text("jsonPath")).ok());
        CustomColumns { columns, sources: declared.iter().map(source).collect() }
    }

    /// One object's cells.
    pub fn cells(&self, object: &Object, now: Time) -> Vec<Cell> {
        let mut cells = vec![object.name().into()];
        cells.extend(self.sources.iter().map(|(kind, path)| cell(kind, path.as_ref(), object, now)));
        cells
    }
}

/// A value that does not fit the declared type is left empty, as apiextensions-apiserver does.
fn cell(kind: &str, path: Option<&Template>, object: &Object, now: Time) -> Cell {
    let found = path.and_then(|path| path.find(&object.0).ok()).unwrap_or_default();
    let Some(first) = found.first() else { return Cell::Empty };
    match (kind, first) {
        (_, Value::Null) => Cell::Empty,
        ("integer", value) => value.as_i64().map_or(Cell::Empty, Cell::Int),
        ("number", Value::Number(number)) => number.to_string().into(),
        ("boolean", value) => value.as_bool().map_or(Cell::Empty, Cell::Bool),
        ("date", Value::String(text)) => match text.parse() {
            Ok(moment) => since(Some(moment), now).into(),
            Err(_) => "<invalid>".into(),
        },
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", _) => path.and_then(|path| path.eval(&object.0).ok()).unwrap_or_default().into(),
        _ => Cell::Empty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn declared_columns() {
        let declared = [
            json!({"name": "Sail", "type": "string", "jsonPath": ".spec.sail"}),
            json!({"name": "Crew", "type": "integer", "jsonPath": ".spec.crew"}),
            json!({"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"}),
            json!({"name": "Home", "type": "string", "jsonPath": ".spec.home.port", "priority": 1}),
            json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
        ];
        let columns = CustomColumns::of(&declared);
        let boat = Object(json!({"metadata": {"name": "one", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"sail": "red", "crew": 2, "home": {"port": "oslo"}}}));
        let cells = columns.cells(&boat, Time::from_second(5).unwrap());
        let expected: Vec<Cell> =
            vec!["one".into(), "red".into(), Cell::Int(2), Cell::Empty, "oslo".into(), "5s".into()];
        assert_eq!(cells, expected);
        assert!(columns.columns[4].wide);
        assert_eq!(CustomColumns::of(&[]).cells(&boat, Time::from_second(7).unwrap()), ["one".into(), "7s".into()]);
    }
}
