//! `configurations`: additional fields for the transformers.

use super::BuildResult;
use super::file::{self, FieldSpec, Var};
use super::root::FileText;
use serde::Deserialize;
use serde_json::Value;

/// Additional fields for each transformer.
#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
pub struct Rules {
    pub name_prefix: Vec<FieldSpec>,
    pub name_suffix: Vec<FieldSpec>,
    pub namespace: Vec<FieldSpec>,
    pub common_labels: Vec<FieldSpec>,
    pub labels: Vec<FieldSpec>,
    pub template_labels: Vec<FieldSpec>,
    pub common_annotations: Vec<FieldSpec>,
    pub name_reference: Vec<NameReference>,
    pub var_reference: Vec<FieldSpec>,
    pub images: Vec<FieldSpec>,
    pub replicas: Vec<FieldSpec>,
    /// The variables of all layers so far.
    #[serde(skip)]
    pub vars: Vec<Var>,
}

/// A kind, and the fields of other kinds that refer to it by name.
#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
pub struct NameReference {
    pub kind: String,
    pub field_specs: Vec<FieldSpec>,
}

impl Rules {
    /// Parses a file of rules. As in kustomize, unknown fields are ignored, and the case of names
    /// does not matter.
    pub fn read(text: &FileText) -> BuildResult<Rules> {
        let mut rules = Rules::default();
        for document in file::documents(text)? {
            let value = with_known_names(document.value);
            let read: Rules = serde_json::from_value(value)
                .map_err(|error| format!("{}: invalid transformer configuration: {error}", text.shown.display()))?;
            rules.merge(read);
        }
        Ok(rules)
    }

    /// Adds other rules.
    pub fn merge(&mut self, other: Rules) {
        let lists = [
            (&mut self.name_prefix, other.name_prefix),
            (&mut self.name_suffix, other.name_suffix),
            (&mut self.namespace, other.namespace),
            (&mut self.common_labels, other.common_labels),
            (&mut self.labels, other.labels),
            (&mut self.template_labels, other.template_labels),
            (&mut self.common_annotations, other.common_annotations),
            (&mut self.var_reference, other.var_reference),
            (&mut self.images, other.images),
            (&mut self.replicas, other.replicas),
        ];
        for (mine, more) in lists {
            // Do not change a field twice.
            let known = |list: &[FieldSpec], one: &FieldSpec| {
                let parts = |spec: &FieldSpec| [&spec.group, &spec.version, &spec.kind, &spec.path].map(Clone::clone);
                list.iter().any(|other| parts(other) == parts(one))
            };
            for spec in more {
                if !known(mine, &spec) {
                    mine.push(spec);
                }
            }
        }
        self.name_reference.extend(other.name_reference);
        self.vars.extend(other.vars);
    }
}

/// Field names in their canonical case.
const NAMES: [&str; 13] = [
    "namePrefix",
    "nameSuffix",
    "namespace",
    "commonLabels",
    "labels",
    "templateLabels",
    "commonAnnotations",
    "nameReference",
    "varReference",
    "images",
    "replicas",
    "fieldSpecs",
    "kind",
];

fn with_known_names(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_known_names).collect(),
        Value::Object(map) => {
            let known = |name: String| match NAMES.iter().find(|known| known.eq_ignore_ascii_case(&name)) {
                Some(known) => (*known).to_owned(),
                None => name,
            };
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (known(name), with_known_names(value))).collect())
        }
        value => value,
    }
}
