//! Estimates the maximum cost of an expression before its evaluation (`cel-go/checker/cost.go`,
//! `k8s.io/apiserver/pkg/cel/library/cost.go`).
//!
//! Knows: the maximum sizes of declared data. Never: evaluates a part. Start reading at [`estimate`].

mod calls;

use crate::cel::ast::{Call, Expr, ExprKind, Fold, Literal, operator};
use crate::cel::call_cost::{LIST, MAP, MESSAGE};
use crate::cel::check::{Checked, Reference};
use crate::cel::decl::Decl;
use crate::cel::library::{self, Overload, Sig};
use crate::cel::range::Range;
use crate::cel::types::Type;
use std::collections::HashMap;
use std::sync::Arc;

/// The name of a variable and of the fields below it; parts of lists and maps are `@items`, `@keys` and `@values`.
type Path = Vec<Arc<str>>;

/// The sizes of the keys and values of a list or map.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(one: Option<Entries>, other: Option<Entries>) -> Option<Entries> {
        let (one, other) = (one?, other?);
        Some(Entries { is_list: one.is_list, key: one.key.union(other.key), value: one.value.union(other.value) })
    }
}

/// The size of a loop's variable, as far as it is known.
#[derive(Clone, Default)]
struct Local {
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// Returns the least and greatest cost of an expression about declared data.
pub fn estimate(checked: &Checked, root: &Decl) -> Range {
    let count = checked.types.len();
    let mut estimator = Estimator {
        checked,
        root,
        paths: vec![Path::new(); count],
        sizes: vec![None; count],
        entries: vec![None; count],
        locals: HashMap::new(),
    };
    estimator.cost(&checked.expr)
}

struct Estimator<'a> {
    checked: &'a Checked,
    root: &'a Decl,
    paths: Vec<Path>,
    sizes: Vec<Option<Range>>,
    entries: Vec<Option<Entries>>,
    locals: HashMap<Arc<str>, Vec<Local>>,
}

