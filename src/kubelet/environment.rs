//! A container's environment: variables of Services, then `envFrom`, then `env`; later ones win.

use super::pod::{LocalPod, Member};
use super::{command, fields};
use crate::object::Object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource};
use std::collections::BTreeMap;

/// Variables in order, each name once.
type Variables = Vec<(String, String)>;

/// The environment that a container is started with; or what is missing, in Kubernetes' words.
pub fn of(pod: &LocalPod, member: &Member, ip: &str) -> Result<Variables, String> {
    let mut variables: Variables = services(pod).into_iter().collect();
    for source in member.spec.env_from.iter().flatten() {
        for (name, value) in all_of(pod, source)? {
            set(&mut variables, name, value);
        }
    }
    for variable in member.spec.env.iter().flatten() {
        if let Some(value) = value_of(pod, member, variable, ip, &variables)? {
            set(&mut variables, variable.name.clone(), value);
        }
    }
    Ok(variables)
}

fn set(variables: &mut Variables, name: String, value: String) {
    variables.retain(|(known, _)| *known != name);
    variables.push((name, value));
}

/// The value of one variable; none when it is optional and its source is missing.
fn value_of(
    pod: &LocalPod,
    member: &Member,
    variable: &EnvVar,
    ip: &str,
    known: &Variables,
) -> Result<Option<String>, String> {
    match &variable.value_from {
        Some(source) if variable.value.as_deref().unwrap_or_default().is_empty() => from(pod, member, source, ip),
        _ => Ok(Some(command::expand(variable.value.as_deref().unwrap_or_default(), known))),
    }
}

fn from(pod: &LocalPod, member: &Member, source: &EnvVarSource, ip: &str) -> Result<Option<String>, String> {
    if let Some(field) = &source.field_ref {
        return fields::field(pod, &field.field_path, ip).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        return fields::resource(pod, &member.spec, resource).map(Some);
    }
    if let Some(key) = &source.config_map_key_ref {
        return key_of(pod, &CONFIG_MAP, &key.name, &key.key, key.optional == Some(true));
    }
    if let Some(key) = &source.secret_key_ref {
        return key_of(pod, &SECRET, &key.name, &key.key, key.optional == Some(true));
    }
    if source.file_key_ref.is_some() {
        return Err("environment variables from files (fileKeyRef) are not supported by this node".into());
    }
    Ok(None)
}

/// ConfigMaps and Secrets, alike but for their words and their encoding.
struct Source {
    resource: &'static str,
    word: &'static str,
    kind: &'static str,
    decode: fn(&str) -> String,
}

const CONFIG_MAP: Source =
    Source { resource: "configmaps", word: "configmap", kind: "ConfigMap", decode: |text| text.to_owned() };

const SECRET: Source = Source { resource: "secrets", word: "secret", kind: "Secret", decode: from_base64 };

fn from_base64(text: &str) -> String {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn find(pod: &LocalPod, source: &Source, name: &str, optional: bool) -> Result<Option<Object>, String> {
    match pod.world.find(source.resource, &pod.row.key.namespace, name) {
        Some(row) => Ok(Some(row.object())),
        None if optional => Ok(None),
        None => Err(format!("{} {name:?} not found", source.word)),
    }
}

fn key_of(pod: &LocalPod, source: &Source, name: &str, key: &str, optional: bool) -> Result<Option<String>, String> {
    let Some(object) = find(pod, source, name, optional)? else { return Ok(None) };
    match object.text(&["data", key]) {
        Some(value) => Ok(Some((source.decode)(value))),
        None if optional => Ok(None),
        None => Err(format!("couldn't find key {key} in {} {}/{name}", source.kind, pod.row.key.namespace)),
    }
}

/// Every key of a ConfigMap or Secret, with the prefix.
fn all_of(pod: &LocalPod, source: &EnvFromSource) -> Result<Variables, String> {
    let (kind, name, optional) = if let Some(map) = &source.config_map_ref {
        (&CONFIG_MAP, &map.name, map.optional)
    } else if let Some(secret) = &source.secret_ref {
        (&SECRET, &secret.name, secret.optional)
    } else {
        return Ok(Vec::new());
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let Some(object) = find(pod, kind, name, optional == Some(true))? else { return Ok(Vec::new()) };
    Ok(object.pairs(&["data"]).map(|(key, value)| (format!("{prefix}{key}"), (kind.decode)(value))).collect())
}

/// Variables that tell where Services are: those of the pod's namespace, unless it wants none, and always the API server's.
fn services(pod: &LocalPod) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let namespace = &*pod.row.key.namespace;
    let api_server = pod.world.find("services", "default", "kubernetes");
    if let Some(service) = api_server {
        links(&service.object(), &mut variables);
    }
    if pod.spec.enable_service_links.unwrap_or(true) {
        for service in pod.world.list_in("services", namespace) {
            links(&service.object(), &mut variables);
        }
    }
    variables
}

/// `WEB_SERVICE_HOST` and the variables of Docker's links.
fn links(service: &Object, variables: &mut BTreeMap<String, String>) {
    let Some(ip) = service.text(&["spec", "clusterIP"]).filter(|ip| !ip.is_empty() && *ip != "None") else { return };
    let name = variable_name(service.name());
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    variables.insert(format!("{name}_SERVICE_HOST"), ip.to_owned());
    for (place, port) in service.items(&["spec", "ports"]).iter().enumerate() {
        let number = port["port"].as_i64().unwrap_or(0);
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if place == 0 {
            variables.insert(format!("{name}_SERVICE_PORT"), number.to_string());
            variables.insert(format!("{name}_PORT"), url.clone());
        }
        if let Some(port_name) = port["name"].as_str().filter(|name| !name.is_empty()) {
            variables.insert(format!("{name}_SERVICE_PORT_{}", variable_name(port_name)), number.to_string());
        }
        let link = format!("{name}_PORT_{number}_{protocol}");
        variables.insert(format!("{link}_PROTO"), protocol.to_lowercase());
        variables.insert(format!("{link}_PORT"), number.to_string());
        variables.insert(format!("{link}_ADDR"), ip.to_owned());
        variables.insert(link, url);
    }
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}
