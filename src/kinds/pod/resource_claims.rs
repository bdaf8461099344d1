//! Checks of a pod's resource claims (`validatePodResourceClaims`), and of their use in containers.

use crate::kinds::{FieldErrors, FieldPath, names};
use k8s_openapi::api::core::v1::{Container, PodResourceClaim, PodSpec};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

const TWO: &str = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
const NONE: &str = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";

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
    let mut set_fields = Map::new();
    for (field, name) in sources {
        let Some(name) = name else { continue };
        set_fields.insert(field.to_owned(), name.as_str().into());
        errors.each_invalid(&path.child(field), name.as_str(), names::subdomain(name));
    }
    match set_fields.len() {
        0 => errors.invalid(path, Value::Object(set_fields), NONE),
        1 => {}
        _ => errors.invalid(path, Value::Object(set_fields), TWO),
    }
}

fn check_uses(container: &Container, known: &BTreeSet<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut used = BTreeSet::new();
    let claims = container.resources.iter().filter_map(|resources| resources.claims.as_ref()).flatten();
    for (index, claim) in claims.enumerate() {
        let (at, name) = (path.index(index), claim.name.as_str());
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else if !used.insert((name, claim.request.as_deref())) {
            errors.duplicate(&at, name);
        } else if !known.contains(name) {
            errors.not_found(&at, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(spec: Value) -> Vec<String> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let mut errors = FieldErrors::default();
        check(&spec, &FieldPath::root("spec"), &mut errors);
        errors.0.into_iter().map(|error| format!("{} {}", error.field, error.reason)).collect()
    }

    #[test]
    fn claims_need_a_name_and_one_source() {
        let uses = json!([{"name": "c", "resources": {"claims": [{"name": "a"}, {"name": "a", "request": "r"}]}}]);
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
            "spec.containers[0].resources.claims[3].name FieldValueRequired",
        ];
        assert_eq!(messages(json!({"containers": uses, "resourceClaims": bad})), expected);
    }
}
