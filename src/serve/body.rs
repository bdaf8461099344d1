//! Reading of request bodies: JSON, YAML as kubectl reads it, or protobuf.

use super::ServeResult;
use super::protobuf::{self, PROTOBUF, ProtobufError};
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use crate::apiserver::{FieldValidation, WrittenBody};
use crate::go::json_syntax;
use crate::kinds::shared::field;
use crate::kinds::{self, FieldErrors, FieldPath};
use crate::object::patch::is_deeper_than;
use crate::object::yaml::DuplicateKey;
use crate::object::{Object, Reason, Status, format_hex, yaml};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Error message for other media types.
const UNSUPPORTED_MEDIA_TYPE: &str = "the body of the request was in an unknown format - accepted media types include: application/json, \
                      application/yaml, application/vnd.kubernetes.protobuf";
/// Error message of a resource without protobuf encoding.
const NO_PROTOBUF: &str = "the body of the request was in an unknown format - accepted media types include: application/json, \
                           application/yaml";
/// The fields of the struct that Go reads the kind of a body into.
const TYPE_FIELDS: &str = r#"APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"""#;
/// Maximum length of an unreadable body in the error message.
const MAX_SHOWN_BYTES: usize = 1024;

/// Returns the body of a request. `api_version` and `kind` are for protobuf bodies and errors.
pub fn value(request: &ApiRequest, (api_version, kind): (&str, &str)) -> ServeResult<Value> {
    let media = media_type(request);
    let read = match media {
        "" | "application/json" => read_json(&request.body),
        "application/yaml" => from_yaml(&request.body),
        media => match (media, protobuf::is_known(api_version, kind)) {
            (PROTOBUF, true) => return from_protobuf(&request.body, api_version, kind),
            (_, true) => return Err(unsupported(UNSUPPORTED_MEDIA_TYPE)),
            (_, false) => return Err(unsupported(NO_PROTOBUF)),
        },
    };
    let unread =
        |why| unrecognized(&request.body, kind, &format!("couldn't get version/kind; json parse error: {why}"));
    read.map_err(unread)
}

/// Returns the body of a request for an object that is not stored, whose fields have the types of `T`.
pub fn typed<T: DeserializeOwned>(request: &ApiRequest, (api_version, kind): (&str, &str)) -> ServeResult<Value> {
    let body = value(request, (api_version, kind))?;
    check_type::<T>(&body, (api_version, kind))?;
    Ok(body)
}

/// Refuses a body whose fields do not have the types of `T`.
pub fn check_type<T: DeserializeOwned>(body: &Value, (api_version, kind): (&str, &str)) -> ServeResult<()> {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let refuse = |error| format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}");
    kinds::catalogue::typed::read::<T>(body, &mut |_| {}).map(drop).map_err(|error| Status::bad_request(refuse(error)))
}

/// Reads a body of any kind: JSON, YAML, or protobuf of a built-in kind; `None` for all others.
pub fn read_any(request: &ApiRequest) -> Option<Value> {
    let is_yaml = media_type(request) != PROTOBUF;
    read_document(&request.body).or_else(|| from_yaml(&request.body).ok().filter(|_| is_yaml))
}

/// Reads a document of any kind: JSON, or protobuf of a built-in kind; `None` for all others.
pub fn read_document(bytes: &[u8]) -> Option<Value> {
    match protobuf::is_document(bytes) {
        true => protobuf::decode_document(bytes, "", "").ok(),
        false => serde_json::from_slice(bytes).ok(),
    }
}

fn media_type(request: &ApiRequest) -> &str {
    request.content_type.split(';').next().unwrap_or_default().trim()
}

fn from_protobuf(body: &[u8], api_version: &str, kind: &str) -> ServeResult<Value> {
    let read = protobuf::decode_document(body, api_version, kind);
    let value = read.map_err(|ProtobufError { of, reason }| match of {
        None => unrecognized(body, kind, &reason),
        Some((own_version, own)) => {
            let version = own_version.rsplit('/').next().unwrap_or_default();
            Status::bad_request(format!("{own} in version {version:?} cannot be handled as a {kind}: {reason}"))
        }
    })?;
    if is_deeper_than(&value, yaml::MAX_DEPTH) {
        return Err(unrecognized(body, kind, &format!("exceeded max depth of {}", yaml::MAX_DEPTH)));
    }
    Ok(value)
}

fn unrecognized(body: &[u8], kind: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        shown(body)
    ))
}

fn unsupported(text: &str) -> Status {
    Status::new(Reason::UnsupportedMediaType, text)
}

