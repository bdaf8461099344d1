//! The verbs of API requests that Kubernetes knows, for `auth can-i`, `create role` and completion.
//!
//! Never: limits rules to these verbs.

/// Verbs of requests for resources, as `kubectl auth can-i` knows them.
pub const RESOURCE_VERBS: [&str; 15] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
];

/// Verbs of requests for a path.
pub const PATH_VERBS: [&str; 8] = ["get", "put", "post", "head", "options", "delete", "patch", "*"];
