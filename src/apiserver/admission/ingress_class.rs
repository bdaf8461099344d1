//! DefaultIngressClass: an Ingress that names no class gets the default one.

use super::Request;
use crate::apiserver::Result;
use crate::apiserver::ledger::Ledger;
use crate::kinds::default_class;
use crate::object::Resource;

const CLASSES: Resource = Resource("ingressclasses.networking.k8s.io");

/// Admits a write. The older annotation names a class, too.
pub fn admit(ledger: &mut dyn Ledger, request: &mut Request<'_>) -> Result<()> {
    let named = request.object.at(&["spec", "ingressClassName"]).is_some_and(|name| !name.is_null());
    let annotated = request.object.annotation("kubernetes.io/ingress.class").is_some();
    if !request.creates("ingresses.networking.k8s.io") || named || annotated {
        return Ok(());
    }
    let classes = ledger.list(CLASSES, None)?;
    if let Some(class) = default_class::of(&classes, default_class::INGRESS) {
        request.object.set(&["spec", "ingressClassName"], class.name());
    }
    Ok(())
}
