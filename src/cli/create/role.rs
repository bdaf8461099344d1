//! `kloop create role` and `clusterrole`.

use super::generate::GeneratorFlags;
use crate::cli::{CliResult, CommandContext, Failure, key_changes, targets};
use crate::kinds::KindRegistry;
use serde_json::{Map, Value, json};

/// Flags of both generators.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// Verb that applies to the resources contained in the rule.
    #[arg(long, value_delimiter = ',', value_name = "VERB")]
    verb: Vec<String>,
    /// Resource that the rule applies to.
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE")]
    resource: Vec<String>,
    /// Resource in the white list that the rule applies to, repeat this flag for multiple items.
    #[arg(long, value_name = "NAME")]
    resource_name: Vec<String>,
    /// A partial url that user should have access to (cluster roles only).
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    non_resource_url: Vec<String>,
    /// An aggregation label selector for combining ClusterRoles (cluster roles only).
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    aggregation_rule: Vec<String>,
}

/// Kubernetes' standard verbs.
const KNOWN: [&str; 16] = [
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
];

/// Runs the verb, for `Role` or `ClusterRole`.
pub fn run(args: Args, context: &mut CommandContext, kind: &str) -> CliResult {
    let name = args.generate.name(&format!("create {}", kind.to_lowercase()))?;
    let mut body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    if kind == "ClusterRole" && !args.aggregation_rule.is_empty() {
        let labels: Map<String, Value> = key_changes::parse(&args.aggregation_rule, "aggregation rule", false)?
            .set
            .into_iter()
            .map(|(key, value)| (key, value.into()))
            .collect();
        body["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        body["rules"] = Value::Null;
    } else {
        body["rules"] = rules(&args, context, kind)?.into();
    }
    args.generate.create(context, body, None)
}

fn rules(args: &Args, context: &mut CommandContext, kind: &str) -> CliResult<Vec<Value>> {
    let mut verbs: Vec<&str> = Vec::new();
    for verb in args.verb.iter().map(String::as_str) {
        if !verbs.contains(&verb) {
            verbs.push(verb);
        }
    }
    if verbs.contains(&"*") {
        verbs = vec!["*"];
    }
    if verbs.is_empty() {
        return Err(Failure::plain("at least one verb must be specified"));
    }
    let urls = Some(&args.non_resource_url).filter(|urls| kind == "ClusterRole" && !urls.is_empty());
    if args.resource.is_empty() && urls.is_none() {
        return Err(Failure::plain("at least one resource must be specified"));
    }
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for text in &args.resource {
        let (group, resource) = resource(context.kinds(), text)?;
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, resources)) if resources.contains(&resource) => {}
            Some((_, resources)) => resources.push(resource),
            None => groups.push((group, vec![resource])),
        }
    }
    if !groups.is_empty() {
        let odd = verbs.iter().filter(|verb| !KNOWN.contains(verb));
        let warnings: Vec<String> = odd.map(|verb| format!("'{verb}' is not a standard resource verb")).collect();
        context.warn(&warnings);
    }
    groups.sort_by(|left, right| left.0.cmp(&right.0));
    let mut rules = Vec::new();
    for (group, resources) in groups {
        let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        if !args.resource_name.is_empty() {
            rule["resourceNames"] = args.resource_name.clone().into();
        }
        rules.push(rule);
    }
    rules.extend(urls.map(|urls| json!({"nonResourceURLs": urls, "verbs": verbs})));
    Ok(rules)
}

/// Parses `RESOURCE.GROUP/SUBRESOURCE` into the group, and the resource with its subresource.
fn resource(kinds: &KindRegistry, text: &str) -> CliResult<(String, String)> {
    if text == "*" {
        return Ok(("*".into(), "*".into()));
    }
    let (name, subresource) = text.split_once('/').map_or((text, None), |(name, sub)| (name, Some(sub)));
    let kind = targets::kind(kinds, name).map_err(|failure| match failure {
        Failure::Plain(text) => Failure::Bare(text),
        other => other,
    })?;
    let plural = kind.resource.plural();
    let resource = subresource.map_or_else(|| plural.to_owned(), |subresource| format!("{plural}/{subresource}"));
    Ok((kind.resource.group().to_owned(), resource))
}
