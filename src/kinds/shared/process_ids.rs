//! The annotation with the process ids of a pod's containers, which the node sets.
//!
//! Kubernetes has no such field. In kloop, containers are processes of this machine, which users inspect with ps,
//! strace and debuggers.

use crate::object::Object;

/// The annotation: `NAME=PID` for each running container, in the order of the spec, separated by commas. A pod without
/// running containers does not have it.
pub const ANNOTATION: &str = "kloop.dev/pid";

/// The annotation's value; `None` when no container is running.
pub fn format<'a>(running: impl Iterator<Item = (&'a str, u32)>) -> Option<String> {
    let pairs: Vec<String> = running.map(|(container, pid)| format!("{container}={pid}")).collect();
    (!pairs.is_empty()).then(|| pairs.join(","))
}

/// The process ids for a table, separated by commas; empty when no container is running.
pub fn list(pod: &Object) -> String {
    let pairs = pod.annotation(ANNOTATION).unwrap_or_default().split(',');
    let ids: Vec<&str> = pairs.filter_map(|pair| pair.split_once('=')).map(|(_, pid)| pid).collect();
    ids.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotation_has_names_and_the_table_only_numbers() {
        let value = format([("web", 12), ("log", 345)].into_iter());
        assert_eq!(value.as_deref(), Some("web=12,log=345"));
        assert_eq!(format(std::iter::empty()), None);
        let pod = |annotations| Object(json!({"metadata": {"annotations": annotations}}));
        assert_eq!(list(&pod(json!({ANNOTATION: value}))), "12,345");
        assert_eq!(list(&pod(json!({}))), "");
    }
}
