//! Semantic versions (`k8s.io/apiserver/pkg/cel/library/semverlib.go`, `github.com/blang/semver`).

use super::{Function, SEMVER, Sig, function, global, member, text};
use crate::cel::foreign::semver::{Semver, normalize, parse};
use crate::cel::value::{EvalError, Evaluated, Value, fail};
use std::sync::Arc;

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("semver", &[global(&[Sig::String], SEMVER), global(&[Sig::String, Sig::Bool], SEMVER)], |_, args| {
        match parse_version(args)? {
            Ok(version) => Ok(Value::Semver(Arc::new(version))),
            Err(why) => fail(why),
        }
    }),
    function(
        "isSemver",
        &[global(&[Sig::String], Sig::Bool), global(&[Sig::String, Sig::Bool], Sig::Bool)],
        |_, args| Ok(Value::Bool(parse_version(args)?.is_ok())),
    ),
    function("major", &[member(&[SEMVER], Sig::Int)], |_, args| number(&args[0], 0)),
    function("minor", &[member(&[SEMVER], Sig::Int)], |_, args| number(&args[0], 1)),
    function("patch", &[member(&[SEMVER], Sig::Int)], |_, args| number(&args[0], 2)),
];

/// Parses the version of a call; the inner error is that of a text that is not a version.
fn parse_version(args: &[Value]) -> Result<Result<Semver, String>, EvalError> {
    let is_lenient = args.get(1).is_some_and(|value| value.as_bool() == Some(true));
    let text = text(&args[0])?;
    Ok(if is_lenient { parse(&normalize(text)) } else { parse(text) })
}

fn number<'v>(value: &Value<'v>, index: usize) -> Evaluated<'v> {
    match value {
        Value::Semver(version) => Ok(Value::Int(version.numbers[index] as i64)),
        _ => Err(EvalError::no_overload()),
    }
}
