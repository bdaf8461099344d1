//! Quantities: `500m`, `1.5Gi`, `1e3`.
//!
//! Implements the grammar, the canonical form and exact arithmetic of Kubernetes' `resource.Quantity`.
//! Never: depends on the measured resource. Start reading at [`Quantity::parse`].

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

const NANOS: i128 = 1_000_000_000;
/// Maximum magnitude of an amount with a binary suffix; larger ones are capped as in Kubernetes.
const BINARY_CAP: i128 = i64::MAX as i128 * NANOS;
/// Maximum magnitude of other amounts. Kubernetes has none.
const MAX_NANOS: i128 = 10_i128.pow(37);
/// Maximum number of digits of an amount that Kubernetes computes with 64 bits.
const MAX_SHORT_DIGITS: usize = 18;

/// An exact amount; equal amounts are equal in any notation.
///
/// Stored in billionths, Kubernetes' smallest unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    family: QuantityFormat,
}

/// The notation of an amount, used for both input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum QuantityFormat {
    /// `Ki`, `Mi` ...
    Binary,
    /// `m`, no suffix, `k`, `M` ...
    #[default]
    Decimal,
    /// `e3`, `E6` ...
    Exponent,
}

/// The error of a malformed quantity, with Kubernetes' message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The text does not have the form of a quantity.
    Format,
    /// The number before the suffix is malformed.
    Numeric,
    /// The suffix is unknown.
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuantityError::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            QuantityError::Numeric => "unable to parse numeric part of quantity",
            QuantityError::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for QuantityError {}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Parses a quantity. Rounds to billionths, away from zero.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let (negative, rest) = match text.as_bytes() {
            [] => return Err(QuantityError::Format),
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        if !is_suffix(suffix) {
            return Err(QuantityError::Format);
        }
        if whole.is_empty() && fraction.is_empty() && !text.contains('.') {
            return Err(QuantityError::Format);
        }
        let (family, exponent) = read_suffix(suffix)?;
        let nanos = match family {
            QuantityFormat::Binary => scale(whole, fraction, 9, 1_i128 << exponent).min(BINARY_CAP),
            _ => scale(whole, fraction, exponent.saturating_add(9), 1),
        };
        Ok(Quantity { nanos: if negative { -nanos } else { nanos }, family })
    }

    /// Returns the text that Kubernetes stores for an amount: the canonical form, or the text itself where it takes that to be canonical,
    /// as `+1` or `01`.
    pub fn stored_text(text: &str) -> Result<String, QuantityError> {
        let quantity = Quantity::parse(text)?;
        Ok(if is_taken_as_canonical(text) { text.to_owned() } else { quantity.to_string() })
    }

    /// Creates an integer number of units.
    pub fn from_int(units: i64) -> Quantity {
        Quantity { nanos: i128::from(units) * NANOS, family: QuantityFormat::Decimal }
    }

    /// Creates a number of thousandths.
    pub fn from_milli(milli: i64) -> Quantity {
        Quantity { nanos: i128::from(milli) * (NANOS / 1000), family: QuantityFormat::Decimal }
    }

    /// Creates a number of bytes, printed with binary suffixes.
    pub fn from_bytes(bytes: i64) -> Quantity {
        Quantity { nanos: i128::from(bytes) * NANOS, family: QuantityFormat::Binary }
    }

    /// The amount in thousandths, rounded away from zero.
    pub fn milli(self) -> i64 {
        self.in_steps(NANOS / 1000)
    }

    /// The amount in units, rounded away from zero.
    pub fn value(self) -> i64 {
        self.in_steps(NANOS)
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is negative.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The amount in units as a floating-point number, for ratios.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    fn in_steps(self, step: i128) -> i64 {
        let steps = (self.nanos.abs() + step - 1) / step * self.nanos.signum();
        i64::try_from(steps).unwrap_or(if steps < 0 { i64::MIN } else { i64::MAX })
    }
}

