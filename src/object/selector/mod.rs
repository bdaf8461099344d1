//! Selectors for lists, controllers and Services.
//!
//! Matches and prints requirements on labels and fields ([`FieldSelector`]).
//! Never: depends on an object or kind; a function looks labels up. The text grammar is in `parse`.
//! Start reading at [`Selector`].

mod field;
mod parse;

pub use field::{FieldOp, FieldSelector};

use super::label;
use serde_json::{Value, json};
use std::fmt;

/// Comparison operator of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorOp {
    /// `k=v`
    Equals,
    /// `k==v`: the same, but printed as `==`.
    DoubleEquals,
    /// `k!=v`: also true without the label.
    NotEquals,
    /// `k in (a,b)`
    In,
    /// `k notin (a,b)`: also true without the label.
    NotIn,
    /// `k`
    Exists,
    /// `!k`
    DoesNotExist,
    /// `k>1`
    GreaterThan,
    /// `k<1`
    LessThan,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The operator.
    pub op: SelectorOp,
    /// Values to compare with: sorted, without duplicates.
    pub values: Vec<String>,
}

/// Requirements on labels, all of which must be satisfied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

/// The error of a malformed selector, with Kubernetes' message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError(pub String);

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SelectorError {}

impl Selector {
    /// A selector of every object.
    pub fn everything() -> Selector {
        Selector { requirements: Vec::new(), nothing: false }
    }

    /// A selector of no object.
    pub fn nothing() -> Selector {
        Selector { requirements: Vec::new(), nothing: true }
    }

