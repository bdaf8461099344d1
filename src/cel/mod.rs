//! CEL, the language of the rules in definitions and of admission policies, as Kubernetes 1.36 has it.
//!
//! [`compile`] parses, expands macros, checks types and limits; [`eval::Context`] evaluates with a limit on the cost. Expressions
//! are data of users: depth, length, size, cost and work are bounded, and nothing panics.
//! Never: knows a kind, reads a clock, or calls anything outside but the [`foreign::authorizer::Authorize`] of the caller.
//! Start reading at [`compile`].

pub mod ast;
pub mod cache;
pub mod call_cost;
pub mod check;
pub mod decl;
pub mod equal;
mod estimate;
pub mod eval;
pub mod foreign;
mod json;
pub mod lex;
pub mod library;
mod limits;
mod literals;
mod macros;
pub mod names;
pub mod parse;
pub mod plan;
pub mod range;
pub mod recovery;
mod show;
pub mod source;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod types;
pub mod value;

pub use check::Declarations;
pub use decl::Decl;
pub use eval::{Context, Outcome};
pub use json::to_json;
pub use source::Issues;
pub use types::Type;
pub use value::{EvalError, Value};

use check::Reference;
use plan::Node;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum cost of one expression.
pub const CALL_LIMIT: u64 = 1_000_000;
/// Maximum cost of all expressions about an object, or of a policy's binding.
pub const BUDGET: u64 = 10_000_000;
/// Maximum cost of the conditions of a policy or webhook.
pub const CONDITIONS_BUDGET: u64 = 2_500_000;

/// A compiled expression.
#[derive(Clone)]
pub struct Program {
    node: Node,
    /// The type of its value.
    pub output: Type,
    /// The variables that it uses.
    pub uses: BTreeSet<Arc<str>>,
    /// The maximum cost, when the size of the data is declared.
    pub most_cost: u64,
    /// The depth of its tree.
    depth: usize,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("output", &self.output).finish_non_exhaustive()
    }
}

impl Program {
    /// Whether it uses a variable.
    pub fn uses(&self, name: &str) -> bool {
        self.uses.contains(name)
    }
}

/// Compiles an expression; the errors are those of cel-go. With `root`, which declares the data that its variables start
/// from, it also estimates the cost.
pub fn compile(text: &str, env: &Declarations, root: Option<&Decl>) -> Result<Program, Issues> {
    let (expr, source) = parse::parse(text)?;
    let checked = check::check(expr, &source, env).map_err(|issues| source.print_issues(issues))?;
    let issues = literals::check(&checked, &source);
    if !issues.is_empty() {
        return Err(source.print_issues(issues));
    }
    let depth = checked.expr.depth();
    let uses = checked.references.iter().flatten().filter_map(|reference| match reference {
        Reference::Variable(name) => Some(name.clone()),
        _ => None,
    });
    Ok(Program {
        node: plan::build(&checked),
        output: checked.types[checked.expr.id].clone(),
        uses: uses.collect(),
        most_cost: root.map_or(u64::MAX, |root| estimate::estimate(&checked, root).max),
        depth,
    })
}
