//! References by name: updates them when the referenced object has been renamed.

use super::BuildResult;
use super::field::{BuiltinField, names, visit_path};
use super::id::ResourceId;
use super::resource::BuildResource;
use super::rules::NameReference;
use serde_json::Value;
use std::collections::HashMap;

/// Path of the pod spec in the kinds that have one.
pub const POD_SPEC_PATHS: [(&str, &str); 8] = [
    ("Pod", "spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("ReplicationController", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];

/// References of pods: target kinds and paths.
const OF_PODS: [(&str, &str); 19] = [
    ("ConfigMap", "volumes/configMap/name"),
    ("ConfigMap", "volumes/projected/sources/configMap/name"),
    ("ConfigMap", "containers/env/valueFrom/configMapKeyRef/name"),
    ("ConfigMap", "initContainers/env/valueFrom/configMapKeyRef/name"),
    ("ConfigMap", "containers/envFrom/configMapRef/name"),
    ("ConfigMap", "initContainers/envFrom/configMapRef/name"),
    ("Secret", "volumes/secret/secretName"),
    ("Secret", "volumes/projected/sources/secret/name"),
    ("Secret", "containers/env/valueFrom/secretKeyRef/name"),
    ("Secret", "initContainers/env/valueFrom/secretKeyRef/name"),
    ("Secret", "containers/envFrom/secretRef/name"),
    ("Secret", "initContainers/envFrom/secretRef/name"),
    ("Secret", "imagePullSecrets/name"),
    ("ServiceAccount", "serviceAccountName"),
    ("PersistentVolumeClaim", "volumes/persistentVolumeClaim/claimName"),
    ("PriorityClass", "priorityClassName"),
    ("RuntimeClass", "runtimeClassName"),
    ("ResourceClaim", "resourceClaims/resourceClaimName"),
    ("ResourceClaimTemplate", "resourceClaims/resourceClaimTemplateName"),
];

/// References of other kinds: target kinds and paths.
const OTHER_REFERENCES: [(&str, BuiltinField); 39] = [
    ("Deployment", BuiltinField::existing("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("ReplicationController", BuiltinField::existing("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("ReplicaSet", BuiltinField::existing("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("StatefulSet", BuiltinField::existing("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("ConfigMap", BuiltinField::existing("Role", "rules/resourceNames")),
    ("ConfigMap", BuiltinField::existing("ClusterRole", "rules/resourceNames")),
    (
        "ConfigMap",
        BuiltinField::existing(
            "Ingress",
            "metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap",
        ),
    ),
    ("Secret", BuiltinField::existing("Role", "rules/resourceNames")),
    ("Secret", BuiltinField::existing("ClusterRole", "rules/resourceNames")),
    ("Secret", BuiltinField::existing("Ingress", "spec/tls/secretName")),
    ("Secret", BuiltinField::existing("Ingress", "metadata/annotations/ingress.kubernetes.io\\/auth-secret")),
    ("Secret", BuiltinField::existing("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret")),
    ("Secret", BuiltinField::existing("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret")),
    ("Secret", BuiltinField::existing("ServiceAccount", "imagePullSecrets/name")),
    ("Secret", BuiltinField::existing("StorageClass", "parameters/secretName")),
    ("Secret", BuiltinField::existing("StorageClass", "parameters/adminSecretName")),
    ("Secret", BuiltinField::existing("StorageClass", "parameters/userSecretName")),
    ("Secret", BuiltinField::existing("StorageClass", "parameters/secretRef")),
    ("Secret", BuiltinField::existing("PersistentVolume", "spec/azureFile/secretName")),
    ("Service", BuiltinField::existing("StatefulSet", "spec/serviceName")),
    ("Service", BuiltinField::existing("Ingress", "spec/rules/http/paths/backend/serviceName")),
    ("Service", BuiltinField::existing("Ingress", "spec/backend/serviceName")),
    ("Service", BuiltinField::existing("Ingress", "spec/rules/http/paths/backend/service/name")),
    ("Service", BuiltinField::existing("Ingress", "spec/defaultBackend/service/name")),
    ("Service", BuiltinField::existing("APIService", "spec/service")),
    ("Service", BuiltinField::existing("ValidatingWebhookConfiguration", "webhooks/clientConfig/service")),
    ("Service", BuiltinField::existing("MutatingWebhookConfiguration", "webhooks/clientConfig/service")),
    ("Role", BuiltinField::existing("RoleBinding", "roleRef")),
    ("ClusterRole", BuiltinField::existing("RoleBinding", "roleRef")),
    ("ClusterRole", BuiltinField::existing("ClusterRoleBinding", "roleRef")),
    ("ServiceAccount", BuiltinField::existing("RoleBinding", "subjects")),
    ("ServiceAccount", BuiltinField::existing("ClusterRoleBinding", "subjects")),
    ("PersistentVolume", BuiltinField::existing("PersistentVolumeClaim", "spec/volumeName")),
    ("PersistentVolume", BuiltinField::existing("ClusterRole", "rules/resourceNames")),
    ("StorageClass", BuiltinField::existing("PersistentVolume", "spec/storageClassName")),
    ("StorageClass", BuiltinField::existing("PersistentVolumeClaim", "spec/storageClassName")),
    ("StorageClass", BuiltinField::existing("StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName")),
    ("IngressClass", BuiltinField::existing("Ingress", "spec/ingressClassName")),
    ("ValidatingAdmissionPolicy", BuiltinField::existing("ValidatingAdmissionPolicyBinding", "spec/policyName")),
];

/// Replaces former names of objects with their current names in all references.
pub fn update(resources: &mut [BuildResource], more: &[NameReference]) -> BuildResult {
    let named = RenamedObjects::new(resources);
    for resource in resources {
        let referrer = Referrer::new(resource);
        let mut error = None;
        let mut update = |kind: &str, value: &mut Value| {
            error = error.take().or(named.update(&referrer, kind, value).err());
        };
        let object = &mut resource.object;
        let spec = POD_SPEC_PATHS.iter().find(|(kind, _)| *kind == object.kind()).map(|(_, spec)| spec);
        for ((kind, path), spec) in OF_PODS.iter().flat_map(|of| spec.map(|spec| (of, spec))) {
            visit_path(&mut object.0, &names(&format!("{spec}/{path}")), false, &mut |value| update(kind, value));
        }
        for (kind, field) in &OTHER_REFERENCES {
            field.for_each_value(object, &mut |value| update(kind, value));
        }
        for (kind, field) in more.iter().flat_map(|of| of.field_specs.iter().map(|field| (&of.kind, field))) {
            field.for_each_value(object, &mut |value| update(kind, value));
        }
        if let Some(why) = error {
            return Err(format!("updating name references of {}: {why}", resource.id()));
        }
    }
    Ok(())
}

/// An object that others may refer to.
struct ReferralCandidate {
    now: ResourceId,
    /// Former identities.
    before: Vec<ResourceId>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
}

/// The referring object.
struct Referrer {
    place: Option<String>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
}

impl Referrer {
    fn new(resource: &BuildResource) -> Referrer {
        let place = resource.id().place().map(str::to_owned);
        Referrer { place, prefixes: resource.prefixes.clone(), suffixes: resource.suffixes.clone() }
    }
}

/// Renamed objects by their former names.
struct RenamedObjects(HashMap<String, Vec<ReferralCandidate>>);

impl RenamedObjects {
    fn new(resources: &[BuildResource]) -> RenamedObjects {
        let mut named: HashMap<String, Vec<ReferralCandidate>> = HashMap::new();
        for resource in resources {
            let mut seen: Vec<&str> = Vec::new();
            for id in &resource.before {
                if seen.contains(&id.name.as_str()) {
                    continue;
                }
                seen.push(&id.name);
                named.entry(id.name.clone()).or_default().push(ReferralCandidate {
                    now: resource.id(),
                    before: resource.before.clone(),
                    prefixes: resource.prefixes.clone(),
                    suffixes: resource.suffixes.clone(),
                });
            }
        }
        RenamedObjects(named)
    }

    /// Updates a name, or the name (and namespace) in a map that may also contain the kind.
    fn update(&self, referrer: &Referrer, kind: &str, value: &mut Value) -> BuildResult {
        match value {
            Value::String(name) => {
                if let Some(found) = self.find(referrer, kind, name, None)? {
                    name.clone_from(&found.now.name);
                }
            }
            Value::Object(map) => {
                let text = |name: &str| map.get(name).and_then(Value::as_str);
                let Some(name) = text("name").filter(|_| text("kind").is_none_or(|said| said == kind)) else {
                    return Ok(());
                };
                let Some(found) = self.find(referrer, kind, name, text("namespace"))? else { return Ok(()) };
                let (name, namespace) = (found.now.name.clone(), found.now.namespace.clone());
                map.insert("name".to_owned(), name.into());
                if !namespace.is_empty() && WITH_NAMESPACE.contains(&kind) {
                    map.insert("namespace".to_owned(), namespace.into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the object that a name refers to, if any. Prefers the same namespace, then the same
    /// layers.
    fn find(
        &self,
        referrer: &Referrer,
        kind: &str,
        name: &str,
        namespace: Option<&str>,
    ) -> BuildResult<Option<&ReferralCandidate>> {
        let is_kind = |candidate: &&ReferralCandidate| candidate.before.iter().any(|id| id.kind == kind);
        let is_in = |id: &ResourceId, place: &str| id.place() == Some(place);
        let is_near = |candidate: &&ReferralCandidate| match (namespace, candidate.now.place()) {
            (Some(said), _) => candidate.before.iter().any(|id| is_in(id, said)) || is_in(&candidate.now, said),
            (None, None) => true,
            (None, Some(place)) => kind == "ServiceAccount" || referrer.place.as_deref().is_none_or(|own| own == place),
        };
        let mut found: Vec<&ReferralCandidate> =
            self.0.get(name).into_iter().flatten().filter(is_kind).filter(is_near).collect();
        if found.len() > 1 {
            let shares = |candidate: &&ReferralCandidate| {
                has_same_outer_layers(&candidate.prefixes, &referrer.prefixes)
                    && has_same_outer_layers(&candidate.suffixes, &referrer.suffixes)
            };
            found.retain(shares);
        }
        if found.len() > 1 && referrer.place.is_some() {
            found.retain(|candidate| candidate.now.place() == referrer.place.as_deref());
        }
        let Some(first) = found.first() else { return Ok(None) };
        if found.iter().all(|other| other.now.name == first.now.name) {
            return Ok(Some(first));
        }
        let ids: Vec<String> = found.iter().map(|candidate| candidate.now.to_string()).collect();
        Err(format!("found multiple possible referrals for {name}: {}", ids.join(", ")))
    }
}

/// Kinds whose references contain a namespace and a name.
const WITH_NAMESPACE: [&str; 2] = ["ServiceAccount", "Service"];

/// Whether the outer layers of two objects are the same: the shorter list is the end of the longer.
fn has_same_outer_layers(a: &[String], b: &[String]) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    if short.is_empty() { long.is_empty() } else { long.ends_with(short) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_compared_from_the_outside() {
        let list = |text: &str| text.split(' ').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        for (a, b, expected) in
            [("", "", true), ("a", "", false), ("a b", "b", true), ("a b", "a", false), ("a b", "a b", true)]
        {
            assert_eq!(has_same_outer_layers(&list(a), &list(b)), expected, "{a:?} {b:?}");
            assert_eq!(has_same_outer_layers(&list(b), &list(a)), expected, "{b:?} {a:?}");
        }
    }
}
