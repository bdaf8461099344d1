//! DefaultStorageClass and DefaultIngressClass: a claim, or an Ingress, that names no class gets the default one.

use super::AdmissionRequest;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::kinds::shared::default_class;
use crate::kinds::{ingress, persistent_volume_claim};
use crate::object::Resource;

/// A resource whose objects get a default class.
struct ClassTarget {
    resource: &'static str,
    /// The field of the spec that names the class.
    field: &'static str,
    /// The annotation that named the class before the field existed.
    older: &'static str,
    /// The classes.
    classes: Resource,
    /// Annotations that mark the default class.
    marks: &'static [&'static str],
}

const STORAGE: ClassTarget = ClassTarget {
    resource: "persistentvolumeclaims",
    field: "storageClassName",
    older: persistent_volume_claim::CLASS_ANNOTATION,
    classes: Resource("storageclasses.storage.k8s.io"),
    marks: default_class::STORAGE,
};

const INGRESS: ClassTarget = ClassTarget {
    resource: "ingresses.networking.k8s.io",
    field: "ingressClassName",
    older: ingress::CLASS_ANNOTATION,
    classes: Resource("ingressclasses.networking.k8s.io"),
    marks: default_class::INGRESS,
};

/// Gives a new claim the default class. An empty name is a name: such a claim wants a volume of no class.
pub fn set_storage_class(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    set_class(txn, request, &STORAGE)
}

/// Gives a new Ingress the default class.
pub fn set_ingress_class(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    set_class(txn, request, &INGRESS)
}

fn set_class(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>, wants: &ClassTarget) -> ApiResult<()> {
    if !request.creates(wants.resource) {
        return Ok(());
    }
    let named = request.object.value_at(&["spec", wants.field]).is_some_and(|name| !name.is_null());
    if named || request.object.annotation(wants.older).is_some() {
        return Ok(());
    }
    let classes = txn.list(wants.classes, None)?;
    if let Some(class) = default_class::find_default_class(&classes, wants.marks) {
        request.object.set(&["spec", wants.field], class.name());
    }
    Ok(())
}
