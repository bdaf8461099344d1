//! `vars`: values of fields that replace `$(NAME)` in other fields.

use super::BuildResult;
use super::field::{names, visit_path};
use super::file::Var;
use super::id::ResourceId;
use super::references::POD_SPEC_PATHS;
use super::resource::BuildResource;
use super::resource::BuildResources;
use super::rules::Rules;
use crate::object::{Object, value_at_path};
use serde_json::Value;
use std::collections::HashMap;

/// Fields of containers.
const OF_CONTAINERS: [&str; 4] = ["args", "command", "env/value", "volumeMounts/mountPath"];

/// Fields of other kinds; of all kinds if the kind is empty.
const OTHER_FIELDS: [(&str, &str); 10] = [
    ("Deployment", "spec/template/metadata/annotations"),
    ("Ingress", "spec/rules/host"),
    ("Ingress", "spec/tls/hosts"),
    ("Ingress", "spec/tls/secretName"),
    ("Service", "spec/ports/port"),
    ("Service", "spec/ports/targetPort"),
    ("StatefulSet", "spec/volumeClaimTemplates/spec/nfs/server"),
    ("PersistentVolume", "spec/nfs/server"),
    ("", "metadata/labels"),
    ("", "metadata/annotations"),
];

/// The default field.
const NAME: &str = "metadata.name";

/// Adds a layer's variables. Each is recorded at the object that it refers to by its current or a
/// former name.
pub fn add(resources: &mut BuildResources, vars: &[Var]) -> BuildResult {
    for var in vars {
        if resources.1.vars.iter().any(|known| known.name == var.name) {
            return Err(format!("var '{}' already encountered", var.name));
        }
        let found: Vec<usize> = (0..resources.0.len()).filter(|at| is_referenced(&resources.0[*at], var)).collect();
        if found.len() > 1 {
            let many = found.len();
            return Err(format!("found {many} resId matches for var {} (unable to disambiguate)", var.name));
        }
        let path = if var.fieldref.field_path.is_empty() { NAME } else { &var.fieldref.field_path };
        for at in found {
            resources.0[at].vars.push((var.name.clone(), path.to_owned()));
        }
        resources.1.vars.push(var.clone());
    }
    Ok(())
}

fn is_referenced(resource: &BuildResource, var: &Var) -> bool {
    let reference = &var.objref;
    let (group, version) = match reference.api_version.rsplit_once('/') {
        Some((group, version)) => (group, version),
        None if reference.api_version.is_empty() => (reference.group.as_str(), reference.version.as_str()),
        None => ("", reference.api_version.as_str()),
    };
    let is = |id: &ResourceId| {
        let is_place = reference.namespace.is_empty() || id.place().is_none_or(|place| place == reference.namespace);
        id.kind == reference.kind && id.name == reference.name && id.group == group && id.version == version && is_place
    };
    resource.before.iter().any(is) || is(&resource.id())
}

/// Replaces the variables with their values.
pub fn resolve(resources: &mut [BuildResource], rules: &Rules) -> BuildResult {
    if rules.vars.is_empty() {
        return Ok(());
    }
    let mut values = HashMap::new();
    for resource in &*resources {
        for (name, path) in &resource.vars {
            let value = value_at_path(&resource.object.0, path)
                .filter(|value| !value.is_object() && !value.is_array())
                .ok_or_else(|| {
                    format!("field specified in var '{name}' ({path}) not found in corresponding resource")
                })?;
            values.insert(name.clone(), value.clone());
        }
    }
    if let Some(var) = rules.vars.iter().find(|var| !values.contains_key(&var.name)) {
        let name = &var.name;
        return Err(format!("var '{name}' cannot be mapped to a field in the set of known resources"));
    }
    for resource in resources {
        let object = &mut resource.object;
        paths(object).iter().for_each(|path| {
            visit_path(&mut object.0, &names(path), false, &mut |value| expand_in(value, &values));
        });
        rules
            .var_reference
            .iter()
            .for_each(|field| field.for_each_value(object, &mut |value| expand_in(value, &values)));
    }
    Ok(())
}

/// The fields of an object that may contain variables.
fn paths(object: &Object) -> Vec<String> {
    let kind = object.kind();
    let mut paths: Vec<String> = OTHER_FIELDS
        .iter()
        .filter(|(reference, _)| reference.is_empty() || *reference == kind)
        .map(|(_, path)| (*path).to_owned())
        .collect();
    let has_variables = |known: &str| known == kind && known != "ReplicationController";
    if let Some((_, spec)) = POD_SPEC_PATHS.iter().find(|(known, _)| has_variables(known)) {
        let containers = ["containers", "initContainers"];
        let fields = containers.iter().flat_map(|list| OF_CONTAINERS.map(|field| format!("{spec}/{list}/{field}")));
        paths.extend(fields);
        paths.push(format!("{spec}/volumes/nfs/server"));
    }
    paths
}

/// Expands a text, or the texts in a map.
fn expand_in(value: &mut Value, values: &HashMap<String, Value>) {
    match value {
        Value::String(text) => *value = expand(text, values),
        Value::Object(map) => {
            map.values_mut().filter(|value| value.is_string()).for_each(|value| expand_in(value, values))
        }
        _ => {}
    }
}

/// Replaces each known `$(NAME)`; `$$` becomes a dollar sign. A text that is a single variable gets
/// the variable's type.
fn expand(text: &str, values: &HashMap<String, Value>) -> Value {
    let single = text.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')'));
    if let Some(value) = single.and_then(|name| values.get(name)) {
        return value.clone();
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest.strip_prefix("$(").and_then(|rest| rest.split_once(')'));
        match name {
            _ if rest.starts_with("$$") => {
                out.push('$');
                rest = &rest[2..];
            }
            Some((name, after)) => {
                match values.get(name) {
                    Some(Value::String(value)) => out.push_str(value),
                    Some(value) => out.push_str(&value.to_string()),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = after;
            }
            None => {
                out.push('$');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_are_expanded_as_in_kubernetes() {
        let values: HashMap<String, Value> =
            [("NAME".to_owned(), json!("web")), ("PORT".to_owned(), json!(80))].into_iter().collect();
        for (text, expected) in [
            ("$(NAME)", json!("web")),
            ("$(PORT)", json!(80)),
            ("http://$(NAME):$(PORT)/", json!("http://web:80/")),
            ("$$(NAME)", json!("$(NAME)")),
            ("$(OTHER) $5 $(NAME", json!("$(OTHER) $5 $(NAME")),
        ] {
            assert_eq!(expand(text, &values), expected, "{text}");
        }
    }
}
