//! Shapes that several built-in kinds share: which of their lists are maps or sets, and which maps are atomic.
//!
//! Source: the API reference of Kubernetes (1.36): `x-kubernetes-list-type`, `-list-map-keys` and `-map-type` of its
//! OpenAPI. The shape of one kind is in the kind's file (`Kind::shape`).

use crate::object::struct_shape::{FieldForm, FieldShape, StructShape};

pub use crate::object::struct_shape::{in_place, keyed_atomic_list, keyed_list, map};

/// An atomic value.
pub const ATOMIC: FieldShape = FieldShape { form: FieldForm::Atomic, in_place: false, of: &ANY };
/// A set of texts or numbers.
pub const SET: FieldShape = FieldShape { form: FieldForm::Set, in_place: false, of: &ANY };
/// The key of lists whose items have names.
pub const NAME: &[(&str, Option<&str>)] = &[("name", Some(""))];
/// The key of lists with one item per type.
pub const TYPE: &[(&str, Option<&str>)] = &[("type", Some(""))];
/// Conditions, which their type identifies.
pub const CONDITIONS: (&str, FieldShape) = ("conditions", keyed_list(TYPE, &ANY));
/// The metadata of an object.
pub const META: (&str, FieldShape) = ("metadata", in_place(map(&METADATA)));
/// A spec without special fields.
pub const SPEC: (&str, FieldShape) = ("spec", in_place(map(&ANY)));
/// A status whose only special field is `conditions`.
pub const STATUS: (&str, FieldShape) = ("status", in_place(map(&JUST_CONDITIONS)));
/// An atomic selector.
pub const SELECTOR: (&str, FieldShape) = ("selector", ATOMIC);
/// The field `template` of a workload.
pub const TEMPLATE: (&str, FieldShape) = ("template", in_place(map(&POD_TEMPLATE)));

/// A type without special fields.
pub static ANY: StructShape = StructShape::new(&[]);
/// The metadata of objects.
pub static METADATA: StructShape =
    StructShape::new(&[("finalizers", SET), ("ownerReferences", keyed_atomic_list(&[("uid", Some(""))]))]);
/// A type whose only special field is `conditions`.
pub static JUST_CONDITIONS: StructShape = StructShape::new(&[CONDITIONS]);
/// An object without special fields.
pub static OBJECT: StructShape = StructShape::new(&[META, SPEC, STATUS]);

static KEY_REF: StructShape = StructShape::new(&[
    ("configMapKeyRef", ATOMIC),
    ("secretKeyRef", ATOMIC),
    ("fieldRef", ATOMIC),
    ("resourceFieldRef", ATOMIC),
    ("fileKeyRef", ATOMIC),
]);
static ENV: StructShape = StructShape::new(&[("valueFrom", map(&KEY_REF))]);
static RESOURCES: StructShape = StructShape::new(&[("claims", keyed_list(NAME, &ANY))]);
static CONTAINER: StructShape = StructShape::new(&[
    ("env", keyed_list(NAME, &ENV)),
    ("ports", keyed_list(&[("containerPort", None), ("protocol", Some("TCP"))], &ANY)),
    ("resources", map(&RESOURCES)),
    ("volumeDevices", keyed_list(&[("devicePath", Some(""))], &ANY)),
    ("volumeMounts", keyed_list(&[("mountPath", Some(""))], &ANY)),
]);
static WITH_SECRET: StructShape = StructShape::new(&[("secretRef", ATOMIC)]);
static CLAIM_TEMPLATE: StructShape = StructShape::new(&[META, ("spec", in_place(map(&CLAIM_SPEC)))]);
static EPHEMERAL: StructShape = StructShape::new(&[("volumeClaimTemplate", map(&CLAIM_TEMPLATE))]);
static CSI: StructShape = StructShape::new(&[("nodePublishSecretRef", ATOMIC)]);
static VOLUME: StructShape = StructShape::new(&[
    ("cephfs", map(&WITH_SECRET)),
    ("cinder", map(&WITH_SECRET)),
    ("csi", map(&CSI)),
    ("ephemeral", map(&EPHEMERAL)),
    ("flexVolume", map(&WITH_SECRET)),
    ("iscsi", map(&WITH_SECRET)),
    ("rbd", map(&WITH_SECRET)),
    ("scaleIO", map(&WITH_SECRET)),
    ("storageos", map(&WITH_SECRET)),
]);
static NODE_AFFINITY: StructShape = StructShape::new(&[("requiredDuringSchedulingIgnoredDuringExecution", ATOMIC)]);
static AFFINITY: StructShape = StructShape::new(&[("nodeAffinity", map(&NODE_AFFINITY))]);
static SPREAD: StructShape = StructShape::new(&[("labelSelector", ATOMIC)]);
/// The spec of pods.
pub static POD_SPEC: StructShape = StructShape::new(&[
    ("affinity", map(&AFFINITY)),
    ("containers", in_place(keyed_list(NAME, &CONTAINER))),
    ("ephemeralContainers", keyed_list(NAME, &CONTAINER)),
    ("hostAliases", keyed_list(&[("ip", Some(""))], &ANY)),
    ("imagePullSecrets", keyed_atomic_list(&[("name", Some(""))])),
    ("initContainers", keyed_list(NAME, &CONTAINER)),
    ("nodeSelector", ATOMIC),
    ("resourceClaims", keyed_list(NAME, &ANY)),
    ("schedulingGates", keyed_list(NAME, &ANY)),
    ("topologySpreadConstraints", keyed_list(&[("topologyKey", Some("")), ("whenUnsatisfiable", Some(""))], &SPREAD)),
    ("volumes", keyed_list(NAME, &VOLUME)),
]);
/// A pod template.
pub static POD_TEMPLATE: StructShape = StructShape::new(&[META, ("spec", in_place(map(&POD_SPEC)))]);
/// An object whose `template` is a pod template.
pub static WITH_TEMPLATE: StructShape = StructShape::new(&[META, TEMPLATE]);

/// An object with a pod template and a selector.
pub static WORKLOAD: StructShape = StructShape::new(&[META, ("spec", in_place(map(&WORKLOAD_SPEC))), STATUS]);
static WORKLOAD_SPEC: StructShape =
    StructShape::new(&[SELECTOR, TEMPLATE, ("strategy", in_place(map(&ANY))), ("updateStrategy", in_place(map(&ANY)))]);

/// The status of Services and Ingresses.
pub static SERVICE_STATUS: StructShape = StructShape::new(&[CONDITIONS, ("loadBalancer", in_place(map(&ANY)))]);
/// The spec of PersistentVolumeClaims.
pub static CLAIM_SPEC: StructShape =
    StructShape::new(&[SELECTOR, ("dataSource", ATOMIC), ("resources", in_place(map(&ANY)))]);
