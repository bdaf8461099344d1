//! Checks of constants in a checked expression: texts of durations, times and patterns, and lists of one type
//! (`cel-go/cel/validator.go`).
//!
//! Never: checks a text that is not a constant; the evaluation does. Start reading at [`check`].

use super::ast::{Expr, ExprKind, Literal};
use super::check::Checked;
use super::source::{Issue, Source};
use super::types::Type;
use crate::go::regexp;
use crate::object::time;

/// Returns the errors in the constants of an expression.
pub fn check(checked: &Checked, source: &Source) -> Vec<Issue> {
    let mut literals = Literals { checked, source, issues: Vec::new() };
    literals.visit(&checked.expr, false);
    literals.issues
}

struct Literals<'a> {
    checked: &'a Checked,
    source: &'a Source,
    issues: Vec<Issue>,
}

impl Literals<'_> {
    /// Visits a part; inside of a call of `format`, lists may have elements of different types.
    fn visit(&mut self, expr: &Expr, in_format: bool) {
        match &expr.kind {
            ExprKind::Select { operand, .. } => self.visit(operand, in_format),
            ExprKind::Call(call) => {
                let in_format = in_format || &*call.function == "format";
                call.target.iter().for_each(|target| self.visit(target, in_format));
                call.args.iter().for_each(|arg| self.visit(arg, in_format));
                self.check_text(&call.function, call.args.last());
            }
            ExprKind::List(items) => {
                items.iter().for_each(|(item, _)| self.visit(item, in_format));
                if !in_format {
                    self.check_alike(items.iter().map(|(item, optional)| (item, *optional)));
                }
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    self.visit(&entry.key, in_format);
                    self.visit(&entry.value, in_format);
                }
                if !in_format {
                    self.check_alike(entries.iter().map(|entry| (&entry.key, false)));
                    self.check_alike(entries.iter().map(|entry| (&entry.value, entry.optional)));
                }
            }
            ExprKind::Struct(_, fields) => fields.iter().for_each(|field| self.visit(&field.value, in_format)),
            ExprKind::Fold(fold) => {
                for part in [&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result] {
                    self.visit(part, in_format);
                }
            }
            ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        }
    }

    fn report(&mut self, expr: &Expr, message: String) {
        self.issues.push(Issue { position: self.source.positions.get(expr.id).copied(), message });
    }

    fn check_text(&mut self, function: &str, arg: Option<&Expr>) {
        let Some(arg) = arg else { return };
        let ExprKind::Literal(Literal::String(text)) = &arg.kind else { return };
        let fits = match function {
            "duration" => time::parse_duration(text).is_ok(),
            "timestamp" => time::parse_rfc3339(text).is_ok(),
            "matches" => regexp::translate(text).is_ok_and(|pattern| pattern.states <= regexp::MAX_STATES),
            _ => true,
        };
        if !fits {
            self.report(arg, format!("invalid {function} argument"));
        }
    }

    fn check_alike<'e>(&mut self, elements: impl Iterator<Item = (&'e Expr, bool)>) {
        let mut first: Option<Type> = None;
        for (element, optional) in elements {
            let ty = &self.checked.types[element.id];
            let ty = if optional { ty.unwrap_optional().0 } else { ty.clone() };
            match &first {
                None => first = Some(ty),
                Some(wanted) if wanted.is(&ty) || wanted.is_dyn() && ty.is_dyn() => {}
                Some(wanted) => {
                    let message = format!("expected type '{wanted}' but found '{ty}'");
                    return self.report(element, message);
                }
            }
        }
    }
}
