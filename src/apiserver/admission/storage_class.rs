//! DefaultStorageClass: a claim that names no class gets the default one.

use super::Request;
use crate::apiserver::Result;
use crate::apiserver::ledger::Ledger;
use crate::object::{Object, Resource};

const CLASSES: Resource = Resource("storageclasses.storage.k8s.io");
const DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Admits a write. An empty name is a name: the claim wants a volume of no class.
pub fn admit(ledger: &mut dyn Ledger, request: &mut Request<'_>) -> Result<()> {
    let named = request.object.at(&["spec", "storageClassName"]).is_some_and(|name| !name.is_null());
    let annotated = request.object.annotation("volume.beta.kubernetes.io/storage-class").is_some();
    if !request.creates("persistentvolumeclaims") || named || annotated {
        return Ok(());
    }
    let classes = ledger.list(CLASSES, None)?;
    let is_default = |class: &&Object| DEFAULT.iter().any(|name| class.annotation(name) == Some("true"));
    // Of several the newest, then the first by name.
    let newest = classes.iter().rev().filter(is_default).max_by_key(|class| class.created());
    if let Some(class) = newest {
        request.object.set(&["spec", "storageClassName"], class.name());
    }
    Ok(())
}
