//! PersistentVolume (core/v1).

use super::catalogue::shapes;
use super::shared::amount::{self, quantity};
use super::shared::go::{self, GoField, GoShape};
use super::shared::volume_source::{DEAD_VOLUMES, check_access_modes, check_host_path_type, check_volume_mode};
use super::shared::{names, node_labels, omit, selector, volume_source};
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed, csi_driver, persistent_volume_claim};
use crate::object::struct_shape::StructShape;
use crate::object::{Object, Time, time};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use serde_json::{Value, json};

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["pv"],
    warnings,
    set_times: date_phase,
    namespaced: false,
    generation: false,
    shape: &SHAPE,
    returns_deleted: true,
    ..Kind::new::<PersistentVolume>("persistentvolumes", "v1", "PersistentVolume", &view::persistent_volume::VIEW)
};

static SHAPE: StructShape = StructShape::new(&[
    shapes::META,
    ("spec", shapes::in_place(shapes::map(&SPEC_SHAPE))),
    ("status", shapes::in_place(shapes::map(&shapes::ANY))),
]);
static SPEC_SHAPE: StructShape = StructShape::new(&[("nodeAffinity", shapes::map(&NODE_AFFINITY_SHAPE))]);
static NODE_AFFINITY_SHAPE: StructShape = StructShape::new(&[("required", shapes::ATOMIC)]);

/// The CSI driver of volumes in the cluster's folders, and the provisioner of their StorageClass.
pub const LOCAL_DRIVER: &str = "local.kloop.dev";

/// The finalizer of volumes, which stays while one is bound.
pub const PROTECTION: &str = "kubernetes.io/pv-protection";

/// The finalizer of a provisioned volume whose content its provisioner deletes (policy Delete).
pub const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The time at which a volume got its phase.
const PHASE_TIME: &str = "lastPhaseTransitionTime";

/// The fields of a volume's source. A volume has exactly one, which is immutable.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Labels of nodes that were renamed when they became stable.
const RENAMED_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
];

/// The sources in the order of Go's struct, for the message that shows a forbidden change.
const GO_SOURCES: &[GoField] = &[
    ("GCEPersistentDisk", "gcePersistentDisk", GoShape::Plain),
    ("AWSElasticBlockStore", "awsElasticBlockStore", GoShape::Plain),
    ("HostPath", "hostPath", GoShape::Optional(&[("Path", "path", GoShape::Text), ("Type", "type", GoShape::Pointer)])),
    ("Glusterfs", "glusterfs", GoShape::Plain),
    ("NFS", "nfs", GoShape::Optional(NFS)),
    ("RBD", "rbd", GoShape::Plain),
    ("Quobyte", "quobyte", GoShape::Plain),
    ("ISCSI", "iscsi", GoShape::Plain),
    ("FlexVolume", "flexVolume", GoShape::Plain),
    ("Cinder", "cinder", GoShape::Plain),
    ("CephFS", "cephfs", GoShape::Plain),
    ("FC", "fc", GoShape::Plain),
    ("Flocker", "flocker", GoShape::Plain),
    ("AzureFile", "azureFile", GoShape::Plain),
    ("VsphereVolume", "vsphereVolume", GoShape::Plain),
    ("AzureDisk", "azureDisk", GoShape::Plain),
    ("PhotonPersistentDisk", "photonPersistentDisk", GoShape::Plain),
    ("PortworxVolume", "portworxVolume", GoShape::Plain),
    ("ScaleIO", "scaleIO", GoShape::Plain),
    ("Local", "local", GoShape::Optional(&[("Path", "path", GoShape::Text), ("FSType", "fsType", GoShape::Pointer)])),
    ("StorageOS", "storageos", GoShape::Plain),
    ("CSI", "csi", GoShape::Optional(CSI)),
];
const NFS: &[GoField] =
    &[("Server", "server", GoShape::Text), ("Path", "path", GoShape::Text), ("ReadOnly", "readOnly", GoShape::Bool)];
