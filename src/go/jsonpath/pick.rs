//! Selects values of a body by nodes.

use super::{FoundValue, JsonPathNode, JsonPathSlice, JsonPathStep, MissingKeys};
use crate::go::fmt;
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

type PickedValues<'a> = Result<Vec<FoundValue<'a>>, String>;

/// Runs nodes over one value and collects the results of each.
pub fn walk<'a>(
    nodes: &[JsonPathNode],
    value: &FoundValue<'a>,
    missing: MissingKeys,
    results: &mut Vec<Vec<FoundValue<'a>>>,
) -> Result<(), String> {
    for node in nodes {
        match node {
            JsonPathNode::Text(text) => results.push(vec![Cow::Owned(Value::String(text.clone()))]),
            JsonPathNode::Path(steps) => results.push(expression(steps, vec![value.clone()], missing)?),
            JsonPathNode::Range(steps, body) => {
                for item in expression(steps, vec![value.clone()], missing)? {
                    walk(body, &item, missing, results)?;
                }
            }
        }
    }
    Ok(())
}

fn expression<'a>(steps: &[JsonPathStep], values: Vec<FoundValue<'a>>, missing: MissingKeys) -> PickedValues<'a> {
    steps.iter().try_fold(values, |values, step| pick_step(step, values, missing))
}

fn pick_step<'a>(step: &JsonPathStep, values: Vec<FoundValue<'a>>, missing: MissingKeys) -> PickedValues<'a> {
    match step {
        JsonPathStep::Field(name) => field(name, values, missing),
        JsonPathStep::Keyword(word) if word == "end" => Err("not in range, nothing to end".into()),
        JsonPathStep::Keyword(word) => Err(format!("unrecognized identifier {word}")),
        JsonPathStep::Literal(Value::String(text)) => Ok(vec![Cow::Owned(Value::String(text.clone()))]),
        JsonPathStep::Literal(literal) => Ok(values.iter().map(|_| Cow::Owned(literal.clone())).collect()),
        JsonPathStep::Slice(slice) => pick_each(values, |value| slice_of(slice, value)),
        JsonPathStep::Each => pick_each(values, |value| Ok(children(&value))),
        JsonPathStep::Descend => pick_each(values, |value| {
            let mut found = Vec::new();
            descend(value, &mut found);
            Ok(found)
        }),
        JsonPathStep::Union(parts) => {
            let picked: Result<Vec<_>, String> =
                parts.iter().map(|steps| expression(steps, values.clone(), missing)).collect();
            Ok(picked?.into_iter().flatten().collect())
        }
        JsonPathStep::Filter { left, test } => pick_each(values, |value| filter(left, test.as_ref(), &value, missing)),
    }
}

/// Applies a function to each value except null.
fn pick_each<'a>(
    values: Vec<FoundValue<'a>>,
    mut pick: impl FnMut(FoundValue<'a>) -> PickedValues<'a>,
) -> PickedValues<'a> {
    let mut found = Vec::new();
    for value in values.into_iter().filter(|value| !value.is_null()) {
        found.extend(pick(value)?);
    }
    Ok(found)
}

fn field<'a>(name: &str, values: Vec<FoundValue<'a>>, missing: MissingKeys) -> PickedValues<'a> {
    if values.is_empty() {
        return Ok(values);
    }
    let found: Vec<FoundValue<'a>> = values
        .iter()
        .filter_map(|value| match value {
            Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
            Cow::Owned(value) => value.get(name).cloned().map(Cow::Owned),
        })
        .collect();
    if found.is_empty() && missing == MissingKeys::Refuse {
        return Err(format!("{name} is not found"));
    }
    Ok(found)
}

fn children<'a>(value: &FoundValue<'a>) -> Vec<FoundValue<'a>> {
    match value {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        _ => Vec::new(),
    }
}

/// Collects the value and all values inside, parents first, without empty ones and scalars other than text, as in
/// client-go.
fn descend<'a>(value: FoundValue<'a>, found: &mut Vec<FoundValue<'a>>) {
    let inner = children(&value);
    if inner.is_empty() && value.as_str().is_none_or(str::is_empty) {
        return;
    }
    found.push(value);
    for child in inner {
        descend(child, found);
    }
}

fn slice_of<'a>(slice: &JsonPathSlice, value: FoundValue<'a>) -> PickedValues<'a> {
    let Cow::Borrowed(Value::Array(items)) = value else {
        return Err(format!("{} is not array or slice", if value.is_null() { "nil" } else { fmt::type_name(&value) }));
    };
    let length = items.len() as i64;
    let from = slice.from.unwrap_or(0);
    let from = if from < 0 { from + length } else { from };
    let to = match slice.to {
        _ if slice.index => from.saturating_add(1),
        Some(to) if to < 0 => to + length,
        Some(to) => to,
        None => length,
    };
    if slice.index || to != from {
        if from >= length || from < 0 {
            return Err(format!("array index out of bounds: index {from}, length {length}"));
        }
        if to > length {
            return Err(format!("array index out of bounds: index {}, length {length}", to - 1));
        }
        if from > to {
            return Err("starting index is greater than ending index".into());
        }
    }
    let step = slice.step.unwrap_or(1);
    if step <= 0 {
        return Err("step must be > 0".into());
    }
    let taken = items.iter().take(to.max(0) as usize).skip(from.max(0) as usize).step_by(step as usize);
    Ok(taken.map(Cow::Borrowed).collect())
}

fn filter<'a>(
    left: &[JsonPathStep],
    test: Option<&(String, Vec<JsonPathStep>)>,
    value: &FoundValue<'a>,
    missing: MissingKeys,
) -> PickedValues<'a> {
    if !value.is_array() {
        return Err(format!("{value} is not array or slice and cannot be filtered"));
    }
    let mut kept = Vec::new();
    for item in children(value) {
        let lefts = expression(left, vec![item.clone()], missing);
        let keep = match test {
            None => lefts.is_ok_and(|lefts| !lefts.is_empty()),
            Some((operator, right)) => {
                let lefts = lefts?;
                let rights = expression(right, vec![item.clone()], missing)?;
                match (lefts.as_slice(), rights.as_slice()) {
                    ([], _) => false,
                    ([left], [right]) => compare(left, operator, right)?,
                    _ => return Err("can only compare one element at a time".into()),
                }
            }
        };
        if keep {
            kept.push(item);
        }
    }
    Ok(kept)
}

/// Compares as Go's templates do: only values of one type.
fn compare(left: &Value, operator: &str, right: &Value) -> Result<bool, String> {
    if !matches!(operator, "==" | "!=" | "<" | "<=" | ">" | ">=") {
        return Err(format!("unrecognized filter operator {operator}"));
    }
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
        }
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, "==" | "!=") => {
            Some(if left == right { Ordering::Equal } else { Ordering::Less })
        }
        (Value::Bool(_), Value::Bool(_)) => return Err("invalid type for comparison".into()),
        _ => None,
    };
    let order = order.ok_or("incompatible types for comparison")?;
    Ok(match operator {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}
