//! The minimum number of exact steps of each conversation, and the conversations that are left out.

/// Conversations that are not replayed, with the reason.
pub const OUT_OF_SCOPE: &[(&str, &str)] = &[];

/// Number of exact steps; raise it when more are exact.
const FLOORS: &[(&str, usize)] = &[
    ("admission-policy-basics", 15),
    ("admission-policy-mutate", 7),
    // The other four depend on requests before the recording: the server answers that a ConfigMap is missing which it created two
    // seconds ago. That is a bug of Kubernetes 1.36 (issue 130887, mended later): once the last binding
    // with parameters in ConfigMaps has been gone for a second, the API server stops its informer for them, and cannot start it again until
    // it ends. So that server must have had such a binding before. A new server finds the parameters, as the documentation says, and so
    // does kloop.
    ("admission-policy-params", 4),
    ("apply-annotations-errors", 19),
    ("apply-basics", 20),
    ("apply-dry-run", 18),
    ("apply-many", 19),
    ("apply-prune", 8),
    ("apply-server-side", 21),
    ("apply-ssa-migrate", 11),
    ("apply-three-way", 10),
    ("auth-can-i", 20),
    ("crd-cel", 9),
    ("crd-invalid", 6),
    // In the last step kubectl knows a deleted kind from its cache of discovery, which kloop does not need.
    ("crd-structural", 39),
    ("crd-versions", 11),
    ("create-generators-1", 23),
    ("create-generators-2", 24),
    ("create-generators-3", 27),
    ("cronjob-fires", 14),
    ("defaults-cluster", 17),
    ("defaults-config-rbac", 16),
    ("defaults-pods", 4),
    ("defaults-services", 14),
    ("defaults-workloads", 11),
    ("delete-modes", 38),
    ("describe-node", 5),
    ("describe-others", 18),
    ("describe-workloads", 13),
    ("diff-codes", 11),
    ("edit-scripted", 16),
    ("events-cmd", 14),
    ("explain-api", 21),
    ("gc-cascade", 30),
    ("get-flags", 30),
    ("get-outputs", 36),
    ("get-selecting", 54),
    ("get-watch", 7),
    ("invalid-meta", 27),
    ("invalid-others", 71),
    ("invalid-pods", 92),
    ("invalid-updates", 33),
    ("invalid-workloads", 59),
    ("kubelet-verbs-errors", 10),
    ("kustomize-basic", 7),
    ("label-annotate", 30),
    ("namespaces", 22),
    ("node-commands", 33),
    ("patch-kinds", 38),
    ("pod-security", 9),
    ("pod-states", 20),
    ("pods-replaced", 13),
    ("preemption", 13),
    ("quota-limits", 18),
    ("raw-crud", 41),
    // Different: the version of the program, and documents of OpenAPI that are not split as in Kubernetes.
    ("raw-discovery", 19),
    ("raw-lists-watch", 18),
    ("raw-subresources", 17),
    ("raw-tables", 17),
    ("rbac-rules", 23),
    ("replace-conflict", 13),
    ("rollout-deployment", 34),
    ("rollout-sts-ds", 31),
    ("rollout-stuck", 15),
    ("run-expose", 23),
    ("scale-autoscale", 22),
    ("scheduling-failures", 17),
    ("services-endpoints", 14),
    ("set-commands", 28),
    ("storage-binding", 15),
    // One more is exact when the random names of two pods in different zones sort as in the recording.
    ("tables-workloads", 23),
    ("tokens-and-reviews", 7),
    ("wait-forms", 23),
    ("webhooks-unreachable", 8),
    ("yaml-quirks", 15),
];

/// Returns why a conversation is not replayed, if it is not.
pub fn out_of_scope(scenario: &str) -> Option<&'static str> {
    OUT_OF_SCOPE.iter().find(|(name, _)| *name == scenario).map(|(_, why)| *why)
}

/// Returns the minimum number of exact steps of a conversation.
pub fn of(scenario: &str) -> usize {
    FLOORS.iter().find(|(name, _)| *name == scenario).map_or(0, |(_, floor)| *floor)
}
