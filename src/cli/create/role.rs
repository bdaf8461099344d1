//! `kloop create role` and `clusterrole`.

use super::generate::GeneratorFlags;
use crate::apiserver::aggregation;
use crate::cli::cluster::targets;
use crate::cli::command_line::access_verbs::PATH_VERBS;
use crate::cli::manifests::key_changes;
use crate::cli::output::failure::unknown_type;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Resource;
use itertools::Itertools;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

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

/// Verbs of resources that `kubectl create role` gives without a warning; those of `auth can-i` differ in three.
const RESOURCE_VERBS: [&str; 14] = [
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
];

/// Verbs that apply only to a few resources, some of which no server has.
const SPECIAL_VERBS: [(&str, &[(&str, &str)]); 4] = [
    ("use", &[("policy", "podsecuritypolicies"), ("extensions", "podsecuritypolicies")]),
    ("bind", &RBAC_ROLES),
    ("escalate", &RBAC_ROLES),
    ("impersonate", &[("", "users"), ("", "serviceaccounts"), ("", "groups"), ("authentication.k8s.io", "userextras")]),
];

const RBAC_ROLES: [(&str, &str); 2] =
    [("rbac.authorization.k8s.io", "roles"), ("rbac.authorization.k8s.io", "clusterroles")];

/// Runs the verb, for `Role` or `ClusterRole`.
pub fn run(mut args: Args, context: &mut CommandContext, kind: &str) -> CliResult {
    // As in kubectl, an empty value is an empty list.
    for list in [&mut args.verb, &mut args.resource, &mut args.non_resource_url, &mut args.aggregation_rule] {
        if *list == [""] {
            list.clear();
        }
    }
    let name = args.generate.name(&format!("create {}", kind.to_lowercase()))?;
    let mut body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    if kind == "ClusterRole" && !args.aggregation_rule.is_empty() {
        body["aggregationRule"] = aggregation_rule(&args)?;
        body["rules"] = Value::Null;
    } else {
        body["rules"] = rules(&args, context, kind)?.into();
    }
    args.generate.create(context, body, None)
}

fn aggregation_rule(args: &Args) -> CliResult<Value> {
    if !(args.non_resource_url.is_empty()
        && args.verb.is_empty()
        && args.resource.is_empty()
        && args.resource_name.is_empty())
    {
        return Err(Failure::plain(
            "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
        ));
    }
    let labels: Map<String, Value> = key_changes::parse(&args.aggregation_rule, "aggregation rule", false)?
        .set
        .into_iter()
        .map(|(key, value)| (key, value.into()))
        .collect();
    Ok(json!({"clusterRoleSelectors": [{"matchLabels": labels}]}))
}

fn rules(args: &Args, context: &mut CommandContext, kind: &str) -> CliResult<Vec<Value>> {
    let mut verbs = distinct(&args.verb);
    if verbs.contains(&"*") {
        verbs = vec!["*"];
    }
    if verbs.is_empty() {
        return Err(Failure::plain("at least one verb must be specified"));
    }
    let urls = if kind == "ClusterRole" { distinct(&args.non_resource_url) } else { Vec::new() };
    if args.resource.is_empty() && urls.is_empty() {
        return Err(Failure::plain(match kind {
            "ClusterRole" => "one of resource or nonResourceURL must be specified",
            _ => "at least one resource must be specified",
        }));
    }
    let mut rules = resource_rules(args, context, &verbs)?;
    if !urls.is_empty() {
        check_urls(&urls, &verbs)?;
        rules.push(json!({"nonResourceURLs": urls, "verbs": verbs}));
    }
    Ok(rules)
}

fn distinct(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).unique().collect()
}

