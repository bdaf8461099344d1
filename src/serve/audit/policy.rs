//! The audit policy: a file of rules. The first rule that matches a request decides how much of it is recorded.
//!
//! Never: records anything; [`super::AuditedRequest`] does. Start reading at [`AuditPolicy::decide`].

use crate::apiserver::authorization::{AccessRequest, AccessTarget, AccessedResource};
use crate::apiserver::user::User;
use crate::object::yaml;
use crate::world::access::rule::fits_path;
use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The amount of data that is recorded about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum AuditLevel {
    /// No event.
    None,
    /// The user, the request, and how it ended.
    Metadata,
    /// The body of the request, too.
    Request,
    /// The bodies of request and answer, too.
    RequestResponse,
}

/// A moment at which an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum AuditStage {
    /// The request was authenticated.
    RequestReceived,
    /// The answer of a request that lasts has begun.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The request failed by a bug.
    Panic,
}

/// A policy (`audit.k8s.io/v1`).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditPolicy {
    api_version: String,
    kind: String,
    // Unused, but without the field a policy with metadata would be refused.
    #[serde(default)]
    #[allow(dead_code)]
    metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<AuditRule>,
    #[serde(default)]
    omit_stages: Vec<AuditStage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuditRule {
    level: AuditLevel,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    paths: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<AuditStage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The decision about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditDecision {
    /// The level.
    pub level: AuditLevel,
    /// Stages without an event.
    pub omitted_stages: Vec<AuditStage>,
    /// Whether bodies are written without their managed fields.
    pub omits_managed_fields: bool,
}

impl AuditPolicy {
    /// Parses a policy. A malformed one is refused, because it would record nothing.
    pub fn parse(text: &str) -> Result<AuditPolicy> {
        let documents = yaml::documents(text).map_err(|error| anyhow::anyhow!("{error}"))?;
        let document = documents.into_iter().next().context("the audit policy is empty")?;
        let policy: AuditPolicy = serde_json::from_value(document.value)?;
        if (policy.api_version.as_str(), policy.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            bail!(
                "apiVersion and kind have to be audit.k8s.io/v1 and Policy, not {} and {}",
                policy.api_version,
                policy.kind
            );
        }
        if policy.rules.is_empty() {
            bail!("loaded illegal policy with 0 rules");
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check().with_context(|| format!("rules[{index}]"))?;
        }
        Ok(policy)
    }

    /// Decides about a request of a user.
    pub fn decide(&self, user: &User, request: &AccessRequest) -> AuditDecision {
        let matching = self.rules.iter().find(|rule| rule.matches(user, request));
        let Some(rule) = matching else {
            let omitted_stages = self.omit_stages.clone();
            return AuditDecision { level: AuditLevel::None, omitted_stages, omits_managed_fields: false };
        };
        AuditDecision {
            level: rule.level,
            omitted_stages: self.omit_stages.iter().chain(&rule.omit_stages).copied().collect(),
            omits_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl AuditRule {
    fn check(&self) -> Result<()> {
        let names_objects = !self.resources.is_empty() || !self.namespaces.is_empty();
        if names_objects && !self.paths.is_empty() {
            bail!("nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs");
        }
        let is_path = |path: &&String| {
            *path == "*" || path.starts_with('/') && !path.strip_suffix('*').unwrap_or(path).contains('*')
        };
        if let Some(path) = self.paths.iter().find(|path| !is_path(path)) {
            bail!("nonResourceURLs: {path:?} has to begin with / and can have * at its end only");
        }
        for resources in &self.resources {
            if resources.resources.is_empty() && !resources.resource_names.is_empty() {
                bail!("resources: using resourceNames requires at least one resource");
            }
        }
        Ok(())
    }

    fn matches(&self, user: &User, request: &AccessRequest) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
        let is_user = self.users.is_empty() || has(&self.users, &user.name);
        let is_group = self.user_groups.is_empty() || user.groups.iter().any(|group| has(&self.user_groups, group));
        let is_verb = self.verbs.is_empty() || has(&self.verbs, &request.verb);
        let names_objects = !self.resources.is_empty() || !self.namespaces.is_empty();
        is_user
            && is_group
            && is_verb
            && match &request.target {
                AccessTarget::Resource(accessed) if names_objects => self.matches_objects(accessed),
                AccessTarget::Resource(_) => self.paths.is_empty(),
                AccessTarget::Path(_) if names_objects => false,
                AccessTarget::Path(path) => self.paths.is_empty() || self.paths.iter().any(|own| fits_path(own, path)),
            }
    }

    fn matches_objects(&self, accessed: &AccessedResource) -> bool {
        let is_place = self.namespaces.is_empty() || self.namespaces.contains(&accessed.namespace);
        is_place && (self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(accessed)))
    }
}

impl GroupResources {
    fn matches(&self, accessed: &AccessedResource) -> bool {
        if self.group != accessed.group {
            return false;
        }
        let is_name = self.resource_names.is_empty() || self.resource_names.contains(&accessed.name);
        let path = accessed.path();
        let fits = |pattern: &String| {
            *pattern == path
                || pattern == "*"
                || pattern.strip_prefix("*/").is_some_and(|own| own == accessed.subresource)
                || pattern.strip_suffix("/*").is_some_and(|own| own == accessed.resource)
        };
        self.resources.is_empty() || is_name && self.resources.iter().any(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::authorization::testing::request;
    use std::collections::BTreeMap;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch]}
- {level: None, nonResourceURLs: ["/healthz*", /version]}
- {level: Metadata, resources: [{resources: [secrets, "pods/*"]}, {group: apps, resources: ["*/scale"]}], omitStages: [ResponseComplete]}
- {level: Request, namespaces: [kube-system]}
- {level: RequestResponse, resources: [{resources: [configmaps], resourceNames: [one]}], omitManagedFields: true}
- {level: Metadata, userGroups: [dev]}
"#;

    fn level(user: &str, groups: &[&str], text: &str) -> AuditLevel {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let user = User::impersonated(user, "", &groups, BTreeMap::new());
        AuditPolicy::parse(POLICY).unwrap().decide(&user, &request(text)).level
    }

    #[test]
    fn first_matching_rule_decides() {
        use AuditLevel::{Metadata, None, Request, RequestResponse};
        let table = [
            ("system:kube-proxy", "watch endpoints", None),
            ("system:kube-proxy", "get secrets a in default", Metadata),
            ("ann", "get /healthz/ping", None),
            ("ann", "get /metrics", None),
            ("ann", "get pods/log web in default", Metadata),
            ("ann", "get pods web in default", Metadata),
            ("ann", "get services web in default", None),
            ("ann", "update deployments/scale.apps web in default", Metadata),
            ("ann", "get services web in kube-system", Request),
            ("ann", "get configmaps one in default", RequestResponse),
            ("ann", "get configmaps two in default", None),
        ];
        for (user, text, expected) in table {
            assert_eq!(level(user, &[], text), expected, "{user} {text}");
        }
        assert_eq!(level("ann", &["dev"], "get configmaps two in default"), Metadata);
        let policy = AuditPolicy::parse(POLICY).unwrap();
        let decision = policy.decide(&User::administrator(), &request("get secrets a in default"));
        assert_eq!(decision.omitted_stages, [AuditStage::RequestReceived, AuditStage::ResponseComplete]);
        assert!(policy.decide(&User::administrator(), &request("get configmaps one in default")).omits_managed_fields);
    }

    #[test]
    fn malformed_policies_are_refused() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        let cases = [
            (String::new(), "empty"),
            ("kind: Policy\napiVersion: v1\nrules: [{level: None}]".to_owned(), "audit.k8s.io/v1 and Policy"),
            (head.to_owned(), "illegal policy with 0 rules"),
            (format!("{head}rules: [{{level: All}}]"), "unknown variant"),
            (format!("{head}rules: [{{level: None, user: [a]}}]"), "unknown field"),
            (format!("{head}rules: [{{level: None, namespaces: [a], nonResourceURLs: [/a]}}]"), "cannot apply to both"),
            (format!("{head}rules: [{{level: None, nonResourceURLs: [a]}}]"), "has to begin with /"),
            (format!("{head}rules: [{{level: None, nonResourceURLs: [/*é]}}]"), "can have * at its end only"),
            (format!("{head}rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]"), "at least one resource"),
        ];
        for (text, words) in cases {
            let error = format!("{:#}", AuditPolicy::parse(&text).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
