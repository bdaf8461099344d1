//! Pod (core/v1).

use super::{Errors, Kind, Typed};
use k8s_openapi::api::core::v1::Pod;

/// The catalogue's entry.
pub const KIND: Kind = Kind { short: &["po"], categories: &["all"], ..Kind::of::<Pod>("pods", "v1", "Pod") };

impl Typed for Pod {
    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}
