//! Names in other objects: whoever refers to an object whose name has changed is told the new one.

use super::Built;
use super::field::{Field, each, names};
use super::id::Id;
use super::resource::Resource;
use super::rules::NameReference;
use serde_json::Value;
use std::collections::HashMap;

/// Path of the pod spec in the kinds that have one.
const PODS: [(&str, &str); 8] = [
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
const OTHERS: [(&str, Field); 39] = [
    ("Deployment", Field::there("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("ReplicationController", Field::there("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("ReplicaSet", Field::there("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("StatefulSet", Field::there("HorizontalPodAutoscaler", "spec/scaleTargetRef")),
    ("ConfigMap", Field::there("Role", "rules/resourceNames")),
    ("ConfigMap", Field::there("ClusterRole", "rules/resourceNames")),
    (
        "ConfigMap",
        Field::there("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap"),
    ),
    ("Secret", Field::there("Role", "rules/resourceNames")),
    ("Secret", Field::there("ClusterRole", "rules/resourceNames")),
    ("Secret", Field::there("Ingress", "spec/tls/secretName")),
    ("Secret", Field::there("Ingress", "metadata/annotations/ingress.kubernetes.io\\/auth-secret")),
    ("Secret", Field::there("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret")),
    ("Secret", Field::there("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret")),
    ("Secret", Field::there("ServiceAccount", "imagePullSecrets/name")),
    ("Secret", Field::there("StorageClass", "parameters/secretName")),
    ("Secret", Field::there("StorageClass", "parameters/adminSecretName")),
    ("Secret", Field::there("StorageClass", "parameters/userSecretName")),
    ("Secret", Field::there("StorageClass", "parameters/secretRef")),
    ("Secret", Field::there("PersistentVolume", "spec/azureFile/secretName")),
    ("Service", Field::there("StatefulSet", "spec/serviceName")),
    ("Service", Field::there("Ingress", "spec/rules/http/paths/backend/serviceName")),
    ("Service", Field::there("Ingress", "spec/backend/serviceName")),
    ("Service", Field::there("Ingress", "spec/rules/http/paths/backend/service/name")),
    ("Service", Field::there("Ingress", "spec/defaultBackend/service/name")),
    ("Service", Field::there("APIService", "spec/service")),
    ("Service", Field::there("ValidatingWebhookConfiguration", "webhooks/clientConfig/service")),
    ("Service", Field::there("MutatingWebhookConfiguration", "webhooks/clientConfig/service")),
    ("Role", Field::there("RoleBinding", "roleRef")),
    ("ClusterRole", Field::there("RoleBinding", "roleRef")),
    ("ClusterRole", Field::there("ClusterRoleBinding", "roleRef")),
    ("ServiceAccount", Field::there("RoleBinding", "subjects")),
    ("ServiceAccount", Field::there("ClusterRoleBinding", "subjects")),
    ("PersistentVolume", Field::there("PersistentVolumeClaim", "spec/volumeName")),
    ("PersistentVolume", Field::there("ClusterRole", "rules/resourceNames")),
    ("StorageClass", Field::there("PersistentVolume", "spec/storageClassName")),
    ("StorageClass", Field::there("PersistentVolumeClaim", "spec/storageClassName")),
    ("StorageClass", Field::there("StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName")),
    ("IngressClass", Field::there("Ingress", "spec/ingressClassName")),
    ("ValidatingAdmissionPolicy", Field::there("ValidatingAdmissionPolicyBinding", "spec/policyName")),
];

/// Writes the names that objects have now to where others know them by an earlier one.
pub fn mend(resources: &mut [Resource], more: &[NameReference]) -> Built {
    let named = Named::new(resources);
    for resource in resources {
        let referrer = Referrer::new(resource);
        let mut unclear = None;
        let mut mend = |kind: &str, value: &mut Value| {
            unclear = unclear.take().or(named.mend(&referrer, kind, value).err());
        };
        let object = &mut resource.object;
        let spec = PODS.iter().find(|(kind, _)| *kind == object.kind()).map(|(_, spec)| spec);
        for ((kind, path), spec) in OF_PODS.iter().flat_map(|of| spec.map(|spec| (of, spec))) {
            each(&mut object.0, &names(&format!("{spec}/{path}")), false, &mut |value| mend(kind, value));
        }
        for (kind, field) in &OTHERS {
            field.each(object, &mut |value| mend(kind, value));
        }
        for (kind, field) in more.iter().flat_map(|of| of.field_specs.iter().map(|field| (&of.kind, field))) {
            field.each(object, &mut |value| mend(kind, value));
        }
        if let Some(why) = unclear {
            return Err(format!("updating name references of {}: {why}", resource.id()));
        }
    }
    Ok(())
}

/// An object that others may refer to.
struct Candidate {
    now: Id,
    /// Kinds that it was of, and the name and the place that it then had.
    before: Vec<Id>,
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
    fn new(resource: &Resource) -> Referrer {
        let place = resource.id().place().map(str::to_owned);
        Referrer { place, prefixes: resource.prefixes.clone(), suffixes: resource.suffixes.clone() }
    }
}

/// Objects whose names have changed, by the names that they had.
struct Named(HashMap<String, Vec<Candidate>>);

impl Named {
    fn new(resources: &[Resource]) -> Named {
        let mut named: HashMap<String, Vec<Candidate>> = HashMap::new();
        for resource in resources {
            let mut seen: Vec<&str> = Vec::new();
            for id in &resource.before {
                if seen.contains(&id.name.as_str()) {
                    continue;
                }
                seen.push(&id.name);
                named.entry(id.name.clone()).or_default().push(Candidate {
                    now: resource.id(),
                    before: resource.before.clone(),
                    prefixes: resource.prefixes.clone(),
                    suffixes: resource.suffixes.clone(),
                });
            }
        }
        Named(named)
    }

    /// Mends a name, or the name (and namespace) in a map that says more about whom it means.
    fn mend(&self, referrer: &Referrer, kind: &str, value: &mut Value) -> Built {
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
                if !namespace.is_empty() && SAYS_NAMESPACE.contains(&kind) {
                    map.insert("namespace".to_owned(), namespace.into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The one object that a name means, if it means one: of the same namespace first, then of the same layers.
    fn find(&self, referrer: &Referrer, kind: &str, name: &str, namespace: Option<&str>) -> Built<Option<&Candidate>> {
        let is_kind = |candidate: &&Candidate| candidate.before.iter().any(|id| id.kind == kind);
        let is_in = |id: &Id, place: &str| id.place() == Some(place);
        let is_near = |candidate: &&Candidate| match (namespace, candidate.now.place()) {
            (Some(said), _) => candidate.before.iter().any(|id| is_in(id, said)) || is_in(&candidate.now, said),
            (None, None) => true,
            (None, Some(place)) => kind == "ServiceAccount" || referrer.place.as_deref().is_none_or(|own| own == place),
        };
        let mut found: Vec<&Candidate> =
            self.0.get(name).into_iter().flatten().filter(is_kind).filter(is_near).collect();
        if found.len() > 1 {
            let shares = |candidate: &&Candidate| {
                ends_alike(&candidate.prefixes, &referrer.prefixes)
                    && ends_alike(&candidate.suffixes, &referrer.suffixes)
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

/// Kinds whose namespace stands beside their name where they are referred to.
const SAYS_NAMESPACE: [&str; 2] = ["ServiceAccount", "Service"];

/// Whether the outermost of two stacks of layers are the same.
fn ends_alike(a: &[String], b: &[String]) -> bool {
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
            assert_eq!(ends_alike(&list(a), &list(b)), expected, "{a:?} {b:?}");
            assert_eq!(ends_alike(&list(b), &list(a)), expected, "{b:?} {a:?}");
        }
    }
}
