//! The catalogue compared with the objects that Kubernetes stored and refused (`../shared/golden`), without a server.

use crate::golden;
use kloop::kinds::{self, Kind};
use kloop::object::Object;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Replaces `<uid>` in the recordings.
const UID: &str = "0a1b2c3d-0000-4000-8000-000000000000";

/// Fields that the server or a controller sets after the catalogue.
const FILLED_LATER: &[(&str, &[&str])] = &[
    ("Node", &["metadata.annotations", "spec.taints"]),
    ("PersistentVolume", &["metadata.finalizers", "status"]),
    ("PersistentVolumeClaim", &["metadata.finalizers"]),
    ("PodDisruptionBudget", &["status"]),
    ("ResourceQuota", &["status"]),
    ("CustomResourceDefinition", &["status"]),
    (
        "Pod",
        &[
            "status",
            "metadata.labels",
            "spec.serviceAccount",
            "spec.serviceAccountName",
            "spec.tolerations",
            "spec.priority",
            "spec.preemptionPolicy",
        ],
    ),
    ("Deployment", &["metadata.annotations", "status"]),
    ("ReplicaSet", &["status"]),
    ("ReplicationController", &["status"]),
    ("StatefulSet", &["status"]),
    ("DaemonSet", &["status"]),
    ("Job", &["status"]),
];

fn documents(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text)
        .map(|document| serde::Deserialize::deserialize(document).expect("yaml"))
        .filter(|value: &Value| !value.is_null())
        .collect()
}

fn file(folder: &Path, name: &str) -> Vec<Value> {
    documents(&std::fs::read_to_string(folder.join(name)).expect("file of a scenario"))
}

fn kind_of(body: &Value) -> Option<&'static Kind> {
    kinds::by_kind(body["apiVersion"].as_str()?, body["kind"].as_str()?)
}

