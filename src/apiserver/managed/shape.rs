//! Ownership granularity of fields: which lists are maps or sets, and which maps and structs are atomic.
//!
//! Knows: the built-in kinds, in tables by type, and custom kinds, by their schemas. A list that is not listed is
//! atomic; a map that is not listed has an owner for each field. Source: the API reference of Kubernetes (1.36):
//! `x-kubernetes-list-type`, `-list-map-keys` and `-map-type` of its OpenAPI. Strategic merge patches have different
//! keys (`object::merge::schema`).

use crate::kinds::Kind;
use serde_json::Value;

/// The fields of a built-in type that are not as usual.
#[derive(Debug)]
pub struct Struct(&'static [(&'static str, Field)]);

/// One field of a built-in type.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    form: Form,
    /// Whether Go holds it in place: it is in an empty object, too, and so no one has set it by setting something in it.
    in_place: bool,
    /// The type of the map, or of the list's items.
    of: &'static Struct,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// A map with an owner for each field; a list that is one value.
    Plain,
    /// One value.
    Atomic,
    /// A list of texts or numbers, each at most once.
    Set,
    /// A list of maps that are the same when these fields are; a key may have a default.
    Keyed(&'static [(&'static str, Option<&'static str>)]),
    /// A list of maps that are the same when their uid is, each one value.
    Owners,
}

/// Type information of a value.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A built-in kind.
    BuiltIn(Field),
    /// A custom kind: its schema, and whether the value is the whole object.
    Custom(&'static Value, bool),
    /// Nothing: lists are one value, maps have an owner for each field.
    Unknown,
}

