//! Prints JSON values like Go's libraries and kubectl's templates, and reads Go's patterns. It does not depend on kloop and could be a
//! separate crate.
//!
//! Implements `encoding/json` ([`json`], [`json_syntax`]), the verbs of `fmt` ([`mod@fmt`], [`printf`]), client-go's JSONPath
//! ([`jsonpath`]), `text/template` ([`template`]), the syntax of `regexp` ([`regexp`]), `path/filepath.Match` ([`path_match`]), and
//! `encoding/base64` ([`base64`]).
//! Never: depends on a Kubernetes object or another module of this crate. Start reading at [`jsonpath::JsonPathTemplate`].

pub mod base64;
pub mod fmt;
pub mod json;
pub mod json_syntax;
pub mod jsonpath;
pub mod path_match;
pub mod printf;
pub mod regexp;
pub mod template;