/// Decodes a body as the server does, before validation.
fn created(kind: &Kind, mut body: Value) -> Result<Object, String> {
    if kind.namespaced && body["metadata"].get("namespace").is_none() {
        body["metadata"]["namespace"] = "default".into();
    }
    // The recordings mask the random suffix of a generated name.
    if let (None, Some(prefix)) = (body["metadata"].get("name"), body["metadata"]["generateName"].as_str()) {
        body["metadata"]["name"] = format!("{prefix}<r01>").into();
    }
    if !kind.namespaced
        && let Some(metadata) = body["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
    let mut unknown = Vec::new();
    let normal = (kind.normalize)(&body, &mut |field| unknown.push(field.complaint()));
    let mut object = Object(normal.map_err(|error| error.to_string())?);
    if !unknown.is_empty() {
        return Err(format!("strict decoding error: {}", unknown.join(", ")));
    }
    object.set(&["metadata", "uid"], UID);
    (kind.prepare)(&mut object, None);
    Ok(object)
}

/// Returns kubectl's message about the creation of an object from a file; empty on success.
fn refusal(kind: &Kind, name: &str, body: Value) -> String {
    let object = match created(kind, body) {
        Ok(object) => object,
        Err(error) => {
            let (version, kind) = (kind.version, kind.kind);
            return format!(
                "Error from server (BadRequest): error when creating {name:?}: {kind} in version {version:?} cannot be \
                 handled as a {kind}: {error}\n"
            );
        }
    };
    told(kind, &object, None)
}

/// Returns kubectl's message about an invalid object; empty when it is valid.
fn told(kind: &Kind, object: &Object, old: Option<&Object>) -> String {
    let mut errors = kinds::validate_metadata(object, old, kind);
    errors.extend((kind.validate)(object, old));
    refused(kind, object, &errors)
}

/// Formats a 422 as kubectl prints it.
fn refused(kind: &Kind, object: &Object, errors: &[kinds::FieldError]) -> String {
    let mut causes: Vec<String> = Vec::new();
    for cause in kinds::shared::field::invalid(kind.kind, kind.resource, object.name(), errors).causes {
        // kubectl ends the message of one cause with a single line break.
        let text = format!("{}: {}", cause.field, cause.message.trim_end_matches('\n'));
        if !causes.contains(&text) {
            causes.push(text);
        }
    }
    let head = format!("The {} {:?} is invalid: ", kind.kind, object.name());
    match causes.as_slice() {
        [] => String::new(),
        [only] => format!("{head}{only}\n"),
        several => several.iter().fold(format!("{head}\n"), |text, cause| format!("{text}* {cause}\n")),
    }
    .replace(UID, "<uid>")
}

/// Returns how many of a scenario's refusals have equal messages, of those about kinds of the catalogue.
fn refusals_alike(scenario: &str) -> (usize, usize) {
    let Some(folder) = golden::folder(scenario) else { return (0, 0) };
    let (mut alike, mut all) = (0, 0);
    for step in golden::steps(scenario) {
        let command = step.command.replace(" --dry-run=server", "");
        let Some(name) = command.strip_prefix("kubectl create -f ") else { continue };
        let [body] = file(&folder, name).try_into().unwrap_or([Value::Null]);
        let Some(kind) = kind_of(&body) else { continue };
        // Refusals by kubectl itself, and missing namespaces, are not the catalogue's.
        if step.stderr.starts_with("error: ") || step.stderr.contains("(NotFound)") {
            continue;
        }
        all += 1;
        let recorded: String =
            step.stderr.lines().filter(|line| !line.starts_with("Warning:")).map(|line| format!("{line}\n")).collect();
        let ours = refusal(kind, name, body);
        if ours == recorded {
            alike += 1;
        } else {
            eprintln!("{scenario}/{name}\n  Kubernetes: {recorded}  kloop:      {ours}");
        }
    }
    eprintln!("{scenario}: {alike} of {all} alike");
    (alike, all)
}

/// Returns how many of a scenario's patches of single objects have equal results, of those about some resources.
///
/// Applied as JSON merge patches, which are equivalent for resources without lists that merge by key.
fn changes_alike(scenario: &str) -> (usize, usize) {
    const RESOURCES: &[&str] = &["svc", "secret", "pvc", "rolebinding"];
    let Some(folder) = golden::folder(scenario) else { return (0, 0) };
    let mut objects = BTreeMap::new();
    for body in file(&folder, "all.yaml") {
        let Some(kind) = kind_of(&body) else { continue };
        let mut object = created(kind, body).expect("a body that was created");
        if kind.kind == "Service" {
            object.set(&["spec", "clusterIP"], "10.96.0.9");
            object.set(&["spec", "clusterIPs"], json!(["10.96.0.9"]));
        }
        objects.insert((kind.kind, object.name().to_owned()), object);
    }
    let (mut alike, mut all) = (0, 0);
    for step in golden::steps(scenario) {
        let words: Vec<&str> = step.command.split(' ').collect();
        let ["kubectl", "patch", resource, name, ..] = words[..] else { continue };
        let Some(kind) = RESOURCES.contains(&resource).then(|| kinds::by_name(resource)).flatten() else { continue };
        let (_, patch) = step.command.split_once("-p '").expect("a patch");
        let patch: Value = serde_json::from_str(patch.trim_end_matches('\'')).expect("json");
        let old = objects[&(kind.kind, name.to_owned())].clone();
        let mut body = old.0.clone();
        json_patch::merge(&mut body, &patch);
        let mut new = Object((kind.normalize)(&body, &mut |_| {}).expect("a body that decodes"));
        (kind.prepare)(&mut new, Some(&old));
        all += 1;
        let ours = told(kind, &new, Some(&old));
        if ours == step.stderr {
            alike += 1;
        } else {
            eprintln!("{scenario}: {}\n  Kubernetes: {}  kloop:      {ours}", step.command, step.stderr);
        }
        if ours.is_empty() {
            objects.insert((kind.kind, name.to_owned()), new);
        }
    }
    eprintln!("{scenario}: {alike} of {all} alike");
    (alike, all)
}

/// Removes masked values, and fields that only the server or controllers set.
fn without_masks(value: Value) -> Option<Value> {
    match value {
        Value::String(text) if text.starts_with('<') && text.ends_with('>') => None,
        Value::Array(items) if !items.is_empty() => {
            // Admission adds the volume of a pod's token.
            let token = |item: &Value| item["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
            let kept: Vec<Value> = items.into_iter().filter(|item| !token(item)).filter_map(without_masks).collect();
            if kept.is_empty() { None } else { Some(kept.into()) }
        }
        Value::Object(map) => {
            Some(Value::Object(map.into_iter().filter_map(|(key, value)| Some((key, without_masks(value)?))).collect()))
        }
        other => Some(other),
    }
}

fn comparable(value: Value) -> Object {
    let mut object = Object(without_masks(value).unwrap_or_default());
    for name in ["creationTimestamp", "resourceVersion", "uid", "generation", "namespace"] {
        object.unset(&["metadata", name]);
    }
    let kind = object.kind().to_owned();
    for path in FILLED_LATER.iter().filter(|(name, _)| *name == kind).flat_map(|(_, paths)| *paths) {
        object.unset(&path.split('.').collect::<Vec<_>>());
    }
    object
}

/// Returns all objects in the files of a scenario.
fn every_file(folder: &Path) -> Vec<Value> {
    let names = std::fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names.iter().filter(|name| name.ends_with(".yaml")).flat_map(|name| file(folder, name)).collect()
}

/// Returns how many objects of a scenario are stored alike, of those that were printed as YAML.
fn stored_alike(scenario: &str) -> (usize, usize) {
    let Some(folder) = golden::folder(scenario) else { return (0, 0) };
    let mut stored = Vec::new();
    for step in golden::steps(scenario).iter().filter(|step| step.command.contains("-o yaml")) {
        for document in documents(&step.stdout) {
            match document["items"].as_array() {
                Some(items) => stored.extend(items.clone()),
                None => stored.push(document),
            }
        }
    }
    let (mut alike, mut all) = (0, 0);
    for body in every_file(&folder) {
        let named =
            |other: &&Value| other["kind"] == body["kind"] && other["metadata"]["name"] == body["metadata"]["name"];
        let (Some(kind), Some(recorded)) = (kind_of(&body), stored.iter().find(named)) else { continue };
        all += 1;
        let masked = |object: Object| serde_json::from_str(&object.0.to_string().replace(UID, "<uid>")).expect("json");
        let ours = created(kind, body.clone()).map(|object| comparable(masked(object)));
        let recorded = comparable(recorded.clone());
        if ours.as_ref() == Ok(&recorded) {
            alike += 1;
        } else {
            let ours = ours.map_or_else(Value::from, |object| object.0);
            eprintln!(
                "{scenario}: {} {}\n  Kubernetes: {}\n  kloop:      {ours}",
                kind.kind,
                recorded.name(),
                recorded.0
            );
        }
    }
    eprintln!("{scenario}: {alike} of {all} stored alike");
    (alike, all)
}

/// Checks counts that may only rise: equal results, and all.
fn hold(expected: &[(&str, usize, usize)], count: fn(&str) -> (usize, usize)) {
    let known: Vec<_> = expected.iter().filter(|(scenario, ..)| golden::folder(scenario).is_some()).copied().collect();
    let counted = known.iter().map(|(scenario, ..)| (*scenario, count(scenario)));
    let counted: Vec<_> = counted.map(|(scenario, (alike, all))| (scenario, alike, all)).collect();
    assert_eq!(counted, known);
}

#[test]
fn defaults_are_those_of_kubernetes() {
    hold(
        &[
            ("defaults-services", 13, 13),
            ("defaults-cluster", 8, 8),
            ("defaults-config-rbac", 16, 16),
            ("defaults-pods", 4, 4),
            ("defaults-workloads", 7, 7),
        ],
        stored_alike,
    );
}

/// Different: addresses and node ports outside their ranges, which `apiserver` refuses on allocation, and the order of two keys of a quota,
/// which is random in Go.
#[test]
fn refusals_are_worded_as_kubernetes_words_them() {
    hold(&[("invalid-meta", 26, 26), ("invalid-others", 63, 66)], refusals_alike);
}

/// Different: priority and service account, which admission refuses, and privileged containers, which the recorded server did not allow.
#[test]
fn pods_are_refused_as_kubernetes_refuses_them() {
    hold(&[("invalid-pods", 90, 94), ("invalid-workloads", 57, 57)], refusals_alike);
}

#[test]
fn immutable_fields_are_those_of_kubernetes() {
    hold(&[("invalid-updates", 8, 8)], changes_alike);
}

#[test]
fn names_and_scopes_are_those_of_api_resources() {
    let steps = golden::steps("explain-api");
    let Some(table) = steps.iter().find(|step| step.command == "kubectl api-resources") else { return };
    let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let recorded: Vec<Vec<String>> = table.stdout.lines().skip(1).map(row).collect();
    // kloop's own group is last, because Kubernetes has no such group.
    let (theirs, ours): (Vec<&Kind>, Vec<&Kind>) =
        kinds::ALL.iter().partition(|kind| kind.resource.group() != "kloop.dev");
    assert!(kinds::ALL.iter().rev().zip(&ours).all(|(last, ours)| last.resource == ours.resource));
    for kind in &theirs {
        let short = kind.short.join(",");
        let cells = [kind.resource.plural(), &short, &kind.api_version(), &kind.namespaced.to_string(), kind.kind];
        let ours: Vec<String> = cells.into_iter().filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
        assert!(recorded.contains(&ours), "{ours:?}");
    }
    let order: Vec<_> = recorded.iter().map(|row| (row[0].clone(), row[row.len() - 3].clone())).collect();
    let place =
        |kind: &&Kind| order.iter().position(|row| *row == (kind.resource.plural().to_owned(), kind.api_version()));
    assert!(theirs.iter().is_sorted_by_key(place), "not in the order of discovery");
}

#[test]
fn kinds_are_found_by_any_of_their_names() {
    for (name, resource) in [
        ("po", "pods"),
        ("Pod", "pods"),
        ("deploy.apps", "deployments.apps"),
        ("deploy.v9.apps", "deployments.apps"),
        ("deployments.v1.apps", "deployments.apps"),
        ("hpa.v1.autoscaling", "horizontalpodautoscalers.autoscaling"),
        ("events.events.k8s.io", "events"),
        ("crds", "customresourcedefinitions.apiextensions.k8s.io"),
        ("endpoints", "endpoints"),
        ("ep", "endpoints"),
    ] {
        assert_eq!(kinds::by_name(name).map(|kind| kind.resource.0), Some(resource), "{name}");
    }
    for name in ["unicorn", "pods.apps", "deploy.v2", "deployments.v1beta1.apps", "pods.v2.", ""] {
        assert!(kinds::by_name(name).is_none(), "{name}");
    }
}

#[test]
fn sources_of_volumes_have_the_defaults_of_kubernetes() {
    let volume = |source: &str, fields: Value| {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], source: fields});
        let kind = kinds::by_name("persistentvolumes").expect("a kind");
        let body = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": spec});
        created(kind, body).expect("a volume").0["spec"][source].clone()
    };
    let disk = volume("azureDisk", json!({"diskName": "d", "diskURI": "https://x/y.vhd"}));
    let of_disk = (&disk["cachingMode"], &disk["kind"], &disk["fsType"], &disk["readOnly"]);
    assert_eq!(of_disk, (&json!("ReadWrite"), &json!("Shared"), &json!("ext4"), &json!(false)));
    let rbd = volume("rbd", json!({"monitors": ["a"], "image": "i"}));
    assert_eq!((&rbd["pool"], &rbd["user"]), (&json!("rbd"), &json!("admin")));
    let iscsi = volume("iscsi", json!({"targetPortal": "1.2.3.4:3260", "iqn": "iqn.2001-04.com.example:a", "lun": 1}));
    assert_eq!(iscsi["iscsiInterface"], "default");
}

