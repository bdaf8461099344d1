//! Type errors of the decoder, with Go's wording.

use serde::de;
use std::fmt;

/// A type error with Go's wording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Path of the value, such as `spec.containers[0].env[1].value`.
    pub path: String,
    /// Go's message.
    pub message: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> ReadError {
        ReadError { path: String::new(), message: message.to_string() }
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> ReadError {
        let found = match unexpected {
            de::Unexpected::Bool(_) => "bool".to_owned(),
            de::Unexpected::Seq => "array".to_owned(),
            de::Unexpected::Map => "object".to_owned(),
            de::Unexpected::Float(number) => format!("number {number}"),
            other => return ReadError::custom(format!("invalid type: {other}, expected {expected}")),
        };
        match expected.to_string().as_str() {
            // Go reads a number unless there is a text.
            "IntOrString" => ReadError::custom(format!("json: cannot unmarshal {found} into Go value of type int32")),
            expected => ReadError::custom(format!("invalid type: {unexpected}, expected {expected}")),
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
            let message = ReadError::invalid_type(unexpected, expected).message;
            assert_eq!(message, format!("json: cannot unmarshal {found} into Go value of type int32"));
        }
    }
}
