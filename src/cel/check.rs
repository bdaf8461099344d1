//! Finds the type of each part of an expression, and the declarations of its names (`cel-go/checker/checker.go`).
//!
//! Never: evaluates a part. Start reading at [`check`].

use super::ast::{Call, Expr, ExprKind, FieldEntry, Fold, Literal, MapEntry, operator};
use super::library::{self, Function, Overload};
use super::source::{Issue, Source};
use super::types::{JSON_PATCH, Substitution, Type, is_less_specific};
use ring::digest::{Context as Hash, SHA256};
use std::collections::HashMap;
use std::sync::Arc;

/// The names that an expression can use.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    /// The variables and their types.
    variables: HashMap<Arc<str>, Type>,
    /// Whether the types of mutations, `Object` and `JSONPatch`, are known.
    pub mutates: bool,
    /// The hash of all that was declared. It identifies the declarations, however many there are.
    digest: [u8; 32],
}

impl Declarations {
    /// Adds a variable; an earlier one with its name remains.
    pub fn declare(mut self, name: &str, ty: Type) -> Declarations {
        let mut hash = Hash::new(&SHA256);
        hash.update(&self.digest);
        // Types are known by their names, which belong to one declaration each.
        hash.update(format!("{name}: {ty}").as_bytes());
        self.digest.copy_from_slice(hash.finish().as_ref());
        self.variables.entry(name.into()).or_insert(ty);
        self
    }

    /// Returns the hash of the variables and their types.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

/// The meaning of a node.
#[derive(Clone)]
pub enum Reference {
    /// A variable, of the expression's environment or of a loop.
    Variable(Arc<str>),
    /// A type, by the name of its values.
    TypeName(Arc<str>),
    /// A function, and whether the name before the dot is part of its name.
    Function(&'static Function, bool),
}

/// An expression with its types.
pub struct Checked {
    /// The tree.
    pub expr: Expr,
    /// The type of each node.
    pub types: Vec<Type>,
    /// The meaning of each node that is a name or a call.
    pub references: Vec<Option<Reference>>,
}

/// Finds the types of an expression; the error lists its type errors.
pub fn check(expr: Expr, source: &Source, env: &Declarations) -> Result<Checked, Vec<Issue>> {
    let count = source.positions.len();
    let mut checker = Checker {
        source,
        env,
        scopes: Vec::new(),
        substitution: Substitution::default(),
        types: vec![Type::Error; count],
        references: vec![None; count],
        issues: Vec::new(),
    };
    checker.check(&expr);
    let Checker { substitution, mut types, references, issues, .. } = checker;
    if !issues.is_empty() {
        return Err(issues);
    }
    types.iter_mut().for_each(|ty| *ty = substitution.apply(ty, true));
    Ok(Checked { expr, types, references })
}

struct Checker<'a> {
    source: &'a Source,
    env: &'a Declarations,
    /// The variables of loops, the innermost last.
    scopes: Vec<(Arc<str>, Type)>,
    /// The types that were found for type variables.
    substitution: Substitution,
    types: Vec<Type>,
    references: Vec<Option<Reference>>,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn report(&mut self, id: usize, message: String) {
        self.issues.push(Issue { position: self.source.positions.get(id).copied(), message });
    }

    fn report_mismatch(&mut self, id: usize, wanted: &Type, ty: &Type) {
        self.report(id, format!("expected type '{wanted}' but found '{ty}'"));
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types[expr.id].clone()
    }

    fn check(&mut self, expr: &Expr) {
        let ty = match &expr.kind {
            ExprKind::Error => Type::Error,
            ExprKind::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::String(_) => Type::String,
                Literal::Bytes(_) => Type::Bytes,
            },
            ExprKind::Ident(name) => match self.resolve(name) {
                Some((reference, ty)) => {
                    self.references[expr.id] = Some(reference);
                    ty
                }
                None => {
                    let name = name.strip_prefix('.').unwrap_or(name);
                    self.report(expr.id, format!("undeclared reference to '{name}' (in container '')"));
                    Type::Error
                }
            },
            ExprKind::Select { operand, field, test } => self.check_select(expr, operand, field, *test),
            ExprKind::Call(call) => self.check_call(expr, call),
            ExprKind::List(items) => self.check_list(items),
            ExprKind::Map(entries) => self.check_map(entries),
            ExprKind::Struct(name, fields) => self.check_message(expr, name, fields),
            ExprKind::Fold(fold) => self.check_fold(fold),
        };
        self.types[expr.id] = ty;
    }

