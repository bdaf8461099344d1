//! The annotation that selects a pod's view of the file system, and warnings about fields that have no effect with it.

use crate::object::Object;
use serde_json::Value;

/// `private` (the default): a private layer over the machine's files. `host`: the machine's files themselves.
pub const ANNOTATION: &str = "kloop.dev/filesystem";
/// Its values.
const VALUES: [&str; 2] = ["host", "private"];
/// Default mount path of a pod's service account token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Warnings about a pod or template with `metadata` and `spec` at `path` in the object.
pub fn warnings(object: &Object, path: &[&str]) -> Vec<String> {
    let Some(pod) = (if path.is_empty() { Some(&object.0) } else { object.value_at(path) }) else { return Vec::new() };
    let Some(value) = pod["metadata"]["annotations"][ANNOTATION].as_str() else { return Vec::new() };
    let at = path.iter().map(|part| format!("{part}.")).collect::<String>();
    if !VALUES.contains(&value) {
        let values = VALUES.map(|value| format!("{value:?}")).join(", ");
        let text = format!("unsupported value {value:?}, supported values: {values}; the pod gets a private layer");
        return vec![format!("{at}metadata.annotations[{ANNOTATION}]: {text}")];
    }
    if value != "host" {
        return Vec::new();
    }
    let spec = &pod["spec"];
    let no_effect = |field: &str, what: &str| format!("{at}spec.{field}: no effect with {ANNOTATION}: host: {what}");
    let mut warnings = Vec::new();
    if spec["hostAliases"].as_array().is_some_and(|list| !list.is_empty()) {
        warnings.push(no_effect("hostAliases", "the pod sees the machine's /etc/hosts"));
    }
    if spec["dnsConfig"].is_object() {
        warnings.push(no_effect("dnsConfig", "the pod sees the machine's /etc/resolv.conf"));
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            if mounts(container) {
                let what = "volumes are at the paths in KLOOP_VOLUME_<NAME>";
                warnings.push(no_effect(&format!("{list}[{index}].volumeMounts"), what));
            }
        }
    }
    warnings
}

fn mounts(container: &Value) -> bool {
    container["volumeMounts"].as_array().into_iter().flatten().any(|mount| mount["mountPath"] != TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_without_a_private_file_system_are_reported() {
        let spec = json!({"hostAliases": [{"ip": "1.2.3.4"}], "dnsConfig": {}, "containers": [
            {"volumeMounts": [{"mountPath": TOKEN}]}, {"volumeMounts": [{"mountPath": "/data"}]}]});
        let warned = |value: &str| {
            let template = json!({"metadata": {"annotations": {ANNOTATION: value}}, "spec": spec});
            let pod = warnings(&Object(template.clone()), &[]);
            let of_template = warnings(&Object(json!({"spec": {"template": template}})), &["spec", "template"]);
            assert_eq!(pod.len(), of_template.len());
            assert!(of_template.iter().all(|warning| warning.starts_with("spec.template.")));
            pod
        };
        assert!(warned("private").is_empty());
        assert_eq!(
            warned("mine"),
            [
                "metadata.annotations[kloop.dev/filesystem]: unsupported value \"mine\", supported values: \"host\", \"private\"; \
              the pod gets a private layer"
            ]
        );
        let fields: Vec<String> =
            warned("host").iter().map(|text| text.split(':').next().unwrap().to_owned()).collect();
        assert_eq!(fields, ["spec.hostAliases", "spec.dnsConfig", "spec.containers[1].volumeMounts"]);
    }
}
