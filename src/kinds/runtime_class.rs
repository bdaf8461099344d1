//! RuntimeClass (node.k8s.io/v1).

use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, names, node_labels, omit, shapes};
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
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("handler");
        match old {
            Some(old) => errors.immutable(&path, &self.handler, &old.handler),
            None => errors.each_invalid(&path, self.handler.as_str(), names::label(&self.handler)),
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
    use crate::object::Object;
    use serde_json::json;

    #[test]
    fn deprecated_node_labels_are_reported() {
        let class = |label: &str| Object(json!({"handler": "h", "scheduling": {"nodeSelector": {label: ""}}}));
        let newer = "scheduling.nodeSelector: deprecated since v1.14; use \"kubernetes.io/os\" instead";
        assert_eq!(super::warnings(&class("beta.kubernetes.io/os")), [newer]);
        assert!(super::warnings(&class("kubernetes.io/os")).is_empty());
    }
}
