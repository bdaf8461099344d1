//! Converts an object to a Scale (`autoscaling/v1`): its desired and observed number of replicas.

use super::ApiResult;
use crate::kinds::Kind;
use crate::kinds::shared::field;
use crate::object::selector::Selector;
use crate::object::{Object, Reason, Resource, Status};
use serde_json::{Map, Value, json};

/// The Scale of an object.
pub fn scale(kind: &Kind, object: &Object) -> Object {
    let (wanted, seen) = kind.replicas();
    let known = ["creationTimestamp", "name", "namespace", "resourceVersion", "uid"];
    let field = |name: &str| Some((name.to_owned(), object.value_at(&["metadata", name])?.clone()));
    let metadata: Map<String, Value> = known.into_iter().filter_map(field).collect();
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata,
        "spec": {}, "status": {"replicas": object.int(&seen).unwrap_or(0)},
    });
    // Go omits a desired replica count of zero.
    if let Some(replicas) = object.int(&wanted).filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = replicas.into();
    }
    if let Some(selector) = selector(kind, object) {
        scale["status"]["selector"] = selector.into();
    }
    Object(scale)
}

/// Returns the path of the number of replicas of a custom resource that lacks it: its Scale cannot be read.
pub fn missing_replicas(kind: &Kind, object: &Object) -> Option<String> {
    let steps = kind.scale_paths.map(|_| kind.replicas().0)?;
    object.int(&steps).is_none().then(|| format!(".{}", steps.join(".")))
}

/// Returns the number of replicas that a Scale asks for. Refuses an object of another kind.
pub fn desired_replicas(scale: &Object) -> ApiResult<i64> {
    check_kind(scale)?;
    let replicas = match scale.value_at(&["spec", "replicas"]) {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().ok_or_else(|| {
            let text = "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas is not a whole number";
            Status::new(Reason::BadRequest, text)
        })?,
    };
    if i32::try_from(replicas).is_err() {
        let text = format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal number {replicas} into Go struct field \
             ScaleSpec.spec.replicas of type int32"
        );
        return Err(Status::new(Reason::BadRequest, text));
    }
    if replicas >= 0 {
        return Ok(replicas);
    }
    let error = crate::kinds::FieldError {
        field: "spec.replicas".into(),
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
    };
    Err(field::invalid("Scale", Resource("scales.autoscaling"), scale.name(), &[error]))
}

/// Refuses an object that is not a Scale. As in Kubernetes, an object without a kind is one.
fn check_kind(scale: &Object) -> ApiResult<()> {
    let kind = scale.kind();
    if kind.is_empty() || kind == "Scale" {
        return Ok(());
    }
    let version = scale.api_version().rsplit('/').next().unwrap_or_default();
    Err(Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a Scale: converting ({version}.{kind}) to (autoscaling.Scale): unknown \
         conversion"
    )))
}

/// `spec.selector` as text; a ReplicationController has plain labels there, a custom resource text where its definition says.
fn selector(kind: &Kind, object: &Object) -> Option<String> {
    if let Some(paths) = kind.scale_paths {
        let path: Vec<&str> = paths.selector.iter().map(String::as_str).collect();
        return object.text(&path).filter(|text| !text.is_empty()).map(str::to_owned);
    }
    let selector = object.value_at(&["spec", "selector"])?;
    let is_plain = selector.as_object()?.values().all(Value::is_string);
    let selector = if is_plain { json!({"matchLabels": selector}) } else { selector.clone() };
    Some(Selector::from_label_selector(&selector).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_replicas_out_of_range_is_refused() {
        let replicas = |number: i64| desired_replicas(&Object(json!({"spec": {"replicas": number}})));
        assert_eq!(replicas(i64::from(i32::MAX)).unwrap(), 2147483647);
        let message = |number: i64| replicas(number).unwrap_err().message;
        assert!(message(99999999999).ends_with(
            "cannot unmarshal number 99999999999 into Go struct field ScaleSpec.spec.replicas of type int32"
        ));
        assert!(message(-5).ends_with("spec.replicas: Invalid value: -5: must be greater than or equal to 0"));
    }

    #[test]
    fn object_of_another_kind_is_not_a_scale() {
        let asked = |kind: &str| json!({"apiVersion": "apps/v1", "kind": kind, "spec": {"replicas": 3}});
        assert_eq!(
            desired_replicas(&Object(asked("Deployment"))).unwrap_err().message,
            "Deployment in version \"v1\" cannot be handled as a Scale: converting (v1.Deployment) to (autoscaling.Scale): unknown \
             conversion"
        );
        assert_eq!(desired_replicas(&Object(asked("Scale"))).unwrap(), 3);
    }

    #[test]
    fn scales() {
        let cases = [
            (json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}), json!({"replicas": 2}), "app=web"),
            (json!({"replicas": 0, "selector": {"a": "b", "c": "d"}}), json!({}), "a=b,c=d"),
        ];
        for (spec, wish, selector) in cases {
            let object = Object(json!({"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": spec}));
            let expected = json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"},
                "spec": wish, "status": {"replicas": 0, "selector": selector},
            });
            assert_eq!(scale(&crate::kinds::deployment::KIND, &object).0, expected);
        }
    }
}
