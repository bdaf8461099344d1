//! The request body as text. It shows duplicate fields, and the order in which errors name the fields.
//!
//! Start reading at [`WrittenBody::complaints`].

use crate::kinds::Kind;
use crate::kinds::catalogue::read::UnknownField;
use crate::object::yaml::{DuplicateKey, YamlDocument};
use serde_json::Value;

/// The text of a body, in JSON or YAML.
#[derive(Clone, Debug)]
pub struct WrittenBody {
    document: YamlDocument,
    is_yaml: bool,
}

impl WrittenBody {
    /// Keeps a document's text, without its value.
    pub fn new(mut document: YamlDocument, is_yaml: bool) -> WrittenBody {
        document.value = Value::Null;
        WrittenBody { document, is_yaml }
    }

    /// Returns the complaints about duplicate fields and these unknown ones. For a built-in kind in JSON they have the order of
    /// the text, as its decoder meets them. Otherwise a first decoder finds the duplicates.
    pub fn complaints(&self, kind: &Kind, unknown: &[UnknownField]) -> Vec<String> {
        let duplicates = &self.document.duplicates;
        let of_field = |DuplicateKey { path, .. }: &DuplicateKey| format!("duplicate field {path:?}");
        if self.is_yaml && kind.custom.is_none() && !duplicates.is_empty() {
            let of_line = |one: &DuplicateKey| format!("\n  line {}: key {:?} already set in map", one.line, one.key);
            let all: String = duplicates.iter().map(of_line).collect();
            let first = format!("yaml: unmarshal errors:{all}");
            return std::iter::once(first).chain(unknown.iter().map(UnknownField::complaint)).collect();
        }
        if self.is_yaml || kind.custom.is_some() || unknown.is_empty() {
            return duplicates.iter().map(of_field).chain(unknown.iter().map(UnknownField::complaint)).collect();
        }
        let paths: Vec<&str> = unknown.iter().map(|field| field.path.as_str()).collect();
        let places = self.document.fields_before(&paths).into_iter().map(Option::unwrap_or_default);
        let mut placed: Vec<(usize, String)> = places.zip(unknown.iter().map(UnknownField::complaint)).collect();
        placed.extend(duplicates.iter().map(|one| (one.field, of_field(one))));
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, complaint)| complaint).collect()
    }
}
