//! `sleep`: a pause, only for hooks.

use super::HandlerType;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::SleepAction;

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
