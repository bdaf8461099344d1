//! StorageObjectInUseProtection: claims, volumes and VolumeAttributesClasses carry a finalizer that keeps them while they
//! are used.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;

/// Admits a write.
pub fn admit(_txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let finalizer = match request.kind.resource.0 {
        "persistentvolumes" => "kubernetes.io/pv-protection",
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        "volumeattributesclasses.storage.k8s.io" => "kubernetes.io/vac-protection",
        _ => return Ok(()),
    };
    if request.operation == Operation::Create {
        request.object.add_finalizer(finalizer);
    }
    Ok(())
}
