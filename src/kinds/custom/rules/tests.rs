//! Rules of schemas at definition time and for objects, with the messages of Kubernetes.

use super::definition::check;
use super::*;
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::json;

fn rules(list: &[&str]) -> Value {
    list.iter().map(|rule| json!({"rule": rule})).collect()
}

/// Returns the errors of a definition with these fields in `spec`.
fn wrong(fields: Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let mut errors = FieldErrors::default();
    check(&schema, &FieldPath::root("s"), false, &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_that_cannot_be_compiled_are_refused() {
    const AT: &str = "s.properties[spec].properties[a].x-kubernetes-validations[0]";
    let printed = |rule: &str| {
        format!(
            "Invalid value: {{\"Rule\":{},\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}",
            json!(rule)
        )
    };
    let text =
        |validations: Value| json!({"a": {"type": "string", "maxLength": 20, "x-kubernetes-validations": validations}});
    let cases = [
        (rules(&["self"]), format!("{AT}.rule: {}: cel expression must evaluate to a bool", printed("self"))),
        (
            rules(&["self + 1 == ''"]),
            format!(
                "{AT}.rule: {}: compilation failed: ERROR: <input>:1:6: found no matching overload for '_+_' applied to '(string, int)'\n | self + 1 == ''\n | .....^",
                printed("self + 1 == ''")
            ),
        ),
        (rules(&[" "]), format!("{AT}.rule: Required value: rule is not specified")),
        (rules(&["true\n"]), String::new()),
        (
            rules(&["true\n&& true"]),
            format!("{AT}.message: Required value: message must be specified if rule contains line breaks"),
        ),
        (
            json!([{"rule": "true", "reason": "Odd"}]),
            format!(
                "{AT}.reason: Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""
            ),
        ),
        (
            json!([{"rule": "true", "fieldPath": ".nope"}]),
            format!("{AT}.fieldPath: Invalid value: \".nope\": must be a valid path"),
        ),
        (
            json!([{"rule": "true", "optionalOldSelf": true}]),
            format!("{AT}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"),
        ),
        (rules(&["self == oldSelf"]), String::new()),
        (json!([{"rule": "!oldSelf.hasValue() || oldSelf.value() == self", "optionalOldSelf": true}]), String::new()),
    ];
    for (validations, expected) in cases {
        assert_eq!(wrong(text(validations.clone())).join("\n"), expected, "{validations}");
    }
}

#[test]
fn message_expression_and_old_values_of_lists_are_checked() {
    let fields = json!({"a": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9,
        "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}});
    let found = wrong(fields);
    let expected = "s.properties[spec].properties[a].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": \
                    oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec].properties[a]";
    assert_eq!(found, [expected]);
    let found = wrong(
        json!({"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "messageExpression": "self"}]}}),
    );
    assert!(found[0].ends_with("messageExpression must evaluate to a string"), "{found:?}");
    let free =
        json!({"a": {"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": [{"rule": "true"}]}});
    assert!(wrong(free)[0].contains("Internal error: internal error: failed to construct type information"));
}

#[test]
fn costs_of_rules_are_limited() {
    let list = |more: Value| {
        let mut list = json!({"type": "array", "items": {"type": "string"},
            "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x.matches(y)))"}]});
        json_patch::merge(&mut list, &more);
        json!({"c": list})
    };
    let found = wrong(list(json!({})));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[0].contains("Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try"),
        "{found:?}"
    );
    assert!(found[1].contains("contributed to estimated rule cost total exceeding cost limit"), "{found:?}");
    assert!(
        found[2].starts_with("s: Forbidden: x-kubernetes-validations estimated rule cost total for entire"),
        "{found:?}"
    );
    assert_eq!(wrong(list(json!({"maxItems": 10, "items": {"maxLength": 40}}))), [] as [String; 0]);
    let many = wrong(list(json!({"maxItems": 60, "items": {"maxLength": 200}})));
    assert!(many[0].contains("by factor of 5"), "{many:?}");
}

#[test]
fn hundreds_of_rules_are_checked_together() {
    let field = |n: usize| {
        let rule = format!("self.startsWith('a{n}') || self.size() < {n} || has(self.x)");
        (format!("f{n}"), json!({"type": "string", "maxLength": 30, "x-kubernetes-validations": rules(&[&rule])}))
    };
    let found = wrong((0..300).map(field).collect::<serde_json::Map<_, _>>().into());
    assert_eq!(found.len(), 300, "has() of a text is refused in each");
}

/// Returns the errors of an object that was `old` before.
fn errors(schema: &Value, object: Value, old: Option<Value>) -> Vec<String> {
    let tree = RuleTree::compile(schema).expect("rules");
    let mut errors = FieldErrors::default();
    let warnings = tree.evaluate(&object, old.as_ref(), &mut errors);
    errors
        .0
        .iter()
        .map(ToString::to_string)
        .chain(warnings.into_iter().map(|text| format!("warning: {text}")))
        .collect()
}

fn plan() -> Value {
    let validations = json!([
        {"rule": "self.low <= self.high", "message": "low is above high", "fieldPath": ".low", "reason": "FieldValueInvalid"},
        {"rule": "!has(oldSelf.tier) || has(self.tier)", "message": "tier cannot be taken away"},
    ]);
    json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": validations, "properties": {
        "low": {"type": "integer"}, "high": {"type": "integer"},
        "tier": {"type": "string", "x-kubernetes-validations":
            [{"rule": "self == oldSelf", "message": "tier is immutable", "reason": "FieldValueForbidden"}]},
        "size": {"type": "string", "x-kubernetes-validations":
            [{"rule": "quantity(self).isGreaterThan(quantity('1Gi'))", "messageExpression": "'size ' + self + ' is not above 1Gi'"}]},
        "a-b": {"type": "string", "x-kubernetes-validations": rules(&["self != 'x'"])},
        "any": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": rules(&["type(self) == int ? self > 0 : self.endsWith('%')"])},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
            "x-kubernetes-validations": rules(&["self.n >= oldSelf.n"])}},
        "map": {"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": rules(&["self < 10"])}},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": rules(&["self.kind == 'Pod' && self.metadata.name.startsWith('p')"])},
    }}}})
}

