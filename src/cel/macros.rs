//! Macros: calls that are rewritten before types are checked (`parser/macro.go`, `ext/comprehensions.go`, `cel/library.go`).
//!
//! Never: makes a tree of more than a maximum number of nodes. Start reading at [`expand_or_call`].

use super::ast::{ACCUMULATOR, Call, Expr, ExprKind, FieldEntry, Fold, Literal, MapEntry, operator};
use super::tree::Parser;
use std::sync::Arc;

/// Maximum number of nodes: nested `optMap` copies its target each time.
const MAX_NODES: usize = 500_000;

/// Rewrites a call of a macro; any other call stays as it is.
pub fn expand_or_call(
    parser: &mut Parser,
    at: usize,
    function: Arc<str>,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Expr {
    let has_error = args.iter().chain(&target).any(|arg| matches!(arg.kind, ExprKind::Error));
    let count = args.len();
    match (&*function, target) {
        _ if has_error => parser.node(at, ExprKind::Error),
        ("has", None) if count == 1 => expand_has(parser, at, args),
        ("all" | "exists" | "exists_one", Some(target)) if count == 2 => {
            quantifier(parser, at, &function, target, args)
        }
        ("all" | "exists" | "existsOne", Some(target)) if count == 3 => quantifier(parser, at, &function, target, args),
        ("map", Some(target)) if count == 2 || count == 3 => transform(parser, at, target, args, 1),
        ("filter", Some(target)) if count == 2 => filter(parser, at, target, args),
        ("transformList", Some(target)) if count == 3 || count == 4 => transform(parser, at, target, args, 2),
        ("transformMap", Some(target)) if count == 3 || count == 4 => insert(parser, at, target, args, true),
        ("transformMapEntry", Some(target)) if count == 3 || count == 4 => insert(parser, at, target, args, false),
        ("optMap", Some(target)) if count == 2 => optional_map(parser, at, target, args, true),
        ("optFlatMap", Some(target)) if count == 2 => optional_map(parser, at, target, args, false),
        ("sortBy", Some(target)) if count == 2 => sort_by(parser, at, target, args),
        (_, target) => parser.node(at, ExprKind::Call(Call { function, target: target.map(Box::new), args })),
    }
}

fn position(parser: &Parser, expr: &Expr) -> usize {
    parser.source.positions[expr.id]
}

fn accumulator(parser: &mut Parser, at: usize) -> Expr {
    parser.node(at, ExprKind::Ident(ACCUMULATOR.into()))
}

fn literal(parser: &mut Parser, at: usize, literal: Literal) -> Expr {
    parser.node(at, ExprKind::Literal(literal))
}

fn expand_has(parser: &mut Parser, at: usize, mut args: Vec<Expr>) -> Expr {
    match args.pop() {
        Some(Expr { kind: ExprKind::Select { operand, field, .. }, .. }) => {
            parser.node(at, ExprKind::Select { operand, field, test: true })
        }
        other => {
            let at = other.map_or(at, |other| position(parser, &other));
            parser.report_error(at, "invalid argument to has() macro")
        }
    }
}

/// The names of one or two variables.
type Names = (Arc<str>, Option<Arc<str>>);

/// Takes the names of the variables off the front of the arguments.
fn take_names(parser: &mut Parser, args: &mut Vec<Expr>, count: usize, message: &str) -> Result<Names, Expr> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for arg in args.drain(..count).collect::<Vec<_>>() {
        let at = position(parser, &arg);
        let ExprKind::Ident(name) = arg.kind else { return Err(parser.report_error(at, message)) };
        if names.contains(&name) {
            return Err(parser.report_error(at, format!("duplicate variable name: {name}")));
        }
        if matches!(&*name, "__result__" | ACCUMULATOR) {
            return Err(parser.report_error(at, "iteration variable overwrites accumulator variable"));
        }
        names.push(name);
    }
    let second = if names.len() > 1 { names.pop() } else { None };
    Ok((names.pop().unwrap_or_else(|| ACCUMULATOR.into()), second))
}

