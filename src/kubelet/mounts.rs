//! Volumes that cannot be set up because what they show is missing: no container of the pod starts before it appears.

use super::pod::LocalPod;
use super::start::Unready;
use k8s_openapi::api::core::v1::Volume;

/// Every pod mounts it; no pod waits for it.
const ROOT_CA: &str = "kube-root-ca.crt";

/// The first volume whose ConfigMap, Secret or key is missing. Asked only until the pod's first start: what was mounted stays.
pub fn missing(pod: &LocalPod) -> Option<Unready> {
    if pod.facts.is_some() {
        return None;
    }
    let mut volumes = pod.spec.volumes.iter().flatten();
    volumes.find_map(|volume| {
        let what = what_is_missing(pod, volume)?;
        let message = format!("MountVolume.SetUp failed for volume {:?} : {what}", volume.name);
        Some(Unready { reason: "FailedMount", message })
    })
}

fn what_is_missing(pod: &LocalPod, volume: &Volume) -> Option<String> {
    if let Some(map) = &volume.config_map {
        return absent(pod, "configmaps", &map.name, map.optional);
    }
    if let Some(secret) = &volume.secret {
        return absent(pod, "secrets", secret.secret_name.as_deref().unwrap_or_default(), secret.optional);
    }
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    sources.into_iter().find_map(|source| {
        let map = source.config_map.as_ref().and_then(|map| absent(pod, "configmaps", &map.name, map.optional));
        map.or_else(|| source.secret.as_ref().and_then(|secret| absent(pod, "secrets", &secret.name, secret.optional)))
    })
}

fn absent(pod: &LocalPod, resource: &'static str, name: &str, optional: Option<bool>) -> Option<String> {
    let found =
        optional == Some(true) || name == ROOT_CA || pod.world.find(resource, &pod.row.key.namespace, name).is_some();
    (!found).then(|| format!("{} {name:?} not found", resource.trim_end_matches('s')))
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Machine, pod};
    use serde_json::json;

    #[test]
    fn a_missing_volume_holds_the_pod_until_it_appears() {
        let volumes = json!([{"name": "api", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
            {"name": "may", "secret": {"secretName": "none", "optional": true}},
            {"name": "cfg", "configMap": {"name": "cm"}}]);
        let mut machine = Machine::new(pod(json!({"volumes": volumes, "containers": [{"name": "c", "image": "a"}]})));
        machine.run_to(100);
        assert_eq!(machine.summary(), "Pending c=ContainerCreating/0");
        assert_eq!(machine.condition("PodReadyToStartContainers"), "False");
        let told: Vec<_> = machine.events.iter().map(|event| &*event.message).collect();
        assert_eq!(told, ["MountVolume.SetUp failed for volume \"cfg\" : configmap \"cm\" not found"]);
        machine.put("configmaps", json!({"metadata": {"name": "cm", "namespace": "default", "uid": "cm"}}));
        machine.settle();
        assert_eq!(machine.summary(), "Running c+=running/0");
    }
}
