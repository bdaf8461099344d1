//! Fields of a pod that kloop stores but does not implement, although they change the pod's meaning.
//!
//! A client that sets one of them gets a warning, and the pod an event. Implementing a feature removes its line.

use serde_json::Value;

/// A field, with lists marked by `[]`; the values (as JSON) that are supported; and the behaviour for other values.
type UnsupportedField = (&'static str, &'static [&'static str], &'static str);

/// Fields of a pod's spec.
const OF_POD: &[UnsupportedField] = &[
    ("hostUsers", &["true"], "users in the pod are the machine's users"),
    ("os.name", &["\"linux\""], "programs are this machine's"),
    ("runtimeClassName", &[], "kloop has only one container runtime"),
    ("securityContext.appArmorProfile.type", UNCONFINED, NO_PROFILE),
    ("securityContext.seLinuxOptions", &[], "processes have the label of kloop itself"),
    ("securityContext.seccompProfile.type", UNCONFINED, NO_FILTER),
    ("securityContext.sysctls", &[], "the host's settings apply"),
    ("securityContext.windowsOptions", &[], "this machine runs Linux"),
];

/// Fields of a container.
const OF_CONTAINER: &[UnsupportedField] = &[
    ("securityContext.appArmorProfile.type", UNCONFINED, NO_PROFILE),
    ("securityContext.seLinuxOptions", &[], "processes have the label of kloop itself"),
    ("securityContext.seccompProfile.type", UNCONFINED, NO_FILTER),
    ("securityContext.windowsOptions", &[], "this machine runs Linux"),
    ("volumeDevices", &[], "there are no block volumes"),
    ("volumeMounts[].mountPropagation", &["\"None\""], "mounts are not propagated"),
    ("volumeMounts[].recursiveReadOnly", &["\"Disabled\"", "\"IfPossible\""], "mounts below the volume stay writable"),
];

/// Fields of a volume.
const OF_VOLUME: &[UnsupportedField] =
    &[("emptyDir.medium", &["\"\"", "\"Memory\""], "huge pages are not available: the volume is a folder on disk")];

const UNCONFINED: &[&str] = &["\"Unconfined\""];
const NO_FILTER: &str = "no system call is forbidden";
const NO_PROFILE: &str = "processes have the profile of kloop itself";

/// The unsupported fields of a pod's spec: the path of each, starting with `path`, and the actual behaviour.
pub fn fields(spec: &Value, path: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for line in OF_POD {
        find_used(spec, path.to_owned(), line.0, line, &mut found);
    }
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        for line in OF_VOLUME {
            find_used(volume, format!("{path}.volumes[{index}]"), line.0, line, &mut found);
        }
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            for line in OF_CONTAINER {
                find_used(container, format!("{path}.{list}[{index}]"), line.0, line, &mut found);
            }
        }
    }
    found
}

/// Descends to a field, through every item of the lists on the way.
fn find_used(
    value: &Value,
    path: String,
    rest: &str,
    line: &UnsupportedField,
    found: &mut Vec<(String, &'static str)>,
) {
    let (step, below) = rest.split_once('.').map_or((rest, None), |(step, below)| (step, Some(below)));
    let Some(below) = below else {
        if value.get(step).is_some_and(|value| is_unsupported(value, line.1)) {
            found.push((format!("{path}.{step}"), line.2));
        }
        return;
    };
    match step.strip_suffix("[]") {
        None => find_used(&value[step], format!("{path}.{step}"), below, line, found),
        Some(list) => {
            for (index, item) in value[list].as_array().into_iter().flatten().enumerate() {
                find_used(item, format!("{path}.{list}[{index}]"), below, line, found);
            }
        }
    }
}

fn is_unsupported(value: &Value, supported: &[&str]) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::String(text) if text.is_empty() => false,
        Value::Object(map) => !map.is_empty(),
        Value::Number(number) if number.as_i64() == Some(0) => false,
        other => !supported.contains(&other.to_string().as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unsupported_fields_are_found() {
        let seccomp = |kind: &str| json!({"seccompProfile": {"type": kind}});
        let spec = json!({
            "hostNetwork": false, "hostPID": true, "hostUsers": true, "runtimeClassName": null, "os": {"name": "linux"},
            "securityContext": {"runAsUser": 0, "sysctls": [{"name": "a", "value": "1"}]},
            "initContainers": [{"name": "i", "securityContext": seccomp("Unconfined"), "ports": [{"hostPort": 0}]}],
            "containers": [{"name": "c"}, {"name": "d", "securityContext": seccomp("RuntimeDefault"),
                "ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 2}]}],
        });
        let expected = ["spec.securityContext.sysctls", "spec.containers[1].securityContext.seccompProfile.type"];
        let found = |spec: &Value| fields(spec, "spec").into_iter().map(|(path, _)| path).collect::<Vec<String>>();
        assert_eq!(found(&spec), expected);
        let spec = json!({"hostNetwork": true, "hostUsers": false, "containers": [{"ports": [{"hostPort": 2}]}]});
        assert_eq!(found(&spec), ["spec.hostUsers"]);
    }
}
