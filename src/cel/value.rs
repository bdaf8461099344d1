//! Values of expressions: constants, results, and views of JSON that convert a part when it is read.
//!
//! Never: calls a function of an expression. Start reading at [`Value`] and [`Value::from_json`].

use super::decl::{Decl, Form, ListKind, Scalar};
use super::foreign::authorizer::Check;
use super::foreign::formats::{Format, decode_base64};
use super::foreign::semver::Semver;
use super::foreign::url::Url;
use super::names::escape;
use crate::object::{Quantity, time};
use jiff::Timestamp;
use serde_json::{Map as JsonMap, Value as Json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The error of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub enum EvalError {
    /// The expression has no value, such as after a division by zero.
    Failed(String),
    /// The evaluation was stopped because it cost too much.
    Costly,
}

impl EvalError {
    /// The error of arguments that no overload takes.
    pub fn no_overload() -> EvalError {
        EvalError::Failed("no such overload".into())
    }
}

impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EvalError::Failed(message) => f.write_str(message),
            EvalError::Costly => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

/// The result of an evaluation.
pub type Evaluated<'v> = Result<Value<'v>, EvalError>;

/// Fails with a message.
pub fn fail<T>(message: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError::Failed(message.into()))
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value<'v> {
    /// `null`
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer without sign.
    Uint(u64),
    /// A number.
    Double(f64),
    /// A text.
    String(Text<'v>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(List<'v>),
    /// A map or an object.
    Map(Map<'v>),
    /// A type, by its name.
    Type(Arc<str>),
    /// A value that may be absent.
    Optional(Option<Arc<Value<'v>>>),
    /// A quantity.
    Quantity(Quantity),
    /// A URL.
    Url(Arc<Url>),
    /// An IP address.
    Ip(IpAddr),
    /// A network: its address and the length of its prefix.
    Cidr(IpAddr, u8),
    /// A named format.
    Format(&'static Format),
    /// A version.
    Semver(Arc<Semver>),
    /// A question to the authorizer, or its answer.
    Authorizer(Arc<Check>),
}

/// A text, borrowed from JSON where possible.
#[derive(Clone, Debug)]
pub enum Text<'v> {
    /// Part of JSON.
    Borrowed(&'v str),
    /// Computed.
    Owned(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(text) => text,
        }
    }
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'v> {
    /// Computed items.
    Owned(Arc<Vec<Value<'v>>>),
    /// Items of JSON, and the declaration of the list.
    Json(&'v [Json], Option<&'v Decl>),
    /// A list after a list, with the number of items.
    Concat(Arc<(List<'v>, List<'v>)>, usize),
}

/// A map or an object.
#[derive(Clone, Debug)]
pub enum Map<'v> {
    /// Computed entries.
    Owned(Arc<BTreeMap<MapKey, Value<'v>>>),
    /// Entries of JSON, and the declaration of the map or object.
    Json(&'v JsonMap<String, Json>, Option<&'v Decl>),
    /// A message that an expression creates, by the name of its type.
    Message(Arc<str>, Arc<BTreeMap<MapKey, Value<'v>>>),
    /// The variables of a policy, which are evaluated when they are used.
    Variables,
}

/// The key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapKey {
    /// A truth value.
    Bool(bool),
    /// An integer with or without sign.
    Int(i128),
    /// A text.
    String(Arc<str>),
}

impl MapKey {
    /// Converts a value to a key; `None` for values that cannot be keys.
    pub fn from_value(value: &Value) -> Option<MapKey> {
        Some(match value {
            Value::Bool(value) => MapKey::Bool(*value),
            Value::Int(value) => MapKey::Int(i128::from(*value)),
            Value::Uint(value) => MapKey::Int(i128::from(*value)),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 1e19 => MapKey::Int(*value as i128),
            Value::String(text) => MapKey::String(Arc::from(&**text)),
            _ => return None,
        })
    }

    /// Converts the key to a value.
    pub fn value<'v>(&self) -> Value<'v> {
        match self {
            MapKey::Bool(value) => Value::Bool(*value),
            MapKey::Int(value) => i64::try_from(*value).map_or_else(|_| Value::Uint(*value as u64), Value::Int),
            MapKey::String(text) => Value::String(Text::Owned(text.clone())),
        }
    }
}

impl<'v> Value<'v> {
    /// Makes a text.
    pub fn text(text: impl AsRef<str>) -> Value<'v> {
        Value::String(Text::Owned(Arc::from(text.as_ref())))
    }

    /// Makes a list.
    pub fn list(items: Vec<Value<'v>>) -> Value<'v> {
        Value::List(List::Owned(Arc::new(items)))
    }

    /// Makes an optional value that is present.
    pub fn present(value: Value<'v>) -> Value<'v> {
        Value::Optional(Some(Arc::new(value)))
    }

    /// Converts JSON to a value; with a declaration, texts of a format become times, durations or bytes.
    pub fn from_json(json: &'v Json, decl: Option<&'v Decl>) -> Evaluated<'v> {
        let form = decl.map(|decl| &decl.form);
        Ok(match (json, form) {
            (Json::Null, Some(_)) if decl.is_some_and(|decl| !decl.nullable) => {
                return fail("invalid data, got null for schema with nullable=false");
            }
            (Json::Null, _) => Value::Null,
            (Json::Bool(value), _) => Value::Bool(*value),
            (Json::Number(number), Some(Form::Scalar(Scalar::Double))) => {
                Value::Double(number.as_f64().unwrap_or_default())
            }
            (Json::Number(number), form) => match (number.as_i64(), number.as_f64()) {
                (Some(value), _) => Value::Int(value),
                (None, Some(value)) if matches!(form, Some(Form::Scalar(Scalar::Int))) => Value::Int(value as i64),
                (None, value) => Value::Double(value.unwrap_or_default()),
            },
            (Json::String(text), Some(Form::Scalar(scalar))) => parse_formatted(text, *scalar)?,
            (Json::String(text), _) => Value::String(Text::Borrowed(text)),
            (Json::Array(items), _) => {
                Value::List(List::Json(items, decl.filter(|decl| matches!(decl.form, Form::List(..)))))
            }
            (Json::Object(map), _) => {
                Value::Map(Map::Json(map, decl.filter(|decl| matches!(decl.form, Form::Map(_) | Form::Object(..)))))
            }
        })
    }

    /// The name of the value's type.
    pub fn type_name(&self) -> &str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(Map::Message(name, _)) => name,
            Value::Map(_) => "map",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Url(_) => "kubernetes.URL",
            Value::Ip(_) => "net.IP",
            Value::Cidr(..) => "net.CIDR",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Authorizer(check) => check.type_name(),
        }
    }

    /// The size by which operations are charged.
    pub fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.count() as u64,
            Value::Map(map) => map.count() as u64,
            Value::Optional(Some(inner)) => inner.size(),
            Value::Url(url) => url.text.len() as u64,
            Value::Ip(IpAddr::V4(_)) | Value::Cidr(IpAddr::V4(_), _) => 4,
            Value::Ip(IpAddr::V6(_)) | Value::Cidr(IpAddr::V6(_), _) => 16,
            _ => 1,
        }
    }

    /// The truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// The text.
    pub fn as_text(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// Whether it is the zero or empty value of its type.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => true,
            Value::Double(value) => *value == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::List(list) => list.count() == 0,
            Value::Map(map) => map.count() == 0,
            Value::Optional(None) => true,
            Value::Optional(Some(inner)) => inner.is_zero(),
            _ => false,
        }
    }
}