#[test]
fn null_fields_are_accepted() {
    for kind in kinds::ALL {
        let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "a", "labels": {"a": null}}});
        assert!(created(kind, body).is_ok(), "{}", kind.kind);
    }
}

/// Adds the fields of admission to a pod, which its later error messages contain.
fn admit(object: &mut Object) {
    if object.kind() != "Pod" {
        return;
    }
    for (field, value) in [
        ("serviceAccountName", json!("default")),
        ("serviceAccount", json!("default")),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        object.set(&["spec", field], value);
    }
    let mut tolerations = object.items(&["spec", "tolerations"]).to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|toleration| toleration["key"] == key) {
            let seconds = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            tolerations.push(seconds);
        }
    }
    object.set(&["spec", "tolerations"], tolerations);
}

/// Patches an object; returns kubectl's message when it is refused.
fn patched(kind: &Kind, old: &Object, patch: &Value, merge: bool) -> Result<Object, String> {
    let body = match kloop::kinds::catalogue::merge_rules::schema_for(&kind.api_version(), kind.kind) {
        Some(schema) if !merge => kloop::object::merge::strategic_merge(&old.0, patch, schema).expect("patch"),
        _ => kloop::object::patch::json_merge(&old.0, patch),
    };
    let mut new = Object((kind.normalize)(&body, &mut |_| {}).map_err(|error| error.to_string())?);
    new.set(&["status"], old.value_at(&["status"]).cloned().unwrap_or_default());
    admit(&mut new);
    (kind.prepare)(&mut new, Some(old));
    let errors = (kind.validate)(&new, Some(old));
    if errors.is_empty() { Ok(new) } else { Err(refused(kind, &new, &errors)) }
}

