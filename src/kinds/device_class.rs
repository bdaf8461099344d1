//! DeviceClass (resource.k8s.io/v1).

use super::device::{MAX_ITEMS, check_configuration, check_items, check_selectors};
use super::shared::{omit, resource_names};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceClassConfiguration};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    warnings: |_| Vec::new(),
    ..Kind::new::<DeviceClass>("deviceclasses.resource.k8s.io", "v1", "DeviceClass", &view::generic::VIEW)
};

impl Typed for DeviceClass {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.spec.selectors);
        omit::empty(&mut self.spec.config);
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        let (spec, path) = (&self.spec, FieldPath::root("spec"));
        check_selectors(spec.selectors.as_deref().unwrap_or_default(), &path.child("selectors"), errors);
        let (config, at) = (spec.config.as_deref().unwrap_or_default(), path.child("config"));
        check_items(config, MAX_ITEMS, &at, errors, |config: &DeviceClassConfiguration, path, errors| {
            check_configuration(config.opaque.as_ref(), path, errors);
        });
        if let Some(name) = spec.extended_resource_name.as_deref().filter(|name| !resource_names::is_extended(name)) {
            let detail = "must be a valid extended resource name";
            errors.invalid(&path.child("extendedResourceName"), name, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use serde_json::{Value, json};

    fn wrong(spec: Value) -> Vec<String> {
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        testing::field_errors::<DeviceClass>(&body, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn classes_are_checked() {
        let selector = |expression: String| json!({"selectors": [{"cel": {"expression": expression}}]});
        let config = |parameters: Value| json!({"config": [{"opaque": {"driver": "a.b", "parameters": parameters}}]});
        assert_eq!(wrong(selector("true".into())), Vec::<String>::new());
        assert_eq!(wrong(config(json!({"a": 1}))), Vec::<String>::new());
        assert_eq!(wrong(json!({"extendedResourceName": "example.com/gpu"})), Vec::<String>::new());
        let cases = [
            (json!({"selectors": [{}]}), "spec.selectors[0].cel: Required value"),
            (
                selector(" ".into()),
                "spec.selectors[0].cel.expression: Invalid value: \" \": compilation failed: the expression is empty",
            ),
            (
                selector("a".repeat(10241)),
                "spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
            ),
            (json!({"selectors": vec![json!({}); 33]}), "spec.selectors: Too many: 33: must have at most 32 items"),
            (json!({"config": [{}]}), "spec.config[0].opaque: Required value"),
            (
                config(json!([])),
                "spec.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
            ),
            (
                config(json!({"a": "b".repeat(10240)})),
                "spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
            ),
            (
                json!({"extendedResourceName": "cpu"}),
                "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(wrong(spec.clone()), [expected], "{spec}");
        }
    }
}
