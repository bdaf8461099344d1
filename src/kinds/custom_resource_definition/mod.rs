//! CustomResourceDefinition (apiextensions.k8s.io/v1).

pub mod approval;
mod check;
mod conversion;
mod warnings;

pub use conversion::has_unreadable_bundle;

use super::catalogue::{shapes, typed};
use super::custom::{Uncompiled, has_rules};
use super::shared::omit;
use super::{DecodeError, FieldError, FieldErrors, Kind, Typed, UnknownField};
use crate::kinds::view;
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use crate::object::whole_number::make_whole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["crd", "crds"],
    namespaced: false,
    categories: &["api-extensions"],
    unconditional_update: false,
    warnings: warnings::warn_about_schemas,
    normalize,
    shape: &SHAPE,
    ..Kind::new::<CustomResourceDefinition>(
        "customresourcedefinitions.apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        &view::table_only::CUSTOM_RESOURCE_DEFINITION,
    )
};

/// Port of the Service behind a conversion webhook.
const HTTPS: i32 = 443;

static SHAPE: StructShape =
    StructShape::new(&[shapes::META, ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))), shapes::STATUS]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("names", shapes::in_place(shapes::map(&shapes::ANY)))]);

/// Writes whole numbers of a schema without a fraction, as Go does; the typed form has floats.
fn normalize(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    let mut definition = typed::normalize::<CustomResourceDefinition>(body, unknown)?;
    make_whole(&mut definition["spec"]);
    Ok(definition)
}

/// The schemas of a definition, which was `old` before, whose rules are not compiled yet.
pub fn uncompiled(definition: &Object, old: Option<&Object>) -> Vec<Uncompiled> {
    if !definition.items(&["spec", "versions"]).iter().any(|version| has_rules(&version["schema"])) {
        return Vec::new();
    }
    let read = |object: &Object| CustomResourceDefinition::deserialize(&object.0).ok();
    read(definition).map(|definition| check::uncompiled(&definition, old.and_then(read).as_ref())).unwrap_or_default()
}

/// Checks the status of a definition that a client writes.
pub fn check_status(definition: &Object) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    if let Ok(definition) = CustomResourceDefinition::deserialize(&definition.0) {
        check::check_status(&definition, &mut errors);
    }
    errors.0
}

impl Typed for CustomResourceDefinition {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let names = &mut self.spec.names;
        omit::empty(&mut names.singular);
        omit::empty(&mut names.list_kind);
        omit::empty(&mut names.short_names);
        omit::empty(&mut names.categories);
        names.singular.get_or_insert_with(|| names.kind.to_lowercase());
        names.list_kind.get_or_insert_with(|| format!("{}List", names.kind));
        omit::empty(&mut self.spec.preserve_unknown_fields);
        let conversion = self.spec.conversion.get_or_insert_default();
        if conversion.strategy.is_empty() {
            conversion.strategy = "None".to_owned();
        }
        let client = conversion.webhook.as_mut().and_then(|webhook| webhook.client_config.as_mut());
        if let Some(service) = client.and_then(|client| client.service.as_mut()) {
            service.port.get_or_insert(HTTPS);
        }
        self.status.get_or_insert_default();
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        let versions = new.items(&["spec", "versions"]).iter();
        let stored = versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone());
        let stored: Vec<_> = stored.collect();
        if let Some(old) = old {
            let mut known = old.items(&["status", "storedVersions"]).to_vec();
            known.extend(
                stored.into_iter().filter(|version| !old.items(&["status", "storedVersions"]).contains(version)),
            );
            new.set(&["status", "storedVersions"], known);
        } else {
            new.set(&["status"], json!({"acceptedNames": {"kind": "", "plural": ""}, "storedVersions": stored}));
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        check::check(self, old, errors);
        check::check_status(self, errors);
    }
}