/// Changes of one conversation, each on the result of the previous ones.
#[test]
fn changes_are_refused_as_kubernetes_refuses_them() {
    let scenario = "invalid-updates";
    let Some(folder) = golden::folder(scenario) else { return };
    let mut objects: Vec<(&Kind, Object)> = Vec::new();
    for body in file(&folder, "all.yaml") {
        let kind = kind_of(&body).expect("kind");
        let mut object = created(kind, body).expect("created");
        admit(&mut object);
        objects.push((kind, object));
    }
    let (mut alike, mut all) = (0, 0);
    for step in golden::steps(scenario) {
        let Some(command) = step.command.strip_prefix("kubectl patch ") else { continue };
        let (words, patch) = command.split_once("-p '").expect("patch");
        let patch: Value = serde_json::from_str(patch.trim_end_matches('\'')).expect("json");
        // Patches of fields that the server manages, and addresses of Services, are not the catalogue's.
        let server = patch["spec"].is_null() && patch["roleRef"].is_null() && patch["type"].is_null();
        if server || words.starts_with("svc ") {
            continue;
        }
        let mut words = words.split_whitespace();
        let kind = kinds::by_name(words.next().expect("kind")).expect("known kind");
        let name = words.next().expect("name");
        let place = objects.iter().position(|(of, object)| of.kind == kind.kind && object.name() == name);
        let (_, object) = &mut objects[place.expect("object")];
        all += 1;
        let ours = match patched(kind, object, &patch, words.next() == Some("--type=merge")) {
            Ok(new) => {
                *object = new;
                String::new()
            }
            Err(refusal) => refusal,
        };
        if ours == step.stderr {
            alike += 1;
        } else {
            eprintln!("{}\n  Kubernetes: {}  kloop:      {ours}", step.command, step.stderr);
        }
    }
    eprintln!("{scenario}: {alike} of {all} alike");
    assert_eq!((alike, all), (23, 23));
}
