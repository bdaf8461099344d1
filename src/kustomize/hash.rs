//! The suffix of a generated name: a hash of the content, so that references change with the
//! content.

use super::resource::BuildResource;
use crate::go::json::to_json;
use crate::object::{Object, format_hex};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// Number of characters of the hash in a name.
const LENGTH: usize = 10;

/// Appends the hash to the names of generated objects.
pub fn add(resources: &mut [BuildResource]) {
    for resource in resources.iter_mut().filter(|resource| resource.hashed) {
        resource.rename(&format!("{}-{}", resource.object.name(), content_hash(&resource.object)));
    }
}

/// Returns the hash of a ConfigMap's or Secret's content like kustomize: of Go's JSON with an empty
/// name. Some characters are replaced, so that the hash spells no bad words.
fn content_hash(object: &Object) -> String {
    hash_content(object, "", &Value::from(""))
}

/// Returns the hash of a ConfigMap's or Secret's content and name, as `kubectl create --append-hash` appends it.
pub fn hash_with_name(object: &Object) -> String {
    hash_content(object, object.name(), &Value::Null)
}

fn hash_content(object: &Object, name: &str, no_data: &Value) -> String {
    let data = object.value_at(&["data"]).unwrap_or(no_data);
    let part = |name: &str| object.value_at(&[name]).cloned().unwrap_or_else(|| "".into());
    let mut encoded = json!({"kind": object.kind(), "name": name, "data": data});
    let mut more = |name: &str, always: bool| {
        if always || object.value_at(&[name]).is_some_and(Value::is_object) {
            encoded[name] = part(name);
        }
    };
    if object.kind() == "Secret" {
        more("type", true);
        more("stringData", false);
    } else {
        more("binaryData", false);
    }
    let hex = format_hex(digest(&SHA256, to_json(&encoded).as_bytes()));
    let letter = |c| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        c => c,
    };
    hex.chars().take(LENGTH).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_with_names_equal_those_of_kubectl() {
        for (data, expected) in [
            (json!({}), "42745tchd9"),
            (json!({"one": ""}), "9g67k2htb6"),
            (json!({"two": "2", "one": "", "three": "3"}), "f5h7t85m9b"),
        ] {
            let object = Object(json!({"kind": "ConfigMap", "metadata": {"name": ""}, "data": data}));
            assert_eq!(hash_with_name(&object), expected);
        }
    }

    #[test]
    fn hashes_equal_those_of_kustomize() {
        // The first is from a recorded conversation, the others are from kustomize's own tests.
        for (object, expected) in [
            (json!({"kind": "ConfigMap", "metadata": {"name": "gen"}, "data": {"a": "1", "b": "two"}}), "5m9tg7g54f"),
            (json!({"kind": "ConfigMap"}), "6ct58987ht"),
            (json!({"kind": "ConfigMap", "data": {"one": ""}}), "9g67k2htb6"),
            (json!({"kind": "ConfigMap", "data": {"two": 2, "one": "", "three": 3}}), "7757f9kkct"),
            (json!({"kind": "ConfigMap", "data": {"one": ""}, "binaryData": {"two": ""}}), "698h7c7t9m"),
            (json!({"kind": "Secret", "type": "my-type"}), "5gmgkf8578"),
            (json!({"kind": "Secret", "type": "my-type", "data": {"one": ""}}), "74bd68bm66"),
        ] {
            assert_eq!(content_hash(&Object(object.clone())), expected, "{object}");
        }
    }
}
