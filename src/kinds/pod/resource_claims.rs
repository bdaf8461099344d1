//! Checks of a pod's resource claims (`validatePodResourceClaims`), and of their use in containers.

use crate::kinds::shared::go::{self, GoField, GoShape};
use crate::kinds::shared::names;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{Container, PodResourceClaim, PodSpec};
use serde_json::json;
use std::collections::BTreeSet;

const CLAIM: &[GoField] = &[
    ("Name", "name", GoShape::Text),
    ("ResourceClaimName", "resourceClaimName", GoShape::Pointer),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName", GoShape::Pointer),
];

const TWO: &str = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
const NONE: &str = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";

/// Maximum number of claims that a message names.
const MAX_NAMED: usize = 100;

/// Checks the claims of a pod and the containers' references to them.
pub fn check(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let claims = spec.resource_claims.as_deref().unwrap_or_default();
    let mut known = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let at = path.child("resourceClaims").index(index);
        let name = at.child("name");
        match claim.name.as_str() {
            "" => errors.required(&name, ""),
            taken if !known.insert(taken) => errors.duplicate(&name, taken),
            fresh => errors.each_invalid(&name, fresh, names::label(fresh)),
        }
        check_source(claim, &at, errors);
    }
    let lists = [("containers", Some(&spec.containers)), ("initContainers", spec.init_containers.as_ref())];
    for (list, containers) in lists {
        for (index, container) in containers.into_iter().flatten().enumerate() {
            let at = path.child(list).index(index).child("resources").child("claims");
            check_uses(container, &known, &at, errors);
        }
    }
}

fn check_source(claim: &PodResourceClaim, path: &FieldPath, errors: &mut FieldErrors) {
    let sources = [
        ("resourceClaimName", &claim.resource_claim_name),
        ("resourceClaimTemplateName", &claim.resource_claim_template_name),
    ];
    let problem = match sources.iter().filter(|(_, name)| name.is_some()).count() {
        0 => Some(NONE),
        1 => None,
        _ => Some(TWO),
    };
    if let Some(problem) = problem {
        errors.invalid_text(path, &go::lay_out(&json!(claim), CLAIM).compact(), problem);
    }
    for (field, name) in sources {
        if let Some(name) = name {
            errors.each_invalid(&path.child(field), name.as_str(), names::subdomain(name));
        }
    }
}

/// Checks the references of a container to claims of its pod, or to single requests of them.
fn check_uses(container: &Container, known: &BTreeSet<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut unknown_claim = None;
    let claims = container.resources.iter().filter_map(|resources| resources.claims.as_ref()).flatten();
    for (index, claim) in claims.enumerate() {
        let (at, name) = (path.index(index), claim.name.as_str());
        let request = claim.request.as_deref().unwrap_or_default();
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        if used.contains(&(name, "")) {
            errors.duplicate(&at, name);
        } else {
            if !request.is_empty() {
                errors.each_invalid(&at.child("request"), request, names::label(request));
            }
            let first = used.range((name, "")..).next();
            let overlaps = request.is_empty() && first.is_some_and(|(other, _)| *other == name);
            if overlaps || !used.insert((name, request)) {
                errors.duplicate(&at, if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") });
            }
        }
        if !known.contains(name) {
            let all = unknown_claim.get_or_insert_with(|| describe_known(known));
            errors.not_found_because(&at, name, all);
        }
    }
}

fn describe_known(known: &BTreeSet<&str>) -> String {
    let all: Vec<&str> = known.iter().copied().take(MAX_NAMED).collect();
    let which = if all.is_empty() { " which is empty".to_owned() } else { format!(": {}", all.join(", ")) };
    format!("must be one of the names in pod.spec.resourceClaims{which}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn references_overlap_or_are_unknown() {
        let wrong = |claims: Value, known: Value| {
            let container = json!({"name": "c", "resources": {"claims": claims}});
            let spec: PodSpec =
                serde_json::from_value(json!({"containers": [container], "resourceClaims": known})).unwrap();
            let mut errors = FieldErrors::default();
            check(&spec, &FieldPath::root("spec"), &mut errors);
            errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let at = "spec.containers[0].resources.claims";
        let known = json!([{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimName": "y"}]);
        let whole_after_part = json!([{"name": "a", "request": "r"}, {"name": "a"}]);
        assert_eq!(wrong(whole_after_part, known.clone()), format!("{at}[1]: Duplicate value: \"a\""));
        let part_twice = json!([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}]);
        assert_eq!(wrong(part_twice, known.clone()), format!("{at}[1]: Duplicate value: \"a/r\""));
        let rule = "must be one of the names in pod.spec.resourceClaims";
        assert_eq!(wrong(json!([{"name": "z"}]), known), format!("{at}[0]: Not found: \"z\": {rule}: a, b"));
        assert_eq!(
            wrong(json!([{"name": "z"}]), json!(null)),
            format!("{at}[0]: Not found: \"z\": {rule} which is empty")
        );
        let two = json!([{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]);
        let shown = r#"{"Name":"a","ResourceClaimName":"x","ResourceClaimTemplateName":"y"}"#;
        assert_eq!(wrong(json!([]), two), format!("spec.resourceClaims[0]: Invalid value: {shown}: {TWO}"));
    }

    fn messages(spec: Value) -> Vec<String> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let mut errors = FieldErrors::default();
        check(&spec, &FieldPath::root("spec"), &mut errors);
        errors.0.into_iter().map(|error| format!("{} {}", error.field, error.reason)).collect()
    }

    #[test]
    fn claims_need_a_name_and_one_source() {
        let uses = json!([{"name": "c", "resources": {"claims": [{"name": "a", "request": "q"}, {"name": "a", "request": "r"}]}}]);
        let claim = json!({"name": "a", "resourceClaimName": "x"});
        assert_eq!(messages(json!({"containers": uses, "resourceClaims": [claim]})), Vec::<String>::new());
        let bad = json!([{"name": "", "resourceClaimName": "x"}, {"name": "a"}, {"name": "a", "resourceClaimName": "X"},
            {"name": "b", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]);
        let uses = json!([{"name": "c", "resources": {"claims": [{"name": "z"}, {"name": "a"}, {"name": "a"}, {"name": ""}]}}]);
        let expected = [
            "spec.resourceClaims[0].name FieldValueRequired",
            "spec.resourceClaims[1] FieldValueInvalid",
            "spec.resourceClaims[2].name FieldValueDuplicate",
            "spec.resourceClaims[2].resourceClaimName FieldValueInvalid",
            "spec.resourceClaims[3] FieldValueInvalid",
            "spec.containers[0].resources.claims[0] FieldValueNotFound",
            "spec.containers[0].resources.claims[2] FieldValueDuplicate",
            "spec.containers[0].resources.claims[3] FieldValueRequired",
        ];
        assert_eq!(messages(json!({"containers": uses, "resourceClaims": bad})), expected);
    }
}
