//! Prints a pod spec like Kubernetes' internal Go struct, for messages that contain the spec.

use crate::kinds::shared::go::{self, GoField, GoLayout, GoShape};
use k8s_openapi::api::core::v1::{PodSpec, SecurityContext};
use serde_json::{Value, json};

const RESOURCES: &[GoField] = &[
    ("Limits", "limits", GoShape::Pointer),
    ("Requests", "requests", GoShape::Pointer),
    ("Claims", "claims", GoShape::Plains),
];

const PORT: &[GoField] = &[
    ("Name", "name", GoShape::Text),
    ("HostPort", "hostPort", GoShape::Number),
    ("ContainerPort", "containerPort", GoShape::Number),
    ("Protocol", "protocol", GoShape::Text),
    ("HostIP", "hostIP", GoShape::Text),
];

const VARIABLE: &[GoField] =
    &[("Name", "name", GoShape::Text), ("Value", "value", GoShape::Text), ("ValueFrom", "valueFrom", GoShape::Plain)];

const MOUNT: &[GoField] = &[
    ("Name", "name", GoShape::Text),
    ("ReadOnly", "readOnly", GoShape::Bool),
    ("RecursiveReadOnly", "recursiveReadOnly", GoShape::Pointer),
    ("MountPath", "mountPath", GoShape::Text),
    ("SubPath", "subPath", GoShape::Text),
    ("MountPropagation", "mountPropagation", GoShape::Pointer),
    ("SubPathExpr", "subPathExpr", GoShape::Text),
];

const EXEC: &[GoField] = &[("Command", "command", GoShape::Pointer)];

const HTTP: &[GoField] = &[
    ("Path", "path", GoShape::Text),
    ("Port", "port", GoShape::Number),
    ("Host", "host", GoShape::Text),
    ("Scheme", "scheme", GoShape::Text),
    ("HTTPHeaders", "httpHeaders", GoShape::Plains),
];

const TCP: &[GoField] = &[("Port", "port", GoShape::Number), ("Host", "host", GoShape::Text)];

const PROBE: &[GoField] = &[
    ("Exec", "exec", GoShape::Optional(EXEC)),
    ("HTTPGet", "httpGet", GoShape::Optional(HTTP)),
    ("TCPSocket", "tcpSocket", GoShape::Optional(TCP)),
    ("GRPC", "grpc", GoShape::Plain),
    ("InitialDelaySeconds", "initialDelaySeconds", GoShape::Number),
    ("TimeoutSeconds", "timeoutSeconds", GoShape::Number),
    ("PeriodSeconds", "periodSeconds", GoShape::Number),
    ("SuccessThreshold", "successThreshold", GoShape::Number),
    ("FailureThreshold", "failureThreshold", GoShape::Number),
    ("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", GoShape::Pointer),
];

const HOOK: &[GoField] = &[
    ("Exec", "exec", GoShape::Optional(EXEC)),
    ("HTTPGet", "httpGet", GoShape::Optional(HTTP)),
    ("TCPSocket", "tcpSocket", GoShape::Optional(TCP)),
    ("Sleep", "sleep", GoShape::Plain),
];

const LIFECYCLE: &[GoField] = &[
    ("PostStart", "postStart", GoShape::Optional(HOOK)),
    ("PreStop", "preStop", GoShape::Optional(HOOK)),
    ("StopSignal", "stopSignal", GoShape::Pointer),
];

const SECURITY: &[GoField] = &[
    ("Capabilities", "capabilities", GoShape::Plain),
    ("Privileged", "privileged", GoShape::Pointer),
    ("SELinuxOptions", "seLinuxOptions", GoShape::Plain),
    ("WindowsOptions", "windowsOptions", GoShape::Plain),
    ("RunAsUser", "runAsUser", GoShape::Pointer),
    ("RunAsGroup", "runAsGroup", GoShape::Pointer),
    ("RunAsNonRoot", "runAsNonRoot", GoShape::Pointer),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", GoShape::Pointer),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", GoShape::Pointer),
    ("ProcMount", "procMount", GoShape::Pointer),
    ("SeccompProfile", "seccompProfile", GoShape::Plain),
    ("AppArmorProfile", "appArmorProfile", GoShape::Plain),
];

const CONTAINER: &[GoField] = &[
    ("Name", "name", GoShape::Text),
    ("Image", "image", GoShape::Text),
    ("Command", "command", GoShape::Pointer),
    ("Args", "args", GoShape::Pointer),
    ("WorkingDir", "workingDir", GoShape::Text),
    ("Ports", "ports", GoShape::List(PORT)),
    ("EnvFrom", "envFrom", GoShape::Plains),
    ("Env", "env", GoShape::List(VARIABLE)),
    ("Resources", "resources", GoShape::Struct(RESOURCES)),
    ("ResizePolicy", "resizePolicy", GoShape::Plains),
    ("RestartPolicy", "restartPolicy", GoShape::Pointer),
    ("RestartPolicyRules", "restartPolicyRules", GoShape::Plains),
    ("VolumeMounts", "volumeMounts", GoShape::List(MOUNT)),
    ("VolumeDevices", "volumeDevices", GoShape::Plains),
    ("LivenessProbe", "livenessProbe", GoShape::Optional(PROBE)),
    ("ReadinessProbe", "readinessProbe", GoShape::Optional(PROBE)),
    ("StartupProbe", "startupProbe", GoShape::Optional(PROBE)),
    ("Lifecycle", "lifecycle", GoShape::Optional(LIFECYCLE)),
    ("TerminationMessagePath", "terminationMessagePath", GoShape::Text),
    ("TerminationMessagePolicy", "terminationMessagePolicy", GoShape::Text),
    ("ImagePullPolicy", "imagePullPolicy", GoShape::Text),
    ("SecurityContext", "securityContext", GoShape::Optional(SECURITY)),
    ("Stdin", "stdin", GoShape::Bool),
    ("StdinOnce", "stdinOnce", GoShape::Bool),
    ("TTY", "tty", GoShape::Bool),
];

