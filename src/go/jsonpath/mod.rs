//! kubectl's JSONPath: `{.items[*].metadata.name}{"\n"}`.
//!
//! `parse.rs` parses the template ([`JsonPathTemplate::parse`]), `pick.rs` selects values, and this file prints them.
//! This is the dialect of `k8s.io/client-go/util/jsonpath`, not RFC 9535: text outside of braces is literal, `range`
//! and `end` loop, blanks join the results of one expression, maps and lists print as JSON. Never: depends on a kind.
//! Start reading at [`JsonPathTemplate`].

mod parse;
mod pick;

use super::json::to_json;
use serde_json::Value;
use std::borrow::Cow;

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPathTemplate {
    nodes: Vec<JsonPathNode>,
    missing_keys: MissingKeys,
}

/// Behaviour for missing fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKeys {
    /// A missing field has no result: kubectl's default.
    #[default]
    Allow,
    /// A missing field is an error: `--allow-missing-template-keys=false`.
    Refuse,
}

/// A node of a template.
#[derive(Clone, Debug, PartialEq)]
enum JsonPathNode {
    /// Text outside braces.
    Text(String),
    /// `{.a.b}`.
    Path(Vec<JsonPathStep>),
    /// `{range .items[*]}` up to its `{end}`.
    Range(Vec<JsonPathStep>, Vec<JsonPathNode>),
}

/// A step of an expression.
#[derive(Clone, Debug, PartialEq)]
enum JsonPathStep {
    Field(String),
    /// `range`, `end`, or an unknown word.
    Keyword(String),
    Slice(JsonPathSlice),
    /// `*`
    Each,
    /// `..`
    Descend,
    Union(Vec<Vec<JsonPathStep>>),
    Filter {
        left: Vec<JsonPathStep>,
        test: Option<(String, Vec<JsonPathStep>)>,
    },
    Literal(Value),
}

/// `[from:to:step]`; an index is a slice of one.
#[derive(Clone, Debug, PartialEq)]
struct JsonPathSlice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    index: bool,
}

/// A selected value, or the value of a literal.
pub type FoundValue<'a> = Cow<'a, Value>;

impl JsonPathTemplate {
    /// Parses a template. The error is kubectl's text after `error parsing jsonpath TEMPLATE, `.
    pub fn parse(text: &str) -> Result<JsonPathTemplate, String> {
        Ok(JsonPathTemplate { nodes: parse::template(text)?, missing_keys: MissingKeys::Allow })
    }

    /// Parses a single path as in `--sort-by` and custom columns: `.a.b`, `a.b`, `{.a.b}` or `{a.b}`.
    pub fn parse_relaxed(text: &str) -> Result<JsonPathTemplate, String> {
        JsonPathTemplate::parse(&relaxed(text)?)
    }

    /// Sets the behaviour for missing keys.
    pub fn with_missing_keys(mut self, missing_keys: MissingKeys) -> JsonPathTemplate {
        self.missing_keys = missing_keys;
        self
    }

    /// The template's output for a value.
    pub fn eval(&self, value: &Value) -> Result<String, String> {
        let mut text = String::new();
        for results in self.results(value)? {
            let parts: Vec<String> = results.iter().map(|found| printed(found)).collect();
            text.push_str(&parts.join(" "));
        }
        Ok(text)
    }

    /// Every value of the body that the template selects, in order, without values of literals.
    pub fn find<'a>(&self, value: &'a Value) -> Result<Vec<&'a Value>, String> {
        let results = self.results(value)?.into_iter().flatten();
        let borrowed = results.filter_map(|found| match found {
            Cow::Borrowed(value) => Some(value),
            Cow::Owned(_) => None,
        });
        Ok(borrowed.collect())
    }

    /// The results of each expression, including text.
    pub fn results<'a>(&self, value: &'a Value) -> Result<Vec<Vec<FoundValue<'a>>>, String> {
        let mut results = Vec::new();
        pick::walk(&self.nodes, &Cow::Borrowed(value), self.missing_keys, &mut results)?;
        Ok(results)
    }
}

/// Normalizes `a.b`, `.a.b`, `{a.b}` and `{.a.b}` to `{.a.b}`.
pub fn relaxed(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let path = inner.strip_prefix('.').unwrap_or(inner);
    if path.is_empty() || path.contains(['{', '}']) {
        let wish = "expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'";
        return Err(format!("unexpected path string, {wish}"));
    }
    Ok(format!("{{.{path}}}"))
}