/// Whether Kubernetes takes a valid text to be canonical: a short number without zeros at its ends, in steps of its notation.
fn is_taken_as_canonical(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    let Ok((family, exponent)) = read_suffix(suffix) else { return false };
    let shifted = format!("{}{fraction}", if whole.is_empty() { "0" } else { whole });
    if shifted.len() > MAX_SHORT_DIGITS {
        return false;
    }
    if family == QuantityFormat::Binary {
        let room = 14 - shifted.len() as i32 - exponent * 3 / 10;
        return fraction.is_empty() && room >= 0 && shifted.parse::<i64>().is_ok_and(|number| number & 7 != 0);
    }
    let power = exponent.saturating_sub(fraction.len() as i32);
    power >= -9 && power % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn is_suffix(text: &str) -> bool {
    let rest = text.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    rest.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the notation and the exponent, of base 2 for the binary notation and of base 10 otherwise.
fn read_suffix(suffix: &str) -> Result<(QuantityFormat, i32), QuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((QuantityFormat::Decimal, *power));
    }
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Ok((QuantityFormat::Binary, *power as i32));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse().ok());
    exponent.map(|exponent| (QuantityFormat::Exponent, exponent)).ok_or(QuantityError::Suffix)
}

/// Computes `whole.fraction` x 10^power x factor, rounded up and capped.
fn scale(whole: &str, fraction: &str, power: i32, factor: i128) -> i128 {
    let digits: Vec<i128> = whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0')).collect();
    let point = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(i64::from(power));
    let Some(first) = digits.iter().position(|digit| *digit != 0) else { return 0 };
    // Forty digits before the point exceed the cap with any suffix, so the loop below is short and cannot overflow.
    if point.saturating_sub(first as i64) > 40 {
        return MAX_NANOS;
    }
    let kept = usize::try_from(point).unwrap_or(0);
    let mut units: i128 = 0;
    for index in first..kept.max(first) {
        units = units.saturating_mul(10).saturating_add(digits.get(index).copied().unwrap_or(0));
    }
    let tail = digits.get(kept..).unwrap_or_default();
    let leading = usize::try_from(-point).unwrap_or(0);
    units.saturating_mul(factor).saturating_add(tail_times(tail, leading, factor)).min(MAX_NANOS)
}

/// Computes the fractional part, `0.<leading zeros><tail>` x factor, rounded up.
fn tail_times(tail: &[i128], leading: usize, factor: i128) -> i128 {
    if tail.iter().all(|digit| *digit == 0) {
        return 0;
    }
    // 18 digits are exact enough: further digits only matter above an integer, which rounding up already covers.
    let mut digits = std::iter::repeat_n(0, leading.min(18)).chain(tail.iter().copied()).chain(std::iter::repeat(0));
    let mut part: i128 = 0;
    for _ in 0..18 {
        part = part * 10 + digits.next().unwrap_or(0);
    }
    let inexact = leading + tail.len() > 18 && (leading >= 18 || tail[18 - leading..].iter().any(|digit| *digit != 0));
    let scaled = (part + i128::from(inexact)) * factor;
    let one = 10_i128.pow(18);
    scaled / one + i128::from(scaled % one != 0)
}

/// Prints the canonical form: no fraction, and the largest suffix that gives an integer, in the original notation.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANOS;
        if self.family == QuantityFormat::Binary && !small && self.nanos % NANOS == 0 {
            let (mut units, mut power) = (self.nanos / NANOS, 0);
            while units % 1024 == 0 && power < BINARY.len() {
                (units, power) = (units / 1024, power + 1);
            }
            let suffix = power.checked_sub(1).map_or("", |index| BINARY[index].0);
            return write!(f, "{units}{suffix}");
        }
        let (mut units, mut power) = (self.nanos, -9);
        while units % 1000 == 0 && (power < 18 || self.family == QuantityFormat::Exponent) {
            (units, power) = (units / 1000, power + 3);
        }
        match self.family {
            QuantityFormat::Exponent if power != 0 => write!(f, "{units}e{power}"),
            _ => {
                let suffix = DECIMAL.iter().find(|(_, exponent)| *exponent == power).map_or("", |(name, _)| name);
                write!(f, "{units}{suffix}")
            }
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        Quantity::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The sum has the notation of the left side, unless that is zero.
impl Add for Quantity {
    type Output = Quantity;

    fn add(self, other: Quantity) -> Quantity {
        let family = if self.is_zero() { other.family } else { self.family };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), family }
    }
}

