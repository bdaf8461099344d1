//! Checks of probes and of lifecycle hooks.

use super::ports::check_number_or_name;
use crate::kinds::{FieldErrors, FieldPath, amount, names};
use k8s_openapi::api::core::v1::{
    ExecAction, GRPCAction, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The actions of a probe or hook, of which exactly one must be set.
#[derive(Default)]
struct ProbeHandler<'h> {
    exec: Option<&'h ExecAction>,
    http: Option<&'h HTTPGetAction>,
    tcp: Option<&'h TCPSocketAction>,
    grpc: Option<&'h GRPCAction>,
    sleep: Option<&'h SleepAction>,
}

impl<'h> ProbeHandler<'h> {
    fn of_probe(probe: &'h Probe) -> ProbeHandler<'h> {
        ProbeHandler {
            exec: probe.exec.as_ref(),
            http: probe.http_get.as_ref(),
            tcp: probe.tcp_socket.as_ref(),
            grpc: probe.grpc.as_ref(),
            sleep: None,
        }
    }

    fn of_hook(hook: &'h LifecycleHandler) -> ProbeHandler<'h> {
        ProbeHandler {
            exec: hook.exec.as_ref(),
            http: hook.http_get.as_ref(),
            tcp: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        }
    }

    fn check(&self, grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
        let mut handlers = 0;
        let mut first = |field: &str, errors: &mut FieldErrors| {
            handlers += 1;
            if handlers > 1 {
                errors.forbidden(&path.child(field), "may not specify more than 1 handler type");
            }
            handlers == 1
        };
        if let Some(exec) = self.exec
            && first("exec", errors)
            && exec.command.as_ref().is_none_or(Vec::is_empty)
        {
            errors.required(&path.child("exec").child("command"), "");
        }
        if let Some(http) = self.http
            && first("httpGet", errors)
        {
            check_http(http, &path.child("httpGet"), errors);
        }
        if let Some(tcp) = self.tcp
            && first("tcpSocket", errors)
        {
            check_number_or_name(&tcp.port, &path.child("tcpSocket").child("port"), errors);
        }
        if let Some(grpc) = self.grpc
            && first("grpc", errors)
        {
            check_number_or_name(&IntOrString::Int(grpc.port), &path.child("grpc").child("port"), errors);
        }
        if let Some(sleep) = self.sleep
            && first("sleep", errors)
            && !(0..=grace).contains(&sleep.seconds)
        {
            let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            errors.invalid(&path.child("sleep"), sleep.seconds, &detail);
        }
        if handlers == 0 {
            errors.required(path, "must specify a handler type");
        }
    }
}

fn check_http(http: &HTTPGetAction, path: &FieldPath, errors: &mut FieldErrors) {
    if http.path.as_ref().is_none_or(String::is_empty) {
        errors.required(&path.child("path"), "");
    }
    check_number_or_name(&http.port, &path.child("port"), errors);
    let scheme = http.scheme.as_deref().unwrap_or_default();
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.unsupported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in http.http_headers.iter().flatten() {
        errors.each_invalid(&path.child("httpHeaders"), header.name.as_str(), names::http_header(&header.name));
    }
}

/// The kind of probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ProbeRole {
    /// Restarts the container.
    Liveness,
    /// Takes it out of its Services.
    Readiness,
    /// Holds the other two back.
    Startup,
}

/// Checks one probe.
pub fn check(probe: Option<&Probe>, role: ProbeRole, grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(probe) = probe else { return };
    ProbeHandler::of_probe(probe).check(grace, path, errors);
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
            ProbeHandler::of_hook(hook).check(grace, &path.child(field), errors);
        }
    }
}