#[test]
fn objects_that_break_rules_are_refused() {
    let spec = |more: Value| {
        let mut spec = json!({"low": 1, "high": 5});
        json_patch::merge(&mut spec, &more);
        json!({"spec": spec})
    };
    let cases = [
        (json!({}), None, ""),
        (json!({"low": 9}), None, "spec.low: Invalid value: low is above high"),
        (json!({"size": "100Mi"}), None, "spec.size: Invalid value: \"100Mi\": size 100Mi is not above 1Gi"),
        (json!({"a-b": "x"}), None, "spec.a-b: Invalid value: \"x\": failed rule: self != 'x'"),
        (json!({"tier": "gold"}), Some(json!({"tier": "silver"})), "spec.tier: Forbidden: tier is immutable"),
        (json!({}), Some(json!({"tier": "silver"})), "spec: Invalid value: tier cannot be taken away"),
        (json!({"any": 3}), None, ""),
        (
            json!({"any": "3"}),
            None,
            "spec.any: Invalid value: \"3\": failed rule: type(self) == int ? self > 0 : self.endsWith('%')",
        ),
        (json!({"map": {"a": 1, "b": 11}}), None, "spec.map[b]: Invalid value: 11: failed rule: self < 10"),
        (json!({"pod": {"kind": "Pod", "metadata": {"name": "p"}, "other": 1}}), None, ""),
        (
            json!({"items": [{"name": "x", "n": 9}, {"name": "b", "n": 1}]}),
            Some(json!({"items": [{"name": "b", "n": 2}]})),
            "spec.items[1]: Invalid value: failed rule: self.n >= oldSelf.n",
        ),
        (
            json!({"low": null}),
            None,
            "spec: Invalid value: \"object\": no such key: low evaluating rule: low is above high",
        ),
        (
            json!({"size": "100Mi", "high": 6}),
            Some(json!({"size": "100Mi"})),
            "warning: spec.size: Invalid value: \"100Mi\": size 100Mi is not above 1Gi",
        ),
    ];
    for (new, old, expected) in cases {
        assert_eq!(errors(&plan(), spec(new.clone()), old.map(&spec)).join("\n"), expected, "{new}");
    }
}

#[test]
fn rules_stop_when_the_budget_is_used_up() {
    let heavy = "lists.range(50000).all(x, x >= 0)";
    let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": rules(&[heavy])}}}});
    let found = errors(&schema, json!({"list": vec!["a"; 200]}), None);
    let last = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert!(found.len() == 1 && found[0].ends_with(last), "{found:?}");
    let schema = json!({"type": "object", "x-kubernetes-validations": rules(&["lists.range(900000).all(x, x >= 0)"]), "properties": {}});
    let found = errors(&schema, json!({}), None);
    assert!(
        found[0].starts_with("<nil>: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded'"),
        "{found:?}"
    );
}
