//! `httpGet`: an HTTP request.

use super::HandlerType;
use crate::kinds::omit::{default_text, empty};
use crate::kinds::{FieldErrors, FieldPath, address, names};
use k8s_openapi::api::core::v1::HTTPGetAction;

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
        format!("http-get {scheme}://{}{slash}{path}", address::host_port(host, &super::port_text(&self.port)))
    }

    fn summarize(&self) -> String {
        format!("GET {} on port {}", self.path.as_deref().unwrap_or("/"), super::port_text(&self.port))
    }
}
