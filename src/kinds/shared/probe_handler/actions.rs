//! The actions of probes and hooks: `exec`, `httpGet`, `tcpSocket`, `grpc` and `sleep`.

use super::HandlerType;
use crate::kinds::shared::names;
use crate::kinds::shared::omit::{default_text, empty};
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::host_port;
use k8s_openapi::api::core::v1::{ExecAction, GRPCAction, HTTPGetAction, SleepAction, TCPSocketAction};

impl HandlerType for ExecAction {
    fn field(&self) -> &'static str {
        "exec"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.command);
    }

    fn check(&self, _grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
        if self.command.as_ref().is_none_or(Vec::is_empty) {
            errors.required(&path.child("command"), "");
        }
    }

    fn describe(&self) -> String {
        format!("exec [{}]", self.summarize())
    }

    fn summarize(&self) -> String {
        self.command.as_deref().unwrap_or_default().join(" ")
    }
}

impl HandlerType for HTTPGetAction {
    fn field(&self) -> &'static str {
        "httpGet"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.host);
        empty(&mut self.http_headers);
        default_text(&mut self.path, "/");
        default_text(&mut self.scheme, "HTTP");
    }

    fn check(&self, _grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
        if self.path.as_ref().is_none_or(String::is_empty) {
            errors.required(&path.child("path"), "");
        }
        super::check_port(&self.port, &path.child("port"), errors);
        let scheme = self.scheme.as_deref().unwrap_or_default();
        if !["HTTP", "HTTPS"].contains(&scheme) {
            errors.unsupported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
        }
        for header in self.http_headers.iter().flatten() {
            errors.each_invalid(&path.child("httpHeaders"), header.name.as_str(), names::http_header(&header.name));
        }
    }

    fn resolve_port(&mut self, number_of: &dyn Fn(&str) -> Option<i32>) {
        super::resolve(&mut self.port, number_of);
    }

    fn describe(&self) -> String {
        let scheme = self.scheme.as_deref().unwrap_or_default().to_ascii_lowercase();
        let host = self.host.as_deref().unwrap_or_default();
        let path = self.path.as_deref().unwrap_or_default();
        let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
        format!("http-get {scheme}://{}{slash}{path}", host_port(host, super::port_text(&self.port)))
    }

    fn summarize(&self) -> String {
        format!("GET {} on port {}", self.path.as_deref().unwrap_or("/"), super::port_text(&self.port))
    }
}

impl HandlerType for TCPSocketAction {
    fn field(&self) -> &'static str {
        "tcpSocket"
    }

    fn fill_in_defaults(&mut self) {
        empty(&mut self.host);
    }

    fn check(&self, _grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
        super::check_port(&self.port, &path.child("port"), errors);
    }

    fn resolve_port(&mut self, number_of: &dyn Fn(&str) -> Option<i32>) {
        super::resolve(&mut self.port, number_of);
    }

    fn describe(&self) -> String {
        format!("tcp-socket {}:{}", self.host.as_deref().unwrap_or_default(), super::port_text(&self.port))
    }

    fn summarize(&self) -> String {
        format!("a connection to port {}", super::port_text(&self.port))
    }
}

impl HandlerType for GRPCAction {
    fn field(&self) -> &'static str {
        "grpc"
    }

    fn fill_in_defaults(&mut self) {
        self.service.get_or_insert_default();
    }

    fn check(&self, _grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
        errors.each_invalid(&path.child("port"), self.port, names::port(self.port.into()));
    }

    fn describe(&self) -> String {
        format!("grpc <pod>:{} {}", self.port, self.service.as_deref().unwrap_or_default())
    }

    fn summarize(&self) -> String {
        format!("grpc on port {}", self.port)
    }
}

impl HandlerType for SleepAction {
    fn field(&self) -> &'static str {
        "sleep"
    }

    fn fill_in_defaults(&mut self) {}

    fn check(&self, grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
        if !(0..=grace).contains(&self.seconds) {
            let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            errors.invalid(path, self.seconds, &detail);
        }
    }

    /// Never shown, since descriptions show only probes.
    fn describe(&self) -> String {
        "unknown".into()
    }

    fn summarize(&self) -> String {
        format!("a sleep of {}s", self.seconds)
    }
}
