//! Operators: arithmetic, comparisons, `in`, indexes, and `size`.

use super::{Function, Overload, Sig, function, global, member};
use crate::cel::ast::operator;
use crate::cel::decl::ListKind;
use crate::cel::equal::{compare, contains, equal};
use crate::cel::limits::WorkLimits;
use crate::cel::value::{EvalError, Evaluated, List, Map, MapKey, Value, fail};
use jiff::{SignedDuration, Timestamp};
use std::cmp::Ordering;
use std::sync::Arc;

const LIST_A: Sig = Sig::List(&Sig::A);
const MAP_AB: Sig = Sig::Map(&Sig::A, &Sig::B);
const OPTIONAL_LIST: Sig = Sig::Optional(&LIST_A);
const OPTIONAL_MAP: Sig = Sig::Optional(&MAP_AB);

/// The signatures of a comparison.
const ORDERED: &[Overload] = &[
    global(&[Sig::Bool, Sig::Bool], Sig::Bool),
    global(&[Sig::Int, Sig::Int], Sig::Bool),
    global(&[Sig::Int, Sig::Double], Sig::Bool),
    global(&[Sig::Int, Sig::Uint], Sig::Bool),
    global(&[Sig::Uint, Sig::Uint], Sig::Bool),
    global(&[Sig::Uint, Sig::Double], Sig::Bool),
    global(&[Sig::Uint, Sig::Int], Sig::Bool),
    global(&[Sig::Double, Sig::Double], Sig::Bool),
    global(&[Sig::Double, Sig::Int], Sig::Bool),
    global(&[Sig::Double, Sig::Uint], Sig::Bool),
    global(&[Sig::String, Sig::String], Sig::Bool),
    global(&[Sig::Bytes, Sig::Bytes], Sig::Bool),
    global(&[Sig::Timestamp, Sig::Timestamp], Sig::Bool),
    global(&[Sig::Duration, Sig::Duration], Sig::Bool),
];

