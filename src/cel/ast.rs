//! The syntax tree of an expression.
//!
//! Knows: the nodes that the parser builds and macros expand to. Each node has a number; [`super::source::Source`] knows its
//! position, the checker its type. Never: names a type. Start reading at [`Expr`].

use std::sync::Arc;

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Expr {
    /// The number of the node.
    pub id: usize,
    /// The content of the node.
    pub kind: ExprKind,
}

/// The content of a node.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A part with a syntax error, which has been reported.
    Error,
    /// A constant.
    Literal(Literal),
    /// A name.
    Ident(Arc<str>),
    /// A field of a value, or with `test` whether it is present (`has`).
    Select {
        /// The value.
        operand: Box<Expr>,
        /// The name of the field.
        field: Arc<str>,
        /// Whether only presence is asked for.
        test: bool,
    },
    /// A call of a function, operators included.
    Call(Call),
    /// A list; each element with whether it is optional.
    List(Vec<(Expr, bool)>),
    /// A map.
    Map(Vec<MapEntry>),
    /// A message of a named type.
    Struct(Arc<str>, Vec<FieldEntry>),
    /// The loop that macros are expanded to.
    Fold(Box<Fold>),
}

impl Expr {
    /// Returns the number of nodes on the longest way from this one down.
    pub fn depth(&self) -> usize {
        let deepest = |parts: &mut dyn Iterator<Item = &Expr>| parts.map(Expr::depth).max().unwrap_or(0);
        1 + match &self.kind {
            ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => 0,
            ExprKind::Select { operand, .. } => operand.depth(),
            ExprKind::Call(call) => deepest(&mut call.target.as_deref().into_iter().chain(&call.args)),
            ExprKind::List(items) => deepest(&mut items.iter().map(|(item, _)| item)),
            ExprKind::Map(entries) => deepest(&mut entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            ExprKind::Struct(_, fields) => deepest(&mut fields.iter().map(|field| &field.value)),
            ExprKind::Fold(fold) => {
                deepest(&mut [&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result].into_iter())
            }
        }
    }
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// `1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.0`
    Double(f64),
    /// `'a'`
    String(Arc<str>),
    /// `b'a'`
    Bytes(Arc<[u8]>),
}

/// A call of a function.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name; operators have names such as `_+_`.
    pub function: Arc<str>,
    /// The value before the dot.
    pub target: Option<Box<Expr>>,
    /// The arguments.
    pub args: Vec<Expr>,
}

/// An entry of a map.
#[derive(Clone, Debug)]
pub struct MapEntry {
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Whether the entry is left out when its value is absent.
    pub optional: bool,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct FieldEntry {
    /// The number of the entry.
    pub id: usize,
    /// The name of the field.
    pub name: Arc<str>,
    /// The value.
    pub value: Expr,
    /// Whether the field is left out when its value is absent.
    pub optional: bool,
}

/// A loop over a list or map: `accumulator` starts as `start` and becomes `step` for each item as long as `condition` holds.
#[derive(Clone, Debug)]
pub struct Fold {
    /// The list or map.
    pub range: Expr,
    /// The name of the item; of the index or key when there is a second name.
    pub variable: Arc<str>,
    /// The name of the value.
    pub second: Option<Arc<str>>,
    /// The name of the accumulator.
    pub accumulator: Arc<str>,
    /// The first value of the accumulator.
    pub start: Expr,
    /// The condition for going on.
    pub condition: Expr,
    /// The next value of the accumulator.
    pub step: Expr,
    /// The value of the whole.
    pub result: Expr,
}

impl Fold {
    /// Whether this only gives a name to a value, as `optMap` does.
    pub fn is_binding(&self) -> bool {
        matches!(&self.range.kind, ExprKind::List(items) if items.is_empty())
            && matches!(self.condition.kind, ExprKind::Literal(Literal::Bool(false)))
            && &*self.accumulator != ACCUMULATOR
    }
}

/// The accumulator of macros, which no expression can name.
pub const ACCUMULATOR: &str = "@result";

/// The names of operators.
pub mod operator {
    /// `a ? b : c`
    pub const CONDITIONAL: &str = "_?_:_";
    /// `a && b`
    pub const AND: &str = "_&&_";
    /// `a || b`
    pub const OR: &str = "_||_";
    /// `!a`
    pub const NOT: &str = "!_";
    /// `-a`
    pub const NEGATE: &str = "-_";
    /// `a == b`
    pub const EQUALS: &str = "_==_";
    /// `a + b`
    pub const ADD: &str = "_+_";
    /// `a[b]`
    pub const INDEX: &str = "_[_]";
    /// `a[?b]`
    pub const OPTIONAL_INDEX: &str = "_[?_]";
    /// `a.?b`
    pub const OPTIONAL_SELECT: &str = "_?._";
    /// The condition of the loops of `all` and `exists`: not false, an error included.
    pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";

    /// The operator between two values that is written as this text, with its precedence.
    pub fn binary(text: &str) -> Option<(&'static str, u8)> {
        Some(match text {
            "==" => (EQUALS, 1),
            "!=" => ("_!=_", 1),
            "<" => ("_<_", 1),
            "<=" => ("_<=_", 1),
            ">" => ("_>_", 1),
            ">=" => ("_>=_", 1),
            "in" => ("@in", 1),
            "+" => (ADD, 2),
            "-" => ("_-_", 2),
            "*" => ("_*_", 3),
            "/" => ("_/_", 3),
            "%" => ("_%_", 3),
            _ => return None,
        })
    }
}
