//! The state of the parser, with which it builds the tree.
//!
//! Never: decides which tokens belong to a part; [`super::parse`] does. Start reading at [`Parser`].

use super::ast::{Call, Expr, ExprKind};
use super::recovery::{GaveUp, Tokens};
use super::source::Source;

/// The result of a rule; an error means that the parser has given up.
pub type Parsed = Result<Expr, GaveUp>;

/// The state of the parser.
pub struct Parser {
    /// The tokens.
    pub tokens: Tokens,
    /// The text and positions.
    pub source: Source,
    /// The depth of the part that is being read.
    pub depth: usize,
}

impl Parser {
    /// Creates a node at a position.
    pub fn node(&mut self, position: usize, kind: ExprKind) -> Expr {
        Expr { id: self.source.add(position), kind }
    }

    /// Creates a call of a function that is not a member.
    pub fn call(&mut self, position: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.node(position, ExprKind::Call(Call { function: function.into(), target: None, args }))
    }

    /// Reports an error at a position, and returns the node that replaces the invalid expression.
    pub fn report_error(&mut self, position: usize, message: impl Into<String>) -> Expr {
        self.tokens.report(position, message);
        self.node(position, ExprKind::Error)
    }
}
