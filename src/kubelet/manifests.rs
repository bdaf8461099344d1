//! Static pods: reads the manifests of the kubelet's folder from their text (Kubernetes: `pkg/kubelet/config/common.go`).
//!
//! A file that cannot be parsed keeps its previous pods, so that a half-written change ends no process.

use super::image::MANIFEST_DIR;
use crate::kinds::pod::api_references::find_api_reference;
use crate::kinds::shared::{field, metadata};
use crate::kinds::{Kind, pod};
use crate::object::{Key, Object, yaml};
use crate::world::StaticPod;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// One file of the folder: its path, and its text or why it cannot be read.
pub type ManifestFile = (String, Result<String, String>);

/// The folder's pods by the keys of their mirrors, and the problems with its files.
#[derive(Debug, Default)]
pub struct StaticManifests {
    /// The pods.
    pub pods: BTreeMap<Key, StaticPod>,
    /// Problems, for people: each names its file.
    pub problems: Vec<String>,
}

/// Reads files, in order, for a node; `before` are the pods of the previous read.
pub fn read(files: &[ManifestFile], node: &str, before: &BTreeMap<Key, StaticPod>) -> StaticManifests {
    let mut found = StaticManifests::default();
    for (file, text) in files {
        let pods = text.clone().and_then(|text| pods_of_file(file, &text, node, &mut found.problems));
        match pods {
            Ok(pods) => pods.into_iter().for_each(|(key, pod)| add(&mut found, key, pod)),
            Err(problem) => {
                found.problems.push(format!("{file}: {problem}"));
                let known = before.iter().filter(|(_, pod)| pod.file == *file);
                known.for_each(|(key, pod)| add(&mut found, key.clone(), pod.clone()));
            }
        }
    }
    found
}

/// Adds a pod; the first of two manifests with one name counts.
fn add(found: &mut StaticManifests, key: Key, pod: StaticPod) {
    if let Some(first) = found.pods.get(&key) {
        let problem = format!("{}: pod {} is already defined in {}", pod.file, key.path(), first.file);
        return found.problems.push(problem);
    }
    found.pods.insert(key, pod);
}

fn pods_of_file(
    file: &str,
    text: &str,
    node: &str,
    problems: &mut Vec<String>,
) -> Result<Vec<(Key, StaticPod)>, String> {
    let documents = yaml::documents(text).map_err(|error| error.to_string())?;
    let values = documents.iter().flat_map(|document| items(&document.value));
    values.map(|value| static_pod(file, value, node, problems)).collect()
}

/// An object, or the items of a list of objects.
fn items(value: &Value) -> Vec<&Value> {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match value["items"].as_array().filter(|_| is_list) {
        Some(list) => list.iter().flat_map(items).collect(),
        None => vec![value],
    }
}

fn static_pod(file: &str, value: &Value, node: &str, problems: &mut Vec<String>) -> Result<(Key, StaticPod), String> {
    let kind: &Kind = &pod::KIND;
    if value["apiVersion"] != "v1" || value["kind"] != "Pod" {
        let text_of = |field: &str| value[field].as_str().unwrap_or("none").to_owned();
        let (version, found) = (text_of("apiVersion"), text_of("kind"));
        return Err(format!("only Pods (apiVersion v1) can be static, found kind {found} (apiVersion {version})"));
    }
    if value["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        return Err("invalid pod: name is needed for the pod".into());
    }
    let mut unknown = Vec::new();
    let pod = (kind.normalize)(value, &mut |field| unknown.push(field.complaint()));
    let mut pod = Object(pod.map_err(|error| format!("invalid pod: {error}"))?);
    problems.extend(unknown.into_iter().map(|complaint| format!("{file}: {complaint}")));
    let hash = hash(&pod, node, file);
    complete(&mut pod, file, node, &hash);
    let mut errors = metadata::validate_metadata(&pod, None, kind);
    errors.extend((kind.validate)(&pod, None));
    if !errors.is_empty() {
        return Err(field::invalid(kind.kind, kind.resource, pod.name(), &errors).message);
    }
    if let Some(resource) = find_api_reference(&pod) {
        return Err(format!("invalid pod: static pods may not reference {resource}"));
    }
    let key = Key::new(kind.resource, pod.namespace(), pod.name());
    Ok((key, StaticPod { file: file.to_owned(), hash: hash.as_str().into(), object: Arc::new(pod) }))
}

/// The annotation with the source of a pod's definition: `file` for a static pod.
pub const SOURCE: &str = "kubernetes.io/config.source";

/// Completes a static pod as Kubernetes does: node name, origin, and a toleration of every NoExecute taint.
fn complete(pod: &mut Object, file: &str, node: &str, hash: &str) {
    let name = format!("{}-{}", pod.name(), node.to_lowercase());
    pod.set(&["metadata", "name"], name);
    if pod.namespace().is_empty() {
        pod.set(&["metadata", "namespace"], "default");
    }
    pod.unset(&["status"]);
    pod.set(&["metadata", "uid"], hash);
    pod.set(&["metadata", "annotations", "kubernetes.io/config.hash"], hash);
    pod.set(&["metadata", "annotations", SOURCE], "file");
    let relative = |container: &Value| container["image"].as_str().is_some_and(|image| image.starts_with('.'));
    if pod.containers().any(relative)
        && let Some(folder) = Path::new(file).parent().and_then(Path::to_str)
    {
        pod.set(&["metadata", "annotations", MANIFEST_DIR], folder);
    }
    pod.set(&["spec", "nodeName"], node);
    let mut tolerations = pod.items(&["spec", "tolerations"]).to_vec();
    let all = json!({"operator": "Exists", "effect": "NoExecute"});
    if !tolerations.contains(&all) {
        tolerations.push(all);
        pod.set(&["spec", "tolerations"], tolerations);
    }
}