/// Parses a JSON object; the error has Go's wording.
pub fn read_json(body: &[u8]) -> std::result::Result<Value, String> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| json_syntax::find_error(body).unwrap_or_else(|| error.to_string()))?;
    match &value {
        Value::Object(_) if is_deeper_than(&value, yaml::MAX_DEPTH) => {
            Err(format!("exceeded max depth of {}", yaml::MAX_DEPTH))
        }
        Value::Object(_) => Ok(value),
        // Go leaves the value as it is.
        Value::Null => Ok(json!({})),
        other => {
            Err(format!("json: cannot unmarshal {} into Go value of type struct {{ {TYPE_FIELDS} }}", json_type(other)))
        }
    }
}

/// The type of a value in Go's errors of decoding.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    }
}

/// Parses a YAML map, which includes JSON.
pub fn from_yaml(body: &[u8]) -> std::result::Result<Value, String> {
    let unread = |error: yaml::YamlError| format!("error converting YAML to JSON: {error}");
    let text = yaml::decode_bytes(body).map_err(|error| error.to_string())?;
    let mut documents = yaml::documents(&text).map_err(unread)?;
    match documents.len() {
        1 if documents[0].value.is_object() => Ok(documents.remove(0).value),
        0 => Err("unexpected end of JSON input".into()),
        1 => {
            let found = json_type(&documents[0].value);
            let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            Err(format!("error unmarshaling JSON: while decoding JSON: {why}"))
        }
        several => Err(format!("{several} documents where one is expected")),
    }
}

/// Returns the beginning of a body: as text when it looks like JSON, else in hexadecimal digits.
fn shown(body: &[u8]) -> String {
    let part = &body[..body.len().min(MAX_SHOWN_BYTES)];
    let text = match part.first() {
        None => return "<empty>".into(),
        Some(b'{') => String::from_utf8_lossy(part).into_owned(),
        Some(_) => format_hex(part),
    };
    if body.len() > MAX_SHOWN_BYTES { format!("{text} ...") } else { text }
}

/// Returns the text of a body, for the complaints about its fields.
pub fn read_written_body(request: &ApiRequest, validation: FieldValidation) -> Option<WrittenBody> {
    // In protobuf, repeated fields are valid: the last value counts.
    if validation == FieldValidation::Ignore || media_type(request) == PROTOBUF {
        return None;
    }
    let document = yaml::documents(&yaml::decode_bytes(&request.body).ok()?).ok()?.pop()?;
    Some(WrittenBody::new(document, media_type(request) == "application/yaml"))
}

/// Returns the warnings about keys that the configuration of a server-side apply contains twice, in the words of go-yaml. Strict validation
/// refuses them.
pub fn duplicate_key_warnings(body: &[u8], validation: FieldValidation) -> ServeResult<Vec<String>> {
    if validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let document = yaml::decode_bytes(body).ok().and_then(|text| yaml::documents(&text).ok()?.pop());
    let twice = document.map(|document| document.duplicates).unwrap_or_default();
    let text = |DuplicateKey { key, line, .. }: &DuplicateKey| format!("line {line}: key {key:?} already set in map");
    let warnings: Vec<String> = twice.iter().map(text).collect();
    if warnings.is_empty() || validation == FieldValidation::Warn {
        return Ok(warnings);
    }
    let errors = warnings.join("\n  ");
    Err(Status::bad_request(format!(
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {errors}"
    )))
}

/// Returns the object in the body of a request: fills in its kind and namespace from the path, or checks them.
pub fn object(request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult<Object> {
    let body = value(request, (&asked.api_version, asked.kind.kind))?;
    if asked.kind.custom.is_some() {
        check_type_is_named(request, &body, asked)?;
    }
    check_object(body, asked)
}

/// Refuses a custom resource whose body leaves out its kind or version: there is no typed form that would provide them.
fn check_type_is_named(request: &ApiRequest, body: &Value, asked: &ResolvedTarget<'_>) -> ServeResult<()> {
    let has = |field: &str| body[field].as_str().is_some_and(|text| !text.is_empty());
    if !has("kind") {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&request.body));
        return Err(unrecognized(&request.body, asked.kind.kind, &why));
    }
    if has("apiVersion") { Ok(()) } else { Err(other_version("", asked)) }
}

fn other_version(found: &str, asked: &ResolvedTarget<'_>) -> Status {
    let expected = &asked.api_version;
    Status::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    ))
}

