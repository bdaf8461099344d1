//! The variables of the expressions of policies and conditions.

use crate::cel::decl::Scalar;
use crate::cel::{Decl, Declarations, Type};
use std::sync::{Arc, LazyLock};

/// The variables that not every expression has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Available {
    /// `params`
    pub params: bool,
    /// `authorizer`
    pub authorizer: bool,
    /// The types of mutations: `Object` and `JSONPatch`.
    pub mutations: bool,
}

/// The declarations of a policy's or condition's expressions.
pub fn declarations(available: Available) -> Declarations {
    declare_typed(available, &Type::Dyn, &Type::Dyn)
}

/// Like [`declarations`], with the types of the objects and the parameters.
pub fn declare_typed(available: Available, object: &Type, params: &Type) -> Declarations {
    let mut declared = Declarations::default()
        .declare("object", object.clone())
        .declare("oldObject", object.clone())
        .declare("namespaceObject", Type::declared(&NAMESPACE, ""))
        .declare("request", Type::declared(&REQUEST, ""))
        .declare("variables", Type::Named("kubernetes.variables"));
    if available.params {
        declared = declared.declare("params", params.clone());
    }
    if available.authorizer {
        declared = declared
            .declare("authorizer", Type::Named("kubernetes.authorization.Authorizer"))
            .declare("authorizer.requestResource", Type::Named("kubernetes.authorization.ResourceCheck"));
    }
    declared.mutates = available.mutations;
    declared
}

fn fields(names: &[&str], decl: &Arc<Decl>) -> Vec<(String, Arc<Decl>)> {
    names.iter().map(|name| ((*name).to_owned(), decl.clone())).collect()
}

/// The declaration of `request`.
pub static REQUEST: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let text = Decl::scalar(Scalar::String);
    let kind = Decl::object("kubernetes.GroupVersionKind", fields(&["group", "version", "kind"], &text));
    let resource = Decl::object("kubernetes.GroupVersionResource", fields(&["group", "version", "resource"], &text));
    let mut user = fields(&["username", "uid"], &text);
    user.push(("groups".into(), Decl::list(text.clone())));
    user.push(("extra".into(), Decl::map(Decl::list(text.clone()))));
    let mut request = fields(&["subResource", "requestSubResource", "name", "namespace", "operation"], &text);
    request.extend(fields(&["kind", "requestKind"], &kind));
    request.extend(fields(&["resource", "requestResource"], &resource));
    request.push(("userInfo".into(), Decl::object("kubernetes.UserInfo", user)));
    request.push(("dryRun".into(), Decl::scalar(Scalar::Bool)));
    request.push(("options".into(), Decl::anything()));
    Decl::object("kubernetes.AdmissionRequest", request)
});

/// The declaration of `namespaceObject`.
pub static NAMESPACE: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let (text, time) = (Decl::scalar(Scalar::String), Decl::scalar(Scalar::Timestamp));
    let names = ["name", "generateName", "namespace", "UID", "resourceVersion"];
    let mut metadata = fields(&names, &text);
    metadata.extend(fields(&["labels", "annotations"], &Decl::map(text.clone())));
    metadata.extend(fields(&["creationTimestamp", "deletionTimestamp"], &time));
    metadata.extend(fields(&["deletionGracePeriodSeconds", "generation"], &Decl::scalar(Scalar::Int)));
    metadata.push(("finalizers".into(), Decl::list(text.clone())));
    let mut condition = fields(&["status", "type", "message", "reason"], &text);
    condition.push(("lastTransitionTime".into(), time));
    let condition = Decl::object("kubernetes.NamespaceCondition", condition);
    let spec = Decl::object("kubernetes.NamespaceSpec", [("finalizers".into(), Decl::list(text.clone()))]);
    let status = [("conditions".into(), Decl::list(condition)), ("phase".into(), text)];
    Decl::object(
        "kubernetes.Namespace",
        [
            ("metadata".into(), Decl::object("kubernetes.NamespaceMetadata", metadata)),
            ("spec".into(), spec),
            ("status".into(), Decl::object("kubernetes.NamespaceStatus", status)),
        ],
    )
});
