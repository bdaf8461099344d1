//! The output formats of `-o`, except for tables.
//!
//! [`OutputFormat::parse`] parses the argument of `-o` and reports errors in kubectl's words; a [`ObjectPrinter`] turns objects
//! into text. The caller reads the files that a format names.

use super::custom_columns::UserColumns;
use super::kyaml::to_kyaml;
use crate::go::fmt;
use crate::go::json::{to_json, to_json_pretty};
use crate::go::jsonpath::{JsonPathTemplate, MissingKeys};
use crate::go::template::GoTemplate;
use crate::object::yaml::to_yaml;
use serde_json::{Value, json};

/// Output format.
#[derive(Clone, Debug)]
pub enum OutputFormat {
    /// A table, optionally with the wide columns.
    Table {
        /// `-o wide`.
        wide: bool,
    },
    /// The resource and the name, such as `pod/web`.
    Name,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// The flow style of YAML.
    Kyaml,
    /// A JSONPath template and its source.
    JsonPath(JsonPathTemplate, String),
    /// A JSONPath template whose results are printed as a JSON list.
    JsonPathAsJson(JsonPathTemplate, String),
    /// The columns of `-o custom-columns`.
    CustomColumns(UserColumns),
    /// A Go template and its source.
    GoTemplate(GoTemplate, String),
}

/// The flags that affect `-o`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputFlags<'a> {
    /// `--template`.
    pub template: Option<&'a str>,
    /// `--allow-missing-template-keys=false`.
    pub missing_keys: MissingKeys,
    /// `--no-headers`, for custom columns.
    pub no_headers: bool,
    /// Whether the command prints tables, and therefore accepts `wide` and custom columns: `get`
    /// and a few others.
    pub tables: bool,
}

/// Formats that every command supports.
const ANYWHERE: [&str; 10] = [
    "go-template",
    "go-template-file",
    "json",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "kyaml",
    "name",
    "template",
    "templatefile",
];

impl OutputFormat {
    /// Parses the value of `-o`. `read` returns the content of a file that the value names.
    pub fn parse(
        output: &str,
        flags: OutputFlags<'_>,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<OutputFormat, String> {
        let output = if output.is_empty() && flags.template.is_some() { "go-template" } else { output };
        let (name, argument) = output.split_once('=').unwrap_or((output, ""));
        let template = if argument.is_empty() { flags.template.unwrap_or_default() } else { argument };
        let mut file = |path: &str| read(path).map_err(|error| format!("error reading --template {path}, {error}"));
        // As in kubectl, the case of these names alone does not matter.
        let lower = name.to_ascii_lowercase();
        let name = if ["json", "yaml", "kyaml", "name"].contains(&lower.as_str()) { &lower } else { name };
        if !argument.is_empty() && WITHOUT_ARGUMENT.contains(&name) {
            return Err(unknown(output, flags.tables));
        }
        match (name, flags.tables) {
            ("", _) => Ok(OutputFormat::Table { wide: false }),
            ("wide", true) => Ok(OutputFormat::Table { wide: true }),
            ("name", _) => Ok(OutputFormat::Name),
            ("json", _) => Ok(OutputFormat::Json),
            ("yaml", _) => Ok(OutputFormat::Yaml),
            ("kyaml", _) => Ok(OutputFormat::Kyaml),
            ("jsonpath", _) => jsonpath(template, flags, OutputFormat::JsonPath),
            ("jsonpath-as-json", _) => jsonpath(template, flags, OutputFormat::JsonPathAsJson),
            ("jsonpath-file", _) => jsonpath(&file(required(template)?)?, flags, OutputFormat::JsonPath),
            ("custom-columns", true) => {
                Ok(OutputFormat::CustomColumns(UserColumns::parse(argument, flags.no_headers)?))
            }
            ("custom-columns-file", true) => {
                if argument.is_empty() {
                    return Err("custom-columns format specified but no custom columns given".into());
                }
                let text = read(argument).map_err(|error| format!("error reading template {argument}, {error}"))?;
                Ok(OutputFormat::CustomColumns(UserColumns::parse_file(&text, flags.no_headers)?))
            }
            ("go-template" | "template", _) => go_template(template, flags),
            ("go-template-file" | "templatefile", _) => go_template(&file(required(template)?)?, flags),
            _ => Err(unknown(output, flags.tables)),
        }
    }
}

/// Formats that take nothing after `=`.
const WITHOUT_ARGUMENT: [&str; 5] = ["json", "kyaml", "name", "wide", "yaml"];

fn required(template: &str) -> Result<&str, String> {
    if template.is_empty() { Err("template format specified but no template given".into()) } else { Ok(template) }
}

fn jsonpath(
    source: &str,
    flags: OutputFlags<'_>,
    format: fn(JsonPathTemplate, String) -> OutputFormat,
) -> Result<OutputFormat, String> {
    let template = JsonPathTemplate::parse(required(source)?);
    let template = template.map_err(|error| format!("error parsing jsonpath {source}, {error}"))?;
    Ok(format(template.with_missing_keys(flags.missing_keys), source.to_owned()))
}

