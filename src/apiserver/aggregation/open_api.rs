//! OpenAPI 2 of extension servers: their part of the document of everything (k8s.io/kube-openapi: pkg/aggregator).
//!
//! Knows: of a server's document the paths of its version count, with the definitions that they name; a definition that the rest describes
//! differently gets another name. Never: asks a server. Start reading at [`OpenApiPart`].

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

const DEFINITION: &str = "#/definitions/";
const PARAMETER: &str = "#/parameters/";
const REFERENCE: &str = "$ref";
/// Maximum number of bytes of the parameters that are written out.
const MAX_PARAMETERS: usize = 4 << 20;

/// The paths and definitions of one version of an extension server.
#[derive(Debug, PartialEq)]
pub struct OpenApiPart {
    /// Differs when the content differs.
    pub hash: u64,
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

impl OpenApiPart {
    /// Selects the part of the version with this path (`/apis/sea.dev/v1`). `None` for a document of another form, and for one that lacks
    /// something that it names: clients refuse a whole document because of it.
    pub fn select(document: &Value, version_path: &str) -> Option<OpenApiPart> {
        let own = format!("{version_path}/");
        let all = document["paths"].as_object().filter(|_| document["swagger"] == "2.0")?;
        let mut paths: Map<String, Value> = all
            .iter()
            .filter(|(path, _)| path.starts_with(&own))
            .map(|(path, item)| (path.clone(), item.clone()))
            .collect();
        let mut left = MAX_PARAMETERS;
        paths.values_mut().try_for_each(|item| insert_parameters(item, &document["parameters"], &mut left))?;
        let (mut waiting, mut definitions) = (Vec::new(), Map::new());
        paths.values().for_each(|item| collect_definitions(item, &mut waiting));
        while let Some(name) = waiting.pop() {
            if !definitions.contains_key(&name) {
                let definition = document["definitions"].get(&name)?;
                collect_definitions(definition, &mut waiting);
                definitions.insert(name, definition.clone());
            }
        }
        let mut hash = DefaultHasher::new();
        (Value::from(paths.clone()).to_string(), Value::from(definitions.clone()).to_string()).hash(&mut hash);
        Some(OpenApiPart { hash: hash.finish(), paths, definitions })
    }

    /// Returns the names of its definitions.
    pub fn definition_names(&self) -> impl Iterator<Item = &str> {
        self.definitions.keys().map(String::as_str)
    }

    /// Adds the part to paths and definitions of others, which keep their names. `definitions` needs to have those with the same names
    /// only, if `is_taken` says which other names are taken.
    pub fn merge_into(
        &self,
        paths: &mut Map<String, Value>,
        definitions: &mut Map<String, Value>,
        is_taken: impl Fn(&str) -> bool,
    ) {
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for (name, definition) in &self.definitions {
            if definitions.get(name).is_some_and(|known| known != definition) {
                let others = (2..).map(|number| format!("{name}_v{number}"));
                let is_free = |other: &String| {
                    !is_taken(other) && !definitions.contains_key(other) && !self.definitions.contains_key(other)
                };
                names.extend(others.into_iter().find(is_free).map(|other| (&**name, other)));
            }
        }
        for (name, definition) in &self.definitions {
            let new_name = names.get(&**name).cloned().unwrap_or_else(|| name.clone());
            definitions.insert(new_name, with_names(definition, &names));
        }
        for (path, item) in &self.paths {
            paths.entry(path.clone()).or_insert_with(|| with_names(item, &names));
        }
    }
}

/// Replaces references to the shared parameters of a document by them; `None` when there is no such parameter, or no byte left.
fn insert_parameters(value: &mut Value, shared: &Value, left: &mut usize) -> Option<()> {
    if let Some(name) = value.get(REFERENCE).and_then(Value::as_str).and_then(|at| at.strip_prefix(PARAMETER)) {
        let parameter = shared.get(name)?;
        *left = left.checked_sub(parameter.to_string().len())?;
        *value = parameter.clone();
        return Some(());
    }
    match value {
        Value::Object(map) => map.values_mut().try_for_each(|value| insert_parameters(value, shared, left)),
        Value::Array(items) => items.iter_mut().try_for_each(|value| insert_parameters(value, shared, left)),
        _ => Some(()),
    }
}

fn collect_definitions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let name = map.get(REFERENCE).and_then(Value::as_str).and_then(|at| at.strip_prefix(DEFINITION));
            found.extend(name.map(str::to_owned));
            map.values().for_each(|value| collect_definitions(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_definitions(value, found)),
        _ => {}
    }
}