impl Neg for Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        Quantity { nanos: self.nanos.saturating_neg(), ..self }
    }
}

impl Sub for Quantity {
    type Output = Quantity;

    fn sub(self, other: Quantity) -> Quantity {
        self + -other
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Quantity) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Quantity) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Quantity>>(items: I) -> Quantity {
        items.fold(Quantity::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_in_canonical_form() {
        for (text, wanted) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("0.5", "500m"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("2048Mi", "2Gi"),
            ("0.5Ki", "512"),
            ("1023Ki", "1023Ki"),
            ("0.1Ki", "102400m"),
            ("1.0001Ki", "1024102400u"),
            ("1.", "1"),
            (".5", "500m"),
            ("+1", "1"),
            ("-1.5", "-1500m"),
            ("-2Gi", "-2Gi"),
            ("1E", "1E"),
            ("1e-3", "1e-3"),
            ("12e5", "1200e3"),
            ("0.0000000001", "1n"),
            ("-0.0000000001", "-1n"),
            ("0.00000000000000000000000000001", "1n"),
            ("1e-100", "1e-9"),
            ("123456789123456789", "123456789123456789"),
            ("9223372036854775808", "9223372036854775808"),
            ("-100E", "-100E"),
            ("1e20", "100e18"),
            ("1e999999999", "10e27"),
            ("8Ei", "9223372036854775807"),
            ("0001", "1"),
            ("0.1Gi", "107374182400m"),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()), Ok(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn texts_are_stored_as_kubernetes_does() {
        for (text, wanted) in [
            ("+1", "+1"),
            ("+1Ki", "+1Ki"),
            ("01", "01"),
            ("5.", "5."),
            ("1.500", "1.500"),
            ("1E3", "1E3"),
            ("-1", "-1"),
            ("0", "0"),
            ("00", "0"),
            ("+0", "0"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1.0", "1"),
            ("8Ki", "8Ki"),
            ("1024Ki", "1Mi"),
            ("+8Ki", "8Ki"),
            ("1.5Gi", "1536Mi"),
        ] {
            assert_eq!(Quantity::stored_text(text).as_deref(), Ok(wanted), "{text}");
        }
        assert_eq!(Quantity::stored_text("1x"), Err(QuantityError::Format));
    }

    #[test]
    fn malformed_quantities_are_refused() {
        for (text, wanted) in [
            ("", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            (" 1", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("--1", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1GiB", QuantityError::Format),
            ("1Kk", QuantityError::Suffix),
            ("1i", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1K", QuantityError::Suffix),
            ("é", QuantityError::Format),
        ] {
            assert_eq!(Quantity::parse(text), Err(wanted), "{text}");
        }
    }

    #[test]
    fn quantities_compare_add_and_round() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G"));
        assert_eq!((q("1Gi") + q("512Mi")).to_string(), "1536Mi");
        assert_eq!((q("0") + q("512Mi")).to_string(), "512Mi");
        assert_eq!((q("1") - q("250m")).to_string(), "750m");
        assert_eq!([q("1"), q("2")].into_iter().sum::<Quantity>(), q("3"));
        for (text, milli, value) in
            [("1u", 1, 1), ("1500m", 1500, 2), ("-1500m", -1500, -2), ("1Gi", 1_073_741_824_000, 1_073_741_824)]
        {
            assert_eq!((q(text).milli(), q(text).value()), (milli, value), "{text}");
        }
        assert_eq!(q("100E").milli(), i64::MAX);
    }
}
