//! Data of Kubernetes' libraries: URLs, versions, formats, and questions to the authorizer.
//!
//! Never: names a value of an expression.

pub mod authorizer;
pub mod formats;
pub mod semver;
pub mod url;
