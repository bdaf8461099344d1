//! Formats values by a pattern like Go's `fmt.Sprintf`.
//!
//! Knows: flags, widths, precisions, argument indexes, and the verbs for the types that decoded JSON has. Never: fails; a mistake in the
//! pattern is part of the text, as in Go (`%!d(string=x)`). Start reading at [`sprintf`].

use super::fmt;
use super::json::go_float;
use serde_json::{Number, Value};
use std::iter::{Peekable, repeat_n};
use std::str::Chars;

/// Maximum width and precision. Go allows a million, which a template could repeat.
const MAX_WIDTH: usize = 1000;

/// Formats values by a pattern.
pub fn sprintf(pattern: &str, values: &[Value]) -> String {
    let mut formatter = Formatter { letters: pattern.chars().peekable(), values, next: 0, is_reordered: false };
    let mut out = String::new();
    while let Some(letter) = formatter.letters.next() {
        match letter {
            '%' => formatter.directive(&mut out),
            other => out.push(other),
        }
    }
    let extra = values.get(formatter.next..).filter(|extra| !extra.is_empty() && !formatter.is_reordered);
    if let Some(extra) = extra {
        let texts: Vec<String> = extra.iter().map(typed).collect();
        out.push_str(&format!("%!(EXTRA {})", texts.join(", ")));
    }
    out
}

/// Formats a value with its type: `int64=5`.
fn typed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        value => format!("{}={}", fmt::type_name(value), fmt::plain(value)),
    }
}

/// The state of a call of [`sprintf`].
struct Formatter<'a> {
    letters: Peekable<Chars<'a>>,
    values: &'a [Value],
    /// The place of the next value.
    next: usize,
    /// Whether an index such as `[1]` chose a value.
    is_reordered: bool,
}

impl Formatter<'_> {
    /// Formats the directive that follows a `%`.
    fn directive(&mut self, out: &mut String) {
        let mut form = Form::default();
        while let Some(flag) = self.letters.next_if(|letter| "+-# 0".contains(*letter)) {
            match flag {
                '+' => form.plus = true,
                '-' => form.minus = true,
                '#' => form.sharp = true,
                ' ' => form.space = true,
                _ => form.zero = true,
            }
        }
        let mut is_good = self.index();
        form.width = self.amount(&mut form.minus);
        if self.letters.next_if_eq(&'.').is_some() {
            is_good &= self.index();
            form.precision = Some(self.amount(&mut false).unwrap_or(0));
        }
        is_good &= self.index();
        let Some(verb) = self.letters.next() else { return out.push_str("%!(NOVERB)") };
        match self.values.get(self.next) {
            _ if verb == '%' => out.push('%'),
            _ if !is_good => out.push_str(&format!("%!{verb}(BADINDEX)")),
            None => out.push_str(&format!("%!{verb}(MISSING)")),
            Some(value) => {
                self.next += 1;
                form.value(out, verb, value);
            }
        }
    }

    /// Reads an index such as `[1]`, which chooses the next value. Returns false for one that no value has.
    fn index(&mut self) -> bool {
        if self.letters.next_if_eq(&'[').is_none() {
            return true;
        }
        self.is_reordered = true;
        let number = self.number();
        let is_closed = self.letters.by_ref().take_while(|letter| *letter != ']').count() == 0;
        match number.filter(|number| is_closed && (1..=self.values.len()).contains(number)) {
            Some(number) => {
                self.next = number - 1;
                true
            }
            None => false,
        }
    }

    /// Reads a width or a precision: a number, or `*` for that of the next value. A negative width is one with the flag `-`.
    fn amount(&mut self, minus: &mut bool) -> Option<usize> {
        if self.letters.next_if_eq(&'*').is_none() {
            return self.number().map(|number| number.min(MAX_WIDTH));
        }
        let number = self.values.get(self.next)?.as_i64()?;
        self.next += 1;
        *minus |= number < 0;
        Some(usize::try_from(number.unsigned_abs()).map_or(MAX_WIDTH, |number| number.min(MAX_WIDTH)))
    }

    fn number(&mut self) -> Option<usize> {
        let mut number: Option<usize> = None;
        while let Some(digit) = self.letters.peek().and_then(|letter| letter.to_digit(10)) {
            self.letters.next();
            number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize));
        }
        number
    }
}

