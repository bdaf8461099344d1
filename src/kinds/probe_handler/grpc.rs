//! `grpc`: a call of the health checking protocol of gRPC.

use super::HandlerType;
use crate::kinds::{FieldErrors, FieldPath, names};
use k8s_openapi::api::core::v1::GRPCAction;

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
