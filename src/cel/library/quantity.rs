//! Quantities such as `500m` (`k8s.io/apiserver/pkg/cel/library/quantity.go`), and the comparisons that versions share.

use super::{Function, SEMVER, Sig, function, global, member, text};
use crate::cel::value::{EvalError, Value, fail};
use crate::object::Quantity;
use std::cmp::Ordering;

const Q: Sig = Sig::Named("kubernetes.Quantity");
const V: Sig = SEMVER;

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("quantity", &[global(&[Sig::String], Q)], |_, args| match Quantity::parse(text(&args[0])?) {
        Ok(quantity) => Ok(Value::Quantity(quantity)),
        Err(error) => fail(error.to_string()),
    }),
    function("isQuantity", &[global(&[Sig::String], Sig::Bool)], |_, args| {
        Ok(Value::Bool(Quantity::parse(text(&args[0])?).is_ok()))
    }),
    function("sign", &[global(&[Q], Sig::Int), member(&[Q], Sig::Int)], |_, args| {
        let quantity = quantity(&args[0])?;
        Ok(Value::Int(if quantity.is_zero() { 0 } else { if quantity.is_negative() { -1 } else { 1 } }))
    }),
    function("isGreaterThan", &[member(&[Q, Q], Sig::Bool), member(&[V, V], Sig::Bool)], |_, args| {
        Ok(Value::Bool(compare_arguments(args)? == Ordering::Greater))
    }),
    function("isLessThan", &[member(&[Q, Q], Sig::Bool), member(&[V, V], Sig::Bool)], |_, args| {
        Ok(Value::Bool(compare_arguments(args)? == Ordering::Less))
    }),
    function("compareTo", &[member(&[Q, Q], Sig::Int), member(&[V, V], Sig::Int)], |_, args| {
        Ok(Value::Int(compare_arguments(args)? as i64))
    }),
    function("asApproximateFloat", &[member(&[Q], Sig::Double)], |_, args| {
        Ok(Value::Double(quantity(&args[0])?.as_f64()))
    }),
    function("asInteger", &[member(&[Q], Sig::Int)], |_, args| {
        let quantity = quantity(&args[0])?;
        if Quantity::from_int(quantity.value()) == quantity {
            return Ok(Value::Int(quantity.value()));
        }
        fail("cannot convert value to integer")
    }),
    function("isInteger", &[member(&[Q], Sig::Bool)], |_, args| {
        let quantity = quantity(&args[0])?;
        Ok(Value::Bool(Quantity::from_int(quantity.value()) == quantity))
    }),
    function("add", &[member(&[Q, Q], Q), member(&[Q, Sig::Int], Q)], |_, args| {
        Ok(Value::Quantity(quantity(&args[0])? + amount(&args[1])?))
    }),
    function("sub", &[member(&[Q, Q], Q), member(&[Q, Sig::Int], Q)], |_, args| {
        Ok(Value::Quantity(quantity(&args[0])? - amount(&args[1])?))
    }),
];

fn quantity(value: &Value) -> Result<Quantity, EvalError> {
    if let Value::Quantity(quantity) = value { Ok(*quantity) } else { Err(EvalError::no_overload()) }
}

fn amount(value: &Value) -> Result<Quantity, EvalError> {
    if let Value::Int(units) = value { Ok(Quantity::from_int(*units)) } else { quantity(value) }
}

fn compare_arguments(args: &[Value]) -> Result<Ordering, EvalError> {
    match (&args[0], &args[1]) {
        (Value::Quantity(one), Value::Quantity(other)) => Ok(one.cmp(other)),
        (Value::Semver(one), Value::Semver(other)) => Ok(crate::cel::foreign::semver::compare(one, other)),
        _ => Err(EvalError::no_overload()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::limits::WorkLimits;
    use crate::cel::value::Evaluated;

    /// Calls one of the functions.
    fn run(name: &str, args: &[Value<'static>]) -> Evaluated<'static> {
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        (function.map_or_else(|| panic!("{name}"), |function| function.run))(&WorkLimits::default(), args)
    }

    #[test]
    fn quantities_are_compared_and_added() {
        let of = |text: &str| run("quantity", &[Value::text(text)]).unwrap();
        let is = |name: &str, one: &str, other: &str| run(name, &[of(one), of(other)]).unwrap().as_bool();
        assert_eq!(is("isGreaterThan", "2Gi", "1G"), Some(true));
        assert_eq!(is("isLessThan", "2Gi", "1G"), Some(false));
        assert!(run("asInteger", &[of("1500m")]).is_err());
        assert!(matches!(run("add", &[of("1"), Value::Int(2)]), Ok(Value::Quantity(sum)) if sum.value() == 3));
    }
}
