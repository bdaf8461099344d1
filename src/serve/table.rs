//! Objects as rows of a `meta.k8s.io` Table, which kubectl prints.

use super::ServeResult;
use super::options::wrong;
use super::request::ApiRequest;
use crate::kinds::Kind;
use crate::kinds::view::{Column, TableCell};
use crate::object::{Object, Time};
use crate::show::table::Table;
use serde_json::{Value, json};

/// Part of the object that a table row contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// No part of the object.
    Nothing,
    /// Its metadata.
    #[default]
    Metadata,
    /// The complete object.
    Object,
}

impl IncludeObject {
    /// Reads the request parameter.
    pub fn from_request(request: &ApiRequest) -> ServeResult<IncludeObject> {
        match request.parameter("includeObject") {
            None | Some("Metadata") => Ok(IncludeObject::Metadata),
            Some("None") => Ok(IncludeObject::Nothing),
            Some("Object") => Ok(IncludeObject::Object),
            Some(other) => {
                let message =
                    format!("Unsupported value: {other:?}: supported values: \"Metadata\", \"None\", \"Object\"");
                Err(wrong("TableOptions", "includeObject", "FieldValueNotSupported", message))
            }
        }
    }
}

/// Returns only the metadata of an object.
pub fn metadata(object: &Object, version: &str) -> Value {
    let metadata = object.value_at(&["metadata"]).cloned().unwrap_or_default();
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})
}

/// Returns the table of objects of a version of a kind.
pub fn table_document(
    (kind, api_version): (&Kind, &str),
    objects: &[Object],
    meta: Value,
    include: IncludeObject,
    version: &str,
) -> Value {
    let mut table = Table::for_version(kind, api_version, objects, Time::now());
    table.remove_own_columns();
    let rows = table.rows.iter().zip(objects).map(|(row, object)| row_of(&row.cells, object, include, version));
    let columns = table.columns.iter().map(|column| definition(column, column.is_name()));
    whole(columns.collect(), rows.collect(), meta, version)
}

/// Returns the cells of each object's row, as JSON.
pub fn cells(kind: &Kind, api_version: &str, objects: &[Object]) -> Vec<Value> {
    let mut table = Table::for_version(kind, api_version, objects, Time::now());
    table.remove_own_columns();
    table.rows.iter().map(|row| cell_values(&row.cells)).collect()
}

fn cell_values(cells: &[TableCell]) -> Value {
    cells.iter().map(TableCell::to_value).collect()
}

/// The table of one Scale.
pub fn scale_table(scale: &Object, meta: Value, include: IncludeObject, version: &str) -> Value {
    let table = Table::for_scale(std::slice::from_ref(scale), Time::now());
    let cells = table.rows.first().map(|row| row.cells.as_slice()).unwrap_or_default();
    let columns = table.columns.iter().map(|column| definition(column, false)).collect();
    whole(columns, vec![row_of(cells, scale, include, version)], meta, version)
}

/// The table of objects whose cells are known.
pub fn cells_table(
    columns: &[Column],
    rows: &[Vec<TableCell>],
    objects: &[Object],
    include: IncludeObject,
    version: &str,
) -> Value {
    let rows = rows.iter().zip(objects).map(|(cells, object)| row_of(cells, object, include, version)).collect();
    whole(columns.iter().map(|column| definition(column, column.is_name())).collect(), rows, json!({}), version)
}

fn whole(columns: Vec<Value>, rows: Vec<Value>, meta: Value, version: &str) -> Value {
    let api_version = format!("meta.k8s.io/{version}");
    json!({"kind": "Table", "apiVersion": api_version, "metadata": meta, "columnDefinitions": columns, "rows": rows})
}

fn definition(column: &Column, is_name: bool) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": if is_name { "name" } else { &*column.format },
        "description": column.description, "priority": column.priority,
    })
}

fn row_of(cells: &[TableCell], object: &Object, include: IncludeObject, version: &str) -> Value {
    let shown = match include {
        IncludeObject::Nothing => Value::Null,
        IncludeObject::Metadata => metadata(object, version),
        IncludeObject::Object => object.0.clone(),
    };
    json!({"cells": cell_values(cells), "object": shown})
}