fn go_template(source: &str, flags: OutputFlags<'_>) -> Result<OutputFormat, String> {
    let strict = flags.missing_keys == MissingKeys::Refuse;
    let template = GoTemplate::parse(required(source)?, strict);
    let template = template.map_err(|error| format!("error parsing template {source}, {error}"))?;
    Ok(OutputFormat::GoTemplate(template, source.to_owned()))
}

/// The formats that a command supports; `tables` adds those of tables.
pub fn formats(tables: bool) -> Vec<String> {
    let mut known: Vec<&str> = [&ANYWHERE[..], &["yaml"]].concat();
    if tables {
        known.extend(["custom-columns", "custom-columns-file", "wide"]);
    }
    known.sort_unstable();
    known.into_iter().map(str::to_owned).collect()
}

fn unknown(output: &str, tables: bool) -> String {
    unsuitable(output, &formats(tables))
}

/// Returns the error of `-o name` for results without a name.
pub fn unnamed() -> String {
    let named: Vec<String> = formats(false).into_iter().filter(|format| format != "name").collect();
    unsuitable("name", &named)
}

fn unsuitable(output: &str, allowed: &[String]) -> String {
    let allowed = allowed.join(",");
    format!("unable to match a printer suitable for the output format \"{output}\", allowed formats are: {allowed}")
}

/// Prints objects in one format, one after another.
#[derive(Clone, Debug)]
pub struct ObjectPrinter {
    format: OutputFormat,
    managed_fields: bool,
    documents: usize,
    /// Details of the template that failed last, for standard output.
    details: String,
}

impl ObjectPrinter {
    /// Creates a printer; `managed_fields` is `--show-managed-fields`.
    pub fn new(format: OutputFormat, managed_fields: bool) -> ObjectPrinter {
        ObjectPrinter { format, managed_fields, documents: 0, details: String::new() }
    }

    /// Returns the text for standard output about the template that failed last; empty without a failure.
    pub fn failure_details(&self) -> &str {
        &self.details
    }

    /// Continues after a number of printed documents.
    pub fn continuing(self, documents: usize) -> ObjectPrinter {
        ObjectPrinter { documents, ..self }
    }

    /// Formats one object.
    pub fn object(&mut self, object: &Value) -> Result<String, String> {
        match &mut self.format {
            OutputFormat::CustomColumns(columns) => columns.print(&[object]),
            _ => self.value(object),
        }
    }

    /// Formats several objects as one `List`, or separately if the format has no lists.
    pub fn list(&mut self, objects: Vec<Value>) -> Result<String, String> {
        self.list_in(objects, list)
    }

    /// Formats several objects as the list that a function makes of them, or separately if the format has no lists.
    pub fn list_in(&mut self, objects: Vec<Value>, frame: fn(Vec<Value>) -> Value) -> Result<String, String> {
        match &mut self.format {
            OutputFormat::CustomColumns(columns) => columns.print(&objects.iter().collect::<Vec<_>>()),
            OutputFormat::Name => objects.iter().map(|object| self.value(object)).collect(),
            _ => {
                let objects = objects.into_iter().map(|object| self.shown(object)).collect();
                self.shown_value(&frame(objects))
            }
        }
    }

    /// Formats a watch event: `--output-watch-events`.
    pub fn event(&mut self, event: &str, object: &Value) -> Result<String, String> {
        match &self.format {
            // kubectl writes such an event into one line, so that programs can read lines.
            OutputFormat::Json => Ok(format!("{{\"type\":{event:?},\"object\":{}}}\n", to_json(object))),
            OutputFormat::Yaml | OutputFormat::Kyaml => {
                // kubectl does not remove managedFields from these.
                let managed_fields = std::mem::replace(&mut self.managed_fields, true);
                let text = self.value(&json!({"type": event, "object": object}));
                self.managed_fields = managed_fields;
                text
            }
            _ => self.object(object),
        }
    }

    fn shown(&self, mut object: Value) -> Value {
        let drops = matches!(self.format, OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Kyaml)
            && !self.managed_fields;
        if drops && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        object
    }

    fn value(&mut self, value: &Value) -> Result<String, String> {
        match &self.format {
            OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Kyaml => {
                let shown = self.shown(value.clone());
                self.shown_value(&shown)
            }
            _ => self.shown_value(value),
        }
    }

