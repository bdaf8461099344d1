//! Deprecated labels of nodes (`pkg/api/node/util.go`).

use super::names;
use serde_json::Value;

const DEPRECATED: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// The message about a deprecated label.
pub fn deprecated(key: &str) -> Option<&'static str> {
    DEPRECATED.iter().find(|(known, _)| *known == key).map(|(_, message)| *message)
}

/// Warns of deprecated labels in a term of a node selector, and with `with_values` of invalid label values (in
/// preferred terms, validation does not check values).
pub fn warn_of_term(term: &Value, path: &str, with_values: bool, warnings: &mut Vec<String>) {
    for (index, expression) in term["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        let (at, key) = (format!("{path}.matchExpressions[{index}]"), expression["key"].as_str().unwrap_or_default());
        if let Some(message) = deprecated(key) {
            warnings.push(format!("{at}.key: {key} is {message}"));
        }
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for (index, value) in values.enumerate().filter(|_| with_values) {
            let problems = names::label_value(value);
            warnings.extend(problems.into_iter().map(|problem| format!("{at}.values[{index}]: {problem}")));
        }
    }
}
