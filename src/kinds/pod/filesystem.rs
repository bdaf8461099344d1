//! The annotation that says whose files a pod sees, and what it takes away from what else the pod says.

use crate::object::Object;
use serde_json::Value;

/// `private`, which is the usual thing: the machine's files under a private layer; `host`: the machine's files as they are.
pub const ANNOTATION: &str = "kloop.dev/filesystem";
/// Its values.
const VALUES: [&str; 2] = ["host", "private"];
/// Default mount path of a pod's service account token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Warnings about a pod or a template whose `metadata` and `spec` lie at `path` in the object.
pub fn warnings(object: &Object, path: &[&str]) -> Vec<String> {
    let Some(of) = (if path.is_empty() { Some(&object.0) } else { object.value_at(path) }) else { return Vec::new() };
    let Some(value) = of["metadata"]["annotations"][ANNOTATION].as_str() else { return Vec::new() };
    let at = path.iter().map(|part| format!("{part}.")).collect::<String>();
    if !VALUES.contains(&value) {
        let values = VALUES.map(|value| format!("{value:?}")).join(", ");
        let text = format!("unsupported value {value:?}, supported values: {values}; the pod gets a private layer");
        return vec![format!("{at}metadata.annotations[{ANNOTATION}]: {text}")];
    }
    if value != "host" {
        return Vec::new();
    }
    let spec = &of["spec"];
    let beside = |field: &str, what: &str| format!("{at}spec.{field}: no effect beside {ANNOTATION}: host: {what}");
    let mut warnings = Vec::new();
    if spec["hostAliases"].as_array().is_some_and(|list| !list.is_empty()) {
        warnings.push(beside("hostAliases", "the pod sees the machine's /etc/hosts"));
    }
    if spec["dnsConfig"].is_object() {
        warnings.push(beside("dnsConfig", "the pod sees the machine's /etc/resolv.conf"));
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            if mounts(container) {
                let what = "volumes are at the paths that KLOOP_VOLUME_<NAME> tells";
                warnings.push(beside(&format!("{list}[{index}].volumeMounts"), what));
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
        let told = |value: &str| {
            let template = json!({"metadata": {"annotations": {ANNOTATION: value}}, "spec": spec});
            let pod = warnings(&Object(template.clone()), &[]);
            let of_template = warnings(&Object(json!({"spec": {"template": template}})), &["spec", "template"]);
            assert_eq!(pod.len(), of_template.len());
            assert!(of_template.iter().all(|warning| warning.starts_with("spec.template.")));
            pod
        };
        assert!(told("private").is_empty());
        assert_eq!(
            told("mine"),
            [
                "metadata.annotations[kloop.dev/filesystem]: unsupported value \"mine\", supported values: \"host\", \"private\"; \
              the pod gets a private layer"
            ]
        );
        let fields: Vec<String> = told("host").iter().map(|text| text.split(':').next().unwrap().to_owned()).collect();
        assert_eq!(fields, ["spec.hostAliases", "spec.dnsConfig", "spec.containers[1].volumeMounts"]);
    }
}
