//! `explain`: formats the schema of a kind or a field like kubectl.
//!
//! Start reading at [`explain`]. Schemas of built-in and custom kinds are treated alike.

use super::wrap::wrap;
use crate::kinds::catalogue::schemas::KindSchemas;
use serde_json::Value;

/// Width of wrapped descriptions, so that they fit into 80 columns with their margin.
const WIDTH: usize = 76;
/// Maximum number of enum values to list for a field in a list of fields.
const ENUM_LIMIT: usize = 4;

/// The field to explain.
pub struct ExplainRequest<'a> {
    /// The group, such as `apps`; empty for the core group.
    pub group: &'a str,
    /// The version, such as `v1`.
    pub version: &'a str,
    /// The kind, such as `Deployment`.
    pub kind: &'a str,
    /// The kind's schema.
    pub schema: &'a Value,
    /// The field's path: `spec`, `replicas`; empty for the kind itself.
    pub path: &'a [&'a str],
    /// Whether to list nested fields too, without descriptions.
    pub recursive: bool,
}

/// The result: text, and possibly an error, which kubectl prints after the text.
pub struct ExplainText {
    /// Text for standard output.
    pub text: String,
    /// The error that ended the text early.
    pub error: Option<String>,
}

/// Explains a kind or one of its fields.
pub fn explain(schemas: &KindSchemas, request: &ExplainRequest<'_>) -> ExplainText {
    let ExplainRequest { group, version, kind, .. } = request;
    let group = if group.is_empty() { String::new() } else { format!("GROUP:      {group}\n") };
    let mut text = format!("{group}KIND:       {kind}\nVERSION:    {version}\n\n");
    let mut field = request.schema;
    for name in request.path {
        let Some(next) = find(schemas, field, name) else {
            let last = request.path.last().copied().unwrap_or_default();
            return ExplainText { text, error: Some(format!("field {last:?} does not exist")) };
        };
        field = next;
    }
    if let Some(name) = request.path.last() {
        text.push_str(&format!("FIELD: {name} <{}>\n{}\n\n", type_of(schemas, field), enum_below(field)));
    }
    let mut description = String::new();
    describe(schemas, field, &mut description);
    let description = if description.is_empty() { "<empty>" } else { &description };
    text.push_str(&format!("DESCRIPTION:\n{}\n", indent(4, &wrap(WIDTH, description))));
    let mut list = FieldList { schemas, recursive: request.recursive, seen: Vec::new(), text: String::new() };
    list.fields(field, 1);
    if !list.text.is_empty() {
        text.push_str(&format!("FIELDS:\n{}", list.text));
    }
    text.push('\n');
    ExplainText { text, error: None }
}

/// Returns the schemas of a list's elements and of a map's values, and those in `allOf`.
fn inner(schema: &Value) -> impl Iterator<Item = &Value> {
    let parts = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
    let part = |name| schema.get(name).filter(|inner| inner.is_object());
    part("items").into_iter().chain(part("additionalProperties")).chain(parts)
}

fn find<'a>(schemas: &'a KindSchemas, schema: &'a Value, name: &str) -> Option<&'a Value> {
    let schema = schemas.follow(schema).unwrap_or(schema);
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| inner(schema).find_map(|inner| find(schemas, inner, name)))
}

/// Returns the names of the fields below a path; none for an unknown path.
pub fn field_names(schemas: &KindSchemas, schema: &Value, path: &[&str]) -> Vec<String> {
    let mut field = schema;
    for name in path {
        let Some(next) = find(schemas, field, name) else { return Vec::new() };
        field = next;
    }
    let mut names = Vec::new();
    collect_names(schemas, field, &mut names);
    names
}

fn collect_names(schemas: &KindSchemas, schema: &Value, names: &mut Vec<String>) {
    let schema = schemas.follow(schema).unwrap_or(schema);
    let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    names.extend(own.map(|(name, _)| name.clone()));
    inner(schema).for_each(|inner| collect_names(schemas, inner, names));
}

/// Appends the description of a field, followed by that of its type.
fn describe(schemas: &KindSchemas, schema: &Value, text: &mut String) {
    if let Some(own) = schema.get("description").and_then(Value::as_str).filter(|own| !own.is_empty()) {
        text.push_str(own);
        text.push('\n');
    }
    for of in schemas.follow(schema).into_iter().chain(inner(schema)) {
        describe(schemas, of, text);
    }
}

