//! Ownership granularity of fields: which lists are maps or sets, and which maps and structs are atomic.
//!
//! Built-in kinds have tables by type, custom resources their schemas. An unlisted list is atomic; an unlisted map has
//! an owner for each field. Source: the API reference of Kubernetes (1.36): `x-kubernetes-list-type`, `-list-map-keys`
//! and `-map-type` of its OpenAPI. Strategic merge patches have different keys (`kinds::merge_rules`).

use crate::kinds::Kind;
use serde_json::Value;

/// The fields of a built-in type that differ from the default.
#[derive(Debug)]
pub struct StructShape(&'static [(&'static str, FieldShape)]);

/// One field of a built-in type.
#[derive(Clone, Copy, Debug)]
pub struct FieldShape {
    form: FieldForm,
    /// Whether Go embeds the struct by value. It then exists even in an empty object, so setting a field inside does
    /// not set it.
    in_place: bool,
    /// The type of the map, or of the list's items.
    of: &'static StructShape,
}

#[derive(Clone, Copy, Debug)]
enum FieldForm {
    /// A map with an owner for each field, or an atomic list.
    Plain,
    /// An atomic value.
    Atomic,
    /// A set of texts or numbers.
    Set,
    /// A list of maps, which these fields identify; a key may have a default.
    Keyed(&'static [(&'static str, Option<&'static str>)]),
    /// A list of atomic maps, which their uid identifies.
    Owners,
}

/// Type information of a value.
#[derive(Clone, Copy, Debug)]
pub enum ValueShape {
    /// A built-in kind.
    BuiltIn(FieldShape),
    /// A custom resource: its schema, and whether the value is the complete object.
    Custom(&'static Value, bool),
    /// Unknown: lists are atomic, maps have an owner for each field.
    Unknown,
}

/// Identity of a list's items.
pub enum ListShape {
    /// Items are not identified.
    Atomic,
    /// By their value.
    Set,
    /// By these fields, in order; a key may have a default.
    Keyed(Vec<(&'static str, Option<Value>)>),
}

impl ValueShape {
    /// The type of a complete object.
    pub fn for_kind(kind: &Kind) -> ValueShape {
        match kind.custom {
            Some(custom) => custom
                .schema(&kind.api_version())
                .map_or(ValueShape::Unknown, |schema| ValueShape::Custom(schema, true)),
            None => ValueShape::BuiltIn(FieldShape { in_place: true, ..map(root(kind.resource.0)) }),
        }
    }

    /// Whether it is atomic, although it may be a map.
    pub fn is_atomic(self) -> bool {
        match self {
            ValueShape::BuiltIn(field) => matches!(field.form, FieldForm::Atomic),
            ValueShape::Custom(schema, _) => schema["x-kubernetes-map-type"] == "atomic",
            ValueShape::Unknown => false,
        }
    }

    /// Whether it exists even in an empty object.
    pub fn is_in_place(self) -> bool {
        matches!(self, ValueShape::BuiltIn(field) if field.in_place)
    }

    /// The type of a field, and whether the type declares the field (entries of a map are not declared). `None` for an
    /// unknown field of a custom resource; the tables of built-in types are incomplete.
    pub fn field(self, name: &str) -> Option<(ValueShape, bool)> {
        match self {
            ValueShape::BuiltIn(field) => Some((ValueShape::BuiltIn(field.of.field(name)), true)),
            ValueShape::Unknown => Some((ValueShape::Unknown, false)),
            ValueShape::Custom(_, true) if name == "metadata" => Some((ValueShape::BuiltIn(map(&METADATA)), true)),
            ValueShape::Custom(_, true) if ["apiVersion", "kind"].contains(&name) => Some((ValueShape::Unknown, true)),
            ValueShape::Custom(schema, _) => {
                let is = |word: &str| schema[word] == true;
                if let Some(known) = schema["properties"].get(name) {
                    return Some((ValueShape::Custom(known, is("x-kubernetes-embedded-resource")), true));
                }
                if schema["additionalProperties"].is_object() {
                    return Some((ValueShape::Custom(&schema["additionalProperties"], false), false));
                }
                let keeps_all = is("x-kubernetes-preserve-unknown-fields") || schema["additionalProperties"] == true;
                let is_free = keeps_all || !schema.is_object() || schema.as_object().is_some_and(|map| map.is_empty());
                let is_head =
                    is("x-kubernetes-embedded-resource") && ["apiVersion", "kind", "metadata"].contains(&name);
                (is_free || is_head).then_some((ValueShape::Unknown, false))
            }
        }
    }

    /// Returns how items of a list of this type are identified.
    pub fn list(self) -> ListShape {
        match self {
            ValueShape::BuiltIn(FieldShape { form: FieldForm::Set, .. }) => ListShape::Set,
            ValueShape::BuiltIn(FieldShape { form: FieldForm::Keyed(keys), .. }) => {
                ListShape::Keyed(keys.iter().map(|(key, default)| (*key, default.map(Value::from))).collect())
            }
            ValueShape::BuiltIn(FieldShape { form: FieldForm::Owners, .. }) => ListShape::Keyed(vec![("uid", None)]),
            ValueShape::Custom(schema, _) if schema["x-kubernetes-list-type"] == "set" => ListShape::Set,
            ValueShape::Custom(schema, _) if schema["x-kubernetes-list-type"] == "map" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                let default = |key: &str| schema["items"]["properties"][key].get("default").cloned();
                let mut keys: Vec<_> = keys.filter_map(Value::as_str).map(|key| (key, default(key))).collect();
                keys.sort_by_key(|(key, _)| *key);
                ListShape::Keyed(keys)
            }
            _ => ListShape::Atomic,
        }
    }

    /// The type of a list's items.
    pub fn item(self) -> ValueShape {
        match self {
            ValueShape::BuiltIn(FieldShape { form: FieldForm::Owners, .. }) => ValueShape::BuiltIn(ATOMIC),
            ValueShape::BuiltIn(field) => ValueShape::BuiltIn(map(field.of)),
            ValueShape::Custom(schema, _) => ValueShape::Custom(&schema["items"], false),
            ValueShape::Unknown => ValueShape::Unknown,
        }
    }

    /// The type of the value after a step of a path.
    pub fn step(self, step: &str) -> ValueShape {
        match step.strip_prefix("f:") {
            Some(name) => self.field(name).map_or(ValueShape::Unknown, |(of, _)| of),
            None => self.item(),
        }
    }
}

impl StructShape {
    fn field(&self, name: &str) -> FieldShape {
        self.0.iter().find(|(known, _)| *known == name).map_or(map(&ANY), |(_, field)| *field)
    }
}

const fn map(of: &'static StructShape) -> FieldShape {
    FieldShape { form: FieldForm::Plain, in_place: false, of }
}

const fn in_place(field: FieldShape) -> FieldShape {
    FieldShape { in_place: true, ..field }
}

const fn keyed_list(keys: &'static [(&'static str, Option<&'static str>)], of: &'static StructShape) -> FieldShape {
    FieldShape { form: FieldForm::Keyed(keys), in_place: false, of }
}

const ATOMIC: FieldShape = FieldShape { form: FieldForm::Atomic, in_place: false, of: &ANY };
const SET: FieldShape = FieldShape { form: FieldForm::Set, in_place: false, of: &ANY };
const NAME: &[(&str, Option<&str>)] = &[("name", None)];
const TYPE: &[(&str, Option<&str>)] = &[("type", None)];
const CONDITIONS: (&str, FieldShape) = ("conditions", keyed_list(TYPE, &ANY));
const META: (&str, FieldShape) = ("metadata", in_place(map(&METADATA)));
const SPEC: (&str, FieldShape) = ("spec", in_place(map(&ANY)));
const STATUS: (&str, FieldShape) = ("status", in_place(map(&JUST_CONDITIONS)));
const SELECTOR: (&str, FieldShape) = ("selector", ATOMIC);
const TEMPLATE: (&str, FieldShape) = ("template", in_place(map(&POD_TEMPLATE)));

static ANY: StructShape = StructShape(&[]);
static METADATA: StructShape = StructShape(&[
    ("finalizers", SET),
    ("ownerReferences", FieldShape { form: FieldForm::Owners, in_place: false, of: &ANY }),
]);
static JUST_CONDITIONS: StructShape = StructShape(&[CONDITIONS]);
static OBJECT: StructShape = StructShape(&[META, SPEC, STATUS]);

static KEY_REF: StructShape = StructShape(&[
    ("configMapKeyRef", ATOMIC),
    ("secretKeyRef", ATOMIC),
    ("fieldRef", ATOMIC),
    ("resourceFieldRef", ATOMIC),
    ("fileKeyRef", ATOMIC),
]);
static ENV: StructShape = StructShape(&[("valueFrom", map(&KEY_REF))]);
static RESOURCES: StructShape = StructShape(&[("claims", keyed_list(NAME, &ANY))]);
static CONTAINER: StructShape = StructShape(&[
    ("env", keyed_list(NAME, &ENV)),
    ("ports", keyed_list(&[("containerPort", None), ("protocol", Some("TCP"))], &ANY)),
    ("resources", map(&RESOURCES)),
    ("volumeDevices", keyed_list(&[("devicePath", None)], &ANY)),
    ("volumeMounts", keyed_list(&[("mountPath", None)], &ANY)),
]);
static WITH_SECRET: StructShape = StructShape(&[("secretRef", ATOMIC)]);
static CLAIM_TEMPLATE: StructShape = StructShape(&[META, ("spec", in_place(map(&CLAIM_SPEC)))]);
static EPHEMERAL: StructShape = StructShape(&[("volumeClaimTemplate", map(&CLAIM_TEMPLATE))]);
static CSI: StructShape = StructShape(&[("nodePublishSecretRef", ATOMIC)]);
static VOLUME: StructShape = StructShape(&[
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
static NODE_AFFINITY: StructShape = StructShape(&[("requiredDuringSchedulingIgnoredDuringExecution", ATOMIC)]);
static AFFINITY: StructShape = StructShape(&[("nodeAffinity", map(&NODE_AFFINITY))]);
static SPREAD: StructShape = StructShape(&[("labelSelector", ATOMIC)]);
static POD_SPEC: StructShape = StructShape(&[
    ("affinity", map(&AFFINITY)),
    ("containers", in_place(keyed_list(NAME, &CONTAINER))),
    ("ephemeralContainers", keyed_list(NAME, &CONTAINER)),
    ("hostAliases", keyed_list(&[("ip", None)], &ANY)),
    ("imagePullSecrets", keyed_list(&[("name", Some(""))], &ANY)),
    ("initContainers", keyed_list(NAME, &CONTAINER)),
    ("nodeSelector", ATOMIC),
    ("resourceClaims", keyed_list(NAME, &ANY)),
    ("schedulingGates", keyed_list(NAME, &ANY)),
    ("topologySpreadConstraints", keyed_list(&[("topologyKey", None), ("whenUnsatisfiable", None)], &SPREAD)),
    ("volumes", keyed_list(NAME, &VOLUME)),
]);
static POD_STATUS: StructShape = StructShape(&[
    CONDITIONS,
    ("podIPs", keyed_list(&[("ip", None)], &ANY)),
    ("resourceClaimStatuses", keyed_list(NAME, &ANY)),
]);
static POD: StructShape =
    StructShape(&[META, ("spec", in_place(map(&POD_SPEC))), ("status", in_place(map(&POD_STATUS)))]);
static POD_TEMPLATE: StructShape = StructShape(&[META, ("spec", in_place(map(&POD_SPEC)))]);
static WITH_TEMPLATE: StructShape = StructShape(&[META, TEMPLATE]);

static WORKLOAD: StructShape = StructShape(&[META, ("spec", in_place(map(&WORKLOAD_SPEC))), STATUS]);
static WORKLOAD_SPEC: StructShape =
    StructShape(&[SELECTOR, TEMPLATE, ("strategy", in_place(map(&ANY))), ("updateStrategy", in_place(map(&ANY)))]);
static CONTROLLER: StructShape = StructShape(&[META, ("spec", in_place(map(&CONTROLLER_SPEC))), STATUS]);
static CONTROLLER_SPEC: StructShape = StructShape(&[SELECTOR, ("template", map(&POD_TEMPLATE))]);
static UNCOUNTED: StructShape = StructShape(&[("failed", SET), ("succeeded", SET)]);
static JOB_STATUS: StructShape = StructShape(&[("uncountedTerminatedPods", map(&UNCOUNTED))]);
static JOB_SPEC: StructShape = StructShape(&[SELECTOR, TEMPLATE]);
static JOB: StructShape =
    StructShape(&[META, ("spec", in_place(map(&JOB_SPEC))), ("status", in_place(map(&JOB_STATUS)))]);
static CRON_JOB: StructShape =
    StructShape(&[META, ("spec", in_place(map(&CRON_JOB_SPEC))), ("status", in_place(map(&ANY)))]);
static CRON_JOB_SPEC: StructShape = StructShape(&[("jobTemplate", in_place(map(&JOB)))]);
static AUTOSCALER: StructShape = StructShape(&[META, ("spec", in_place(map(&AUTOSCALER_SPEC))), STATUS]);
static AUTOSCALER_SPEC: StructShape = StructShape(&[("scaleTargetRef", in_place(map(&ANY)))]);
static BUDGET: StructShape = StructShape(&[META, ("spec", in_place(map(&BUDGET_SPEC))), STATUS]);
static BUDGET_SPEC: StructShape = StructShape(&[SELECTOR]);

static SERVICE: StructShape =
    StructShape(&[META, ("spec", in_place(map(&SERVICE_SPEC))), ("status", in_place(map(&SERVICE_STATUS)))]);
static SERVICE_SPEC: StructShape =
    StructShape(&[("ports", keyed_list(&[("port", None), ("protocol", Some("TCP"))], &ANY)), SELECTOR]);
static SERVICE_STATUS: StructShape = StructShape(&[CONDITIONS, ("loadBalancer", in_place(map(&ANY)))]);
static SERVICE_ACCOUNT: StructShape = StructShape(&[META, ("secrets", keyed_list(NAME, &ANY))]);
static NODE: StructShape =
    StructShape(&[META, ("spec", in_place(map(&NODE_SPEC))), ("status", in_place(map(&NODE_STATUS)))]);
static NODE_SPEC: StructShape = StructShape(&[("podCIDRs", SET)]);
static NODE_STATUS: StructShape = StructShape(&[
    CONDITIONS,
    ("addresses", keyed_list(TYPE, &ANY)),
    ("daemonEndpoints", in_place(map(&ANY))),
    ("nodeInfo", in_place(map(&ANY))),
]);
static CLAIM: StructShape = StructShape(&[META, ("spec", in_place(map(&CLAIM_SPEC))), STATUS]);
static CLAIM_SPEC: StructShape = StructShape(&[SELECTOR, ("dataSource", ATOMIC), ("resources", in_place(map(&ANY)))]);
static VOLUME_OBJECT: StructShape =
    StructShape(&[META, ("spec", in_place(map(&VOLUME_SPEC))), ("status", in_place(map(&ANY)))]);
static VOLUME_SPEC: StructShape = StructShape(&[("nodeAffinity", map(&VOLUME_AFFINITY))]);
static VOLUME_AFFINITY: StructShape = StructShape(&[("required", ATOMIC)]);
static QUOTA: StructShape = StructShape(&[META, ("spec", in_place(map(&QUOTA_SPEC))), ("status", in_place(map(&ANY)))]);
static QUOTA_SPEC: StructShape = StructShape(&[("scopeSelector", ATOMIC)]);
static EVENT: StructShape =
    StructShape(&[META, ("involvedObject", ATOMIC), ("related", ATOMIC), ("source", in_place(map(&ANY)))]);

static NETWORK_POLICY: StructShape = StructShape(&[META, ("spec", in_place(map(&NETWORK_POLICY_SPEC)))]);
static NETWORK_POLICY_SPEC: StructShape = StructShape(&[("podSelector", ATOMIC)]);
static INGRESS: StructShape =
    StructShape(&[META, ("spec", in_place(map(&INGRESS_SPEC))), ("status", in_place(map(&SERVICE_STATUS)))]);
static INGRESS_SPEC: StructShape = StructShape(&[("defaultBackend", map(&BACKEND))]);
static BACKEND: StructShape = StructShape(&[("resource", ATOMIC)]);
static BINDING: StructShape = StructShape(&[META, ("roleRef", ATOMIC)]);
static RUNTIME_CLASS: StructShape = StructShape(&[META, ("scheduling", map(&SCHEDULING))]);
static SCHEDULING: StructShape = StructShape(&[("nodeSelector", ATOMIC)]);
static CSI_NODE: StructShape = StructShape(&[META, ("spec", in_place(map(&CSI_NODE_SPEC)))]);
static CSI_NODE_SPEC: StructShape = StructShape(&[("drivers", keyed_list(NAME, &ANY))]);
static CSI_DRIVER: StructShape = StructShape(&[META, ("spec", in_place(map(&CSI_DRIVER_SPEC)))]);
static CSI_DRIVER_SPEC: StructShape = StructShape(&[("volumeLifecycleModes", SET)]);
static WEBHOOKS: StructShape = StructShape(&[META, ("webhooks", keyed_list(NAME, &WEBHOOK))]);
static WEBHOOK: StructShape = StructShape(&[
    ("matchConditions", keyed_list(NAME, &ANY)),
    ("namespaceSelector", ATOMIC),
    ("objectSelector", ATOMIC),
]);
static ADMISSION_POLICY: StructShape = StructShape(&[META, ("spec", in_place(map(&ADMISSION_POLICY_SPEC))), STATUS]);
static ADMISSION_POLICY_SPEC: StructShape = StructShape(&[
    ("matchConditions", keyed_list(NAME, &ANY)),
    ("matchConstraints", ATOMIC),
    ("paramKind", ATOMIC),
    ("variables", keyed_list(NAME, &ANY)),
]);
static ADMISSION_BINDING: StructShape = StructShape(&[META, ("spec", in_place(map(&ADMISSION_BINDING_SPEC)))]);
static ADMISSION_BINDING_SPEC: StructShape =
    StructShape(&[("matchResources", ATOMIC), ("paramRef", ATOMIC), ("validationActions", SET)]);
static STORAGE_CAPACITY: StructShape = StructShape(&[META, ("nodeTopology", ATOMIC)]);
static RESOURCE_SLICE: StructShape = StructShape(&[META, ("spec", in_place(map(&RESOURCE_SLICE_SPEC)))]);
static RESOURCE_SLICE_SPEC: StructShape = StructShape(&[("nodeSelector", ATOMIC), ("pool", in_place(map(&ANY)))]);
static RESOURCE_CLAIM: StructShape = StructShape(&[
    META,
    ("spec", in_place(map(&RESOURCE_CLAIM_SPEC))),
    ("status", in_place(map(&RESOURCE_CLAIM_STATUS))),
]);
static RESOURCE_CLAIM_SPEC: StructShape = StructShape(&[("devices", in_place(map(&ANY)))]);
static RESOURCE_CLAIM_TEMPLATE: StructShape =
    StructShape(&[META, ("spec", in_place(map(&RESOURCE_CLAIM_OF_TEMPLATE)))]);
static RESOURCE_CLAIM_OF_TEMPLATE: StructShape = StructShape(&[META, ("spec", in_place(map(&RESOURCE_CLAIM_SPEC)))]);
static RESOURCE_CLAIM_STATUS: StructShape = StructShape(&[
    ("allocation", map(&ALLOCATION)),
    ("devices", keyed_list(&[("driver", None), ("device", None), ("pool", None), ("shareID", None)], &JUST_CONDITIONS)),
    ("reservedFor", keyed_list(&[("uid", None)], &ANY)),
]);
static ALLOCATION: StructShape = StructShape(&[("devices", in_place(map(&ANY))), ("nodeSelector", ATOMIC)]);
static DEFINITION: StructShape = StructShape(&[META, ("spec", in_place(map(&DEFINITION_SPEC))), STATUS]);
static DEFINITION_SPEC: StructShape = StructShape(&[("names", in_place(map(&ANY)))]);

/// The type of a built-in kind's objects, by its resource.
fn root(resource: &str) -> &'static StructShape {
    match resource {
        "pods" => &POD,
        "podtemplates" => &WITH_TEMPLATE,
        "replicationcontrollers" => &CONTROLLER,
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => &WORKLOAD,
        "jobs.batch" => &JOB,
        "cronjobs.batch" => &CRON_JOB,
        "horizontalpodautoscalers.autoscaling" => &AUTOSCALER,
        "poddisruptionbudgets.policy" => &BUDGET,
        "services" => &SERVICE,
        "serviceaccounts" => &SERVICE_ACCOUNT,
        "nodes" => &NODE,
        "persistentvolumeclaims" => &CLAIM,
        "persistentvolumes" => &VOLUME_OBJECT,
        "resourcequotas" => &QUOTA,
        "events" => &EVENT,
        "networkpolicies.networking.k8s.io" => &NETWORK_POLICY,
        "ingresses.networking.k8s.io" => &INGRESS,
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => &BINDING,
        "runtimeclasses.node.k8s.io" => &RUNTIME_CLASS,
        "csinodes.storage.k8s.io" => &CSI_NODE,
        "csidrivers.storage.k8s.io" => &CSI_DRIVER,
        "validatingwebhookconfigurations.admissionregistration.k8s.io"
        | "mutatingwebhookconfigurations.admissionregistration.k8s.io" => &WEBHOOKS,
        "validatingadmissionpolicies.admissionregistration.k8s.io"
        | "mutatingadmissionpolicies.admissionregistration.k8s.io" => &ADMISSION_POLICY,
        "validatingadmissionpolicybindings.admissionregistration.k8s.io"
        | "mutatingadmissionpolicybindings.admissionregistration.k8s.io" => &ADMISSION_BINDING,
        "csistoragecapacities.storage.k8s.io" => &STORAGE_CAPACITY,
        "resourceclaims.resource.k8s.io" => &RESOURCE_CLAIM,
        "resourceclaimtemplates.resource.k8s.io" => &RESOURCE_CLAIM_TEMPLATE,
        "resourceslices.resource.k8s.io" => &RESOURCE_SLICE,
        "customresourcedefinitions.apiextensions.k8s.io" => &DEFINITION,
        _ => &OBJECT,
    }
}
