//! Named formats (`k8s.io/apiserver/pkg/cel/library/format.go`).

use super::{Function, Sig, function, global, member, text};
use crate::cel::foreign::formats::KNOWN;
use crate::cel::value::{EvalError, Value};

const FORMAT: Sig = Sig::Named("kubernetes.NamedFormat");
const GIVES_FORMAT: &[super::Overload] = &[global(&[], FORMAT)];

/// A function that gives a format.
const fn named(name: &'static str, run: super::Run) -> Function {
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
        let known = KNOWN.iter().find(|format| format.name == name);
        Ok(known.map_or(Value::Optional(None), |format| Value::present(Value::Format(format))))
    }),
    named("format.dns1123Label", |_, _| Ok(Value::Format(&KNOWN[0]))),
    named("format.dns1123Subdomain", |_, _| Ok(Value::Format(&KNOWN[1]))),
    named("format.dns1035Label", |_, _| Ok(Value::Format(&KNOWN[2]))),
    named("format.qualifiedName", |_, _| Ok(Value::Format(&KNOWN[3]))),
    named("format.dns1123LabelPrefix", |_, _| Ok(Value::Format(&KNOWN[4]))),
    named("format.dns1123SubdomainPrefix", |_, _| Ok(Value::Format(&KNOWN[5]))),
    named("format.dns1035LabelPrefix", |_, _| Ok(Value::Format(&KNOWN[6]))),
    named("format.labelValue", |_, _| Ok(Value::Format(&KNOWN[7]))),
    named("format.uri", |_, _| Ok(Value::Format(&KNOWN[8]))),
    named("format.uuid", |_, _| Ok(Value::Format(&KNOWN[9]))),
    named("format.byte", |_, _| Ok(Value::Format(&KNOWN[10]))),
    named("format.date", |_, _| Ok(Value::Format(&KNOWN[11]))),
    named("format.datetime", |_, _| Ok(Value::Format(&KNOWN[12]))),
];
