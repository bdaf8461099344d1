//! `tcpSocket`: connects to a port.

use super::HandlerType;
use crate::kinds::omit::empty;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::TCPSocketAction;

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
