//! Forms of values that server-side apply expects, and its errors about other ones.
//!
//! The words are those of sigs.k8s.io/structured-merge-diff (typed), which prints values as Go does.

use crate::go::fmt;
use crate::kinds::catalogue::read::is_text_type;
use serde_json::Value;

/// Maximum number of bytes of a value in a message.
const MAX_VALUE_BYTES: usize = 4096;

/// The form that a field's value has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedForm {
    /// A number.
    Numeric,
    /// A string.
    Text,
    /// True or false.
    Boolean,
    /// Any value that is neither a list nor a map.
    Scalar,
    /// A list.
    List,
    /// A map.
    Map,
}

impl ExpectedForm {
    /// The form of a Go type, as the decoder's messages name it.
    pub fn from_go_type(name: &str) -> ExpectedForm {
        match name {
            "bool" => ExpectedForm::Boolean,
            "[]uint8" => ExpectedForm::Text,
            _ if ["int", "uint", "float"].iter().any(|start| name.starts_with(start)) => ExpectedForm::Numeric,
            _ if name.starts_with("[]") => ExpectedForm::List,
            _ if name == "string" || is_text_type(name) => ExpectedForm::Text,
            _ => ExpectedForm::Map,
        }
    }

    /// Returns the error for a value of another form; null has every form.
    pub fn mismatch(self, value: &Value) -> Option<String> {
        let is_scalar = !value.is_array() && !value.is_object();
        let has_form = match self {
            ExpectedForm::Numeric => value.is_number(),
            ExpectedForm::Text => value.is_string(),
            ExpectedForm::Boolean => value.is_boolean(),
            ExpectedForm::Scalar => is_scalar,
            ExpectedForm::List => value.is_array(),
            ExpectedForm::Map => value.is_object(),
        };
        if has_form || value.is_null() {
            return None;
        }
        let plain = || format!("&{{{}}}", shortened(fmt::plain(value)));
        Some(match self {
            ExpectedForm::Numeric => format!("expected numeric (int or float), got {}", fmt::type_name(value)),
            ExpectedForm::Text => {
                let literal = shortened(fmt::literal(value));
                format!("expected string, got &value.valueUnstructured{{Value:{literal}}}")
            }
            ExpectedForm::Boolean => format!("expected boolean, got {}", plain()),
            ExpectedForm::Scalar => format!("expected any scalar, got {}", plain()),
            ExpectedForm::List => format!("expected list, got {}", plain()),
            ExpectedForm::Map => format!("expected map, got {}", plain()),
        })
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_VALUE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_VALUE_BYTES));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_another_form_are_printed_as_go_prints_them() {
        let map = json!({"b": [1, true], "a": null});
        for (go_type, value, expected) in [
            ("int32", json!("x"), "expected numeric (int or float), got string"),
            ("int64", map.clone(), "expected numeric (int or float), got map[string]interface {}"),
            ("bool", json!("x"), "expected boolean, got &{x}"),
            ("string", json!(1), "expected string, got &value.valueUnstructured{Value:1}"),
            (
                "[]uint8",
                map.clone(),
                "expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"a\":interface {}(nil), \
                 \"b\":[]interface {}{1, true}}}",
            ),
            ("[]v1.Container", map.clone(), "expected list, got &{map[a:<nil> b:[1 true]]}"),
            ("v1.DeploymentSpec", json!(["x", 1]), "expected map, got &{[x 1]}"),
            ("map[string]string", json!(1.5), "expected map, got &{1.5}"),
        ] {
            assert_eq!(ExpectedForm::from_go_type(go_type).mismatch(&value).as_deref(), Some(expected), "{go_type}");
        }
        assert_eq!(ExpectedForm::from_go_type("int32").mismatch(&json!(1.5)), None);
        assert_eq!(ExpectedForm::Scalar.mismatch(&json!(true)), None);
        let long = ExpectedForm::Map.mismatch(&json!("x".repeat(1 << 20))).unwrap();
        assert!(long.len() < 5000);
    }
}
