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
    ("apply-annotations-errors", 9),
    ("apply-basics", 13),
    ("apply-dry-run", 12),
    ("apply-many", 13),
    ("create-generators-3", 6),
    ("defaults-cluster", 11),
    ("defaults-config-rbac", 14),
    ("defaults-services", 8),
    ("defaults-workloads", 4),
    ("delete-modes", 18),
    ("get-outputs", 25),
    ("get-selecting", 42),
    ("invalid-meta", 25),
    ("invalid-others", 67),
    ("invalid-pods", 90),
    ("invalid-workloads", 59),
    ("storage-binding", 6),
    ("tables-workloads", 12),
    ("yaml-quirks", 14),
];

/// Why a conversation is not replayed.
pub fn out_of_scope(scenario: &str) -> Option<&'static str> {
    OUT_OF_SCOPE.iter().find(|(name, _)| *name == scenario).map(|(_, why)| *why)
}

/// How many steps of a conversation have to be exact.
pub fn of(scenario: &str) -> usize {
    FLOORS.iter().find(|(name, _)| *name == scenario).map_or(0, |(_, floor)| *floor)
}
