//! One RBAC rule: verbs on resources or paths, and whether it allows a request.
//!
//! Never: makes more simple rules of a role than a limit, because the lists of a rule multiply. Start reading at [`AccessRule::allows`].

use super::{AccessRequest, AccessTarget, AccessedResource};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Maximum number of simple rules that rules are split into.
const MAX_SIMPLE: usize = 10_000;
/// The wildcard of verbs, groups and resources.
const ALL: &str = "*";

/// A rule of a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessRule {
    /// The verbs, or `*`.
    pub verbs: Vec<String>,
    /// The API groups, or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources with their subresources: `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The names of the objects; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths outside of the API groups, or their beginnings followed by `*`.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

impl AccessRule {
    /// Reads the rules of a role; malformed ones allow nothing.
    pub fn read_all(rules: Option<&Value>) -> Vec<AccessRule> {
        let rules = rules.and_then(Value::as_array).into_iter().flatten();
        rules.filter_map(|rule| AccessRule::deserialize(rule).ok()).collect()
    }

    /// Whether the rule allows a request.
    pub fn allows(&self, request: &AccessRequest) -> bool {
        has(&self.verbs, &request.verb)
            && match &request.target {
                AccessTarget::Path(path) => self.paths.iter().any(|pattern| fits_path(pattern, path)),
                AccessTarget::Resource(accessed) => self.names_resource(accessed),
            }
    }

    fn names_resource(&self, accessed: &AccessedResource) -> bool {
        has(&self.api_groups, &accessed.group)
            && self.resources.iter().any(|pattern| fits_resource(pattern, &accessed.resource, &accessed.subresource))
            && (self.resource_names.is_empty() || self.resource_names.contains(&accessed.name))
    }

    /// Whether this rule allows at least all that another rule allows; exact for simple rules, as [`AccessRule::split_all`] returns
    /// them.
    pub fn covers(&self, simple: &AccessRule) -> bool {
        let verbs = simple.verbs.iter().all(|verb| has(&self.verbs, verb));
        if !simple.paths.is_empty() {
            return verbs && simple.paths.iter().all(|path| self.paths.iter().any(|own| fits_path(own, path)));
        }
        let names = self.resource_names.is_empty()
            || !simple.resource_names.is_empty()
                && simple.resource_names.iter().all(|name| self.resource_names.contains(name));
        verbs
            && names
            && simple.api_groups.iter().all(|group| has(&self.api_groups, group))
            && simple.resources.iter().all(|resource| {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                self.resources.iter().any(|own| fits_resource(own, resource, subresource))
            })
    }

    /// Splits rules into simple rules: with one verb, group, resource, name and path each. A rule that makes too many of them
    /// stays whole: then only a single rule can cover it.
    pub fn split_all<'r>(rules: impl IntoIterator<Item = &'r AccessRule>) -> Vec<AccessRule> {
        let mut simple = Vec::new();
        for rule in rules {
            match rule.count_simple() {
                count if simple.len().saturating_add(count) <= MAX_SIMPLE => simple.extend(rule.split()),
                _ => simple.push(rule.clone()),
            }
        }
        simple
    }

    /// Counts the simple rules that the rule is split into.
    fn count_simple(&self) -> usize {
        let lists = [self.api_groups.len(), self.resources.len(), self.resource_names.len().max(1)];
        let of_objects = lists.into_iter().fold(1, usize::saturating_mul);
        self.verbs.len().saturating_mul(self.paths.len().saturating_add(of_objects))
    }

    fn split(&self) -> Vec<AccessRule> {
        let one = |text: &String| vec![text.clone()];
        let mut simple = Vec::new();
        for verb in &self.verbs {
            for path in &self.paths {
                simple.push(AccessRule { verbs: one(verb), paths: one(path), ..AccessRule::default() });
            }
        }
        let names: Vec<Vec<String>> = match self.resource_names.is_empty() {
            true => vec![Vec::new()],
            false => self.resource_names.iter().map(one).collect(),
        };
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    simple.extend(names.iter().map(|resource_names| AccessRule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        resource_names: resource_names.clone(),
                        paths: Vec::new(),
                    }));
                }
            }
        }
        simple
    }

    /// Joins simple rules that differ in their verbs alone, in the order of their first ones.
    pub fn compact(simple: Vec<AccessRule>) -> Vec<AccessRule> {
        let mut compacted: Vec<AccessRule> = Vec::new();
        let mut places: BTreeMap<AccessRule, usize> = BTreeMap::new();
        for rule in simple {
            let without_verbs = AccessRule { verbs: Vec::new(), ..rule.clone() };
            let place = *places.entry(without_verbs).or_insert(compacted.len());
            match compacted.get_mut(place) {
                Some(first) => {
                    let new: Vec<String> = rule.verbs.into_iter().filter(|verb| !first.verbs.contains(verb)).collect();
                    first.verbs.extend(new);
                }
                None => compacted.push(rule),
            }
        }
        compacted
    }
}