/// The flags, the width and the precision of a directive.
#[derive(Clone, Copy, Default)]
struct Form {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Form {
    fn value(self, out: &mut String, verb: char, value: &Value) {
        match value {
            value if verb == 'T' => self.pad(out, fmt::type_name(value)),
            value if verb == 'v' && self.sharp => out.push_str(&fmt::literal(value)),
            Value::Null if verb == 'v' => self.pad(out, "<nil>"),
            Value::Bool(truth) if matches!(verb, 't' | 'v') => self.pad(out, if *truth { "true" } else { "false" }),
            Value::String(text) if matches!(verb, 's' | 'v' | 'x' | 'X' | 'q') => self.text(out, verb, text),
            Value::Number(number) => self.number(out, verb, number),
            Value::Array(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    out.push_str(if place > 0 { " " } else { "" });
                    self.item(out, verb, item);
                }
                out.push(']');
            }
            Value::Object(map) => {
                out.push_str("map[");
                for (place, (key, item)) in map.iter().enumerate() {
                    out.push_str(if place > 0 { " " } else { "" });
                    self.item(out, verb, &Value::from(key.as_str()));
                    out.push(':');
                    self.item(out, verb, item);
                }
                out.push(']');
            }
            other => self.misfit(out, verb, other),
        }
    }

    /// Formats an item of a list or a map.
    fn item(self, out: &mut String, verb: char, item: &Value) {
        match item {
            Value::Null => out.push_str("<nil>"),
            item => self.value(out, verb, item),
        }
    }

    /// Formats a value that the verb does not fit.
    fn misfit(self, out: &mut String, verb: char, value: &Value) {
        if value.is_null() {
            return out.push_str(&format!("%!{verb}(<nil>)"));
        }
        out.push_str(&format!("%!{verb}({}=", fmt::type_name(value)));
        Form { sharp: false, ..self }.value(out, 'v', value);
        out.push(')');
    }

    fn number(self, out: &mut String, verb: char, number: &Number) {
        let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
        let letter = whole.and_then(|whole| char::from_u32(u32::try_from(whole).ok()?)).unwrap_or('\u{fffd}');
        match (whole, number.as_f64()) {
            (Some(_), _) if verb == 'c' => self.pad(out, letter.encode_utf8(&mut [0; 4])),
            (Some(_), _) if verb == 'q' => self.pad(out, &format!("{letter:?}")),
            (Some(whole), _) if verb == 'U' => {
                let shown = if self.sharp { format!(" '{letter}'") } else { String::new() };
                self.pad(out, &format!("U+{whole:04X}{shown}"));
            }
            (Some(whole), _) if "vdboOxX".contains(verb) => self.whole(out, verb, whole),
            (None, Some(float)) if "vgGfFeE".contains(verb) => self.float(out, verb, float),
            _ => self.misfit(out, verb, &Value::Number(number.clone())),
        }
    }

    fn whole(self, out: &mut String, verb: char, number: i128) {
        let size = number.unsigned_abs();
        let (digits, prefix) = match verb {
            'b' => (format!("{size:b}"), "0b"),
            'o' | 'O' => (format!("{size:o}"), "0"),
            'x' => (format!("{size:x}"), "0x"),
            'X' => (format!("{size:X}"), "0X"),
            _ => (size.to_string(), ""),
        };
        let digits = if size == 0 && self.precision == Some(0) { String::new() } else { digits };
        let sign = self.sign(number < 0);
        let prefix = match verb {
            'O' => "0o",
            _ if self.sharp => prefix,
            _ => "",
        };
        let wanted = match (self.precision, self.width.filter(|_| self.zero && !self.minus)) {
            (Some(precision), _) => precision,
            (None, Some(width)) => width.saturating_sub(sign.len()),
            (None, None) => 0,
        };
        let zeros = "0".repeat(wanted.saturating_sub(digits.len()));
        Form { zero: false, ..self }.pad(out, &format!("{sign}{prefix}{zeros}{digits}"));
    }

