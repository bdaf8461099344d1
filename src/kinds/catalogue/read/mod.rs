//! Decodes JSON to typed forms like Go's decoder, with its error messages.
//!
//! Reports unknown fields, and stores quantities, which may be numbers, in canonical form.
//! Never: depends on a kind. Start reading at [`TypedReader`].

mod error;
mod go_types;
mod guess;

use super::super::shared::omit::ZERO_TIME;
use crate::go::base64;
use crate::object::{Quantity, time};
pub use error::DecodeError;
pub use go_types::is_text_type;
use guess::ElementGuess;
use itertools::Itertools;
use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::cell::{Cell, RefCell};

/// A field that is not in the typed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Path of the field, such as `spec.template.spec.containers[0].evn`.
    pub path: String,
    /// The most similar known field, such as `env`.
    pub nearest: Option<&'static str>,
}

impl UnknownField {
    /// Kubernetes' message.
    pub fn complaint(&self) -> String {
        format!("unknown field \"{}\"", self.path)
    }
}

/// The time of a condition.
pub const LAST_TRANSITION_TIME: &str = "lastTransitionTime";

/// Maximum number of reported unknown fields of one body (sigs.k8s.io/json drops further strict errors).
const MAX_UNKNOWN: usize = 100;
/// Maximum length of a name to compare with known fields, all of which are much shorter; comparing long names is slow.
const MAX_NAME_LENGTH: usize = 100;

/// Receives each unknown field.
pub struct UnknownFieldSink<'u> {
    callback: RefCell<&'u mut dyn FnMut(UnknownField)>,
    reported: Cell<usize>,
}

impl<'u> UnknownFieldSink<'u> {
    /// Creates a sink that reports to a callback.
    pub fn new(callback: &'u mut dyn FnMut(UnknownField)) -> UnknownFieldSink<'u> {
        UnknownFieldSink { callback: RefCell::new(callback), reported: Cell::new(0) }
    }

    fn report(&self, field: impl FnOnce() -> UnknownField) {
        if self.reported.get() < MAX_UNKNOWN {
            self.reported.set(self.reported.get() + 1);
            (self.callback.borrow_mut())(field());
        }
    }
}

/// The known name that is most similar to an unknown one, if the difference is small.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let lower = name.to_ascii_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&lower, &known.to_ascii_lowercase());
    let close = known.iter().map(|known| (distance(known), *known));
    close.filter(|(distance, _)| *distance <= 1 + name.len() / 4).min().map(|(_, known)| known)
}

/// Path of the value being read, from the innermost step outwards.
#[derive(Clone, Copy)]
enum PathStep<'s> {
    Root,
    Field { parent: &'s PathStep<'s>, holder: &'static str, known: &'static [&'static str], name: &'s str },
    Key { parent: &'s PathStep<'s>, name: &'s str },
    Index { parent: &'s PathStep<'s>, index: usize },
}

impl PathStep<'_> {
    /// The path with indexes, such as `spec.containers[0].image`.
    fn path(&self) -> String {
        let below = |parent: &PathStep, name: &str| match parent {
            PathStep::Root => name.to_owned(),
            parent => format!("{}.{name}", parent.path()),
        };
        match self {
            PathStep::Root => String::new(),
            PathStep::Field { parent, name, .. } | PathStep::Key { parent, name } => below(parent, name),
            PathStep::Index { parent, index } => format!("{}[{index}]", parent.path()),
        }
    }

    /// The path in Go's messages, without indexes, such as `spec.containers.image`.
    fn fields(&self) -> String {
        match self {
            PathStep::Root => String::new(),
            PathStep::Field { parent, holder, name, .. } => {
                let embedded = go_types::embedded(holder, name).unwrap_or_default();
                [&parent.fields(), embedded, name].into_iter().filter(|part| !part.is_empty()).join(".")
            }
            PathStep::Key { parent, .. } | PathStep::Index { parent, .. } => parent.fields(),
        }
    }

    /// The struct of the innermost field, and that field.
    fn holder(&self) -> Option<(&'static str, &str)> {
        match self {
            PathStep::Root => None,
            PathStep::Field { holder, name, .. } => Some((holder, name)),
            PathStep::Key { parent, .. } | PathStep::Index { parent, .. } => parent.holder(),
        }
    }
}

/// Reads one value.
pub struct TypedReader<'r, 'u> {
    value: &'r Value,
    at: PathStep<'r>,
    unknown: &'r UnknownFieldSink<'u>,
}

