//! Fields of a pod that are kept and shown and that nothing acts on yet, although they change what a pod means.
//!
//! The one table of them: each is told to whoever writes it, and by an event of the pod. A line goes when the feature comes.

use serde_json::Value;

/// Fields of a pod's spec, and what happens instead.
const OF_POD: &[(&[&str], &str)] = &[
    (&["hostNetwork"], "the pod has an address of its own all the same"),
    (&["hostPID"], ALL_SEEN),
    (&["hostIPC"], ALL_SEEN),
    (&["hostUsers"], ALL_SEEN),
    (&["shareProcessNamespace"], ALL_SEEN),
    (&["runtimeClassName"], "there is one way to run a pod"),
    (&["securityContext", "sysctls"], "the host's settings count"),
];

/// Fields of a container, and what happens instead.
const OF_CONTAINER: &[(&[&str], &str)] = &[
    (&["securityContext", "privileged"], AS_YOU),
    (&["securityContext", "capabilities"], AS_YOU),
    (&["securityContext", "readOnlyRootFilesystem"], "the host's files are open as they are to you"),
];

/// Fields of a volume, and what happens instead.
const OF_VOLUME: &[(&[&str], &str)] = &[
    (&["emptyDir", "medium"], "it is a folder on disk"),
    (&["emptyDir", "sizeLimit"], "it takes what there is room for"),
];

const AS_YOU: &str = "processes run as the user that runs kloop";
const ALL_SEEN: &str = "processes see each other and the host's";

/// The fields of a pod's spec that nothing acts on: the path of each below `path`, and what happens instead.
pub fn fields(spec: &Value, path: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    look(spec, path, OF_POD, &mut found);
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        look(volume, &format!("{path}.volumes[{index}]"), OF_VOLUME, &mut found);
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            look(container, &format!("{path}.{list}[{index}]"), OF_CONTAINER, &mut found);
        }
    }
    found
}

fn look(value: &Value, path: &str, table: &[(&[&str], &'static str)], found: &mut Vec<(String, &'static str)>) {
    for (fields, instead) in table {
        let asked = fields.iter().try_fold(value, |value, field| value.get(field)).is_some_and(|asked| match asked {
            Value::Null => false,
            // Of all of these only `hostUsers` asks for something by saying no.
            Value::Bool(asked) => *asked != (fields[0] == "hostUsers"),
            Value::Array(list) => !list.is_empty(),
            Value::String(text) => !text.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        });
        if asked {
            found.push((format!("{path}.{}", fields.join(".")), *instead));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_asks_for_something_is_found() {
        let spec = json!({
            "hostNetwork": true, "hostPID": false, "hostUsers": true, "runtimeClassName": null,
            "securityContext": {"runAsUser": 0, "sysctls": [{"name": "a", "value": "1"}]},
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"medium": "", "sizeLimit": "1Mi"}}],
            "initContainers": [{"name": "i", "resources": {"limits": {"memory": "1Mi"}, "requests": {"cpu": 1}}}],
            "containers": [{"name": "c"}, {"name": "d", "securityContext": {"capabilities": {}, "privileged": true}}],
        });
        let expected = [
            "spec.hostNetwork",
            "spec.securityContext.sysctls",
            "spec.volumes[1].emptyDir.sizeLimit",
            "spec.containers[1].securityContext.privileged",
        ];
        let found: Vec<String> = fields(&spec, "spec").into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, expected);
    }
}
