//! DefaultStorageClass: a claim that names no class gets the default one.

use super::Request;
use crate::apiserver::Result;
use crate::apiserver::ledger::Ledger;
use crate::kinds::default_class;
use crate::object::Resource;

const CLASSES: Resource = Resource("storageclasses.storage.k8s.io");

/// Admits a write. An empty name is a name: the claim wants a volume of no class.
pub fn admit(ledger: &mut dyn Ledger, request: &mut Request<'_>) -> Result<()> {
    let named = request.object.at(&["spec", "storageClassName"]).is_some_and(|name| !name.is_null());
    let annotated = request.object.annotation("volume.beta.kubernetes.io/storage-class").is_some();
    if !request.creates("persistentvolumeclaims") || named || annotated {
        return Ok(());
    }
    let classes = ledger.list(CLASSES, None)?;
    if let Some(class) = default_class::of(&classes, default_class::STORAGE) {
        request.object.set(&["spec", "storageClassName"], class.name());
    }
    Ok(())
}
