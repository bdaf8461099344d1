//! `exec`: runs a command in the container.

use super::HandlerType;
use crate::kinds::omit::empty;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::ExecAction;

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
