//! PersistentVolumeClaimResize: a claim grows only if its storage class allows it.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::kinds::persistent_volume_claim::CLASS_ANNOTATION;
use crate::object::quantity::Quantity;
use crate::object::{Key, Object, Resource};

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let Some(old) = request.old.filter(|_| request.operation == Operation::Update) else { return Ok(()) };
    if request.kind.resource != "persistentvolumeclaims" || size(request.object) <= size(old) {
        return Ok(());
    }
    let refuse = |why: &str| Err(request.forbidden(why));
    if old.text(&["status", "phase"]) != Some("Bound") {
        return refuse("only bound persistent volume claims can be expanded");
    }
    // A claim without a class was bound manually.
    let class = class_of(request.object).filter(|class| class_of(old) == Some(class));
    let class = class.map(|class| txn.get_shared(&Key::new(Resource("storageclasses.storage.k8s.io"), "", class)));
    let class = class.transpose()?.flatten();
    if class.is_some_and(|class| class.value_at(&["allowVolumeExpansion"]) == Some(&true.into())) {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

/// The class of a claim: that of the annotation by which older ones name it, or of the spec.
fn class_of(claim: &Object) -> Option<&str> {
    let annotated = claim.annotation(CLASS_ANNOTATION);
    annotated.or_else(|| claim.text(&["spec", "storageClassName"])).filter(|class| !class.is_empty())
}

fn size(claim: &Object) -> Option<Quantity> {
    Quantity::parse(claim.text(&["spec", "resources", "requests", "storage"])?).ok()
}