/// The signatures of arithmetic on two numbers of one type.
const ARITHMETIC: &[Overload] = &[
    global(&[Sig::Double, Sig::Double], Sig::Double),
    global(&[Sig::Int, Sig::Int], Sig::Int),
    global(&[Sig::Uint, Sig::Uint], Sig::Uint),
];

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function(operator::CONDITIONAL, &[global(&[Sig::Bool, Sig::A, Sig::A], Sig::A)], refuse_call),
    function(operator::AND, &[global(&[Sig::Bool, Sig::Bool], Sig::Bool)], refuse_call),
    function(operator::OR, &[global(&[Sig::Bool, Sig::Bool], Sig::Bool)], refuse_call),
    function(operator::NOT_STRICTLY_FALSE, &[global(&[Sig::Bool], Sig::Bool)], refuse_call),
    function(operator::NOT, &[global(&[Sig::Bool], Sig::Bool)], not),
    function(operator::EQUALS, &[global(&[Sig::A, Sig::A], Sig::Bool)], |context, args| {
        Ok(Value::Bool(equal(context, &args[0], &args[1])?))
    }),
    function("_!=_", &[global(&[Sig::A, Sig::A], Sig::Bool)], |context, args| {
        Ok(Value::Bool(!equal(context, &args[0], &args[1])?))
    }),
    function(
        operator::ADD,
        &[
            global(&[Sig::Bytes, Sig::Bytes], Sig::Bytes),
            global(&[Sig::Double, Sig::Double], Sig::Double),
            global(&[Sig::Duration, Sig::Duration], Sig::Duration),
            global(&[Sig::Duration, Sig::Timestamp], Sig::Timestamp),
            global(&[Sig::Timestamp, Sig::Duration], Sig::Timestamp),
            global(&[Sig::Int, Sig::Int], Sig::Int),
            global(&[LIST_A, LIST_A], LIST_A),
            global(&[Sig::String, Sig::String], Sig::String),
            global(&[Sig::Uint, Sig::Uint], Sig::Uint),
        ],
        add,
    ),
    function(
        "_-_",
        &[
            global(&[Sig::Double, Sig::Double], Sig::Double),
            global(&[Sig::Duration, Sig::Duration], Sig::Duration),
            global(&[Sig::Int, Sig::Int], Sig::Int),
            global(&[Sig::Timestamp, Sig::Duration], Sig::Timestamp),
            global(&[Sig::Timestamp, Sig::Timestamp], Sig::Duration),
            global(&[Sig::Uint, Sig::Uint], Sig::Uint),
        ],
        subtract,
    ),
    function("_*_", ARITHMETIC, |_, args| match (&args[0], &args[1]) {
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (Value::Int(a), Value::Int(b)) => int_result(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint_result(a.checked_mul(*b)),
        _ => Err(EvalError::no_overload()),
    }),
    function("_/_", ARITHMETIC, |_, args| match (&args[0], &args[1]) {
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => fail("division by zero"),
        (Value::Int(a), Value::Int(b)) => int_result(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint_result(a.checked_div(*b)),
        _ => Err(EvalError::no_overload()),
    }),
    function(
        "_%_",
        &[global(&[Sig::Int, Sig::Int], Sig::Int), global(&[Sig::Uint, Sig::Uint], Sig::Uint)],
        |_, args| match (&args[0], &args[1]) {
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => fail("modulus by zero"),
            (Value::Int(a), Value::Int(b)) => int_result(a.checked_rem(*b)),
            (Value::Uint(a), Value::Uint(b)) => uint_result(a.checked_rem(*b)),
            _ => Err(EvalError::no_overload()),
        },
    ),
    function(operator::NEGATE, &[global(&[Sig::Double], Sig::Double), global(&[Sig::Int], Sig::Int)], |_, args| {
        match &args[0] {
            Value::Double(value) => Ok(Value::Double(-value)),
            Value::Int(value) => int_result(value.checked_neg()),
            _ => Err(EvalError::no_overload()),
        }
    }),
    function("_<_", ORDERED, |_, args| compare_arguments(args, |order| order == Ordering::Less)),
    function("_<=_", ORDERED, |_, args| compare_arguments(args, |order| order != Ordering::Greater)),
    function("_>_", ORDERED, |_, args| compare_arguments(args, |order| order == Ordering::Greater)),
    function("_>=_", ORDERED, |_, args| compare_arguments(args, |order| order != Ordering::Less)),
    function(
        operator::INDEX,
        &[
            global(&[LIST_A, Sig::Int], Sig::A),
            global(&[MAP_AB, Sig::A], Sig::B),
            global(&[OPTIONAL_LIST, Sig::Int], Sig::Optional(&Sig::A)),
            global(&[OPTIONAL_MAP, Sig::A], Sig::Optional(&Sig::B)),
        ],
        |_, args| index(&args[0], &args[1]),
    ),
    function(
        operator::OPTIONAL_INDEX,
        &[
            global(&[LIST_A, Sig::Int], Sig::Optional(&Sig::A)),
            global(&[OPTIONAL_LIST, Sig::Int], Sig::Optional(&Sig::A)),
            global(&[MAP_AB, Sig::A], Sig::Optional(&Sig::B)),
            global(&[OPTIONAL_MAP, Sig::A], Sig::Optional(&Sig::B)),
        ],
        |_, args| optional_index(&args[0], &args[1]),
    ),
    function("@in", &[global(&[Sig::A, LIST_A], Sig::Bool), global(&[Sig::A, MAP_AB], Sig::Bool)], |context, args| {
        match &args[1] {
            Value::List(list) => Ok(Value::Bool(contains(context, list, &args[0])?)),
            Value::Map(map) => Ok(Value::Bool(map.get(&args[0])?.is_some())),
            _ => Err(EvalError::no_overload()),
        }
    }),
    function(
        "size",
        &[
            global(&[Sig::Bytes], Sig::Int),
            member(&[Sig::Bytes], Sig::Int),
            global(&[LIST_A], Sig::Int),
            member(&[LIST_A], Sig::Int),
            global(&[MAP_AB], Sig::Int),
            member(&[MAP_AB], Sig::Int),
            global(&[Sig::String], Sig::Int),
            member(&[Sig::String], Sig::Int),
        ],
        |context, args| {
            if let Value::String(text) = &args[0] {
                context.count_text(text)?;
            }
            match &args[0] {
                Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::String(_) => {
                    Ok(Value::Int(args[0].size() as i64))
                }
                _ => Err(EvalError::no_overload()),
            }
        },
    ),
    function(
        "cel.@mapInsert",
        &[global(&[MAP_AB, Sig::A, Sig::B], MAP_AB), global(&[MAP_AB, MAP_AB], MAP_AB)],
        |_, args| {
            let mut entries = copy_entries(&args[0])?;
            insert(&mut entries, &args[1..])?;
            Ok(Value::Map(Map::Owned(Arc::new(entries))))
        },
    ),
];

/// Refuses a call that never happens: the evaluator computes these operators itself, because not all of their arguments are
/// evaluated.
fn refuse_call<'v>(_: &WorkLimits<'v>, _: &[Value<'v>]) -> Evaluated<'v> {
    Err(EvalError::no_overload())
}

fn not<'v>(_: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    args[0].as_bool().map(|value| Value::Bool(!value)).ok_or_else(EvalError::no_overload)
}

fn int_result<'v>(result: Option<i64>) -> Evaluated<'v> {
    result.map_or_else(|| fail("integer overflow"), |value| Ok(Value::Int(value)))
}

fn uint_result<'v>(result: Option<u64>) -> Evaluated<'v> {
    result.map_or_else(|| fail("unsigned integer overflow"), |value| Ok(Value::Uint(value)))
}

fn compare_arguments<'v>(args: &[Value<'v>], test: fn(Ordering) -> bool) -> Evaluated<'v> {
    Ok(Value::Bool(compare(&args[0], &args[1])?.is_some_and(test)))
}

