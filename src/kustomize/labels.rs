//! `labels`, `commonLabels` and `commonAnnotations`: added to all objects, and optionally to pod
//! templates and selectors.

use super::field::{BuiltinField, put};
use super::file::{FieldSpec, LabelEntry};
use super::resource::{BuildResource, Origin};
use super::rules::Rules;
use crate::object::Object;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const OWN: BuiltinField = BuiltinField::created("", "metadata/labels");

/// Labels of the templates of workloads.
const TEMPLATES: [BuiltinField; 8] = [
    BuiltinField::created("ReplicationController", "spec/template/metadata/labels"),
    BuiltinField::created("Deployment", "spec/template/metadata/labels"),
    BuiltinField::created("ReplicaSet", "spec/template/metadata/labels"),
    BuiltinField::created("DaemonSet", "spec/template/metadata/labels"),
    BuiltinField::created("StatefulSet", "spec/template/metadata/labels"),
    BuiltinField::created("Job", "spec/template/metadata/labels"),
    BuiltinField::created("CronJob", "spec/jobTemplate/metadata/labels"),
    BuiltinField::created("CronJob", "spec/jobTemplate/spec/template/metadata/labels"),
];

const CLAIMS: BuiltinField = BuiltinField::created("StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels");

/// Selectors of pods.
const SELECTORS: [BuiltinField; 12] = [
    BuiltinField::created("ReplicationController", "spec/selector"),
    BuiltinField::created("Deployment", "spec/selector/matchLabels"),
    BuiltinField::created("ReplicaSet", "spec/selector/matchLabels"),
    BuiltinField::created("DaemonSet", "spec/selector/matchLabels"),
    BuiltinField::created("StatefulSet", "spec/selector/matchLabels"),
    BuiltinField::existing("Job", "spec/selector/matchLabels"),
    BuiltinField::existing("CronJob", "spec/jobTemplate/spec/selector/matchLabels"),
    BuiltinField::existing("PodDisruptionBudget", "spec/selector/matchLabels"),
    BuiltinField::existing("NetworkPolicy", "spec/podSelector/matchLabels"),
    BuiltinField::existing("NetworkPolicy", "spec/ingress/from/podSelector/matchLabels"),
    BuiltinField::existing("NetworkPolicy", "spec/egress/to/podSelector/matchLabels"),
    BuiltinField::created("Service", "spec/selector"),
];

/// Kinds whose pod templates have affinity terms with selectors.
const AFFINITY_KINDS: [&str; 2] = ["Deployment", "StatefulSet"];
const AFFINITY_SELECTORS: [&str; 5] = [
    "spec/template/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "spec/template/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "spec/template/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "spec/template/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels",
];

const ANNOTATIONS: [BuiltinField; 9] = [
    BuiltinField::created("", "metadata/annotations"),
    BuiltinField::created("ReplicationController", "spec/template/metadata/annotations"),
    BuiltinField::created("Deployment", "spec/template/metadata/annotations"),
    BuiltinField::created("ReplicaSet", "spec/template/metadata/annotations"),
    BuiltinField::created("DaemonSet", "spec/template/metadata/annotations"),
    BuiltinField::created("StatefulSet", "spec/template/metadata/annotations"),
    BuiltinField::created("Job", "spec/template/metadata/annotations"),
    BuiltinField::created("CronJob", "spec/jobTemplate/metadata/annotations"),
    BuiltinField::created("CronJob", "spec/jobTemplate/spec/template/metadata/annotations"),
];

/// Adds one entry of `labels`.
pub fn add(resources: &mut [BuildResource], label: &LabelEntry, rules: &Rules) {
    if label.pairs.is_empty() {
        return;
    }
    let selectors = label.include_selectors;
    for resource in resources {
        let object = &mut resource.object;
        let templates = rules.template_labels.iter().filter(|_| !selectors && label.include_templates);
        let selecting = rules.common_labels.iter().filter(|_| selectors);
        for field in label.fields.iter().chain(&rules.labels).chain(templates).chain(selecting) {
            field.for_each_value(object, &mut |value| put(value, &label.pairs));
        }
        let mut put_if = |field: &BuiltinField, wanted: bool| {
            if wanted {
                field.for_each_value(object, &mut |value| put(value, &label.pairs));
            }
        };
        put_if(&OWN, true);
        TEMPLATES.iter().for_each(|field| put_if(field, selectors || label.include_templates));
        put_if(&CLAIMS, selectors || label.include_volume_claim_templates);
        SELECTORS.iter().for_each(|field| put_if(field, selectors));
        for kind in AFFINITY_KINDS {
            AFFINITY_SELECTORS.iter().for_each(|path| put_if(&BuiltinField::existing(kind, path), selectors));
        }
    }
}

/// Converts annotation values that are not strings to strings, as kustomize does for objects that
/// it reads.
pub fn annotations_to_text(object: &mut Object, origin: &Origin) {
    let is_text = |value: &Value| value.is_string();
    let Some(Value::Object(values)) = object.value_at(&["metadata", "annotations"]) else { return };
    if values.values().all(is_text) {
        return;
    }
    let text = |(key, value): (&String, &Value)| {
        let path = [&origin.path_prefix, "metadata", "annotations", key].into_iter().filter(|part| !part.is_empty());
        let path = path.map(|part| part.to_owned()).collect::<Vec<_>>().join(".");
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(_) | Value::Object(_) => String::new(),
            Value::Null if !origin.document.without_value(vec![path]).is_empty() => String::new(),
            value => value.to_string(),
        };
        (key.clone(), Value::String(text))
    };
    let texts: Map<String, Value> = values.iter().map(text).collect();
    object.set(&["metadata", "annotations"], texts);
}

/// Adds labels or annotations in these fields.
pub fn put_at(resources: &mut [BuildResource], pairs: &BTreeMap<String, String>, fields: &[FieldSpec]) {
    for resource in resources.iter_mut().filter(|_| !pairs.is_empty()) {
        fields.iter().for_each(|field| field.for_each_value(&mut resource.object, &mut |value| put(value, pairs)));
    }
}

/// Adds `commonLabels`.
pub fn add_common(resources: &mut [BuildResource], pairs: &BTreeMap<String, String>, rules: &Rules) {
    let rules = Rules { labels: Vec::new(), ..rules.clone() };
    add(resources, &LabelEntry { pairs: pairs.clone(), include_selectors: true, ..LabelEntry::default() }, &rules);
}

/// Adds `commonAnnotations`.
pub fn annotate(resources: &mut [BuildResource], pairs: &BTreeMap<String, String>, rules: &Rules) {
    for resource in resources.iter_mut().filter(|_| !pairs.is_empty()) {
        ANNOTATIONS.iter().for_each(|field| field.for_each_value(&mut resource.object, &mut |value| put(value, pairs)));
    }
    put_at(resources, pairs, &rules.common_annotations);
}
