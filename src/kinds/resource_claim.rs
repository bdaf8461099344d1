//! ResourceClaim (resource.k8s.io/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::device::allocation::{self, StatusChange};
use super::device::claim::{self, RequestNames};
use super::shared::go::{self, GoField, GoShape};
use super::shared::omit;
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, device};
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimStatus};
use serde_json::json;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    generation: false,
    warnings: |_| Vec::new(),
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    status_metadata: &[],
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<ResourceClaim>("resourceclaims.resource.k8s.io", "v1", "ResourceClaim", &view::device::RESOURCE_CLAIM)
};

static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("status", merge_rules::map(&STATUS_MERGE_RULES))]);
static STATUS_MERGE_RULES: MergeSchema =
    MergeSchema::new(&[("reservedFor", merge_rules::list("uid", &merge_rules::ANY))]);
static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&device::CLAIM_SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&STATUS_SHAPE))),
]);
static STATUS_SHAPE: StructShape = StructShape::new(&[
    ("allocation", shapes::map(&ALLOCATION_SHAPE)),
    (
        "devices",
        shapes::keyed_list(
            &[("driver", Some("")), ("device", Some("")), ("pool", Some("")), ("shareID", None)],
            &shapes::JUST_CONDITIONS,
        ),
    ),
    ("reservedFor", shapes::keyed_list(&[("uid", Some(""))], &shapes::ANY)),
]);
static ALLOCATION_SHAPE: StructShape =
    StructShape::new(&[("devices", shapes::in_place(shapes::map(&shapes::ANY))), ("nodeSelector", shapes::ATOMIC)]);

/// The fields of Go's spec, for the message that shows a forbidden change.
const SPEC: &[GoField] = &[("Devices", "devices", GoShape::Struct(DEVICES))];
const DEVICES: &[GoField] = &[
    ("Requests", "requests", GoShape::List(REQUEST)),
    ("Constraints", "constraints", GoShape::Plains),
    ("Config", "config", GoShape::Plains),
];
const REQUEST: &[GoField] = &[
    ("Name", "name", GoShape::Text),
    ("Exactly", "exactly", GoShape::Optional(EXACTLY)),
    ("FirstAvailable", "firstAvailable", GoShape::Plains),
];
const EXACTLY: &[GoField] = &[
    ("DeviceClassName", "deviceClassName", GoShape::Text),
    ("Selectors", "selectors", GoShape::Plains),
    ("AllocationMode", "allocationMode", GoShape::Text),
    ("Count", "count", GoShape::Number),
    ("AdminAccess", "adminAccess", GoShape::Pointer),
    ("Tolerations", "tolerations", GoShape::Plains),
    ("Capacity", "capacity", GoShape::Plain),
];

impl Typed for ResourceClaim {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        claim::default(&mut self.spec);
        let status = self.status.get_or_insert_default();
        omit::empty(&mut status.reserved_for);
        omit::empty(&mut status.devices);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({}));
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let spec = FieldPath::root("spec");
        match old {
            Some(old) if self.spec != old.spec => {
                errors.invalid_text(&spec, &go::lay_out(&json!(self.spec), SPEC).compact(), "field is immutable");
            }
            Some(_) => {}
            None => claim::check(&self.spec, &spec, errors),
        }
    }
}

