//! A checked expression in the form in which it is evaluated: names are places, calls are functions, constants are values.
//!
//! Never: reports an error. Start reading at [`Node`].

use super::ast::{Call, Expr, ExprKind, Fold, Literal, operator};
use super::check::{Checked, Reference, qualified_name};
use super::library::Function;
use super::types::Type;
use super::value::{List, Map, MapKey, Value};
use crate::go::regexp::CompiledPattern;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// A pattern of an expression, compiled when it is first used.
pub type ConstantPattern = Arc<OnceLock<Arc<CompiledPattern>>>;

/// A part of an expression.
#[derive(Clone)]
pub enum Node {
    /// A constant.
    Constant(Value<'static>),
    /// A variable that the caller binds.
    Global(Arc<str>),
    /// A variable of a loop, by its place.
    Local(usize),
    /// A field.
    Select(Box<Node>, Arc<str>),
    /// Whether a field is present.
    Has(Box<Node>, Arc<str>),
    /// A field that may be absent.
    OptionalSelect(Box<Node>, Arc<str>),
    /// `a && b`
    And(Box<(Node, Node)>),
    /// `a || b`
    Or(Box<(Node, Node)>),
    /// `a ? b : c`
    Conditional(Box<(Node, Node, Node)>),
    /// Whether a value is not false, an error included.
    NotStrictlyFalse(Box<Node>),
    /// `a.or(b)`, or with `true` `a.orValue(b)`.
    OrElse(Box<(Node, Node)>, bool),
    /// A function, its arguments, and its pattern when that is a constant.
    Call(&'static Function, Vec<Node>, Option<ConstantPattern>),
    /// A list; each element with whether it is optional.
    List(Vec<(Node, bool)>),
    /// A map; each entry with whether it is optional.
    Map(Vec<(Node, Node, bool)>),
    /// A message by the name of its type.
    Message(Arc<str>, Vec<(Arc<str>, Node, bool)>),
    /// A loop.
    Fold(Box<FoldNode>),
    /// A name for a value: the value and the part that uses it.
    Bind(Box<(Node, Node)>),
    /// Appends an item to the list at a place.
    Append(usize, Box<Node>),
    /// Inserts into the map at a place.
    Insert(usize, Vec<Node>),
}

/// A loop. Its accumulator is the next place, its variables the ones after that.
#[derive(Clone)]
pub struct FoldNode {
    /// The list or map.
    pub range: Node,
    /// Whether there are variables for both key and value.
    pub has_second: bool,
    /// The first value of the accumulator.
    pub start: Node,
    /// The condition for going on.
    pub condition: Node,
    /// The next value of the accumulator.
    pub step: Node,
    /// The value of the whole.
    pub result: Node,
}

/// Builds the nodes of an expression.
pub fn build(checked: &Checked) -> Node {
    Builder { checked, locals: Vec::new() }.node(&checked.expr)
}

struct Builder<'a> {
    checked: &'a Checked,
    locals: Vec<Arc<str>>,
}

impl Builder<'_> {
    fn boxed(&mut self, expr: &Expr) -> Box<Node> {
        Box::new(self.node(expr))
    }

    fn node(&mut self, expr: &Expr) -> Node {
        if let Some(reference) = &self.checked.references[expr.id] {
            match reference {
                Reference::TypeName(name) => return Node::Constant(Value::Type(name.clone())),
                Reference::Variable(name) => return self.variable(expr, name),
                Reference::Function(..) => {}
            }
        }
        match &expr.kind {
            ExprKind::Error | ExprKind::Ident(_) => Node::Constant(Value::Null),
            ExprKind::Literal(literal) => Node::Constant(constant(literal)),
            ExprKind::Select { operand, field, test: false } => Node::Select(self.boxed(operand), field.clone()),
            ExprKind::Select { operand, field, test: true } => Node::Has(self.boxed(operand), field.clone()),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(items) => {
                let nodes: Vec<(Node, bool)> = items.iter().map(|(item, opt)| (self.node(item), *opt)).collect();
                fold_list(nodes)
            }
            ExprKind::Map(entries) => {
                let nodes: Vec<(Node, Node, bool)> = entries
                    .iter()
                    .map(|entry| (self.node(&entry.key), self.node(&entry.value), entry.optional))
                    .collect();
                fold_map(nodes)
            }
            ExprKind::Struct(name, fields) => {
                let fields =
                    fields.iter().map(|field| (field.name.clone(), self.node(&field.value), field.optional)).collect();
                Node::Message(name.clone(), fields)
            }
            ExprKind::Fold(fold) => self.fold(fold),
        }
    }

