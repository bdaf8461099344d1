//! The default class: the StorageClass for claims and the IngressClass for Ingresses without a class.

use crate::object::Object;
use std::cmp::Reverse;

/// The annotation by which older claims and volumes name their class.
pub const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Annotations that mark the default StorageClass.
pub const STORAGE: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// Annotations that mark the default IngressClass.
pub const INGRESS: &[&str] = &["ingressclass.kubernetes.io/is-default-class"];

/// Whether a class is marked as the default by one of these annotations.
pub fn is_marked(class: &Object, annotations: &[&str]) -> bool {
    annotations.iter().any(|name| class.annotation(name) == Some("true"))
}

/// The default class; of several, the newest, then the first by name.
pub fn find_default_class<'a>(
    classes: impl IntoIterator<Item = &'a Object>,
    annotations: &[&str],
) -> Option<&'a Object> {
    let marked = classes.into_iter().filter(|class| is_marked(class, annotations));
    marked.max_by_key(|class| (class.created(), Reverse(class.name())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn default_class_is_the_newest_then_the_first_by_name() {
        let class = |name: &str, created: &str, mark: &str| {
            let annotations = json!({INGRESS[0]: mark});
            Object(json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}}))
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let table = [
            (vec![], None),
            (vec![class("a", early, "false")], None),
            (vec![class("a", early, "true"), class("b", late, "true"), class("c", late, "true")], Some("b")),
            (vec![class("c", late, "true"), class("b", late, "false"), class("a", early, "true")], Some("c")),
        ];
        for (classes, expected) in table {
            assert_eq!(find_default_class(&classes, INGRESS).map(Object::name), expected);
            assert_eq!(find_default_class(&classes, STORAGE).map(Object::name), None);
        }
    }
}