/// Returns a value in which the references name definitions by their new names.
fn with_names(value: &Value, names: &BTreeMap<&str, String>) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(field, value)| (field.clone(), renamed(field, value, names))).collect(),
        Value::Array(items) => items.iter().map(|value| with_names(value, names)).collect(),
        _ => value.clone(),
    }
}

fn renamed(field: &str, value: &Value, names: &BTreeMap<&str, String>) -> Value {
    let name = value.as_str().filter(|_| field == REFERENCE).and_then(|at| at.strip_prefix(DEFINITION));
    match name.and_then(|name| names.get(name)) {
        Some(new_name) => format!("{DEFINITION}{new_name}").into(),
        None => with_names(value, names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        let body = json!({"name": "body", "in": "body", "schema": {"$ref": "#/definitions/sea.Fish"}});
        json!({
            "swagger": "2.0",
            "parameters": {"limit-1": {"name": "limit", "in": "query", "type": "integer"}},
            "paths": {
                "/apis/sea.dev/v1/fish": {"post": {"parameters": [body]}, "parameters": [{"$ref": "#/parameters/limit-1"}]},
                "/apis/other.dev/v1/boats": {"get": {"schema": {"$ref": "#/definitions/Boat"}}},
                "/version/": {},
            },
            "definitions": {
                "sea.Fish": {"properties": {"metadata": {"$ref": "#/definitions/Meta"}, "mate": {"$ref": "#/definitions/sea.Fish"}}},
                "Meta": {"type": "object"}, "Boat": {},
            },
        })
    }

    #[test]
    fn part_has_the_paths_of_its_version_and_what_they_name() {
        let part = OpenApiPart::select(&document(), "/apis/sea.dev/v1").expect("a part");
        assert_eq!(part.paths.keys().collect::<Vec<_>>(), ["/apis/sea.dev/v1/fish"]);
        assert_eq!(part.paths["/apis/sea.dev/v1/fish"]["parameters"][0]["name"], "limit");
        assert_eq!(part.definitions.keys().collect::<Vec<_>>(), ["Meta", "sea.Fish"]);
        for lost in ["parameters", "definitions", "swagger"] {
            let mut document = document();
            document.as_object_mut().expect("a document").remove(lost);
            assert_eq!(OpenApiPart::select(&document, "/apis/sea.dev/v1"), None, "{lost}");
        }
        let mut large = document();
        large["parameters"]["limit-1"]["description"] = "x".repeat(MAX_PARAMETERS).into();
        assert_eq!(OpenApiPart::select(&large, "/apis/sea.dev/v1"), None);
    }

    #[test]
    fn differing_definitions_get_another_name() {
        let part = OpenApiPart::select(&document(), "/apis/sea.dev/v1").expect("a part");
        for (known, name) in [(json!({"type": "object"}), "Meta"), (json!({"type": "string"}), "Meta_v2")] {
            let (mut paths, mut definitions) = (Map::new(), Map::new());
            definitions.insert("Meta".to_owned(), known.clone());
            part.merge_into(&mut paths, &mut definitions, |_| false);
            assert_eq!(definitions["Meta"], known);
            assert_eq!(definitions[name], json!({"type": "object"}));
            let properties = &definitions["sea.Fish"]["properties"];
            assert_eq!(properties["metadata"]["$ref"], format!("#/definitions/{name}"));
            assert_eq!(properties["mate"]["$ref"], "#/definitions/sea.Fish");
            assert!(paths.contains_key("/apis/sea.dev/v1/fish"));
        }
    }
}
