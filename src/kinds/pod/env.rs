//! Checks of environment variables, and of the sources of variables and volume files.

use super::paths;
use crate::kinds::shared::names;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Quantity;
use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, FileKeySelector, ObjectFieldSelector, PodSpec, ResourceFieldSelector, Volume,
};
use std::collections::BTreeMap;

const SOURCES: &str =
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
const TWO_SOURCES: &str = "may not have more than one field specified at a time";
/// Fields of the pod for variables.
const IN_ENV: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of the pod for files.
const IN_FILES: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields that field selectors of pods support, but neither variables nor files.
const ELSEWHERE: &[&str] = &["spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Divisors of amounts of bytes.
const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Checks variables one by one.
pub fn check(variables: &[EnvVar], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        match variable.name.as_str() {
            "" => errors.required(&path.child("name"), ""),
            name => errors.each_invalid(&path.child("name"), name, names::env(name)),
        }
        check_source(variable, &path.child("valueFrom"), errors);
    }
}

fn check_source(variable: &EnvVar, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(from) = &variable.value_from else { return };
    let mut sources = 0;
    if let Some(field) = &from.field_ref {
        sources += 1;
        check_field(field, IN_ENV, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = &from.resource_field_ref {
        sources += 1;
        check_resource(resource, false, &path.child("resourceFieldRef"), errors);
    }
    let map = from.config_map_key_ref.as_ref().map(|of| ("configMapKeyRef", &of.name, &of.key));
    let secret = from.secret_key_ref.as_ref().map(|of| ("secretKeyRef", &of.name, &of.key));
    for (field, name, key) in map.into_iter().chain(secret) {
        sources += 1;
        check_key(name, key, &path.child(field), errors);
    }
    if let Some(file) = &from.file_key_ref {
        sources += 1;
        check_file_key(file, &path.child("fileKeyRef"), errors);
    }
    let with_value = variable.value.as_ref().is_some_and(|value| !value.is_empty());
    match sources {
        0 => errors.invalid(path, "", SOURCES),
        _ if with_value => errors.invalid(path, "", "may not be specified when `value` is not empty"),
        1 => {}
        _ => errors.invalid(path, "", TWO_SOURCES),
    }
}

fn check_key(name: &str, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    errors.each_invalid(&path.child("name"), name, names::subdomain(name));
    match key {
        "" => errors.required(&path.child("key"), ""),
        key => errors.each_invalid(&path.child("key"), key, names::config_key(key)),
    }
}

/// Checks a file with variables that is read at the container's start.
fn check_file_key(file: &FileKeySelector, path: &FieldPath, errors: &mut FieldErrors) {
    match file.key.as_str() {
        "" => errors.required(&path.child("key"), ""),
        key => errors.each_invalid(&path.child("key"), key, names::env(key)),
    }
    match file.volume_name.as_str() {
        "" => errors.required(&path.child("volumeName"), ""),
        name => errors.each_invalid(&path.child("volumeName"), name, names::label(name)),
    }
    match file.path.as_str() {
        "" => errors.required(&path.child("path"), ""),
        target => paths::check_no_backsteps(target, &path.child("path"), errors),
    }
}

/// Checks the volumes of files with variables. A container of the pod writes such a file, so it is in an emptyDir.
pub fn check_file_volumes(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let volumes = spec.volumes.iter().flatten().map(|volume| (&*volume.name, volume));
    let volumes: BTreeMap<&str, &Volume> = volumes.collect();
    let lists = [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&spec.containers[..]))];
    for (list, containers) in lists {
        for (index, container) in containers.into_iter().flatten().enumerate() {
            for (at, variable) in container.env.iter().flatten().enumerate() {
                let Some(file) = variable.value_from.as_ref().and_then(|from| from.file_key_ref.as_ref()) else {
                    continue;
                };
                let path = path.child(list).index(index).child("env").index(at);
                let (path, name) =
                    (path.child("valueFrom").child("fileKeyRef").child("volumeName"), file.volume_name.as_str());
                match volumes.get(name) {
                    None => errors.not_found(&path, name),
                    Some(volume) if volume.empty_dir.is_some() => {}
                    Some(_) => errors.invalid(&path, name, "referenced volume must be of type emptyDir"),
                }
            }
        }
    }
}