impl<'r, 'u> TypedReader<'r, 'u> {
    /// Reads a whole body.
    pub fn new(value: &'r Value, unknown: &'r UnknownFieldSink<'u>) -> TypedReader<'r, 'u> {
        TypedReader { value, at: PathStep::Root, unknown }
    }

    fn error(&self, message: String) -> DecodeError {
        DecodeError { path: self.at.path(), message, go_type: None }
    }

    /// A type mismatch: `json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32`.
    fn mismatch(&self, go_type: &str) -> DecodeError {
        let found = match self.value {
            Value::Number(number) if go_type.starts_with("int") || go_type.starts_with("uint") => {
                format!("number {number}")
            }
            _ => self.found().to_owned(),
        };
        let Some((holder, field)) = self.at.holder() else {
            let message = format!("json: cannot unmarshal {found} into Go value of type {go_type}");
            return DecodeError { go_type: Some(go_type.to_owned()), ..self.error(message) };
        };
        let named = match go_type.strip_suffix("string") {
            // The key of a map is a plain string.
            Some(outer) if outer != "map[" => format!("{outer}{}", go_types::text_type(holder, field)),
            _ => go_type.to_owned(),
        };
        let place = self.at.fields();
        let message = format!("json: cannot unmarshal {found} into Go struct field {holder}.{place} of type {named}");
        DecodeError { go_type: Some(named), ..self.error(message) }
    }

    fn integer(&self, go_type: &str) -> Result<i64, DecodeError> {
        match self.value {
            // Go keeps the zero value for a null list item.
            Value::Null => Ok(0),
            value => value.as_i64().ok_or_else(|| self.mismatch(go_type)),
        }
    }

    /// The text of a time in UTC, with all its digits.
    fn time(&self, go_type: &str) -> Result<String, DecodeError> {
        let parsed = match self.value {
            // Go keeps the zero value for null, and the type has no other one.
            Value::Null => return Ok(ZERO_TIME.to_owned()),
            Value::String(text) if go_type == "MicroTime" => time::parse_micro(text),
            Value::String(text) => time::parse_rfc3339(text),
            _ => return Err(self.mismatch("string")),
        };
        parsed.map(|time| time.to_string()).map_err(|error| self.error(error.to_string()))
    }

    /// Go's name of the JSON type of the value.
    fn found(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// The stored text of a quantity, which may be written as a number.
    fn quantity(&self) -> Result<String, DecodeError> {
        let text = match self.value {
            Value::String(text) => text.trim().to_owned(),
            Value::Null => return Ok("0".into()),
            other => other.to_string(),
        };
        Quantity::stored_text(&text).map_err(|error| self.error(error.to_string()))
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty, $name:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            let number = <$type>::try_from(self.integer($name)?).map_err(|_| self.mismatch($name))?;
            visitor.$visit(number)
        }
    )*};
}

impl<'de> Deserializer<'de> for TypedReader<'_, '_> {
    type Error = DecodeError;

