//! Equality and order of values.
//!
//! Knows: which values of different types are equal, and lists whose order does not count. Never: charges a cost; it counts work.
//! Start reading at [`equal`] and [`compare`].

use super::decl::ListKind;
use super::foreign::semver::compare as compare_versions;
use super::limits::WorkLimits;
use super::value::{EvalError, List, Map, Value};
use std::cmp::Ordering;

/// Whether two values are equal. Numbers of different types can be equal, other types cannot.
pub fn equal(work: &WorkLimits, one: &Value, other: &Value) -> Result<bool, EvalError> {
    work.count_steps(1)?;
    Ok(match (one, other) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => {
            work.count_text(if a.len() < b.len() { a } else { b })?;
            **a == **b
        }
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::List(a), Value::List(b)) => equal_lists(work, a, b)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(work, a, b)?,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(work, a, b)?,
        (Value::Quantity(a), Value::Quantity(b)) => a == b,
        (Value::Url(a), Value::Url(b)) => a.text == b.text,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a, n), Value::Cidr(b, m)) => a == b && n == m,
        (Value::Format(a), Value::Format(b)) => a.name == b.name,
        (Value::Semver(a), Value::Semver(b)) => compare_versions(a, b) == Ordering::Equal,
        (Value::Authorizer(a), Value::Authorizer(b)) => a == b,
        _ => compare_numbers(one, other) == Some(Ordering::Equal),
    })
}

/// The order of two numbers of any types; `None` for other values and for NaN.
pub fn compare_numbers(one: &Value, other: &Value) -> Option<Ordering> {
    let whole = |value: &Value| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    match (one, other) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), _) => compare_float(*a, whole(other)?),
        (_, Value::Double(b)) => compare_float(*b, whole(one)?).map(Ordering::reverse),
        _ => Some(whole(one)?.cmp(&whole(other)?)),
    }
}

fn compare_float(float: f64, whole: i128) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.abs() >= 1e30 {
        return Some(if float > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let floor = float.floor();
    Some((floor as i128).cmp(&whole).then(if float > floor { Ordering::Greater } else { Ordering::Equal }))
}

/// The order of two values of one ordered type; `None` when there is no order between them.
pub fn compare(one: &Value, other: &Value) -> Result<Option<Ordering>, EvalError> {
    Ok(match (one, other) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some((**a).cmp(&**b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare_numbers(one, other)
        }
        _ => return Err(EvalError::no_overload()),
    })
}

fn equal_lists(work: &WorkLimits, one: &List, other: &List) -> Result<bool, EvalError> {
    if one.count() != other.count() {
        return Ok(false);
    }
    let kind = if *one.kind() == ListKind::Atomic { other.kind() } else { one.kind() };
    if *kind == ListKind::Atomic {
        for (a, b) in one.iter().zip(other.iter()) {
            if !equal(work, &a?, &b?)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    for a in one.iter() {
        let a = a?;
        let mut is_in_other = false;
        for b in other.iter() {
            is_in_other = is_in_other || equal(work, &a, &b?)?;
        }
        if !is_in_other {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(work: &WorkLimits, one: &Map, other: &Map) -> Result<bool, EvalError> {
    if let (Map::Message(a, _), Map::Message(b, _)) = (one, other)
        && a != b
    {
        return Ok(false);
    }
    let keys = one.keys();
    if keys.len() != other.count() {
        return Ok(false);
    }
    for key in keys {
        let (Some(a), Some(b)) = (one.get(&key)?, other.get(&key)?) else { return Ok(false) };
        if !equal(work, &a, &b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a list contains a value.
pub fn contains(work: &WorkLimits, list: &List, wanted: &Value) -> Result<bool, EvalError> {
    for item in list.iter() {
        if equal(work, &item?, wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}
