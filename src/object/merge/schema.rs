//! Patch strategies and merge keys of built-in kinds.
//!
//! A field that is not listed merges when it is a map and is replaced when it is a list. Source: the `patchStrategy`
//! and `patchMergeKey` tags of Kubernetes' Go types (1.36); the keys of server-side apply differ. Where server-side
//! apply has two keys, kustomize uses both.

/// Merge rules of one type's fields.
#[derive(Debug)]
pub struct Schema(&'static [(&'static str, Field)]);

/// A type's schema, found with [`schema_for`].
pub type SchemaRef = &'static Schema;

/// Merge rule of one field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub strategy: Strategy,
    /// Whether a patch lists the keys to keep because they exclude each other (`$retainKeys`).
    pub retain_keys: bool,
    /// Second key of a list's elements, used by kustomize only, and its default.
    pub second: Option<(&'static str, &'static str)>,
    /// The type of the map, or of the list's elements.
    pub of: SchemaRef,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Maps merge, lists are replaced.
    Plain,
    /// Replaced whole although it is a map.
    Replace,
    /// A list of maps that are the same when this field is.
    ByKey(&'static str),
    /// A list of texts or numbers, each at most once.
    Set,
}

impl Schema {
    /// Returns the merge rule of a field.
    pub(super) fn field(&self, name: &str) -> Field {
        self.0.iter().find(|(known, _)| *known == name).map_or(map(&ANY), |(_, field)| *field)
    }
}

const fn field(strategy: Strategy, of: SchemaRef) -> Field {
    Field { strategy, retain_keys: false, second: None, of }
}

const fn map(of: SchemaRef) -> Field {
    field(Strategy::Plain, of)
}

const fn list(key: &'static str, of: SchemaRef) -> Field {
    field(Strategy::ByKey(key), of)
}

const fn and(second: &'static str, default: &'static str, field: Field) -> Field {
    Field { second: Some((second, default)), ..field }
}

const fn retaining(field: Field) -> Field {
    Field { retain_keys: true, ..field }
}

const SET: Field = field(Strategy::Set, &ANY);
const REPLACE: Field = field(Strategy::Replace, &ANY);
const CONDITIONS: (&str, Field) = ("conditions", list("type", &ANY));
const META: (&str, Field) = ("metadata", map(&METADATA));
const STATUS: (&str, Field) = ("status", map(&JUST_CONDITIONS));
const TEMPLATE: (&str, Field) = ("template", map(&POD_TEMPLATE));

/// Schema without any rule.
pub(super) static ANY: Schema = Schema(&[]);
static METADATA: Schema = Schema(&[("finalizers", SET), ("ownerReferences", list("uid", &ANY))]);
static JUST_CONDITIONS: Schema = Schema(&[CONDITIONS]);
static OBJECT: Schema = Schema(&[META]);
static WITH_CONDITIONS: Schema = Schema(&[META, STATUS]);

static CONTAINER: Schema = Schema(&[
    ("ports", and("protocol", "TCP", list("containerPort", &ANY))),
    ("env", list("name", &ANY)),
    ("volumeMounts", list("mountPath", &ANY)),
    ("volumeDevices", list("devicePath", &ANY)),
]);
static POD_SPEC: Schema = Schema(&[
    ("volumes", retaining(list("name", &ANY))),
    ("initContainers", list("name", &CONTAINER)),
    ("containers", list("name", &CONTAINER)),
    ("ephemeralContainers", list("name", &CONTAINER)),
    ("imagePullSecrets", list("name", &ANY)),
    ("hostAliases", list("ip", &ANY)),
    ("topologySpreadConstraints", and("whenUnsatisfiable", "", list("topologyKey", &ANY))),
    ("schedulingGates", list("name", &ANY)),
    ("resourceClaims", retaining(list("name", &ANY))),
]);
static POD_STATUS: Schema = Schema(&[
    CONDITIONS,
    ("podIPs", list("ip", &ANY)),
    ("hostIPs", list("ip", &ANY)),
    ("resourceClaimStatuses", retaining(list("name", &ANY))),
]);
static POD: Schema = Schema(&[META, ("spec", map(&POD_SPEC)), ("status", map(&POD_STATUS))]);