    integers! {
        deserialize_i8 visit_i8 i8, "int8";
        deserialize_i16 visit_i16 i16, "int16";
        deserialize_i32 visit_i32 i32, "int32";
        deserialize_i64 visit_i64 i64, "int64";
        deserialize_u8 visit_u8 u8, "uint8";
        deserialize_u16 visit_u16 u16, "uint16";
        deserialize_u32 visit_u32 u32, "uint32";
        deserialize_u64 visit_u64 u64, "uint64";
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(known) => visitor.visit_bool(*known),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_i64(number),
                (_, Some(number), _) => visitor.visit_u64(number),
                (_, _, number) => visitor.visit_f64(number.unwrap_or_default()),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Bool(known) => visitor.visit_bool(*known),
            Value::Null => visitor.visit_bool(false),
            _ => Err(self.mismatch("bool")),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let number = self.value.as_f64().ok_or_else(|| self.mismatch("float64"))?;
        visitor.visit_f64(number)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    /// Reads base64 bytes in the way of Go. Texts use `deserialize_string`.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::String(text) => {
                visitor.visit_str(&base64::canonical(text).map_err(|error| self.error(error.to_string()))?)
            }
            _ => Err(self.mismatch("[]uint8")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::String(text) => visitor.visit_str(text),
            // Go keeps the zero value for null, such as the value of a label.
            Value::Null => visitor.visit_str(""),
            _ => Err(self.mismatch("string")),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match name {
            "Quantity" => {
                let text: StringDeserializer<DecodeError> = self.quantity()?.into_deserializer();
                visitor.visit_newtype_struct(text)
            }
            "Time" | "MicroTime" => {
                let text: StringDeserializer<DecodeError> = self.time(name)?.into_deserializer();
                visitor.visit_newtype_struct(text)
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let Some(items) = items_of(self.value) else {
            let guess = ElementGuess { reader: &self, prefix: "[]" };
            return Err(visitor.visit_seq(guess).err().unwrap_or_else(|| self.mismatch("[]")));
        };
        visitor.visit_seq(ListItems { items, next: 0, reader: &self })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let Some(map) = entries_of(self.value) else {
            let guess = ElementGuess { reader: &self, prefix: "map[string]" };
            return Err(visitor.visit_map(guess).err().unwrap_or_else(|| self.mismatch("map[string]")));
        };
        visitor.visit_map(MapEntries { entries: map, absent: None, value: None, holder: None, reader: &self })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Some(map) = entries_of(self.value) else { return Err(self.mismatch(&go_types::struct_type(name))) };
        // The typed form of shared conditions requires the time, which Go leaves at its zero value.
        let absent =
            (name == "Condition" && self.value.get(LAST_TRANSITION_TIME).is_none()).then_some(LAST_TRANSITION_TIME);
        let absent = absent.filter(|field| known.contains(field));
        visitor.visit_map(MapEntries { entries: map, absent, value: None, holder: Some((name, known)), reader: &self })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.unknown.report(|| {
            let nearest = match self.at {
                PathStep::Field { known, name, .. } if name.len() <= MAX_NAME_LENGTH => nearest(name, known),
                _ => None,
            };
            UnknownField { path: self.at.path(), nearest }
        });
        visitor.visit_unit()
    }
}

/// The items of a list; null is an empty list, as in Go.
fn items_of(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        Value::Null => Some(&[]),
        _ => None,
    }
}

/// The entries of a map or the fields of a struct; null has none, as in Go.
fn entries_of(value: &Value) -> Option<Fields<'_>> {
    match value {
        Value::Object(map) => Some(Some(map.iter()).into_iter().flatten()),
        Value::Null => Some(None.into_iter().flatten()),
        _ => None,
    }
}

type Fields<'e> = std::iter::Flatten<std::option::IntoIter<serde_json::map::Iter<'e>>>;

/// The fields of a struct, or the entries of a map.
struct MapEntries<'e, 'r, 'u> {
    entries: Fields<'e>,
    /// A field that is read as null after the others.
    absent: Option<&'static str>,
    value: Option<(&'e str, &'e Value)>,
    /// The struct's name and fields; `None` for a map.
    holder: Option<(&'static str, &'static [&'static str])>,
    reader: &'e TypedReader<'r, 'u>,
}

impl<'de> MapAccess<'de> for MapEntries<'_, '_, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let absent = || self.absent.take().map(|name| (name, &Value::Null));
        let next = self.entries.next().map(|(key, value)| (key.as_str(), value)).or_else(absent);
        let Some((key, value)) = next else { return Ok(None) };
        self.value = Some((key, value));
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeError> {
        let Some((name, value)) = self.value.take() else { return Err(de::Error::custom("value before key")) };
        let parent = &self.reader.at;
        let at = match self.holder {
            Some((holder, known)) => PathStep::Field { parent, holder, known, name },
            None => PathStep::Key { parent, name },
        };
        seed.deserialize(TypedReader { value, at, unknown: self.reader.unknown })
    }
}

/// The items of a list.
struct ListItems<'i, 'r, 'u> {
    items: &'i [Value],
    next: usize,
    reader: &'i TypedReader<'r, 'u>,
}

