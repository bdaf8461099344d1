//! Checks the rules of a definition: their syntax, their types and their estimated cost
//! (k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation).

use super::super::structural::properties;
use super::{VALIDATIONS, environment, field_path, is_embedded, rules_of};
use crate::cel::names::escape;
use crate::cel::{Decl, Program, Type, compile};
use crate::go::json;
use crate::kinds::custom::has_rules;
use crate::kinds::{FieldError, FieldErrors, FieldPath};
use crate::object::IgnorePoison;
use serde_json::Value;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

/// Maximum cost of one rule.
const MAX_RULE_COST: u64 = 10_000_000;
/// Maximum cost of all rules of a schema.
const MAX_SCHEMA_COST: u64 = 100_000_000;
/// Number of rules that are named when all together cost too much.
const MAX_NAMED_RULES: usize = 4;
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Maximum number of schemas whose errors are kept.
const MAX_KEPT: usize = 16;

/// The text of a schema with its path, and whether it is unchanged.
type Checked = (String, bool);

/// The errors of schemas, the oldest first.
type CheckedSchemas = Vec<(Checked, Vec<FieldError>)>;

/// Cache of the errors of schemas, so that their rules are compiled without the write lock.
static CHECKED: LazyLock<Mutex<CheckedSchemas>> = LazyLock::new(Mutex::default);

fn kept() -> MutexGuard<'static, CheckedSchemas> {
    CHECKED.lock().ignore_poison()
}

/// Whether the rules of a schema have to be compiled to know its errors.
pub fn needs_check(schema: &Value, path: &FieldPath, is_unchanged: bool) -> bool {
    let key = (format!("{path} {schema}"), is_unchanged);
    has_rules(schema) && !kept().iter().any(|(known, _)| *known == key)
}

/// Checks the rules of a schema, and keeps the errors.
pub fn check_and_keep(schema: &Value, path: &FieldPath, is_unchanged: bool) {
    errors(schema, path, is_unchanged);
}

/// The errors of the rules of a valid schema.
pub fn errors(schema: &Value, path: &FieldPath, is_unchanged: bool) -> Vec<FieldError> {
    let key = (format!("{path} {schema}"), is_unchanged);
    if let Some((_, known)) = kept().iter().find(|(known, _)| *known == key) {
        return known.clone();
    }
    let mut errors = FieldErrors::default();
    check(schema, path, is_unchanged, &mut errors);
    let mut kept = kept();
    if kept.len() >= MAX_KEPT {
        kept.remove(0);
    }
    kept.push((key, errors.0.clone()));
    errors.0
}

/// Checks the rules of a valid schema. The costs of single rules are not checked again when the schema is unchanged.
pub fn check(schema: &Value, path: &FieldPath, is_unchanged: bool, errors: &mut FieldErrors) {
    let mut walk = Walk {
        form: FieldErrors::default(),
        errors: FieldErrors::default(),
        total: 0,
        costly: Vec::new(),
        is_unchanged,
    };
    walk.visit(schema, Place { is_root: true, most: Some(1), ..Place::default() }, path);
    errors.extend(std::mem::take(&mut walk.form.0));
    errors.extend(std::mem::take(&mut walk.errors.0));
    if walk.total > MAX_SCHEMA_COST {
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        walk.costly.iter().for_each(|(path, _)| errors.forbidden(path, detail));
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(path, &over_budget(name, walk.total, MAX_SCHEMA_COST));
    }
}

/// The place of a schema in the tree.
#[derive(Clone, Default)]
struct Place {
    is_root: bool,
    /// The declaration, where a rule at this place or above needs it.
    decl: Option<Arc<Decl>>,
    has_rules_above: bool,
    /// The number of times that the data can be in an object; `None` without a bound.
    most: Option<u64>,
    /// The list around it whose items have no old values.
    uncorrelated: Option<FieldPath>,
    /// Whether it is inside of `not`, `anyOf` and so on, where rules are not compiled.
    is_nested: bool,
}

struct Walk {
    /// Errors of the form of rules.
    form: FieldErrors,
    /// Errors of expressions.
    errors: FieldErrors,
    total: u64,
    costly: Vec<(FieldPath, u64)>,
    is_unchanged: bool,
}

