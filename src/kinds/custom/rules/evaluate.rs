//! Applies compiled rules to an object (k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go).

use super::{Rule, RuleTree};
use crate::cel::{BUDGET, CALL_LIMIT, Context, EvalError, Value};
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::Value as Json;

/// Maximum length of a computed message.
const MAX_MESSAGE_LENGTH: usize = 5 * 1024;
/// The error when the expressions of an object cost more than they may.
pub const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The old and the new value of a write, if they correspond.
type Pair<'v> = Option<(&'v Json, &'v Json)>;

/// Ratcheting of a value (KEP-4008): a rule that an unchanged value breaks does not refuse the write.
#[derive(Clone, Copy, Default)]
struct Ratchet<'v> {
    current: Pair<'v>,
    parent: Pair<'v>,
}

impl<'v> Ratchet<'v> {
    fn is_unchanged(&self) -> bool {
        self.current.or(self.parent).is_some_and(|(old, new)| old == new)
    }

    fn descend(self, name: Option<&str>, pair: Pair<'v>) -> Ratchet<'v> {
        if self.current.is_none() {
            return self;
        }
        // Both objects are converted to the same version, so a comparison of these fields shows no change.
        if self.parent.is_none() && matches!(name, Some("apiVersion" | "kind")) {
            return Ratchet::default();
        }
        Ratchet { current: pair, parent: self.current }
    }
}

/// The errors found so far, and the budget that is left; no rule runs without one.
struct Findings<'e> {
    errors: &'e mut FieldErrors,
    budget: Option<u64>,
    warnings: Vec<String>,
}

impl RuleTree {
    /// Adds the errors of an object that was `old` before the write. Returns warnings for rules that unchanged values break.
    pub fn evaluate(&self, object: &Json, old: Option<&Json>, errors: &mut FieldErrors) -> Vec<String> {
        let mut findings = Findings { errors, budget: Some(BUDGET), warnings: Vec::new() };
        let ratchet = Ratchet { current: old.map(|old| (old, object)), parent: None };
        self.visit(object, old, ratchet, &FieldPath::default(), &mut findings);
        findings.warnings
    }

    fn visit(&self, value: &Json, old: Option<&Json>, ratchet: Ratchet, path: &FieldPath, found: &mut Findings) {
        if value.is_null() || found.budget.is_none() {
            return;
        }
        self.apply_rules(value, old.filter(|old| !old.is_null()), ratchet, path, found);
        for part in &self.all_of {
            part.visit(value, old, Ratchet { current: None, parent: ratchet.parent }, path, found);
        }
        match value {
            Json::Array(items) => {
                let Some(elements) = &self.elements else { return };
                for (index, item) in items.iter().enumerate() {
                    let before = old.and_then(|old| self.counterpart(old, item));
                    let pair = before.map(|before| (before, item));
                    elements.visit(item, before, ratchet.descend(None, pair), &path.index(index), found);
                }
            }
            Json::Object(fields) => {
                for (name, field) in fields {
                    let before = old.and_then(|old| old.get(name));
                    let below = ratchet.descend(Some(name), before.map(|before| (before, field)));
                    if let Some(elements) = &self.elements {
                        elements.visit(field, before, below, &path.key(name), found);
                    }
                    if let Some(tree) = self.fields.get(name) {
                        tree.visit(field, before, below, &path.child(name), found);
                    }
                }
            }
            _ => {}
        }
    }

