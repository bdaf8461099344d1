//! Errors of the decoder, with Go's wording.

use serde::de;
use std::fmt;

/// The error when a body cannot be decoded as an object of its kind (status 400).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Path of the value, such as `spec.containers[0].env[1].value`; empty when unknown.
    pub path: String,
    /// The message of Go's decoder, which contains the field.
    pub message: String,
    /// The Go type that the value should have, such as `int32`; `None` when the type is right.
    pub go_type: Option<String>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> DecodeError {
        DecodeError { path: String::new(), message: message.to_string(), go_type: None }
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> DecodeError {
        let found = match unexpected {
            de::Unexpected::Bool(_) => "bool".to_owned(),
            de::Unexpected::Seq => "array".to_owned(),
            de::Unexpected::Map => "object".to_owned(),
            de::Unexpected::Float(number) => format!("number {number}"),
            other => return DecodeError::custom(format!("invalid type: {other}, expected {expected}")),
        };
        match expected.to_string().as_str() {
            // Go reads a number unless there is a text.
            "IntOrString" => DecodeError {
                go_type: Some("int32".to_owned()),
                ..DecodeError::custom(format!("json: cannot unmarshal {found} into Go value of type int32"))
            },
            expected => DecodeError::custom(format!("invalid type: {unexpected}, expected {expected}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::{Error, Expected};

    #[test]
    fn value_that_is_neither_a_number_nor_a_text_is_named_as_by_go() {
        let expected: &dyn Expected = &"IntOrString";
        for (unexpected, found) in [
            (de::Unexpected::Bool(true), "bool"),
            (de::Unexpected::Seq, "array"),
            (de::Unexpected::Map, "object"),
            (de::Unexpected::Float(1.5), "number 1.5"),
        ] {
            let message = DecodeError::invalid_type(unexpected, expected).message;
            assert_eq!(message, format!("json: cannot unmarshal {found} into Go value of type int32"));
        }
    }
}