impl Estimator<'_> {
    fn type_of(&self, expr: &Expr) -> &Type {
        &self.checked.types[expr.id]
    }

    fn local(&self, expr: &Expr) -> Option<&Local> {
        match &expr.kind {
            ExprKind::Ident(name) => self.locals.get(name).and_then(|stack| stack.last()),
            _ => None,
        }
    }

    fn path(&self, expr: &Expr) -> &Path {
        self.local(expr).map_or(&self.paths[expr.id], |local| &local.path)
    }

    fn path_with(&self, expr: &Expr, step: &str) -> Path {
        let mut path = self.path(expr).clone();
        path.push(step.into());
        path
    }

    /// The size of declared data.
    fn declared_size(&self, path: &[Arc<str>]) -> Option<Range> {
        let (_, steps) = path.split_first()?;
        let mut decl = self.root;
        for (index, step) in steps.iter().enumerate() {
            match &**step {
                "@items" | "@values" => decl = decl.element()?,
                "@keys" if index + 1 == steps.len() => {
                    decl.element()?;
                    return Some(Range::up_to(0));
                }
                name => decl = &decl.field(name)?.decl,
            }
        }
        Some(Range::up_to(decl.most))
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes[expr.id] {
            return Some(size);
        }
        match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => return Some(Range::exactly(text.chars().count() as u64)),
            ExprKind::Literal(Literal::Bytes(bytes)) => return Some(Range::exactly(bytes.len() as u64)),
            ExprKind::Literal(_) => return Some(Range::exactly(1)),
            ExprKind::List(items) => return Some(Range::exactly(items.len() as u64)),
            ExprKind::Map(entries) => return Some(Range::exactly(entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = self.declared_size(self.path(expr)) {
            self.sizes[expr.id] = Some(size);
            return Some(size);
        }
        if is_scalar(self.type_of(expr)) {
            return Some(Range::exactly(1));
        }
        self.local(expr).and_then(|local| local.size)
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn entries(&self, expr: &Expr) -> Option<Entries> {
        self.entries[expr.id].or_else(|| self.local(expr).and_then(|local| local.entries))
    }

    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            ExprKind::Error | ExprKind::Literal(_) => Range::exactly(0),
            ExprKind::Ident(name) => {
                let path = self.local(expr).map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths[expr.id] = path;
                Range::exactly(1)
            }
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(items) => {
                let mut sum = Range::exactly(LIST);
                let mut size = if items.is_empty() { Range::exactly(0) } else { Range::NOTHING };
                for (item, _) in items {
                    sum = sum.plus(self.cost(item));
                    size = size.union(self.size_or_unknown(item));
                }
                self.entries[expr.id] = Some(Entries { is_list: true, key: Range::exactly(1), value: size });
                sum
            }
            ExprKind::Map(entries) => {
                let mut sum = Range::exactly(MAP);
                let none = if entries.is_empty() { Range::exactly(0) } else { Range::NOTHING };
                let (mut keys, mut values) = (none, none);
                for entry in entries {
                    sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    keys = keys.union(self.size_or_unknown(&entry.key));
                    values = values.union(self.size_or_unknown(&entry.value));
                }
                self.entries[expr.id] = Some(Entries { is_list: false, key: keys, value: values });
                sum
            }
            ExprKind::Struct(_, fields) => {
                let costs = fields.iter().map(|field| self.cost(&field.value));
                costs.fold(Range::exactly(MESSAGE), Range::plus)
            }
            ExprKind::Fold(fold) if fold.is_binding() => self.binding(expr, fold),
            ExprKind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &Arc<str>, test: bool) -> Range {
        // A name with dots is one variable.
        if let Some(Reference::Variable(name)) = &self.checked.references[expr.id] {
            self.paths[expr.id] = vec![name.clone()];
            return Range::exactly(1);
        }
        let mut sum = self.cost(operand);
        if test {
            return sum;
        }
        if matches!(self.type_of(operand), Type::Map(..) | Type::Object(_) | Type::Named(_) | Type::Configuration(_)) {
            sum = sum.plus(Range::exactly(1));
        }
        let path = self.path_with(operand, field);
        self.paths[expr.id] = path;
        sum
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Range {
        if &*call.function == "dyn" && call.args.len() == 1 {
            let cost = self.cost(&call.args[0]).plus(Range::exactly(1));
            self.sizes[expr.id] = self.size(&call.args[0]);
            self.entries[expr.id] = self.entries(&call.args[0]);
            return cost;
        }
        let costs: Vec<Range> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let reference = self.checked.references[expr.id].clone();
        let (name, qualified) = match reference {
            Some(Reference::Function(function, qualified)) => (function.name, qualified),
            _ if &*call.function == operator::OPTIONAL_SELECT => {
                return costs.into_iter().fold(Range::exactly(1), Range::plus);
            }
            _ => return Range::exactly(0),
        };
        let target = call.target.as_deref().filter(|_| !qualified);
        let sum = target.map_or(Range::exactly(0), |target| self.cost(target));
        let mut cost = Range::NOTHING;
        let mut size: Option<Range> = None;
        for overload in self.candidates(name, target, &call.args) {
            let asked = calls::EstimatedCall { expr, name, overload, target, args: &call.args, costs: &costs };
            let estimate = self.call_estimate(&asked);
            cost = cost.union(estimate.cost);
            size = match (size, estimate.size) {
                (Some(one), Some(other)) => Some(one.union(other)),
                (one, other) => one.or(other),
            };
            if name == operator::INDEX {
                let is_list = matches!(overload.args[0], Sig::List(_));
                size = self.entries(&call.args[0]).map(|entries| entries.value);
                self.paths[expr.id] = self.path_with(&call.args[0], if is_list { "@items" } else { "@values" });
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if size.is_some() {
            self.sizes[expr.id] = size;
        }
        sum.plus(cost)
    }

    /// The signatures that the types of the arguments fit.
    fn candidates(&self, name: &str, target: Option<&Expr>, args: &[Expr]) -> Vec<&'static Overload> {
        let types: Vec<&Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        let overloads = library::find(name).flat_map(|function| function.overloads);
        overloads
            .filter(|overload| overload.member == target.is_some() && overload.args.len() == types.len())
            .filter(|overload| overload.args.iter().zip(&types).all(|(wanted, ty)| may_match(ty, wanted)))
            .collect()
    }

    fn binding(&mut self, expr: &Expr, fold: &Fold) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.start));
        self.push_local(&fold.accumulator, &fold.start);
        sum = sum.plus(self.cost(&fold.result));
        self.pop_local(&fold.accumulator);
        self.sizes[expr.id] = self.size(&fold.result);
        self.entries[expr.id] = self.entries(&fold.result);
        sum
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.start));
        self.push_local(&fold.accumulator, &fold.start);
        let entries = self.entries(&fold.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.type_of(&fold.range), Type::List(_)),
        };
        let (keys, values) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        let (key_step, value_step) = if is_list { ("@indices", "@items") } else { ("@keys", "@values") };
        let mut add = |name: &Arc<str>, step: &str, size: Option<Range>| {
            let path = self.path_with(&fold.range, step);
            self.locals.entry(name.clone()).or_default().push(Local { path, size, entries: None });
        };
        match &fold.second {
            Some(second) => {
                add(&fold.variable, key_step, keys);
                add(second, value_step, values);
            }
            None if is_list => add(&fold.variable, value_step, values),
            None => add(&fold.variable, key_step, keys),
        }
        let each = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.pop_local(&fold.variable);
        fold.second.iter().for_each(|second| self.pop_local(second));
        sum = sum.plus(self.cost(&fold.result));
        self.pop_local(&fold.accumulator);
        let count = self.size_or_unknown(&fold.range);
        sum = sum.plus(count.multiply(each));
        match fold.start.kind {
            ExprKind::Literal(_) => self.sizes[expr.id] = self.size(&fold.start),
            ExprKind::List(_) | ExprKind::Map(_) => {
                self.sizes[expr.id] = Some(count);
                if let Some(entries) = self.entries(&fold.step) {
                    self.entries[expr.id] = Some(entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn push_local(&mut self, name: &Arc<str>, value: &Expr) {
        let (path, size, entries) = (self.path(value).clone(), self.size(value), self.entries(value));
        self.locals.entry(name.clone()).or_default().push(Local { path, size, entries });
    }

    fn pop_local(&mut self, name: &Arc<str>) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}

/// Whether a value of a type may be an argument of a signature.
fn may_match(ty: &Type, wanted: &Sig) -> bool {
    match (ty, wanted) {
        (Type::Dyn | Type::Error | Type::Variable(_), _) | (_, Sig::Dyn | Sig::A | Sig::B) => true,
        (Type::Null, wanted) => matches!(wanted, Sig::Duration | Sig::Timestamp | Sig::Named(_) | Sig::Optional(_)),
        (Type::List(item), Sig::List(wanted)) => may_match(item, wanted),
        (Type::Map(key, value), Sig::Map(wanted, other)) => may_match(key, wanted) && may_match(value, other),
        (Type::Optional(inner), Sig::Optional(wanted)) => may_match(inner, wanted),
        (Type::Named(name), Sig::Named(wanted)) => name == wanted,
        (Type::Bool, Sig::Bool)
        | (Type::Int, Sig::Int)
        | (Type::Uint, Sig::Uint)
        | (Type::Double, Sig::Double)
        | (Type::String, Sig::String)
        | (Type::Bytes, Sig::Bytes)
        | (Type::Duration, Sig::Duration)
        | (Type::Timestamp, Sig::Timestamp)
        | (Type::TypeOf(_), Sig::TypeOf(_)) => true,
        _ => false,
    }
}