/// The parts of a loop besides its range and variables.
struct Loop {
    start: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

fn fold(parser: &mut Parser, at: usize, range: Expr, (variable, second): Names, parts: Loop) -> Expr {
    let Loop { start, condition, step, result } = parts;
    let fold = Fold { range, variable, second, accumulator: ACCUMULATOR.into(), start, condition, step, result };
    parser.node(at, ExprKind::Fold(Box::new(fold)))
}

fn quantifier(parser: &mut Parser, at: usize, function: &str, range: Expr, mut args: Vec<Expr>) -> Expr {
    let count = args.len() - 1;
    let names = match take_names(parser, &mut args, count, "argument must be a simple name") {
        Ok(names) => names,
        Err(error) => return error,
    };
    let Some(test) = args.pop() else { return range };
    let kept = accumulator(parser, at);
    let parts = match function {
        "all" => Loop {
            start: literal(parser, at, Literal::Bool(true)),
            condition: {
                let kept = accumulator(parser, at);
                parser.call(at, operator::NOT_STRICTLY_FALSE, vec![kept])
            },
            step: parser.call(at, operator::AND, vec![kept, test]),
            result: accumulator(parser, at),
        },
        "exists" => Loop {
            start: literal(parser, at, Literal::Bool(false)),
            condition: {
                let kept = accumulator(parser, at);
                let not = parser.call(at, operator::NOT, vec![kept]);
                parser.call(at, operator::NOT_STRICTLY_FALSE, vec![not])
            },
            step: parser.call(at, operator::OR, vec![kept, test]),
            result: accumulator(parser, at),
        },
        _ => {
            let one = literal(parser, at, Literal::Int(1));
            let more = accumulator(parser, at);
            let more = parser.call(at, operator::ADD, vec![more, one]);
            let one = literal(parser, at, Literal::Int(1));
            let count = accumulator(parser, at);
            Loop {
                start: literal(parser, at, Literal::Int(0)),
                condition: literal(parser, at, Literal::Bool(true)),
                step: parser.call(at, operator::CONDITIONAL, vec![test, more, kept]),
                result: parser.call(at, operator::EQUALS, vec![count, one]),
            }
        }
    };
    fold(parser, at, range, names, parts)
}

/// Creates a loop that collects: it does `step` for the items that fulfil the condition.
fn collect(
    parser: &mut Parser,
    at: usize,
    range: Expr,
    names: Names,
    start: ExprKind,
    condition: Option<Expr>,
    step: Expr,
) -> Expr {
    let step = match condition {
        Some(condition) => {
            let kept = accumulator(parser, at);
            parser.call(at, operator::CONDITIONAL, vec![condition, step, kept])
        }
        None => step,
    };
    let parts = Loop {
        start: parser.node(at, start),
        condition: literal(parser, at, Literal::Bool(true)),
        step,
        result: accumulator(parser, at),
    };
    fold(parser, at, range, names, parts)
}

/// Creates `accumulator + [item]`.
fn append(parser: &mut Parser, at: usize, item: Expr) -> Expr {
    let kept = accumulator(parser, at);
    let list = parser.node(at, ExprKind::List(vec![(item, false)]));
    parser.call(at, operator::ADD, vec![kept, list])
}

fn transform(parser: &mut Parser, at: usize, range: Expr, mut args: Vec<Expr>, count: usize) -> Expr {
    let message = if count == 1 { "argument is not an identifier" } else { "argument must be a simple name" };
    let names = match take_names(parser, &mut args, count, message) {
        Ok(names) => names,
        Err(error) => return error,
    };
    let Some(item) = args.pop() else { return range };
    let step = append(parser, at, item);
    collect(parser, at, range, names, ExprKind::List(Vec::new()), args.pop(), step)
}

fn filter(parser: &mut Parser, at: usize, range: Expr, mut args: Vec<Expr>) -> Expr {
    let item = args.first().map(|arg| (position(parser, arg), arg.kind.clone()));
    let names = match take_names(parser, &mut args, 1, "argument is not an identifier") {
        Ok(names) => names,
        Err(error) => return error,
    };
    let (item_at, item) = item.unwrap_or((at, ExprKind::Error));
    let item = parser.node(item_at, item);
    let step = append(parser, at, item);
    collect(parser, at, range, names, ExprKind::List(Vec::new()), args.pop(), step)
}

/// Expands `transformMap`, which inserts a value under the same key, and `transformMapEntry`, which inserts a map.
fn insert(parser: &mut Parser, at: usize, range: Expr, mut args: Vec<Expr>, keeps_key: bool) -> Expr {
    let names = match take_names(parser, &mut args, 2, "argument must be a simple name") {
        Ok(names) => names,
        Err(error) => return error,
    };
    let Some(item) = args.pop() else { return range };
    let kept = accumulator(parser, at);
    let inserted = match keeps_key {
        true => vec![kept, parser.node(at, ExprKind::Ident(names.0.clone())), item],
        false => vec![kept, item],
    };
    let step = parser.call(at, "cel.@mapInsert", inserted);
    collect(parser, at, range, names, ExprKind::Map(Vec::new()), args.pop(), step)
}

/// Gives a value a name: a loop over nothing whose accumulator is the value.
fn bind(parser: &mut Parser, at: usize, name: Arc<str>, value: Expr, result: Expr) -> Expr {
    let fold = Fold {
        range: parser.node(at, ExprKind::List(Vec::new())),
        variable: "#unused".into(),
        second: None,
        accumulator: name.clone(),
        start: value,
        condition: literal(parser, at, Literal::Bool(false)),
        step: parser.node(at, ExprKind::Ident(name)),
        result,
    };
    parser.node(at, ExprKind::Fold(Box::new(fold)))
}

fn optional_map(parser: &mut Parser, at: usize, target: Expr, mut args: Vec<Expr>, wraps: bool) -> Expr {
    let (Some(result), Some(name)) = (args.pop(), args.pop()) else { return target };
    let name_at = position(parser, &name);
    let ExprKind::Ident(name) = name.kind else {
        let function = if wraps { "optMap" } else { "optFlatMap" };
        return parser.report_error(name_at, format!("{function}() variable name must be a simple identifier"));
    };
    let copy = renumber(parser, &target);
    let member = |parser: &mut Parser, function: &str, target: Expr| {
        let call = Call { function: function.into(), target: Some(Box::new(target)), args: Vec::new() };
        parser.node(at, ExprKind::Call(call))
    };
    let is_present = member(parser, "hasValue", target);
    let value = member(parser, "value", copy);
    let mut result = bind(parser, at, name, value, result);
    if wraps {
        result = parser.call(at, "optional.of", vec![result]);
    }
    let none = parser.call(at, "optional.none", Vec::new());
    parser.call(at, operator::CONDITIONAL, vec![is_present, result, none])
}

/// Expands `list.sortBy(x, key)` to `@sortByAssociatedKeys` of the list and of the keys of its items.
fn sort_by(parser: &mut Parser, at: usize, target: Expr, args: Vec<Expr>) -> Expr {
    let name: Arc<str> = "@__sortBy_input__".into();
    let range = parser.node(at, ExprKind::Ident(name.clone()));
    let keys = transform(parser, at, range, args, 1);
    if matches!(keys.kind, ExprKind::Error) {
        return keys;
    }
    let list = parser.node(at, ExprKind::Ident(name.clone()));
    let call = Call { function: "@sortByAssociatedKeys".into(), target: Some(Box::new(list)), args: vec![keys] };
    let sorted = parser.node(at, ExprKind::Call(call));
    bind(parser, at, name, target, sorted)
}

/// Copies a tree with numbers of its own.
fn renumber(parser: &mut Parser, expr: &Expr) -> Expr {
    let at = position(parser, expr);
    if parser.source.positions.len() > MAX_NODES {
        if parser.tokens.issues.is_empty() {
            parser.tokens.report(at, "the expression is too large after macros have been expanded");
        }
        return parser.node(at, ExprKind::Error);
    }
    let kind = match &expr.kind {
        ExprKind::Select { operand, field, test } => {
            ExprKind::Select { operand: Box::new(renumber(parser, operand)), field: field.clone(), test: *test }
        }
        ExprKind::Call(call) => ExprKind::Call(Call {
            function: call.function.clone(),
            target: call.target.as_ref().map(|target| Box::new(renumber(parser, target))),
            args: call.args.iter().map(|arg| renumber(parser, arg)).collect(),
        }),
        ExprKind::List(items) => {
            ExprKind::List(items.iter().map(|(item, opt)| (renumber(parser, item), *opt)).collect())
        }
        ExprKind::Map(entries) => ExprKind::Map(
            entries
                .iter()
                .map(|entry| MapEntry {
                    key: renumber(parser, &entry.key),
                    value: renumber(parser, &entry.value),
                    optional: entry.optional,
                })
                .collect(),
        ),
        ExprKind::Struct(name, fields) => ExprKind::Struct(
            name.clone(),
            fields
                .iter()
                .map(|field| FieldEntry {
                    id: parser.source.add(at),
                    name: field.name.clone(),
                    value: renumber(parser, &field.value),
                    optional: field.optional,
                })
                .collect(),
        ),
        ExprKind::Fold(fold) => ExprKind::Fold(Box::new(Fold {
            range: renumber(parser, &fold.range),
            variable: fold.variable.clone(),
            second: fold.second.clone(),
            accumulator: fold.accumulator.clone(),
            start: renumber(parser, &fold.start),
            condition: renumber(parser, &fold.condition),
            step: renumber(parser, &fold.step),
            result: renumber(parser, &fold.result),
        })),
        other => other.clone(),
    };
    parser.node(at, kind)
}
