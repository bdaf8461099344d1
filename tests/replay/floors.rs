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
    ("-agent", 3),
    ("apply-annotations-errors", 19),
    ("apply-basics", 20),
    ("apply-dry-run", 17),
    ("apply-many", 19),
    ("apply-prune", 3),
    ("apply-ssa-migrate", 4),
    ("apply-three-way", 9),
    ("create-generators-1", 22),
    ("create-generators-2", 24),
    ("create-generators-3", 25),
    ("cronjob-fires", 8),
    ("defaults-cluster", 14),
    ("defaults-config-rbac", 16),
    ("defaults-pods", 3),
    ("defaults-services", 13),
    ("defaults-workloads", 11),
    ("delete-modes", 36),
    ("describe-node", 2),
    ("describe-others", 17),
    ("describe-workloads", 10),
    ("diff-codes", 9),
    ("edit-scripted", 16),
    ("events-cmd", 9),
    ("explain-api", 21),
    ("gc-cascade", 30),
    ("get-flags", 26),
    ("get-outputs", 32),
    ("get-selecting", 46),
    ("get-watch", 7),
    ("invalid-meta", 26),
    ("invalid-others", 68),
    ("invalid-pods", 92),
    ("invalid-updates", 30),
    ("invalid-workloads", 59),
    ("kubelet-verbs-errors", 10),
    ("label-annotate", 30),
    ("namespaces", 18),
    ("node-commands", 24),
    ("patch-kinds", 37),
    ("pod-states", 16),
    ("pods-replaced", 12),
    ("preemption", 5),
    ("quota-limits", 17),
    ("replace-conflict", 13),
    ("rollout-deployment", 31),
    ("rollout-sts-ds", 30),
    ("rollout-stuck", 12),
    ("run-expose", 23),
    ("scale-autoscale", 21),
    ("scheduling-failures", 17),
    ("services-endpoints", 14),
    ("set-commands", 28),
    ("storage-binding", 11),
    ("tables-workloads", 23),
    ("wait-forms", 23),
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