/// Returns the type's name: `[]Container`, `map[string]string`, `Object`.
fn type_of(schemas: &KindSchemas, schema: &Value) -> String {
    if let Some(items) = schema.get("items") {
        return format!("[]{}", type_of(schemas, items));
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        return format!("map[string]{}", type_of(schemas, values));
    }
    let own =
        |schema: &Value| schema.get("type").and_then(Value::as_str).filter(|own| *own != "object").map(str::to_owned);
    let Some(target) = schemas.follow(schema) else { return own(schema).unwrap_or_else(|| "Object".into()) };
    let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('.').next());
    own(target).unwrap_or_else(|| name.unwrap_or("Object").to_owned())
}

/// Returns the values of an enum.
fn enum_of(schema: &Value) -> Vec<String> {
    let text = |value: &Value| match value.as_str() {
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    schema.get("enum").and_then(Value::as_array).into_iter().flatten().map(text).collect()
}

fn enum_below(schema: &Value) -> String {
    match enum_of(schema) {
        values if values.is_empty() => String::new(),
        values => format!("ENUM:\n    {}", values.join("\n    ")),
    }
}

/// The list of fields.
struct FieldList<'a> {
    schemas: &'a KindSchemas,
    recursive: bool,
    /// The types around the list. A recursive type is listed only once.
    seen: Vec<&'a str>,
    text: String,
}

impl<'a> FieldList<'a> {
    fn fields(&mut self, schema: &'a Value, level: usize) {
        let reference = schema.get("$ref").and_then(Value::as_str);
        if reference.is_some_and(|reference| self.seen.contains(&reference)) {
            return;
        }
        self.seen.extend(reference);
        let schema = self.schemas.follow(schema).unwrap_or(schema);
        for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let required = schema.get("required").and_then(Value::as_array);
            let required = required.is_some_and(|required| required.iter().any(|known| known == name));
            self.field(name, field, required, level);
        }
        for inner in inner(schema) {
            self.fields(inner, level);
        }
        if reference.is_some() {
            self.seen.pop();
        }
    }

    fn field(&mut self, name: &str, field: &'a Value, required: bool, level: usize) {
        let (margin, required) = ("  ".repeat(level), if required { " -required-" } else { "" });
        self.text.push_str(&format!("{margin}{name}\t<{}>{required}", type_of(self.schemas, field)));
        let mut values = enum_of(field);
        if !values.is_empty() {
            if values.len() > ENUM_LIMIT {
                values.truncate(ENUM_LIMIT);
                values.push("....".into());
            }
            self.text.push_str(&format!("\n{margin}enum: {}", values.join(", ")));
        }
        self.text.push('\n');
        if self.recursive {
            return self.fields(field, level + 1);
        }
        let description = field.get("description").and_then(Value::as_str).filter(|own| !own.is_empty());
        let description = wrap(WIDTH + 2 - margin.len(), description.unwrap_or("<no description>"));
        self.text.push_str(&format!("{}\n\n", indent(margin.len() + 2, &description)));
    }
}

fn indent(by: usize, text: &str) -> String {
    let margin = " ".repeat(by);
    format!("{margin}{}", text.replace('\n', &format!("\n{margin}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_enums_are_shortened_in_lists_only() {
        let schema = json!({ "properties": { "mode": { "type": "string", "enum": ["", "a", "b", "c", "d"] } } });
        let ask = |path: &[&str]| {
            let request =
                ExplainRequest { group: "", version: "v1", kind: "X", schema: &schema, path, recursive: true };
            explain(&KindSchemas::built_in(), &request).text
        };
        assert!(ask(&[]).contains("  mode\t<string>\n  enum: \"\", a, b, c, ....\n"), "{}", ask(&[]));
        assert!(ask(&["mode"]).contains("FIELD: mode <string>\nENUM:\n    \"\"\n    a\n    b\n    c\n    d\n\n"));
    }

    #[test]
    fn recursive_type_is_listed_once() {
        let schemas = KindSchemas::built_in();
        let schema = schemas
            .kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
            .expect("schema of CustomResourceDefinition");
        let request = ExplainRequest { group: "", version: "", kind: "", schema, path: &[], recursive: true };
        assert!(explain(&schemas, &request).text.lines().count() < 2_000);
    }
}