/// Parses a text of a declared format.
fn parse_formatted<'v>(text: &'v str, scalar: Scalar) -> Evaluated<'v> {
    Ok(match scalar {
        Scalar::Bytes => match decode_base64(text) {
            Some(bytes) => Value::Bytes(bytes.into()),
            None => return fail("invalid data, expected base64"),
        },
        Scalar::Duration => match time::parse_duration_in_words(text) {
            Some(duration) => Value::Duration(duration.as_nanos() as i64),
            None => return fail(format!("Invalid duration {text}: unable to parse {text} as duration")),
        },
        Scalar::Timestamp => {
            let day = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
            match time::parse_rfc3339(text).ok().or_else(|| day().map(|day| day.timestamp())) {
                Some(time) => Value::Timestamp(time),
                None => return fail(format!("Invalid date formatted string {text}")),
            }
        }
        _ => Value::String(Text::Borrowed(text)),
    })
}

impl<'v> List<'v> {
    /// The number of items.
    pub fn count(&self) -> usize {
        match self {
            List::Owned(items) => items.len(),
            List::Json(items, _) => items.len(),
            List::Concat(_, length) => *length,
        }
    }

    /// An item, which must exist.
    pub fn get(&self, index: usize) -> Evaluated<'v> {
        match self {
            List::Owned(items) => match items.get(index) {
                Some(item) => Ok(item.clone()),
                None => fail(format!("index out of bounds: {index}")),
            },
            List::Json(items, decl) => match items.get(index) {
                Some(item) => Value::from_json(item, decl.and_then(|decl| decl.element()).map(|decl| &**decl)),
                None => fail(format!("index out of bounds: {index}")),
            },
            List::Concat(parts, _) => {
                let first = parts.0.count();
                if index < first { parts.0.get(index) } else { parts.1.get(index - first) }
            }
        }
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = Evaluated<'v>> + '_ {
        (0..self.count()).map(|index| self.get(index))
    }

