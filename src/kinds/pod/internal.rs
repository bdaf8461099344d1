//! A pod spec as Kubernetes' own Go struct prints, for the refusals that show it whole.

use crate::kinds::go::{self, Field, Layout, Shape};
use k8s_openapi::api::core::v1::{PodSpec, SecurityContext};
use serde_json::{Value, json};

const RESOURCES: &[Field] = &[
    ("Limits", "limits", Shape::Pointer),
    ("Requests", "requests", Shape::Pointer),
    ("Claims", "claims", Shape::Plains),
];

const PORT: &[Field] = &[
    ("Name", "name", Shape::Text),
    ("HostPort", "hostPort", Shape::Number),
    ("ContainerPort", "containerPort", Shape::Number),
    ("Protocol", "protocol", Shape::Text),
    ("HostIP", "hostIP", Shape::Text),
];

const VARIABLE: &[Field] =
    &[("Name", "name", Shape::Text), ("Value", "value", Shape::Text), ("ValueFrom", "valueFrom", Shape::Plain)];

const MOUNT: &[Field] = &[
    ("Name", "name", Shape::Text),
    ("ReadOnly", "readOnly", Shape::Bool),
    ("RecursiveReadOnly", "recursiveReadOnly", Shape::Pointer),
    ("MountPath", "mountPath", Shape::Text),
    ("SubPath", "subPath", Shape::Text),
    ("MountPropagation", "mountPropagation", Shape::Pointer),
    ("SubPathExpr", "subPathExpr", Shape::Text),
];

const EXEC: &[Field] = &[("Command", "command", Shape::Pointer)];

const HTTP: &[Field] = &[
    ("Path", "path", Shape::Text),
    ("Port", "port", Shape::Number),
    ("Host", "host", Shape::Text),
    ("Scheme", "scheme", Shape::Text),
    ("HTTPHeaders", "httpHeaders", Shape::Plains),
];

const TCP: &[Field] = &[("Port", "port", Shape::Number), ("Host", "host", Shape::Text)];

const PROBE: &[Field] = &[
    ("Exec", "exec", Shape::Optional(EXEC)),
    ("HTTPGet", "httpGet", Shape::Optional(HTTP)),
    ("TCPSocket", "tcpSocket", Shape::Optional(TCP)),
    ("GRPC", "grpc", Shape::Plain),
    ("InitialDelaySeconds", "initialDelaySeconds", Shape::Number),
    ("TimeoutSeconds", "timeoutSeconds", Shape::Number),
    ("PeriodSeconds", "periodSeconds", Shape::Number),
    ("SuccessThreshold", "successThreshold", Shape::Number),
    ("FailureThreshold", "failureThreshold", Shape::Number),
    ("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Shape::Pointer),
];

const HOOK: &[Field] = &[
    ("Exec", "exec", Shape::Optional(EXEC)),
    ("HTTPGet", "httpGet", Shape::Optional(HTTP)),
    ("TCPSocket", "tcpSocket", Shape::Optional(TCP)),
    ("Sleep", "sleep", Shape::Plain),
];

const LIFECYCLE: &[Field] = &[
    ("PostStart", "postStart", Shape::Optional(HOOK)),
    ("PreStop", "preStop", Shape::Optional(HOOK)),
    ("StopSignal", "stopSignal", Shape::Pointer),
];

const SECURITY: &[Field] = &[
    ("Capabilities", "capabilities", Shape::Plain),
    ("Privileged", "privileged", Shape::Pointer),
    ("SELinuxOptions", "seLinuxOptions", Shape::Plain),
    ("WindowsOptions", "windowsOptions", Shape::Plain),
    ("RunAsUser", "runAsUser", Shape::Pointer),
    ("RunAsGroup", "runAsGroup", Shape::Pointer),
    ("RunAsNonRoot", "runAsNonRoot", Shape::Pointer),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", Shape::Pointer),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", Shape::Pointer),
    ("ProcMount", "procMount", Shape::Pointer),
    ("SeccompProfile", "seccompProfile", Shape::Plain),
    ("AppArmorProfile", "appArmorProfile", Shape::Plain),
];

const CONTAINER: &[Field] = &[
    ("Name", "name", Shape::Text),
    ("Image", "image", Shape::Text),
    ("Command", "command", Shape::Pointer),
    ("Args", "args", Shape::Pointer),
    ("WorkingDir", "workingDir", Shape::Text),
    ("Ports", "ports", Shape::List(PORT)),
    ("EnvFrom", "envFrom", Shape::Plains),
    ("Env", "env", Shape::List(VARIABLE)),
    ("Resources", "resources", Shape::Struct(RESOURCES)),
    ("ResizePolicy", "resizePolicy", Shape::Plains),
    ("RestartPolicy", "restartPolicy", Shape::Pointer),
    ("RestartPolicyRules", "restartPolicyRules", Shape::Plains),
    ("VolumeMounts", "volumeMounts", Shape::List(MOUNT)),
    ("VolumeDevices", "volumeDevices", Shape::Plains),
    ("LivenessProbe", "livenessProbe", Shape::Optional(PROBE)),
    ("ReadinessProbe", "readinessProbe", Shape::Optional(PROBE)),
    ("StartupProbe", "startupProbe", Shape::Optional(PROBE)),
    ("Lifecycle", "lifecycle", Shape::Optional(LIFECYCLE)),
    ("TerminationMessagePath", "terminationMessagePath", Shape::Text),
    ("TerminationMessagePolicy", "terminationMessagePolicy", Shape::Text),
    ("ImagePullPolicy", "imagePullPolicy", Shape::Text),
    ("SecurityContext", "securityContext", Shape::Optional(SECURITY)),
    ("Stdin", "stdin", Shape::Bool),
    ("StdinOnce", "stdinOnce", Shape::Bool),
    ("TTY", "tty", Shape::Bool),
];

