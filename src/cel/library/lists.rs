//! Functions of lists and sets (`cel-go/ext/lists.go`, `cel-go/ext/sets.go`, `k8s.io/apiserver/pkg/cel/library/lists.go`).
//!
//! Never: makes a list whose length is not counted as work or as bytes. Start reading at [`FUNCTIONS`].

use super::{Function, Overload, Sig, function, global, member, number, strings};
use crate::cel::equal::{compare, contains, equal};
use crate::cel::limits::WorkLimits;
use crate::cel::value::{EvalError, Evaluated, List, Value, fail};
use std::cmp::Ordering;

const LIST_A: Sig = Sig::List(&Sig::A);
const LIST_DYN: Sig = Sig::List(&Sig::Dyn);
/// Maximum number of items of a list that a function creates.
const MAX_ITEMS: i64 = 1_000_000;

const INTS: Sig = Sig::List(&Sig::Int);
const UINTS: Sig = Sig::List(&Sig::Uint);
const DOUBLES: Sig = Sig::List(&Sig::Double);
const BOOLS: Sig = Sig::List(&Sig::Bool);
const TEXTS: Sig = Sig::List(&Sig::String);
const BYTES: Sig = Sig::List(&Sig::Bytes);
const TIMES: Sig = Sig::List(&Sig::Timestamp);
const DURATIONS: Sig = Sig::List(&Sig::Duration);

/// The least or greatest item of lists with an order.
const ITEM: &[Overload] = &[
    member(&[INTS], Sig::Int),
    member(&[UINTS], Sig::Uint),
    member(&[DOUBLES], Sig::Double),
    member(&[BOOLS], Sig::Bool),
    member(&[TEXTS], Sig::String),
    member(&[BYTES], Sig::Bytes),
    member(&[TIMES], Sig::Timestamp),
    member(&[DURATIONS], Sig::Duration),
];