    /// The meaning of the list.
    pub fn kind(&self) -> &ListKind {
        match self {
            List::Json(_, Some(Decl { form: Form::List(_, kind), .. })) => kind,
            _ => &ListKind::Atomic,
        }
    }
}

impl<'v> Map<'v> {
    /// The number of entries.
    pub fn count(&self) -> usize {
        match self {
            Map::Owned(entries) | Map::Message(_, entries) => entries.len(),
            Map::Json(..) => self.keys().len(),
            Map::Variables => 0,
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &Value) -> Result<Option<Value<'v>>, EvalError> {
        match self {
            Map::Owned(entries) | Map::Message(_, entries) => {
                let Some(key) = MapKey::from_value(key) else { return Err(unsupported_key(key)) };
                Ok(entries.get(&key).cloned())
            }
            Map::Json(..) => match key {
                Value::String(name) => self.field(name),
                Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) => Ok(None),
                other => Err(unsupported_key(other)),
            },
            Map::Variables => Ok(None),
        }
    }

    /// The value of a field, by its escaped name for an object.
    pub fn field(&self, name: &str) -> Result<Option<Value<'v>>, EvalError> {
        match self {
            Map::Owned(entries) | Map::Message(_, entries) => Ok(entries.get(&MapKey::String(name.into())).cloned()),
            Map::Json(map, Some(decl)) if matches!(decl.form, Form::Object(..)) => {
                let Some(field) = decl.field(name) else { return Ok(None) };
                map.get(&field.name)
                    .filter(|value| !value.is_null() || field.decl.nullable)
                    .map(|value| Value::from_json(value, Some(&field.decl)))
                    .transpose()
            }
            Map::Json(map, decl) => {
                let element = decl.and_then(|decl| decl.element()).map(|decl| &**decl);
                map.get(name).map(|value| Value::from_json(value, element)).transpose()
            }
            Map::Variables => Ok(None),
        }
    }

    /// The keys.
    pub fn keys(&self) -> Vec<Value<'v>> {
        match self {
            Map::Owned(entries) | Map::Message(_, entries) => entries.keys().map(MapKey::value).collect(),
            Map::Json(map, Some(decl)) if matches!(decl.form, Form::Object(..)) => {
                let declared = map.keys().filter_map(|name| escape(name)).filter(|name| decl.field(name).is_some());
                declared.map(Value::text).collect()
            }
            Map::Json(map, _) => map.keys().map(|name| Value::String(Text::Borrowed(name))).collect(),
            Map::Variables => Vec::new(),
        }
    }
}

fn unsupported_key(key: &Value) -> EvalError {
    EvalError::Failed(format!("unsupported key type: {}", key.type_name()))
}
