//! Functions that match patterns, written in Go's syntax.

use super::{Function, Sig, function, global, member, number, text};
use crate::cel::limits::{ITEM_BYTES, WorkLimits};
use crate::cel::value::{EvalError, Evaluated, Value, fail};
use crate::go::regexp::CompiledPattern;
use std::sync::Arc;

const S: Sig = Sig::String;
const TEXTS: Sig = Sig::List(&Sig::String);

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("matches", &[global(&[S, S], Sig::Bool), member(&[S, S], Sig::Bool)], |context, args| {
        let text = text(&args[0])?;
        is_match(context, &*pattern(context, &args[1], "")?, text)
    }),
    function("find", &[member(&[S, S], S)], |context, args| {
        let text = text(&args[0])?;
        let regex = pattern(context, &args[1], "Illegal regex: ")?;
        find_first(context, &regex, text)
    }),
    function("findAll", &[member(&[S, S], TEXTS), member(&[S, S, Sig::Int], TEXTS)], |context, args| {
        let text = text(&args[0])?;
        let regex = pattern(context, &args[1], "Illegal regex: ")?;
        find_all(context, &regex, text, args.get(2))
    }),
];

/// Bytes of the remaining text that a search for a further match may read for one step.
const BYTES_PER_STEP: u64 = 64;
/// States of a pattern that a search may follow at each byte without counting a step for that byte.
const STATES_PER_STEP: u64 = 256;

/// Whether a text matches.
pub fn is_match<'v>(context: &WorkLimits<'v>, pattern: &CompiledPattern, text: &str) -> Evaluated<'v> {
    context.count_steps(pattern.steps(text))?;
    Ok(Value::Bool(pattern.regex.is_match(text)))
}

/// Returns the first match as a text; an empty one when nothing matches.
pub fn find_first<'v>(context: &WorkLimits<'v>, pattern: &CompiledPattern, text: &str) -> Evaluated<'v> {
    context.count_steps(pattern.steps(text))?;
    Ok(Value::text(pattern.regex.find(text).map_or("", |part| part.as_str())))
}

/// Returns the matches as a list, at most `most` if it is set.
///
/// The search for each match may read the text to its end.
pub fn find_all<'v>(
    context: &WorkLimits<'v>,
    pattern: &CompiledPattern,
    text: &str,
    most: Option<&Value>,
) -> Evaluated<'v> {
    let most = usize::try_from(most.map_or(Ok(-1), number)?).unwrap_or(usize::MAX);
    context.count_steps(pattern.steps(text))?;
    let steps_per_byte = pattern.states as u64 / STATES_PER_STEP;
    let mut parts = Vec::new();
    for part in pattern.regex.find_iter(text).take(most) {
        let rest = (text.len() - part.end()) as u64;
        context.count_steps(rest / BYTES_PER_STEP + rest.saturating_mul(steps_per_byte))?;
        context.reserve_bytes(ITEM_BYTES + part.len())?;
        parts.push(Value::text(part.as_str()));
    }
    Ok(Value::list(parts))
}

fn pattern<'v>(context: &WorkLimits<'v>, pattern: &Value<'v>, prefix: &str) -> Result<Arc<CompiledPattern>, EvalError> {
    match context.compile_pattern(text(pattern)?)? {
        Ok(regex) => Ok(regex),
        Err(why) => fail(format!("{prefix}{why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::go::regexp::compile;

    #[test]
    fn searches_of_many_states_in_a_long_text_are_too_costly() {
        let pattern = compile("[ab]*a[ab]{990}c").unwrap();
        assert!(matches!(is_match(&WorkLimits::default(), &pattern, &"ab".repeat(500_000)), Err(EvalError::Costly)));
        assert!(matches!(find_first(&WorkLimits::default(), &pattern, &"ab".repeat(500_000)), Err(EvalError::Costly)));
        let name = compile("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$").unwrap();
        let limits = WorkLimits::default();
        let check = |_: usize| {
            is_match(&limits, &name, "name-of-an-object").is_ok_and(|value| matches!(value, Value::Bool(true)))
        };
        assert!((0..1000).all(check), "names of a thousand objects");
    }

    #[test]
    fn matches_that_each_search_the_rest_of_a_text_are_too_costly_together() {
        let pattern = compile("[^b]*b|a").unwrap();
        let limits = WorkLimits::default();
        assert!(find_all(&limits, &pattern, &"a".repeat(200), None).is_ok());
        limits.count_steps(19_990_000).unwrap();
        assert!(matches!(find_all(&limits, &pattern, &"a".repeat(20_000), None), Err(EvalError::Costly)));
    }
}
