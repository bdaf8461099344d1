//! Named formats (`k8s.io/apiserver/pkg/cel/library/format.go`).
//!
//! Never: checks a text itself; [`crate::cel::foreign::formats`] does.

use super::{Function, Sig, function, global, member, text};
use crate::cel::foreign::formats::FORMATS;
use crate::cel::value::{EvalError, Value};

const FORMAT: Sig = Sig::Named("kubernetes.NamedFormat");
const GIVES_FORMAT: &[super::Overload] = &[global(&[], FORMAT)];

/// Makes a function without arguments that returns a format.
const fn constant(name: &'static str, run: super::Run) -> Function {
    function(name, GIVES_FORMAT, run)
}

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("validate", &[member(&[FORMAT, Sig::String], Sig::Optional(&Sig::List(&Sig::String)))], |_, args| {
        let Value::Format(format) = &args[0] else { return Err(EvalError::no_overload()) };
        let wrong = (format.check)(text(&args[1])?);
        if wrong.is_empty() {
            return Ok(Value::Optional(None));
        }
        Ok(Value::present(Value::list(wrong.into_iter().map(Value::text).collect())))
    }),
    function("format.named", &[global(&[Sig::String], Sig::Optional(&FORMAT))], |_, args| {
        let name = text(&args[0])?;
        let named = FORMATS.iter().find(|format| format.name == name);
        Ok(named.map_or(Value::Optional(None), |format| Value::present(Value::Format(format))))
    }),
    constant("format.dns1123Label", |_, _| Ok(Value::Format(&FORMATS[0]))),
    constant("format.dns1123Subdomain", |_, _| Ok(Value::Format(&FORMATS[1]))),
    constant("format.dns1035Label", |_, _| Ok(Value::Format(&FORMATS[2]))),
    constant("format.qualifiedName", |_, _| Ok(Value::Format(&FORMATS[3]))),
    constant("format.dns1123LabelPrefix", |_, _| Ok(Value::Format(&FORMATS[4]))),
    constant("format.dns1123SubdomainPrefix", |_, _| Ok(Value::Format(&FORMATS[5]))),
    constant("format.dns1035LabelPrefix", |_, _| Ok(Value::Format(&FORMATS[6]))),
    constant("format.labelValue", |_, _| Ok(Value::Format(&FORMATS[7]))),
    constant("format.uri", |_, _| Ok(Value::Format(&FORMATS[8]))),
    constant("format.uuid", |_, _| Ok(Value::Format(&FORMATS[9]))),
    constant("format.byte", |_, _| Ok(Value::Format(&FORMATS[10]))),
    constant("format.date", |_, _| Ok(Value::Format(&FORMATS[11]))),
    constant("format.datetime", |_, _| Ok(Value::Format(&FORMATS[12]))),
];