const POD_SECURITY: &[Field] = &[
    ("HostNetwork", "hostNetwork", Shape::Bool),
    ("HostPID", "hostPID", Shape::Bool),
    ("HostIPC", "hostIPC", Shape::Bool),
    ("ShareProcessNamespace", "shareProcessNamespace", Shape::Pointer),
    ("HostUsers", "hostUsers", Shape::Pointer),
    ("SELinuxOptions", "seLinuxOptions", Shape::Plain),
    ("WindowsOptions", "windowsOptions", Shape::Plain),
    ("RunAsUser", "runAsUser", Shape::Pointer),
    ("RunAsGroup", "runAsGroup", Shape::Pointer),
    ("RunAsNonRoot", "runAsNonRoot", Shape::Pointer),
    ("SupplementalGroups", "supplementalGroups", Shape::Pointer),
    ("SupplementalGroupsPolicy", "supplementalGroupsPolicy", Shape::Pointer),
    ("FSGroup", "fsGroup", Shape::Pointer),
    ("FSGroupChangePolicy", "fsGroupChangePolicy", Shape::Pointer),
    ("Sysctls", "sysctls", Shape::Plains),
    ("SeccompProfile", "seccompProfile", Shape::Plain),
    ("AppArmorProfile", "appArmorProfile", Shape::Plain),
    ("SELinuxChangePolicy", "seLinuxChangePolicy", Shape::Pointer),
];

const TOLERATION: &[Field] = &[
    ("Key", "key", Shape::Text),
    ("Operator", "operator", Shape::Text),
    ("Value", "value", Shape::Text),
    ("Effect", "effect", Shape::Text),
    ("TolerationSeconds", "tolerationSeconds", Shape::Pointer),
];

const SPEC: &[Field] = &[
    ("Volumes", "volumes", Shape::Plains),
    ("InitContainers", "initContainers", Shape::List(CONTAINER)),
    ("Containers", "containers", Shape::List(CONTAINER)),
    ("EphemeralContainers", "ephemeralContainers", Shape::Plains),
    ("RestartPolicy", "restartPolicy", Shape::Text),
    ("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Shape::Pointer),
    ("ActiveDeadlineSeconds", "activeDeadlineSeconds", Shape::Pointer),
    ("DNSPolicy", "dnsPolicy", Shape::Text),
    ("NodeSelector", "nodeSelector", Shape::Pointer),
    ("ServiceAccountName", "serviceAccountName", Shape::Text),
    ("AutomountServiceAccountToken", "automountServiceAccountToken", Shape::Pointer),
    ("NodeName", "nodeName", Shape::Text),
    ("SecurityContext", "securityContext", Shape::Optional(POD_SECURITY)),
    ("ImagePullSecrets", "imagePullSecrets", Shape::Plains),
    ("Hostname", "hostname", Shape::Text),
    ("Subdomain", "subdomain", Shape::Text),
    ("SetHostnameAsFQDN", "setHostnameAsFQDN", Shape::Pointer),
    ("Affinity", "affinity", Shape::Plain),
    ("SchedulerName", "schedulerName", Shape::Text),
    ("Tolerations", "tolerations", Shape::List(TOLERATION)),
    ("HostAliases", "hostAliases", Shape::Plains),
    ("PriorityClassName", "priorityClassName", Shape::Text),
    ("Priority", "priority", Shape::Pointer),
    ("PreemptionPolicy", "preemptionPolicy", Shape::Pointer),
    ("DNSConfig", "dnsConfig", Shape::Plain),
    ("ReadinessGates", "readinessGates", Shape::Plains),
    ("RuntimeClassName", "runtimeClassName", Shape::Pointer),
    ("Overhead", "overhead", Shape::Pointer),
    ("EnableServiceLinks", "enableServiceLinks", Shape::Pointer),
    ("TopologySpreadConstraints", "topologySpreadConstraints", Shape::Plains),
    ("OS", "os", Shape::Plain),
    ("SchedulingGates", "schedulingGates", Shape::Plains),
    ("ResourceClaims", "resourceClaims", Shape::Plains),
    ("Resources", "resources", Shape::Optional(RESOURCES)),
    ("HostnameOverride", "hostnameOverride", Shape::Pointer),
    ("SchedulingGroup", "schedulingGroup", Shape::Plain),
];

/// The fields that Go keeps in the security context and the API beside it.
const BESIDE: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// A pod spec laid out.
pub fn spec(spec: &PodSpec) -> Layout {
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    if value["securityContext"].is_null() {
        value["securityContext"] = json!({});
    }
    for name in BESIDE {
        value["securityContext"][name] = value.get_mut(name).map_or(Value::Null, Value::take);
    }
    go::lay_out(&value, SPEC)
}

/// A container's security context on one line.
pub fn security_context(security: &SecurityContext) -> String {
    go::lay_out(&serde_json::to_value(security).unwrap_or_default(), SECURITY).compact()
}
