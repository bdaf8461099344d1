//! ResourceSlice (resource.k8s.io/v1).

use super::catalogue::shapes;
use super::device::offer::{self, DeviceNodeFields};
use super::device::{check_pool, warn_about_offer};
use super::shared::omit;
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, csi_driver};
use crate::object::struct_shape::StructShape;
use crate::object::{Object, Time, time};
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    selectable: &["spec.driver", "spec.nodeName"],
    warnings: warn_about_offer,
    set_times: date_taints,
    shape: &SHAPE,
    ..Kind::new::<ResourceSlice>("resourceslices.resource.k8s.io", "v1", "ResourceSlice", &view::device::RESOURCE_SLICE)
};

static SHAPE: StructShape = StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE)))]);
static SPEC_SHAPE: StructShape =
    StructShape::new(&[("nodeSelector", shapes::ATOMIC), ("pool", shapes::in_place(shapes::map(&shapes::ANY)))]);

/// Sets the time at which taints were added, where it is not set.
fn date_taints(slice: &mut Object, now: Time) {
    let devices = slice.0.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    let taints = devices.into_iter().flatten().filter_map(|device| device.get_mut("taints")?.as_array_mut()).flatten();
    for taint in taints.filter(|taint| taint.is_object() && taint["timeAdded"].is_null()) {
        taint["timeAdded"] = time::rfc3339(now).into();
    }
}

