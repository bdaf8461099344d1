//! CSIDriver (storage.k8s.io/v1).

use super::{Errors, Kind, Typed, omit};
use k8s_openapi::api::storage::v1::CSIDriver;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    unconditional_update: false,
    ..Kind::of::<CSIDriver>("csidrivers.storage.k8s.io", "v1", "CSIDriver")
};

impl Typed for CSIDriver {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = &mut self.spec;
        spec.attach_required.get_or_insert(true);
        spec.pod_info_on_mount.get_or_insert(false);
        spec.requires_republish.get_or_insert(false);
        spec.se_linux_mount.get_or_insert(false);
        spec.storage_capacity.get_or_insert(false);
        spec.fs_group_policy.get_or_insert_with(|| "ReadWriteOnceWithFSType".to_owned());
        omit::empty(&mut spec.volume_lifecycle_modes);
        spec.volume_lifecycle_modes.get_or_insert_with(|| vec!["Persistent".to_owned()]);
    }

    fn validate(&self, _old: Option<&Self>, _errors: &mut Errors) {}
}
