//! `kloop get` of objects that are computed when they are read: ComponentStatuses and metrics.

use super::Args;
use crate::cli::cluster::rest;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::KindRegistry;
use crate::object::{Object, scalar_text};
use crate::serve::ComputedKind;
use crate::show::columns;
use crate::show::print::{ObjectPrinter, OutputFormat};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A computed kind and the name that was asked for, if any.
pub struct ComputedTarget {
    kind: &'static ComputedKind,
    name: Option<String>,
}

/// Returns the computed resource that the words name, if any. A stored kind of the same name has precedence.
pub fn parse(kinds: &KindRegistry, words: &[String]) -> Option<ComputedTarget> {
    let (word, name) = match words {
        [word] => match word.split_once('/') {
            Some((word, name)) => (word, Some(name.to_owned())),
            None => (word.as_str(), None),
        },
        [word, name] => (word.as_str(), Some(name.clone())),
        _ => return None,
    };
    if kinds.by_name(word).is_some() {
        return None;
    }
    let kind = crate::serve::computed_kinds().iter().find(|kind| kind.has_name(word))?;
    Some(ComputedTarget { kind, name })
}

impl ComputedTarget {
    /// Returns the path of the objects, of one namespace or of all.
    fn path(&self, all_namespaces: bool, selector: Option<&str>, context: &CommandContext) -> String {
        let path = self.kind.path(&self.name, (!all_namespaces).then(|| context.namespace()));
        let selector = selector.unwrap_or_default();
        let query: String = utf8_percent_encode(selector, NON_ALPHANUMERIC).collect();
        if query.is_empty() { path } else { format!("{path}?labelSelector={query}") }
    }

    /// Reads the objects.
    pub fn read(
        &self,
        all_namespaces: bool,
        selector: Option<&str>,
        context: &mut CommandContext,
    ) -> CliResult<Vec<Object>> {
        let document = rest::read_document(context, &self.path(all_namespaces, selector, context), "")?;
        Ok(match document["items"].as_array() {
            Some(items) => items.iter().cloned().map(Object).collect(),
            None => vec![Object(document)],
        })
    }
}

/// Gets and prints the objects.
pub fn run(target: &ComputedTarget, args: &Args, format: OutputFormat, context: &mut CommandContext) -> CliResult {
    if args.watch || args.watch_only {
        return Err(Failure::plain(format!(
            "{} cannot be watched: they are computed when they are read",
            target.kind.plural
        )));
    }
    let path = target.path(args.all_namespaces, args.which.select.labels.text(), context);
    let OutputFormat::Table { .. } = format else {
        let document = rest::read_document(context, &path, "")?;
        let mut printer = ObjectPrinter::new(format, args.print.show_managed_fields);
        let text = match document["items"].as_array() {
            Some(items) => printer.list(items.clone())?,
            None => printer.object(&document)?,
        };
        return context.print(&text);
    };
    let table = rest::read_document(context, &path, TABLE)?;
    let shown: Vec<usize> = (0..table["columnDefinitions"].as_array().map_or(0, Vec::len))
        .filter(|place| table["columnDefinitions"][*place]["priority"].as_i64().unwrap_or(0) == 0)
        .collect();
    let heads = shown.iter().map(|place| scalar_text(&table["columnDefinitions"][*place]["name"]).to_uppercase());
    let mut lines = Vec::new();
    if !args.no_headers {
        lines.push(heads.collect::<Vec<_>>().join("\t"));
    }
    let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        context.print_notice("No resources found");
        return Ok(());
    }
    lines.extend(
        rows.iter()
            .map(|row| shown.iter().map(|place| scalar_text(&row["cells"][*place])).collect::<Vec<_>>().join("\t")),
    );
    let text = lines.join("\n") + "\n";
    context.print(&columns::align(&text, columns::TABLE))
}
