//! The costs of calls while an expression is evaluated (`cel-go/interpreter/runtimecost.go`,
//! `k8s.io/apiserver/pkg/cel/library/cost.go`).
//!
//! Knows: the cost of each function by the sizes of its arguments and result. Never: calls a function. Start reading at
//! [`call_cost`].

use super::CALL_LIMIT;
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

/// Multiplies a size by a factor, and rounds up.
pub fn scale_size(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The cost of a call.
pub fn call_cost(function: &str, args: &[Value], result: &Value) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Value::size);
    match function {
        "check" => CHECK,
        "fieldSelector" | "labelSelector" => {
            LIST + scale_size(size(1), LETTER) + scale_size(scale_size(size(1), 0.5), (LIST + MESSAGE) as f64)
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal_cost),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey" => {
            scale_size(size(0), LETTER)
        }
        "replace" | "split" => scale_size(size(0), 2.0 * LETTER),
        "join" => scale_size(result.size(), 2.0 * LETTER),
        "matches" | "find" | "findAll" => scale_size(size(0) + 1, LETTER) * scale_size(size(1), PATTERN),
        "contains" => scale_size(size(0), LETTER) * scale_size(size(1), LETTER),
        "ip" if matches!(args.first(), Some(Value::Cidr(..))) => 1,
        "cidr" | "isIP" | "isCIDR" | "ip" => scale_size(size(0), LETTER),
        "ip.isCanonical" => scale_size(size(0), 2.0 * LETTER),
        "containsIP" | "containsCIDR" => {
            let mut cost = scale_size(2 * size(0), LETTER);
            if function == "containsCIDR" {
                cost += scale_size(size(0), LETTER) + 1;
            }
            if matches!(args.get(1), Some(Value::String(_))) {
                cost += scale_size(size(1), LETTER);
            }
            cost
        }
        "quantity" | "isQuantity" | "semver" | "isSemver" => scale_size(size(0), LETTER),
        "validate" => match args.first() {
            Some(Value::Format(format)) => scale_size(size(1) + 1, LETTER) * scale_size(format.size, PATTERN),
            _ => 1,
        },
        operator::EQUALS | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => {
            let is_simple = args.first().is_some_and(is_compared_at_once);
            if is_simple { 1 } else { scale_size(size(0).min(size(1)), LETTER) }
        }
        operator::ADD if matches!(args.first(), Some(Value::String(_) | Value::Bytes(_))) => {
            scale_size(size(0) + size(1), LETTER)
        }
        "startsWith" | "endsWith" => scale_size(size(1), LETTER),
        "strings.quote" | "format" => scale_size(size(0), LETTER),
        "bytes" if matches!(args.first(), Some(Value::String(_))) => scale_size(size(0), LETTER),
        "string" if matches!(args.first(), Some(Value::Bytes(_))) => scale_size(size(0), LETTER),
        "@in" if matches!(args.get(1), Some(Value::List(_))) => size(1),
        "sets.contains" | "sets.intersects" => 1 + size(0) * size(1),
        "sets.equivalent" => 1 + 2 * size(0) * size(1),
        "slice" | "lists.range" | "reverse" | "flatten" => LIST + 1 + result.size(),
        "distinct" | "sort" | "@sortByAssociatedKeys" => LIST + 1 + size(0) * size(0),
        _ => 1,
    }
}

/// Whether comparing a value costs the same however long it is.
fn is_compared_at_once(value: &Value) -> bool {
    matches!(
        value,
        Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(..)
            | Value::Format(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Authorizer(_)
    )
}

/// Returns the cost of looking at every part of a value.
fn traversal_cost(value: &Value) -> u64 {
    let mut traversal = Traversal { cost: 0, parts: 0 };
    traversal.visit(value);
    traversal.cost
}

/// A walk through the parts of a value. It ends when there are more parts than an expression may cost, because a value can contain
/// another one many times.
struct Traversal {
    cost: u64,
    parts: u64,
}

impl Traversal {
    fn visit(&mut self, value: &Value) {
        self.parts += 1;
        if self.parts > CALL_LIMIT {
            self.cost = u64::MAX;
            return;
        }
        match value {
            Value::String(text) => self.add((text.len() as f64 * LETTER) as u64),
            Value::Bytes(bytes) => self.add((bytes.len() as f64 * LETTER) as u64),
            Value::List(list) => {
                let mut items = list.iter().filter_map(Result::ok);
                while let Some(item) = items.next().filter(|_| self.cost < u64::MAX) {
                    self.visit(&item);
                }
            }
            Value::Map(map) => {
                let mut keys = map.keys().into_iter();
                while let Some(key) = keys.next().filter(|_| self.cost < u64::MAX) {
                    self.visit(&key);
                    if let Ok(Some(value)) = map.get(&key) {
                        self.visit(&value);
                    }
                }
            }
            _ => self.add(1),
        }
    }

    fn add(&mut self, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
    }
}
