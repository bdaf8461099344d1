//! Escapes the names of fields that are not identifiers of CEL (`k8s.io/apiserver/pkg/cel/escaping.go`).
//!
//! Never: looks a field up. Start reading at [`escape`].

/// The words for values.
const VALUES: [&str; 3] = ["true", "false", "null"];
/// The other words that cannot be names of variables.
pub const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether an expression cannot use a word as a name.
pub fn is_reserved(name: &str) -> bool {
    VALUES.contains(&name) || RESERVED.contains(&name)
}

/// Returns the identifier for a field's name; `None` for a name that no expression can use.
pub fn escape(name: &str) -> Option<String> {
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match letter {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => out.push(letter),
            _ => return None,
        }
        rest = &rest[letter.len_utf8()..];
    }
    Some(out)
}

/// Whether a text is an identifier that a variable can have.
pub fn is_identifier(text: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_start = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    text.starts_with(is_start) && text.chars().all(is_word) && !is_reserved(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let cases = [
            ("plain", Some("plain")),
            ("a.b", Some("a__dot__b")),
            ("a-b/c", Some("a__dash__b__slash__c")),
            ("__", Some("__underscores__")),
            ("namespace", Some("__namespace__")),
            ("1a", None),
            ("a b", None),
            ("", None),
        ];
        for (name, escaped) in cases {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}