/// The position of an item in a list, or of a text in a text.
const INDEX: &[Overload] = &[
    member(&[Sig::String, Sig::String], Sig::Int),
    member(&[Sig::String, Sig::String, Sig::Int], Sig::Int),
    member(&[LIST_A, Sig::A], Sig::Int),
];

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function(
        "isSorted",
        &[
            member(&[INTS], Sig::Bool),
            member(&[UINTS], Sig::Bool),
            member(&[DOUBLES], Sig::Bool),
            member(&[BOOLS], Sig::Bool),
            member(&[TEXTS], Sig::Bool),
            member(&[BYTES], Sig::Bool),
            member(&[TIMES], Sig::Bool),
            member(&[DURATIONS], Sig::Bool),
        ],
        is_sorted,
    ),
    function(
        "sum",
        &[
            member(&[INTS], Sig::Int),
            member(&[UINTS], Sig::Uint),
            member(&[DOUBLES], Sig::Double),
            member(&[DURATIONS], Sig::Duration),
        ],
        sum,
    ),
    function("min", ITEM, |_, args| find_extreme(&args[0], "min", Ordering::Less)),
    function("max", ITEM, |_, args| find_extreme(&args[0], "max", Ordering::Greater)),
    function("indexOf", INDEX, |context, args| match &args[0] {
        Value::String(_) => strings::index_of(args),
        _ => index_of(context, args, false),
    }),
    function("lastIndexOf", INDEX, |context, args| match &args[0] {
        Value::String(_) => strings::last_index_of(args),
        _ => index_of(context, args, true),
    }),
    function("slice", &[member(&[LIST_A, Sig::Int, Sig::Int], LIST_A)], slice),
    function(
        "flatten",
        &[member(&[Sig::List(&LIST_A)], LIST_A), member(&[LIST_DYN, Sig::Int], LIST_DYN)],
        |context, args| {
            let depth = args.get(1).map_or(Ok(1), number)?;
            if depth < 0 {
                return fail("level must be non-negative");
            }
            let mut items = Vec::new();
            flatten(context, list(&args[0])?, depth, &mut items)?;
            Ok(Value::list(items))
        },
    ),
    function(
        "sort",
        &[
            member(&[INTS], INTS),
            member(&[UINTS], UINTS),
            member(&[DOUBLES], DOUBLES),
            member(&[BOOLS], BOOLS),
            member(&[DURATIONS], DURATIONS),
            member(&[TIMES], TIMES),
            member(&[TEXTS], TEXTS),
            member(&[BYTES], BYTES),
        ],
        |context, args| sort(context, &args[0], &args[0]),
    ),
    function(
        "@sortByAssociatedKeys",
        &[
            member(&[LIST_A, INTS], LIST_A),
            member(&[LIST_A, UINTS], LIST_A),
            member(&[LIST_A, DOUBLES], LIST_A),
            member(&[LIST_A, BOOLS], LIST_A),
            member(&[LIST_A, DURATIONS], LIST_A),
            member(&[LIST_A, TIMES], LIST_A),
            member(&[LIST_A, TEXTS], LIST_A),
            member(&[LIST_A, BYTES], LIST_A),
        ],
        |context, args| sort(context, &args[0], &args[1]),
    ),
    function("lists.range", &[global(&[Sig::Int], INTS)], |context, args| {
        let count = number(&args[0])?;
        if count > MAX_ITEMS {
            return Err(EvalError::Costly);
        }
        context.count_steps(count.max(0) as u64)?;
        Ok(Value::list((0..count).map(Value::Int).collect()))
    }),
    function("reverse", &[member(&[LIST_A], LIST_A)], |context, args| {
        let mut items = collect_items(context, &args[0])?;
        items.reverse();
        Ok(Value::list(items))
    }),
    function("distinct", &[member(&[LIST_A], LIST_A)], |context, args| {
        let mut items: Vec<Value> = Vec::new();
        for item in list(&args[0])?.iter() {
            let item = item?;
            let mut is_repeated = false;
            for earlier in &items {
                is_repeated = is_repeated || equal(context, earlier, &item)?;
            }
            if !is_repeated {
                items.push(item);
            }
        }
        Ok(Value::list(items))
    }),
    function("sets.contains", &[global(&[LIST_A, LIST_A], Sig::Bool)], |context, args| {
        Ok(Value::Bool(contains_all(context, list(&args[0])?, list(&args[1])?)?))
    }),
    function("sets.equivalent", &[global(&[LIST_A, LIST_A], Sig::Bool)], |context, args| {
        let (one, other) = (list(&args[0])?, list(&args[1])?);
        Ok(Value::Bool(contains_all(context, one, other)? && contains_all(context, other, one)?))
    }),
    function("sets.intersects", &[global(&[LIST_A, LIST_A], Sig::Bool)], |context, args| {
        for item in list(&args[0])?.iter() {
            if contains(context, list(&args[1])?, &item?)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }),
];

fn list<'a, 'v>(value: &'a Value<'v>) -> Result<&'a List<'v>, EvalError> {
    if let Value::List(list) = value { Ok(list) } else { Err(EvalError::no_overload()) }
}

/// Collects all items, whose number is counted as work.
fn collect_items<'v>(context: &WorkLimits<'v>, value: &Value<'v>) -> Result<Vec<Value<'v>>, EvalError> {
    let list = list(value)?;
    context.count_steps(list.count() as u64)?;
    list.iter().collect()
}

