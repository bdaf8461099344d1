//! Questions to an authorizer, and its answers (`k8s.io/apiserver/pkg/cel/library/authz.go`).
//!
//! Never: decides; the caller of an evaluation gives an [`Authorize`].

/// Answers whether a user may do something.
pub trait Authorize {
    /// Decides whether a verb is allowed.
    fn decide(&self, question: &AccessQuestion, verb: &str) -> Decision;
}

/// The subject and the object of a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessQuestion {
    /// The namespace and name of a ServiceAccount; without one the user of the request.
    pub account: Option<(String, String)>,
    /// A path that is not a resource.
    pub path: Option<String>,
    /// The group of a resource.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// Its subresource.
    pub subresource: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The field selector of a list.
    pub field_selector: String,
    /// The label selector of a list.
    pub label_selector: String,
}

/// The answer of an authorizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason.
    pub reason: String,
    /// The error, if the authorizer failed.
    pub error: Option<String>,
}

/// A value of these functions: a question that is being asked, or its answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// `authorizer`
    Authorizer(AccessQuestion),
    /// `authorizer.path('/healthz')`
    Path(AccessQuestion),
    /// `authorizer.group('apps')`
    Group(AccessQuestion),
    /// `authorizer.group('apps').resource('deployments')`
    Resource(AccessQuestion),
    /// The answer to `check`.
    Decision(Decision),
}

impl Check {
    /// The name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Check::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Check::Path(_) => "kubernetes.authorization.PathCheck",
            Check::Group(_) => "kubernetes.authorization.GroupCheck",
            Check::Resource(_) => "kubernetes.authorization.ResourceCheck",
            Check::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}
