//! Writes `src/kinds/catalogue/schema.json.gz`, the schemas of the built-in kinds for `explain`, from `k8s-openapi`.
//!
//! `cargo test --features schema -- --ignored write_schemas`, after a change of its version or of the catalogue.

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::Resource;
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::io::Write;

#[derive(Default)]
struct Schemas {
    generator: SchemaGenerator,
    kinds: Map<String, Value>,
}

impl Schemas {
    fn add<T: Resource + JsonSchema>(&mut self) {
        self.generator.subschema_for::<T>();
        self.kinds.insert(format!("{}/{}", T::API_VERSION, T::KIND), json!(T::schema_name()));
    }

    /// Adds bodies that are not objects.
    fn bodies(&mut self) {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta, Status};
        self.generator.subschema_for::<DeleteOptions>();
        self.generator.subschema_for::<ListMeta>();
        self.generator.subschema_for::<Status>();
    }

    fn built_in(&mut self) {
        use k8s_openapi::api::{
            admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates, coordination,
            core,
        };
        use k8s_openapi::api::{
            discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
        };
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
        use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
        macro_rules! add {
            ($($module:path: $($kind:ident)*;)*) => { $({ use $module as module; $(self.add::<module::$kind>();)* })* };
        }
        add! {
            core::v1: Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolumeClaim PersistentVolume Pod
                PodTemplate ReplicationController ResourceQuota Secret ServiceAccount Service;
            admissionregistration::v1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration
                ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration;
            apiextensions::v1: CustomResourceDefinition;
            apiregistration::v1: APIService;
            apps::v1: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
            authentication::v1: SelfSubjectReview TokenReview;
            authorization::v1: LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview;
            autoscaling::v1: HorizontalPodAutoscaler Scale;
            autoscaling::v2: HorizontalPodAutoscaler;
            batch::v1: CronJob Job;
            certificates::v1: CertificateSigningRequest;
            coordination::v1: Lease;
            discovery::v1: EndpointSlice;
            events::v1: Event;
            flowcontrol::v1: FlowSchema PriorityLevelConfiguration;
            networking::v1: IngressClass Ingress IPAddress NetworkPolicy ServiceCIDR;
            node::v1: RuntimeClass;
            policy::v1: Eviction PodDisruptionBudget;
            rbac::v1: ClusterRoleBinding ClusterRole RoleBinding Role;
            resource::v1: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
            scheduling::v1: PriorityClass;
            storage::v1: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass;
        }
    }
}

#[test]
#[ignore = "writes src/kinds/catalogue/schema.json.gz"]
fn write_schemas() {
    let mut schemas = Schemas::default();
    schemas.built_in();
    schemas.bodies();
    let mut definitions = schemas.generator.take_definitions(true);
    for name in schemas.kinds.values() {
        let definition = &mut definitions[name.as_str().unwrap()];
        // Only `k8s-openapi` requires metadata: Kubernetes accepts objects without.
        if let Some(required) = definition.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|field| field != "metadata");
        }
    }
    let mut unknown = Vec::new();
    add_enums(&mut definitions, &mut unknown);
    assert_eq!(unknown, Vec::<String>::new(), "enums.txt names fields that no kind has");
    let text = json!({ "kinds": schemas.kinds, "definitions": definitions }).to_string();
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    println!("{} definitions, {} bytes, packed {}", definitions.len(), text.len(), packed.len());
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kinds/catalogue/schema.json.gz"), packed).unwrap();
}

/// Adds a field's values to its schema and its description, as Kubernetes does.
fn add_enums(definitions: &mut Map<String, Value>, unknown: &mut Vec<String>) {
    for line in ENUMS.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (field, values) = line.split_once(": ").expect(line);
        let (definition, field) = field.rsplit_once('.').expect(line);
        let values: Vec<&str> = values.split(' ').map(|value| value.trim_matches('"')).collect();
        let schema = definitions
            .get_mut(&format!("io.k8s.api.{definition}"))
            .and_then(|definition| definition["properties"].get_mut(field))
            .filter(|schema| schema["type"] == "string");
        let Some(schema) = schema else {
            unknown.push(line.to_owned());
            continue;
        };
        let meaning = |value: &&str| match *value {
            "TCP" | "UDP" | "SCTP" => format!("\n - `{value:?}` is the {value} protocol."),
            _ => format!("\n - `{value:?}`"),
        };
        let told: String = values.iter().map(meaning).collect();
        let description = schema["description"].as_str().unwrap_or_default();
        schema["description"] = json!(format!("{description}\n\nPossible enum values:{told}"));
        schema["enum"] = json!(values);
    }
}

