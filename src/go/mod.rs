//! Prints JSON values like Go's libraries and kubectl's templates. It does not depend on kloop and could be a separate
//! crate.
//!
//! Implements `encoding/json` ([`json`]), the verbs of `fmt` ([`mod@fmt`]), client-go's JSONPath ([`jsonpath`]), and
//! `text/template` ([`template`]). Never: depends on a Kubernetes object or another module of this crate. Start reading
//! at [`jsonpath::JsonPathTemplate`].

pub mod fmt;
pub mod json;
pub mod jsonpath;
pub mod template;
