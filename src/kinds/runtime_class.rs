//! RuntimeClass (node.k8s.io/v1).

use super::catalogue::shapes;
use super::pod::{resources, scheduling};
use super::shared::{metadata, names, node_labels, omit};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use crate::object::Object;
use crate::object::struct_shape::StructShape;
use k8s_openapi::api::node::v1::RuntimeClass;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    namespaced: false,
    status: false,
    generation: false,
    unconditional_update: false,
    create_on_update: true,
    warnings,
    shape: &SHAPE,
    ..Kind::new::<RuntimeClass>("runtimeclasses.node.k8s.io", "v1", "RuntimeClass", &view::table_only::RUNTIME_CLASS)
};

static SHAPE: StructShape = StructShape::new(&[shapes::META, ("scheduling", shapes::map(&SCHEDULING_SHAPE))]);
static SCHEDULING_SHAPE: StructShape = StructShape::new(&[("nodeSelector", shapes::ATOMIC)]);

impl Typed for RuntimeClass {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        if let Some(overhead) = &mut self.overhead {
            omit::empty(&mut overhead.pod_fixed);
        }
        if let Some(scheduling) = &mut self.scheduling {
            omit::empty(&mut scheduling.node_selector);
            omit::empty(&mut scheduling.tolerations);
        }
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("handler");
        match old {
            Some(old) => errors.immutable(&path, &self.handler, &old.handler),
            None if self.handler.is_empty() => errors.required(&path, ""),
            None => errors.each_invalid(&path, self.handler.as_str(), names::label(&self.handler)),
        }
        if let Some(fixed) = self.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref()) {
            resources::check_overhead(fixed, &FieldPath::root("overhead"), errors);
        }
        if let Some(scheduling) = &self.scheduling {
            let path = FieldPath::root("scheduling");
            if let Some(labels) = &scheduling.node_selector {
                metadata::check_labels(labels, &path.child("nodeSelector"), errors);
            }
            let tolerations = scheduling.tolerations.as_deref().unwrap_or_default();
            scheduling::check_tolerations(tolerations, &path.child("tolerations"), errors);
        }
    }
}

/// Warns of deprecated node labels (`pkg/api/node/util.go`).
fn warnings(class: &Object) -> Vec<String> {
    let labels = class.pairs(&["scheduling", "nodeSelector"]);
    let messages = labels.filter_map(|(key, _)| node_labels::deprecated(key));
    messages.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use crate::object::Object;
    use serde_json::json;

    #[test]
    fn overhead_and_scheduling_are_checked_as_in_pods() {
        let class = |fields: serde_json::Value| {
            let mut body = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h"});
            json_patch::merge(&mut body, &fields);
            refusals(body).join("; ")
        };
        assert_eq!(class(json!({"overhead": {"podFixed": {"cpu": "1"}}})), "");
        assert_eq!(class(json!({"handler": ""})), "handler: Required value");
        let overhead = class(json!({"overhead": {"podFixed": {"pods": "1"}}}));
        assert_eq!(
            overhead,
            "overhead.limits[pods]: Invalid value: \"pods\": must be a standard resource for containers"
        );
        let toleration = class(
            json!({"scheduling": {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]}}),
        );
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        assert_eq!(toleration, format!("scheduling.tolerations[0].effect: Invalid value: \"NoSchedule\": {detail}"));
        assert!(
            class(json!({"scheduling": {"nodeSelector": {"a": "b c"}}}))
                .starts_with("scheduling.nodeSelector: Invalid value")
        );
    }

    #[test]
    fn deprecated_node_labels_are_reported() {
        let class = |label: &str| Object(json!({"handler": "h", "scheduling": {"nodeSelector": {label: ""}}}));
        let newer = "scheduling.nodeSelector: deprecated since v1.14; use \"kubernetes.io/os\" instead";
        assert_eq!(super::warnings(&class("beta.kubernetes.io/os")), [newer]);
        assert!(super::warnings(&class("kubernetes.io/os")).is_empty());
    }
}
