//! Matches requests with the rules and selectors of webhooks and admission policies.
//!
//! Knows: `rules`, `resourceRules`, `namespaceSelector`, `objectSelector` and `matchPolicy` of admissionregistration.k8s.io, as Kubernetes'
//! `rules.Matcher` reads them. Never: reads the state; the caller brings the labels of the namespace.
//! Start reading at [`MatchCriteria::find`].

use crate::object::{Object, Selector, split_api_version};
use serde_json::Value;

/// The operation of a request, as rules of webhooks and policies name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object, or a request to a subresource that takes one: `pods/eviction`.
    Create,
    /// A change of an object or a part of it.
    Update,
    /// A deletion.
    Delete,
    /// A stream to a subresource: `pods/exec`.
    Connect,
}

impl Operation {
    /// `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// The resource of a namespace, whose scope is the cluster though requests name it as their namespace.
const NAMESPACES: &str = "namespaces";

/// The properties of a request that rules compare.
#[derive(Clone, Copy, Debug)]
pub struct MatchedRequest<'a> {
    /// The operation.
    pub operation: Operation,
    /// `apps`; empty for the core group.
    pub group: &'a str,
    /// The version of the request.
    pub version: &'a str,
    /// Other `apiVersion`s that the same objects are served in.
    pub equivalents: &'a [String],
    /// `deployments`.
    pub resource: &'a str,
    /// `status`; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; that of a Namespace is its name.
    pub namespace: &'a str,
    /// The name; empty while it is to be generated.
    pub name: &'a str,
    /// The new object.
    pub object: Option<&'a Object>,
    /// The old object.
    pub old: Option<&'a Object>,
}

/// The version in which a request matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchedVersion {
    /// The version of the request.
    Requested,
    /// Another `apiVersion` of the same objects, by `matchPolicy: Equivalent`.
    Equivalent(String),
}

impl MatchedVersion {
    /// Returns the `apiVersion`, for a request in `requested`.
    pub fn api_version<'v>(&'v self, requested: &'v str) -> &'v str {
        match self {
            MatchedVersion::Requested => requested,
            MatchedVersion::Equivalent(api_version) => api_version,
        }
    }
}

/// The match criteria of one webhook, policy or binding.
#[derive(Clone, Debug)]
pub struct MatchCriteria {
    rules: Vec<MatchRule>,
    excluded: Vec<MatchRule>,
    /// Whether no rule at all matches everything.
    matches_without_rules: bool,
    namespace_selector: Selector,
    object_selector: Selector,
    is_exact: bool,
}

/// A rule of match criteria.
#[derive(Clone, Debug)]
struct MatchRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: MatchScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchScope {
    All,
    Cluster,
    Namespaced,
}

impl MatchCriteria {
    /// Reads a webhook of a configuration. Without rules it matches nothing.
    pub fn from_webhook(webhook: &Value) -> MatchCriteria {
        MatchCriteria { rules: read_rules(&webhook["rules"]), ..MatchCriteria::read(webhook) }
    }

    /// Reads `matchConstraints` of a policy or `matchResources` of a binding. Without rules it matches everything.
    pub fn from_match_resources(resources: &Value) -> MatchCriteria {
        MatchCriteria {
            rules: read_rules(&resources["resourceRules"]),
            excluded: read_rules(&resources["excludeResourceRules"]),
            matches_without_rules: true,
            ..MatchCriteria::read(resources)
        }
    }

    fn read(criteria: &Value) -> MatchCriteria {
        // Validation refused selectors that cannot be read.
        let selector = |field: &str| match &criteria[field] {
            Value::Null => Selector::everything(),
            selector => Selector::from_label_selector(selector).unwrap_or_else(|_| Selector::nothing()),
        };
        MatchCriteria {
            rules: Vec::new(),
            excluded: Vec::new(),
            matches_without_rules: false,
            namespace_selector: selector("namespaceSelector"),
            object_selector: selector("objectSelector"),
            is_exact: criteria["matchPolicy"] == "Exact",
        }
    }

    /// Whether the answer depends on the labels of the namespace.
    pub fn selects_namespaces(&self) -> bool {
        !self.namespace_selector.is_everything()
    }

