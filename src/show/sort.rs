//! `--sort-by`.

use crate::go::jsonpath::{self, JsonPathTemplate};
use crate::object::{Object, Quantity};
use serde_json::Value;
use std::cmp::Ordering;

/// Sort key of objects.
#[derive(Clone, Debug)]
pub struct SortBy {
    path: String,
    template: JsonPathTemplate,
}

impl SortBy {
    /// Parses a path, `.metadata.name` or `{.metadata.name}`.
    pub fn parse(path: &str) -> Result<SortBy, String> {
        let path = jsonpath::relaxed(path)?;
        let template = JsonPathTemplate::parse(&path)?;
        Ok(SortBy { path, template })
    }

    /// Sorts the objects; those without the field come first. Fails if no object has the field. As
    /// in kubectl, a table then leaves the objects out, and the other formats show the error.
    pub fn sort(&self, objects: &mut [Object]) -> Result<(), String> {
        let keys: Result<Vec<Option<Value>>, String> = objects.iter().map(|object| self.key(object)).collect();
        let keys = keys?;
        if objects.len() > 1 && keys.iter().all(Option::is_none) {
            return Err(format!("couldn't find any field with path {:?} in the list of objects", self.path));
        }
        let mut keyed: Vec<(Option<Value>, Object)> =
            keys.into_iter().zip(objects.iter_mut().map(take_object)).collect();
        keyed.sort_by(|(left, _), (right, _)| compare(left.as_ref(), right.as_ref()));
        for (slot, (_, object)) in objects.iter_mut().zip(keyed) {
            *slot = object;
        }
        Ok(())
    }

    fn key(&self, object: &Object) -> Result<Option<Value>, String> {
        Ok(self.template.find(&object.0)?.first().map(|value| (*value).clone()))
    }
}

fn take_object(object: &mut Object) -> Object {
    Object(std::mem::take(&mut object.0))
}

fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(Value::String(left)), Some(Value::String(right))) => texts(left, right),
        (Some(Value::Number(left)), Some(Value::Number(right))) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => left.cmp(right),
        (Some(Value::Array(left)), Some(Value::Array(right))) => left.len().cmp(&right.len()),
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: Option<&Value>) -> u8 {
    match value {
        None | Some(Value::Null) => 0,
        Some(Value::Bool(_)) => 1,
        Some(Value::Number(_)) => 2,
        Some(Value::String(_)) => 3,
        Some(_) => 4,
    }
}

/// Compares two quantities by amount, and other text naturally: `web-2` before `web-10`.
fn texts(left: &str, right: &str) -> Ordering {
    match (Quantity::parse(left), Quantity::parse(right)) {
        (Ok(left), Ok(right)) => left.partial_cmp(&right).unwrap_or(Ordering::Equal),
        _ => natural(left, right),
    }
}

fn natural(mut left: &str, mut right: &str) -> Ordering {
    loop {
        let (Some(l), Some(r)) = (left.chars().next(), right.chars().next()) else {
            return left.len().cmp(&right.len());
        };
        if l.is_ascii_digit() && r.is_ascii_digit() {
            let (ldigits, lrest) = digits(left);
            let (rdigits, rrest) = digits(right);
            let (lvalue, rvalue) = (ldigits.trim_start_matches('0'), rdigits.trim_start_matches('0'));
            let order = lvalue
                .len()
                .cmp(&rvalue.len())
                .then_with(|| lvalue.cmp(rvalue))
                .then(ldigits.len().cmp(&rdigits.len()));
            if order.is_ne() {
                return order;
            }
            (left, right) = (lrest, rrest);
        } else if l == r {
            (left, right) = (&left[l.len_utf8()..], &right[r.len_utf8()..]);
        } else {
            return l.cmp(&r);
        }
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sorted(values: Vec<Value>) -> Vec<i64> {
        let object = |(at, value): (usize, Value)| {
            Object(if value.is_null() { json!({"at": at}) } else { json!({"at": at, "v": value}) })
        };
        let mut objects: Vec<Object> = values.into_iter().enumerate().map(object).collect();
        SortBy::parse(".v").unwrap().sort(&mut objects).unwrap();
        objects.iter().map(|object| object.int(&["at"]).unwrap()).collect()
    }

    #[test]
    fn values_are_sorted() {
        let cases = [
            (vec![json!("web-10"), json!("web-2"), json!("web-1")], vec![2, 1, 0]),
            (vec![json!(3), json!(1), json!(2)], vec![1, 2, 0]),
            (vec![json!("1Gi"), json!("200Mi"), json!("2Gi")], vec![1, 0, 2]),
            (vec![json!("2026-01-02T00:00:00Z"), json!("2025-01-02T00:00:00Z")], vec![1, 0]),
            (vec![json!("b"), Value::Null, json!("a")], vec![1, 2, 0]),
            (vec![json!("a"), json!("a"), json!("a")], vec![0, 1, 2]),
        ];
        for (values, expected) in cases {
            assert_eq!(sorted(values.clone()), expected, "{values:?}");
        }
    }

    #[test]
    fn path_that_no_object_has_is_refused() {
        let mut objects = vec![Object(json!({})), Object(json!({}))];
        let error = SortBy::parse(".spec.zzz").unwrap().sort(&mut objects).unwrap_err();
        assert_eq!(error, "couldn't find any field with path \"{.spec.zzz}\" in the list of objects");
        assert!(SortBy::parse(".spec.zzz").unwrap().sort(&mut objects[..1]).is_ok());
    }
}