/// Like [`object`], for a body that was read already.
pub fn check_object(body: Value, asked: &ResolvedTarget<'_>) -> ServeResult<Object> {
    let kind = asked.kind;
    let mut object = Object(body);
    for (field, own) in [("apiVersion", asked.api_version.as_str()), ("kind", kind.kind)] {
        match object.value_at(&[field]) {
            None | Some(Value::Null) => object.set(&[field], own),
            Some(Value::String(text)) if text.is_empty() => object.set(&[field], own),
            Some(_) => {}
        }
    }
    check_kind(&object, asked)?;
    place(&mut object, asked)?;
    Ok(object)
}

fn check_kind(object: &Object, asked: &ResolvedTarget<'_>) -> ServeResult<()> {
    let (kind, found) = (asked.kind, (object.api_version(), object.kind()));
    if found == (asked.api_version.as_str(), kind.kind) {
        return Ok(());
    }
    let group = |api_version: &str| api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    // Kubernetes knows several versions of a built-in kind, all of one group.
    let is_known = found.1 == kind.kind && found.0.contains('/') && group(found.0) == group(&asked.api_version);
    if is_known || kind.custom.is_some() && found.0 != asked.api_version {
        return Err(other_version(found.0, asked));
    }
    if kind.custom.is_some() {
        // The strategy of custom resources refuses it, and the message contains the object's own kind.
        let mut errors = FieldErrors::default();
        errors.invalid(&FieldPath::root("kind"), found.1, &format!("must be {}", kind.kind));
        return Err(field::invalid(found.1, kind.resource, object.name(), &errors.0));
    }
    let version = found.0.rsplit('/').next().unwrap_or_default();
    let why = kinds::wrong_kind(kind, found.0, found.1);
    Err(Status::bad_request(format!("{} in version {version:?} cannot be handled as a {}: {why}", found.1, kind.kind)))
}

/// Sets the namespace of the path, or checks that the object has it.
fn place(object: &mut Object, asked: &ResolvedTarget<'_>) -> ServeResult<()> {
    let Some(namespace) = asked.namespace else {
        if object.value_at(&["metadata", "namespace"]).is_some() && object.namespace().is_empty() {
            object.unset(&["metadata", "namespace"]);
        }
        // As in Kubernetes, the namespace of a cluster-scoped object is dropped.
        if !asked.kind.namespaced {
            object.unset(&["metadata", "namespace"]);
        }
        return match object.namespace() {
            "" => Ok(()),
            _ => Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )),
        };
    };
    match object.value_at(&["metadata", "namespace"]) {
        Some(Value::String(own)) if !own.is_empty() && own != namespace => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        // A value that is not text is refused when the object is decoded.
        Some(Value::String(own)) if !own.is_empty() => Ok(()),
        Some(other) if !other.is_null() && !other.is_string() => Ok(()),
        _ if object.value_at(&["metadata"]).is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) => {
            Ok(())
        }
        _ => {
            object.set(&["metadata", "namespace"], namespace);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_body_is_shown_in_the_error() {
        let read = |content_type: &str, body: &str| {
            let request = ApiRequest { content_type: content_type.into(), body: body.into(), ..ApiRequest::default() };
            value(&request, ("v1", "ConfigMap")).map_err(|status| (status.reason.code(), status.message))
        };
        let unread = |why: &str| {
            Err((
                400,
                format!(
                    "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: {why}"
                ),
            ))
        };
        assert_eq!(read("", "{\"a\":"), unread("unexpected end of JSON input ({\"a\":)"));
        let told = "invalid character 'n' looking for beginning of object key string ({nope)";
        assert_eq!(read("", "{nope"), unread(told));
        assert_eq!(read("application/json", ""), unread("unexpected end of JSON input (<empty>)"));
        assert_eq!(
            read("", "[]"),
            unread(&format!("json: cannot unmarshal array into Go value of type struct {{ {TYPE_FIELDS} }} (5b5d)"))
        );
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(115), "]".repeat(115));
        assert!(read("", &deep).is_err_and(|(_, text)| text.contains("exceeded max depth")));
        assert_eq!(read("application/yaml; charset=utf-8", "a: yes"), Ok(serde_json::json!({"a": true})));
        let protobuf = |body: &str| read(PROTOBUF, body).unwrap_err();
        let told = "the object provided is unrecognized (must be of type ConfigMap): ";
        let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        assert_eq!(protobuf("k8s"), (400, format!("{told}{prefix} (6b3873)")));
        assert_eq!(protobuf(""), (400, format!("{told}empty data (<empty>)")));
        let half = "k8s\0\n\x0f\n\x02v1\x12\tConfigMap\x12\x02\n\x05";
        let told = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: unexpected EOF";
        assert_eq!(protobuf(half), (400, told.to_owned()));
    }
}
