//! CustomResourceDefinition (apiextensions.k8s.io/v1).

use super::custom::check_structure;
use super::custom::has_rules;
use super::{DecodeError, Errors, Kind, Path, Typed, UnknownField, omit, typed};
use crate::object::Object;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["crd", "crds"],
    namespaced: false,
    categories: &["api-extensions"],
    unconditional_update: false,
    warnings,
    normalize,
    ..Kind::of::<CustomResourceDefinition>(
        "customresourcedefinitions.apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    )
};

/// Numbers of a schema are floats to the typed form; Go writes whole ones without a fraction.
fn normalize(body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
    fn make_whole(value: &mut Value) {
        match value {
            Value::Number(number) => {
                let whole =
                    number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
                if let Some(whole) = whole {
                    *number = (whole as i64).into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(make_whole),
            Value::Object(fields) => fields.values_mut().for_each(make_whole),
            _ => {}
        }
    }
    let mut definition = typed::normalize::<CustomResourceDefinition>(body, unknown)?;
    make_whole(&mut definition["spec"]);
    Ok(definition)
}

/// What of a definition means nothing here.
fn warnings(definition: &Object) -> Vec<String> {
    let mut warnings = Vec::new();
    if definition.text(&["spec", "conversion", "strategy"]) == Some("Webhook") {
        warnings
            .push("spec.conversion: no webhook is called: the versions of an object differ in their name alone".into());
    }
    for (index, version) in definition.items(&["spec", "versions"]).iter().enumerate() {
        if has_rules(&version["schema"]) {
            warnings.push(format!(
                "spec.versions[{index}].schema.openAPIV3Schema: rules in CEL (x-kubernetes-validations) are kept but not checked"
            ));
        }
    }
    warnings
}

/// What else Kubernetes refuses of a definition.
fn check_declared(definition: &CustomResourceDefinition, errors: &mut Errors) {
    let (spec, path) = (&definition.spec, Path::root("spec"));
    if !spec.group.contains('.') {
        errors.invalid(&path.child("group"), spec.group.as_str(), "should be a domain with at least one dot");
    }
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|group| spec.group == *group || spec.group.strip_suffix(group).is_some_and(|start| start.ends_with('.')));
    let annotations = definition.metadata.annotations.as_ref();
    if is_protected && !annotations.is_some_and(|known| known.contains_key("api-approved.kubernetes.io")) {
        let path = Path::root("metadata").child("annotations").key("api-approved.kubernetes.io");
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        errors.required(&path, detail);
    }
    if spec.preserve_unknown_fields == Some(true) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&path.child("preserveUnknownFields"), true, detail);
    }
    const COLUMNS: [&str; 5] = ["integer", "number", "string", "boolean", "date"];
    for (index, version) in spec.versions.iter().enumerate() {
        for (place, column) in version.additional_printer_columns.iter().flatten().enumerate() {
            if !COLUMNS.contains(&column.type_.as_str()) {
                let path = path.child("versions").index(index).child("additionalPrinterColumns").index(place);
                errors.invalid(
                    &path.child("type"),
                    column.type_.as_str(),
                    "must be one of boolean,date,integer,number,string",
                );
            }
        }
    }
    let stored = definition.status.as_ref().and_then(|status| status.stored_versions.as_ref());
    for (index, name) in stored.into_iter().flatten().enumerate() {
        if !spec.versions.iter().any(|version| version.name == *name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage \
                 migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&Path::root("status").child("storedVersions").index(index), name.as_str(), &detail);
        }
    }
}

/// One version's schema stands for the whole definition's where Kubernetes says what is wrong with it.
fn check_schemas(definition: &CustomResourceDefinition, errors: &mut Errors) {
    let versions = &definition.spec.versions;
    let schemas = versions.iter().map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let schemas: Vec<Option<Value>> = schemas.map(|schema| serde_json::to_value(schema?).ok()).collect();
    let path = Path::root("spec");
    if schemas.iter().all(|schema| *schema == schemas[0]) {
        if let Some(Some(schema)) = schemas.first() {
            check_structure(schema, &path.child("validation").child("openAPIV3Schema"), errors);
        }
        return;
    }
    for (index, schema) in schemas.iter().enumerate() {
        let path = path.child("versions").index(index).child("schema").child("openAPIV3Schema");
        schema.iter().for_each(|schema| check_structure(schema, &path, errors));
    }
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

    fn validate(&self, old: Option<&Self>, errors: &mut Errors) {
        let spec = &self.spec;
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name != format!("{}.{}", spec.names.plural, spec.group) {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            errors.invalid(&Path::root("metadata").child("name"), name, detail);
        }
        let path = Path::root("spec");
        match spec.scope.as_str() {
            "" => errors.required(&path.child("scope"), ""),
            "Cluster" | "Namespaced" => {}
            other => errors.unsupported(&path.child("scope"), other, &["Cluster", "Namespaced"]),
        }
        if spec.versions.iter().filter(|version| version.storage).count() != 1 {
            let detail = "must have exactly one version marked as storage version";
            errors.invalid(&path.child("versions"), json!(spec.versions), detail);
        }
        for (index, version) in spec.versions.iter().enumerate() {
            if version.schema.as_ref().is_none_or(|schema| schema.open_api_v3_schema.is_none()) {
                let path = path.child("versions").index(index).child("schema").child("openAPIV3Schema");
                errors.required(&path, "");
            }
        }
        if errors.0.iter().all(|error| error.field.starts_with("spec.scope")) {
            check_schemas(self, errors);
        }
        check_declared(self, errors);
        if let Some(old) = old {
            errors.immutable(&path.child("group"), &spec.group, &old.spec.group);
            errors.immutable(&path.child("scope"), &spec.scope, &old.spec.scope);
            errors.immutable(&path.child("names").child("kind"), &spec.names.kind, &old.spec.names.kind);
            errors.immutable(&path.child("names").child("plural"), &spec.names.plural, &old.spec.names.plural);
        }
    }
}