/// Returns a rule for each API group of `--resource`.
fn resource_rules(args: &Args, context: &mut CommandContext, verbs: &[&str]) -> CliResult<Vec<Value>> {
    if args.resource.is_empty() {
        return Ok(Vec::new());
    }
    let odd = verbs.iter().filter(|verb| !RESOURCE_VERBS.contains(verb));
    let warnings: Vec<String> = odd.map(|verb| format!("'{verb}' is not a standard resource verb")).collect();
    context.warn(&warnings);
    // `*` alone takes the place of the resources before it, and ends the list.
    let texts = match args.resource.iter().position(|text| text == "*") {
        Some(at) => &args.resource[at..=at],
        None => &args.resource[..],
    };
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut is_checked = true;
    for text in texts {
        let asked = RequestedResource::parse(text);
        let known = context.kinds().by_name(&asked.typed_name()).map(|kind| kind.resource);
        // kubectl checks no resource after one that is `*`.
        is_checked &= asked.resource != "*";
        if is_checked {
            check_resource(context, &asked, known, verbs)?;
        }
        let (group, resource) =
            known.map_or((asked.group, asked.resource), |resource| (resource.group(), resource.plural()));
        let resource =
            asked.subresource.map_or_else(|| resource.to_owned(), |subresource| format!("{resource}/{subresource}"));
        let resources = groups.entry(group.to_owned()).or_default();
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    let names = distinct(&args.resource_name);
    let rule = |(group, resources)| {
        let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = names.clone().into();
        }
        rule
    };
    Ok(groups.into_iter().map(rule).collect())
}

/// The parts of `RESOURCE.GROUP/SUBRESOURCE`.
struct RequestedResource<'a> {
    group: &'a str,
    resource: &'a str,
    subresource: Option<&'a str>,
}

impl<'a> RequestedResource<'a> {
    fn parse(text: &'a str) -> Self {
        let (name, subresource) = text.split_once('/').map_or((text, None), |(name, sub)| (name, Some(sub)));
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        Self { group, resource, subresource }
    }

    fn typed_name(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }
}

/// Refuses a resource that is not served, and a verb that makes no sense for it.
fn check_resource(
    context: &mut CommandContext,
    asked: &RequestedResource<'_>,
    known: Option<Resource>,
    verbs: &[&str],
) -> CliResult {
    if asked.resource.is_empty() {
        return Err(Failure::plain("resource must be specified if apiGroup/subresource specified"));
    }
    let (group, resource) =
        known.map_or((asked.group, asked.resource), |resource| (resource.group(), resource.plural()));
    let mut is_special = false;
    for (verb, resources) in SPECIAL_VERBS.iter().filter(|(verb, _)| verbs.contains(verb)) {
        if !resources.contains(&(group, resource)) {
            return Err(Failure::plain(format!("can not perform '{verb}' on '{resource}' in group '{group}'")));
        }
        is_special = true;
    }
    if known.is_some() || is_special {
        return Ok(());
    }
    // An extension server answers for the group: only it knows the resource.
    let is_extension = !group.is_empty()
        && context.read_view(aggregation::extensions)?.iter().any(|extension| extension.group == group);
    match targets::kind(context.kinds(), resource) {
        _ if is_extension => Ok(()),
        _ if !group.is_empty() => {
            Err(Failure::Bare(format!("the server doesn't have a resource type {resource:?} in group {group:?}")))
        }
        Err(Failure::UnknownType { word, hint }) => Err(Failure::Bare(unknown_type(&word, &hint))),
        other => other.map(drop),
    }
}

/// Refuses verbs and paths that no request can have.
fn check_urls(urls: &[&str], verbs: &[&str]) -> CliResult {
    if let Some(verb) = verbs.iter().find(|verb| !PATH_VERBS.contains(verb)) {
        return Err(Failure::plain(format!("invalid verb: '{verb}' for nonResourceURL")));
    }
    for url in urls.iter().filter(|url| **url != "*") {
        let Some(rest) = url.strip_prefix('/') else {
            return Err(Failure::plain("nonResourceURL should start with /"));
        };
        if rest.strip_suffix('*').unwrap_or(rest).contains('*') {
            return Err(Failure::plain("nonResourceURL only supports wildcard matches when '*' is at the end"));
        }
    }
    Ok(())
}