    /// Formats a value from which the fields that are not shown have been removed.
    fn shown_value(&mut self, value: &Value) -> Result<String, String> {
        match &self.format {
            OutputFormat::Table { .. } | OutputFormat::CustomColumns(_) => Ok(String::new()),
            OutputFormat::Name => Ok(format!("{}\n", name(value))),
            OutputFormat::Json => Ok(to_json_pretty(value) + "\n"),
            OutputFormat::Kyaml => Ok(to_kyaml(value)),
            OutputFormat::Yaml => {
                self.documents += 1;
                let separator = if self.documents > 1 { "---\n" } else { "" };
                Ok(format!("{separator}{}", to_yaml(value)))
            }
            OutputFormat::GoTemplate(template, source) => {
                let failed = match template.eval(value) {
                    Ok(text) => return Ok(text),
                    Err(failed) => failed,
                };
                self.details = format!(
                    "Error executing template: {failed}. Printing more information for debugging the template:\n\
                     \ttemplate was:\n\t\t{source}\n\traw data was:\n\t\t{}\n\
                     \tobject given to template engine was:\n\t\t{}\n\n",
                    to_json(value),
                    fmt::plain(value)
                );
                Err(format!("error executing template {source:?}: {failed}"))
            }
            OutputFormat::JsonPath(template, source) => {
                template.eval(value).map_err(|error| failed(source, &error, value))
            }
            OutputFormat::JsonPathAsJson(template, source) => {
                let results = template.results(value).map_err(|error| failed(source, &error, value))?;
                let values: Vec<Value> = results.into_iter().flatten().map(|found| found.into_owned()).collect();
                Ok(to_json_pretty(&Value::Array(values)) + "\n")
            }
        }
    }
}

/// Wraps objects in a `kind: List`.
pub fn list(objects: Vec<Value>) -> Value {
    let mut list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}});
    // The macro would copy them.
    list["items"] = Value::Array(objects);
    list
}

/// Returns `pod/web` or `deployment.apps/web`.
pub fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&object["metadata"]["name"]);
    format!("{}/{name}", kind_in_names(&text(&object["apiVersion"]), &text(&object["kind"])))
}

/// Returns the part of [`name`] before the slash: `pod` or `deployment.apps`.
pub fn kind_in_names(api_version: &str, kind: &str) -> String {
    let kind = kind.to_lowercase();
    match api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

fn failed(source: &str, error: &str, value: &Value) -> String {
    let object = fmt::literal(value);
    format!(
        "error executing jsonpath {source:?}: Error executing template: {error}. Printing more information for debugging the template:\n\
         \ttemplate was:\n\t\t{source}\n\tobject given to jsonpath engine was:\n\t\t{object}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(output: &str) -> Result<OutputFormat, String> {
        let mut read = |path: &str| match path {
            "path.txt" => Ok("{.kind}".to_owned()),
            "cols.txt" => Ok("N\nmetadata.name\n".to_owned()),
            other => Err(format!("open {other}: no such file or directory")),
        };
        OutputFormat::parse(output, OutputFlags { tables: true, ..OutputFlags::default() }, &mut read)
    }

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "managedFields": [{"manager": "m"}]}})
    }

    fn printed(output: &str) -> String {
        ObjectPrinter::new(parse(output).unwrap(), false).object(&pod()).unwrap()
    }

    #[test]
    fn templates_are_read_from_files() {
        assert_eq!(printed("jsonpath-file=path.txt"), "Pod");
        assert_eq!(printed("custom-columns-file=cols.txt"), "N\nweb\n");
    }

    #[test]
    fn lists_and_documents_are_separated() {
        let mut yaml = ObjectPrinter::new(OutputFormat::Yaml, false);
        assert!(yaml.object(&pod()).unwrap().starts_with("apiVersion"));
        assert!(yaml.object(&pod()).unwrap().starts_with("---\napiVersion"));
        let empty = ObjectPrinter::new(OutputFormat::Yaml, false).list(vec![]).unwrap();
        assert_eq!(empty, "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n");
        assert_eq!(
            ObjectPrinter::new(OutputFormat::Name, false).list(vec![pod(), pod()]).unwrap(),
            "pod/web\npod/web\n"
        );
        assert!(!ObjectPrinter::new(OutputFormat::Yaml, false).list(vec![pod()]).unwrap().contains("managedFields"));
        let event = ObjectPrinter::new(OutputFormat::Yaml, false).event("ADDED", &pod()).unwrap();
        assert!(event.starts_with("object:\n") && event.contains("managedFields") && event.ends_with("type: ADDED\n"));
    }

    #[test]
    fn table_formats_need_a_command_with_tables() {
        assert!(OutputFormat::parse("wide", OutputFlags::default(), &mut |_| Ok(String::new())).is_err());
    }

    #[test]
    fn missing_key_error_shows_template_and_object() {
        let flags = OutputFlags { missing_keys: MissingKeys::Refuse, ..OutputFlags::default() };
        let format = OutputFormat::parse("jsonpath={.data.zz}{\"\\n\"}", flags, &mut |_| Ok(String::new())).unwrap();
        let error =
            ObjectPrinter::new(format, false).object(&json!({"data": {"a": "1"}, "n": [1, null, true]})).unwrap_err();
        let expected = "error executing jsonpath \"{.data.zz}{\\\"\\\\n\\\"}\": Error executing template: zz is not found. Printing more information for debugging the template:\n\
             \ttemplate was:\n\t\t{.data.zz}{\"\\n\"}\n\tobject given to jsonpath engine was:\n\
             \t\tmap[string]interface {}{\"data\":map[string]interface {}{\"a\":\"1\"}, \"n\":[]interface {}{1, interface {}(nil), true}}\n";
        assert_eq!(error, expected);
    }
}
