//! DefaultIngressClass: an Ingress that names no class gets the default one.

use super::Request;
use crate::apiserver::Result;
use crate::apiserver::ledger::Ledger;
use crate::object::{Object, Resource};

const CLASSES: Resource = Resource("ingressclasses.networking.k8s.io");
const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

/// Admits a write. The older annotation names a class, too.
pub fn admit(ledger: &mut dyn Ledger, request: &mut Request<'_>) -> Result<()> {
    let named = request.object.at(&["spec", "ingressClassName"]).is_some_and(|name| !name.is_null());
    let annotated = request.object.annotation("kubernetes.io/ingress.class").is_some();
    if !request.creates("ingresses.networking.k8s.io") || named || annotated {
        return Ok(());
    }
    let classes = ledger.list(CLASSES, None)?;
    let is_default = |class: &&Object| class.annotation(DEFAULT) == Some("true");
    // Of several the newest, then the first by name.
    let newest = classes.iter().rev().filter(is_default).max_by_key(|class| class.created());
    if let Some(class) = newest {
        request.object.set(&["spec", "ingressClassName"], class.name());
    }
    Ok(())
}