const POD_SECURITY: &[GoField] = &[
    ("HostNetwork", "hostNetwork", GoShape::Bool),
    ("HostPID", "hostPID", GoShape::Bool),
    ("HostIPC", "hostIPC", GoShape::Bool),
    ("ShareProcessNamespace", "shareProcessNamespace", GoShape::Pointer),
    ("HostUsers", "hostUsers", GoShape::Pointer),
    ("SELinuxOptions", "seLinuxOptions", GoShape::Plain),
    ("WindowsOptions", "windowsOptions", GoShape::Plain),
    ("RunAsUser", "runAsUser", GoShape::Pointer),
    ("RunAsGroup", "runAsGroup", GoShape::Pointer),
    ("RunAsNonRoot", "runAsNonRoot", GoShape::Pointer),
    ("SupplementalGroups", "supplementalGroups", GoShape::Pointer),
    ("SupplementalGroupsPolicy", "supplementalGroupsPolicy", GoShape::Pointer),
    ("FSGroup", "fsGroup", GoShape::Pointer),
    ("FSGroupChangePolicy", "fsGroupChangePolicy", GoShape::Pointer),
    ("Sysctls", "sysctls", GoShape::Plains),
    ("SeccompProfile", "seccompProfile", GoShape::Plain),
    ("AppArmorProfile", "appArmorProfile", GoShape::Plain),
    ("SELinuxChangePolicy", "seLinuxChangePolicy", GoShape::Pointer),
];

const TOLERATION: &[GoField] = &[
    ("Key", "key", GoShape::Text),
    ("Operator", "operator", GoShape::Text),
    ("Value", "value", GoShape::Text),
    ("Effect", "effect", GoShape::Text),
    ("TolerationSeconds", "tolerationSeconds", GoShape::Pointer),
];

const SPEC: &[GoField] = &[
    ("Volumes", "volumes", GoShape::Plains),
    ("InitContainers", "initContainers", GoShape::List(CONTAINER)),
    ("Containers", "containers", GoShape::List(CONTAINER)),
    ("EphemeralContainers", "ephemeralContainers", GoShape::Plains),
    ("RestartPolicy", "restartPolicy", GoShape::Text),
    ("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", GoShape::Pointer),
    ("ActiveDeadlineSeconds", "activeDeadlineSeconds", GoShape::Pointer),
    ("DNSPolicy", "dnsPolicy", GoShape::Text),
    ("NodeSelector", "nodeSelector", GoShape::Pointer),
    ("ServiceAccountName", "serviceAccountName", GoShape::Text),
    ("AutomountServiceAccountToken", "automountServiceAccountToken", GoShape::Pointer),
    ("NodeName", "nodeName", GoShape::Text),
    ("SecurityContext", "securityContext", GoShape::Optional(POD_SECURITY)),
    ("ImagePullSecrets", "imagePullSecrets", GoShape::Plains),
    ("Hostname", "hostname", GoShape::Text),
    ("Subdomain", "subdomain", GoShape::Text),
    ("SetHostnameAsFQDN", "setHostnameAsFQDN", GoShape::Pointer),
    ("Affinity", "affinity", GoShape::Plain),
    ("SchedulerName", "schedulerName", GoShape::Text),
    ("Tolerations", "tolerations", GoShape::List(TOLERATION)),
    ("HostAliases", "hostAliases", GoShape::Plains),
    ("PriorityClassName", "priorityClassName", GoShape::Text),
    ("Priority", "priority", GoShape::Pointer),
    ("PreemptionPolicy", "preemptionPolicy", GoShape::Pointer),
    ("DNSConfig", "dnsConfig", GoShape::Plain),
    ("ReadinessGates", "readinessGates", GoShape::Plains),
    ("RuntimeClassName", "runtimeClassName", GoShape::Pointer),
    ("Overhead", "overhead", GoShape::Pointer),
    ("EnableServiceLinks", "enableServiceLinks", GoShape::Pointer),
    ("TopologySpreadConstraints", "topologySpreadConstraints", GoShape::Plains),
    ("OS", "os", GoShape::Plain),
    ("SchedulingGates", "schedulingGates", GoShape::Plains),
    ("ResourceClaims", "resourceClaims", GoShape::Plains),
    ("Resources", "resources", GoShape::Optional(RESOURCES)),
    ("HostnameOverride", "hostnameOverride", GoShape::Pointer),
    ("SchedulingGroup", "schedulingGroup", GoShape::Plain),
];

/// The fields that Go's internal struct has in the security context, but the API has in the spec.
const BESIDE: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// Lays out a pod spec.
pub fn spec(spec: &PodSpec) -> GoLayout {
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    if value["securityContext"].is_null() {
        value["securityContext"] = json!({});
    }
    for name in BESIDE {
        value["securityContext"][name] = value.get_mut(name).map_or(Value::Null, Value::take);
    }
    go::lay_out(&value, SPEC)
}

/// Prints a container's security context on one line.
pub fn security_context(security: &SecurityContext) -> String {
    go::lay_out(&serde_json::to_value(security).unwrap_or_default(), SECURITY).compact()
}
