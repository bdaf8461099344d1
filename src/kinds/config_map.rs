//! ConfigMap (core/v1).

use super::shared::{names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::core::v1::ConfigMap;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["cm"],
    status: false,
    generation: false,
    ..Kind::new::<ConfigMap>("configmaps", "v1", "ConfigMap", &view::config_map::VIEW)
};

/// Maximum total size of the data of one ConfigMap or Secret, in bytes.
pub const MAX_BYTES: usize = 1024 * 1024;

impl Typed for ConfigMap {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.data);
        omit::empty(&mut self.binary_data);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        if let Some(old) = old.filter(|old| old.immutable == Some(true)) {
            frozen(errors, "immutable", self.immutable == Some(true));
            frozen(errors, "data", self.data == old.data);
            frozen(errors, "binaryData", self.binary_data == old.binary_data);
        }
        let mut bytes = 0;
        for (key, value) in self.data.iter().flatten() {
            let path = FieldPath::root("data").key(key);
            errors.each_invalid(&path, key.as_str(), names::config_key(key));
            if self.binary_data.as_ref().is_some_and(|binary| binary.contains_key(key)) {
                errors.invalid(&path, key.as_str(), "duplicate of key present in binaryData");
            }
            bytes += value.len();
        }
        for (key, value) in self.binary_data.iter().flatten() {
            errors.each_invalid(&FieldPath::root("binaryData").key(key), key.as_str(), names::config_key(key));
            bytes += value.0.len();
        }
        if bytes > MAX_BYTES {
            errors.too_long(&FieldPath::root("[]"), MAX_BYTES);
        }
    }
}

/// Refuses a change to an object with `immutable: true`.
pub(super) fn frozen(errors: &mut FieldErrors, field: &str, same: bool) {
    if !same {
        errors.forbidden(&FieldPath::root(field), "field is immutable when `immutable` is set");
    }
}
