//! ControllerRevision (apps/v1): a former template of a StatefulSet or DaemonSet.

use super::shared::omit;
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::apps::v1::ControllerRevision;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    generation: false,
    ..Kind::new::<ControllerRevision>(
        "controllerrevisions.apps",
        "v1",
        "ControllerRevision",
        &view::table_only::CONTROLLER_REVISION,
    )
};

impl Typed for ControllerRevision {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        if self.revision < 0 {
            errors.invalid(&FieldPath::root("revision"), self.revision, "must be greater than or equal to 0");
        }
        if old.is_some_and(|old| old.data != self.data) {
            let data = self.data.as_ref().map(|data| data.0.clone()).unwrap_or_default();
            errors.invalid(&FieldPath::root("data"), data, "field is immutable");
        }
    }
}
