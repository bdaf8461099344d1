//! Secret (core/v1).

use super::config_map::{MAX_BYTES, frozen};
use super::shared::{key_pair, names, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::go::json_syntax;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    generation: false,
    warnings: key_pair::warnings,
    selectable: &["type"],
    ..Kind::new::<Secret>("secrets", "v1", "Secret", &view::secret::VIEW)
};

/// Go's error for JSON that is not a map.
fn map_problem(text: &[u8]) -> Option<String> {
    let found = match serde_json::from_slice(text).ok()? {
        Value::Null | Value::Object(_) => return None,
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Some(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
}

const ACCOUNT: &str = "kubernetes.io/service-account.name";

impl Typed for Secret {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let strings = self.string_data.take().unwrap_or_default();
        let data = self.data.get_or_insert_default();
        data.extend(strings.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))));
        omit::empty(&mut self.data);
        omit::empty(&mut self.type_);
        self.type_.get_or_insert_with(|| "Opaque".to_owned());
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        if let Some(old) = old {
            errors.immutable(&FieldPath::root("type"), &self.type_, &old.type_);
        }
        if let Some(old) = old.filter(|old| old.immutable == Some(true)) {
            frozen(errors, "immutable", self.immutable == Some(true));
            frozen(errors, "data", self.data == old.data);
        }
        let mut bytes = 0;
        for (key, value) in self.data.iter().flatten() {
            errors.each_invalid(&FieldPath::root("data").key(key), key.as_str(), names::config_key(key));
            bytes += value.0.len();
        }
        if bytes > MAX_BYTES {
            errors.too_long(&FieldPath::root("data"), MAX_BYTES);
        }
        self.check_type(errors);
    }
}

/// Checks the keys that a Secret's type requires.
trait RequiredKeys {
    fn has(&self, key: &str) -> bool;
    fn check_type(&self, errors: &mut FieldErrors);
    fn check_config(&self, key: &str, errors: &mut FieldErrors);
}

impl RequiredKeys for Secret {
    fn has(&self, key: &str) -> bool {
        self.data.as_ref().is_some_and(|data| data.contains_key(key))
    }

    fn check_type(&self, errors: &mut FieldErrors) {
        let mut need = |keys: &[&str]| {
            for key in keys.iter().filter(|key| !self.has(key)) {
                errors.required(&FieldPath::root("data").key(key), "");
            }
        };
        match self.type_.as_deref().unwrap_or_default() {
            "kubernetes.io/service-account-token" => {
                let account = self.metadata.annotations.as_ref().and_then(|all| all.get(ACCOUNT));
                if account.is_none_or(String::is_empty) {
                    errors.required(&FieldPath::root("metadata").child("annotations").key(ACCOUNT), "");
                }
            }
            "kubernetes.io/dockercfg" => self.check_config(".dockercfg", errors),
            "kubernetes.io/dockerconfigjson" => self.check_config(".dockerconfigjson", errors),
            "kubernetes.io/basic-auth" if !self.has("username") && !self.has("password") => {
                need(&["username", "password"]);
            }
            "kubernetes.io/ssh-auth" => need(&["ssh-privatekey"]),
            "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
            _ => {}
        }
    }

    fn check_config(&self, key: &str, errors: &mut FieldErrors) {
        let path = FieldPath::root("data").key(key);
        match self.data.as_ref().and_then(|data| data.get(key)) {
            None => errors.required(&path, ""),
            Some(text) => {
                if let Some(error) = json_syntax::find_error(&text.0).or_else(|| map_problem(&text.0)) {
                    errors.invalid(&path, "<secret contents redacted>", &error);
                }
            }
        }
    }
}