impl<'de> SeqAccess<'de> for ListItems<'_, '_, '_> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        let Some(value) = self.items.get(self.next) else { return Ok(None) };
        let at = PathStep::Index { parent: &self.reader.at, index: self.next };
        self.next += 1;
        seed.deserialize(TypedReader { value, at, unknown: self.reader.unknown }).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::catalogue::typed;
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use serde_json::json;

    #[test]
    fn decode_errors_have_the_wording_of_go() {
        let table = [
            (json!({"spec": {"priority": "x"}}), "string into Go struct field PodSpec.spec.priority of type int32"),
            (json!({"spec": {"priority": 1.5}}), "number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
            (
                json!({"spec": {"tolerations": {}}}),
                "object into Go struct field PodSpec.spec.tolerations of type []v1.Toleration",
            ),
            (json!({"spec": []}), "array into Go struct field Pod.spec of type v1.PodSpec"),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                json!({"metadata": {"labels": 1}}),
                "number into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (
                json!({"spec": {"restartPolicy": 1}}),
                "number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
            ),
            (
                json!({"spec": {"overhead": 1}}),
                "number into Go struct field PodSpec.spec.overhead of type v1.ResourceList",
            ),
        ];
        for (body, message) in table {
            let error = typed::decode::<Pod>(&body, &mut |_| {}).unwrap_err();
            assert_eq!(error.message, format!("json: cannot unmarshal {message}"));
        }
    }

    #[test]
    fn decode_errors_name_the_types_of_go() {
        let volume = |source: serde_json::Value| json!({"spec": {"volumes": [source]}});
        let table = [
            (
                volume(json!({"emptyDir": {"medium": 1}})),
                "number into Go struct field EmptyDirVolumeSource.spec.volumes.VolumeSource.emptyDir.medium of type v1.StorageMedium",
            ),
            (volume(json!({"name": 1})), "number into Go struct field Volume.spec.volumes.name of type string"),
            (
                json!({"spec": {"containers": [{"livenessProbe": {"exec": "x"}}]}}),
                "string into Go struct field Probe.spec.containers.livenessProbe.ProbeHandler.exec of type v1.ExecAction",
            ),
            (json!({"metadata": {"uid": 1}}), "number into Go struct field ObjectMeta.metadata.uid of type types.UID"),
            (
                json!({"metadata": {"creationTimestamp": 1}}),
                "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
        ];
        for (body, message) in table {
            let error = typed::decode::<Pod>(&body, &mut |_| {}).unwrap_err();
            assert_eq!(error.message, format!("json: cannot unmarshal {message}"));
        }
        for (data, message) in [
            (json!({"a": 1}), "json: cannot unmarshal number into Go struct field Secret.data of type []uint8"),
            (json!([]), "json: cannot unmarshal array into Go struct field Secret.data of type map[string][]uint8"),
            (json!({"a": "YQ"}), "illegal base64 data at input byte 0"),
        ] {
            let error = typed::decode::<Secret>(&json!({"data": data}), &mut |_| {}).unwrap_err();
            assert_eq!(error.message, message);
        }
        let error = typed::decode::<Pod>(&json!({"status": {"startTime": "x"}}), &mut |_| {}).unwrap_err();
        assert_eq!(error.path, "status.startTime");
        assert!(error.message.starts_with("parsing time \"x\" as "), "{error}");
    }

    #[test]
    fn null_items_are_zero_values() {
        let container = json!({"name": "c", "args": [null], "env": [null], "ports": [null]});
        let body =
            json!({"spec": {"containers": [container, null], "securityContext": {"supplementalGroups": [null]}}});
        let spec = typed::decode::<Pod>(&body, &mut |_| {}).unwrap().spec.unwrap();
        assert_eq!(spec.containers[1].name, "");
        assert_eq!(spec.containers[0].args.as_deref(), Some(&[String::new()][..]));
        assert_eq!(spec.containers[0].env.as_ref().map(|all| all[0].name.as_str()), Some(""));
        assert_eq!(spec.containers[0].ports.as_ref().map(|all| all[0].container_port), Some(0));
        assert_eq!(spec.security_context.unwrap().supplemental_groups, Some(vec![0]));
    }

    #[test]
    fn line_breaks_are_removed_only_from_bytes() {
        let body = json!({"metadata": {"annotations": {"a": "x\n"}}, "data": {"a": "YW\nJj\n"}});
        let secret: Secret = typed::decode(&body, &mut |_| {}).unwrap();
        assert_eq!(secret.data.unwrap()["a"].0, b"abc");
        assert_eq!(secret.metadata.annotations.unwrap()["a"], "x\n");
    }

    #[test]
    fn quantities_are_stored_in_canonical_form() {
        let body =
            json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1024Mi"}}}]}});
        let pod: Pod = typed::decode(&body, &mut |_| {}).unwrap();
        let limits = pod.spec.unwrap().containers[0].resources.clone().unwrap().limits.unwrap();
        assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("1", "1Gi"));
    }

    #[test]
    fn unknown_fields_are_reported_by_path() {
        let body = json!({"spec": {"containers": [{"name": "c", "evn": []}], "os": null, "x": 1}});
        let mut unknown = Vec::new();
        typed::decode::<Pod>(&body, &mut |field| unknown.push(field)).unwrap();
        let reported: Vec<_> = unknown.iter().map(|field| (field.path.as_str(), field.nearest)).collect();
        assert_eq!(reported, [("spec.containers[0].evn", Some("env")), ("spec.x", None)]);
    }
}
