//! The expressions of admission policies, and of the conditions of webhooks, compiled.
//!
//! Knows: the variables that they can use and the types that they must have (`k8s.io/apiserver/pkg/admission/plugin/cel`).
//! Never: reads an object or decides about one; the API server does. Start reading at [`PolicyPrograms`].

pub mod type_check;
mod variables;

pub use variables::{Available, NAMESPACE, REQUEST, declarations};

use super::super::{FieldErrors, FieldPath};
use crate::cel::cache::{self, Compiled};
use crate::cel::types::JSON_PATCH;
use crate::cel::{Declarations, Program, Type};
use serde_json::Value;
use std::sync::Arc;

/// The type that the value of an expression must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// Any type.
    Anything,
    /// `bool`
    Bool,
    /// `string`
    String,
    /// `string` or `null`
    OptionalString,
    /// An apply configuration.
    Configuration,
    /// The operations of a JSON patch.
    JsonPatch,
}

impl Wanted {
    fn fits(self, found: &Type) -> bool {
        match self {
            Wanted::Anything => true,
            Wanted::Bool => matches!(found, Type::Bool),
            Wanted::String => matches!(found, Type::String),
            Wanted::OptionalString => matches!(found, Type::String | Type::Null),
            Wanted::Configuration => matches!(found, Type::Configuration(path) if &**path == "Object"),
            Wanted::JsonPatch => {
                matches!(found, Type::List(item) if matches!(**item, Type::Named(name) if name == JSON_PATCH))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Wanted::Anything => "any",
            Wanted::Bool => "bool",
            Wanted::String => "string",
            Wanted::OptionalString => "[string null_type]",
            Wanted::Configuration => "Object",
            Wanted::JsonPatch => "list(JSONPatch)",
        }
    }
}

/// Compiles an expression that must have a type; the error is the detail of a field error.
pub fn compile_as(text: &str, declared: &Declarations, wanted: Wanted) -> Result<Arc<Program>, String> {
    check_type(cache::compile_and_keep(text, declared), wanted)
}

fn check_type(compiled: Compiled, wanted: Wanted) -> Result<Arc<Program>, String> {
    let program = compiled.map_err(|issues| format!("compilation failed: {issues}"))?;
    if wanted.fits(&program.output) {
        return Ok(program);
    }
    let (one_of, found) = (if wanted == Wanted::OptionalString { "one of " } else { "" }, &program.output);
    let found = if matches!(found, Type::Null) { "null_type".to_owned() } else { found.to_string() };
    Err(format!("must evaluate to {one_of}{} but got {found}", wanted.name()))
}

/// An expression and its program, or why there is none.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The text.
    pub text: String,
    /// The program.
    pub program: Result<Arc<Program>, String>,
}

/// Returns the program of an expression; `None` stops the compilation.
type ProgramSource = fn(&str, &Declarations) -> Option<Compiled>;

/// A validation of a policy.
#[derive(Clone, Debug)]
pub struct Validation {
    /// The condition.
    pub expression: Expression,
    /// The message; empty without one.
    pub message: String,
    /// The computed message.
    pub message_expression: Option<Expression>,
    /// The reason of the refusal.
    pub reason: Option<String>,
}

/// A mutation of a policy.
#[derive(Clone, Debug)]
pub struct PolicyMutation {
    /// Whether the expression gives the operations of a JSON patch; otherwise an apply configuration.
    pub is_patch: bool,
    /// The expression.
    pub expression: Expression,
}

/// The compiled expressions of a policy.
#[derive(Clone, Debug, Default)]
pub struct PolicyPrograms {
    /// The conditions by name.
    pub conditions: Vec<(String, Expression)>,
    /// The variables by name, in their order.
    pub variables: Vec<(String, Expression)>,
    /// The validations.
    pub validations: Vec<Validation>,
    /// The audit annotations by key.
    pub annotations: Vec<(String, Expression)>,
    /// The mutations.
    pub mutations: Vec<PolicyMutation>,
}

impl PolicyPrograms {
    /// Compiles the expressions of a policy's spec, or of a webhook, which has only conditions.
    pub fn compile(spec: &Value, mutates: bool) -> PolicyPrograms {
        let compile: ProgramSource = |text, declared| Some(cache::compile_and_keep(text, declared));
        PolicyPrograms::read(spec, mutates, compile).unwrap_or_default()
    }

