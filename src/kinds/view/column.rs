//! Columns and cells of a kind's table.

use serde_json::{Number, Value};
use std::borrow::Cow;

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in the API's Table, such as `Up-to-date`; the header has it in upper case.
    pub name: Cow<'static, str>,
    /// The type in the API's Table: `string`, `integer`, `boolean`.
    pub kind: &'static str,
    /// Above 0 only `-o wide` shows it.
    pub priority: i64,
    /// Whether the column is specific to kloop: the command line shows it, the API's Table does not have it.
    pub own: bool,
    /// The format of its values in the API's Table, where a definition gives one.
    pub format: Cow<'static, str>,
    /// Its description in the API's Table, where a definition gives one.
    pub description: Cow<'static, str>,
}

impl Column {
    const fn new(name: &'static str, kind: &'static str) -> Column {
        let (format, description) = (Cow::Borrowed(""), Cow::Borrowed(""));
        Column { name: Cow::Borrowed(name), kind, priority: 0, own: false, format, description }
    }

    /// A column of text.
    pub const fn text(name: &'static str) -> Column {
        Column::new(name, "string")
    }

    /// A column of numbers.
    pub const fn int(name: &'static str) -> Column {
        Column::new(name, "integer")
    }

    /// A column of booleans.
    pub const fn truth(name: &'static str) -> Column {
        Column::new(name, "boolean")
    }

    /// A column of text that only `-o wide` shows.
    pub const fn wide(name: &'static str) -> Column {
        let mut column = Column::text(name);
        column.priority = 1;
        column
    }

    /// A column specific to kloop, which only the command line with `-o wide` shows.
    pub const fn own(name: &'static str) -> Column {
        let mut column = Column::wide(name);
        column.own = true;
        column
    }

    /// Whether only `-o wide` shows it.
    pub fn is_wide(&self) -> bool {
        self.priority > 0
    }

    /// Whether this column holds the object's name.
    pub fn is_name(&self) -> bool {
        self.name == "Name"
    }
}

/// One cell of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum TableCell {
    /// Text, not escaped.
    Text(String),
    /// A whole number, also in the API's Table.
    Int(i64),
    /// A number, also in the API's Table.
    Number(Number),
    /// A boolean, also in the API's Table.
    Bool(bool),
    /// An empty cell.
    Empty,
}

impl TableCell {
    /// The cell in the rows of the API's Table.
    pub fn to_value(&self) -> Value {
        match self {
            TableCell::Text(text) => Value::from(text.as_str()),
            TableCell::Int(number) => Value::from(*number),
            TableCell::Number(number) => Value::from(number.clone()),
            TableCell::Bool(truth) => Value::from(*truth),
            TableCell::Empty => Value::Null,
        }
    }

    /// The text, or `<none>` when it is empty.
    pub fn or_none(text: &str) -> TableCell {
        TableCell::from(if text.is_empty() { "<none>" } else { text })
    }
}

impl From<&str> for TableCell {
    fn from(text: &str) -> TableCell {
        TableCell::Text(text.to_owned())
    }
}

impl From<String> for TableCell {
    fn from(text: String) -> TableCell {
        TableCell::Text(text)
    }
}

impl From<i64> for TableCell {
    fn from(number: i64) -> TableCell {
        TableCell::Int(number)
    }
}

impl From<usize> for TableCell {
    fn from(number: usize) -> TableCell {
        TableCell::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for TableCell {
    fn from(truth: bool) -> TableCell {
        TableCell::Bool(truth)
    }
}
