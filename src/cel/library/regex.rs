//! Functions that match patterns, written in Go's syntax.

use super::{Function, Sig, function, global, member, number, text};
use crate::cel::limits::{ITEM_BYTES, WorkLimits};
use crate::cel::value::{EvalError, Evaluated, Value, fail};
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
        let regex = pattern(context, &args[1], "Illegal regex: ")?;
        Ok(find_first(&regex, text))
    }),
    function("findAll", &[member(&[S, S], TEXTS), member(&[S, S, Sig::Int], TEXTS)], |context, args| {
        let text = text(&args[0])?;
        let regex = pattern(context, &args[1], "Illegal regex: ")?;
        find_all(context, &regex, text, args.get(2))
    }),
];

/// Returns the first match as a text; an empty one when nothing matches.
pub fn find_first<'v>(regex: &Regex, text: &str) -> Value<'v> {
    Value::text(regex.find(text).map_or("", |part| part.as_str()))
}

/// Returns the matches as a list, at most `most` if it is set.
pub fn find_all<'v>(context: &WorkLimits<'v>, regex: &Regex, text: &str, most: Option<&Value>) -> Evaluated<'v> {
    let most = usize::try_from(most.map_or(Ok(-1), number)?).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    for part in regex.find_iter(text).take(most) {
        context.reserve_bytes(ITEM_BYTES + part.len())?;
        parts.push(Value::text(part.as_str()));
    }
    Ok(Value::list(parts))
}

fn pattern<'v>(context: &WorkLimits<'v>, pattern: &Value<'v>, prefix: &str) -> Result<Arc<Regex>, EvalError> {
    match context.compile_pattern(text(pattern)?)? {
        Ok(regex) => Ok(regex),
        Err(why) => fail(format!("{prefix}{why}")),
    }
}