fn check_status(new: &ResourceClaim, old: &ResourceClaim, errors: &mut FieldErrors) {
    let (empty, requests) = (ResourceClaimStatus::default(), RequestNames::from_claim(&new.spec));
    let change = StatusChange {
        new: new.status.as_ref().unwrap_or(&empty),
        old: old.status.as_ref().unwrap_or(&empty),
        is_deleting: new.metadata.deletion_timestamp.is_some(),
        requests: &requests,
    };
    allocation::check(&change, &FieldPath::root("status"), errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::catalogue::typed;
    use serde_json::Value;

    fn normal(devices: Value, status: Value) -> Object {
        let body = json!({"metadata": {"name": "a"}, "spec": {"devices": devices}, "status": status});
        Object(typed::normalize::<ResourceClaim>(&body, &mut |_| {}).unwrap())
    }

    fn complaints(new: &Object, old: Option<&Object>) -> Vec<String> {
        let of_status = old.map_or_else(Vec::new, |old| (KIND.validate_status)(new, old));
        let all = typed::validate::<ResourceClaim>(new, old).into_iter().chain(of_status);
        all.map(|error| error.to_string()).collect()
    }

    fn request(exactly: Value) -> Value {
        let mut request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}});
        json_patch::merge(&mut request["exactly"], &exactly);
        json!({"requests": [request]})
    }

    #[test]
    fn requests_get_one_device() {
        let claim = normal(request(json!({"tolerations": [{"key": "a"}]})), Value::Null);
        let expected = json!({
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "tolerations": [{"key": "a", "operator": "Equal"}],
        });
        assert_eq!(claim.0["spec"]["devices"]["requests"][0]["exactly"], expected);
        let all = normal(request(json!({"allocationMode": "All"})), Value::Null);
        assert_eq!(all.0["spec"]["devices"]["requests"][0]["exactly"].get("count"), None);
    }

    #[test]
    fn claims_are_checked_field_by_field() {
        let alternatives = |parts: Value| json!({"requests": [{"name": "gpu", "firstAvailable": parts}]});
        let with = |field: &str, item: Value| {
            let mut devices = request(json!({}));
            devices[field] = json!([item]);
            devices
        };
        let opaque = json!({"driver": "a.b", "parameters": {"c": 1}});
        for good in [
            request(json!({})),
            json!({}),
            alternatives(
                json!([{"name": "big", "deviceClassName": "gpu"}, {"name": "small", "deviceClassName": "gpu"}]),
            ),
            with("constraints", json!({"requests": ["gpu"], "matchAttribute": "gpu.example.com/model"})),
            with("config", json!({"requests": ["gpu"], "opaque": opaque})),
        ] {
            assert_eq!(complaints(&normal(good.clone(), Value::Null), None), Vec::<String>::new(), "{good}");
        }
        let unknown =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let exactly = "spec.devices.requests[0].exactly";
        let cases = [
            (json!({"requests": [{"name": "gpu"}]}), "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required".to_owned()),
            (json!({"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}, {"name": "a", "exactly": {"deviceClassName": "c"}}]}), "spec.devices.requests[1]: Duplicate value: \"a\"".to_owned()),
            (json!({"requests": vec![json!({}); 33].iter().map(|_| json!({"name": "a", "exactly": {"deviceClassName": "c"}})).collect::<Vec<_>>()}), "spec.devices.requests: Too many: 33: must have at most 32 items".to_owned()),
            (request(json!({"deviceClassName": ""})), format!("{exactly}.deviceClassName: Required value")),
            (request(json!({"count": -1})), format!("{exactly}.count: Invalid value: -1: must be greater than zero")),
            (request(json!({"allocationMode": "All", "count": 2})), format!("{exactly}.count: Invalid value: 2: must not be specified when allocationMode is 'All'")),
            (request(json!({"allocationMode": "Odd"})), format!("{exactly}.allocationMode: Unsupported value: \"Odd\": supported values: \"All\", \"ExactCount\"")),
            (request(json!({"selectors": [{}]})), format!("{exactly}.selectors[0].cel: Required value")),
            (request(json!({"tolerations": [{"operator": "Exists", "value": "v"}]})), format!("{exactly}.tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`")),
            (alternatives(json!([{"name": "a", "deviceClassName": ""}])), "spec.devices.requests[0].firstAvailable[0].deviceClassName: Required value".to_owned()),
            (with("constraints", json!({"requests": ["nope"], "matchAttribute": "a.b/c"})), format!("spec.devices.constraints[0].requests[0]: Invalid value: \"nope\": {unknown}")),
            (with("constraints", json!({"matchAttribute": "c"})), "spec.devices.constraints[0].matchAttribute: Invalid value: \"c\": a fully qualified name must be a domain and a name separated by a slash".to_owned()),
            (with("config", json!({})), "spec.devices.config[0].opaque: Required value".to_owned()),
            (with("config", json!({"requests": ["gpu/a"], "opaque": opaque})), format!("spec.devices.config[0].requests[0]: Invalid value: \"gpu/a\": {unknown}")),
        ];
        for (devices, expected) in cases {
            assert_eq!(complaints(&normal(devices.clone(), Value::Null), None), [expected], "{devices}");
        }
    }

    #[test]
    fn status_is_checked_against_the_one_before() {
        let devices = || request(json!({}));
        let result = json!({"request": "gpu", "driver": "a.b", "pool": "p", "device": "d"});
        let allocation = json!({"devices": {"results": [result]}});
        let consumer = json!({"resource": "pods", "name": "p", "uid": "u"});
        let pending = normal(devices(), Value::Null);
        let allocated = normal(devices(), json!({"allocation": allocation, "reservedFor": [consumer]}));
        assert_eq!(complaints(&allocated, Some(&pending)), Vec::<String>::new());
        assert_eq!(complaints(&pending, Some(&allocated)), Vec::<String>::new());
        let cases = [
            (
                json!({"reservedFor": [consumer]}),
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            ),
            (
                json!({"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "", "uid": "u"}]}),
                "status.reservedFor[0].name: Required value",
            ),
            (
                json!({"allocation": {"devices": {"results": [{"request": "gpu", "driver": "a.b", "pool": "", "device": "d"}]}}}),
                "status.allocation.devices.results[0].pool: Required value",
            ),
            (
                json!({"devices": [{"driver": "a.b", "pool": "p", "device": "e"}]}),
                "status.devices[0]: Invalid value: \"a.b/p/e\": must be an allocated device in the claim",
            ),
        ];
        for (status, expected) in cases {
            assert_eq!(complaints(&normal(devices(), status.clone()), Some(&pending)), [expected], "{status}");
        }
        let other =
            json!({"devices": {"results": [{"request": "gpu", "driver": "a.b", "pool": "p", "device": "other"}]}});
        let found = complaints(&normal(devices(), json!({"allocation": other})), Some(&allocated));
        assert!(found.len() == 1 && found[0].starts_with("status.allocation: Invalid value: {"), "{found:?}");
        let found = complaints(&normal(request(json!({"count": 2})), Value::Null), Some(&pending));
        assert!(found.len() == 1 && found[0].starts_with("spec: Invalid value: {"), "{found:?}");
    }
}