/// Identity of a list's items.
pub enum List {
    /// They are not.
    Atomic,
    /// By their value.
    Set,
    /// By these fields, in order; a key may have a default.
    Keyed(Vec<(&'static str, Option<Value>)>),
}

impl Type {
    /// The type of a whole object.
    pub fn of(kind: &Kind) -> Type {
        match kind.custom {
            Some(custom) => {
                custom.schema(&kind.api_version()).map_or(Type::Unknown, |schema| Type::Custom(schema, true))
            }
            None => Type::BuiltIn(Field { in_place: true, ..map(root(kind.resource.0)) }),
        }
    }

    /// Whether it is one value although it may be a map.
    pub fn is_atomic(self) -> bool {
        match self {
            Type::BuiltIn(field) => matches!(field.form, Form::Atomic),
            Type::Custom(schema, _) => schema["x-kubernetes-map-type"] == "atomic",
            Type::Unknown => false,
        }
    }

    /// Whether it is there in an object that is empty.
    pub fn is_in_place(self) -> bool {
        matches!(self, Type::BuiltIn(field) if field.in_place)
    }

    /// The type of a field, and whether the type names the field: the entries of a map are not named. None where there is no such field;
    /// the fields of built-in types are not all known here.
    pub fn field(self, name: &str) -> Option<(Type, bool)> {
        match self {
            Type::BuiltIn(field) => Some((Type::BuiltIn(field.of.field(name)), true)),
            Type::Unknown => Some((Type::Unknown, false)),
            Type::Custom(_, true) if name == "metadata" => Some((Type::BuiltIn(map(&METADATA)), true)),
            Type::Custom(_, true) if ["apiVersion", "kind"].contains(&name) => Some((Type::Unknown, true)),
            Type::Custom(schema, _) => {
                let is = |word: &str| schema[word] == true;
                if let Some(known) = schema["properties"].get(name) {
                    return Some((Type::Custom(known, is("x-kubernetes-embedded-resource")), true));
                }
                if schema["additionalProperties"].is_object() {
                    return Some((Type::Custom(&schema["additionalProperties"], false), false));
                }
                let keeps_all = is("x-kubernetes-preserve-unknown-fields") || schema["additionalProperties"] == true;
                let is_free = keeps_all || !schema.is_object() || schema.as_object().is_some_and(|map| map.is_empty());
                let is_head =
                    is("x-kubernetes-embedded-resource") && ["apiVersion", "kind", "metadata"].contains(&name);
                (is_free || is_head).then_some((Type::Unknown, false))
            }
        }
    }

    /// Returns how items of a list of this type are identified.
    pub fn list(self) -> List {
        match self {
            Type::BuiltIn(Field { form: Form::Set, .. }) => List::Set,
            Type::BuiltIn(Field { form: Form::Keyed(keys), .. }) => {
                List::Keyed(keys.iter().map(|(key, default)| (*key, default.map(Value::from))).collect())
            }
            Type::BuiltIn(Field { form: Form::Owners, .. }) => List::Keyed(vec![("uid", None)]),
            Type::Custom(schema, _) if schema["x-kubernetes-list-type"] == "set" => List::Set,
            Type::Custom(schema, _) if schema["x-kubernetes-list-type"] == "map" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                let default = |key: &str| schema["items"]["properties"][key].get("default").cloned();
                let mut keys: Vec<_> = keys.filter_map(Value::as_str).map(|key| (key, default(key))).collect();
                keys.sort_by_key(|(key, _)| *key);
                List::Keyed(keys)
            }
            _ => List::Atomic,
        }
    }

    /// The type of a list's items.
    pub fn item(self) -> Type {
        match self {
            Type::BuiltIn(Field { form: Form::Owners, .. }) => Type::BuiltIn(ATOMIC),
            Type::BuiltIn(field) => Type::BuiltIn(map(field.of)),
            Type::Custom(schema, _) => Type::Custom(&schema["items"], false),
            Type::Unknown => Type::Unknown,
        }
    }

    /// The type of what a step of a path leads to.
    pub fn step(self, step: &str) -> Type {
        match step.strip_prefix("f:") {
            Some(name) => self.field(name).map_or(Type::Unknown, |(of, _)| of),
            None => self.item(),
        }
    }
}

impl Struct {
    fn field(&self, name: &str) -> Field {
        self.0.iter().find(|(known, _)| *known == name).map_or(map(&ANY), |(_, field)| *field)
    }
}

const fn map(of: &'static Struct) -> Field {
    Field { form: Form::Plain, in_place: false, of }
}

const fn in_place(field: Field) -> Field {
    Field { in_place: true, ..field }
}

const fn by(keys: &'static [(&'static str, Option<&'static str>)], of: &'static Struct) -> Field {
    Field { form: Form::Keyed(keys), in_place: false, of }
}

const ATOMIC: Field = Field { form: Form::Atomic, in_place: false, of: &ANY };
const SET: Field = Field { form: Form::Set, in_place: false, of: &ANY };
const NAME: &[(&str, Option<&str>)] = &[("name", None)];
const TYPE: &[(&str, Option<&str>)] = &[("type", None)];
const CONDITIONS: (&str, Field) = ("conditions", by(TYPE, &ANY));
const META: (&str, Field) = ("metadata", in_place(map(&METADATA)));
const SPEC: (&str, Field) = ("spec", in_place(map(&ANY)));
const STATUS: (&str, Field) = ("status", in_place(map(&JUST_CONDITIONS)));
const SELECTOR: (&str, Field) = ("selector", ATOMIC);
const TEMPLATE: (&str, Field) = ("template", in_place(map(&POD_TEMPLATE)));

static ANY: Struct = Struct(&[]);
static METADATA: Struct =
    Struct(&[("finalizers", SET), ("ownerReferences", Field { form: Form::Owners, in_place: false, of: &ANY })]);
static JUST_CONDITIONS: Struct = Struct(&[CONDITIONS]);
static OBJECT: Struct = Struct(&[META, SPEC, STATUS]);

static KEY_REF: Struct = Struct(&[
    ("configMapKeyRef", ATOMIC),
    ("secretKeyRef", ATOMIC),
    ("fieldRef", ATOMIC),
    ("resourceFieldRef", ATOMIC),
    ("fileKeyRef", ATOMIC),
]);
static ENV: Struct = Struct(&[("valueFrom", map(&KEY_REF))]);
static RESOURCES: Struct = Struct(&[("claims", by(NAME, &ANY))]);
static CONTAINER: Struct = Struct(&[
    ("env", by(NAME, &ENV)),
    ("ports", by(&[("containerPort", None), ("protocol", Some("TCP"))], &ANY)),
    ("resources", map(&RESOURCES)),
    ("volumeDevices", by(&[("devicePath", None)], &ANY)),
    ("volumeMounts", by(&[("mountPath", None)], &ANY)),
]);
static WITH_SECRET: Struct = Struct(&[("secretRef", ATOMIC)]);
static CLAIM_TEMPLATE: Struct = Struct(&[META, ("spec", in_place(map(&CLAIM_SPEC)))]);
static EPHEMERAL: Struct = Struct(&[("volumeClaimTemplate", map(&CLAIM_TEMPLATE))]);
static CSI: Struct = Struct(&[("nodePublishSecretRef", ATOMIC)]);
static VOLUME: Struct = Struct(&[
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
static NODE_AFFINITY: Struct = Struct(&[("requiredDuringSchedulingIgnoredDuringExecution", ATOMIC)]);
static AFFINITY: Struct = Struct(&[("nodeAffinity", map(&NODE_AFFINITY))]);
static SPREAD: Struct = Struct(&[("labelSelector", ATOMIC)]);
static POD_SPEC: Struct = Struct(&[
    ("affinity", map(&AFFINITY)),
    ("containers", in_place(by(NAME, &CONTAINER))),
    ("ephemeralContainers", by(NAME, &CONTAINER)),
    ("hostAliases", by(&[("ip", None)], &ANY)),
    ("imagePullSecrets", by(&[("name", Some(""))], &ANY)),
    ("initContainers", by(NAME, &CONTAINER)),
    ("nodeSelector", ATOMIC),
    ("resourceClaims", by(NAME, &ANY)),
    ("schedulingGates", by(NAME, &ANY)),
    ("topologySpreadConstraints", by(&[("topologyKey", None), ("whenUnsatisfiable", None)], &SPREAD)),
    ("volumes", by(NAME, &VOLUME)),
]);
static POD_STATUS: Struct =
    Struct(&[CONDITIONS, ("podIPs", by(&[("ip", None)], &ANY)), ("resourceClaimStatuses", by(NAME, &ANY))]);
static POD: Struct = Struct(&[META, ("spec", in_place(map(&POD_SPEC))), ("status", in_place(map(&POD_STATUS)))]);
static POD_TEMPLATE: Struct = Struct(&[META, ("spec", in_place(map(&POD_SPEC)))]);
static WITH_TEMPLATE: Struct = Struct(&[META, TEMPLATE]);

static WORKLOAD: Struct = Struct(&[META, ("spec", in_place(map(&WORKLOAD_SPEC))), STATUS]);
static WORKLOAD_SPEC: Struct =
    Struct(&[SELECTOR, TEMPLATE, ("strategy", in_place(map(&ANY))), ("updateStrategy", in_place(map(&ANY)))]);
static CONTROLLER: Struct = Struct(&[META, ("spec", in_place(map(&CONTROLLER_SPEC))), STATUS]);
static CONTROLLER_SPEC: Struct = Struct(&[SELECTOR, ("template", map(&POD_TEMPLATE))]);
static UNCOUNTED: Struct = Struct(&[("failed", SET), ("succeeded", SET)]);
static JOB_STATUS: Struct = Struct(&[("uncountedTerminatedPods", map(&UNCOUNTED))]);
static JOB_SPEC: Struct = Struct(&[SELECTOR, TEMPLATE]);
static JOB: Struct = Struct(&[META, ("spec", in_place(map(&JOB_SPEC))), ("status", in_place(map(&JOB_STATUS)))]);
static CRON_JOB: Struct = Struct(&[META, ("spec", in_place(map(&CRON_JOB_SPEC))), ("status", in_place(map(&ANY)))]);
static CRON_JOB_SPEC: Struct = Struct(&[("jobTemplate", in_place(map(&JOB)))]);
static AUTOSCALER: Struct = Struct(&[META, ("spec", in_place(map(&AUTOSCALER_SPEC))), STATUS]);
static AUTOSCALER_SPEC: Struct = Struct(&[("scaleTargetRef", in_place(map(&ANY)))]);
static BUDGET: Struct = Struct(&[META, ("spec", in_place(map(&BUDGET_SPEC))), STATUS]);
static BUDGET_SPEC: Struct = Struct(&[SELECTOR]);

static SERVICE: Struct =
    Struct(&[META, ("spec", in_place(map(&SERVICE_SPEC))), ("status", in_place(map(&SERVICE_STATUS)))]);
static SERVICE_SPEC: Struct = Struct(&[("ports", by(&[("port", None), ("protocol", Some("TCP"))], &ANY)), SELECTOR]);
static SERVICE_STATUS: Struct = Struct(&[CONDITIONS, ("loadBalancer", in_place(map(&ANY)))]);
static SERVICE_ACCOUNT: Struct = Struct(&[META, ("secrets", by(NAME, &ANY))]);
static NODE: Struct = Struct(&[META, ("spec", in_place(map(&NODE_SPEC))), ("status", in_place(map(&NODE_STATUS)))]);
static NODE_SPEC: Struct = Struct(&[("podCIDRs", SET)]);
static NODE_STATUS: Struct = Struct(&[
    CONDITIONS,
    ("addresses", by(TYPE, &ANY)),
    ("daemonEndpoints", in_place(map(&ANY))),
    ("nodeInfo", in_place(map(&ANY))),
]);
static CLAIM: Struct = Struct(&[META, ("spec", in_place(map(&CLAIM_SPEC))), STATUS]);
static CLAIM_SPEC: Struct = Struct(&[SELECTOR, ("dataSource", ATOMIC), ("resources", in_place(map(&ANY)))]);
static VOLUME_OBJECT: Struct = Struct(&[META, ("spec", in_place(map(&VOLUME_SPEC))), ("status", in_place(map(&ANY)))]);
static VOLUME_SPEC: Struct = Struct(&[("nodeAffinity", map(&VOLUME_AFFINITY))]);
static VOLUME_AFFINITY: Struct = Struct(&[("required", ATOMIC)]);
static QUOTA: Struct = Struct(&[META, ("spec", in_place(map(&QUOTA_SPEC))), ("status", in_place(map(&ANY)))]);
static QUOTA_SPEC: Struct = Struct(&[("scopeSelector", ATOMIC)]);
static EVENT: Struct =
    Struct(&[META, ("involvedObject", ATOMIC), ("related", ATOMIC), ("source", in_place(map(&ANY)))]);

static NETWORK_POLICY: Struct = Struct(&[META, ("spec", in_place(map(&NETWORK_POLICY_SPEC)))]);
static NETWORK_POLICY_SPEC: Struct = Struct(&[("podSelector", ATOMIC)]);
static INGRESS: Struct =
    Struct(&[META, ("spec", in_place(map(&INGRESS_SPEC))), ("status", in_place(map(&SERVICE_STATUS)))]);
static INGRESS_SPEC: Struct = Struct(&[("defaultBackend", map(&BACKEND))]);
static BACKEND: Struct = Struct(&[("resource", ATOMIC)]);
static BINDING: Struct = Struct(&[META, ("roleRef", ATOMIC)]);
static RUNTIME_CLASS: Struct = Struct(&[META, ("scheduling", map(&SCHEDULING))]);
static SCHEDULING: Struct = Struct(&[("nodeSelector", ATOMIC)]);
static CSI_NODE: Struct = Struct(&[META, ("spec", in_place(map(&CSI_NODE_SPEC)))]);
static CSI_NODE_SPEC: Struct = Struct(&[("drivers", by(NAME, &ANY))]);
static CSI_DRIVER: Struct = Struct(&[META, ("spec", in_place(map(&CSI_DRIVER_SPEC)))]);
static CSI_DRIVER_SPEC: Struct = Struct(&[("volumeLifecycleModes", SET)]);
static WEBHOOKS: Struct = Struct(&[META, ("webhooks", by(NAME, &WEBHOOK))]);
static WEBHOOK: Struct =
    Struct(&[("matchConditions", by(NAME, &ANY)), ("namespaceSelector", ATOMIC), ("objectSelector", ATOMIC)]);
static ADMISSION_POLICY: Struct = Struct(&[META, ("spec", in_place(map(&ADMISSION_POLICY_SPEC))), STATUS]);
static ADMISSION_POLICY_SPEC: Struct = Struct(&[
    ("matchConditions", by(NAME, &ANY)),
    ("matchConstraints", ATOMIC),
    ("paramKind", ATOMIC),
    ("variables", by(NAME, &ANY)),
]);
static ADMISSION_BINDING: Struct = Struct(&[META, ("spec", in_place(map(&ADMISSION_BINDING_SPEC)))]);
static ADMISSION_BINDING_SPEC: Struct =
    Struct(&[("matchResources", ATOMIC), ("paramRef", ATOMIC), ("validationActions", SET)]);
static DEFINITION: Struct = Struct(&[META, ("spec", in_place(map(&DEFINITION_SPEC))), STATUS]);
static DEFINITION_SPEC: Struct = Struct(&[("names", in_place(map(&ANY)))]);

/// The type of a built-in kind's objects, by its resource.
fn root(resource: &str) -> &'static Struct {
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
        "validatingadmissionpolicies.admissionregistration.k8s.io" => &ADMISSION_POLICY,
        "validatingadmissionpolicybindings.admissionregistration.k8s.io" => &ADMISSION_BINDING,
        "customresourcedefinitions.apiextensions.k8s.io" => &DEFINITION,
        _ => &OBJECT,
    }
}