    /// Parses the text form: `app=web,tier in (db,cache),!canary`. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        parse::parse(text).map(Selector::from_requirements)
    }

    /// Reads a `LabelSelector` object. `null` selects nothing, `{}` everything (Kubernetes API reference).
    pub fn from_label_selector(selector: &Value) -> Result<Selector, SelectorError> {
        let Some(selector) = selector.as_object() else { return Ok(Selector::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, SelectorOp::Equals, vec![value])?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(Requirement::from_expression(expression)?);
        }
        Ok(Selector::from_requirements(requirements))
    }

    /// Converts to a `LabelSelector` object. Fails for an operator that such an object has not.
    pub fn to_label_selector(&self) -> Result<Value, SelectorError> {
        let (mut labels, mut expressions) = (serde_json::Map::new(), Vec::new());
        for Requirement { key, op, values } in &self.requirements {
            let operator = match op {
                SelectorOp::Equals | SelectorOp::DoubleEquals => {
                    labels.insert(key.clone(), values.first().cloned().into());
                    continue;
                }
                SelectorOp::In => "In",
                SelectorOp::NotIn => "NotIn",
                SelectorOp::Exists => "Exists",
                SelectorOp::DoesNotExist => "DoesNotExist",
                SelectorOp::NotEquals => {
                    return Err(SelectorError("\"!=\" is not a valid label selector operator".into()));
                }
                SelectorOp::GreaterThan => {
                    return Err(SelectorError("\"gt\" isn't supported in label selectors".into()));
                }
                SelectorOp::LessThan => return Err(SelectorError("\"lt\" isn't supported in label selectors".into())),
            };
            let mut expression = json!({"key": key, "operator": operator});
            if !values.is_empty() {
                expression["values"] = values.clone().into();
            }
            expressions.push(expression);
        }
        let mut selector = json!({});
        if !labels.is_empty() {
            selector["matchLabels"] = labels.into();
        }
        if !expressions.is_empty() {
            selector["matchExpressions"] = expressions.into();
        }
        Ok(selector)
    }

    /// A selector that requires every pair, like the `spec.selector` of Services and ReplicationControllers.
    pub fn from_map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Selector {
        let equals = |(key, value): (&str, &str)| Requirement {
            key: key.into(),
            op: SelectorOp::Equals,
            values: vec![value.into()],
        };
        Selector::from_requirements(pairs.into_iter().map(equals).collect())
    }

    fn from_requirements(mut requirements: Vec<Requirement>) -> Selector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Selector { requirements, nothing: false }
    }

    /// Returns the intersection of both selectors.
    pub fn and(mut self, other: &Selector) -> Selector {
        let more =
            other.requirements.iter().filter(|one| !self.requirements.contains(one)).cloned().collect::<Vec<_>>();
        self.requirements.extend(more);
        Selector { nothing: self.nothing || other.nothing, ..Selector::from_requirements(self.requirements) }
    }

    /// Whether labels, looked up by key, satisfy every requirement.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }

    /// Whether it selects every object.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether it selects no object.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Returns the labels for which the selector allows a single value.
    pub fn exact(&self) -> impl Iterator<Item = (&str, &str)> {
        let sure = self
            .requirements
            .iter()
            .filter(|one| matches!(one.op, SelectorOp::Equals | SelectorOp::DoubleEquals | SelectorOp::In));
        sure.filter_map(|one| match one.values.as_slice() {
            [value] => Some((one.key.as_str(), value.as_str())),
            _ => None,
        })
    }

    /// The requirements, ordered by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl Requirement {
    /// Creates a requirement. Refuses an empty `in`, and invalid keys and values.
    pub fn new(key: &str, op: SelectorOp, mut values: Vec<String>) -> Result<Requirement, SelectorError> {
        values.sort();
        values.dedup();
        let mut problems: Vec<String> = invalid("key", key, label::key_problems(key)).into_iter().collect();
        problems.extend(count_problem(op, &values));
        for (index, value) in values.iter().enumerate() {
            if matches!(op, SelectorOp::GreaterThan | SelectorOp::LessThan) && value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                problems.push(format!("values[{index}]: Invalid value: {value:?}: {why}"));
            }
            problems.extend(invalid(&format!("values[{index}][{key}]"), value, label::value_problems(value)));
        }
        match problems.as_slice() {
            [] => Ok(Requirement { key: key.into(), op, values }),
            [one] => Err(SelectorError(one.clone())),
            several => Err(SelectorError(format!("[{}]", several.join(", ")))),
        }
    }

    fn from_expression(expression: &Value) -> Result<Requirement, SelectorError> {
        let op = match expression["operator"].as_str().unwrap_or_default() {
            "In" => SelectorOp::In,
            "NotIn" => SelectorOp::NotIn,
            "Exists" => SelectorOp::Exists,
            "DoesNotExist" => SelectorOp::DoesNotExist,
            other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
        };
        let values = expression["values"].as_array().into_iter().flatten();
        let values = values.map(|value| value.as_str().unwrap_or_default().to_owned()).collect();
        Requirement::new(expression["key"].as_str().unwrap_or_default(), op, values)
    }

    /// Whether a label's value, or its absence, satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let compare = |test: fn(&i64, &i64) -> bool| {
            let limit = self.values.first().and_then(|limit| limit.parse::<i64>().ok());
            let number = value.and_then(|value| value.parse::<i64>().ok());
            number.zip(limit).is_some_and(|(number, limit)| test(&number, &limit))
        };
        match self.op {
            SelectorOp::Equals | SelectorOp::DoubleEquals | SelectorOp::In => value.is_some_and(is_listed),
            SelectorOp::NotEquals | SelectorOp::NotIn => !value.is_some_and(is_listed),
            SelectorOp::Exists => value.is_some(),
            SelectorOp::DoesNotExist => value.is_none(),
            SelectorOp::GreaterThan => compare(i64::gt),
            SelectorOp::LessThan => compare(i64::lt),
        }
    }
}

fn invalid(path: &str, value: &str, problems: Vec<String>) -> Option<String> {
    (!problems.is_empty()).then(|| format!("{path}: Invalid value: {value:?}: {}", problems.join("; ")))
}

