//! Patch strategies and merge keys of built-in kinds.
//!
//! Source: the `patchStrategy` and `patchMergeKey` tags of Kubernetes' Go types (1.36). Server-side apply uses other
//! keys; where it has two keys, kustomize uses both.

use crate::object::merge::schema::{
    ANY, MergeField, MergeSchema, MergeSchemaRef, REPLACE, SET, list, map, retaining, with_second_key,
};

const CONDITIONS: (&str, MergeField) = ("conditions", list("type", &ANY));
const META: (&str, MergeField) = ("metadata", map(&METADATA));
const STATUS: (&str, MergeField) = ("status", map(&JUST_CONDITIONS));
const TEMPLATE: (&str, MergeField) = ("template", map(&POD_TEMPLATE));

static METADATA: MergeSchema = MergeSchema::new(&[("finalizers", SET), ("ownerReferences", list("uid", &ANY))]);
static JUST_CONDITIONS: MergeSchema = MergeSchema::new(&[CONDITIONS]);
static OBJECT: MergeSchema = MergeSchema::new(&[META]);
static WITH_CONDITIONS: MergeSchema = MergeSchema::new(&[META, STATUS]);

static CONTAINER: MergeSchema = MergeSchema::new(&[
    ("ports", with_second_key("protocol", "TCP", list("containerPort", &ANY))),
    ("env", list("name", &ANY)),
    ("volumeMounts", list("mountPath", &ANY)),
    ("volumeDevices", list("devicePath", &ANY)),
]);
static POD_SPEC: MergeSchema = MergeSchema::new(&[
    ("volumes", retaining(list("name", &ANY))),
    ("initContainers", list("name", &CONTAINER)),
    ("containers", list("name", &CONTAINER)),
    ("ephemeralContainers", list("name", &CONTAINER)),
    ("imagePullSecrets", list("name", &ANY)),
    ("hostAliases", list("ip", &ANY)),
    ("topologySpreadConstraints", with_second_key("whenUnsatisfiable", "", list("topologyKey", &ANY))),
    ("schedulingGates", list("name", &ANY)),
    ("resourceClaims", retaining(list("name", &ANY))),
]);
static POD_STATUS: MergeSchema = MergeSchema::new(&[
    CONDITIONS,
    ("podIPs", list("ip", &ANY)),
    ("hostIPs", list("ip", &ANY)),
    ("resourceClaimStatuses", retaining(list("name", &ANY))),
]);
static POD: MergeSchema = MergeSchema::new(&[META, ("spec", map(&POD_SPEC)), ("status", map(&POD_STATUS))]);

static POD_TEMPLATE: MergeSchema = MergeSchema::new(&[META, ("spec", map(&POD_SPEC))]);
static WITH_TEMPLATE: MergeSchema = MergeSchema::new(&[META, TEMPLATE]);
static WORKLOAD: MergeSchema = MergeSchema::new(&[META, ("spec", map(&WORKLOAD_SPEC)), STATUS]);
static WORKLOAD_SPEC: MergeSchema = MergeSchema::new(&[TEMPLATE]);
static DEPLOYMENT: MergeSchema = MergeSchema::new(&[META, ("spec", map(&DEPLOYMENT_SPEC)), STATUS]);
static DEPLOYMENT_SPEC: MergeSchema = MergeSchema::new(&[TEMPLATE, ("strategy", retaining(map(&ANY)))]);
static CRON_JOB: MergeSchema = MergeSchema::new(&[META, ("spec", map(&CRON_JOB_SPEC))]);
static CRON_JOB_SPEC: MergeSchema = MergeSchema::new(&[("jobTemplate", map(&WORKLOAD))]);
static DISRUPTION_BUDGET: MergeSchema = MergeSchema::new(&[META, ("spec", map(&DISRUPTION_BUDGET_SPEC)), STATUS]);
static DISRUPTION_BUDGET_SPEC: MergeSchema = MergeSchema::new(&[("selector", REPLACE)]);

static SERVICE: MergeSchema = MergeSchema::new(&[META, ("spec", map(&SERVICE_SPEC)), STATUS]);
static SERVICE_SPEC: MergeSchema =
    MergeSchema::new(&[("ports", with_second_key("protocol", "TCP", list("port", &ANY)))]);
static SERVICE_ACCOUNT: MergeSchema = MergeSchema::new(&[META, ("secrets", list("name", &ANY))]);
static NODE: MergeSchema = MergeSchema::new(&[META, ("spec", map(&NODE_SPEC)), ("status", map(&NODE_STATUS))]);
static NODE_SPEC: MergeSchema = MergeSchema::new(&[("podCIDRs", SET)]);
static NODE_STATUS: MergeSchema = MergeSchema::new(&[CONDITIONS, ("addresses", list("type", &ANY))]);
static COMPONENT_STATUS: MergeSchema = MergeSchema::new(&[META, CONDITIONS]);

static CSI_NODE: MergeSchema = MergeSchema::new(&[META, ("spec", map(&CSI_NODE_SPEC))]);
static CSI_NODE_SPEC: MergeSchema = MergeSchema::new(&[("drivers", list("name", &ANY))]);
static RESOURCE_CLAIM: MergeSchema = MergeSchema::new(&[META, ("status", map(&RESOURCE_CLAIM_STATUS))]);
static RESOURCE_CLAIM_STATUS: MergeSchema = MergeSchema::new(&[("reservedFor", list("uid", &ANY))]);
static WEBHOOKS: MergeSchema = MergeSchema::new(&[META, ("webhooks", list("name", &WEBHOOK))]);
static WEBHOOK: MergeSchema = MergeSchema::new(&[("matchConditions", list("name", &ANY))]);
static ADMISSION_POLICY: MergeSchema = MergeSchema::new(&[META, ("spec", map(&ADMISSION_POLICY_SPEC)), STATUS]);
static ADMISSION_POLICY_SPEC: MergeSchema =
    MergeSchema::new(&[("matchConditions", list("name", &ANY)), ("variables", list("name", &ANY))]);

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

/// The schema of a built-in kind; `None` for a custom resource.
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
