//! Syntax of label keys and values.
//!
//! Checks qualified names, DNS subdomains and label values, with Kubernetes' error messages (apimachinery
//! `util/validation`).
//! Never: depends on the field of the text.
//! Start reading at [`key_problems`].

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                         '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Returns the problems of a label or annotation key (a name with an optional DNS prefix); empty when it is valid.
pub fn key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            let hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME} {hint}")];
        }
    };
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".into()),
        Some(prefix) => problems.extend(subdomain_problems(prefix).iter().map(|text| format!("prefix part {text}"))),
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".into());
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME}"));
    }
    problems
}

/// Returns the problems of a label value; empty when it is valid.
pub fn value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 bytes".into());
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(VALUE.into());
    }
    problems
}

/// Returns the problems of a DNS subdomain (RFC 1123), the form of most object names; empty when it is valid.
pub fn subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push("must be no more than 253 characters".into());
    }
    if !text.split('.').all(is_dns_part) {
        problems.push(SUBDOMAIN.into());
    }
    problems
}

fn is_name(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

fn is_dns_part(part: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_are_checked() {
        let long = "x".repeat(64);
        for (key, starts) in [
            ("app", ""),
            ("app.kubernetes.io/name", ""),
            ("A_b-c.d", ""),
            ("", "name part must be non-empty"),
            ("/x", "prefix part must be non-empty"),
            ("Bad_Prefix/a", "prefix part a lowercase RFC 1123 subdomain must"),
            ("a b", "name part must consist of"),
            ("-a", "name part must consist of"),
            ("a/b/c", "a valid label key must consist of"),
            (&long, "name part must be no more than 63 bytes"),
        ] {
            let problems = key_problems(key);
            assert_eq!(problems.is_empty(), starts.is_empty(), "{key}: {problems:?}");
            assert!(problems.first().is_none_or(|text| text.starts_with(starts)), "{key}: {problems:?}");
        }
    }

    #[test]
    fn label_values_are_checked() {
        let long = "x".repeat(64);
        for (value, fine) in [("", true), ("a", true), ("a_B.c-1", true), ("b c", false), ("-b", false), (&long, false)]
        {
            assert_eq!(value_problems(value).is_empty(), fine, "{value}");
        }
    }
}
