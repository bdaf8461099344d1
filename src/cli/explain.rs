//! `kloop explain`: documents kinds and their fields.

use super::cluster::rest;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read;
use crate::kinds::catalogue::schemas::KindSchemas;
use crate::kinds::custom::{CustomDefinition, DEFINITIONS};
use crate::kinds::{Kind, KindRegistry};
use crate::object::{Key, split_api_version};
use crate::show::escape;
use crate::show::explain::{ExplainRequest, ExplainText, explain};

/// Get documentation for a resource.
#[derive(clap::Args)]
#[command(
    long_about = "Get documentation for a resource.\n\nThis command describes the fields associated with each supported API resource. \
                  Fields are identified via a simple JSONPath identifier, <type>.<fieldName>[.<fieldName>].",
    override_usage = "TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext|plaintext-openapiv2]",
    after_help = "\
# Get the documentation of the resource and its fields
kloop explain pods

# Get all the fields in the resource
kloop explain pods --recursive

# Get the explanation for deployment in supported api versions
kloop explain deployments --api-version=apps/v1

# Get the documentation of a specific field of a resource
kloop explain pods.spec.containers"
)]
pub struct Args {
    /// TYPE, or TYPE.field.field for one of its fields.
    words: Vec<String>,
    /// When true, print the name of all the fields recursively. Otherwise, print the available fields with their description.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Use given api-version (group/version) of the resource.
    #[arg(long, value_name = "VERSION", default_value = "")]
    api_version: String,
    /// Format in which to render the schema. Valid values are: (plaintext, plaintext-openapiv2).
    #[arg(short, long, value_name = "FORMAT", default_value = "plaintext")]
    output: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let word = match &args.words[..] {
        [word] => word,
        [] => {
            return Err(Failure::plain(
                "You must specify the type of resource to explain. Use \"kloop api-resources\" for a complete list of \
                 supported resources.",
            ));
        }
        _ => return Err(Failure::plain("We accept only this format: explain RESOURCE")),
    };
    if !matches!(args.output.as_str(), "plaintext" | "plaintext-openapiv2" | "") {
        return Err(Failure::plain(format!("unrecognized format: {}", args.output)));
    }
    let schemas = KindSchemas::built_in();
    let (name, path) = split(context.kinds(), word);
    let answer = match context.kinds().by_name(name) {
        None => not_stored(&schemas, context, name, &path, &args)?,
        Some(kind) => match kind.custom {
            None => built_in(&schemas, &kind.api_version(), kind.resource.plural(), kind.kind, &path, &args)?,
            Some(declared) => custom(&schemas, context, kind, declared, &path, &args)?,
        },
    };
    context.print(&escape::text(&answer.text))?;
    answer.error.map_or(Ok(()), |error| Err(Failure::plain(error)))
}

/// Splits `pods.spec.containers` into type and path. The type may include its group:
/// `ingresses.networking.k8s.io.spec`.
fn split<'w>(kinds: &KindRegistry, word: &'w str) -> (&'w str, Vec<&'w str>) {
    let mut ends = word.match_indices('.').map(|(end, _)| end).chain([word.len()]);
    let in_group = |end: &usize| {
        let (_, group) = word[..*end].split_once('.').unwrap_or_default();
        kinds.by_name(&word[..*end]).is_some_and(|kind| !group.is_empty() && kind.resource.group() == group)
    };
    let end = ends.rfind(in_group).unwrap_or_else(|| word.find('.').unwrap_or(word.len()));
    let (name, path) = word.split_at(end);
    (name, path.split('.').filter(|field| !field.is_empty()).collect())
}

/// Explains a kind of the schemas: its own API version, its plural name, and its name.
fn built_in(
    schemas: &KindSchemas,
    own: &str,
    plural: &str,
    kind: &str,
    path: &[&str],
    args: &Args,
) -> CliResult<ExplainText> {
    let api_version = if args.api_version.is_empty() { own } else { &args.api_version };
    let schema = schemas.kind(api_version, kind).ok_or_else(|| missing(api_version, plural))?;
    let (group, version) = split_api_version(api_version);
    Ok(explain(schemas, &ExplainRequest { group, version, kind, schema, path, recursive: args.recursive }))
}

/// Explains a kind whose objects are not stored, such as a Binding or a review: discovery names it.
fn not_stored(
    schemas: &KindSchemas,
    context: &mut CommandContext,
    name: &str,
    path: &[&str],
    args: &Args,
) -> CliResult<ExplainText> {
    let lower = name.to_ascii_lowercase();
    let found = rest::read_resources(context)?.into_iter().find(|resource| {
        [&resource.plural, &resource.singular].contains(&&lower) || resource.short.iter().any(|short| short == name)
    });
    let found = found.ok_or_else(|| Failure::Bare(format!("the server doesn't have a resource type {name:?}")))?;
    built_in(schemas, &found.api_version, &found.plural, &found.kind, path, args)
}

/// Explains a kind that a CustomResourceDefinition adds.
fn custom(
    schemas: &KindSchemas,
    context: &mut CommandContext,
    kind: &Kind,
    declared: &CustomDefinition,
    path: &[&str],
    args: &Args,
) -> CliResult<ExplainText> {
    let key = Key::new(DEFINITIONS, "", &declared.definition);
    let definition = context.read_view(|txn| read::exact(txn, &key))?;
    let group = kind.resource.group();
    let requested = Some(args.api_version.as_str()).filter(|version| !version.is_empty());
    let version = match requested.map(split_api_version) {
        Some((known, version)) if known == group => Some(version),
        Some(_) => return Err(missing(&args.api_version, kind.resource.plural())),
        None => None,
    };
    let (version, schema) =
        schemas.custom(&definition.0, version).ok_or_else(|| missing(&args.api_version, kind.resource.plural()))?;
    Ok(explain(
        schemas,
        &ExplainRequest { group, version: &version, kind: kind.kind, schema: &schema, path, recursive: args.recursive },
    ))
}

fn missing(api_version: &str, plural: &str) -> Failure {
    Failure::plain(format!("couldn't find resource for \"{api_version}, Resource={plural}\""))
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::kinds::KindRegistry;

    #[test]
    fn field_path_begins_after_the_type_and_its_group() {
        for (word, name, path) in [
            ("pods", "pods", &[][..]),
            ("pod.spec.containers", "pod", &["spec", "containers"]),
            ("deployments.apps", "deployments.apps", &[]),
            ("ingresses.networking.k8s.io.spec", "ingresses.networking.k8s.io", &["spec"]),
            ("boat.spec", "boat", &["spec"]),
            ("pods.", "pods", &[]),
            ("", "", &[]),
        ] {
            assert_eq!(split(&KindRegistry::default(), word), (name, path.to_vec()), "{word}");
        }
    }
}
