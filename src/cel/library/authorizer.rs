//! Questions to the authorizer (`k8s.io/apiserver/pkg/cel/library/authz.go`). The caller of an evaluation answers them.

use super::{Function, Sig, function, member, text};
use crate::cel::foreign::authorizer::{AccessQuestion, Check, Decision};
use crate::cel::limits::WorkLimits;
use crate::cel::value::{EvalError, Evaluated, Value, fail};
use crate::object::names;
use std::sync::Arc;

/// The type of the variable `authorizer`.
pub const AUTHORIZER: Sig = Sig::Named("kubernetes.authorization.Authorizer");
const PATH: Sig = Sig::Named("kubernetes.authorization.PathCheck");
const GROUP: Sig = Sig::Named("kubernetes.authorization.GroupCheck");
/// The type of the variable `authorizer.requestResource`.
pub const RESOURCE: Sig = Sig::Named("kubernetes.authorization.ResourceCheck");
const DECISION: Sig = Sig::Named("kubernetes.authorization.Decision");
const S: Sig = Sig::String;

/// The value of the variable `authorizer`.
pub fn authorizer<'v>() -> Value<'v> {
    Value::Authorizer(Arc::new(Check::Authorizer(AccessQuestion::default())))
}

/// The value of the variable `authorizer.requestResource`.
pub fn request_resource<'v>(question: AccessQuestion) -> Value<'v> {
    Value::Authorizer(Arc::new(Check::Resource(question)))
}

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("path", &[member(&[AUTHORIZER, S], PATH)], |_, args| {
        let path = text(&args[1])?;
        if path.trim().is_empty() {
            return fail("path must not be empty");
        }
        match check(&args[0])? {
            Check::Authorizer(asked) => {
                authorizer_value(Check::Path(AccessQuestion { path: Some(path.into()), ..asked.clone() }))
            }
            _ => Err(EvalError::no_overload()),
        }
    }),
    function("group", &[member(&[AUTHORIZER, S], GROUP)], |_, args| match check(&args[0])? {
        Check::Authorizer(asked) => {
            authorizer_value(Check::Group(AccessQuestion { group: text(&args[1])?.into(), ..asked.clone() }))
        }
        _ => Err(EvalError::no_overload()),
    }),
    function("serviceAccount", &[member(&[AUTHORIZER, S, S], AUTHORIZER)], |_, args| {
        let (namespace, name) = (text(&args[1])?, text(&args[2])?);
        if !names::subdomain(name).is_empty() {
            return fail("Invalid service account name");
        }
        if !names::label(namespace).is_empty() {
            return fail("Invalid service account namespace");
        }
        match check(&args[0])? {
            Check::Authorizer(asked) => {
                let account = Some((namespace.to_owned(), name.to_owned()));
                authorizer_value(Check::Authorizer(AccessQuestion { account, ..asked.clone() }))
            }
            _ => Err(EvalError::no_overload()),
        }
    }),
    function("resource", &[member(&[GROUP, S], RESOURCE)], |_, args| {
        let resource = text(&args[1])?;
        if resource.trim().is_empty() {
            return fail("resource must not be empty");
        }
        match check(&args[0])? {
            Check::Group(asked) => {
                authorizer_value(Check::Resource(AccessQuestion { resource: resource.into(), ..asked.clone() }))
            }
            _ => Err(EvalError::no_overload()),
        }
    }),
    function("subresource", &[member(&[RESOURCE, S], RESOURCE)], |_, args| {
        narrow(args, |asked, value| asked.subresource = value)
    }),
    function("namespace", &[member(&[RESOURCE, S], RESOURCE)], |_, args| {
        narrow(args, |asked, value| asked.namespace = value)
    }),
    function("name", &[member(&[RESOURCE, S], RESOURCE)], |_, args| narrow(args, |asked, value| asked.name = value)),
    function("fieldSelector", &[member(&[RESOURCE, S], RESOURCE)], |_, args| {
        narrow(args, |asked, value| asked.field_selector = value)
    }),
    function("labelSelector", &[member(&[RESOURCE, S], RESOURCE)], |_, args| {
        narrow(args, |asked, value| asked.label_selector = value)
    }),
    function("check", &[member(&[PATH, S], DECISION), member(&[RESOURCE, S], DECISION)], ask),
    function("errored", &[member(&[DECISION], Sig::Bool)], |_, args| {
        Ok(Value::Bool(decision(&args[0])?.error.is_some()))
    }),
    function("error", &[member(&[DECISION], S)], |_, args| {
        Ok(Value::text(decision(&args[0])?.error.as_deref().unwrap_or_default()))
    }),
    function("allowed", &[member(&[DECISION], Sig::Bool)], |_, args| Ok(Value::Bool(decision(&args[0])?.allowed))),
    function("reason", &[member(&[DECISION], S)], |_, args| Ok(Value::text(&decision(&args[0])?.reason))),
];

fn check<'a>(value: &'a Value) -> Result<&'a Check, EvalError> {
    if let Value::Authorizer(check) = value { Ok(check) } else { Err(EvalError::no_overload()) }
}

fn authorizer_value<'v>(check: Check) -> Evaluated<'v> {
    Ok(Value::Authorizer(Arc::new(check)))
}

fn narrow<'v>(args: &[Value<'v>], set: fn(&mut AccessQuestion, String)) -> Evaluated<'v> {
    let Check::Resource(asked) = check(&args[0])? else { return Err(EvalError::no_overload()) };
    let mut asked = asked.clone();
    set(&mut asked, text(&args[1])?.to_owned());
    authorizer_value(Check::Resource(asked))
}

fn ask<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (Check::Path(asked) | Check::Resource(asked)) = check(&args[0])? else {
        return Err(EvalError::no_overload());
    };
    authorizer_value(Check::Decision(context.authorize(asked, text(&args[1])?)?))
}

fn decision<'a>(value: &'a Value) -> Result<&'a Decision, EvalError> {
    if let Check::Decision(decision) = check(value)? { Ok(decision) } else { Err(EvalError::no_overload()) }
}