impl Typed for ResourceSlice {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.spec.devices);
        omit::empty(&mut self.spec.shared_counters);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (spec, path) = (&self.spec, FieldPath::root("spec"));
        csi_driver::check_name(&spec.driver, &path.child("driver"), errors);
        let pool = path.child("pool");
        check_pool(&spec.pool.name, &pool.child("name"), errors);
        let count = spec.pool.resource_slice_count;
        if count <= 0 {
            errors.invalid(&pool.child("resourceSliceCount"), count, "must be greater than zero");
        }
        if spec.pool.generation < 0 {
            let detail = "must be greater than or equal to zero";
            errors.invalid(&pool.child("generation"), spec.pool.generation, detail);
        }
        if let Some(old) = old.map(|old| &old.spec) {
            errors.immutable(&pool.child("name"), &spec.pool.name, &old.pool.name);
            errors.immutable(&path.child("driver"), &spec.driver, &old.driver);
            errors.immutable(&path.child("nodeName"), &spec.node_name, &old.node_name);
        }
        let mut nodes = DeviceNodeFields::default();
        let if_empty = "must be either unset or set to a non-empty string";
        nodes.add_name(spec.node_name.as_deref(), if_empty, &path, errors);
        nodes.add_selector(spec.node_selector.as_ref(), &path, errors);
        if let Some(terms) =
            spec.node_selector.as_ref().map(|nodes| &nodes.node_selector_terms).filter(|terms| terms.len() != 1)
        {
            let at = path.child("nodeSelector").child("nodeSelectorTerms");
            errors.invalid(&at, json!(terms), "must have exactly one node selector term");
        }
        nodes.add_flag("allNodes", spec.all_nodes, &path, errors);
        nodes.add_flag("perDeviceNodeSelection", spec.per_device_node_selection, &path, errors);
        let none = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
        nodes.check_one(none, &format!("{none}, but multiple fields are set"), &path, errors);
        offer::check(spec, &path, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;

    fn wrong(patch: Value, old: Option<&Object>) -> Vec<String> {
        let mut spec = json!({
            "driver": "gpu.example.com", "pool": {"name": "a/b", "generation": 0, "resourceSliceCount": 1}, "nodeName": "n",
        });
        json_patch::merge(&mut spec, &patch);
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        testing::field_errors::<ResourceSlice>(&body, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn taints_without_a_time_get_one() {
        let taints = json!([{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "None", "timeAdded": "2020-01-01T00:00:00Z"}]);
        let mut slice = Object(json!({"spec": {"devices": [{"name": "x", "taints": taints}, {"name": "y"}]}}));
        date_taints(&mut slice, Time::UNIX_EPOCH);
        let times = slice.0["spec"]["devices"][0]["taints"].as_array().unwrap().iter().map(|taint| &taint["timeAdded"]);
        assert_eq!(times.collect::<Vec<_>>(), ["1970-01-01T00:00:00Z", "2020-01-01T00:00:00Z"]);
        assert_eq!(slice.0["spec"]["devices"][1], json!({"name": "y"}));
    }

    #[test]
    fn slices_are_checked_field_by_field() {
        let one = |device: Value| json!({"devices": [device]});
        let whole = json!({
            "name": "gpu-0", "attributes": {"model": {"string": "x"}, "gpu.example.com/v": {"version": "1.2.3-a.1+b"}},
            "capacity": {"memory": {"value": "1Gi"}}, "taints": [{"key": "a/b", "effect": "NoSchedule"}],
            "consumesCounters": [{"counterSet": "c", "counters": {"d": {"value": "1"}}}],
        });
        assert_eq!(wrong(one(whole), None), Vec::<String>::new());
        let many = |count: usize| json!({"devices": (0..count).map(|at| json!({"name": format!("d{at}")})).collect::<Vec<_>>()});
        assert_eq!(wrong(many(128), None), Vec::<String>::new());
        let attribute = |value: Value| one(json!({"name": "d", "attributes": {"a": value}}));
        let cases = [
            (many(129), "spec.devices: Too many: 129: must have at most 128 items"),
            (json!({"driver": ""}), "spec.driver: Required value"),
            (json!({"pool": {"name": ""}}), "spec.pool.name: Required value"),
            (
                json!({"pool": {"resourceSliceCount": 0}}),
                "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            ),
            (
                json!({"pool": {"generation": -1}}),
                "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
            ),
            (
                json!({"nodeName": null}),
                "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
            ),
            (
                json!({"allNodes": true}),
                "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
            ),
            (json!({"allNodes": false}), "spec.allNodes: Invalid value: false: must be either unset or set to true"),
            (
                one(json!({"name": "d", "nodeName": "n"})),
                "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            ),
            (json!({"devices": [{"name": "d"}, {"name": "d"}]}), "spec.devices[1]: Duplicate value: \"d\""),
            (
                attribute(json!({})),
                "spec.devices[0].attributes[a]: Invalid value: \"\": exactly one value must be specified",
            ),
            (
                attribute(json!({"version": "1"})),
                "spec.devices[0].attributes[a].version: Invalid value: \"1\": must be a string compatible with semver.org spec 2.0.0",
            ),
            (
                attribute(json!({"string": "s".repeat(65)})),
                "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes",
            ),
            (
                attribute(json!({"ints": []})),
                "spec.devices[0].attributes[a].ints: Invalid value: []: must not be empty if specified",
            ),
            (
                one(json!({"name": "d", "taints": [{"key": "a", "effect": "Odd"}]})),
                "spec.devices[0].taints[0].effect: Unsupported value: \"Odd\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
            ),
            (
                one(json!({"name": "d", "consumesCounters": [{"counterSet": "c", "counters": {}}]})),
                "spec.devices[0].consumesCounters[0].counters: Required value",
            ),
            (
                json!({"sharedCounters": [{"name": "", "counters": {"c": {"value": "1"}}}]}),
                "spec.sharedCounters[0].name: Required value",
            ),
        ];
        for (patch, expected) in cases {
            assert_eq!(wrong(patch.clone(), None), [expected], "{patch}");
        }
    }

    #[test]
    fn driver_pool_and_node_stay() {
        let old = Object(json!({"metadata": {"name": "a"}, "spec": {
            "driver": "other", "pool": {"name": "c", "generation": 0, "resourceSliceCount": 1}, "allNodes": true}}));
        assert_eq!(
            wrong(json!({}), Some(&old)),
            [
                "spec.pool.name: Invalid value: \"a/b\": field is immutable",
                "spec.driver: Invalid value: \"gpu.example.com\": field is immutable",
                "spec.nodeName: Invalid value: \"n\": field is immutable",
            ]
        );
    }
}