const CSI: &[GoField] = &[
    ("Driver", "driver", GoShape::Text),
    ("VolumeHandle", "volumeHandle", GoShape::Text),
    ("ReadOnly", "readOnly", GoShape::Bool),
    ("FSType", "fsType", GoShape::Text),
    ("VolumeAttributes", "volumeAttributes", GoShape::Pointer),
    ("ControllerPublishSecretRef", "controllerPublishSecretRef", GoShape::Plain),
    ("NodeStageSecretRef", "nodeStageSecretRef", GoShape::Plain),
    ("NodePublishSecretRef", "nodePublishSecretRef", GoShape::Plain),
    ("ControllerExpandSecretRef", "controllerExpandSecretRef", GoShape::Plain),
    ("NodeExpandSecretRef", "nodeExpandSecretRef", GoShape::Plain),
];
const GO_NODE_AFFINITY: &[GoField] = &[(
    "Required",
    "required",
    GoShape::Optional(&[("NodeSelectorTerms", "nodeSelectorTerms", GoShape::List(GO_TERM))]),
)];
const GO_TERM: &[GoField] = &[
    ("MatchExpressions", "matchExpressions", GoShape::List(GO_REQUIREMENT)),
    ("MatchFields", "matchFields", GoShape::List(GO_REQUIREMENT)),
];
const GO_REQUIREMENT: &[GoField] =
    &[("Key", "key", GoShape::Text), ("Operator", "operator", GoShape::Text), ("Values", "values", GoShape::Pointer)];

/// Sets the time of the first phase. The status of an update is not read.
fn date_phase(volume: &mut Object, now: Time) {
    volume.set(&["status", PHASE_TIME], time::rfc3339(now));
}

fn warnings(volume: &Object) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(persistent_volume_claim::class_annotation(volume));
    if volume.text(&["spec", "persistentVolumeReclaimPolicy"]) == Some("Recycle") {
        let text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {text}"));
    }
    let required = volume.items(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    for (index, term) in required.iter().enumerate() {
        let at = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]");
        node_labels::warn_of_term(term, &at, false, &mut warnings);
    }
    for (field, shown, message) in DEAD_VOLUMES {
        if volume.value_at(&["spec", field]).is_some_and(|source| !source.is_null()) {
            warnings.push(format!("spec.{shown}: {message}"));
        }
    }
    warnings
}