    fn check_map(&mut self, entries: &[MapEntry]) -> Type {
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            key = Some(self.join_types(key, self.type_of(&entry.key)));
            self.check(&entry.value);
            let ty = self.element_type(&entry.value, entry.optional);
            value = Some(self.join_types(value, ty));
        }
        let key = key.unwrap_or_else(|| self.substitution.fresh());
        let value = value.unwrap_or_else(|| self.substitution.fresh());
        Type::map(key, value)
    }

    fn check_message(&mut self, expr: &Expr, name: &str, fields: &[FieldEntry]) -> Type {
        let message = self.message_type(expr.id, name);
        for field in fields {
            self.check(&field.value);
            let given = self.element_type(&field.value, field.optional);
            if matches!(message, Type::Error) {
                continue;
            }
            match message.field(&field.name) {
                None => self.report(field.id, format!("undefined field '{}'", field.name)),
                Some(wanted) if self.substitution.is_assignable(&wanted, &given) => {}
                Some(wanted) => {
                    let given = self.substitution.apply(&given, true);
                    let name = &field.name;
                    let text = format!("expected type of field '{name}' is '{wanted}' but provided type is '{given}'");
                    self.report(field.id, text);
                }
            }
        }
        message
    }

    fn message_type(&mut self, id: usize, name: &str) -> Type {
        let name = name.strip_prefix('.').unwrap_or(name);
        if self.env.mutates && (name == "Object" || name.starts_with("Object.")) {
            return Type::Configuration(name.into());
        }
        if self.env.mutates && name == JSON_PATCH {
            return Type::Named(JSON_PATCH);
        }
        match find_type(name) {
            Some(_) => self.report(id, format!("'{name}' is not a message type")),
            None => self.report(id, format!("undeclared reference to '{name}' (in container '')")),
        }
        Type::Error
    }

    /// Returns the type of an element; of one marked as optional, the type inside.
    fn element_type(&mut self, expr: &Expr, optional: bool) -> Type {
        let ty = self.type_of(expr);
        if !optional {
            return ty;
        }
        let ty = self.substitution.apply(&ty, false);
        let (inner, is_optional) = ty.unwrap_optional();
        if !is_optional && !inner.is_dyn() {
            self.report_mismatch(expr.id, &Type::optional(inner.clone()), &ty);
        }
        inner
    }

    fn check_list(&mut self, items: &[(Expr, bool)]) -> Type {
        let mut joined = None;
        for (item, optional) in items {
            self.check(item);
            let ty = self.element_type(item, *optional);
            joined = Some(self.join_types(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.substitution.fresh()))
    }

    /// Returns the type of a list's elements, given that of those before and that of one more.
    fn join_types(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if !self.substitution.is_assignable(&before, &ty) {
            return Type::Dyn;
        }
        if is_less_specific(&before, &ty) { before } else { ty }
    }

    fn resolve(&self, name: &str) -> Option<(Reference, Type)> {
        let global = name.strip_prefix('.');
        let known = global.unwrap_or(name);
        let local = self.scopes.iter().rev().find(|(variable, _)| **variable == *known).filter(|_| global.is_none());
        let local = local.map(|(name, ty)| (name, ty));
        if let Some((name, ty)) = local.or_else(|| self.env.variables.get_key_value(known)) {
            return Some((Reference::Variable(name.clone()), ty.clone()));
        }
        let (name, ty) = find_type(known)?;
        Some((Reference::TypeName(name.into()), Type::TypeOf(Arc::new(ty))))
    }

    fn check_select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = qualified_name(operand)
            && self.scopes.iter().all(|(variable, _)| Some(&**variable) != name.split('.').next())
            && let Some((reference, ty)) = self.resolve(&format!("{name}.{field}"))
        {
            self.references[expr.id] = Some(reference);
            return ty;
        }
        self.check(operand);
        let is_variable = |name: String| self.resolve(&format!("{name}.{field}")).is_some();
        if test && qualified_name(operand).is_some_and(is_variable) {
            return Type::Bool;
        }
        let ty = self.field_type(expr.id, operand, field);
        if test { Type::Bool } else { ty }
    }

    /// Returns the type of a field of an operand that is checked already.
    fn field_type(&mut self, id: usize, operand: &Expr, field: &str) -> Type {
        let ty = self.substitution.apply(&self.type_of(operand), false);
        let (target, is_optional) = ty.unwrap_optional();
        let result = match &target {
            Type::Map(_, value) => Type::clone(value),
            Type::Object(_) | Type::Configuration(_) | Type::Named(JSON_PATCH) => match target.field(field) {
                Some(ty) => ty,
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Named(_) => {
                self.report(id, format!("undefined field '{field}'"));
                Type::Error
            }
            Type::Variable(_) => {
                self.substitution.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if is_optional { Type::optional(result) } else { result }
    }

    fn check_call(&mut self, expr: &Expr, call: &Call) -> Type {
        if &*call.function == operator::OPTIONAL_SELECT {
            let [operand, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] = call.args.as_slice() else {
                return Type::Error;
            };
            self.check(operand);
            let ty = self.field_type(expr.id, operand, field);
            return if matches!(ty, Type::Optional(_)) { ty } else { Type::optional(ty) };
        }
        call.args.iter().for_each(|arg| self.check(arg));
        if let Some(target) = &call.target {
            if let Some(prefix) = qualified_name(target) {
                let name = format!("{prefix}.{}", call.function);
                if library::exists(name.trim_start_matches('.')) {
                    return self.resolve_call(expr.id, name.trim_start_matches('.'), None, &call.args, true);
                }
            }
            self.check(target);
        }
        let name = call.function.strip_prefix('.').unwrap_or(&call.function);
        if !library::exists(name) {
            self.report(expr.id, format!("undeclared reference to '{name}' (in container '')"));
            return Type::Error;
        }
        self.resolve_call(expr.id, name, call.target.as_deref(), &call.args, false)
    }

    fn resolve_call(&mut self, id: usize, name: &str, target: Option<&Expr>, args: &[Expr], qualified: bool) -> Type {
        let given: Vec<Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        if matches!(name, operator::AND | operator::OR) {
            return self.check_logic(id, name, args, &given);
        }
        let mut result: Option<Type> = None;
        let mut chosen = None;
        for function in library::find(name) {
            for overload in function.overloads.iter().filter(|overload| overload.member == target.is_some()) {
                let Some(ty) = self.try_overload(overload, &given) else { continue };
                chosen.get_or_insert(function);
                result = Some(match result {
                    None => ty,
                    Some(before) if before.is_dyn() || before.is(&ty) => before,
                    Some(_) => Type::Dyn,
                });
            }
        }
        let (Some(result), Some(function)) = (result, chosen) else {
            let shown: Vec<String> = given.iter().map(|ty| self.substitution.apply(ty, true).to_string()).collect();
            let signature = match target {
                Some(_) => format!("{}.({})", shown[0], shown[1..].join(", ")),
                None => format!("({})", shown.join(", ")),
            };
            self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
            return Type::Error;
        };
        self.references[id] = Some(Reference::Function(function, qualified));
        result
    }

    /// Returns the result of a signature if the arguments fit it.
    fn try_overload(&mut self, overload: &Overload, given: &[Type]) -> Option<Type> {
        if overload.args.len() != given.len() {
            return None;
        }
        let is_generic = overload.result.is_generic() || overload.args.iter().any(|arg| arg.is_generic());
        let variables = match is_generic {
            true => [self.substitution.fresh(), self.substitution.fresh()],
            false => [Type::Dyn, Type::Dyn],
        };
        let wanted: Vec<Type> = overload.args.iter().map(|arg| arg.instance(&variables)).collect();
        let fits = self.substitution.all_assignable(given, &wanted);
        fits.then(|| self.substitution.apply(&overload.result.instance(&variables), false))
    }

    fn check_logic(&mut self, id: usize, name: &str, args: &[Expr], given: &[Type]) -> Type {
        let mut fits = true;
        for (arg, ty) in args.iter().zip(given) {
            if !self.substitution.is_assignable(ty, &Type::Bool) {
                let ty = self.substitution.apply(ty, false);
                self.report_mismatch(arg.id, &Type::Bool, &ty);
                fits = false;
            }
        }
        let function = library::find(name).next();
        self.references[id] = function.map(|function| Reference::Function(function, false));
        if fits { Type::Bool } else { Type::Error }
    }

    fn check_fold(&mut self, fold: &Fold) -> Type {
        self.check(&fold.range);
        self.check(&fold.start);
        let range = self.substitution.apply(&self.type_of(&fold.range), false);
        let kept = self.type_of(&fold.start);
        let has_second = fold.second.is_some();
        let (first, second) = match &range {
            Type::List(item) if has_second => (Type::Int, Type::clone(item)),
            Type::List(item) => (Type::clone(item), Type::Error),
            Type::Map(key, value) => (Type::clone(key), Type::clone(value)),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.substitution.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let outside = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), kept.clone()));
        self.scopes.push((fold.variable.clone(), first));
        self.scopes.extend(fold.second.clone().map(|name| (name, second)));
        self.check(&fold.condition);
        self.assert_type(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.assert_type(&fold.step, &kept);
        self.scopes.truncate(outside + 1);
        self.check(&fold.result);
        self.scopes.truncate(outside);
        self.substitution.apply(&self.type_of(&fold.result), false)
    }

    fn assert_type(&mut self, expr: &Expr, wanted: &Type) {
        let ty = self.type_of(expr);
        if !self.substitution.is_assignable(wanted, &ty) {
            self.report_mismatch(expr.id, wanted, &ty);
        }
    }
}

/// Returns the name that a chain of fields spells, such as `a.b.c`; `None` for other expressions.
pub fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.to_string()),
        ExprKind::Select { operand, field, test: false } => Some(format!("{}.{field}", qualified_name(operand)?)),
        _ => None,
    }
}

