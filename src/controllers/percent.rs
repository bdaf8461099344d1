//! Fields of the type IntOrString that may be percentages: `maxSurge: 25%`.

use serde_json::Value;

/// Resolves a number or percentage of a total; `None` when the value is absent or malformed.
pub fn resolve_percent(value: Option<&Value>, total: i64, round_up: bool) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let hundredfold = i128::from(percent) * i128::from(total);
            let rounding = if round_up { 99 } else { 0 };
            // Kubernetes counts in 32 bits, so that sums of results fit in 64.
            let most = i128::from(i32::MAX);
            i64::try_from((hundredfold + rounding).div_euclid(100).clamp(-most, most)).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn percentages_are_rounded_up_or_down() {
        for (value, total, up, down) in
            [(json!("25%"), 10, 3, 2), (json!("25%"), 4, 1, 1), (json!(3), 1, 3, 3), (json!("0%"), 9, 0, 0)]
        {
            assert_eq!(super::resolve_percent(Some(&value), total, true), Some(up));
            assert_eq!(super::resolve_percent(Some(&value), total, false), Some(down));
        }
        assert_eq!(super::resolve_percent(Some(&json!("x")), 1, true), None);
        let largest = json!(format!("{}%", i64::MAX));
        assert_eq!(super::resolve_percent(Some(&largest), 1, true), Some(i64::from(i32::MAX)));
    }
}
