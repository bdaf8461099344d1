//! How many steps of each conversation have to be exact, and which conversations are left out.

/// Conversations that are not replayed, and why.
pub const OUT_OF_SCOPE: &[(&str, &str)] = &[
    ("raw-crud", "plain HTTP"),
    ("raw-discovery", "plain HTTP"),
    ("raw-lists-watch", "plain HTTP"),
    ("raw-subresources", "plain HTTP"),
    ("raw-tables", "plain HTTP"),
    ("crd-invalid", "CustomResourceDefinitions"),
    ("crd-structural", "CustomResourceDefinitions"),
    ("auth-can-i", "authorization"),
    ("kustomize-basic", "kustomize"),
];

/// Steps that were exact; raise a number when more are.
const FLOORS: &[(&str, usize)] = &[
    ("+agent", 3),
    ("-agent", 3),
    ("apply-annotations-errors", 14),
    ("apply-basics", 18),
    ("apply-dry-run", 17),
    ("apply-many", 19),
    ("apply-prune", 1),
    ("apply-ssa-migrate", 1),
    ("apply-three-way", 4),
    ("create-generators-3", 6),
    ("cronjob-fires", 10),
    ("defaults-cluster", 14),
    ("defaults-config-rbac", 16),
    ("defaults-pods", 3),
    ("defaults-services", 13),
    ("defaults-workloads", 11),
    ("delete-modes", 24),
    ("describe-node", 2),
    ("describe-others", 17),
    ("describe-workloads", 5),
    ("diff-codes", 1),
    ("events-cmd", 4),
    ("explain-api", 5),
    ("gc-cascade", 21),
    ("get-flags", 7),
    ("get-outputs", 32),
    ("get-selecting", 46),
    ("invalid-meta", 26),
    ("invalid-others", 68),
    ("invalid-pods", 92),
    ("invalid-updates", 2),
    ("invalid-workloads", 59),
    ("kubelet-verbs-errors", 5),
    ("label-annotate", 4),
    ("namespaces", 5),
    ("node-commands", 4),
    ("patch-kinds", 1),
    ("pod-states", 2),
    ("pods-replaced", 12),
    ("preemption", 5),
    ("quota-limits", 14),
    ("replace-conflict", 1),
    ("rollout-deployment", 24),
    ("rollout-sts-ds", 17),
    ("rollout-stuck", 5),
    ("scale-autoscale", 4),
    ("scheduling-failures", 9),
    ("services-endpoints", 13),
    ("set-commands", 8),
    ("storage-binding", 9),
    ("tables-workloads", 23),
    ("wait-forms", 22),
    ("yaml-quirks", 15),
];

/// Why a conversation is not replayed.
pub fn out_of_scope(scenario: &str) -> Option<&'static str> {
    OUT_OF_SCOPE.iter().find(|(name, _)| *name == scenario).map(|(_, why)| *why)
}

/// How many steps of a conversation have to be exact.
pub fn of(scenario: &str) -> usize {
    FLOORS.iter().find(|(name, _)| *name == scenario).map_or(0, |(_, floor)| *floor)
}
