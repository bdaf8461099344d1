//! Reads of stored objects: completes them by the current schema of their version, and shows them in another version.
//!
//! Knows: an object may be older than the definition's schema, which has defaults, and lacks fields, that the object has never passed. An
//! object that was written after the schema is not touched.
//! Never: calls a webhook; [`crate::kinds::custom::ConversionWebhook`] converts in the API server. Start reading at
//! [`CustomDefinition::complete_stored`].

use super::{CustomDefinition, schema};
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::Object;

impl CustomDefinition {
    /// Whether an object was stored before the schemas that are set, so that it needs [`CustomDefinition::complete_stored`].
    pub fn is_older(&self, object: &Object) -> bool {
        self.is_older_than_schemas(object.revision())
    }

    /// Whether a revision is older than the schemas that are set.
    pub fn is_older_than_schemas(&self, revision: u64) -> bool {
        self.schemas.get().is_some_and(|schemas| revision < schemas.revision)
    }

    /// Fills in defaults and drops unknown fields of an object that is older than the schemas.
    pub fn complete_stored(&'static self, object: &mut Object) {
        if self.is_older(object) {
            self.complete(object);
        }
    }

    /// Fills in defaults and drops unknown fields by the schema of the object's version.
    pub fn complete(&'static self, object: &mut Object) {
        let Some(schema) = self.schema(object.api_version()) else { return };
        edit_fields(object, |fields| {
            schema::drop_nulls(schema, fields);
            schema::fill_in(schema, fields);
            schema::prune(schema, fields, &mut |_| {});
        });
    }

    /// Returns the errors of the fields that a server-side apply sets to `null`: as in Kubernetes, it keeps these fields, where other
    /// bodies lose them before they are checked.
    pub fn null_errors(&'static self, object: &Object) -> Vec<FieldError> {
        let mut errors = FieldErrors::default();
        if let Some(schema) = self.schema(object.api_version()) {
            schema::refuse_nulls(schema, &object.0, &FieldPath::default(), &mut errors);
        }
        errors.0
    }

    /// Drops unknown fields by the schema of the object's version, which a webhook has converted it to. As in Kubernetes, an object gets
    /// the defaults of the version in which it is stored and of the one in which it is written, not of the one in which it is read.
    pub fn prune(&'static self, object: &mut Object) {
        let Some(schema) = self.schema(object.api_version()) else { return };
        edit_fields(object, |fields| {
            schema::drop_nulls(schema, fields);
            schema::prune(schema, fields, &mut |_| {});
        });
    }

    /// Changes the version of an object where no webhook converts: the fields that the other version does not know are dropped.
    pub fn relabel(&'static self, object: &mut Object, api_version: &str) {
        if object.api_version() == api_version {
            return;
        }
        object.set(&["apiVersion"], api_version);
        if let Some(schema) = self.schema(api_version) {
            edit_fields(object, |fields| schema::prune(schema, fields, &mut |_| {}));
        }
    }
}

/// Changes an object apart from the fields that every object has.
fn edit_fields(object: &mut Object, edit: impl FnOnce(&mut serde_json::Value)) {
    let mut fields = object.0.take();
    let Some(map) = fields.as_object_mut() else { return };
    let head = ["apiVersion", "kind", "metadata"].into_iter();
    let head: Vec<_> = head.filter_map(|name| Some((name.to_owned(), map.remove(name)?))).collect();
    edit(&mut fields);
    if let Some(map) = fields.as_object_mut() {
        map.extend(head);
    }
    object.0 = fields;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::custom::read_definition;
    use serde_json::{Value, json};

    fn definition(revision: &str) -> Object {
        let schema = |fields: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}});
        Object(json!({
            "metadata": {"name": "boats.stored.dev", "uid": "u", "generation": 1, "resourceVersion": revision},
            "spec": {"group": "stored.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"}, "versions": [
                {"name": "v1", "served": true, "storage": true,
                 "schema": schema(json!({"sail": {"type": "string", "default": "red"}, "crew": {"type": "integer"}}))},
                {"name": "v1alpha1", "served": true, "schema": schema(json!({"sail": {"type": "string"}}))},
            ]},
        }))
    }

    #[test]
    fn older_object_gets_defaults_and_loses_unknown_fields() {
        let definition = definition("7");
        let kind = read_definition(&definition.0.to_string()).and_then(|read| read.into_kind()).expect("a kind");
        let custom = kind.custom.expect("a definition");
        custom.set_schemas(&definition);
        let boat = |revision: &str, spec: Value| {
            Object(
                json!({"apiVersion": "stored.dev/v1", "kind": "Boat", "metadata": {"resourceVersion": revision}, "spec": spec}),
            )
        };
        let mut older = boat("6", json!({"motor": 1, "crew": 2}));
        custom.complete_stored(&mut older);
        assert_eq!(older, boat("6", json!({"sail": "red", "crew": 2})));
        let mut newer = boat("8", json!({"motor": 1}));
        custom.complete_stored(&mut newer);
        assert_eq!(newer, boat("8", json!({"motor": 1})));
        custom.relabel(&mut older, "stored.dev/v1alpha1");
        assert_eq!((older.api_version(), &older.0["spec"]), ("stored.dev/v1alpha1", &json!({"sail": "red"})));
    }
}
