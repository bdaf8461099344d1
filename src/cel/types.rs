//! Types of expressions, and which of them fit where (`checker/types.go`, `checker/format.go`).
//!
//! Never: looks at an expression. Start reading at [`Type`] and [`Substitution`].

use super::decl::{Decl, Form, Scalar};
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Clone, Debug)]
pub enum Type {
    /// Any type; only values decide.
    Dyn,
    /// A part with an error.
    Error,
    /// `null`
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// A list of a type.
    List(Arc<Type>),
    /// A map from a type to a type.
    Map(Arc<Type>, Arc<Type>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// An object with declared fields.
    Object(ObjectType),
    /// A part of an apply configuration, such as `Object.spec`, whose fields are not known.
    Configuration(Arc<str>),
    /// A type of a library, such as `kubernetes.Quantity`.
    Named(&'static str),
    /// A type that is not determined yet.
    Variable(usize),
    /// The type of a type.
    TypeOf(Arc<Type>),
}

/// The type of objects with declared fields.
#[derive(Clone, Debug)]
pub struct ObjectType {
    /// The name of the type.
    pub name: Arc<str>,
    /// The fields.
    pub decl: Arc<Decl>,
}

/// The types of a JSON patch's operations.
pub const JSON_PATCH: &str = "JSONPatch";

impl Type {
    /// The type of declared data, whose objects are named after their place below `name`.
    pub fn declared(decl: &Arc<Decl>, name: &str) -> Type {
        match &decl.form {
            Form::Dyn | Form::IntOrString => Type::Dyn,
            Form::Scalar(scalar) => match scalar {
                Scalar::Bool => Type::Bool,
                Scalar::Int => Type::Int,
                Scalar::Double => Type::Double,
                Scalar::String => Type::String,
                Scalar::Bytes => Type::Bytes,
                Scalar::Duration => Type::Duration,
                Scalar::Timestamp => Type::Timestamp,
            },
            Form::List(item, _) => Type::list(Type::declared(item, &format!("{name}.@idx"))),
            Form::Map(value) => Type::map(Type::String, Type::declared(value, &format!("{name}.@elem"))),
            Form::Object(fixed, _) => {
                let name = fixed.map_or_else(|| name.into(), Arc::from);
                Type::Object(ObjectType { name, decl: decl.clone() })
            }
        }
    }

    /// A list of a type.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// A map from a type to a type.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    /// A value of a type that may be absent.
    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    /// Whether only values decide about the type.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// The type of a field; `None` when an object of this type has none of the name.
    pub fn field(&self, name: &str) -> Option<Type> {
        match self {
            Type::Object(object) => {
                let field = object.decl.field(name)?;
                Some(Type::declared(&field.decl, &format!("{}.{name}", object.name)))
            }
            Type::Configuration(_) => Some(Type::Dyn),
            Type::Named(JSON_PATCH) => match name {
                "op" | "path" | "from" => Some(Type::String),
                "value" => Some(Type::Dyn),
                _ => None,
            },
            _ => None,
        }
    }

    /// The type inside an optional type, and whether the type was optional.
    pub fn unwrap_optional(&self) -> (Type, bool) {
        match self {
            Type::Optional(inner) => (Type::clone(inner), true),
            other => (other.clone(), false),
        }
    }

    /// Whether two types are the same.
    pub fn is(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a.is(b),
            (Type::TypeOf(a), Type::TypeOf(b)) => a.is(b),
            (Type::Map(a, b), Type::Map(c, d)) => a.is(c) && b.is(d),
            (Type::Object(a), Type::Object(b)) => a.name == b.name,
            (Type::Configuration(a), Type::Configuration(b)) => a == b,
            (Type::Named(a), Type::Named(b)) => a == b,
            (Type::Variable(a), Type::Variable(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && !self.has_content(),
        }
    }

    fn has_content(&self) -> bool {
        matches!(
            self,
            Type::List(_)
                | Type::Map(..)
                | Type::Optional(_)
                | Type::Object(_)
                | Type::Configuration(_)
                | Type::Named(_)
                | Type::Variable(_)
                | Type::TypeOf(_)
        )
    }

    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Type::Optional(_)
                | Type::Object(_)
                | Type::Configuration(_)
                | Type::Named(_)
                | Type::Duration
                | Type::Timestamp
                | Type::Null
        )
    }

    /// The types that this one contains.
    fn parts(&self) -> Vec<&Type> {
        match self {
            Type::List(inner) | Type::Optional(inner) | Type::TypeOf(inner) => vec![inner],
            Type::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Error => f.write_str("!error!"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Object(object) => f.write_str(&object.name),
            Type::Configuration(path) => f.write_str(path),
            Type::Named(name) => f.write_str(name),
            Type::Variable(number) => write!(f, "_var{number}"),
            Type::TypeOf(inner) => write!(f, "type({inner})"),
        }
    }
}

/// The types that have been found for variables.
#[derive(Default)]
pub struct Substitution {
    /// The type of each variable, as far as it is determined.
    types: Vec<Option<Type>>,
    /// The former types of variables, so that a failed attempt can be undone.
    log: Vec<(usize, Option<Type>)>,
}

impl Substitution {
    /// Creates a type variable.
    pub fn fresh(&mut self) -> Type {
        self.types.push(None);
        Type::Variable(self.types.len() - 1)
    }

    fn find(&self, variable: usize) -> Option<&Type> {
        self.types.get(variable)?.as_ref()
    }

    fn set(&mut self, variable: usize, ty: Type) {
        let former = self.types[variable].replace(ty);
        self.log.push((variable, former));
    }

    /// Replaces the variables of a type; unknown ones become dynamic on request.
    pub fn apply(&self, ty: &Type, to_dyn: bool) -> Type {
        match ty {
            Type::Variable(number) => match self.find(*number) {
                Some(bound) => self.apply(bound, to_dyn),
                None if to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(item) => Type::list(self.apply(item, to_dyn)),
            Type::Map(key, value) => Type::map(self.apply(key, to_dyn), self.apply(value, to_dyn)),
            Type::Optional(inner) => Type::optional(self.apply(inner, to_dyn)),
            Type::TypeOf(inner) => Type::TypeOf(Arc::new(self.apply(inner, to_dyn))),
            other => other.clone(),
        }
    }

    /// Whether values of the types `given` can be used as ones of `wanted`; records the types that this gives to variables.
    pub fn all_assignable(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        self.log.clear();
        let fits = given.len() == wanted.len() && given.iter().zip(wanted).all(|(one, other)| self.fits(one, other));
        if !fits {
            while let Some((variable, former)) = self.log.pop() {
                self.types[variable] = former;
            }
        }
        fits
    }

    /// Like [`Substitution::all_assignable`], for one type.
    pub fn is_assignable(&mut self, given: &Type, wanted: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(given), std::slice::from_ref(wanted))
    }

    fn fits(&mut self, one: &Type, other: &Type) -> bool {
        if let Type::Variable(number) = other {
            let (valid, is_known) = self.is_valid(one, *number);
            if valid || is_known {
                return valid;
            }
        }
        if let Type::Variable(number) = one {
            return self.is_valid(other, *number).0;
        }
        if one.is_dyn_or_error() || other.is_dyn_or_error() {
            return true;
        }
        if matches!(one, Type::Null) {
            return other.is_nullable();
        }
        if matches!(other, Type::Null) {
            return one.is_nullable();
        }
        match (one, other) {
            (Type::TypeOf(_), Type::TypeOf(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.fits(a, c) && self.fits(b, d),
            _ => one.is(other),
        }
    }

    /// Whether a type can stand for a variable, and whether the variable had one.
    fn is_valid(&mut self, one: &Type, variable: usize) -> (bool, bool) {
        if matches!(one, Type::Variable(number) if *number == variable) {
            return (true, true);
        }
        if let Some(bound) = self.find(variable).cloned() {
            if one.is(&bound) {
                return (true, true);
            }
            if self.fits(one, &bound) {
                let general = if is_less_specific(one, &bound) { one.clone() } else { bound };
                if !self.occurs(variable, &general) {
                    self.set(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(variable, one) {
            return (false, false);
        }
        self.set(variable, one.clone());
        (true, false)
    }

    fn occurs(&self, variable: usize, within: &Type) -> bool {
        match within {
            Type::Variable(number) => {
                *number == variable || self.find(*number).is_some_and(|bound| self.occurs(variable, bound))
            }
            other => other.parts().into_iter().any(|part| self.occurs(variable, part)),
        }
    }
}

/// Whether the first type is the same as or more general than the second.
pub fn is_less_specific(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Variable(_), _) => true,
        (_, Type::Dyn | Type::Variable(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_less_specific(a, b),
        (Type::Map(a, b), Type::Map(c, d)) => is_less_specific(a, c) && is_less_specific(b, d),
        (Type::TypeOf(_), Type::TypeOf(_)) => true,
        _ => one.is(other),
    }
}
