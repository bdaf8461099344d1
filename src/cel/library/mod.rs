//! The functions that an expression can call, as one table: names, signatures and implementations
//! (`cel-go/common/stdlib`, `cel-go/ext`, `k8s.io/apiserver/pkg/cel/library`).
//!
//! The set is the one of Kubernetes 1.36, which has neither `math` nor `cel.bind`. A new function is an entry of a table and
//! a cost in [`super::call_cost`]. Never: decides which types fit; the checker does. Start reading at [`Function`] and [`find`].

pub mod authorizer;
mod conversion;
mod formats;
mod ip;
mod lists;
mod operators;
mod optional;
mod quantity;
pub mod regex;
mod semver;
mod strings;
mod text_format;
mod times;
mod url;

pub use operators::insert;

use super::limits::WorkLimits;
use super::types::Type;
use super::value::{EvalError, Evaluated, Value};

/// A type in a signature.
#[derive(Clone, Copy, Debug)]
pub enum Sig {
    /// Any type.
    Dyn,
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
    /// A duration.
    Duration,
    /// A point in time.
    Timestamp,
    /// The first variable of the signature.
    A,
    /// The second variable of the signature.
    B,
    /// A list.
    List(&'static Sig),
    /// A map.
    Map(&'static Sig, &'static Sig),
    /// A value that may be absent.
    Optional(&'static Sig),
    /// A type of a library.
    Named(&'static str),
    /// The type of a type.
    TypeOf(&'static Sig),
}

impl Sig {
    /// Returns the type, with types for the variables.
    pub fn instance(self, variables: &[Type; 2]) -> Type {
        match self {
            Sig::Dyn => Type::Dyn,
            Sig::Bool => Type::Bool,
            Sig::Int => Type::Int,
            Sig::Uint => Type::Uint,
            Sig::Double => Type::Double,
            Sig::String => Type::String,
            Sig::Bytes => Type::Bytes,
            Sig::Duration => Type::Duration,
            Sig::Timestamp => Type::Timestamp,
            Sig::A => variables[0].clone(),
            Sig::B => variables[1].clone(),
            Sig::List(item) => Type::list(item.instance(variables)),
            Sig::Map(key, value) => Type::map(key.instance(variables), value.instance(variables)),
            Sig::Optional(inner) => Type::optional(inner.instance(variables)),
            Sig::Named(name) => Type::Named(name),
            Sig::TypeOf(inner) => Type::TypeOf(std::sync::Arc::new(inner.instance(variables))),
        }
    }

    /// Whether it has variables.
    pub fn is_generic(self) -> bool {
        match self {
            Sig::A | Sig::B => true,
            Sig::List(inner) | Sig::Optional(inner) | Sig::TypeOf(inner) => inner.is_generic(),
            Sig::Map(key, value) => key.is_generic() || value.is_generic(),
            _ => false,
        }
    }
}

/// The type of addresses.
const IP: Sig = Sig::Named("net.IP");
/// The type of networks.
const CIDR: Sig = Sig::Named("net.CIDR");
/// The type of versions.
const SEMVER: Sig = Sig::Named("kubernetes.Semver");

/// Computes the value of a call; the first argument of a member is the value before the dot.
pub type Run = for<'v> fn(&WorkLimits<'v>, &[Value<'v>]) -> Evaluated<'v>;

/// A function.
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The signatures.
    pub overloads: &'static [Overload],
    /// Computes the value for the arguments of any signature.
    pub run: Run,
}

/// A signature of a function.
#[derive(Debug)]
pub struct Overload {
    /// Whether it is called on a value.
    pub member: bool,
    /// The types of the arguments.
    pub args: &'static [Sig],
    /// The type of the result.
    pub result: Sig,
}

/// Makes an entry of a table.
const fn function(name: &'static str, overloads: &'static [Overload], run: Run) -> Function {
    Function { name, overloads, run }
}

/// Makes a signature that is called as `name(a)`.
const fn global(args: &'static [Sig], result: Sig) -> Overload {
    Overload { member: false, args, result }
}

/// Makes a signature that is called as `a.name()`.
const fn member(args: &'static [Sig], result: Sig) -> Overload {
    Overload { member: true, args, result }
}

const TABLES: [&[Function]; 13] = [
    operators::FUNCTIONS,
    strings::FUNCTIONS,
    conversion::FUNCTIONS,
    lists::FUNCTIONS,
    optional::FUNCTIONS,
    times::FUNCTIONS,
    regex::FUNCTIONS,
    quantity::FUNCTIONS,
    url::FUNCTIONS,
    ip::FUNCTIONS,
    formats::FUNCTIONS,
    semver::FUNCTIONS,
    authorizer::FUNCTIONS,
];

/// Finds the functions of a name: some are in several tables, and the signatures of all of them count.
pub fn find(name: &str) -> impl Iterator<Item = &'static Function> + '_ {
    TABLES.iter().flat_map(|table| *table).filter(move |function| function.name == name)
}

/// Whether there is a function of this name.
pub fn exists(name: &str) -> bool {
    find(name).next().is_some()
}

/// The text of an argument.
fn text<'a>(value: &'a Value) -> Result<&'a str, EvalError> {
    value.as_text().ok_or_else(EvalError::no_overload)
}

/// The integer of an argument.
fn number(value: &Value) -> Result<i64, EvalError> {
    if let Value::Int(number) = value { Ok(*number) } else { Err(EvalError::no_overload()) }
}