/// Checks `envFrom`.
pub fn check_from(sources: &[EnvFromSource], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, source) in sources.iter().enumerate() {
        let at = path.index(index);
        if let Some(prefix) = source.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
            errors.each_invalid(&at.child("prefix"), prefix, names::env(prefix));
        }
        let map = source.config_map_ref.as_ref().map(|of| ("configMapRef", of.name.as_str()));
        let secret = source.secret_ref.as_ref().map(|of| ("secretRef", of.name.as_str()));
        let named: Vec<_> = map.into_iter().chain(secret).collect();
        for (field, name) in &named {
            let path = at.child(field).child("name");
            match *name {
                "" => errors.required(&path, ""),
                name => errors.each_invalid(&path, name, names::subdomain(name)),
            }
        }
        match named.len() {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", TWO_SOURCES),
        }
    }
}

/// Checks a pod field that a file refers to.
pub fn check_file_field(field: &ObjectFieldSelector, path: &FieldPath, errors: &mut FieldErrors) {
    check_field(field, IN_FILES, path, errors);
}

fn check_field(field: &ObjectFieldSelector, known: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    if field.field_path.is_empty() {
        return errors.required(&path.child("fieldPath"), "");
    }
    let at = path.child("fieldPath");
    let wrong = |what: String| format!("error converting fieldPath: {what}");
    if field.api_version.as_deref() != Some("v1") {
        let version = field.api_version.as_deref().unwrap_or_default();
        return errors.invalid(&at, field.field_path.as_str(), &wrong(format!("unsupported pod version: {version}")));
    }
    let subscript = field.field_path.strip_suffix("']").and_then(|text| text.split_once("['"));
    match subscript {
        Some(("metadata.labels", key)) => errors.each_invalid(path, key, names::qualified(key)),
        Some(("metadata.annotations", key)) => {
            errors.each_invalid(path, key, names::qualified(&key.to_ascii_lowercase()));
        }
        Some((other, _)) => errors.invalid(&at, field.field_path.as_str(), &wrong(unknown_field(other))),
        None if known.contains(&field.field_path.as_str()) => {}
        None if IN_ENV.iter().chain(IN_FILES).chain(ELSEWHERE).any(|name| *name == field.field_path) => {
            errors.unsupported(&at, field.field_path.as_str(), known);
        }
        None => errors.invalid(&at, field.field_path.as_str(), &wrong(unknown_field(&field.field_path))),
    }
}

fn unknown_field(name: &str) -> String {
    format!("field label not supported: {name}")
}

/// Checks a container resource that a file or variable refers to.
pub fn check_resource(resource: &ResourceFieldSelector, in_file: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if in_file && resource.container_name.as_ref().is_none_or(String::is_empty) {
        return errors.required(&path.child("containerName"), "");
    }
    let name = resource.resource.as_str();
    let huge = ["limits.hugepages-", "requests.hugepages-"].iter().any(|start| name.starts_with(start));
    if name.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !huge && !RESOURCES.contains(&name) {
        errors.unsupported(&path.child("resource"), name, RESOURCES);
    }
    check_divisor(resource, path, errors);
}

fn check_divisor(resource: &ResourceFieldSelector, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(divisor) = resource.divisor.as_ref().and_then(|text| Quantity::parse(&text.0).ok()) else { return };
    if divisor.is_zero() {
        return;
    }
    let name = resource.resource.as_str();
    let (known, unit): (&[&str], &str) = match name.split_once('.').map_or("", |(_, unit)| unit) {
        "cpu" => (&["1m", "1"], "cpu"),
        unit @ ("memory" | "ephemeral-storage") => {
            (BYTES, if unit == "memory" { unit } else { "local ephemeral storage" })
        }
        unit if unit.starts_with("hugepages-") => (BYTES, "hugepages"),
        _ => return,
    };
    if !known.contains(&divisor.to_string().as_str()) {
        let detail = format!("only divisor's values {} are supported with the {unit} resource", listed(known));
        errors.invalid(&path.child("divisor"), name, &detail);
    }
}

fn listed(words: &[&str]) -> String {
    match words {
        [one, other] => format!("{one} and {other}"),
        words => words.join(", "),
    }
}
