//! The annotation by which a pod's node tells the process ids of its containers.
//!
//! Kubernetes has no such field: a container's process there is behind the runtime. Here it is a process of this machine that people
//! look for with ps, strace and debuggers.

use crate::object::Object;

/// The annotation: `NAME=PID` for each container that runs, in the order of the spec, with commas between them. A pod none of whose
/// containers runs does not have it.
pub const ANNOTATION: &str = "kloop.dev/pid";

/// The annotation's value; none when nothing runs.
pub fn format<'a>(running: impl Iterator<Item = (&'a str, u32)>) -> Option<String> {
    let pairs: Vec<String> = running.map(|(container, pid)| format!("{container}={pid}")).collect();
    (!pairs.is_empty()).then(|| pairs.join(","))
}

/// The process ids alone, as a table shows them; empty when nothing runs.
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
    fn containers_are_named_and_the_table_shows_numbers_alone() {
        let value = format([("web", 12), ("log", 345)].into_iter());
        assert_eq!(value.as_deref(), Some("web=12,log=345"));
        assert_eq!(format(std::iter::empty()), None);
        let pod = |annotations| Object(json!({"metadata": {"annotations": annotations}}));
        assert_eq!(list(&pod(json!({ANNOTATION: value}))), "12,345");
        assert_eq!(list(&pod(json!({}))), "");
    }
}
