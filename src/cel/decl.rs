//! Declared data: the types of the values that a caller binds, with bounds on their size, read from OpenAPI schemas
//! (`k8s.io/apiserver/pkg/cel/common/schemas.go`).
//!
//! Never: reads a value. Start reading at [`Decl::from_schema`].

use super::names::{escape, is_reserved};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The size of the largest request.
const REQUEST: u64 = 3 * 1024 * 1024;
/// The length of the longest name.
const NAME: u64 = 253;

/// Declared data.
#[derive(Debug)]
pub struct Decl {
    /// Its form.
    pub form: Form,
    /// The maximum number of letters, items or entries.
    pub most: u64,
    /// The length of the shortest JSON text.
    pub least_text: u64,
    /// Whether it may be `null`.
    pub nullable: bool,
}

/// The form of declared data.
#[derive(Debug)]
pub enum Form {
    /// Any value.
    Dyn,
    /// An integer or a string.
    IntOrString,
    /// A type without parts.
    Scalar(Scalar),
    /// A list.
    List(Arc<Decl>, ListKind),
    /// A map from strings.
    Map(Arc<Decl>),
    /// An object with declared fields by their escaped names, and the name of its type if it has a fixed one.
    Object(Option<&'static str>, BTreeMap<String, Field>),
}

/// A type without parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// A duration.
    Duration,
    /// A point in time.
    Timestamp,
}

/// The meaning of a list.
#[derive(Debug, PartialEq)]
pub enum ListKind {
    /// Its order counts.
    Atomic,
    /// Its order does not count.
    Set,
    /// Items with the same keys are the same.
    Map(Vec<String>),
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// Its content.
    pub decl: Arc<Decl>,
}

static STRING: LazyLock<Arc<Decl>> = LazyLock::new(|| Decl::create(Form::Scalar(Scalar::String), REQUEST - 2, 2));

impl Decl {
    /// Creates a declaration.
    fn create(form: Form, most: u64, least_text: u64) -> Arc<Decl> {
        Arc::new(Decl { form, most, least_text, nullable: false })
    }

    /// Declares data of any form.
    pub fn anything() -> Arc<Decl> {
        Decl::create(Form::Dyn, REQUEST, 1)
    }

    /// Declares data of a simple type.
    pub fn scalar(scalar: Scalar) -> Arc<Decl> {
        Decl::create(Form::Scalar(scalar), REQUEST, 1)
    }

    /// Declares a list.
    pub fn list(item: Arc<Decl>) -> Arc<Decl> {
        Decl::create(Form::List(item, ListKind::Atomic), REQUEST, 2)
    }

    /// Declares a map from strings.
    pub fn map(value: Arc<Decl>) -> Arc<Decl> {
        Decl::create(Form::Map(value), REQUEST, 2)
    }

    /// Declares an object whose type has a fixed name.
    pub fn object(name: &'static str, fields: impl IntoIterator<Item = (String, Arc<Decl>)>) -> Arc<Decl> {
        let fields = fields.into_iter().map(|(name, decl)| (name.clone(), Field { name, decl })).collect();
        Decl::create(Form::Object(Some(name), fields), 0, 2)
    }