    fn sign(self, is_negative: bool) -> &'static str {
        match () {
            () if is_negative => "-",
            () if self.plus => "+",
            () if self.space => " ",
            () => "",
        }
    }

    fn float(self, out: &mut String, verb: char, number: f64) {
        let size = number.abs();
        let digits = match (verb.to_ascii_lowercase(), self.precision) {
            ('f', precision) => format!("{size:.*}", precision.unwrap_or(6)),
            ('e', precision) => go_exponent(&format!("{size:.*e}", precision.unwrap_or(6))),
            (_, Some(precision)) => with_significant_digits(size, precision.max(1)),
            (_, None) => go_float(size, -4, 6),
        };
        let digits = if verb.is_ascii_uppercase() { digits.to_ascii_uppercase() } else { digits };
        let sign = self.sign(number.is_sign_negative());
        let width = self.width.filter(|_| self.zero && !self.minus).unwrap_or(0);
        let zeros = "0".repeat(width.saturating_sub(sign.len() + digits.len()));
        Form { zero: false, ..self }.pad(out, &format!("{sign}{zeros}{digits}"));
    }

    fn text(self, out: &mut String, verb: char, text: &str) {
        let is_hex = matches!(verb, 'x' | 'X');
        let kept: String = text.chars().take(self.precision.filter(|_| !is_hex).unwrap_or(usize::MAX)).collect();
        match verb {
            'q' if self.sharp && !kept.contains(|letter: char| letter == '`' || letter.is_control()) => {
                self.pad(out, &format!("`{kept}`"));
            }
            'q' => self.pad(out, &fmt::quote(&kept)),
            _ if is_hex => {
                let hex = |byte: &u8| if verb == 'X' { format!("{byte:02X}") } else { format!("{byte:02x}") };
                let bytes = kept.as_bytes().iter().take(self.precision.unwrap_or(usize::MAX));
                let texts: Vec<String> = bytes.map(hex).collect();
                self.pad(out, &texts.join(if self.space { " " } else { "" }));
            }
            _ => self.pad(out, &kept),
        }
    }

    /// Appends a text in the width of the directive.
    fn pad(self, out: &mut String, text: &str) {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        let filling = if self.zero && !self.minus { '0' } else { ' ' };
        if self.minus {
            out.push_str(text);
        }
        out.extend(repeat_n(filling, missing));
        if !self.minus {
            out.push_str(text);
        }
    }
}

/// Formats `%.3g`: a number of significant digits, without zeros at their end.
fn with_significant_digits(number: f64, digits: usize) -> String {
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let place: i32 = exponent.parse().unwrap_or(0);
    let trimmed = if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    let count = trimmed.chars().filter(char::is_ascii_digit).count();
    let limit = if digits > count && count as i64 > i64::from(place) { count } else { digits };
    if place < -4 || i64::from(place) >= limit as i64 {
        return go_exponent(&format!("{trimmed}e{place}"));
    }
    let decimals = usize::try_from(i64::from(count as u32) - 1 - i64::from(place)).unwrap_or(0);
    format!("{number:.decimals$}")
}

