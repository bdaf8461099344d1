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
const FLOORS: &[(&str, usize)] = &[];

/// Why a conversation is not replayed.
pub fn out_of_scope(scenario: &str) -> Option<&'static str> {
    OUT_OF_SCOPE.iter().find(|(name, _)| *name == scenario).map(|(_, why)| *why)
}

/// How many steps of a conversation have to be exact.
pub fn of(scenario: &str) -> usize {
    FLOORS.iter().find(|(name, _)| *name == scenario).map_or(0, |(_, floor)| *floor)
}
