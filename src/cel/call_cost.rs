//! The costs of calls while an expression is evaluated (`cel-go/interpreter/runtimecost.go`,
//! `k8s.io/apiserver/pkg/cel/library/cost.go`).

use super::ast::operator;
use super::value::Value;

/// The cost of a new list.
pub const LIST: u64 = 10;
/// The cost of a new map.
pub const MAP: u64 = 30;
/// The cost of a new message.
pub const MESSAGE: u64 = 40;
/// The cost of reading a letter.
pub const LETTER: f64 = 0.1;
/// The cost of matching a letter of a pattern.
pub const PATTERN: f64 = 0.25;
/// The cost of asking the authorizer.
pub const CHECK: u64 = 350_000;

/// A size times a factor, rounded up.
pub fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The cost of a call.
pub fn call_cost(function: &str, args: &[Value], result: &Value) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Value::size);
    match function {
        "check" => CHECK,
        "fieldSelector" | "labelSelector" => {
            LIST + scaled(size(1), LETTER) + scaled(scaled(size(1), 0.5), (LIST + MESSAGE) as f64)
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey" => scaled(size(0), LETTER),
        "replace" | "split" => scaled(size(0), 2.0 * LETTER),
        "join" => scaled(result.size(), 2.0 * LETTER),
        "matches" | "find" | "findAll" => scaled(size(0) + 1, LETTER) * scaled(size(1), PATTERN),
        "contains" => scaled(size(0), LETTER) * scaled(size(1), LETTER),
        "ip" if matches!(args[0], Value::Cidr(..)) => 1,
        "cidr" | "isIP" | "isCIDR" | "ip" => scaled(size(0), LETTER),
        "ip.isCanonical" => scaled(size(0), 2.0 * LETTER),
        "containsIP" | "containsCIDR" => {
            let mut cost = scaled(2 * size(0), LETTER);
            if function == "containsCIDR" {
                cost += scaled(size(0), LETTER) + 1;
            }
            if matches!(args.get(1), Some(Value::String(_))) {
                cost += scaled(size(1), LETTER);
            }
            cost
        }
        "quantity" | "isQuantity" | "semver" | "isSemver" => scaled(size(0), LETTER),
        "validate" => match args.first() {
            Some(Value::Format(format)) => scaled(size(1) + 1, LETTER) * scaled(format.size, PATTERN),
            _ => 1,
        },
        operator::EQUALS | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => {
            let is_simple = matches!(
                args.first(),
                Some(
                    Value::Quantity(_)
                        | Value::Ip(_)
                        | Value::Cidr(..)
                        | Value::Format(_)
                        | Value::Url(_)
                        | Value::Semver(_)
                        | Value::Authorizer(_)
                )
            );
            if is_simple { 1 } else { scaled(size(0).min(size(1)), LETTER) }
        }
        operator::ADD if matches!(args[0], Value::String(_) | Value::Bytes(_)) => scaled(size(0) + size(1), LETTER),
        "startsWith" | "endsWith" => scaled(size(1), LETTER),
        "strings.quote" | "format" => scaled(size(0), LETTER),
        "bytes" if matches!(args[0], Value::String(_)) => scaled(size(0), LETTER),
        "string" if matches!(args[0], Value::Bytes(_)) => scaled(size(0), LETTER),
        "@in" if matches!(args.get(1), Some(Value::List(_))) => size(1),
        "sets.contains" | "sets.intersects" => 1 + size(0) * size(1),
        "sets.equivalent" => 1 + 2 * size(0) * size(1),
        "slice" | "lists.range" | "reverse" | "flatten" => LIST + 1 + result.size(),
        "distinct" | "sort" | "@sortByAssociatedKeys" => LIST + 1 + size(0) * size(0),
        _ => 1,
    }
}

/// The cost of looking at every part of a value.
fn traversal(value: &Value) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * LETTER) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * LETTER) as u64,
        Value::List(list) => list.iter().filter_map(Result::ok).map(|item| traversal(&item)).sum(),
        Value::Map(map) => map
            .keys()
            .iter()
            .map(|key| traversal(key) + map.get(key).ok().flatten().as_ref().map_or(0, traversal))
            .sum(),
        _ => 1,
    }
}
