//! RuntimeClass (node.k8s.io/v1).

use super::{Errors, Kind, Path, Typed, names, omit};
use k8s_openapi::api::node::v1::RuntimeClass;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    unconditional_update: false,
    ..Kind::of::<RuntimeClass>("runtimeclasses.node.k8s.io", "v1", "RuntimeClass")
};

impl Typed for RuntimeClass {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut Errors) {
        let path = Path::root("handler");
        match old {
            Some(old) => errors.immutable(&path, &self.handler, &old.handler),
            None => errors.each_invalid(&path, self.handler.as_str(), names::label(&self.handler)),
        }
    }
}