fn shift_time<'v>(time: Timestamp, nanos: i64, back: bool) -> Evaluated<'v> {
    let by = SignedDuration::from_nanos(nanos);
    let moved = if back { time.checked_sub(by) } else { time.checked_add(by) };
    moved.map_or_else(|_| fail("timestamp overflow"), |time| Ok(Value::Timestamp(time)))
}

fn duration_result<'v>(nanos: Option<i64>) -> Evaluated<'v> {
    nanos.map_or_else(|| fail("duration overflow"), |nanos| Ok(Value::Duration(nanos)))
}

fn add<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => int_result(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint_result(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            context.reserve_bytes(a.len() + b.len())?;
            Ok(Value::text([&**a, &**b].concat()))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            context.reserve_bytes(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) => concat(context, a, b),
        (Value::Duration(a), Value::Duration(b)) => duration_result(a.checked_add(*b)),
        (Value::Timestamp(time), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(time)) => {
            shift_time(*time, *by, false)
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn subtract<'v>(_: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => int_result(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint_result(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration_result(a.checked_sub(*b)),
        (Value::Timestamp(time), Value::Duration(by)) => shift_time(*time, *by, true),
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            duration_result(i64::try_from(a.duration_since(*b).as_nanos()).ok())
        }
        _ => Err(EvalError::no_overload()),
    }
}

/// Joins two lists: sets without repeats, lists of type map by their keys, others one after the other.
fn concat<'v>(context: &WorkLimits<'v>, one: &List<'v>, other: &List<'v>) -> Evaluated<'v> {
    match one.kind() {
        ListKind::Atomic => {
            let length = one.count() + other.count();
            Ok(Value::List(List::Concat(Arc::new((one.clone(), other.clone())), length)))
        }
        ListKind::Set => {
            let mut items = one.iter().collect::<Result<Vec<_>, _>>()?;
            for item in other.iter() {
                let item = item?;
                if !contains(context, one, &item)? {
                    items.push(item);
                }
            }
            Ok(Value::list(items))
        }
        ListKind::Map(names) => merge_by_keys(context, one, other, names),
    }
}

