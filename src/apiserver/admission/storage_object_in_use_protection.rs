//! StorageObjectInUseProtection: claims, volumes and VolumeAttributesClasses carry a finalizer that keeps them while they
//! are used.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::kinds::{persistent_volume, persistent_volume_claim, volume_attributes_class};

/// Admits a write.
pub fn admit(_txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let finalizer = match request.kind.resource.0 {
        "persistentvolumes" => persistent_volume::PROTECTION,
        "persistentvolumeclaims" => persistent_volume_claim::PROTECTION,
        "volumeattributesclasses.storage.k8s.io" => volume_attributes_class::PROTECTION,
        _ => return Ok(()),
    };
    if request.operation == Operation::Create {
        request.object.add_finalizer(finalizer);
    }
    Ok(())
}
