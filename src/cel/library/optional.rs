//! Values that may be absent (`cel-go/cel/library.go`).

use super::{Function, Sig, function, global, member};
use crate::cel::ast::operator;
use crate::cel::value::{EvalError, Evaluated, List, Value, fail};

const OPTIONAL: Sig = Sig::Optional(&Sig::A);
const LIST_A: Sig = Sig::List(&Sig::A);
const LIST_OPTIONAL: Sig = Sig::List(&OPTIONAL);

/// The functions. The evaluator computes `or` and `orValue`, whose arguments are not always evaluated.
pub const FUNCTIONS: &[Function] = &[
    function("optional.of", &[global(&[Sig::A], OPTIONAL)], |_, args| Ok(Value::present(args[0].clone()))),
    function("optional.ofNonZeroValue", &[global(&[Sig::A], OPTIONAL)], |_, args| {
        Ok(if args[0].is_zero() { Value::Optional(None) } else { Value::present(args[0].clone()) })
    }),
    function("optional.none", &[global(&[], OPTIONAL)], |_, _| Ok(Value::Optional(None))),
    function("value", &[member(&[OPTIONAL], Sig::A)], |_, args| match &args[0] {
        Value::Optional(Some(inner)) => Ok(Value::clone(inner)),
        Value::Optional(None) => fail("optional.none() dereference"),
        _ => Err(EvalError::no_overload()),
    }),
    function("hasValue", &[member(&[OPTIONAL], Sig::Bool)], |_, args| match &args[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(EvalError::no_overload()),
    }),
    function("or", &[member(&[OPTIONAL, OPTIONAL], OPTIONAL)], |_, _| Err(EvalError::no_overload())),
    function("orValue", &[member(&[OPTIONAL, Sig::A], Sig::A)], |_, _| Err(EvalError::no_overload())),
    function(operator::OPTIONAL_SELECT, &[global(&[Sig::Dyn, Sig::String], OPTIONAL)], |_, _| {
        Err(EvalError::no_overload())
    }),
    function("first", &[member(&[LIST_A], OPTIONAL)], |_, args| end_item(&args[0], |_| 0)),
    function("last", &[member(&[LIST_A], OPTIONAL)], |_, args| {
        end_item(&args[0], |list| list.count().saturating_sub(1))
    }),
    function("optional.unwrap", &[global(&[LIST_OPTIONAL], LIST_A)], |_, args| unwrap_items(&args[0])),
    function("unwrapOpt", &[member(&[LIST_OPTIONAL], LIST_A)], |_, args| unwrap_items(&args[0])),
];

fn end_item<'v>(value: &Value<'v>, index: fn(&List<'v>) -> usize) -> Evaluated<'v> {
    match value {
        Value::List(list) if list.count() == 0 => Ok(Value::Optional(None)),
        Value::List(list) => Ok(Value::present(list.get(index(list))?)),
        _ => Err(EvalError::no_overload()),
    }
}

fn unwrap_items<'v>(value: &Value<'v>) -> Evaluated<'v> {
    let Value::List(list) = value else { return Err(EvalError::no_overload()) };
    let mut items = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(inner)) => items.push(Value::clone(&inner)),
            Value::Optional(None) => {}
            other => return fail(format!("value {} is not optional", crate::cel::show::format_value(&other))),
        }
    }
    Ok(Value::list(items))
}
