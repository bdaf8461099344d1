//! Checks of updates of a pod, most of which is immutable (`ValidatePodUpdate`).

use super::{gated_update, internal};
use crate::kinds::shared::go;
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::MIRROR;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration};
use serde_json::Value;
use std::collections::BTreeSet;

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks a changed spec against the old one.
pub fn check(new: &PodSpec, old: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let init = |spec: &PodSpec| spec.init_containers.clone().unwrap_or_default();
    let lists = [("containers", new.containers.len(), old.containers.len())];
    for (field, now, before) in lists.into_iter().chain([("initContainers", init(new).len(), init(old).len())]) {
        if now != before {
            return errors.forbidden(&path.child(field), "pod updates may not add or remove containers");
        }
    }
    if !check_deadline(new.active_deadline_seconds, old.active_deadline_seconds, path, errors) {
        return;
    }
    check_tolerations(new, old, &path.child("tolerations"), errors);
    check_gates(new, old, &path.child("schedulingGates"), errors);
    let mut restored = restore_mutable_fields(new, old);
    if old.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        gated_update::check(&mut restored, old, path, errors);
    }
    if restored != *old {
        let difference = go::difference(&internal::spec(old), &internal::spec(&restored));
        errors.forbidden(path, &format!("{MAY_CHANGE}\n{difference}"));
    }
}

/// Checks the annotation of mirror pods, which only their node may set.
pub fn check_mirror(new: &Pod, old: Option<&Pod>, errors: &mut FieldErrors) {
    let mirror_hash = |pod: &Pod| pod.metadata.annotations.as_ref().and_then(|all| all.get(MIRROR)).cloned();
    let path = FieldPath::root("metadata").child("annotations").key(MIRROR);
    match (mirror_hash(new), old.map(mirror_hash)) {
        (Some(hash), None) if new.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) => {
            errors.invalid(&path, hash, "must set spec.nodeName if mirror pod annotation is set");
        }
        (Some(_), Some(None)) => errors.forbidden(&path, "may not add mirror pod annotation"),
        (new, Some(Some(old))) if new.as_ref() != Some(&old) => {
            errors.forbidden(&path, "may not remove or update mirror pod annotation");
        }
        _ => {}
    }
}

/// Checks that the deadline is only set or shortened. Returns false when the caller skips the other checks.
fn check_deadline(new: Option<i64>, old: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let path = path.child("activeDeadlineSeconds");
    match (new, old) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid(&path, new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if new > old => {
            errors.invalid(&path, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(&path, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn check_tolerations(new: &PodSpec, old: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let now: BTreeSet<_> = new.tolerations.iter().flatten().map(timeless).collect();
    if old.tolerations.iter().flatten().any(|before| !now.contains(&timeless(before))) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
    }
}

/// Returns the parts of a toleration that an update cannot change.
fn timeless(toleration: &Toleration) -> [&Option<String>; 4] {
    [&toleration.key, &toleration.operator, &toleration.value, &toleration.effect]
}

fn check_gates(new: &PodSpec, old: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let before: BTreeSet<&str> = old.scheduling_gates.iter().flatten().map(|gate| &*gate.name).collect();
    for (index, gate) in new.scheduling_gates.iter().flatten().enumerate() {
        if !before.contains(&*gate.name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", gate.name);
            errors.forbidden(&path.index(index).child("name"), &detail);
        }
    }
}

/// The new spec with the old values of mutable fields. Any remaining difference is forbidden.
fn restore_mutable_fields(new: &PodSpec, old: &PodSpec) -> PodSpec {
    let mut restored = new.clone();
    keep_images(&mut restored.containers, &old.containers);
    if let (Some(new), Some(old)) = (&mut restored.init_containers, &old.init_containers) {
        keep_images(new, old);
    }
    restored.active_deadline_seconds = old.active_deadline_seconds;
    restored.tolerations.clone_from(&old.tolerations);
    restored.scheduling_gates.clone_from(&old.scheduling_gates);
    let negative = old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0);
    if negative && new.termination_grace_period_seconds == Some(1) {
        restored.termination_grace_period_seconds = old.termination_grace_period_seconds;
    }
    restored
}

fn keep_images(new: &mut [Container], old: &[Container]) {
    for (new, old) in new.iter_mut().zip(old) {
        new.image.clone_from(&old.image);
    }
}
