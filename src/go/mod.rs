//! JSON values as Go's libraries and kubectl's templates print them. It knows nothing of kloop and could be a crate of its own.
//!
//! Knows: `encoding/json` ([`json`]), the verbs of `fmt` ([`mod@fmt`]), client-go's JSONPath ([`jsonpath`]), and `text/template`
//! ([`template`]).
//! Never: knows a Kubernetes object, or names another module of this crate. Start reading at [`jsonpath::JsonPathTemplate`].

pub mod fmt;
pub mod json;
pub mod jsonpath;
pub mod template;
