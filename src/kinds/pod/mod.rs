//! Pod (core/v1), and the pod spec that every workload's template carries.
//!
//! Knows: defaults and checks of a pod spec, and what other rooms ask of a pod (requests, QoS class, readiness).
//! Never: decides where a pod runs or what becomes of it.
//! Start reading at [`KIND`].

pub mod defaults;
pub mod facts;
mod prepare;
mod volumes;

pub use facts::{Requests, condition, is_ready, qos_class, requests};

use super::{Errors, Kind, Typed};
use crate::object::Object;
use k8s_openapi::api::core::v1::Pod;

/// The catalogue's entry.
pub const KIND: Kind = Kind { short: &["po"], categories: &["all"], ..Kind::of::<Pod>("pods", "v1", "Pod") };

impl Typed for Pod {
    fn default(&mut self) {
        defaults::pod(self);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        if old.is_none() {
            prepare::create(new);
        }
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}