/// Fills in the defaults of a volume's source.
fn fill_in_source(spec: &mut PersistentVolumeSpec) {
    if let Some(host) = &mut spec.host_path {
        host.type_.get_or_insert_default();
    }
    if let Some(iscsi) = &mut spec.iscsi {
        omit::default_text(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut spec.rbd {
        omit::default_text(&mut rbd.pool, "rbd");
        omit::default_text(&mut rbd.user, "admin");
        omit::default_text(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut spec.azure_disk {
        volume_source::fill_in_azure_disk(disk);
    }
    if let Some(volume) = &mut spec.scale_io {
        omit::default_text(&mut volume.storage_mode, "ThinProvisioned");
        omit::default_text(&mut volume.fs_type, "xfs");
    }
}

impl Typed for PersistentVolume {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.storage_class_name);
        omit::empty(&mut spec.access_modes);
        omit::empty(&mut spec.mount_options);
        omit::empty(&mut spec.capacity);
        amount::round_up(&mut spec.capacity);
        spec.persistent_volume_reclaim_policy.get_or_insert_with(|| "Retain".to_owned());
        spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
        fill_in_source(spec);
        let status = self.status.get_or_insert_default();
        status.phase.get_or_insert_with(|| "Pending".to_owned());
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        let mut first = json!({"phase": "Pending"});
        if let Some(time) = new.value_at(&["status", PHASE_TIME]) {
            first[PHASE_TIME] = time.clone();
        }
        omit::reset_status(new, old, first);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let path = FieldPath::root("spec");
        let Some(spec) = &self.spec else { return };
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        if modes.is_empty() {
            errors.required(&path.child("accessModes"), "");
        }
        check_access_modes(modes, &path.child("accessModes"), errors);
        check_capacity(spec, &path.child("capacity"), errors);
        let policies = ["Delete", "Recycle", "Retain"];
        if let Some(other) = spec.persistent_volume_reclaim_policy.as_deref().filter(|text| !policies.contains(text)) {
            errors.unsupported(&path.child("persistentVolumeReclaimPolicy"), other, &policies);
        }
        if let Some(affinity) = &spec.node_affinity {
            let path = path.child("nodeAffinity").child("required");
            match &affinity.required {
                Some(required) => selector::check_nodes(required, &path, errors),
                None => errors.required(&path, "must specify required node constraints"),
            }
        }
        check_sources(spec, &path, errors);
        if let Some(class) = &spec.storage_class_name {
            errors.each_invalid(&path.child("storageClassName"), class.as_str(), names::subdomain(class));
        }
        check_volume_mode(spec.volume_mode.as_deref(), &path.child("volumeMode"), errors);
        if let Some(class) = &spec.volume_attributes_class_name {
            let at = path.child("volumeAttributesClassName");
            match class.as_str() {
                "" => errors.required(&at, "an empty string is disallowed"),
                class => errors.each_invalid(&at, class, names::subdomain(class)),
            }
            if spec.csi.is_none() {
                errors.required(&path.child("csi"), "has to be specified when using volumeAttributesClassName");
            }
        }
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            check_change(spec, old, &path, errors);
        }
    }
}

/// Refuses changes of fields that stay as they were created. Some errors name the field without the spec.
fn check_change(spec: &PersistentVolumeSpec, old: &PersistentVolumeSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let (now, before) = (json!(spec), json!(old));
    if SOURCES.iter().any(|source| now.get(source) != before.get(source)) {
        let laid = |spec: &Value| go::lay_out(spec, GO_SOURCES);
        let difference = go::difference(&laid(&before), &laid(&now));
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.forbidden(&path.child("persistentvolumesource"), &detail);
    }
    errors.immutable(&FieldPath::root("volumeMode"), &spec.volume_mode, &old.volume_mode);
    if old.node_affinity.is_some()
        && with_present_labels(&now["nodeAffinity"]) != with_present_labels(&before["nodeAffinity"])
    {
        let text = match &now["nodeAffinity"] {
            Value::Null => "null".to_owned(),
            affinity => go::lay_out(affinity, GO_NODE_AFFINITY).compact(),
        };
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.invalid_text(&FieldPath::root("nodeAffinity"), &text, detail);
    }
}

/// Returns a node affinity with the present names of labels that were renamed.
fn with_present_labels(affinity: &Value) -> Value {
    let mut affinity = affinity.clone();
    for term in affinity["required"]["nodeSelectorTerms"].as_array_mut().into_iter().flatten() {
        for expression in term["matchExpressions"].as_array_mut().into_iter().flatten() {
            let present = expression["key"].as_str().and_then(|key| RENAMED_LABELS.iter().find(|(old, _)| *old == key));
            if let Some((_, present)) = present {
                expression["key"] = json!(present);
            }
        }
    }
    affinity
}

fn check_capacity(spec: &PersistentVolumeSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let capacity = spec.capacity.iter().flatten();
    if capacity.clone().next().is_none() {
        errors.required(path, "");
    }
    if capacity.clone().map(|(name, _)| name.as_str()).ne(["storage"]) {
        errors.unsupported(path, json!(spec.capacity), &["storage"]);
    }
    for (name, amount) in capacity {
        let exact = quantity(amount);
        if exact.is_negative() {
            errors.invalid(&path.key(name), exact.value(), "must be a valid resource quantity");
        }
        if exact.is_zero() || exact.is_negative() {
            errors.invalid(&path.key(name), amount.0.as_str(), "must be greater than zero");
        }
    }
}

fn check_sources(spec: &PersistentVolumeSpec, spec_path: &FieldPath, errors: &mut FieldErrors) {
    let body = json!(spec);
    let set: Vec<&str> = SOURCES.iter().copied().filter(|source| body.get(source).is_some()).collect();
    if set.is_empty() {
        errors.required(spec_path, "must specify a volume type");
    }
    let Some(source) = set.first() else { return };
    let (at, path) = (&body[source], spec_path.child(volume_source::shown_field(source)));
    let text = |field: &str| at.get(field).and_then(Value::as_str).unwrap_or_default();
    let needed: &[&str] = match *source {
        "hostPath" | "local" => &["path"],
        "nfs" => &["server", "path"],
        "csi" => &["driver", "volumeHandle"],
        _ => &[],
    };
    for field in needed.iter().filter(|field| text(field).is_empty()) {
        errors.required(&path.child(field), "");
    }
    volume_source::check(source, at, &path, errors);
    volume_source::check_persistent(source, at, &path, errors);
    if *source == "hostPath" && !text("path").is_empty() {
        check_host_path_type(text("type"), &path.child("type"), errors);
    }
    if matches!(*source, "hostPath" | "local") && text("path").split('/').any(|part| part == "..") {
        errors.invalid(&path.child("path"), text("path"), "must not contain '..'");
    }
    if *source == "nfs" && !text("path").is_empty() && !text("path").starts_with('/') {
        errors.invalid(&path.child("path"), text("path"), "must be an absolute path");
    }
    if *source == "csi" && !text("driver").is_empty() {
        csi_driver::check_name(text("driver"), &path.child("driver"), errors);
    }
    if *source == "local" && spec.node_affinity.is_none() {
        errors.required(&FieldPath::root("spec").child("nodeAffinity"), "Local volume requires node affinity");
    }
    for source in set.iter().skip(1) {
        errors.forbidden(&spec_path.child(source), "may not specify more than 1 volume type");
    }
    let recycles = spec.persistent_volume_reclaim_policy.as_deref() == Some("Recycle");
    if *source == "hostPath" && recycles && text("path") == "/" {
        let path = FieldPath::root("spec").child("persistentVolumeReclaimPolicy");
        errors.forbidden(&path, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::testing::refusals;
    use serde_json::{Value, json};

    fn wrong(fields: Value) -> String {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
        json_patch::merge(&mut spec, &fields);
        refusals(json!({"apiVersion": "v1", "kind": "PersistentVolume", "spec": spec})).join("; ")
    }

    #[test]
    fn sources_and_classes_are_checked() {
        assert_eq!(
            wrong(json!({"local": {"path": "/x"}})),
            "spec.nodeAffinity: Required value: Local volume requires node affinity"
        );
        assert_eq!(wrong(json!({"gcePersistentDisk": {"pdName": ""}})), "spec.persistentDisk.pdName: Required value");
        let kind = wrong(json!({"hostPath": {"path": "/x", "type": "Odd"}}));
        assert!(kind.starts_with("spec.hostPath.type: Unsupported value: \"Odd\""), "{kind}");
        let disk = json!({"csi": {"driver": "a.b", "volumeHandle": "x"}, "volumeAttributesClassName": "gold"});
        assert_eq!(wrong(disk), "");
        let class = "spec.volumeAttributesClassName: Required value: an empty string is disallowed";
        let driver = "spec.csi: Required value: has to be specified when using volumeAttributesClassName";
        let local = json!({"hostPath": {"path": "/x"}, "volumeAttributesClassName": ""});
        assert_eq!(wrong(local), format!("{class}; {driver}"));
        let secret = json!({"csi": {"driver": "a.b", "volumeHandle": "x", "nodeStageSecretRef": {}, "nodePublishSecretRef": {"name": "a"}}});
        assert_eq!(wrong(secret), "spec.csi.nodePublishSecretRef.namespace: Required value");
    }
}
