//! The values that flags accept from a fixed list, and the types on which verbs act, for completion.
//!
//! Never: refuses a value; each verb does that itself. Start reading at [`flag_values`].

use crate::cli::command_line::access_verbs::RESOURCE_VERBS;

/// Flags by name with their values, for all verbs that have them.
const FLAGS: [(&str, &[&str]); 19] = [
    ("cascade", &["background", "orphan", "foreground"]),
    ("dry_run", &["none", "server", "client"]),
    ("shells", &["bash", "zsh", "fish", "man"]),
    ("validate", &["strict", "warn", "ignore"]),
    ("bound_object_kind", &["Node", "Pod", "Secret"]),
    ("image_pull_policy", &["Always", "IfNotPresent", "Never"]),
    ("load_restrictor", &["LoadRestrictionsRootOnly", "LoadRestrictionsNone"]),
    ("override_type", &["merge", "json", "strategic"]),
    ("language", &["strategic", "merge", "json"]),
    ("preemption_policy", &["PreemptLowerPriority", "Never"]),
    ("profile", &["general", "baseline", "restricted", "netadmin", "sysadmin", "legacy"]),
    ("protocol", &["TCP", "UDP", "SCTP"]),
    ("restart", &["Always", "OnFailure", "Never"]),
    ("session_affinity", &["None", "ClientIP"]),
    ("subresource", &["status", "scale", "resize", "ephemeralcontainers", "approval", "finalize"]),
    ("types", &["Normal", "Warning"]),
    ("verb", &RESOURCE_VERBS),
    ("verbs", &RESOURCE_VERBS),
    (
        "scopes",
        &["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating"],
    ),
];

/// Verbs that act on some types only, with these types.
const VERBS: [(&str, &[&str]); 13] = [
    ("autoscale", &["deployments", "replicasets", "replicationcontrollers", "statefulsets"]),
    ("expose", &["deployments", "pods", "replicasets", "replicationcontrollers", "services"]),
    ("rollout history", ROLLED_OUT),
    ("rollout pause", &["deployments"]),
    ("rollout restart", ROLLED_OUT),
    ("rollout resume", &["deployments"]),
    ("rollout status", ROLLED_OUT),
    ("rollout undo", ROLLED_OUT),
    ("scale", &["deployments", "replicasets", "replicationcontrollers", "statefulsets"]),
    ("set selector", &["services"]),
    ("set serviceaccount", &["daemonsets", "deployments", "jobs", "replicasets", "statefulsets"]),
    ("set subject", &["clusterrolebindings", "rolebindings"]),
    ("taint", &["nodes"]),
];

const ROLLED_OUT: &[&str] = &["daemonsets", "deployments", "statefulsets"];

/// Returns the values of a flag of a verb; `None` when there is no fixed list.
pub fn flag_values(flag: &str, verb: &str) -> Option<&'static [&'static str]> {
    match (flag, verb) {
        ("kind", "expose") => return Some(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
        ("sort_by", "top pod" | "top node") => return Some(&["cpu", "memory"]),
        ("sort_by", "api-resources") => return Some(&["name", "kind"]),
        ("output", "config get-contexts" | "delete") => return Some(&["name"]),
        ("output", "version" | "config view") => return Some(&["json", "yaml"]),
        ("output", "api-resources") => return Some(&["name", "wide", "json", "yaml"]),
        ("output", "explain") => return Some(&["plaintext", "plaintext-openapiv2"]),
        ("output", "up" | "ps" | "history") => return Some(&["json"]),
        ("annotations", "up") => return Some(&["github"]),
        _ => {}
    }
    FLAGS.iter().find(|(known, _)| *known == flag).map(|(_, values)| *values)
}

/// Returns the types on which a verb acts; `None` when it acts on all.
pub fn kinds_of_verb(verb: &str) -> Option<&'static [&'static str]> {
    VERBS.iter().find(|(known, _)| *known == verb).map(|(_, kinds)| *kinds)
}