/// Formats one result: text unchanged, maps and lists as compact JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => to_json(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pods() -> Value {
        json!({"items": [
            {"metadata": {"name": "alpha", "labels": {"app": "a", "num": "1"}}, "spec": {"nodeName": "node-a", "n": 1,
              "containers": [{"name": "main", "image": "nginx:1.27"}, {"name": "side", "image": "busybox:1", "env": [{"name": "X", "value": "1"}]}]}},
            {"metadata": {"name": "beta", "labels": {"app": "b"}}, "spec": {"nodeName": "node-b", "n": 2,
              "containers": [{"name": "main", "image": "nginx:1.26"}]}},
            {"metadata": {"name": "gamma", "labels": {"app": "a", "a.b/c": "dotted"}}, "spec": {"nodeName": "node-c", "n": 3, "ok": true,
              "containers": [{"name": "main", "image": "nginx:1.28"}]}},
        ]})
    }

    #[test]
    fn expressions_are_evaluated() {
        let cases = [
            (r#"{.items[*].metadata.name}{"\n"}"#, "alpha beta gamma\n"),
            (
                r#"{range .items[*]}{.metadata.name}{"\t"}{.spec.nodeName}{"\n"}{end}"#,
                "alpha\tnode-a\nbeta\tnode-b\ngamma\tnode-c\n",
            ),
            (r#"{.items[?(@.metadata.labels.app=="a")].metadata.name}"#, "alpha gamma"),
            (r#"{.items[?(@.spec.containers[0].image!="nginx:1.26")].metadata.name}"#, "alpha gamma"),
            (r#"{.items[0].spec.containers[?(@.name=="side")].env[0].value}"#, "1"),
            (r#"{.items[?(@.spec.n>1)].metadata.name}"#, "beta gamma"),
            (r#"{.items[?(@.spec.n<=2)].metadata.name}"#, "alpha beta"),
            (r#"{.items[?(@.spec.ok)].metadata.name}"#, "gamma"),
            (r#"{.items[?(@.spec.ok==true)].metadata.name}"#, "gamma"),
            (r#"{.items[?(@.metadata.labels.num=='1')].metadata.name}"#, "alpha"),
            ("{.items[*].spec.containers[*].image}", "nginx:1.27 busybox:1 nginx:1.26 nginx:1.28"),
            ("{..image}", "nginx:1.27 busybox:1 nginx:1.26 nginx:1.28"),
            (
                "{.items[-1].metadata.name} {.items[0:2].metadata.name} {.items[::2].metadata.name}",
                "gamma alpha beta alpha gamma",
            ),
            ("{.items[*]['metadata.name', 'spec.nodeName']}{'\\n'}", "alpha beta gamma node-a node-b node-c\n"),
            ("{.items[0,2].metadata.name}", "alpha gamma"),
            ("{.items[0].metadata.labels}", r#"{"app":"a","num":"1"}"#),
            (r"{.items[2].metadata.labels.a\.b/c}", "dotted"),
            (r"{.items[2].metadata.labels['a\.b/c']}", "dotted"),
            ("{.items[0].spec.nothing}", ""),
            (".metadata.name", ".metadata.name"),
            ("{@.items[0].spec.n}{$.items[1].spec.n}", "12"),
            ("{range .items[*]}{range .spec.containers[*]}{.name},{end};{end}!", "main,side,;main,;main,;!"),
            ("{range .nothing[*]}x{end}y", "y"),
            ("{.items[0].spec.containers[0].*}", "nginx:1.27 main"),
            ("{.items[2].spec.ok} {.items[0].spec.containers[1].env}", r#"true [{"name":"X","value":"1"}]"#),
        ];
        for (template, expected) in cases {
            let parsed = JsonPathTemplate::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.eval(&pods()).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn malformed_templates_are_refused() {
        let cases = [
            ("{.metadata.labels.app", "unclosed action"),
            ("{.items[0", "unterminated array"),
            ("{.items[?(@.a==1", "unterminated filter"),
            ("{\"x}", "unterminated quoted string"),
            ("{.items[a]}", "invalid array index a"),
            ("{%}", "unrecognized character in action: U+0025 '%'"),
            ("{.a....b}", "invalid multiple recursive descent"),
        ];
        for (template, expected) in cases {
            assert_eq!(JsonPathTemplate::parse(template).map(|_| ()), Err(expected.to_owned()), "{template}");
        }
    }

    #[test]
    fn failing_evaluations_return_errors() {
        let cases = [
            ("{.items[7].a}", "array index out of bounds: index 7, length 3"),
            ("{.items[9223372036854775807]}", "array index out of bounds: index 9223372036854775807, length 3"),
            ("{.items[0:9]}", "array index out of bounds: index 8, length 3"),
            ("{end}", "not in range, nothing to end"),
            ("{foo}", "unrecognized identifier foo"),
            ("{.items[0][0]}", "map[string]interface {} is not array or slice"),
            ("{.items[?(@.spec.n==\"1\")]}", "incompatible types for comparison"),
        ];
        for (template, expected) in cases {
            let result = JsonPathTemplate::parse(template).and_then(|parsed| parsed.eval(&pods()));
            assert_eq!(result, Err(expected.to_owned()), "{template}");
        }
    }

    #[test]
    fn missing_keys_can_be_refused() {
        let template = JsonPathTemplate::parse("{.data.zz}").unwrap().with_missing_keys(MissingKeys::Refuse);
        assert_eq!(template.eval(&json!({"data": {}})), Err("zz is not found".to_owned()));
    }

    #[test]
    fn relaxed_paths_are_accepted() {
        for path in [".a.b", "a.b", "{.a.b}", "{a.b}"] {
            assert_eq!(relaxed(path).as_deref(), Ok("{.a.b}"), "{path}");
        }
        assert!(relaxed("{.a").is_err());
    }

    #[test]
    fn find_borrows_values() {
        let pods = pods();
        let found = JsonPathTemplate::parse_relaxed(".items[*].spec.n").unwrap().find(&pods).unwrap();
        assert_eq!(found, [&json!(1), &json!(2), &json!(3)]);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = format!("{{{}", "[?(@.a".repeat(20_000));
        assert!(JsonPathTemplate::parse(&text).is_err());
        let text = format!("{{{}.a{}}}", "[?(".repeat(5_000), ")]".repeat(5_000));
        assert!(JsonPathTemplate::parse(&text).is_err());
    }
}