/// Finds the type of a name, such as `int`; returns it with the name of its values' type.
fn find_type(name: &str) -> Option<(&'static str, Type)> {
    Some(match name {
        "bool" => ("bool", Type::Bool),
        "bytes" => ("bytes", Type::Bytes),
        "double" => ("double", Type::Double),
        "dyn" => ("dyn", Type::Dyn),
        "int" => ("int", Type::Int),
        "uint" => ("uint", Type::Uint),
        "string" => ("string", Type::String),
        "list" => ("list", Type::list(Type::Dyn)),
        "map" => ("map", Type::map(Type::Dyn, Type::Dyn)),
        "null_type" => ("null_type", Type::Null),
        "type" => ("type", Type::TypeOf(Arc::new(Type::Dyn))),
        "optional_type" => ("optional_type", Type::optional(Type::Dyn)),
        "google.protobuf.Duration" => ("google.protobuf.Duration", Type::Duration),
        "google.protobuf.Timestamp" => ("google.protobuf.Timestamp", Type::Timestamp),
        "kubernetes.Quantity" => ("kubernetes.Quantity", Type::Named("kubernetes.Quantity")),
        "kubernetes.URL" => ("kubernetes.URL", Type::Named("kubernetes.URL")),
        "kubernetes.Semver" => ("kubernetes.Semver", Type::Named("kubernetes.Semver")),
        "kubernetes.NamedFormat" => ("kubernetes.NamedFormat", Type::Named("kubernetes.NamedFormat")),
        "net.IP" => ("net.IP", Type::Named("net.IP")),
        "net.CIDR" => ("net.CIDR", Type::Named("net.CIDR")),
        _ => return None,
    })
}
