//! VolumeAttributesClass (storage.k8s.io/v1).

use super::shared::{names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

/// The finalizer of classes, which stays while a volume or a claim uses one.
pub const PROTECTION: &str = "kubernetes.io/vac-protection";

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["vac"],
    namespaced: false,
    status: false,
    generation: false,
    warnings: |_| {
        vec!["driverName: no CSI driver runs in kloop, so claims keep the attributes that they have".to_owned()]
    },
    ..Kind::new::<VolumeAttributesClass>(
        "volumeattributesclasses.storage.k8s.io",
        "v1",
        "VolumeAttributesClass",
        &view::storage::ATTRIBUTES_CLASS,
    )
};

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;

impl Typed for VolumeAttributesClass {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.parameters);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (driver, parameters) = (FieldPath::root("driverName"), FieldPath::root("parameters"));
        if let Some(old) = old {
            if self.driver_name != old.driver_name {
                errors.forbidden(&driver, "updates to driverName are forbidden.");
            }
            if self.parameters != old.parameters {
                errors.forbidden(&parameters, "updates to parameters are forbidden.");
            }
        }
        match self.driver_name.as_str() {
            "" => errors.required(&driver, ""),
            name => errors.each_invalid(&driver, name, names::qualified(&name.to_lowercase())),
        }
        let pairs = self.parameters.iter().flatten();
        match pairs.clone().count() {
            0 => errors.required(&parameters, "must contain at least one key/value pair"),
            count if count > MAX_PARAMETERS => errors.too_long(&parameters, MAX_PARAMETERS),
            _ => {
                for (key, _) in pairs.clone().filter(|(key, _)| key.is_empty()) {
                    errors.invalid(&parameters, key.as_str(), "field must not be empty.");
                }
                if pairs.map(|(key, value)| key.len() + value.len()).sum::<usize>() > MAX_PARAMETER_BYTES {
                    errors.too_long(&parameters, MAX_PARAMETER_BYTES);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing;
    use crate::object::Object;
    use serde_json::{Value, json};

    fn wrong(patch: Value, old: Option<&Object>) -> Vec<String> {
        let mut body = json!({"metadata": {"name": "a"}, "driverName": "a.b", "parameters": {"iops": "1"}});
        json_patch::merge(&mut body, &patch);
        testing::field_errors::<VolumeAttributesClass>(&body, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn classes_are_checked() {
        assert_eq!(wrong(json!({}), None), Vec::<String>::new());
        let many: Value = (0..=MAX_PARAMETERS).map(|number| (format!("k{number}"), json!("v"))).collect();
        let cases = [
            (json!({"driverName": ""}), "driverName: Required value"),
            (json!({"driverName": "a b"}), "driverName: Invalid value: \"a b\": "),
            (json!({"parameters": null}), "parameters: Required value: must contain at least one key/value pair"),
            (json!({"parameters": {"": "v"}}), "parameters: Invalid value: \"\": field must not be empty."),
            (json!({"parameters": many}), "parameters: Too long: may not be more than 512 bytes"),
            (json!({"parameters": {"k": "v".repeat(MAX_PARAMETER_BYTES)}}), "parameters: Too long: "),
        ];
        for (patch, start) in cases {
            let found = wrong(patch, None);
            assert!(found.len() == 1 && found[0].starts_with(start), "{start}: {found:?}");
        }
        let old = Object(json!({"metadata": {"name": "a"}, "driverName": "c.d"}));
        assert_eq!(
            wrong(json!({}), Some(&old)),
            [
                "driverName: Forbidden: updates to driverName are forbidden.",
                "parameters: Forbidden: updates to parameters are forbidden."
            ]
        );
    }
}