fn count_problem(op: SelectorOp, values: &[String]) -> Option<String> {
    let (fine, why) = match op {
        SelectorOp::In | SelectorOp::NotIn => {
            (!values.is_empty(), "for 'in', 'notin' operators, values set can't be empty")
        }
        SelectorOp::Exists | SelectorOp::DoesNotExist => {
            (values.is_empty(), "values set must be empty for exists and does not exist")
        }
        SelectorOp::GreaterThan | SelectorOp::LessThan => {
            (values.len() == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
        }
        _ => (values.len() == 1, "exact-match compatibility requires one single value"),
    };
    let shown = serde_json::Value::from(values.to_vec());
    (!fine).then(|| format!("values: Invalid value: {shown}: {why}"))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.op {
            SelectorOp::Equals => write!(f, "{key}={values}"),
            SelectorOp::DoubleEquals => write!(f, "{key}=={values}"),
            SelectorOp::NotEquals => write!(f, "{key}!={values}"),
            SelectorOp::In => write!(f, "{key} in ({values})"),
            SelectorOp::NotIn => write!(f, "{key} notin ({values})"),
            SelectorOp::Exists => write!(f, "{key}"),
            SelectorOp::DoesNotExist => write!(f, "!{key}"),
            SelectorOp::GreaterThan => write!(f, "{key}>{values}"),
            SelectorOp::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// Prints like kubectl's SELECTOR column; `<none>` without requirements.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requirements.is_empty() {
            return f.write_str("<none>");
        }
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hits(selector: &Selector, labels: &Value) -> bool {
        selector.matches(|key| labels.get(key).and_then(Value::as_str))
    }

    #[test]
    fn text_selectors_match() {
        let labels = json!({"app": "web", "tier": "db", "n": "5", "empty": ""});
        for (text, wanted) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=db", true),
            ("app!=web", false),
            ("none!=x", true),
            ("app in (a,web)", true),
            ("app notin (a, web)", false),
            ("none notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!none", true),
            ("n>4", true),
            ("n<5", false),
            ("app>1", false),
            ("empty=", true),
            ("app=", false),
            ("empty in (,a)", true),
        ] {
            assert_eq!(hits(&Selector::parse(text).unwrap(), &labels), wanted, "{text}");
        }
    }

    #[test]
    fn label_selector_objects_match() {
        let labels = json!({"app": "web", "tier": "db"});
        for (object, wanted) in [
            (Value::Null, false),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]}), false),
            (json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), true),
        ] {
            assert_eq!(hits(&Selector::from_label_selector(&object).unwrap(), &labels), wanted, "{object}");
        }
        let odd = json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]});
        let error = Selector::from_label_selector(&odd).unwrap_err();
        assert_eq!(error.to_string(), "\"Odd\" is not a valid label selector operator");
    }

    #[test]
    fn selectors_print_as_in_the_selector_column() {
        for (object, wanted) in [
            (Value::Null, "<none>"),
            (json!({}), "<none>"),
            (json!({"matchLabels": {"b": "2", "a": "1"}}), "a=1,b=2"),
            (
                json!({"matchLabels": {"z": "1"}, "matchExpressions": [
                    {"key": "t", "operator": "In", "values": ["b", "a"]}, {"key": "u", "operator": "NotIn", "values": ["c"]},
                    {"key": "v", "operator": "Exists"}, {"key": "w", "operator": "DoesNotExist"}]}),
                "t in (a,b),u notin (c),v,!w,z=1",
            ),
        ] {
            assert_eq!(Selector::from_label_selector(&object).unwrap().to_string(), wanted);
        }
        assert_eq!(Selector::from_map([("b", "2"), ("a", "1")]).to_string(), "a=1,b=2");
        assert_eq!(Selector::parse("k>1, j<2,a==b,c!=d").unwrap().to_string(), "a==b,c!=d,j<2,k>1");
    }
}
