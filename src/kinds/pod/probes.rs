//! Checks of probes and of lifecycle hooks.

use crate::kinds::shared::amount;
use crate::kinds::shared::probe_handler::{self, ProbeHandler};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{Lifecycle, Probe};

/// The kind of probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ProbeRole {
    /// Restarts the container.
    Liveness,
    /// Removes the container's pod from its Services.
    Readiness,
    /// Delays the other two.
    Startup,
}

/// Checks one probe.
pub fn check(probe: Option<&Probe>, role: ProbeRole, grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(probe) = probe else { return };
    probe_handler::check(&ProbeHandler::all_of_probe(probe), grace, path, errors);
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, number) in numbers {
        amount::check_not_negative(number.unwrap_or(0).into(), &path.child(field), errors);
    }
    let own_grace = probe.termination_grace_period_seconds;
    let at = path.child("terminationGracePeriodSeconds");
    if let Some(seconds) = own_grace.filter(|seconds| *seconds <= 0) {
        errors.invalid(&at, seconds, "must be greater than 0");
    }
    let success = probe.success_threshold.unwrap_or(1);
    match (role, own_grace) {
        (ProbeRole::Readiness, Some(seconds)) => errors.invalid(&at, seconds, "must not be set for readinessProbes"),
        (ProbeRole::Readiness, None) => {}
        _ if success != 1 => errors.invalid(&path.child("successThreshold"), success, "must be 1"),
        _ => {}
    }
}

/// Checks the hooks of a container.
pub fn check_lifecycle(lifecycle: Option<&Lifecycle>, grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(lifecycle) = lifecycle else { return };
    for (field, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        if let Some(hook) = hook {
            probe_handler::check(&ProbeHandler::all_of_hook(hook), grace, &path.child(field), errors);
        }
    }
}