/// Hash of the pod, the node and the file: 32 digits, like Kubernetes' MD5.
fn hash(pod: &Object, node: &str, file: &str) -> String {
    let text = format!("{}host:{node}file:{file}", pod.0);
    let (offset, prime) = (0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, 0x0000_0000_0100_0000_0000_0000_0000_013b);
    let hash = text.bytes().fold(offset, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(prime));
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: x}]}}";

    fn found(text: &str) -> StaticManifests {
        read(&[("/m/a.yaml".into(), Ok(text.into()))], "node1", &BTreeMap::new())
    }

    #[test]
    fn pod_is_named_after_its_node_and_says_where_it_comes_from() {
        let found = found(WEB);
        assert_eq!(found.problems, Vec::<String>::new());
        let (key, pod) = found.pods.first_key_value().unwrap();
        assert_eq!(key.path(), "default/web-node1");
        let object = &pod.object;
        assert_eq!(object.annotation("kubernetes.io/config.hash"), Some(&*pod.hash));
        assert_eq!(object.annotation("kubernetes.io/config.source"), Some("file"));
        assert_eq!((object.text(&["spec", "nodeName"]), pod.hash.len()), (Some("node1"), 32));
        assert_eq!(object.items(&["spec", "tolerations"]), [json!({"operator": "Exists", "effect": "NoExecute"})]);
    }

    #[test]
    fn manifest_hash_depends_on_manifest_file_and_node() {
        let hash = |file: &str, text: &str, node: &str| {
            let found = read(&[(file.into(), Ok(text.into()))], node, &BTreeMap::new());
            found.pods.into_values().next().unwrap().hash
        };
        let first = hash("/m/a", WEB, "n");
        assert_eq!(hash("/m/a", &WEB.replace("name: c", "name:   c"), "n"), first, "how it is written does not matter");
        let others =
            [hash("/m/b", WEB, "n"), hash("/m/a", WEB, "m"), hash("/m/a", &WEB.replace("image: x", "image: z"), "n")];
        assert!(!others.contains(&first));
    }

    #[test]
    fn manifest_file_may_hold_several_pods_and_a_list() {
        let other = WEB.replace("web", "other");
        let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "listed", "namespace": "n"},
                "spec": {"containers": [{"name": "c", "image": "x"}]}}]});
        let found = found(&format!("{WEB}\n---\n{other}\n---\n{list}\n"));
        let names: Vec<String> = found.pods.keys().map(Key::path).collect();
        assert_eq!(
            (names, found.problems.len()),
            (["default/other-node1", "default/web-node1", "n/listed-node1"].map(String::from).into(), 0)
        );
    }

    #[test]
    fn manifest_errors_name_the_file() {
        let with = |field: &str| WEB.replace("spec: {", &format!("spec: {{{field}, "));
        let container = |field: &str| WEB.replace("image: x", &format!("image: x, {field}"));
        let table = [
            ("{".into(), "/m/a.yaml: "),
            (WEB.replace("Pod", "Deployment"), "only Pods (apiVersion v1) can be static, found kind Deployment"),
            (WEB.replace("name: web", "labels: {a: b}"), "invalid pod: name is needed for the pod"),
            (WEB.replace("name: web", "name: W_b"), "Pod \"W_b-node1\" is invalid: metadata.name"),
            (with("serviceAccountName: a"), "static pods may not reference serviceaccounts"),
            (with("imagePullSecrets: [{name: a}]"), "static pods may not reference secrets"),
            (container("envFrom: [{configMapRef: {name: a}}]"), "static pods may not reference configmaps"),
            (
                container("env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b}}}]"),
                "static pods may not reference secrets",
            ),
            (
                with("volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]"),
                "static pods may not reference persistentvolumeclaims",
            ),
        ];
        for (text, problem) in table {
            let found = found(&text);
            assert!(found.pods.is_empty() && found.problems.len() == 1, "{text}: {found:?}");
            assert!(found.problems[0].contains(problem), "{text}: {:?}", found.problems);
        }
        let harmless = found(&with("nodeSelector: {secret: a}, colour: red"));
        assert_eq!(
            (harmless.pods.len(), harmless.problems),
            (1, vec!["/m/a.yaml: unknown field \"spec.colour\"".into()])
        );
    }

    #[test]
    fn broken_manifest_file_keeps_its_pods_and_a_missing_one_does_not() {
        let (a, b) = ("/m/a".to_owned(), "/m/b".to_owned());
        let both = [(a.clone(), Ok(WEB.to_owned())), (b.clone(), Ok(WEB.replace("web", "other")))];
        let first = read(&both, "n", &BTreeMap::new());
        let broken = read(&[(a.clone(), Ok("{".into()))], "n", &first.pods);
        assert_eq!(broken.pods.keys().map(Key::path).collect::<Vec<_>>(), ["default/web-n"]);
        assert_eq!(broken.problems.len(), 1);
        let twice = read(&[(a, Ok(WEB.to_owned())), (b, Ok(WEB.to_owned()))], "n", &BTreeMap::new());
        assert_eq!(twice.problems, ["/m/b: pod default/web-n is already defined in /m/a"]);
    }
}
