//! RBAC: requests, rules, and an index of the rules that bindings give.
//!
//! Knows: one request ([`AccessRequest`]), one rule ([`rule`]) and all bindings ([`index`]). Never: authenticates a user, or refuses
//! anything; the API server does. Source: Kubernetes, "Using RBAC Authorization". Start reading at [`index::AccessIndex`].

pub mod index;
pub mod rule;

/// The verb and the target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRequest {
    /// `get`, `list`, `create`; for a path the method in lower case.
    pub verb: String,
    /// The object or the path.
    pub target: AccessTarget,
}

/// The objects or the path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// Objects of the API.
    Resource(AccessedResource),
    /// A path outside of the API groups, such as `/healthz`.
    Path(String),
}

/// Objects that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessedResource {
    /// `apps`; empty for the core group.
    pub group: String,
    /// `deployments`.
    pub resource: String,
    /// `scale`; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for all of them, and where the kind has none.
    pub namespace: String,
    /// The name; empty for requests about several objects.
    pub name: String,
    /// The field selector of a request about several objects: `spec.nodeName=a`.
    pub field_selector: String,
}

/// An answer of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether the request is allowed.
    pub is_allowed: bool,
    /// The rule that allows it, or the roles that were not found.
    pub reason: String,
}

impl AccessRequest {
    /// Makes a request for objects.
    pub fn for_resource(verb: &str, resource: AccessedResource) -> AccessRequest {
        AccessRequest { verb: verb.to_owned(), target: AccessTarget::Resource(resource) }
    }

    /// The namespace of the target; empty for the whole cluster.
    pub fn namespace(&self) -> &str {
        match &self.target {
            AccessTarget::Resource(accessed) => &accessed.namespace,
            AccessTarget::Path(_) => "",
        }
    }
}

impl AccessedResource {
    /// Whether the field selector allows no other value of this field.
    pub fn requires_field(&self, field: &str, value: &str) -> bool {
        let mut requirements = self.field_selector.split(',').filter_map(|one| one.trim().split_once('='));
        requirements.any(|(name, wanted)| name == field && wanted.strip_prefix('=').unwrap_or(wanted) == value)
    }

    /// `deployments/scale`, as rules name it.
    pub fn path(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}
