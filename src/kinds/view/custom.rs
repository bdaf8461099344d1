//! Custom resources: the columns that their definition declares.

use super::age::age_since;
use super::body::BodyRead;
use super::{Column, TableCell, generic};
use crate::go::jsonpath::JsonPathTemplate;
use crate::object::{Object, Time};
use serde_json::Value;
use std::borrow::Cow;

/// Maximum bytes of the texts in one row. Many columns can show the same long field, so that a table would be hundreds of times as long as
/// its objects.
const MAX_ROW_BYTES: usize = 256 * 1024;

/// Shown for a text that makes its row too long.
const TOO_LONG: &str = "<too long>";

/// The columns of one version of a custom resource.
pub struct DefinitionColumns {
    /// The name, then the declared columns.
    pub columns: Vec<Column>,
    sources: Vec<(String, Option<JsonPathTemplate>)>,
}

impl DefinitionColumns {
    /// Parses `additionalPrinterColumns` of a version; without any, the columns are name and age.
    pub fn parse(declared: &[Value]) -> DefinitionColumns {
        if declared.is_empty() {
            let age = ("date".to_owned(), JsonPathTemplate::parse_relaxed(".metadata.creationTimestamp").ok());
            return DefinitionColumns { columns: generic::VIEW.columns.to_vec(), sources: vec![age] };
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
            priority: column.int("priority"),
            own: false,
            format: Cow::Owned(column.text("format").to_owned()),
            description: Cow::Owned(match column.text("description") {
                "" => format!("Custom resource definition column (in JSONPath format): {}", column.text("jsonPath")),
                text => text.to_owned(),
            }),
        };
        let mut columns = vec![Column::text("Name")];
        columns.extend(declared.iter().map(column));
        let source = |column: &Value| {
            (column.text("type").to_owned(), JsonPathTemplate::parse_relaxed(column.text("jsonPath")).ok())
        };
        DefinitionColumns { columns, sources: declared.iter().map(source).collect() }
    }

    /// The cells of an object.
    pub fn cells(&self, object: &Object, now: Time) -> Vec<TableCell> {
        let mut left = MAX_ROW_BYTES;
        let bounded = |cell: TableCell| match &cell {
            TableCell::Text(text) if text.len() > left => TOO_LONG.into(),
            TableCell::Text(text) => {
                left -= text.len();
                cell
            }
            _ => cell,
        };
        let declared = self.sources.iter().map(|(kind, path)| cell(kind, path.as_ref(), object, now)).map(bounded);
        std::iter::once(object.name().into()).chain(declared).collect()
    }
}

/// The cell of a column; empty when the value has another type than declared, as in apiextensions-apiserver.
fn cell(kind: &str, path: Option<&JsonPathTemplate>, object: &Object, now: Time) -> TableCell {
    let found = path.and_then(|path| path.find(&object.0).ok()).unwrap_or_default();
    let Some(first) = found.first() else { return TableCell::Empty };
    match (kind, first) {
        (_, Value::Null) => TableCell::Empty,
        // As in Go, a fraction is cut off.
        ("integer", value) => {
            let whole = value.as_i64().or_else(|| value.as_f64().map(|number| number as i64));
            whole.map_or(TableCell::Empty, TableCell::Int)
        }
        ("number", Value::Number(number)) => TableCell::Number(number.clone()),
        ("boolean", value) => value.as_bool().map_or(TableCell::Empty, TableCell::Bool),
        ("date", Value::String(text)) => match text.parse() {
            Ok(moment) => age_since(Some(moment), now).into(),
            Err(_) => "<invalid>".into(),
        },
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", _) => path.and_then(|path| path.eval(&object.0).ok()).unwrap_or_default().into(),
        _ => TableCell::Empty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_field_is_shown_by_few_of_many_columns() {
        let column = json!({"name": "Text", "type": "string", "jsonPath": ".spec.text"});
        let object = Object(json!({"metadata": {"name": "one"}, "spec": {"text": "x".repeat(100_000)}}));
        let cells = DefinitionColumns::parse(&vec![column; 800]).cells(&object, Time::UNIX_EPOCH);
        let short = cells.iter().filter(|cell| **cell == TOO_LONG.into()).count();
        assert_eq!((cells.len(), short), (801, 798));
    }

    #[test]
    fn declared_columns_show_their_values() {
        let declared = [
            json!({"name": "Sail", "type": "string", "jsonPath": ".spec.sail"}),
            json!({"name": "Crew", "type": "integer", "jsonPath": ".spec.crew"}),
            json!({"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"}),
            json!({"name": "Home", "type": "string", "jsonPath": ".spec.home.port", "priority": 1}),
            json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
        ];
        let columns = DefinitionColumns::parse(&declared);
        let boat = Object(json!({"metadata": {"name": "one", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"sail": "red", "crew": 2, "home": {"port": "oslo"}}}));
        let cells = columns.cells(&boat, Time::from_second(5).unwrap());
        let expected: Vec<TableCell> =
            vec!["one".into(), "red".into(), TableCell::Int(2), TableCell::Empty, "oslo".into(), "5s".into()];
        assert_eq!(cells, expected);
        assert!(columns.columns[4].is_wide());
        assert_eq!(
            DefinitionColumns::parse(&[]).cells(&boat, Time::from_second(7).unwrap()),
            ["one".into(), "7s".into()]
        );
    }
}