    /// A field by its escaped name. A reserved word is known as it is, too, since Kubernetes 1.31.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let Form::Object(_, fields) = &self.form else { return None };
        match fields.get(name) {
            None if is_reserved(name) => fields.get(&escape(name)?),
            found => found,
        }
    }

    /// The items of a list, or the values of a map.
    pub fn element(&self) -> Option<&Arc<Decl>> {
        match &self.form {
            Form::List(item, _) | Form::Map(item) => Some(item),
            _ => None,
        }
    }

    /// The maximum number of such data in an object, by the length of their shortest text.
    pub fn most_in_request(&self) -> u64 {
        REQUEST / (self.least_text + 1)
    }

    /// Returns the declaration of a structural schema; `None` for a schema whose values no expression can see.
    pub fn from_schema(schema: &Json, is_resource: bool) -> Option<Arc<Decl>> {
        let nullable = schema["nullable"] == true;
        let number = |word: &str| schema[word].as_i64().map(|number| number.max(0) as u64);
        let declare = |form, most, least_text| Some(Arc::new(Decl { form, most, least_text, nullable }));
        if schema["x-kubernetes-int-or-string"] == true {
            let most = number("maxLength").map_or(REQUEST - 2, |most| most.saturating_mul(4));
            return declare(Form::IntOrString, most, 1);
        }
        match schema["type"].as_str().unwrap_or_default() {
            "array" => {
                let item = Decl::from_schema(&schema["items"], is_embedded(&schema["items"]))?;
                let most = number("maxItems").unwrap_or((REQUEST - 2) / (item.least_text + 1));
                declare(Form::List(item, list_kind(schema)), most, 2)
            }
            "object" => {
                if schema["additionalProperties"].is_object() && !is_resource {
                    let values = &schema["additionalProperties"];
                    let value = Decl::from_schema(values, is_embedded(values))?;
                    let most = number("maxProperties").unwrap_or((REQUEST - 2) / (value.least_text + 6));
                    return declare(Form::Map(value), most, 2);
                }
                let (fields, least_text) = object_fields(schema, is_resource);
                declare(Form::Object(None, fields), 0, least_text)
            }
            "string" => {
                let (scalar, most, least) = read_text(schema, number("maxLength"));
                declare(Form::Scalar(scalar), most, least)
            }
            "boolean" => declare(Form::Scalar(Scalar::Bool), 0, 4),
            "number" => declare(Form::Scalar(Scalar::Double), 0, 1),
            "integer" => declare(Form::Scalar(Scalar::Int), 0, 1),
            _ => None,
        }
    }
}

fn is_embedded(schema: &Json) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

fn list_kind(schema: &Json) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            ListKind::Map(keys.filter_map(Json::as_str).map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    }
}

/// Returns the type of a text, its maximum length and the length of its shortest JSON.
fn read_text(schema: &Json, most: Option<u64>) -> (Scalar, u64, u64) {
    match schema["format"].as_str() {
        Some("byte") => (Scalar::Bytes, most.unwrap_or(REQUEST - 2), 2),
        Some("duration") => (Scalar::Duration, 32, 3),
        Some("date") => (Scalar::Timestamp, 12, 12),
        Some("date-time") => (Scalar::Timestamp, 32, 21),
        _ => {
            let longest = || {
                let texts = schema["enum"].as_array().filter(|texts| !texts.is_empty())?;
                texts.iter().filter_map(Json::as_str).map(|text| text.len() as u64).max().or(Some(0))
            };
            let most = most.map(|most| most.saturating_mul(4)).or_else(longest).unwrap_or(REQUEST - 2);
            (Scalar::String, most, 2)
        }
    }
}

/// The fields of an object, and the length of its shortest text.
fn object_fields(schema: &Json, is_resource: bool) -> (BTreeMap<String, Field>, u64) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let (mut fields, mut least) = (BTreeMap::new(), 2);
    let mut add = |name: &str, decl: Arc<Decl>, has_default: bool| {
        if required.contains(&name) && !has_default {
            least += name.len() as u64 + decl.least_text + 4;
        }
        if let Some(escaped) = escape(name) {
            fields.insert(escaped, Field { name: name.to_owned(), decl });
        }
    };
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(decl) = Decl::from_schema(schema, is_embedded(schema)) {
            add(name, decl, !schema["default"].is_null());
        }
    }
    if is_resource {
        add("apiVersion", STRING.clone(), false);
        add("kind", STRING.clone(), false);
        add("metadata", metadata(&schema["properties"]["metadata"]), false);
    }
    (fields, least)
}

/// The metadata of a resource: only names are visible.
fn metadata(schema: &Json) -> Arc<Decl> {
    let name = |field: &str, most: u64| {
        let declared = schema["properties"][field]["maxLength"].as_u64();
        let most = declared.unwrap_or(most).min(most);
        let decl = Decl::create(Form::Scalar(Scalar::String), most * 4, 2);
        (field.to_owned(), Field { name: field.to_owned(), decl })
    };
    let fields = BTreeMap::from([name("name", NAME), name("generateName", NAME - 1)]);
    Decl::create(Form::Object(None, fields), 0, 2)
}
