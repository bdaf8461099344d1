//! `kloop api-resources`: lists the kinds that the API serves.

use super::cluster::rest;
use super::command_line::flags::PrintFlags;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::remote::discovery::DiscoveredResource;
use crate::object::split_api_version;
use crate::show::columns;
use serde_json::{Value, json};

/// Print the supported API resources on the server.
#[derive(clap::Args)]
#[command(after_help = "\
# Print the supported API resources
kloop api-resources

# Print the supported API resources with more information
kloop api-resources -o wide

# Print the supported API resources sorted by a column
kloop api-resources --sort-by=name

# Print the supported namespaced resources
kloop api-resources --namespaced=true

# Print the supported API resources with a specific APIGroup
kloop api-resources --api-group=rbac.authorization.k8s.io")]
pub struct Args {
    /// Limit to resources in the specified API group.
    #[arg(long, value_name = "GROUP")]
    api_group: Option<String>,
    /// If false, non-namespaced resources will be returned, otherwise namespaced ones.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    namespaced: Option<bool>,
    /// Limit to resources that support the specified verbs.
    #[arg(long, value_delimiter = ',', value_name = "VERB")]
    verbs: Vec<String>,
    /// Limit to resources that belong to the specified categories.
    #[arg(long, value_delimiter = ',', value_name = "CATEGORY")]
    categories: Vec<String>,
    /// When using the default or wide output format, don't print headers.
    #[arg(long)]
    no_headers: bool,
    /// Output format. One of: (json, kyaml, name, wide, yaml).
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<String>,
    /// If true, keep the managedFields when printing objects in JSON or YAML format.
    #[arg(long)]
    show_managed_fields: bool,
    /// If non-empty, sort list of resources using specified field. One of (name, kind).
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// Accepted for compatibility with kubectl; nothing is cached.
    #[arg(long)]
    cached: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let output = args.output.as_deref().unwrap_or_default();
    if !["", "json", "kyaml", "name", "wide", "yaml"].contains(&output) {
        return Err(Failure::plain(format!(
            "unable to match a printer suitable for the output format {output:?}, allowed formats are: json,kyaml,name,wide,yaml"
        )));
    }
    let mut found: Vec<DiscoveredResource> =
        rest::read_resources(context)?.into_iter().filter(|row| is_wanted(&args, row)).collect();
    match args.sort_by.as_deref() {
        None | Some("") => {
            found.sort_by(|a, b| (a.group(), a.plural.as_str()).cmp(&(b.group(), b.plural.as_str())));
        }
        Some("name") => found.sort_by(|a, b| a.plural.cmp(&b.plural)),
        Some("kind") => found.sort_by(|a, b| a.kind.cmp(&b.kind)),
        Some(_) => return Err(Failure::plain("--sort-by accepts only name or kind")),
    }
    if output == "name" {
        let dot = |row: &DiscoveredResource| if row.group().is_empty() { "" } else { "." };
        let names: String = found.iter().map(|row| format!("{}{}{}\n", row.plural, dot(row), row.group())).collect();
        return context.print(&names);
    }
    if ["json", "kyaml", "yaml"].contains(&output) {
        let print = PrintFlags::default().with_output(args.output.clone());
        let Some(mut printer) = print.printer()? else { return Ok(()) };
        return context.print(&printer.object(&document(&found))?);
    }
    let text = table(&found, output == "wide", args.no_headers);
    context.print(&text)
}

fn is_wanted(args: &Args, row: &DiscoveredResource) -> bool {
    row.is_preferred
        && args.api_group.as_deref().is_none_or(|group| group == row.group())
        && args.namespaced.is_none_or(|namespaced| namespaced == row.namespaced)
        && args.verbs.iter().all(|verb| row.verbs.contains(verb))
        && args.categories.iter().all(|category| row.categories.contains(category))
}

/// The resources as one list of Kubernetes' discovery.
fn document(rows: &[DiscoveredResource]) -> Value {
    let resource = |row: &DiscoveredResource| {
        let (group, version) = split_api_version(&row.api_version);
        let mut resource = json!({
            "name": row.plural, "singularName": row.singular, "namespaced": row.namespaced, "version": version,
            "kind": row.kind, "verbs": row.verbs,
        });
        let named = [("shortNames", &row.short), ("categories", &row.categories)].into_iter();
        named.filter(|(_, names)| !names.is_empty()).for_each(|(field, names)| resource[field] = json!(names));
        if !group.is_empty() {
            resource["group"] = group.into();
        }
        resource
    };
    let resources: Vec<Value> = rows.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": resources})
}

fn table(rows: &[DiscoveredResource], wide: bool, no_headers: bool) -> String {
    let mut text = String::new();
    if !no_headers {
        text.push_str("NAME\tSHORTNAMES\tAPIVERSION\tNAMESPACED\tKIND");
        text.push_str(if wide { "\tVERBS\tCATEGORIES\n" } else { "\n" });
    }
    for row in rows {
        let DiscoveredResource { api_version, plural, kind, namespaced, .. } = row;
        text.push_str(&format!("{plural}\t{}\t{api_version}\t{namespaced}\t{kind}", row.short.join(",")));
        if wide {
            text.push_str(&format!("\t{}\t{}", row.verbs.join(","), row.categories.join(",")));
        }
        text.push('\n');
    }
    columns::align(&text, columns::TABLE)
}