impl Walk {
    /// Visits a schema after those below it.
    fn visit(&mut self, schema: &Value, mut place: Place, path: &FieldPath) {
        let errors_before = self.form.0.len();
        let rules = rules_of(schema);
        place.has_rules_above |= !rules.is_empty() && !place.is_nested;
        if place.has_rules_above && place.decl.is_none() {
            place.decl = Decl::from_schema(schema, place.is_root || is_embedded(schema));
        }
        let inside = |decl: Option<Arc<Decl>>| Place {
            is_root: false,
            decl: decl.filter(|_| place.has_rules_above),
            most: most_below(schema, place.most),
            ..place.clone()
        };
        let element = || inside(place.decl.as_ref().and_then(|decl| decl.element().cloned()));
        if schema["additionalProperties"].is_object() {
            self.visit(&schema["additionalProperties"], element(), &path.child("additionalProperties"));
        }
        for (name, field) in properties(schema) {
            let decl = escape(name).and_then(|name| Some(place.decl.as_ref()?.field(&name)?.decl.clone()));
            self.visit(field, inside(decl), &path.child("properties").key(name));
        }
        for word in ["allOf", "oneOf", "anyOf"] {
            for (index, part) in schema[word].as_array().into_iter().flatten().enumerate() {
                let nested = Place { is_nested: true, has_rules_above: false, ..Place::default() };
                self.visit(part, nested, &path.child(word).index(index));
            }
        }
        if schema["items"].is_object() {
            let mut items = element();
            if schema["x-kubernetes-list-type"] != "map" {
                items.uncorrelated.get_or_insert_with(|| path.clone());
            }
            self.visit(&schema["items"], items, &path.child("items"));
        }
        if rules.is_empty() {
            return;
        }
        let path = path.child(VALIDATIONS);
        for (index, rule) in rules.iter().enumerate() {
            self.check_form(rule, schema, &path.index(index));
        }
        if self.form.0.len() > errors_before || place.is_nested {
            return;
        }
        let Some(decl) = &place.decl else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                          unable to convert structural schema to CEL declarations";
            return self.errors.internal(&path, detail);
        };
        for (index, rule) in rules.iter().enumerate() {
            self.check_rule(rule, decl, &place, &path.index(index));
        }
    }

    fn check_form(&mut self, rule: &Value, schema: &Value, path: &FieldPath) {
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let has_breaks = |text: &str| text.contains(['\n', '\r']);
        let (source, message, field) = (text("rule").trim(), text("message"), text("fieldPath"));
        let errors = &mut self.form;
        if source.is_empty() {
            errors.required(&path.child("rule"), "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.invalid(&path.child("message"), message, "must be non-empty if specified");
        } else if has_breaks(message.trim()) {
            errors.invalid(&path.child("message"), message, "must not contain line breaks");
        } else if has_breaks(source) && message.trim().is_empty() {
            errors.required(&path.child("message"), "message must be specified if rule contains line breaks");
        }
        let expression = text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.required(&path.child("messageExpression"), detail);
        }
        if let Some(reason) = rule["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
            errors.unsupported(&path.child("reason"), reason, &REASONS);
        }
        if field.is_empty() {
            return;
        }
        let path = path.child("fieldPath");
        if field.trim().is_empty() {
            errors.invalid(&path, field, "must be non-empty if specified");
        }
        if has_breaks(field) {
            errors.invalid(&path, field, "must not contain line breaks");
        }
        if field_path::normalize(field, schema).is_none() {
            errors.invalid(&path, field, "must be a valid path");
        }
    }

    fn check_rule(&mut self, rule: &Value, decl: &Arc<Decl>, place: &Place, path: &FieldPath) {
        let env = environment(rule, decl);
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let wrong = |output: &Type| !matches!(output, Type::Bool);
        let compiled = match compile(text("rule"), &env, Some(decl)) {
            Err(issues) => Err(format!("compilation failed: {issues}")),
            Ok(program) if wrong(&program.output) => Err("cel expression must evaluate to a bool".to_owned()),
            Ok(program) => Ok(program),
        };
        let message = Some(text("messageExpression")).filter(|text| !text.is_empty() && compiled.is_ok());
        let message = message.map(|text| match compile(text, &env, Some(decl)) {
            Err(issues) => Err(format!("messageExpression compilation failed: {issues}")),
            Ok(program) if !matches!(program.output, Type::String) => {
                Err("messageExpression must evaluate to a string".to_owned())
            }
            Ok(program) => Ok(program),
        });
        let at = path.child("rule");
        if let Ok(program) = &compiled {
            let most = place.most.unwrap_or_else(|| decl.most_in_request());
            self.add_cost("estimated rule cost", program.most_cost.saturating_mul(most), &at);
        }
        if let Err(detail) = &compiled {
            self.errors.invalid_text(&at, &printed(rule), detail);
        }
        match message {
            Some(Err(detail)) => {
                self.errors.invalid_text(&path.child("messageExpression"), &printed(rule), &detail);
            }
            Some(Ok(program)) => {
                self.add_cost("estimated messageExpression cost", program.most_cost, &path.child("messageExpression"));
            }
            None => {}
        }
        self.check_old(rule, compiled.ok().as_ref(), place, path);
    }

    fn check_old(&mut self, rule: &Value, program: Option<&Program>, place: &Place, path: &FieldPath) {
        if program.is_some_and(|program| program.uses("oldSelf")) {
            if let Some(list) = &place.uncorrelated {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
                self.errors.invalid(&path.child("rule"), rule["rule"].clone(), &detail);
            }
        } else if !rule["optionalOldSelf"].is_null() {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.invalid(&path.child("optionalOldSelf"), rule["optionalOldSelf"].clone(), detail);
        }
    }

    fn add_cost(&mut self, name: &str, cost: u64, path: &FieldPath) {
        if cost > MAX_RULE_COST && !self.is_unchanged {
            self.errors.forbidden(path, &over_budget(name, cost, MAX_RULE_COST));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= MAX_SCHEMA_COST / 100 {
            self.costly.push((path.clone(), cost));
            self.costly.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.costly.truncate(MAX_NAMED_RULES);
        }
    }
}

/// The number of times that the data of a schema inside of this one can be in an object.
fn most_below(schema: &Value, most: Option<u64>) -> Option<u64> {
    let factor = match schema["type"].as_str() {
        Some("object") if !schema["additionalProperties"].is_null() => schema["maxProperties"].as_u64(),
        Some("array") => schema["maxItems"].as_u64(),
        _ => Some(1),
    };
    Some(most?.saturating_mul(factor?))
}

fn over_budget(name: &str, cost: u64, most: u64) -> String {
    let factor = cost as f64 / most as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength \
         where arrays, maps, and strings are declared)"
    )
}

/// A rule as Go prints its internal form.
fn printed(rule: &Value) -> String {
    let text = |field: &str| json::to_json(&Value::from(rule[field].as_str().unwrap_or_default()));
    let optional = |field: &str| if rule[field].is_null() { "null".to_owned() } else { rule[field].to_string() };
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        optional("reason"),
        text("fieldPath"),
        optional("optionalOldSelf"),
    )
}
