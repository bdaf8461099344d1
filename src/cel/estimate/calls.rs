//! The estimated costs of calls.
//!
//! Knows: the cost and the result's size of each function by the sizes of its arguments. Never: visits the parts of an expression;
//! the estimator has done that before. Start reading at [`Estimator::call_estimate`].

use super::{Entries, Estimator};
use crate::cel::ast::{Expr, ExprKind, Literal, operator};
use crate::cel::call_cost::{CHECK, LETTER, LIST, MESSAGE, PATTERN};
use crate::cel::library::{Overload, Sig};
use crate::cel::range::Range;
use crate::cel::types::Type;

/// The cost of a call and the size of its result.
pub(super) struct CallEstimate {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

/// A call whose cost is asked for.
pub(super) struct EstimatedCall<'e> {
    pub(super) expr: &'e Expr,
    pub(super) name: &'static str,
    pub(super) overload: &'static Overload,
    pub(super) target: Option<&'e Expr>,
    pub(super) args: &'e [Expr],
    pub(super) costs: &'e [Range],
}

impl Estimator<'_> {
    pub(super) fn call_estimate(&mut self, asked: &EstimatedCall) -> CallEstimate {
        let args = asked.costs.iter().fold(Range::exactly(0), |sum, cost| sum.plus(*cost));
        let estimate = self.estimate_library_call(asked).unwrap_or_else(|| self.estimate_operator_call(asked));
        match asked.name {
            operator::AND | operator::OR | operator::CONDITIONAL => estimate,
            _ => CallEstimate { cost: estimate.cost.plus(args), size: estimate.size },
        }
    }

    /// Estimates the functions that Kubernetes adds, and those of the libraries of lists and sets; `None` for others.
    fn estimate_library_call(&mut self, asked: &EstimatedCall) -> Option<CallEstimate> {
        let plain = |cost: Range| Some(CallEstimate { cost, size: None });
        let sized = |cost: Range, size: Range| Some(CallEstimate { cost, size: Some(size) });
        let one = Range::exactly(1);
        let first = |this: &mut Self| this.argument_size(asked, 0);
        let second = |this: &mut Self| this.argument_size(asked, 1);
        let on = |this: &mut Self| this.target_size(asked);
        match asked.name {
            "check" => plain(Range::exactly(CHECK)),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
            | "reason" | "error" | "errored" => plain(one),
            "fieldSelector" | "labelSelector" => {
                let length = first(self);
                let count = length.scale(0.5).scale((LIST + MESSAGE) as f64);
                plain(Range::exactly(LIST).plus(length.scale(LETTER)).plus(count))
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => plain(self.scan_cost(asked)?),
            "url" | "jsonpatch.escapeKey" => {
                let size = first(self);
                sized(size.scale(LETTER), size)
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = on(self);
                sized(size.scale(LETTER), size)
            }
            "replace" => {
                let (text, from, to) = (on(self), first(self), second(self));
                sized(text.scale(2.0 * LETTER), replaced_size(text, from, to))
            }
            "split" => {
                let text = on(self);
                let most = match asked.args.get(1).map(|arg| &arg.kind) {
                    Some(ExprKind::Literal(Literal::Int(most))) => *most as u64,
                    _ => text.max,
                };
                sized(text.scale(2.0 * LETTER), Range::up_to(most))
            }
            "join" => {
                let size = self.joined_size(asked)?;
                sized(size.scale(LETTER), size)
            }
            "find" | "findAll" => {
                let text = on(self);
                let cost = text.plus(one).scale(LETTER).multiply(first(self).scale(PATTERN));
                sized(cost, Range::up_to(text.max))
            }
            "ip" if asked.target.is_some() => plain(one),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                plain(first(self).scale(LETTER))
            }
            "ip.isCanonical" => plain(first(self).scale(2.0 * LETTER)),
            "containsIP" | "containsCIDR" => plain(self.containment_cost(asked)),
            "validate" => plain(first(self).scale(LETTER).scale(128.0 * PATTERN)),
            "format.named"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => plain(one),
            operator::EQUALS if asked.args.iter().all(|arg| matches!(self.type_of(arg), Type::Named(_))) => plain(one),
            "sets.contains" | "sets.intersects" => plain(first(self).multiply(second(self)).plus(one)),
            "sets.equivalent" => plain(first(self).multiply(second(self)).scale(2.0).plus(one)),
            "slice" | "reverse" | "flatten" | "distinct" | "sort" | "lists.range" | "@sortByAssociatedKeys" => {
                let size = self.list_size(asked);
                let factor = match asked.name {
                    "distinct" | "sort" | "@sortByAssociatedKeys" => 2.0,
                    _ => 1.0,
                };
                sized(size.scale(factor).plus(one).plus(Range::exactly(LIST)), size)
            }
            _ => None,
        }
    }

    fn argument_size(&mut self, asked: &EstimatedCall, index: usize) -> Range {
        asked.args.get(index).map_or(Range::UNKNOWN, |arg| self.size_or_unknown(arg))
    }

    fn target_size(&mut self, asked: &EstimatedCall) -> Range {
        asked.target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target))
    }

    /// The cost of a function that reads every item of a list, or every letter of a text.
    fn scan_cost(&mut self, asked: &EstimatedCall) -> Option<Range> {
        let target = asked.target?;
        let size = self.target_size(asked);
        let Type::List(item) = self.type_of(target).clone() else { return Some(size.scale(LETTER)) };
        let mut each = Range::exactly(1);
        if matches!(*item, Type::String | Type::Bytes) {
            let path = self.path_with(target, "@items");
            let has_path = path.len() > 1;
            let inner = self.declared_size(&path).filter(|_| has_path).unwrap_or(Range::UNKNOWN);
            each = each.plus(inner.scale(LETTER));
        }
        Some(size.multiply(each))
    }

    /// The size of a text that is joined from a list.
    fn joined_size(&mut self, asked: &EstimatedCall) -> Option<Range> {
        let target = asked.target?;
        let list = self.target_size(asked);
        let item = self.declared_size(&self.path_with(target, "@items")).unwrap_or(Range::UNKNOWN);
        let size = list.multiply(item);
        if asked.args.is_empty() {
            return Some(size);
        }
        let between = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
        Some(size.plus(self.argument_size(asked, 0).multiply(between)))
    }

    /// The cost of asking whether a block of addresses contains another or an address.
    fn containment_cost(&mut self, asked: &EstimatedCall) -> Range {
        let size = Range { min: 4, max: 16 };
        let mut cost = size.plus(size).scale(LETTER);
        if asked.name == "containsCIDR" {
            cost = cost.plus(size.scale(LETTER)).plus(Range::exactly(1));
        }
        if matches!(asked.overload.args.get(1), Some(Sig::String)) {
            cost = cost.plus(self.argument_size(asked, 0).scale(LETTER));
        }
        cost
    }

    /// The size of the list that a function of the library of lists returns.
    fn list_size(&mut self, asked: &EstimatedCall) -> Range {
        match asked.name {
            "lists.range" => Range::exactly(number(asked.args.first()).unwrap_or(u64::MAX)),
            "slice" => {
                let end = number(asked.args.get(1)).unwrap_or(self.target_size(asked).max);
                Range::exactly(end.saturating_sub(number(asked.args.first()).unwrap_or(0)))
            }
            "reverse" | "flatten" => self.target_size(asked),
            "@sortByAssociatedKeys" => self.argument_size(asked, 0).multiply(self.argument_size(asked, 0)),
            _ => self.target_size(asked).multiply(self.target_size(asked)),
        }
    }

    /// Gives the result of a call the entries of two arguments.
    fn unite_entries(&mut self, asked: &EstimatedCall, one: usize, other: usize) {
        let entries = Entries::union(self.entries(&asked.args[one]), self.entries(&asked.args[other]));
        if entries.is_some() {
            self.entries[asked.expr.id] = entries;
        }
    }

    /// Estimates the functions of cel-go. The costs of operators with branches include their arguments.
    fn estimate_operator_call(&mut self, asked: &EstimatedCall) -> CallEstimate {
        let plain = |cost: Range| CallEstimate { cost, size: None };
        let one = Range::exactly(1);
        let mut arg = |index: usize| self.argument_size(asked, index);
        match asked.name {
            "format" | "strings.quote" => match asked.target {
                Some(target) => plain(self.size_or_unknown(target).scale(LETTER)),
                None => {
                    let size = arg(0);
                    let quoted = size.multiply(Range { min: 1, max: 2 }).plus(Range::exactly(2));
                    CallEstimate { cost: size.scale(LETTER), size: Some(quoted) }
                }
            },
            "bytes" if matches!(asked.overload.args[0], Sig::String) => {
                let size = arg(0);
                let result = Range { min: size.min, max: size.max.saturating_mul(4) };
                CallEstimate { cost: size.scale(LETTER), size: Some(result) }
            }
            "string" if matches!(asked.overload.args[0], Sig::Bytes) => {
                let size = arg(0);
                CallEstimate { cost: size.scale(LETTER), size: Some(Range { min: size.min / 4, max: size.max }) }
            }
            "startsWith" | "endsWith" => plain(arg(0).scale(LETTER)),
            "@in" if matches!(asked.overload.args[1], Sig::List(_)) => plain(arg(1)),
            "matches" if asked.target.is_some() => {
                let pattern = arg(0).scale(PATTERN);
                let text = self.target_size(asked);
                plain(text.plus(one).scale(LETTER).multiply(pattern))
            }
            "contains" => {
                let part = arg(0).scale(LETTER);
                let text = self.target_size(asked);
                plain(text.scale(LETTER).multiply(part))
            }
            operator::AND | operator::OR => {
                let (left, right) = (asked.costs[0], asked.costs[1]);
                plain(Range { min: left.min, max: left.plus(right).max })
            }
            operator::CONDITIONAL => {
                let size = arg(1).union(arg(2));
                self.unite_entries(asked, 1, 2);
                let cost = asked.costs[0].plus(asked.costs[1].union(asked.costs[2]));
                CallEstimate { cost, size: Some(size) }
            }
            operator::ADD if matches!(asked.overload.args[0], Sig::String | Sig::Bytes | Sig::List(_)) => {
                let size = arg(0).plus(arg(1));
                self.unite_entries(asked, 0, 1);
                let is_list = matches!(asked.overload.args[0], Sig::List(_));
                CallEstimate { cost: if is_list { one } else { size.scale(LETTER) }, size: Some(size) }
            }
            operator::EQUALS | "_!=_" => plain(comparison_cost(arg(0), arg(1))),
            "_<_" | "_<=_" | "_>_" | "_>=_" if matches!(asked.overload.args[0], Sig::String | Sig::Bytes) => {
                plain(comparison_cost(arg(0), arg(1)))
            }
            _ => plain(one),
        }
    }
}

/// The cost of comparing texts: the shorter one counts.
fn comparison_cost(one: Range, other: Range) -> Range {
    let max = one.max.min(other.max);
    Range { min: u64::from(max > 0), max }.scale(LETTER)
}

/// The size of a text after replacements.
fn replaced_size(text: Range, from: Range, to: Range) -> Range {
    let (mut count, mut kept) = (Range::exactly(0), Range::exactly(0));
    if from.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if to.max <= from.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if from.max <= to.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / from.max as f64).ceil() as u64;
    }
    count.multiply(to).plus(kept)
}

fn number(arg: Option<&Expr>) -> Option<u64> {
    match arg.map(|arg| &arg.kind) {
        Some(ExprKind::Literal(Literal::Int(number))) => Some((*number).max(0) as u64),
        _ => None,
    }
}
