//! Checks of FlowSchemas and PriorityLevelConfigurations (`pkg/apis/flowcontrol/validation`).

use super::super::{FieldErrors, FieldPath};
use super::names;
use k8s_openapi::api::flowcontrol::v1::{
    FlowSchemaSpec, LimitResponse, LimitedPriorityLevelConfiguration, PolicyRulesWithSubjects,
    PriorityLevelConfigurationSpec, QueuingConfiguration, Subject,
};
use serde_json::json;

const VERBS: &[&str] = &["get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy"];
/// The name of the FlowSchema and of the priority level for requests that never wait.
const EXEMPT: &str = "exempt";
const MAX_PRECEDENCE: i32 = 10_000;
const MAX_QUEUES: i32 = 10_000_000;
/// Bits of a flow's hash, which select its queues.
const HASH_BITS: f64 = 60.0;

/// Checks the spec of a FlowSchema of this name.
pub fn check_schema(name: &str, spec: &FlowSchemaSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let precedence = spec.matching_precedence.unwrap_or(0);
    let at = path.child("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&at, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        errors.invalid(&at, precedence, &format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && name != EXEMPT {
        errors.invalid(&at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if let Some(method) =
        spec.distinguisher_method.as_ref().filter(|one| !["ByNamespace", "ByUser"].contains(&&*one.type_))
    {
        let path = path.child("distinguisherMethod").child("type");
        errors.unsupported(&path, json!({"Type": method.type_}), &["ByNamespace", "ByUser"]);
    }
    let at = path.child("priorityLevelConfiguration").child("name");
    match spec.priority_level_configuration.name.as_str() {
        "" => errors.required(&at, "must reference a priority level"),
        name => errors.each_invalid(&at, name, names::subdomain(name)),
    }
    for (index, rule) in spec.rules.iter().flatten().enumerate() {
        check_rule(rule, &path.child("rules").index(index), errors);
    }
}

fn check_rule(rule: &PolicyRulesWithSubjects, path: &FieldPath, errors: &mut FieldErrors) {
    if rule.subjects.is_empty() {
        errors.required(&path.child("subjects"), "subjects must contain at least one value");
    }
    for (index, subject) in rule.subjects.iter().enumerate() {
        check_subject(subject, &path.child("subjects").index(index), errors);
    }
    let resources = rule.resource_rules.as_deref().unwrap_or_default();
    let others = rule.non_resource_rules.as_deref().unwrap_or_default();
    if resources.is_empty() && others.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for (index, rule) in resources.iter().enumerate() {
        let path = path.child("resourceRules").index(index);
        check_verbs(&rule.verbs, &path, errors);
        check_list(
            &rule.api_groups,
            "apiGroups",
            "api groups",
            "resource rules must supply at least one api group",
            &path,
            errors,
        );
        check_list(
            &rule.resources,
            "resources",
            "resources",
            "resource rules must supply at least one resource",
            &path,
            errors,
        );
        check_namespaces(
            rule.namespaces.as_deref().unwrap_or_default(),
            rule.cluster_scope == Some(true),
            &path,
            errors,
        );
    }
    for (index, rule) in others.iter().enumerate() {
        let path = path.child("nonResourceRules").index(index);
        check_verbs(&rule.verbs, &path, errors);
        let needed = "nonResourceURLs must contain at least one value";
        check_list(&rule.non_resource_urls, "nonResourceURLs", "non-resource URLs", needed, &path, errors);
        if !is_all(&rule.non_resource_urls) {
            for (index, url) in rule.non_resource_urls.iter().enumerate() {
                check_url(url, &path.child("nonResourceURLs").index(index), errors);
            }
        }
    }
}

fn is_all(list: &[String]) -> bool {
    list.iter().any(|item| item == "*")
}

/// Checks that a list is not empty, and that `*` is its only item if present.
fn check_list(list: &[String], field: &str, what: &str, needed: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if list.is_empty() {
        errors.required(&path.child(field), needed);
    }
    if list.len() > 1 && is_all(list) {
        errors.invalid(&path.child(field), json!(list), &format!("if '*' is present, must not specify other {what}"));
    }
}

fn check_verbs(verbs: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    check_list(verbs, "verbs", "verbs", "verbs must contain at least one value", path, errors);
    if !is_all(verbs) && verbs.iter().any(|verb| !VERBS.contains(&verb.as_str())) {
        errors.unsupported(&path.child("verbs"), json!(verbs), VERBS);
    }
}

fn check_namespaces(namespaces: &[String], clusterwide: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if namespaces.is_empty() && clusterwide {
        return;
    }
    let needed = "resource rules that are not cluster scoped must supply at least one namespace";
    check_list(namespaces, "namespaces", "namespaces", needed, path, errors);
    if is_all(namespaces) {
        return;
    }
    for (index, name) in namespaces.iter().enumerate() {
        for problem in names::label(name) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            errors.invalid(&path.child("namespaces").index(index), name.as_str(), &detail);
        }
    }
}

fn check_url(url: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let wildcards = url.matches('*').count();
    let problem = match url {
        "" => "must not be empty",
        "/" => return,
        url if !url.starts_with('/') => "must start with slash",
        url if url.contains(' ') => "must not contain white-space",
        url if url.contains("//") => "must not contain double slash",
        url if wildcards > 1 || wildcards == 1 && !url.ends_with("/*") => "wildcard can only do suffix matching",
        _ => return,
    };
    errors.invalid(path, url, problem);
}

fn check_subject(subject: &Subject, path: &FieldPath, errors: &mut FieldErrors) {
    let parts = [
        ("User", "user", subject.user.as_ref().map(|user| user.name.as_str())),
        ("Group", "group", subject.group.as_ref().map(|group| group.name.as_str())),
        ("ServiceAccount", "serviceAccount", subject.service_account.as_ref().map(|account| account.name.as_str())),
    ];
    let kind = subject.kind.as_str();
    if !parts.iter().any(|(known, ..)| *known == kind) {
        return errors.unsupported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    }
    for (known, field, name) in parts {
        let path = path.child(field);
        match name {
            Some(_) if known != kind => {
                errors.forbidden(&path, &format!("{field} is forbidden when subject kind is not '{known}'"));
            }
            None if known == kind => {
                errors.required(&path, &format!("{field} is required when subject kind is '{known}'"));
            }
            Some("") => errors.required(&path.child("name"), ""),
            _ => {}
        }
    }
    if let Some(account) = subject.service_account.as_ref().filter(|_| kind == "ServiceAccount") {
        let path = path.child("serviceAccount");
        if !["", "*"].contains(&&*account.name) {
            errors.each_invalid(&path.child("name"), account.name.as_str(), names::subdomain(&account.name));
        }
        match account.namespace.as_str() {
            "" => errors.required(&path.child("namespace"), "must specify namespace for service account"),
            name => errors.each_invalid(&path.child("namespace"), name, names::label(name)),
        }
    }
}

/// Checks the spec of a priority level of this name.
pub fn check_level(name: &str, spec: &PriorityLevelConfigurationSpec, path: &FieldPath, errors: &mut FieldErrors) {
    if (name == EXEMPT) != (spec.type_ == "Exempt") {
        let detail = "type must be 'Exempt' if and only if name is 'exempt'";
        errors.invalid(&path.child("type"), spec.type_.as_str(), detail);
    }
    match (spec.type_.as_str(), &spec.limited, &spec.exempt) {
        ("Exempt", limited, exempt) => {
            if limited.is_some() {
                errors.forbidden(&path.child("limited"), "must be nil if the type is not Limited");
            }
            if let Some(exempt) = exempt {
                let path = path.child("exempt");
                check_shares(exempt.nominal_concurrency_shares, exempt.lendable_percent, &path, errors);
            }
        }
        ("Limited", limited, exempt) => {
            if exempt.is_some() {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            match limited {
                None => errors.required(&path.child("limited"), "must not be empty when type is Limited"),
                Some(limited) => check_limited(limited, &path.child("limited"), errors),
            }
        }
        (other, ..) => errors.unsupported(&path.child("type"), other, &["Exempt", "Limited"]),
    }
}

fn check_shares(shares: Option<i32>, lendable: Option<i32>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(shares) = shares.filter(|shares| *shares < 0) {
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    if let Some(percent) = lendable.filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(&path.child("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn check_limited(limited: &LimitedPriorityLevelConfiguration, path: &FieldPath, errors: &mut FieldErrors) {
    check_shares(limited.nominal_concurrency_shares, limited.lendable_percent, path, errors);
    if let Some(percent) = limited.borrowing_limit_percent.filter(|percent| *percent < 0) {
        errors.invalid(&path.child("borrowingLimitPercent"), percent, "if specified, must be a non-negative integer");
    }
    let none = LimitResponse::default();
    let response = limited.limit_response.as_ref().unwrap_or(&none);
    let path = path.child("limitResponse");
    let at = path.child("queuing");
    match (response.type_.as_str(), &response.queuing) {
        ("Reject", None) => {}
        ("Reject", Some(_)) => errors.forbidden(&at, "must be nil if limited.limitResponse.type is not Limited"),
        ("Queue", None) => errors.required(&at, "must not be empty if limited.limitResponse.type is Limited"),
        ("Queue", Some(queuing)) => check_queuing(queuing, &at, errors),
        (other, _) => errors.unsupported(&path.child("type"), other, &["Queue", "Reject"]),
    }
}

fn check_queuing(queuing: &QueuingConfiguration, path: &FieldPath, errors: &mut FieldErrors) {
    let number = |field: Option<i32>| field.unwrap_or(0);
    let (length, queues, hand) =
        (number(queuing.queue_length_limit), number(queuing.queues), number(queuing.hand_size));
    if length <= 0 {
        errors.invalid(&path.child("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&path.child("queues"), queues, "must be positive");
    } else if queues > MAX_QUEUES {
        errors.invalid(&path.child("queues"), queues, &format!("must not be greater than {MAX_QUEUES}"));
    }
    let at = path.child("handSize");
    if hand <= 0 {
        errors.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&at, hand, &format!("should not be greater than queues ({queues})"));
    } else if entropy(queues, hand) > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(&at, hand, &detail);
    }
}

/// Bits needed to select `hand` queues out of all, counting each order separately.
fn entropy(queues: i32, hand: i32) -> f64 {
    // 64 queues already exceed the limit.
    let bits = (0..hand.min(64)).map(|taken| f64::from(queues - taken).log2());
    bits.sum::<f64>().ceil()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn messages(check: impl Fn(&FieldPath, &mut FieldErrors)) -> Vec<String> {
        let mut errors = FieldErrors::default();
        check(&FieldPath::root("spec"), &mut errors);
        errors.0.into_iter().map(|error| error.field).collect()
    }

    fn schema(spec: Value) -> Vec<String> {
        let spec: FlowSchemaSpec = serde_json::from_value(spec).unwrap();
        messages(|path, errors| check_schema("a", &spec, path, errors))
    }

    #[test]
    fn schemas_are_checked() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]});
        let subject = json!({"kind": "User", "user": {"name": "x"}});
        let good = json!({"matchingPrecedence": 100, "priorityLevelConfiguration": {"name": "p"},
            "rules": [{"subjects": [subject], "resourceRules": [rule]}]});
        assert_eq!(schema(good), Vec::<String>::new());
        let rule = json!({"verbs": ["fly"], "apiGroups": ["*", "a"], "resources": [], "namespaces": ["A"]});
        let url = json!({"verbs": ["*"], "nonResourceURLs": ["x"]});
        let subject = json!({"kind": "User", "group": {"name": "x"}});
        let bad = json!({"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": ""},
            "rules": [{"subjects": [subject], "resourceRules": [rule], "nonResourceRules": [url]}, {"subjects": []}]});
        let expected = [
            "spec.matchingPrecedence",
            "spec.priorityLevelConfiguration.name",
            "spec.rules[0].subjects[0].user",
            "spec.rules[0].subjects[0].group",
            "spec.rules[0].resourceRules[0].verbs",
            "spec.rules[0].resourceRules[0].apiGroups",
            "spec.rules[0].resourceRules[0].resources",
            "spec.rules[0].resourceRules[0].namespaces[0]",
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]",
            "spec.rules[1].subjects",
            "spec.rules[1]",
        ];
        assert_eq!(schema(bad), expected);
    }

    #[test]
    fn levels_are_checked() {
        let level = |queues: i32, hand: i32| {
            let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
            let spec = json!({"type": "Limited", "limited": {"lendablePercent": 0, "limitResponse": {"type": "Queue", "queuing": queuing}}});
            let spec: PriorityLevelConfigurationSpec = serde_json::from_value(spec).unwrap();
            messages(|path, errors| check_level("a", &spec, path, errors)).len()
        };
        assert_eq!([level(64, 8), level(64, 65), level(0, 1), level(1_000_000, 8)], [0, 1, 2, 1]);
    }
}