    /// A variable of a loop around, or of the caller.
    fn variable(&self, expr: &Expr, name: &Arc<str>) -> Node {
        let is_simple = matches!(expr.kind, ExprKind::Ident(_));
        let is_global = matches!(&expr.kind, ExprKind::Ident(text) if text.starts_with('.'));
        match self.locals.iter().rposition(|local| local == name).filter(|_| is_simple && !is_global) {
            Some(place) => Node::Local(place),
            None => Node::Global(name.clone()),
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Node {
        if &*call.function == operator::OPTIONAL_SELECT {
            return match call.args.as_slice() {
                [operand, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] => {
                    Node::OptionalSelect(self.boxed(operand), field.clone())
                }
                _ => Node::Constant(Value::Null),
            };
        }
        let Some(Reference::Function(function, is_qualified)) = self.checked.references[expr.id].clone() else {
            return Node::Constant(Value::Null);
        };
        let target = call.target.as_deref().filter(|target| !is_qualified || qualified_name(target).is_none());
        let mut args: Vec<Node> = target.into_iter().chain(&call.args).map(|arg| self.node(arg)).collect();
        match (function.name, args.len()) {
            (operator::CONDITIONAL, 3) => {
                let (third, second) = (args.pop(), args.pop());
                let first = args.pop();
                match (first, second, third) {
                    (Some(a), Some(b), Some(c)) => Node::Conditional(Box::new((a, b, c))),
                    _ => Node::Constant(Value::Null),
                }
            }
            (operator::NOT_STRICTLY_FALSE, 1) => Node::NotStrictlyFalse(Box::new(args.remove(0))),
            (operator::AND | operator::OR | "or" | "orValue", 2) => {
                let second = args.remove(1);
                let both = Box::new((args.remove(0), second));
                match function.name {
                    operator::AND => Node::And(both),
                    operator::OR => Node::Or(both),
                    name => Node::OrElse(both, name == "orValue"),
                }
            }
            ("matches" | "find" | "findAll", _) => {
                let is_constant = matches!(args.get(1), Some(Node::Constant(Value::String(_))));
                let pattern = is_constant.then(ConstantPattern::default);
                Node::Call(function, args, pattern)
            }
            ("sum", 1) => {
                args.push(Node::Constant(zero(&self.checked.types[expr.id])));
                Node::Call(function, args, None)
            }
            _ => fold_call(function, args),
        }
    }

    fn fold(&mut self, fold: &Fold) -> Node {
        let depth = self.locals.len();
        if fold.is_binding() {
            let value = self.node(&fold.start);
            self.locals.push(fold.accumulator.clone());
            let result = self.node(&fold.result);
            self.locals.truncate(depth);
            return Node::Bind(Box::new((value, result)));
        }
        let (range, start) = (self.node(&fold.range), self.node(&fold.start));
        self.locals.push(fold.accumulator.clone());
        self.locals.push(fold.variable.clone());
        self.locals.extend(fold.second.clone());
        let condition = self.node(&fold.condition);
        let step = append_in_place(self.node(&fold.step), depth);
        self.locals.truncate(depth + 1);
        let result = self.node(&fold.result);
        self.locals.truncate(depth);
        Node::Fold(Box::new(FoldNode { range, has_second: fold.second.is_some(), start, condition, step, result }))
    }
}

/// Replaces a step that adds to the accumulator by one that adds in place, so that collecting n items does not copy n² of them.
fn append_in_place(step: Node, place: usize) -> Node {
    match step {
        Node::Call(function, mut args, pattern) => {
            let is_own = matches!(args.first(), Some(Node::Local(at)) if *at == place);
            match (function.name, is_own) {
                (operator::ADD, true) => match args.pop() {
                    Some(Node::List(mut items)) if items.len() == 1 && !items[0].1 => {
                        Node::Append(place, Box::new(items.remove(0).0))
                    }
                    Some(Node::Constant(Value::List(List::Owned(items)))) if items.len() == 1 => {
                        Node::Append(place, Box::new(Node::Constant(items[0].clone())))
                    }
                    other => {
                        args.extend(other);
                        Node::Call(function, args, pattern)
                    }
                },
                ("cel.@mapInsert", true) => Node::Insert(place, args.split_off(1)),
                _ => Node::Call(function, args, pattern),
            }
        }
        Node::Conditional(parts) => {
            let (condition, then, otherwise) = *parts;
            Node::Conditional(Box::new((condition, append_in_place(then, place), otherwise)))
        }
        other => other,
    }
}

/// Returns the zero of a type of numbers.
fn zero(ty: &Type) -> Value<'static> {
    match ty {
        Type::Uint => Value::Uint(0),
        Type::Double => Value::Double(0.0),
        Type::Duration => Value::Duration(0),
        _ => Value::Int(0),
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(super::value::Text::Owned(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

fn as_constant(node: &Node) -> Option<&Value<'static>> {
    if let Node::Constant(value) = node { Some(value) } else { None }
}

/// Builds a list; one of constants becomes a constant.
fn fold_list(nodes: Vec<(Node, bool)>) -> Node {
    let constants: Option<Vec<Value<'static>>> =
        nodes.iter().map(|(node, optional)| as_constant(node).filter(|_| !optional).cloned()).collect();
    constants.map_or(Node::List(nodes), |items| Node::Constant(Value::list(items)))
}

/// Builds a map; one of constants becomes a constant.
fn fold_map(nodes: Vec<(Node, Node, bool)>) -> Node {
    let constants: Option<BTreeMap<MapKey, Value<'static>>> = nodes
        .iter()
        .map(|(key, value, optional)| {
            let key = MapKey::from_value(as_constant(key).filter(|_| !optional)?)?;
            Some((key, as_constant(value)?.clone()))
        })
        .collect();
    match constants.filter(|constants| constants.len() == nodes.len()) {
        Some(entries) => Node::Constant(Value::Map(Map::Owned(Arc::new(entries)))),
        None => Node::Map(nodes),
    }
}

/// Builds a call; a conversion of a constant becomes a constant.
fn fold_call(function: &'static Function, args: Vec<Node>) -> Node {
    let converts = matches!(
        function.name,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "uint" | "type"
    );
    if converts
        && let [Node::Constant(value)] = args.as_slice()
        && let Ok(result) = (function.run)(&super::limits::WorkLimits::default(), std::slice::from_ref(value))
    {
        return Node::Constant(result);
    }
    Node::Call(function, args, None)
}