/// Formats an exponent with a sign and two digits, as Go does.
fn go_exponent(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Patterns, their values, and Go's output.
    #[test]
    fn values_are_formatted_as_in_go() {
        let labels = json!({"app": "web"});
        let cases: &[(&str, Value, &str)] = &[
            ("%05d|%5d|%-5d|%+d|% d", json!([2, 2, 2, 2, 3]), "00002|    2|2    |+2| 3"),
            (
                "%x %X %#x %#X %08b %o %#o %O",
                json!([255, 255, 255, 255, 5, 8, 8, 8]),
                "ff FF 0xff 0XFF 00000101 10 010 0o10",
            ),
            ("%+05d %06d %-06d| %.2d %x", json!([3, -42, -42, 5, -255]), "+0003 -00042 -42   | 05 -ff"),
            ("%c %q %U %#U %3c|", json!([65, 65, 65, 8986, 65]), "A 'A' U+0041 U+231A '⌚'   A|"),
            (
                "%.2f %8.3f| %-8.3f| %+.1f %08.3f",
                json!([1.5, 1.5, 1.5, 1.5, -1.5]),
                "1.50    1.500| 1.500   | +1.5 -001.500",
            ),
            (
                "%e %E %g %G %.3g %.0f %.0f",
                json!([1500.5, 12345.678, 1500.5, 1e21, 12345.678, 2.5, 1.5]),
                "1.500500e+03 1.234568E+04 1500.5 1E+21 1.23e+04 2 2",
            ),
            ("%v %g %.3g %.3g", json!([1.5, 0.00001, 100.0, 0.5]), "1.5 1e-05 100 0.5"),
            ("%.3s %6.3s| %-5s| %05s|", json!(["abcdef", "abcdef", "abc", "abc"]), "abc    abc| abc  | 00abc|"),
            ("%x %X % x %q %#q", json!(["hi", "hi", "hi", "a\"b", "ab"]), "6869 6869 68 69 \"a\\\"b\" `ab`"),
            (
                "%T %T %T %T %T %T",
                json!([2, 1.5, "x", true, null, labels]),
                "int64 float64 string bool <nil> map[string]interface {}",
            ),
            (
                "%v %#v %s %q %x",
                json!([labels, labels, labels, labels, labels]),
                "map[app:web] map[string]interface {}{\"app\":\"web\"} map[app:web] map[\"app\":\"web\"] map[617070:776562]",
            ),
            ("%s %d", json!([[8080, "a", null], [1, 2]]), "[%!s(int64=8080) a <nil>] [1 2]"),
            (
                "%t %5t| %t %d %x",
                json!([true, true, 5, "x", true]),
                "true  true| %!t(int64=5) %!d(string=x) %!x(bool=true)",
            ),
            (
                "%f %.2f %5.1f| %d",
                json!([2, 2, 3, 1.5]),
                "%!f(int64=2) %!f(int64=02) %!f(int64=    3)| %!d(float64=1.5)",
            ),
            ("%s %v %d %z", json!([null, null, null, 5]), "%!s(<nil>) <nil> %!d(<nil>) %!z(int64=5)"),
            ("%[2]d_%[1]d", json!([1, 2]), "2_1"),
            ("%*d|%-*d|%.*f", json!([5, 3, 4, 3, 2, 1.2345]), "    3|3   |1.23"),
            ("%d %s %", json!([1]), "1 %!s(MISSING) %!(NOVERB)"),
            ("%[3]d %[x]d", json!([1]), "%!d(BADINDEX) %!d(BADINDEX)"),
            ("a%%b", json!([5, "x"]), "a%b%!(EXTRA int64=5, string=x)"),
            ("%6.2f%%", json!([12.345]), " 12.35%"),
        ];
        for (pattern, values, expected) in cases {
            let values = values.as_array().expect("a list");
            assert_eq!(sprintf(pattern, values), *expected, "{pattern}");
        }
    }

    #[test]
    fn width_and_precision_are_bounded() {
        let huge = "9".repeat(30);
        for pattern in [format!("%{huge}d"), format!("%.{huge}d"), format!("%-{huge}s"), "%*d".to_owned()] {
            let values = [json!(i64::MIN), json!(1)];
            assert!(sprintf(&pattern, &values).len() < 2 * MAX_WIDTH, "{pattern}");
        }
    }
}