    /// Returns the version in which a request matches; none if it does not. Rules are compared first: `namespace` looks up a label of the
    /// request's namespace and is not called for requests of other resources.
    pub fn find<'n>(
        &self,
        request: &MatchedRequest<'_>,
        namespace: impl Fn(&str) -> Option<&'n str>,
    ) -> Option<MatchedVersion> {
        let version = self.find_rule(request)?;
        let is_selected = self.selects_namespace(request, namespace) && self.selects_object(request);
        is_selected.then_some(version)
    }

    /// Whether a rule may match requests for this resource; versions and selectors are not compared.
    pub fn may_match(&self, operation: Operation, resource: &str, subresource: &str) -> bool {
        let matches =
            |rule: &MatchRule| has(&rule.operations, operation.name()) && rule.names_resource(resource, subresource);
        self.rules.iter().any(matches) || self.rules.is_empty() && self.matches_without_rules
    }

    /// Returns the version in which the rules alone match a request.
    pub fn find_rule(&self, request: &MatchedRequest<'_>) -> Option<MatchedVersion> {
        if find_version(&self.excluded, request, self.is_exact).is_some() {
            return None;
        }
        if self.rules.is_empty() && self.matches_without_rules {
            return Some(MatchedVersion::Requested);
        }
        find_version(&self.rules, request, self.is_exact)
    }

    fn selects_namespace<'n>(&self, request: &MatchedRequest<'_>, namespace: impl Fn(&str) -> Option<&'n str>) -> bool {
        if self.namespace_selector.is_everything() {
            return true;
        }
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        match (request.resource, request.object) {
            // The labels that a namespace will have; a deletion changes none.
            (NAMESPACES, Some(object)) if request.subresource.is_empty() && writes => {
                self.namespace_selector.matches(|label| object.label(label))
            }
            _ if request.namespace.is_empty() => true,
            _ => self.namespace_selector.matches(namespace),
        }
    }

    fn selects_object(&self, request: &MatchedRequest<'_>) -> bool {
        let selects = |object: &Object| self.object_selector.matches(|label| object.label(label));
        self.object_selector.is_everything() || request.object.is_some_and(selects) || request.old.is_some_and(selects)
    }
}

/// The version in which one of the rules matches: first that of the request, then the equivalents in the order of the rules.
fn find_version(rules: &[MatchRule], request: &MatchedRequest<'_>, is_exact: bool) -> Option<MatchedVersion> {
    if rules.iter().any(|rule| rule.matches(request, request.group, request.version)) {
        return Some(MatchedVersion::Requested);
    }
    let equivalents = if is_exact { &[] } else { request.equivalents };
    let equivalent = |rule: &MatchRule| {
        let fits = |api_version: &&String| {
            let (group, version) = split_api_version(api_version);
            (group, version) != (request.group, request.version) && rule.matches(request, group, version)
        };
        equivalents.iter().find(fits).map(|api_version| MatchedVersion::Equivalent(api_version.clone()))
    };
    rules.iter().find_map(equivalent)
}

impl MatchRule {
    fn read(rule: &Value) -> MatchRule {
        MatchRule {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: texts(&rule["resources"]),
            names: texts(&rule["resourceNames"]),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => MatchScope::Cluster,
                Some("Namespaced") => MatchScope::Namespaced,
                _ => MatchScope::All,
            },
        }
    }

    fn matches(&self, request: &MatchedRequest<'_>, group: &str, version: &str) -> bool {
        let is_named = self.names.is_empty() || self.names.iter().any(|name| name == request.name);
        self.matches_scope(request)
            && has(&self.operations, request.operation.name())
            && has(&self.groups, group)
            && has(&self.versions, version)
            && self.names_resource(request.resource, request.subresource)
            && is_named
    }

    fn matches_scope(&self, request: &MatchedRequest<'_>) -> bool {
        let is_cluster_scoped =
            request.namespace.is_empty() || request.group.is_empty() && request.resource == NAMESPACES;
        match self.scope {
            MatchScope::All => true,
            MatchScope::Cluster => is_cluster_scoped,
            MatchScope::Namespaced => !is_cluster_scoped,
        }
    }

    fn names_resource(&self, wanted: &str, part: &str) -> bool {
        self.resources.iter().any(|named| {
            let (resource, subresource) = named.split_once('/').unwrap_or((named, ""));
            (resource == "*" || resource == wanted) && (subresource == "*" || subresource == part)
        })
    }
}

fn has(known: &[String], wanted: &str) -> bool {
    known.iter().any(|one| one == "*" || one == wanted)
}