/// The compact form of messages: `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`.
impl Display for AccessRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let texts = fields
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quote_list(list)));
        write!(f, "{{{}}}", texts.collect::<Vec<_>>().join(", "))
    }
}

/// Formats a list as Go does with `%q`: `["a" "b"]`.
pub fn quote_list(list: &[String]) -> String {
    let list: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", list.join(" "))
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|own| own == ALL || own == text)
}

/// Whether a pattern fits. Reviews may name `pods/log` as the resource: Kubernetes compares the joined text, but for `*/log`
/// (pkg/apis/rbac/v1/evaluation_helpers.go).
fn fits_resource(pattern: &str, resource: &str, subresource: &str) -> bool {
    let is_same = match pattern.strip_prefix(resource) {
        Some(rest) if subresource.is_empty() => rest.is_empty(),
        Some(rest) => rest.strip_prefix('/') == Some(subresource),
        None => false,
    };
    pattern == ALL || is_same || !subresource.is_empty() && pattern.strip_prefix("*/") == Some(subresource)
}

/// Whether a path is the one of a pattern, or begins as a pattern with `*` at its end says.
pub fn fits_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        None => pattern == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], resources: &[&str]) -> AccessRule {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        AccessRule {
            verbs: texts(verbs),
            api_groups: texts(&[""]),
            resources: texts(resources),
            ..AccessRule::default()
        }
    }

    #[test]
    fn resource_of_a_review_may_have_its_subresource_in_it() {
        let fits = fits_resource;
        for (resource, subresource) in [("pods", "log"), ("pods/log", "")] {
            assert!(fits("pods/log", resource, subresource) && fits("*", resource, subresource));
            assert!(!fits("pods", resource, subresource) && !fits("pods/exec", resource, subresource));
        }
        assert!(
            fits("*/log", "pods", "log") && !fits("*/log", "pods/log", ""),
            "a star needs a subresource of its own"
        );
        assert!(fits("pods", "pods", "") && !fits("pods/log", "pods", "") && !fits("podslog", "pods", "log"));
    }

    #[test]
    fn split_rules_are_joined_by_their_verbs() {
        let split = AccessRule::split_all([&rule(&["get", "list"], &["pods", "secrets"])]);
        assert_eq!(split.len(), 4);
        let expected = [rule(&["get", "list"], &["pods"]), rule(&["get", "list"], &["secrets"])];
        assert_eq!(AccessRule::compact(split), expected);
    }

    #[test]
    fn rules_whose_lists_multiply_stay_whole() {
        let many = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<String>>();
        let wide =
            AccessRule { verbs: many(1000), api_groups: many(1000), resources: many(1000), ..AccessRule::default() };
        let all: Vec<AccessRule> = AccessRule::split_all([&wide, &rule(&["get"], &["pods"])]);
        assert_eq!(all, [wide.clone(), rule(&["get"], &["pods"])]);
        assert!(wide.covers(&wide) && !rule(&["*"], &["*"]).covers(&wide));
    }
}
