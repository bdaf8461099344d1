//! Conversions between types, and `type` and `dyn`.

use super::{CIDR, Function, IP, Sig, function, global};
use crate::cel::limits::WorkLimits;
use crate::cel::show::format_value;
use crate::cel::value::{EvalError, Evaluated, Value, fail};
use crate::object::time;
use jiff::Timestamp;

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("type", &[global(&[Sig::A], Sig::TypeOf(&Sig::A))], |_, args| Ok(Value::Type(args[0].type_name().into()))),
    function("dyn", &[global(&[Sig::A], Sig::Dyn)], |_, args| Ok(args[0].clone())),
    function("bool", &[global(&[Sig::Bool], Sig::Bool), global(&[Sig::String], Sig::Bool)], |_, args| match &args[0] {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            other => fail(format!("type conversion error from '{other}' to 'bool'")),
        },
        _ => Err(EvalError::no_overload()),
    }),
    function(
        "bytes",
        &[global(&[Sig::Bytes], Sig::Bytes), global(&[Sig::String], Sig::Bytes)],
        |_, args| match &args[0] {
            Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
            Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(EvalError::no_overload()),
        },
    ),
    function(
        "double",
        &[
            global(&[Sig::Double], Sig::Double),
            global(&[Sig::Int], Sig::Double),
            global(&[Sig::String], Sig::Double),
            global(&[Sig::Uint], Sig::Double),
        ],
        double,
    ),
    function(
        "duration",
        &[global(&[Sig::Duration], Sig::Duration), global(&[Sig::String], Sig::Duration)],
        |_, args| match &args[0] {
            Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
            Value::String(text) => match time::parse_duration(text) {
                Ok(duration) => Ok(Value::Duration(duration.as_nanos() as i64)),
                Err(error) => fail(error.to_string()),
            },
            _ => Err(EvalError::no_overload()),
        },
    ),
    function(
        "timestamp",
        &[
            global(&[Sig::Timestamp], Sig::Timestamp),
            global(&[Sig::Int], Sig::Timestamp),
            global(&[Sig::String], Sig::Timestamp),
        ],
        |_, args| match &args[0] {
            Value::Timestamp(time) => Ok(Value::Timestamp(*time)),
            Value::Int(seconds) => match Timestamp::from_second(*seconds) {
                Ok(time) => Ok(Value::Timestamp(time)),
                Err(_) => fail("timestamp overflow"),
            },
            Value::String(text) => match time::parse_rfc3339(text) {
                Ok(time) => Ok(Value::Timestamp(time)),
                Err(error) => fail(error.to_string()),
            },
            _ => Err(EvalError::no_overload()),
        },
    ),
    function(
        "int",
        &[
            global(&[Sig::Int], Sig::Int),
            global(&[Sig::Double], Sig::Int),
            global(&[Sig::Duration], Sig::Int),
            global(&[Sig::String], Sig::Int),
            global(&[Sig::Timestamp], Sig::Int),
            global(&[Sig::Uint], Sig::Int),
        ],
        int,
    ),
    function(
        "uint",
        &[
            global(&[Sig::Uint], Sig::Uint),
            global(&[Sig::Double], Sig::Uint),
            global(&[Sig::Int], Sig::Uint),
            global(&[Sig::String], Sig::Uint),
        ],
        uint,
    ),
    function(
        "string",
        &[
            global(&[Sig::String], Sig::String),
            global(&[Sig::Bool], Sig::String),
            global(&[Sig::Bytes], Sig::String),
            global(&[Sig::Double], Sig::String),
            global(&[Sig::Duration], Sig::String),
            global(&[Sig::Int], Sig::String),
            global(&[Sig::Timestamp], Sig::String),
            global(&[Sig::Uint], Sig::String),
            global(&[IP], Sig::String),
            global(&[CIDR], Sig::String),
        ],
        |_, args| match &args[0] {
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Value::text(text)),
                Err(_) => fail("invalid UTF-8 in bytes, cannot convert to string"),
            },
            Value::String(_)
            | Value::Bool(_)
            | Value::Double(_)
            | Value::Duration(_)
            | Value::Int(_)
            | Value::Timestamp(_)
            | Value::Uint(_)
            | Value::Ip(_)
            | Value::Cidr(..) => Ok(Value::text(format_value(&args[0]))),
            _ => Err(EvalError::no_overload()),
        },
    ),
];

fn double<'v>(_: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Double(match &args[0] {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => return fail(format!("strconv.ParseFloat: parsing {:?}: invalid syntax", &**text)),
        },
        _ => return Err(EvalError::no_overload()),
    }))
}

fn int<'v>(_: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Int(match &args[0] {
        Value::Int(value) => *value,
        Value::Double(value) if value.abs() < 9.2e18 => *value as i64,
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(time) => time.as_second(),
        Value::Uint(value) => match i64::try_from(*value) {
            Ok(value) => value,
            Err(_) => return fail("integer overflow"),
        },
        Value::Double(_) => return fail("integer overflow"),
        Value::String(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => return fail(format!("strconv.ParseInt: parsing {:?}: invalid syntax", &**text)),
        },
        _ => return Err(EvalError::no_overload()),
    }))
}

fn uint<'v>(_: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Uint(match &args[0] {
        Value::Uint(value) => *value,
        Value::Double(value) if (0.0..1.8e19).contains(value) => *value as u64,
        Value::Int(value) if *value >= 0 => *value as u64,
        Value::Int(_) | Value::Double(_) => return fail("unsigned integer overflow"),
        Value::String(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => return fail(format!("strconv.ParseUint: parsing {:?}: invalid syntax", &**text)),
        },
        _ => return Err(EvalError::no_overload()),
    }))
}
