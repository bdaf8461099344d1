//! Writes JSON like Go, for kubectl's output and its annotation.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Writes JSON indented by four blanks, without a final newline: `kubectl get -o json`.
pub fn to_json_pretty(value: &Value) -> String {
    text(value, GoJsonFormatter(PrettyFormatter::with_indent(b"    ")))
}

/// Writes compact JSON: `-o jsonpath` and the last-applied annotation.
pub fn to_json(value: &Value) -> String {
    text(value, GoJsonFormatter(CompactFormatter))
}

fn text(value: &Value, formatter: impl Formatter) -> String {
    let mut out = Vec::new();
    // Serializing a `Value` to memory cannot fail.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut out, formatter));
    String::from_utf8(out).unwrap_or_default()
}

/// Go's encoder: escapes `<`, `>`, `&` and the two line separators of Unicode, and writes numbers in the shortest form.
struct GoJsonFormatter<F>(F);

macro_rules! as_inner {
    ($($method:ident($($argument:ident: $kind:ty),*);)*) => {
        $(fn $method<W: ?Sized + Write>(&mut self, out: &mut W $(, $argument: $kind)*) -> io::Result<()> {
            self.0.$method(out $(, $argument)*)
        })*
    };
}

impl<F: Formatter> Formatter for GoJsonFormatter<F> {
    as_inner! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
        write_char_escape(escape: CharEscape);
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, special) = rest.split_at(at);
            let c = special.chars().next().unwrap_or_default();
            write!(out, "{plain}\\u{:04x}", u32::from(c))?;
            rest = &special[c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, number: f64) -> io::Result<()> {
        out.write_all(go_float(number, -6, 21).replace("e-0", "e-").as_bytes())
    }
}

/// Go's shortest text of a number, with an exponent when it is below the minimum, or not below the maximum.
pub fn go_float(number: f64, min_exponent: i32, max_exponent: i32) -> String {
    let short = format!("{number:e}");
    let (mantissa, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (min_exponent..max_exponent).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