static POD_TEMPLATE: Schema = Schema(&[META, ("spec", map(&POD_SPEC))]);
static WITH_TEMPLATE: Schema = Schema(&[META, TEMPLATE]);
static WORKLOAD: Schema = Schema(&[META, ("spec", map(&WORKLOAD_SPEC)), STATUS]);
static WORKLOAD_SPEC: Schema = Schema(&[TEMPLATE]);
static DEPLOYMENT: Schema = Schema(&[META, ("spec", map(&DEPLOYMENT_SPEC)), STATUS]);
static DEPLOYMENT_SPEC: Schema = Schema(&[TEMPLATE, ("strategy", retaining(map(&ANY)))]);
static CRON_JOB: Schema = Schema(&[META, ("spec", map(&CRON_JOB_SPEC))]);
static CRON_JOB_SPEC: Schema = Schema(&[("jobTemplate", map(&WORKLOAD))]);
static DISRUPTION_BUDGET: Schema = Schema(&[META, ("spec", map(&DISRUPTION_BUDGET_SPEC)), STATUS]);
static DISRUPTION_BUDGET_SPEC: Schema = Schema(&[("selector", REPLACE)]);

static SERVICE: Schema = Schema(&[META, ("spec", map(&SERVICE_SPEC)), STATUS]);
static SERVICE_SPEC: Schema = Schema(&[("ports", and("protocol", "TCP", list("port", &ANY)))]);
static SERVICE_ACCOUNT: Schema = Schema(&[META, ("secrets", list("name", &ANY))]);
static NODE: Schema = Schema(&[META, ("spec", map(&NODE_SPEC)), ("status", map(&NODE_STATUS))]);
static NODE_SPEC: Schema = Schema(&[("podCIDRs", SET)]);
static NODE_STATUS: Schema = Schema(&[CONDITIONS, ("addresses", list("type", &ANY))]);
static COMPONENT_STATUS: Schema = Schema(&[META, CONDITIONS]);

static CSI_NODE: Schema = Schema(&[META, ("spec", map(&CSI_NODE_SPEC))]);
static CSI_NODE_SPEC: Schema = Schema(&[("drivers", list("name", &ANY))]);
static RESOURCE_CLAIM: Schema = Schema(&[META, ("status", map(&RESOURCE_CLAIM_STATUS))]);
static RESOURCE_CLAIM_STATUS: Schema = Schema(&[("reservedFor", list("uid", &ANY))]);
static WEBHOOKS: Schema = Schema(&[META, ("webhooks", list("name", &WEBHOOK))]);
static WEBHOOK: Schema = Schema(&[("matchConditions", list("name", &ANY))]);
static ADMISSION_POLICY: Schema = Schema(&[META, ("spec", map(&ADMISSION_POLICY_SPEC)), STATUS]);
static ADMISSION_POLICY_SPEC: Schema =
    Schema(&[("matchConditions", list("name", &ANY)), ("variables", list("name", &ANY))]);

/// Groups of built-in kinds, which accept strategic merge patches; all other groups are custom resources.
const GROUPS: [&str; 23] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The schema of a built-in kind; none for a custom resource.
pub fn schema_for(api_version: &str, kind: &str) -> Option<SchemaRef> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let known = GROUPS.contains(&group) && !api_version.is_empty();
    let schema: SchemaRef = match (group, kind) {
        ("", "Pod") => &POD,
        ("", "PodTemplate") => &WITH_TEMPLATE,
        ("", "ReplicationController") => &WORKLOAD,
        ("", "Service") => &SERVICE,
        ("", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("", "Node") => &NODE,
        ("", "ComponentStatus") => &COMPONENT_STATUS,
        ("", "Namespace" | "PersistentVolumeClaim") => &WITH_CONDITIONS,
        ("apps", "Deployment") => &DEPLOYMENT,
        ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet") | ("batch", "Job") => &WORKLOAD,
        ("batch", "CronJob") => &CRON_JOB,
        ("policy", "PodDisruptionBudget") => &DISRUPTION_BUDGET,
        ("storage.k8s.io", "CSINode") => &CSI_NODE,
        ("resource.k8s.io", "ResourceClaim") => &RESOURCE_CLAIM,
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            &WEBHOOKS
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") => &ADMISSION_POLICY,
        ("autoscaling", "HorizontalPodAutoscaler")
        | ("apiregistration.k8s.io", "APIService")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("flowcontrol.apiserver.k8s.io", _) => &WITH_CONDITIONS,
        _ => &OBJECT,
    };
    known.then_some(schema)
}
