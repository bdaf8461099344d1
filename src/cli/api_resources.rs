//! `kloop api-resources`: lists the kinds that the API serves.

use super::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::show::columns;

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
    /// Output format. One of: (wide, name).
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<String>,
    /// If non-empty, sort list of resources using specified field. One of (name, kind).
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// Accepted for compatibility with kubectl; nothing is cached.
    #[arg(long)]
    cached: bool,
}

/// Verbs of every kind.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let output = args.output.as_deref().unwrap_or_default();
    if !["", "wide", "name"].contains(&output) {
        return Err(Failure::plain(format!("--output {output} is not available")));
    }
    let mut found: Vec<&Kind> = context.kinds().all().filter(|kind| is_wanted(&args, kind)).collect();
    match args.sort_by.as_deref() {
        None | Some("") => found.sort_by_key(|kind| (kind.resource.group(), kind.resource.plural())),
        Some("name") => found.sort_by_key(|kind| kind.resource.plural()),
        Some("kind") => found.sort_by_key(|kind| kind.kind),
        Some(_) => return Err(Failure::plain("--sort-by accepts only name or kind")),
    }
    if output == "name" {
        let names: String = found.iter().map(|kind| format!("{}\n", kind.resource)).collect();
        return context.print(&names);
    }
    let text = table(&found, output == "wide", args.no_headers);
    context.print(&text)
}

fn is_wanted(args: &Args, kind: &Kind) -> bool {
    args.api_group.as_deref().is_none_or(|group| group == kind.resource.group())
        && args.namespaced.is_none_or(|namespaced| namespaced == kind.namespaced)
        && args.verbs.iter().all(|verb| VERBS.contains(&verb.as_str()))
        && args.categories.iter().all(|category| kind.categories.contains(&category.as_str()))
}

fn table(kinds: &[&Kind], wide: bool, no_headers: bool) -> String {
    let mut text = String::new();
    if !no_headers {
        text.push_str("NAME\tSHORTNAMES\tAPIVERSION\tNAMESPACED\tKIND");
        text.push_str(if wide { "\tVERBS\tCATEGORIES\n" } else { "\n" });
    }
    for kind in kinds {
        let (short, version) = (kind.short.join(","), kind.api_version());
        let name = kind.resource.plural();
        text.push_str(&format!("{name}\t{short}\t{version}\t{}\t{}", kind.namespaced, kind.kind));
        if wide {
            text.push_str(&format!("\t{}\t{}", VERBS.join(","), kind.categories.join(",")));
        }
        text.push('\n');
    }
    columns::align(&text, columns::TABLE)
}
