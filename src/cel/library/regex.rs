//! Functions that match patterns, written in Go's syntax.

use super::{Function, Sig, function, global, member, number, text};
use crate::cel::limits::WorkLimits;
use crate::cel::value::{EvalError, Value, fail};
use regex::Regex;
use std::sync::Arc;

const S: Sig = Sig::String;
const TEXTS: Sig = Sig::List(&Sig::String);

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("matches", &[global(&[S, S], Sig::Bool), member(&[S, S], Sig::Bool)], |context, args| {
        let text = text(&args[0])?;
        Ok(Value::Bool(pattern(context, &args[1], "")?.is_match(text)))
    }),
    function("find", &[member(&[S, S], S)], |context, args| {
        let text = text(&args[0])?;
        let found = pattern(context, &args[1], "Illegal regex: ")?;
        Ok(Value::text(found.find(text).map_or("", |found| found.as_str())))
    }),
    function("findAll", &[member(&[S, S], TEXTS), member(&[S, S, Sig::Int], TEXTS)], |context, args| {
        let text = text(&args[0])?;
        let most = args.get(2).map_or(Ok(-1), number)?;
        let most = if most < 0 { usize::MAX } else { most as usize };
        let found = pattern(context, &args[1], "Illegal regex: ")?;
        Ok(Value::list(found.find_iter(text).take(most).map(|found| Value::text(found.as_str())).collect()))
    }),
];

fn pattern<'v>(context: &WorkLimits<'v>, pattern: &Value<'v>, prefix: &str) -> Result<Arc<Regex>, EvalError> {
    match context.pattern(text(pattern)?)? {
        Ok(regex) => Ok(regex),
        Err(why) => fail(format!("{prefix}{why}")),
    }
}