fn read_rules(rules: &Value) -> Vec<MatchRule> {
    rules.as_array().into_iter().flatten().map(MatchRule::read).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DEPLOYMENT: MatchedRequest<'static> = MatchedRequest {
        operation: Operation::Create,
        group: "apps",
        version: "v1",
        equivalents: &[],
        resource: "deployments",
        subresource: "",
        namespace: "shop",
        name: "web",
        object: None,
        old: None,
    };

    fn rule(operations: &[&str], groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
        json!({"operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources})
    }

    fn find(criteria: &Value, request: &MatchedRequest<'_>) -> Option<MatchedVersion> {
        MatchCriteria::from_webhook(criteria).find(request, |label| (label == "team").then_some("a"))
    }

    fn matches(rule: Value, request: &MatchedRequest<'_>) -> bool {
        find(&json!({"rules": [rule], "matchPolicy": "Exact"}), request).is_some()
    }

    #[test]
    fn rule_compares_operation_group_version_and_resource() {
        let status = MatchedRequest { subresource: "status", operation: Operation::Update, ..DEPLOYMENT };
        let all = |resources: &[&str]| rule(&["*"], &["*"], &["*"], resources);
        assert!(matches(rule(&["CREATE"], &["apps"], &["v1"], &["deployments"]), &DEPLOYMENT));
        for other in [
            rule(&["UPDATE"], &["apps"], &["v1"], &["deployments"]),
            rule(&["CREATE"], &[""], &["v1"], &["deployments"]),
            rule(&["CREATE"], &["apps"], &["v2"], &["deployments"]),
            rule(&["CREATE"], &["apps"], &["v1"], &["pods", "deployments/status"]),
        ] {
            assert!(!matches(other, &DEPLOYMENT));
        }
        for (resource, main, part) in [
            ("*", true, false),
            ("*/*", true, true),
            ("deployments/*", true, true),
            ("*/status", false, true),
            ("deployments/status", false, true),
            ("deployments/scale", false, false),
            ("pods/*", false, false),
        ] {
            let found = (matches(all(&[resource]), &DEPLOYMENT), matches(all(&[resource]), &status));
            assert_eq!(found, (main, part), "{resource}");
        }
    }

    #[test]
    fn scope_of_a_namespace_is_the_cluster() {
        let scoped = |scope: &str, request: &MatchedRequest<'_>| {
            let mut rule = rule(&["*"], &["*"], &["*"], &["*"]);
            rule["scope"] = scope.into();
            matches(rule, request)
        };
        let namespace =
            MatchedRequest { group: "", resource: NAMESPACES, namespace: "shop", name: "shop", ..DEPLOYMENT };
        let node = MatchedRequest { group: "", resource: "nodes", namespace: "", ..DEPLOYMENT };
        for (request, cluster, namespaced) in
            [(&DEPLOYMENT, false, true), (&namespace, true, false), (&node, true, false)]
        {
            let found = ["Cluster", "Namespaced", "*"].map(|scope| scoped(scope, request));
            assert_eq!(found, [cluster, namespaced, true], "{}", request.resource);
        }
    }

    #[test]
    fn equivalent_version_matches_unless_the_policy_is_exact() {
        let newer = json!({"rules": [rule(&["*"], &["apps"], &["v2"], &["deployments"])]});
        let served = ["apps/v1".to_owned(), "apps/v2".to_owned()];
        let deployment = MatchedRequest { equivalents: &served, ..DEPLOYMENT };
        assert_eq!(find(&newer, &DEPLOYMENT), None);
        assert_eq!(find(&newer, &deployment), Some(MatchedVersion::Equivalent("apps/v2".into())));
        let mut exact = newer.clone();
        exact["matchPolicy"] = "Exact".into();
        assert_eq!(find(&exact, &deployment), None);
        let both = json!({"rules": [newer["rules"][0], rule(&["*"], &["*"], &["*"], &["*"])]});
        assert_eq!(find(&both, &deployment), Some(MatchedVersion::Requested));
    }

    #[test]
    fn selectors_look_at_the_namespace_and_at_both_objects() {
        let selecting = |field: &str, labels: Value| json!({"rules": [rule(&["*"], &["*"], &["*"], &["*"])], field: {"matchLabels": labels}});
        let labelled = |labels: Value| Object(json!({"metadata": {"labels": labels}}));
        let (blue, red) = (labelled(json!({"colour": "blue"})), labelled(json!({"team": "b"})));
        let wants_blue = selecting("objectSelector", json!({"colour": "blue"}));
        for (object, old, wanted) in [
            (Some(&blue), Some(&red), true),
            (Some(&red), Some(&blue), true),
            (Some(&red), None, false),
            (None, None, false),
        ] {
            let found = find(&wants_blue, &MatchedRequest { object, old, ..DEPLOYMENT });
            assert_eq!(found.is_some(), wanted);
        }
        let wants = |team: &str| selecting("namespaceSelector", json!({"team": team}));
        let node = MatchedRequest { namespace: "", resource: "nodes", ..DEPLOYMENT };
        let namespace = MatchedRequest { resource: NAMESPACES, object: Some(&red), ..DEPLOYMENT };
        let deleted = MatchedRequest { operation: Operation::Delete, object: None, old: Some(&red), ..namespace };
        for (request, a, b) in
            [(&DEPLOYMENT, true, false), (&node, true, true), (&namespace, false, true), (&deleted, true, false)]
        {
            let found = ["a", "b"].map(|team| find(&wants(team), request).is_some());
            assert_eq!(found, [a, b], "{} {:?}", request.resource, request.operation);
        }
    }

    #[test]
    fn policies_without_rules_match_all_but_the_excluded() {
        let find = |resources: &Value, request: &MatchedRequest<'_>| {
            MatchCriteria::from_match_resources(resources).find(request, |_| None).is_some()
        };
        assert!(find(&json!({}), &DEPLOYMENT));
        assert!(MatchCriteria::from_webhook(&json!({})).find(&DEPLOYMENT, |_| None).is_none());
        let mut web = rule(&["*"], &["*"], &["*"], &["*"]);
        web["resourceNames"] = json!(["web"]);
        let other = MatchedRequest { name: "api", ..DEPLOYMENT };
        let excluding = json!({"excludeResourceRules": [web]});
        assert_eq!([&DEPLOYMENT, &other].map(|request| find(&excluding, request)), [false, true]);
        let including = json!({"resourceRules": [web]});
        assert_eq!([&DEPLOYMENT, &other].map(|request| find(&including, request)), [true, false]);
    }
}
