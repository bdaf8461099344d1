//! The object that a HorizontalPodAutoscaler scales, as its row keeps it.
//!
//! Never: looks the object up. Start reading at [`ScaleTargetRef`].

use crate::object::{Object, Str};

/// The resource of autoscalers.
pub const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";

/// `spec.scaleTargetRef` of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScaleTargetRef {
    /// `apiVersion`, such as `apps/v1`.
    pub api_version: Str,
    /// `kind`, such as `Deployment`.
    pub kind: Str,
    /// `name`.
    pub name: Str,
}

impl ScaleTargetRef {
    /// Reads it from an autoscaler.
    pub fn from_autoscaler(autoscaler: &Object) -> ScaleTargetRef {
        let text = |field: &str| autoscaler.text(&["spec", "scaleTargetRef", field]).unwrap_or_default().into();
        ScaleTargetRef { api_version: text("apiVersion"), kind: text("kind"), name: text("name") }
    }
}