fn contains_all<'v>(context: &WorkLimits<'v>, list: &List<'v>, wanted: &List<'v>) -> Result<bool, EvalError> {
    for item in wanted.iter() {
        if !contains(context, list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_sorted<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let items = collect_items(context, &args[0])?;
    for pair in items.windows(2) {
        if compare(&pair[0], &pair[1])? == Some(Ordering::Greater) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

/// Adds up a list. The second argument, which the planner appends, is the sum of an empty one.
fn sum<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let mut total = None;
    for item in collect_items(context, &args[0])? {
        total = Some(match (total, item) {
            (None, item @ (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_))) => item,
            (Some(Value::Int(a)), Value::Int(b)) => match a.checked_add(b) {
                Some(total) => Value::Int(total),
                None => return fail("integer overflow"),
            },
            (Some(Value::Uint(a)), Value::Uint(b)) => match a.checked_add(b) {
                Some(total) => Value::Uint(total),
                None => return fail("unsigned integer overflow"),
            },
            (Some(Value::Double(a)), Value::Double(b)) => Value::Double(a + b),
            (Some(Value::Duration(a)), Value::Duration(b)) => match a.checked_add(b) {
                Some(total) => Value::Duration(total),
                None => return fail("duration overflow"),
            },
            _ => return Err(EvalError::no_overload()),
        });
    }
    Ok(total.or_else(|| args.get(1).cloned()).unwrap_or(Value::Int(0)))
}

fn find_extreme<'v>(value: &Value<'v>, function: &str, wanted: Ordering) -> Evaluated<'v> {
    let mut best: Option<Value> = None;
    for item in list(value)?.iter() {
        let item = item?;
        best = Some(match best {
            Some(best) if compare(&item, &best)? != Some(wanted) => best,
            _ => item,
        });
    }
    best.map_or_else(|| fail(format!("{function} called on empty list")), Ok)
}

/// The first or last position of an item.
fn index_of<'v>(context: &WorkLimits<'v>, args: &[Value<'v>], last: bool) -> Evaluated<'v> {
    let mut position = -1;
    for (index, item) in list(&args[0])?.iter().enumerate() {
        if equal(context, &item?, &args[1])? {
            position = index as i64;
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(position))
}

fn slice<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let list = list(&args[0])?;
    let (start, end) = (number(&args[1])?, number(&args[2])?);
    let wrong = |why: String| fail(format!("cannot slice({start}, {end}), {why}"));
    if start < 0 || end < 0 {
        return wrong("negative indexes not supported".into());
    }
    if start > end {
        return wrong("start index must be less than or equal to end index".into());
    }
    if list.count() < end as usize {
        return wrong(format!("list is length {}", list.count()));
    }
    context.count_steps((end - start) as u64)?;
    let items: Result<Vec<Value>, EvalError> = (start as usize..end as usize).map(|index| list.get(index)).collect();
    Ok(Value::list(items?))
}

fn flatten<'v>(
    context: &WorkLimits<'v>,
    list: &List<'v>,
    depth: i64,
    items: &mut Vec<Value<'v>>,
) -> Result<(), EvalError> {
    context.count_steps(list.count() as u64)?;
    for item in list.iter() {
        match item? {
            Value::List(inner) if depth > 0 => flatten(context, &inner, depth - 1, items)?,
            other => items.push(other),
        }
    }
    Ok(())
}

fn sort<'v>(context: &WorkLimits<'v>, value: &Value<'v>, keys: &Value<'v>) -> Evaluated<'v> {
    let (items, keys) = (collect_items(context, value)?, collect_items(context, keys)?);
    if items.len() != keys.len() {
        return fail(format!(
            "sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            items.len(),
            keys.len()
        ));
    }
    let first = keys.first().map(Value::type_name);
    if keys.iter().any(|key| Some(key.type_name()) != first) {
        return fail("list elements must have the same type");
    }
    if let [one, ..] = keys.as_slice() {
        compare(one, one).map_err(|_| EvalError::Failed("list elements must be comparable".into()))?;
    }
    let count = items.len() as u64;
    let rounds = 64 - u64::from(count.leading_zeros());
    context.count_steps(count * rounds)?;
    for key in &keys {
        if let Value::String(text) = key {
            (0..rounds).try_for_each(|_| context.count_text(text))?;
        }
    }
    let mut pairs: Vec<(Value, Value)> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|one, other| order_keys(&one.0, &other.0));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

/// Orders keys of one type. NaN is last: a sort needs a total order.
fn order_keys(one: &Value, other: &Value) -> Ordering {
    let is_nan = |value: &Value| matches!(value, Value::Double(number) if number.is_nan());
    compare(one, other).ok().flatten().unwrap_or_else(|| is_nan(one).cmp(&is_nan(other)))
}
