//! ServiceAccount (core/v1).

use super::catalogue::{merge_rules, shapes};
use super::shared::omit;
use super::view;
use super::{FieldErrors, Kind, Typed};
use crate::object::Object;
use crate::object::merge::schema::MergeSchema;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["sa"],
    status: false,
    generation: false,
    merge_rules: &MERGE_RULES,
    shape: &SHAPE,
    returns_deleted: true,
    ..Kind::new::<ServiceAccount>("serviceaccounts", "v1", "ServiceAccount", &view::service_account::VIEW)
};

static MERGE_RULES: MergeSchema =
    MergeSchema::new(&[merge_rules::META, ("secrets", merge_rules::list("name", &merge_rules::ANY))]);
static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("secrets", shapes::keyed_atomic_list(&[("name", None)]))]);

impl Typed for ServiceAccount {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        omit::empty(&mut self.secrets);
        omit::empty(&mut self.image_pull_secrets);
    }

    /// Keeps only the names of secrets, which are in the account's namespace.
    fn prepare(new: &mut Object, _old: Option<&Object>) {
        let secrets = new.0.get_mut("secrets").and_then(Value::as_array_mut);
        for secret in secrets.into_iter().flatten() {
            let name = secret["name"].as_str().map(str::to_owned);
            *secret = name.map_or_else(|| json!({}), |name| json!({"name": name}));
        }
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut FieldErrors) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_keep_only_their_names() {
        let mut account = Object(json!({"secrets": [{"kind": "Secret", "name": "a", "namespace": "b"}, {"uid": "u"}]}));
        (KIND.prepare)(&mut account, None);
        assert_eq!(account.0, json!({"secrets": [{"name": "a"}, {}]}));
    }
}