    /// Whether this process has compiled all of these expressions before.
    pub fn are_compiled(spec: &Value, mutates: bool) -> bool {
        PolicyPrograms::read(spec, mutates, cache::find_compiled).is_some()
    }

    fn read(spec: &Value, mutates: bool, source: ProgramSource) -> Option<PolicyPrograms> {
        let new = |text: &str, declared: &Declarations, wanted: Wanted| {
            let program = check_type(source(text, declared)?, wanted);
            Some(Expression { text: text.to_owned(), program })
        };
        let has_params = !spec["paramKind"].is_null();
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let all = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        let available = Available { params: has_params, authorizer: true, mutations: false };
        let mut programs = PolicyPrograms::default();
        let declared = declarations(available);
        for condition in all("matchConditions") {
            let expression = new(&text(&condition, "expression"), &declared, Wanted::Bool)?;
            programs.conditions.push((text(&condition, "name"), expression));
        }
        let mut declared = declarations(Available { mutations: mutates, ..available });
        let mut without_authorizer = declarations(Available { authorizer: false, ..available });
        for variable in all("variables") {
            let (name, expression) = (text(&variable, "name"), text(&variable, "expression"));
            let expression = new(&expression, &declared, Wanted::Anything)?;
            let found = expression.program.as_ref().map_or(Type::Dyn, |program| program.output.clone());
            declared = declared.declare(&format!("variables.{name}"), found.clone());
            without_authorizer = without_authorizer.declare(&format!("variables.{name}"), found);
            programs.variables.push((name, expression));
        }
        for validation in all("validations") {
            let message = text(&validation, "messageExpression");
            let has_message = !message.trim().is_empty();
            let message_expression = match has_message {
                true => Some(new(&message, &without_authorizer, Wanted::String)?),
                false => None,
            };
            programs.validations.push(Validation {
                expression: new(&text(&validation, "expression"), &declared, Wanted::Bool)?,
                message: text(&validation, "message"),
                message_expression,
                reason: validation["reason"].as_str().map(str::to_owned),
            });
        }
        for annotation in all("auditAnnotations") {
            let expression = text(&annotation, "valueExpression");
            let expression = new(&expression, &without_authorizer, Wanted::OptionalString)?;
            programs.annotations.push((text(&annotation, "key"), expression));
        }
        for mutation in all("mutations") {
            let is_patch = mutation["patchType"] == "JSONPatch";
            let (field, wanted) = match is_patch {
                true => ("jsonPatch", Wanted::JsonPatch),
                false => ("applyConfiguration", Wanted::Configuration),
            };
            let expression = new(&text(&mutation[field], "expression"), &declared, wanted)?;
            programs.mutations.push(PolicyMutation { is_patch, expression });
        }
        Some(programs)
    }
}

/// The declarations of a policy while its fields are checked: each variable can be used by the ones after it.
pub struct PolicyCheck {
    declared: Declarations,
    without_authorizer: Declarations,
}

impl PolicyCheck {
    /// Starts a check.
    pub fn new(has_params: bool, mutates: bool) -> PolicyCheck {
        let available = Available { params: has_params, authorizer: true, mutations: mutates };
        PolicyCheck {
            declared: declarations(available),
            without_authorizer: declarations(Available { authorizer: false, ..available }),
        }
    }

    /// Checks an expression that may ask the authorizer.
    pub fn check(&self, text: &str, wanted: Wanted, path: &FieldPath, errors: &mut FieldErrors) {
        if let Err(detail) = compile_as(text, &self.declared, wanted) {
            errors.invalid(path, text, &detail);
        }
    }

    /// Checks an expression that may not.
    pub fn check_text(&self, text: &str, wanted: Wanted, path: &FieldPath, errors: &mut FieldErrors) {
        if let Err(detail) = compile_as(text, &self.without_authorizer, wanted) {
            errors.invalid(path, text, &detail);
        }
    }

    /// Checks a variable, which the expressions after it can use.
    pub fn add_variable(&mut self, name: &str, text: &str, path: &FieldPath, errors: &mut FieldErrors) {
        let found = match compile_as(text, &self.declared, Wanted::Anything) {
            Ok(program) => program.output.clone(),
            Err(detail) => {
                errors.invalid(path, text, &detail);
                Type::Dyn
            }
        };
        for declared in [&mut self.declared, &mut self.without_authorizer] {
            *declared = std::mem::take(declared).declare(&format!("variables.{name}"), found.clone());
        }
    }
}