/// Joins two lists whose items have keys: an item of the second list replaces one of the first with the same keys.
fn merge_by_keys<'v>(context: &WorkLimits<'v>, one: &List<'v>, other: &List<'v>, names: &[String]) -> Evaluated<'v> {
    let read_keys = |item: &Value<'v>| -> Result<Vec<Option<Value<'v>>>, EvalError> {
        let Value::Map(map) = item else { return Err(EvalError::no_overload()) };
        names.iter().map(|name| map.field(&crate::cel::names::escape(name).unwrap_or_default())).collect()
    };
    let mut items = one.iter().collect::<Result<Vec<_>, _>>()?;
    for item in other.iter() {
        let item = item?;
        let keys = read_keys(&item)?;
        let mut place = None;
        for (index, earlier) in items.iter().enumerate() {
            if equal_keys(context, &read_keys(earlier)?, &keys)? {
                place = Some(index);
                break;
            }
        }
        match place {
            Some(index) => items[index] = item,
            None => items.push(item),
        }
    }
    Ok(Value::list(items))
}

fn equal_keys<'v>(
    context: &WorkLimits<'v>,
    one: &[Option<Value<'v>>],
    other: &[Option<Value<'v>>],
) -> Result<bool, EvalError> {
    for pair in one.iter().zip(other) {
        let is_same = match pair {
            (Some(a), Some(b)) => equal(context, a, b)?,
            (a, b) => a.is_none() && b.is_none(),
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The item of a list or the value of a key.
pub fn index<'v>(container: &Value<'v>, at: &Value<'v>) -> Evaluated<'v> {
    match container {
        Value::Optional(_) => optional_index(container, at),
        Value::List(list) => match position(at) {
            Some(index) if (0..list.count() as i128).contains(&index) => list.get(index as usize),
            Some(index) => fail(format!("index out of bounds: {index}")),
            None => fail(format!("unsupported index type '{}' in list", at.type_name())),
        },
        Value::Map(map) => match map.get(at)? {
            Some(value) => Ok(value),
            None => fail(format!("no such key: {}", crate::cel::show::format_value(at))),
        },
        _ => Err(EvalError::no_overload()),
    }
}

fn position(at: &Value) -> Option<i128> {
    match MapKey::from_value(at) {
        Some(MapKey::Int(index)) => Some(index),
        _ => None,
    }
}

fn optional_index<'v>(container: &Value<'v>, at: &Value<'v>) -> Evaluated<'v> {
    let inner = match container {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => inner,
        other => other,
    };
    Ok(match inner {
        Value::List(list) => match position(at) {
            Some(index) if (0..list.count() as i128).contains(&index) => Value::present(list.get(index as usize)?),
            _ => Value::Optional(None),
        },
        Value::Map(map) => map.get(at)?.map_or(Value::Optional(None), Value::present),
        _ => return Err(EvalError::no_overload()),
    })
}

/// Copies the entries of a map, which can be changed.
pub fn copy_entries<'v>(value: &Value<'v>) -> Result<std::collections::BTreeMap<MapKey, Value<'v>>, EvalError> {
    let Value::Map(map) = value else { return Err(EvalError::no_overload()) };
    if let Map::Owned(entries) = map {
        return Ok((**entries).clone());
    }
    let mut entries = std::collections::BTreeMap::new();
    for key in map.keys() {
        if let (Some(map_key), Some(value)) = (MapKey::from_value(&key), map.get(&key)?) {
            entries.insert(map_key, value);
        }
    }
    Ok(entries)
}

/// Inserts a key and a value, or the entries of a map. A key that exists is an error.
pub fn insert<'v>(
    into: &mut std::collections::BTreeMap<MapKey, Value<'v>>,
    args: &[Value<'v>],
) -> Result<(), EvalError> {
    let added = match args {
        [key, value] => match MapKey::from_value(key) {
            Some(key) => vec![(key, value.clone())],
            None => return fail(format!("unsupported key type: {}", key.type_name())),
        },
        [map] => copy_entries(map)?.into_iter().collect(),
        _ => return Err(EvalError::no_overload()),
    };
    for (key, value) in added {
        if into.contains_key(&key) {
            return fail(format!("insert failed: key {} already exists", crate::cel::show::format_value(&key.value())));
        }
        into.insert(key, value);
    }
    Ok(())
}