    /// The item with the same keys in a list of type map.
    fn counterpart<'v>(&self, old: &'v Json, item: &Json) -> Option<&'v Json> {
        let is_same = |other: &&Json| self.keys.iter().all(|key| other.get(key) == item.get(key));
        old.as_array().filter(|_| !self.keys.is_empty())?.iter().find(is_same)
    }

    fn apply_rules(&self, value: &Json, old: Option<&Json>, ratchet: Ratchet, path: &FieldPath, found: &mut Findings) {
        if self.rules.is_empty() {
            return;
        }
        let path = if *path == FieldPath::default() { FieldPath::root("<nil>") } else { path.clone() };
        let own = Value::from_json(value, Some(&self.decl));
        let before = old.map(|old| Value::from_json(old, Some(&self.decl))).transpose();
        let (own, before) = match (own, before) {
            (Ok(own), Ok(before)) => (own, before),
            (Err(error), _) | (_, Err(error)) => {
                return found.errors.invalid(&path, self.type_name.as_str(), &error.to_string());
            }
        };
        let mut context = Context::default();
        context.bind("self", own);
        for rule in &self.rules {
            if found.budget.is_none_or(|budget| budget == 0) {
                found.errors.invalid(&path, self.type_name.as_str(), NO_BUDGET);
                found.budget = None;
                return;
            }
            if rule.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            let optional = before.clone().map_or(Value::Optional(None), Value::present);
            match &before {
                _ if rule.optional_old => context.rebind("oldSelf", optional),
                Some(before) => context.rebind("oldSelf", before.clone()),
                None => {}
            }
            if !self.apply(rule, &context, value, ratchet, &path, found) {
                return;
            }
        }
    }

    /// Applies a rule. Returns false when no other may run.
    fn apply(
        &self,
        rule: &Rule,
        context: &Context,
        value: &Json,
        ratchet: Ratchet,
        path: &FieldPath,
        found: &mut Findings,
    ) -> bool {
        let type_name = self.type_name.as_str();
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => {
                found.errors.invalid(path, type_name, &format!("rule compile error: {why}"));
                return true;
            }
        };
        let outcome = context.evaluate(program, CALL_LIMIT);
        if !found.spend(outcome.cost) {
            found.errors.invalid(path, type_name, NO_BUDGET);
            return false;
        }
        let shown = if rule.message.is_empty() { &rule.rule } else { &rule.message };
        match outcome.result {
            Ok(Value::Bool(true)) => return true,
            Ok(_) => {}
            Err(EvalError::Costly) => {
                let why = EvalError::Costly;
                let detail = format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
                );
                found.errors.invalid(path, type_name, &detail);
                found.budget = None;
                return false;
            }
            Err(EvalError::Failed(why)) => {
                let detail = match why.starts_with("no such overload") {
                    true => format!(
                        "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
                    ),
                    false => format!("{why} evaluating rule: {shown}"),
                };
                found.errors.invalid(path, type_name, &detail);
                return true;
            }
        }
        let detail = match message(rule, context, found) {
            Ok(Some(message)) => message,
            Ok(None) if rule.message.is_empty() => format!("failed rule: {}", rule.rule),
            Ok(None) => rule.message.clone(),
            Err(why) => {
                found.errors.invalid(path, type_name, &why);
                return false;
            }
        };
        let path = rule.field.as_ref().map_or_else(|| path.clone(), |field| child(path, field));
        self.report(rule, value, &path, &detail, ratchet, found);
        true
    }

    fn report(
        &self,
        rule: &Rule,
        value: &Json,
        path: &FieldPath,
        detail: &str,
        ratchet: Ratchet,
        found: &mut Findings,
    ) {
        let mut own = FieldErrors::default();
        let is_omitted = matches!(self.type_name.as_str(), "object" | "array");
        match rule.reason.as_deref() {
            Some("FieldValueForbidden") => own.forbidden(path, detail),
            Some("FieldValueRequired") => own.required(path, detail),
            Some("FieldValueDuplicate") if is_omitted => own.duplicate_without_value(path),
            Some("FieldValueDuplicate") => own.duplicate(path, value.clone()),
            _ if is_omitted => own.invalid_without_value(path, detail),
            _ => own.invalid(path, value.clone(), detail),
        }
        if !rule.uses_old && ratchet.is_unchanged() {
            found.warnings.extend(own.0.iter().map(ToString::to_string));
        } else {
            found.errors.extend(own.0);
        }
    }
}

impl Findings<'_> {
    /// Takes a cost from the budget; false when that is not enough.
    fn spend(&mut self, cost: u64) -> bool {
        self.budget = self.budget.and_then(|budget| budget.checked_sub(cost));
        self.budget.is_some()
    }
}

fn child(path: &FieldPath, field: &str) -> FieldPath {
    if *path == FieldPath::root("<nil>") { FieldPath::root(field) } else { path.child(field) }
}

/// The computed message; `None` when the rule has none or it cannot be used, an error when there is no budget for it.
fn message(rule: &Rule, context: &Context, found: &mut Findings) -> Result<Option<String>, String> {
    let Some(program) = &rule.message_program else { return Ok(None) };
    let outcome = context.evaluate(program, CALL_LIMIT);
    if !found.spend(outcome.cost) {
        return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".into());
    }
    match outcome.result {
        Err(EvalError::Costly) => {
            found.budget = None;
            Err("no further validation rules will be run due to call cost exceeds limit for messageExpression".into())
        }
        Ok(Value::String(text)) => {
            let text = text.trim();
            let is_usable = !text.is_empty() && text.len() <= MAX_MESSAGE_LENGTH && !text.contains('\n');
            Ok(is_usable.then(|| text.to_owned()))
        }
        _ => Ok(None),
    }
}
