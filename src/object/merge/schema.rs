//! Patch strategies and merge keys of built-in kinds.
//!
//! A field that is not listed merges when it is a map and is replaced when it is a list. Source: the `patchStrategy`
//! and `patchMergeKey` tags of Kubernetes' Go types (1.36); the keys of server-side apply differ. Where server-side
//! apply has two keys, kustomize uses both.

/// Merge rules of one type's fields.
#[derive(Debug)]
pub struct MergeSchema(&'static [(&'static str, MergeField)]);

/// A type's schema, found with [`schema_for`].
pub type MergeSchemaRef = &'static MergeSchema;

/// Merge rule of one field.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeField {
    pub strategy: MergeStrategy,
    /// Whether a patch lists the keys to keep because they exclude each other (`$retainKeys`).
    pub retain_keys: bool,
    /// Second key of a list's elements, used by kustomize only, and its default.
    pub second: Option<(&'static str, &'static str)>,
    /// The type of the map, or of the list's elements.
    pub of: MergeSchemaRef,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeStrategy {
    /// Maps merge, lists are replaced.
    Plain,
    /// Replaced whole although it is a map.
    Replace,
    /// A list of maps that are the same when this field is.
    ByKey(&'static str),
    /// A list of texts or numbers, each at most once.
    Set,
}

impl MergeSchema {
    /// Returns the merge rule of a field.
    pub(super) fn field(&self, name: &str) -> MergeField {
        self.0.iter().find(|(known, _)| *known == name).map_or(map(&ANY), |(_, field)| *field)
    }
}

const fn field(strategy: MergeStrategy, of: MergeSchemaRef) -> MergeField {
    MergeField { strategy, retain_keys: false, second: None, of }
}

const fn map(of: MergeSchemaRef) -> MergeField {
    field(MergeStrategy::Plain, of)
}

const fn list(key: &'static str, of: MergeSchemaRef) -> MergeField {
    field(MergeStrategy::ByKey(key), of)
}

const fn and(second: &'static str, default: &'static str, field: MergeField) -> MergeField {
    MergeField { second: Some((second, default)), ..field }
}

const fn retaining(field: MergeField) -> MergeField {
    MergeField { retain_keys: true, ..field }
}

const SET: MergeField = field(MergeStrategy::Set, &ANY);
const REPLACE: MergeField = field(MergeStrategy::Replace, &ANY);
const CONDITIONS: (&str, MergeField) = ("conditions", list("type", &ANY));
const META: (&str, MergeField) = ("metadata", map(&METADATA));
const STATUS: (&str, MergeField) = ("status", map(&JUST_CONDITIONS));
const TEMPLATE: (&str, MergeField) = ("template", map(&POD_TEMPLATE));

/// Schema without any rule.
pub(super) static ANY: MergeSchema = MergeSchema(&[]);
static METADATA: MergeSchema = MergeSchema(&[("finalizers", SET), ("ownerReferences", list("uid", &ANY))]);
static JUST_CONDITIONS: MergeSchema = MergeSchema(&[CONDITIONS]);
static OBJECT: MergeSchema = MergeSchema(&[META]);
static WITH_CONDITIONS: MergeSchema = MergeSchema(&[META, STATUS]);

static CONTAINER: MergeSchema = MergeSchema(&[
    ("ports", and("protocol", "TCP", list("containerPort", &ANY))),
    ("env", list("name", &ANY)),
    ("volumeMounts", list("mountPath", &ANY)),
    ("volumeDevices", list("devicePath", &ANY)),
]);
static POD_SPEC: MergeSchema = MergeSchema(&[
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
static POD_STATUS: MergeSchema = MergeSchema(&[
    CONDITIONS,
    ("podIPs", list("ip", &ANY)),
    ("hostIPs", list("ip", &ANY)),
    ("resourceClaimStatuses", retaining(list("name", &ANY))),
]);
static POD: MergeSchema = MergeSchema(&[META, ("spec", map(&POD_SPEC)), ("status", map(&POD_STATUS))]);

static POD_TEMPLATE: MergeSchema = MergeSchema(&[META, ("spec", map(&POD_SPEC))]);
static WITH_TEMPLATE: MergeSchema = MergeSchema(&[META, TEMPLATE]);
static WORKLOAD: MergeSchema = MergeSchema(&[META, ("spec", map(&WORKLOAD_SPEC)), STATUS]);
static WORKLOAD_SPEC: MergeSchema = MergeSchema(&[TEMPLATE]);
static DEPLOYMENT: MergeSchema = MergeSchema(&[META, ("spec", map(&DEPLOYMENT_SPEC)), STATUS]);
static DEPLOYMENT_SPEC: MergeSchema = MergeSchema(&[TEMPLATE, ("strategy", retaining(map(&ANY)))]);
static CRON_JOB: MergeSchema = MergeSchema(&[META, ("spec", map(&CRON_JOB_SPEC))]);
static CRON_JOB_SPEC: MergeSchema = MergeSchema(&[("jobTemplate", map(&WORKLOAD))]);
static DISRUPTION_BUDGET: MergeSchema = MergeSchema(&[META, ("spec", map(&DISRUPTION_BUDGET_SPEC)), STATUS]);
static DISRUPTION_BUDGET_SPEC: MergeSchema = MergeSchema(&[("selector", REPLACE)]);

static SERVICE: MergeSchema = MergeSchema(&[META, ("spec", map(&SERVICE_SPEC)), STATUS]);
static SERVICE_SPEC: MergeSchema = MergeSchema(&[("ports", and("protocol", "TCP", list("port", &ANY)))]);
static SERVICE_ACCOUNT: MergeSchema = MergeSchema(&[META, ("secrets", list("name", &ANY))]);
static NODE: MergeSchema = MergeSchema(&[META, ("spec", map(&NODE_SPEC)), ("status", map(&NODE_STATUS))]);
static NODE_SPEC: MergeSchema = MergeSchema(&[("podCIDRs", SET)]);
static NODE_STATUS: MergeSchema = MergeSchema(&[CONDITIONS, ("addresses", list("type", &ANY))]);
static COMPONENT_STATUS: MergeSchema = MergeSchema(&[META, CONDITIONS]);

static CSI_NODE: MergeSchema = MergeSchema(&[META, ("spec", map(&CSI_NODE_SPEC))]);
static CSI_NODE_SPEC: MergeSchema = MergeSchema(&[("drivers", list("name", &ANY))]);
static RESOURCE_CLAIM: MergeSchema = MergeSchema(&[META, ("status", map(&RESOURCE_CLAIM_STATUS))]);
static RESOURCE_CLAIM_STATUS: MergeSchema = MergeSchema(&[("reservedFor", list("uid", &ANY))]);
static WEBHOOKS: MergeSchema = MergeSchema(&[META, ("webhooks", list("name", &WEBHOOK))]);
static WEBHOOK: MergeSchema = MergeSchema(&[("matchConditions", list("name", &ANY))]);
static ADMISSION_POLICY: MergeSchema = MergeSchema(&[META, ("spec", map(&ADMISSION_POLICY_SPEC)), STATUS]);
static ADMISSION_POLICY_SPEC: MergeSchema =
    MergeSchema(&[("matchConditions", list("name", &ANY)), ("variables", list("name", &ANY))]);

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
pub fn schema_for(api_version: &str, kind: &str) -> Option<MergeSchemaRef> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let known = GROUPS.contains(&group) && !api_version.is_empty();
    let schema: MergeSchemaRef = match (group, kind) {
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
