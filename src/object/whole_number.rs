//! Whole numbers in JSON. Go writes every form of them without a fraction: `1000` for `1e3` and `1000.0`.
//!
//! Never: changes a number that is not whole.

use serde_json::Value;

/// Returns a floating-point number as an integer if it is whole and fits into 64 bits.
pub fn from_float(number: f64) -> Option<i64> {
    // The casts of larger numbers would not be exact.
    (number.fract() == 0.0 && number.abs() < 9.2e18).then_some(number as i64)
}

/// Writes the whole numbers of a value without a fraction.
pub fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(from_float) {
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_fraction() {
        let table = [
            ("1e3", "1000"),
            ("1000.0", "1000"),
            ("-0.0", "0"),
            ("-0", "0"),
            ("-2.5e1", "-25"),
            ("0.5", "0.5"),
            ("18446744073709551615", "18446744073709551615"),
            ("1e20", "1e+20"),
            ("9007199254740993", "9007199254740993"),
        ];
        for (text, expected) in table {
            let mut value: Value = serde_json::from_str(&format!("{{\"a\":[{text}]}}")).unwrap();
            make_whole(&mut value);
            assert_eq!(value.to_string(), format!("{{\"a\":[{expected}]}}"), "{text}");
        }
    }
}
