//! CEL rules of schemas (`x-kubernetes-validations`).
//!
//! [`definition`] checks the rules of a definition, [`RuleTree`] has them compiled, and [`RuleTree::evaluate`] applies them to an
//! object (k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel).
//! Never: decides when they are compiled; the API server does that without the write lock. Start reading at [`RuleTree`].

pub mod definition;
mod evaluate;
mod field_path;
#[cfg(test)]
mod tests;

pub use evaluate::NO_BUDGET;

use super::schema::has_flag;
use crate::cel::names::escape;
use crate::cel::{Decl, Declarations, Program, Type, compile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

const VALIDATIONS: &str = "x-kubernetes-validations";
/// The name of the type of `self`. No rule should depend on it.
const SELF_TYPE: &str = "selfType";

/// The compiled rules of a schema and of the schemas below it.
pub struct RuleTree {
    rules: Vec<Rule>,
    decl: Arc<Decl>,
    /// The declared type, for messages.
    type_name: String,
    fields: BTreeMap<String, RuleTree>,
    /// The rules of a list's items or a map's values.
    elements: Option<Box<RuleTree>>,
    /// The keys of a list of type map.
    keys: Vec<String>,
    /// The rules of `allOf`.
    all_of: Vec<RuleTree>,
}

/// A compiled rule.
struct Rule {
    program: Result<Program, String>,
    message_program: Option<Program>,
    uses_old: bool,
    /// Whether it also applies where there is no old value.
    optional_old: bool,
    rule: String,
    message: String,
    reason: Option<String>,
    field: Option<String>,
}

impl RuleTree {
    /// Compiles the rules of a schema; `None` when there are none.
    pub fn compile(schema: &Value) -> Option<RuleTree> {
        if !super::has_rules(schema) {
            return None;
        }
        compile_tree(schema, schema, Decl::from_schema(schema, true).as_ref())
    }

    /// Compiles the rules of a schema that is a part of another one; `None` when there are none.
    pub fn compile_part(schema: &Value) -> Option<RuleTree> {
        if !super::has_rules(schema) {
            return None;
        }
        compile_tree(schema, schema, Decl::from_schema(schema, is_embedded(schema)).as_ref())
    }
}

fn is_embedded(schema: &Value) -> bool {
    has_flag(schema, "x-kubernetes-embedded-resource")
}

/// Compiles the rules of `validations`, which is the schema itself or a part of its `allOf`.
fn compile_tree(validations: &Value, schema: &Value, decl: Option<&Arc<Decl>>) -> Option<RuleTree> {
    let decl = decl?;
    let rules: Vec<Rule> = rules_of(validations).iter().map(|rule| compile_rule(rule, schema, decl)).collect();
    let mut fields = BTreeMap::new();
    for (name, inner) in validations["properties"].as_object().into_iter().flatten() {
        let Some(schema) = schema["properties"].get(name) else { continue };
        let own = || Decl::from_schema(schema, is_embedded(schema));
        let decl = match escape(name) {
            Some(escaped) => decl.field(&escaped).map(|field| field.decl.clone()),
            None => own(),
        };
        if let Some(tree) = compile_tree(inner, schema, decl.as_ref()) {
            fields.insert(name.clone(), tree);
        }
    }
    let elements = ["items", "additionalProperties"].into_iter().find_map(|word| {
        let (inner, schema) = (&validations[word], &schema[word]);
        let is_both = inner.is_object() && schema.is_object();
        is_both.then(|| compile_tree(inner, schema, decl.element()))?
    });
    let all_of: Vec<RuleTree> = validations["allOf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| compile_tree(part, schema, Some(decl)))
        .collect();
    if rules.is_empty() && fields.is_empty() && elements.is_none() && all_of.is_empty() {
        return None;
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_keyed = schema["x-kubernetes-list-type"] == "map";
    Some(RuleTree {
        rules,
        decl: decl.clone(),
        type_name: schema["type"].as_str().unwrap_or_default().to_owned(),
        fields,
        elements: elements.map(Box::new),
        keys: keys.filter(|_| is_keyed).map(str::to_owned).collect(),
        all_of,
    })
}

fn rules_of(schema: &Value) -> &[Value] {
    schema[VALIDATIONS].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The variables of a rule.
fn environment(rule: &Value, decl: &Arc<Decl>) -> Declarations {
    let own = Type::declared(decl, SELF_TYPE);
    let old = if has_flag(rule, "optionalOldSelf") { Type::optional(own.clone()) } else { own.clone() };
    Declarations::default().declare("self", own).declare("oldSelf", old)
}

fn compile_rule(rule: &Value, schema: &Value, decl: &Arc<Decl>) -> Rule {
    let text = |field: &str| rule[field].as_str().unwrap_or_default();
    let env = environment(rule, decl);
    let program = compile(text("rule"), &env, None).map_err(|issues| issues.to_string());
    let message_program = Some(text("messageExpression")).filter(|text| !text.is_empty());
    Rule {
        uses_old: program.as_ref().is_ok_and(|program| program.uses("oldSelf")),
        program,
        message_program: message_program.and_then(|text| compile(text, &env, None).ok()),
        optional_old: has_flag(rule, "optionalOldSelf"),
        rule: text("rule").trim().to_owned(),
        message: text("message").trim().to_owned(),
        reason: rule["reason"].as_str().map(str::to_owned),
        field: field_path::normalize(text("fieldPath"), schema),
    }
}