/// Fields whose values are listed in Kubernetes' own schemas but not in `k8s-openapi`.
const ENUMS: &str = r#"
admissionregistration.v1.MatchResources.matchPolicy: Equivalent Exact
admissionregistration.v1.MutatingAdmissionPolicySpec.failurePolicy: Fail Ignore
admissionregistration.v1.MutatingAdmissionPolicySpec.reinvocationPolicy: IfNeeded Never
admissionregistration.v1.MutatingWebhook.failurePolicy: Fail Ignore
admissionregistration.v1.MutatingWebhook.matchPolicy: Equivalent Exact
admissionregistration.v1.MutatingWebhook.reinvocationPolicy: IfNeeded Never
admissionregistration.v1.MutatingWebhook.sideEffects: None NoneOnDryRun Some Unknown
admissionregistration.v1.Mutation.patchType: ApplyConfiguration JSONPatch
admissionregistration.v1.NamedRuleWithOperations.scope: * Cluster Namespaced
admissionregistration.v1.RuleWithOperations.scope: * Cluster Namespaced
admissionregistration.v1.ValidatingAdmissionPolicySpec.failurePolicy: Fail Ignore
admissionregistration.v1.ValidatingWebhook.failurePolicy: Fail Ignore
admissionregistration.v1.ValidatingWebhook.matchPolicy: Equivalent Exact
admissionregistration.v1.ValidatingWebhook.sideEffects: None NoneOnDryRun Some Unknown
apps.v1.DaemonSetUpdateStrategy.type: OnDelete RollingUpdate
apps.v1.DeploymentStrategy.type: Recreate RollingUpdate
apps.v1.StatefulSetSpec.podManagementPolicy: OrderedReady Parallel
apps.v1.StatefulSetUpdateStrategy.type: OnDelete RollingUpdate
autoscaling.v2.HPAScalingRules.selectPolicy: Disabled Max Min
batch.v1.CronJobSpec.concurrencyPolicy: Allow Forbid Replace
batch.v1.JobSpec.completionMode: Indexed NonIndexed
batch.v1.JobSpec.podReplacementPolicy: Failed TerminatingOrFailed
batch.v1.PodFailurePolicyOnExitCodesRequirement.operator: In NotIn
batch.v1.PodFailurePolicyRule.action: Count FailIndex FailJob Ignore
core.v1.AppArmorProfile.type: Localhost RuntimeDefault Unconfined
core.v1.AzureDiskVolumeSource.cachingMode: None ReadOnly ReadWrite
core.v1.AzureDiskVolumeSource.kind: Dedicated Managed Shared
core.v1.Container.imagePullPolicy: Always IfNotPresent Never
core.v1.Container.terminationMessagePolicy: FallbackToLogsOnError File
core.v1.ContainerPort.protocol: SCTP TCP UDP
core.v1.ContainerStatus.stopSignal: SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMAX-1 SIGRTMAX-10 SIGRTMAX-11 SIGRTMAX-12 SIGRTMAX-13 SIGRTMAX-14 SIGRTMAX-2 SIGRTMAX-3 SIGRTMAX-4 SIGRTMAX-5 SIGRTMAX-6 SIGRTMAX-7 SIGRTMAX-8 SIGRTMAX-9 SIGRTMIN SIGRTMIN+1 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMIN+2 SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ
core.v1.EndpointPort.protocol: SCTP TCP UDP
core.v1.EphemeralContainer.imagePullPolicy: Always IfNotPresent Never
core.v1.EphemeralContainer.terminationMessagePolicy: FallbackToLogsOnError File
core.v1.HTTPGetAction.scheme: HTTP HTTPS
core.v1.HostPathVolumeSource.type: "" BlockDevice CharDevice Directory DirectoryOrCreate File FileOrCreate Socket
core.v1.ImageVolumeSource.pullPolicy: Always IfNotPresent Never
core.v1.Lifecycle.stopSignal: SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMAX-1 SIGRTMAX-10 SIGRTMAX-11 SIGRTMAX-12 SIGRTMAX-13 SIGRTMAX-14 SIGRTMAX-2 SIGRTMAX-3 SIGRTMAX-4 SIGRTMAX-5 SIGRTMAX-6 SIGRTMAX-7 SIGRTMAX-8 SIGRTMAX-9 SIGRTMIN SIGRTMIN+1 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMIN+2 SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ
core.v1.ModifyVolumeStatus.status: InProgress Infeasible Pending
core.v1.NamespaceStatus.phase: Active Terminating
core.v1.NodeSelectorRequirement.operator: DoesNotExist Exists Gt In Lt NotIn
core.v1.NodeStatus.phase: Pending Running Terminated
core.v1.PersistentVolumeClaimSpec.volumeMode: Block Filesystem
core.v1.PersistentVolumeClaimStatus.phase: Bound Lost Pending
core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy: Delete Recycle Retain
core.v1.PersistentVolumeSpec.volumeMode: Block Filesystem
core.v1.PersistentVolumeStatus.phase: Available Bound Failed Pending Released
core.v1.PodSecurityContext.fsGroupChangePolicy: Always OnRootMismatch
core.v1.PodSecurityContext.supplementalGroupsPolicy: Merge Strict
core.v1.PodSpec.dnsPolicy: ClusterFirst ClusterFirstWithHostNet Default None
core.v1.PodSpec.preemptionPolicy: Never PreemptLowerPriority
core.v1.PodSpec.restartPolicy: Always Never OnFailure
core.v1.PodStatus.phase: Failed Pending Running Succeeded Unknown
core.v1.PodStatus.qosClass: BestEffort Burstable Guaranteed
core.v1.PortStatus.protocol: SCTP TCP UDP
core.v1.ScopedResourceSelectorRequirement.operator: DoesNotExist Exists In NotIn
core.v1.ScopedResourceSelectorRequirement.scopeName: BestEffort CrossNamespacePodAffinity NotBestEffort NotTerminating PriorityClass Terminating VolumeAttributesClass
core.v1.SeccompProfile.type: Localhost RuntimeDefault Unconfined
core.v1.SecurityContext.procMount: Default Unmasked
core.v1.ServicePort.protocol: SCTP TCP UDP
core.v1.ServiceSpec.externalTrafficPolicy: Cluster Local
core.v1.ServiceSpec.internalTrafficPolicy: Cluster Local
core.v1.ServiceSpec.ipFamilyPolicy: PreferDualStack RequireDualStack SingleStack
core.v1.ServiceSpec.sessionAffinity: ClientIP None
core.v1.ServiceSpec.type: ClusterIP ExternalName LoadBalancer NodePort
core.v1.Taint.effect: NoExecute NoSchedule PreferNoSchedule
core.v1.Toleration.effect: NoExecute NoSchedule PreferNoSchedule
core.v1.Toleration.operator: Equal Exists Gt Lt
core.v1.TopologySpreadConstraint.nodeAffinityPolicy: Honor Ignore
core.v1.TopologySpreadConstraint.nodeTaintsPolicy: Honor Ignore
core.v1.TopologySpreadConstraint.whenUnsatisfiable: DoNotSchedule ScheduleAnyway
core.v1.VolumeMount.mountPropagation: Bidirectional HostToContainer None
discovery.v1.EndpointPort.protocol: SCTP TCP UDP
discovery.v1.EndpointSlice.addressType: FQDN IPv4 IPv6
networking.v1.HTTPIngressPath.pathType: Exact ImplementationSpecific Prefix
networking.v1.IngressPortStatus.protocol: SCTP TCP UDP
networking.v1.NetworkPolicyPort.protocol: SCTP TCP UDP
policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy: AlwaysAllow IfHealthyBudget
resource.v1.DeviceAllocationConfiguration.source: FromClaim FromClass
resource.v1.DeviceSubRequest.allocationMode: All ExactCount
resource.v1.DeviceTaint.effect: NoExecute NoSchedule None
resource.v1.DeviceToleration.effect: NoExecute NoSchedule None
resource.v1.DeviceToleration.operator: Equal Exists
resource.v1.ExactDeviceRequest.allocationMode: All ExactCount
scheduling.v1.PriorityClass.preemptionPolicy: Never PreemptLowerPriority
storage.v1.StorageClass.reclaimPolicy: Delete Recycle Retain
storage.v1.StorageClass.volumeBindingMode: Immediate WaitForFirstConsumer
"#;
